//! Replays a record with its own daemon.

use super::record::{Invocation, Mark, Preparation, Record};
use super::same::{ABSENT, Comparison, EVERYWHERE};
use slotd_kit::{Out, Slotd, until};
use std::collections::{BTreeMap, BTreeSet};

/// The partitions of the recorded cluster, as far as slotd supports them.
const SITE: &str = "[[partition]]\nname = \"cpu\"\ndef_mem_per_cpu = \"100M\"\n\n\
    [[partition]]\nname = \"gpu\"\ndef_mem_per_cpu = \"100M\"\nmax_time = \"1-00:00:00\"\ndefault_time = \"1:00:00\"\n";

/// The scripts that the recorded commands use.
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
        // "ready" means that the first sleep has begun, so a signal interrupts it.
        "#!/bin/sh\ntrap 'echo got USR1; exit 9' USR1\ntrap 'echo got TERM' TERM\n\
         sh -c 'echo ready; exec sleep 2'\nwhile :; do sleep 2; done\n",
    ),
    ("inner.sh", "#!/bin/bash\n"),
];

/// The prefixes of lines that contain a job ID.
const JOB_ID_PREFIXES: [&str; 6] = [
    "Submitted batch job ",
    "salloc: Granted job allocation ",
    "salloc: Pending job allocation ",
    "srun: job ",
    "srun: Job ",
    "sbatch: Job ",
];

/// Returns the job ID in a text. If it is a submission, a line with only a number counts.
fn job_id(text: &str, is_submission: bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let number =
            JOB_ID_PREFIXES.iter().find_map(|before| line.strip_prefix(before)?.split(' ').next());
        let number = number.or(Some(line).filter(|_| is_submission))?;
        (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit())).then_some(number)
    })
}

/// Replaces the words in `map`. The numbers after a job ID and `_` are tasks and not replaced: a
/// single one, or all until the closing bracket.
fn replaced(text: &str, map: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    // The character that ends the task numbers.
    let mut tasks: Option<char> = None;
    for c in text.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        // The number in `USR1@55` is in seconds.
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

/// Splits a command that ends with a delay (`; sleep 2; `) into the part before the delay and the
/// part that checks the outcome.
fn outcome_of(command: &str) -> Option<(&str, &str)> {
    let at = command.match_indices("; sleep ").map(|(at, _)| at).find(|at| {
        let before = &command[..*at];
        before.matches('\'').count().is_multiple_of(2)
            && before.matches('(').count() == before.matches(')').count()
    })?;
    let (_, check) = command[at..].strip_prefix("; sleep ")?.split_once("; ")?;
    Some((&command[..at], check))
}

pub struct Replay {
    slotd: Slotd,
    /// Recorded words and their replacements: host name, user name and job IDs.
    words: BTreeMap<String, String>,
    /// The name and the ID of the group.
    group: [String; 2],
    /// The recorded job IDs with a known replacement. The IDs of other array tasks are guessed.
    known: BTreeSet<String>,
    /// The time limit of the next command's job, in seconds.
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
        let output = |command: &str| slotd.sh(command).ok().text().to_owned();
        let host = output("sinfo -h -p cpu -o %n");
        let [user, uid, group, gid] =
            ["-un", "-u", "-gn", "-g"].map(|option| output(&format!("id {option}")));
        let words = [("vm", host), ("lab", user.clone()), ("root", user), ("1001", uid)];
        Replay {
            words: words.map(|(word, own)| (word.to_owned(), own)).into(),
            group: [group, gid],
            known: BTreeSet::new(),
            next_limit: None,
            slotd,
        }
    }

    /// Runs a preparation until it succeeds.
    ///
    /// # Errors
    /// Fails if it does not succeed in time.
    pub fn prepare(&mut self, ready: &Preparation) -> Result<(), String> {
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
                (&ready.job, job_id(&out.stdout, true).or_else(|| job_id(&out.stderr, true)))
            {
                let (job, own) = (job.clone(), own.to_owned());
                self.map_job(&job, &own, &ready.command);
            }
            let done = out.code == 0;
            last = Some(out);
            done.then_some(())
        });
        done.ok_or_else(|| format!("{ready:?} does not succeed: {last:?}\n{}", self.slotd.dump()))
    }

    /// Maps a recorded job ID to slotd's. The tasks of an array have the following IDs.
    fn map_job(&mut self, recorded: &str, own: &str, command: &str) {
        let after = if command.contains("--array") { 9 } else { 0 };
        let number = |text: &str| text.parse::<u32>().expect("a number");
        self.words.insert(recorded.to_owned(), own.to_owned());
        self.known.insert(recorded.to_owned());
        for more in 1..=after {
            let own = (number(own) + more).to_string();
            let recorded = (number(recorded) + more).to_string();
            if !self.known.contains(&recorded) {
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

    /// Runs an invocation. If Slurm's was ended while it waited for resources, it is also ended
    /// with SIGTERM once it waits.
    fn run(&mut self, one: &Invocation) -> Out {
        let command = self.own(&one.command);
        if let Some(secs) = self.next_limit.take() {
            return self.limited(secs, &command);
        }
        // If slotd queues a request that Slurm refuses, the command would wait forever.
        let may_wait = !one.mark().is_same()
            && !one.command.contains([';', '|'])
            && ["srun ", "salloc "].iter().any(|start| one.command.starts_with(start));
        if !one.is_ended && !may_wait {
            return self.shell(&command, &one.stdin);
        }
        self.shell(
            &format!(
                "exec 3>&2; {command} 2>errors 3>&- & waits=$!\n\
                 until grep -q queued errors || ! kill -0 $waits; do sleep 0.05; done 2>/dev/null\n\
                 kill -TERM $waits 2>/dev/null; wait $waits; code=$?; cat errors >&3; exit $code"
            ),
            "",
        )
    }

    /// Runs a command and sets a time limit once its job is running.
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

    /// Runs an invocation and returns whether the result is the same.
    pub fn is_same(&mut self, one: &Invocation) -> (bool, Out) {
        let mut out = self.run(one);
        let is_submission =
            ["sbatch", "salloc", "srun"].iter().any(|word| one.command.contains(word));
        let number = |stdout: &str, stderr: &str| {
            job_id(stdout, one.command.contains("sbatch"))
                .or_else(|| job_id(stderr, false))
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
            self.map_job(&recorded, &own, &one.command);
        }
        let mut same = self.is_as_recorded(one, &out);
        if !same && one.mark().is_same() {
            // The result depends on earlier commands, whose effects may take a while, so check
            // repeatedly.
            let (before, check) = match outcome_of(&one.command) {
                Some((_, check)) => (Some(out.clone()), check),
                None if is_submission || one.command.contains("requeue") => return (same, out),
                None => (None, one.command.as_str()),
            };
            let again = Invocation { command: check.to_owned(), ..one.clone() };
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
        let comparison = Comparison::new(&one.command, &one.stdout, one.mark());
        let (stdout, stderr) = (self.wanted(&one.stdout), self.wanted(&one.stderr));
        out.code == one.code
            && comparison.is_same(&self.stable(&out.stdout), &stdout)
            && comparison.contains(&self.stable(&out.stderr), &stderr)
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
        untruncated(text, &self.words["lab"])
            .replace(&self.slotd.work().display().to_string(), "$DIR")
            .replace(&home, "$HOME")
            .replace(&self.slotd.root.display().to_string(), "$LAB")
            .replace("^@", "")
    }

    /// Returns the difference to print if the test fails.
    pub fn difference(&self, one: &Invocation, out: &Out) -> String {
        let comparison = Comparison::new(&one.command, &one.stdout, one.mark());
        let errors = Comparison::new("", "", one.mark());
        format!(
            "$ {}\n{}{}[exit {}, recorded: {}] {}\n",
            one.command,
            comparison.difference(&self.stable(&out.stdout), &self.wanted(&one.stdout)),
            errors
                .difference(&self.stable(&out.stderr), &self.wanted(&one.stderr))
                .replace("\n", " (stderr)\n"),
            out.code,
            one.code,
            one.mark,
        )
    }
}

/// Restores user names that tables truncated to 8 characters, which sacct marks with `+`.
fn untruncated(text: &str, user: &str) -> String {
    let Some(cut) = user.get(..8).filter(|cut| *cut != user) else { return text.to_owned() };
    ["+", " ", "\n"].iter().fold(text.to_owned(), |text, end| {
        text.replace(&format!("{cut}{end}"), &format!("{user}{}", end.trim_start_matches('+')))
    })
}

/// The mark of an invocation, whether the result was the same, and the difference.
pub type Outcome = (Mark, bool, String);

/// Replays a record. Returns the outcomes of all invocations and of failed preparations.
pub fn replay(record: &Record) -> Vec<Outcome> {
    use super::record::Part;
    let mut replay = Replay::of(record);
    let mut results = Vec::new();
    for part in &record.parts {
        match part {
            Part::Preparation(ready) => {
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
fn the_outcome_check_follows_the_delay() {
    assert_eq!(
        outcome_of("scancel 1; sleep 2; squeue; cat x"),
        Some(("scancel 1", "squeue; cat x"))
    );
    assert_eq!(outcome_of("srun sh -c 'a; sleep 1; b'"), None);
    assert_eq!(outcome_of("(a; sleep 1; b) & c"), None);
}

#[test]
fn truncated_user_names_are_restored() {
    let cut = "1 cpu longname PD\n2 cpu longname+ longname\n3 longnames longname-too\n";
    assert_eq!(
        untruncated(cut, "longnamed"),
        "1 cpu longnamed PD\n2 cpu longnamed longnamed\n3 longnames longname-too\n"
    );
    assert_eq!(untruncated(cut, "longname"), cut);
}

#[test]
fn job_ids_are_replaced_but_task_numbers_are_not() {
    let map = [("96", "7"), ("5", "8")].map(|(word, own)| (word.to_owned(), own.to_owned())).into();
    assert_eq!(
        replaced("squeue -j 96_5,5_[3-5,96] slurm-96_5.out arr_5_0 USR1@5", &map),
        "squeue -j 7_5,8_[3-5,96] slurm-7_5.out arr_8_0 USR1@5"
    );
    assert_eq!(replaced("JobId=96 ArrayTaskId=3-5,96 X=5", &map), "JobId=7 ArrayTaskId=3-5,96 X=8");
}
