//! One record, replayed with a daemon of its own.

use super::record::{Invocation, Mark, Ready, Record};
use super::same::{ABSENT, EVERYWHERE, Look};
use slotd_kit::{Out, Slotd, until};
use std::collections::{BTreeMap, BTreeSet};

/// The site of the record, as far as slotd has it.
const SITE: &str = "[[partition]]\nname = \"cpu\"\ndef_mem_per_cpu = \"100M\"\n\n\
    [[partition]]\nname = \"gpu\"\ndef_mem_per_cpu = \"100M\"\nmax_time = \"1-00:00:00\"\ndefault_time = \"1:00:00\"\n";

/// The scripts that were recorded.
const FILES: [(&str, &str); 17] = [
    ("job.sh", "#!/bin/sh\n#SBATCH -t 5\necho \"hello from $SLURM_JOB_ID args=$*\"\n"),
    ("noshebang.sh", "echo hi\n"),
    ("empty.sh", ""),
    ("dos.sh", "#!/bin/sh\r\necho hi\r\n"),
    ("badinterp.sh", "#!/no/such/interp\n"),
    ("baddir.sh", "#!/bin/sh\n#SBATCH --nosuch=1\ntrue\n"),
    (
        "late.sh",
        "#!/bin/sh\n#SBATCH -J early\n\n# text\n#SBATCH --comment=still\ntrue\n#SBATCH -J late\n",
    ),
    (
        "mixed.sh",
        "#!/bin/sh\n#SBATCH -J \"name with space\" --comment='single q' # text\n#SBATCH -o mixed.out\necho \"$SLURM_JOB_NAME\"\n",
    ),
    ("py.sh", "#!/usr/bin/env python3\nimport os\nprint(True, os.getcwd())\n"),
    ("fail_then.sh", "#!/bin/sh\nfalse\ntrue\n"),
    ("mp.conf", "0 echo zero %t\n1 echo one %t\n"),
    ("env.sh", "#!/bin/sh\nenv | sort\n"),
    ("e.sh", "#!/bin/sh\nenv | grep -E '^(SLURM|SRUN|ENVIRONMENT|TMPDIR)' | sort\n"),
    (
        "steps.sh",
        "#!/bin/sh\nsrun true\nsrun -J named -n2 sleep 0.2\nsrun sh -c 'exit 7'\necho srun rc=$?\n",
    ),
    ("sleep.sh", "#!/bin/bash\nsleep ${1:-600}\n"),
    (
        "trap.sh",
        // It is ready when its first nap has begun: what is sent then interrupts that.
        "#!/bin/sh\ntrap 'echo got USR1; exit 9' USR1\ntrap 'echo got TERM' TERM\n\
         sh -c 'echo ready; exec sleep 2'\nwhile :; do sleep 2; done\n",
    ),
    ("inner.sh", "#!/bin/bash\n"),
];

/// What comes before the number of a job where a line tells of it.
const TOLD: [&str; 6] = [
    "Submitted batch job ",
    "salloc: Granted job allocation ",
    "salloc: Pending job allocation ",
    "srun: job ",
    "srun: Job ",
    "sbatch: Job ",
];

/// The number of the job that a text tells of.
fn told(text: &str, is_submission: bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let number = TOLD.iter().find_map(|before| line.strip_prefix(before)?.split(' ').next());
        let number = number.or(Some(line).filter(|_| is_submission))?;
        (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit())).then_some(number)
    })
}

/// With the words that `map` knows replaced. What comes after a job's number and `_` are tasks, not
/// jobs: one, or those up to the bracket.
fn replaced(text: &str, map: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    // What ends the tasks.
    let mut tasks: Option<char> = None;
    for c in text.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        // `USR1@55` are seconds.
        let own = map.get(&word).filter(|_| tasks.is_none() && !out.ends_with('@'));
        out += own.unwrap_or(&word);
        tasks = match (c, tasks) {
            ('_', None) if own.is_some() => Some('_'),
            ('[', Some('_')) => Some(']'),
            ('=', None) if word == "ArrayTaskId" => Some(' '),
            (_, Some(end @ (']' | ' '))) if c != end && !c.is_whitespace() => Some(end),
            _ => None,
        };
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

/// Where the recorder waited at the end of a command, `; sleep 2; `: what is before it, and what
/// looks at the outcome.
fn outcome_of(command: &str) -> Option<(&str, &str)> {
    let at = command.match_indices("; sleep ").map(|(at, _)| at).find(|at| {
        let before = &command[..*at];
        before.matches('\'').count().is_multiple_of(2)
            && before.matches('(').count() == before.matches(')').count()
    })?;
    let (_, looks) = command[at..].strip_prefix("; sleep ")?.split_once("; ")?;
    Some((&command[..at], looks))
}

pub struct Replay {
    slotd: Slotd,
    /// Words of the record, and slotd's: the host's name, the user's, and the numbers of jobs.
    words: BTreeMap<String, String>,
    /// The group and its number.
    group: [String; 2],
    /// The numbers that are known; those of an array's tasks are guessed.
    told: BTreeSet<String>,
    /// Seconds that the job of the next command may run.
    next_limit: Option<u64>,
}

impl Replay {
    pub fn of(record: &Record) -> Replay {
        let mut setup = Slotd::setup()
            .set("SLOTD_CPUS", 2)
            .set("SLOTD_MEMORY_MB", 24105)
            .set("SLOTD_KILL_WAIT", 5);
        for (name, value) in &record.settings {
            setup = setup.set(name, value);
        }
        let mut slotd = setup.prepare();
        let config = slotd.write("slotd.toml", SITE);
        slotd.reset_var("SLOTD_CONFIG", config.display());
        slotd.start_daemon();
        for (name, text) in FILES {
            slotd.program(name, text);
        }
        let said = |command: &str| slotd.sh(command).ok().text().to_owned();
        let host = said("sinfo -h -p cpu -o %n");
        let [user, uid, group, gid] =
            ["-un", "-u", "-gn", "-g"].map(|option| said(&format!("id {option}")));
        let words = [("vm", host), ("lab", user.clone()), ("root", user), ("1001", uid)];
        Replay {
            words: words.map(|(word, own)| (word.to_owned(), own)).into(),
            group: [group, gid],
            told: BTreeSet::new(),
            next_limit: None,
            slotd,
        }
    }

    /// Brings about what was there, and is repeated until it succeeds.
    ///
    /// # Errors
    /// It never does.
    pub fn prepare(&mut self, ready: &Ready) -> Result<(), String> {
        let mut last = None;
        let done = until(|| {
            if let Some(rest) = ready.command.strip_prefix("limit ") {
                let (job, secs) = rest.split_once(' ').expect("a job and seconds");
                if job == "next" {
                    self.next_limit = Some(secs.parse().expect("seconds"));
                    return Some(());
                }
                self.slotd.limit(
                    self.words[job].parse().expect("a number"),
                    secs.parse().expect("seconds"),
                );
                return Some(());
            }
            let out = self.shell(&self.own(&ready.command), "");
            if let (Some(job), Some(own)) =
                (&ready.job, told(&out.stdout, true).or_else(|| told(&out.stderr, true)))
            {
                let (job, own) = (job.clone(), own.to_owned());
                self.learn(&job, &own, &ready.command);
            }
            let done = out.code == 0;
            last = Some(out);
            done.then_some(())
        });
        done.ok_or_else(|| format!("{ready:?} does not succeed: {last:?}\n{}", self.slotd.dump()))
    }

    /// The number of a job is slotd's from now on. The tasks of an array have those after it.
    fn learn(&mut self, recorded: &str, own: &str, command: &str) {
        let after = if command.contains("--array") { 9 } else { 0 };
        let number = |text: &str| text.parse::<u32>().expect("a number");
        self.words.insert(recorded.to_owned(), own.to_owned());
        self.told.insert(recorded.to_owned());
        for more in 1..=after {
            let own = (number(own) + more).to_string();
            let recorded = (number(recorded) + more).to_string();
            if !self.told.contains(&recorded) {
                self.words.insert(recorded, own);
            }
        }
    }

    fn own(&self, text: &str) -> String {
        let [group, gid] = &self.group;
        replaced(text, &self.words).replace("$GROUP", group).replace("$GID", gid)
    }

    fn shell(&self, script: &str, stdin: &str) -> Out {
        let mut shell = self.slotd.shell();
        let [user, home] =
            [self.words["lab"].clone(), self.slotd.base.join("home").display().to_string()];
        shell
            .env_remove("LANG")
            .env("USER", user)
            .env("SHELL", "/bin/bash")
            .env("TMPDIR", "/tmp")
            .env("HOME", home);
        shell.env("SLOTD_OUTPUT", "slurm").arg("-c").arg(script);
        self.slotd.feed(shell, stdin)
    }

    /// Runs it, and ends it with SIGTERM once it waits for resources, where Slurm's was ended.
    fn run(&mut self, one: &Invocation) -> Out {
        let command = self.own(&one.command);
        if let Some(secs) = self.next_limit.take() {
            return self.limited(secs, &command);
        }
        // What slotd lets wait where Slurm refuses it would wait for ever.
        let may_wait = !one.mark().is_same()
            && !one.command.contains([';', '|'])
            && ["srun ", "salloc "].iter().any(|start| one.command.starts_with(start));
        if !one.is_ended && !may_wait {
            return self.shell(&command, &one.stdin);
        }
        self.shell(
            &format!(
                "exec 3>&2; {command} 2>said 3>&- & waits=$!\n\
                 until grep -q queued said || ! kill -0 $waits; do sleep 0.05; done 2>/dev/null\n\
                 kill -TERM $waits 2>/dev/null; wait $waits; code=$?; cat said >&3; exit $code"
            ),
            "",
        )
    }

    /// The job of a command gets a time limit when it runs.
    fn limited(&self, secs: u64, command: &str) -> Out {
        std::thread::scope(|scope| {
            let command = scope.spawn(|| self.shell(command, ""));
            let job = self.slotd.wait("a job that runs", || {
                self.slotd.line("squeue -h -t R -o %A").stdout.trim().parse().ok()
            });
            self.slotd.limit(job, secs);
            command.join().expect("the command")
        })
    }

    /// Whether slotd does the same.
    pub fn is_same(&mut self, one: &Invocation) -> (bool, Out) {
        let mut out = self.run(one);
        let is_submission =
            ["sbatch", "salloc", "srun"].iter().any(|word| one.command.contains(word));
        let number = |stdout: &str, stderr: &str| {
            told(stdout, one.command.contains("sbatch"))
                .or_else(|| told(stderr, false))
                .map(str::to_owned)
        };
        if let (Some(recorded), Some(own)) =
            (number(&one.stdout, &one.stderr), number(&out.stdout, &out.stderr))
            && is_submission
        {
            if one.command.contains("sbatch")
                && !["sleep", "trap", "until"].iter().any(|word| one.command.contains(word))
            {
                let runs = || {
                    !self.slotd.line(&format!("squeue -h -t R,CG -j {own} -o %A")).stdout.is_empty()
                };
                self.slotd.wait("the job to end", || (!runs()).then_some(()));
            }
            self.learn(&recorded, &own, &one.command);
        }
        let mut same = self.is_as_recorded(one, &out);
        if !same && one.mark().is_same() {
            // What was recorded is the outcome of what was done before, which takes its time here
            // and there.
            let (before, looks) = match outcome_of(&one.command) {
                Some((_, looks)) => (Some(out.clone()), looks),
                None if is_submission || one.command.contains("requeue") => return (same, out),
                None => (None, one.command.as_str()),
            };
            let again = Invocation { command: looks.to_owned(), ..one.clone() };
            same = until(|| {
                let mut now = self.run(&again);
                if let Some(before) = &before {
                    now.stderr = before.stderr.clone() + &now.stderr;
                }
                out = now;
                self.is_as_recorded(one, &out).then_some(())
            })
            .is_some();
        }
        (same, out)
    }

    fn is_as_recorded(&self, one: &Invocation, out: &Out) -> bool {
        let look = Look::at(&one.command, &one.stdout, one.mark());
        let (stdout, stderr) = (self.wanted(&one.stdout), self.wanted(&one.stderr));
        out.code == one.code
            && look.is_same(&self.stable(&out.stdout), &stdout)
            && look.says(&self.stable(&out.stderr), &stderr)
    }

    fn wanted(&self, recorded: &str) -> String {
        let mut text = recorded.replace("slurmstepd-vm", "slurmstepd");
        for (slurm, own, _) in EVERYWHERE {
            text = text.replace(slurm, own);
        }
        let is_absent = |line: &str| {
            let line = line.split_once(": ").map_or(line, |(_, line)| line);
            ABSENT.iter().any(|(variable, _)| line.starts_with(variable))
        };
        let lines = text.split_inclusive('\n').filter(|line| !is_absent(line));
        self.own(&lines.collect::<String>())
    }

    fn stable(&self, text: &str) -> String {
        let home = self.slotd.base.join("home").display().to_string();
        uncut(text, &self.words["lab"])
            .replace(&self.slotd.work().display().to_string(), "$DIR")
            .replace(&home, "$HOME")
            .replace(&self.slotd.root.display().to_string(), "$LAB")
            .replace("^@", "")
    }

    /// What a failed test shows of it.
    pub fn difference(&self, one: &Invocation, out: &Out) -> String {
        let look = Look::at(&one.command, &one.stdout, one.mark());
        let errors = Look::at("", "", one.mark());
        format!(
            "$ {}\n{}{}[exit {}, {} is recorded] {}\n",
            one.command,
            look.difference(&self.stable(&out.stdout), &self.wanted(&one.stdout)),
            errors
                .difference(&self.stable(&out.stderr), &self.wanted(&one.stderr))
                .replace("\n", " (stderr)\n"),
            out.code,
            one.code,
            one.mark,
        )
    }
}

/// Tables cut a long name after 8 characters, and sacct marks that with `+`: whole again.
fn uncut(text: &str, user: &str) -> String {
    let Some(cut) = user.get(..8).filter(|cut| *cut != user) else { return text.to_owned() };
    ["+", " ", "\n"].iter().fold(text.to_owned(), |text, end| {
        text.replace(&format!("{cut}{end}"), &format!("{user}{}", end.trim_start_matches('+')))
    })
}

/// What is written of an invocation, whether it does what Slurm did, and how it differs.
pub type Outcome = (Mark, bool, String);

/// All invocations of a record, and what could not be made ready for them.
pub fn replay(record: &Record) -> Vec<Outcome> {
    use super::record::Part;
    let mut replay = Replay::of(record);
    let mut results = Vec::new();
    for part in &record.parts {
        match part {
            Part::Ready(ready) => {
                let not_ready = replay.prepare(ready).err();
                results.extend(not_ready.map(|why| (Mark::Same, false, why)));
            }
            Part::Invocation(one) => {
                let (same, out) = replay.is_same(one);
                results.push((one.mark(), same, replay.difference(one, &out)));
            }
        }
    }
    results
}

#[test]
fn the_outcome_is_what_comes_after_the_wait() {
    assert_eq!(
        outcome_of("scancel 1; sleep 2; squeue; cat x"),
        Some(("scancel 1", "squeue; cat x"))
    );
    assert_eq!(outcome_of("srun sh -c 'a; sleep 1; b'"), None);
    assert_eq!(outcome_of("(a; sleep 1; b) & c"), None);
}

#[test]
fn long_user_names_are_whole_again() {
    let cut = "1 cpu longname PD\n2 cpu longname+ longname\n3 longnames longname-too\n";
    assert_eq!(
        uncut(cut, "longnamed"),
        "1 cpu longnamed PD\n2 cpu longnamed longnamed\n3 longnames longname-too\n"
    );
    assert_eq!(uncut(cut, "longname"), cut);
}

#[test]
fn numbers_of_jobs_are_replaced_and_those_of_tasks_are_not() {
    let map = [("96", "7"), ("5", "8")].map(|(word, own)| (word.to_owned(), own.to_owned())).into();
    assert_eq!(
        replaced("squeue -j 96_5,5_[3-5,96] slurm-96_5.out arr_5_0 USR1@5", &map),
        "squeue -j 7_5,8_[3-5,96] slurm-7_5.out arr_8_0 USR1@5"
    );
    assert_eq!(replaced("JobId=96 ArrayTaskId=3-5,96 X=5", &map), "JobId=7 ArrayTaskId=3-5,96 X=8");
}
