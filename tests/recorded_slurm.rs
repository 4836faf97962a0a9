//! What real Slurm 22.05 printed and returned, replayed: `tests/recorded/slurm/*.txt`, a file a command.
//!
//! An invocation is `$ COMMAND`, then its standard input (`0< `), its output, its errors (`2> `), and `[exit N] MARK`:
//!
//! * `same`: slotd has this exit code, prints this, and says this. It may say more: the value that was wrong after
//!   Slurm's words, the cause on a line of its own, a hint.
//! * `on purpose: WHY`: it does something else, and why.
//! * `not on one host: WHY`: what is asked for has no meaning here.
//!
//! A difference without a mark fails, and so does a mark without a difference. Slurm ran on a node `vm` with 2 CPUs and
//! the partitions cpu and gpu; job numbers are those of the record, and are replaced by slotd's.

use expect_test::expect_file;
use slotd_kit::{Out, Slotd};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PARTITIONS: &str = "[[partition]]\nname = \"cpu\"\n\n[[partition]]\nname = \"gpu\"\nmax_time = \"1-00:00:00\"\n";

/// The scripts that were recorded.
const FILES: [(&str, &str); 14] = [
    ("job.sh", "#!/bin/sh\n#SBATCH -t 5\necho \"hello from $SLURM_JOB_ID args=$*\"\n"),
    ("noshebang.sh", "echo hi\n"),
    ("empty.sh", ""),
    ("dos.sh", "#!/bin/sh\r\necho hi\r\n"),
    ("badinterp.sh", "#!/no/such/interp\n"),
    ("baddir.sh", "#!/bin/sh\n#SBATCH --nosuch=1\ntrue\n"),
    ("late.sh", "#!/bin/sh\n#SBATCH -J early\n\n# text\n#SBATCH --comment=still\ntrue\n#SBATCH -J late\n"),
    (
        "mixed.sh",
        "#!/bin/sh\n#SBATCH -J \"name with space\" --comment='single q' # text\n#SBATCH -o mixed.out\necho \"$SLURM_JOB_NAME\"\n",
    ),
    ("py.sh", "#!/usr/bin/env python3\nimport os\nprint(True, os.getcwd())\n"),
    ("fail_then.sh", "#!/bin/sh\nfalse\ntrue\n"),
    ("mp.conf", "0 echo zero %t\n1 echo one %t\n"),
    ("env.sh", "#!/bin/sh\nenv | sort\n"),
    ("e.sh", "#!/bin/sh\nenv | grep SLURM | sort\n"),
    ("steps.sh", "#!/bin/sh\nsrun sh -c 'exit 7'\necho srun rc=$?\n"),
];

#[derive(Debug, Default)]
struct Invocation {
    command: String,
    stdin: String,
    stdout: Vec<String>,
    stderr: Vec<String>,
    code: i32,
    mark: String,
}

fn parse(text: &str) -> Vec<Invocation> {
    let mut all = Vec::new();
    let mut now: Option<Invocation> = None;
    for line in text.lines() {
        let Some(one) = &mut now else {
            if let Some(command) = line.strip_prefix("$ ") {
                now = Some(Invocation { command: command.to_owned(), ..Invocation::default() });
            }
            continue;
        };
        if let Some((code, mark)) = line.strip_prefix("[exit ").and_then(|rest| rest.split_once("] ")) {
            one.code = code.parse().expect("an exit code");
            one.mark = mark.to_owned();
            all.extend(now.take());
        } else if let Some(text) = line.strip_prefix("0< ") {
            one.stdin += &format!("{text}\n");
        } else if let Some(text) = line.strip_prefix("2> ") {
            one.stderr.push(text.to_owned());
        } else {
            one.stdout.push(line.to_owned());
        }
    }
    all
}

/// The number of the job that a line tells of, where it is one that only tells of it.
fn told(line: &str) -> Option<&str> {
    let number = ["Submitted batch job ", "salloc: Granted job allocation ", ""]
        .iter()
        .find_map(|before| line.strip_prefix(before))?;
    number.chars().all(|c| c.is_ascii_digit()).then_some(number).filter(|number| !number.is_empty())
}

/// With the words that `map` knows replaced.
fn replaced(text: &str, map: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        out += map.get(&word).unwrap_or(&word);
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

/// Lines without what is the machine's: the directory, the moment, the widths of columns.
fn plain(text: &str, slotd: &Slotd) -> Vec<String> {
    let stable = text.replace(&slotd.work().display().to_string(), "$DIR");
    let words = |line: &str| line.split_whitespace().map(moment).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = stable.lines().map(words).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// `2026-11-20T23:40:23` is any moment, and the steps of srun's own jobs have any number.
fn moment(word: &str) -> String {
    if word.starts_with("StepId=") {
        return "StepId".to_owned();
    }
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.find("0000-00-00T00:00:00").map_or(word.to_owned(), |at| format!("{}TIME{}", &word[..at], &word[at + 19..]))
}

/// Whether slotd says all of it, in this order, each line perhaps with more at its end.
fn says(said: &[String], recorded: &[String]) -> bool {
    let mut said = said.iter();
    let begins = |line: &String, wanted: &String| line.starts_with(wanted.trim_end_matches('.'));
    recorded.iter().all(|wanted| said.any(|line| begins(line, wanted)))
}

struct Replay {
    slotd: Slotd,
    /// Words of the record, and slotd's: the host's name, and the numbers of jobs.
    words: BTreeMap<String, String>,
}

impl Replay {
    fn new() -> Replay {
        let mut slotd = Slotd::setup().set("SLOTD_CPUS", 2).set("SLOTD_MEMORY_MB", 24105).prepare();
        let config = slotd.write("slotd.toml", PARTITIONS);
        slotd.reset_var("SLOTD_CONFIG", config.display());
        slotd.start_daemon();
        for (name, text) in FILES {
            if name == "noshebang.sh" {
                slotd.write(name, text)
            } else {
                slotd.program(name, text)
            };
        }
        let host = slotd.line("sinfo -h -p cpu -o %n").text().to_owned();
        Replay { slotd, words: [("vm".to_owned(), host)].into() }
    }

    fn run(&self, one: &Invocation) -> Out {
        let mut shell = self.slotd.shell();
        shell.env("SLOTD_OUTPUT", "slurm").arg("-c").arg(replaced(&one.command, &self.words));
        let out = self.slotd.feed(shell, one.stdin.as_str());
        if !one.command.contains("sleep") {
            let runs = || !self.slotd.line("squeue -h -t R,CG -o %A").stdout.is_empty();
            self.slotd.wait("jobs to end", || (!runs()).then_some(()));
        }
        out
    }

    /// Whether slotd does the same.
    fn is_same(&mut self, one: &Invocation) -> (bool, Out) {
        let out = self.run(one);
        let both = |text: &str| text.lines().find_map(told).map(str::to_owned);
        let recorded = one.stdout.iter().chain(&one.stderr).find_map(|line| told(line)).map(str::to_owned);
        if let (Some(recorded), Some(own)) = (recorded, both(&out.stdout).or_else(|| both(&out.stderr)))
            && (one.command.contains("sbatch") || one.command.contains("salloc"))
        {
            self.words.insert(recorded, own);
        }
        let wanted = |lines: &[String]| plain(&replaced(&lines.join("\n"), &self.words), &self.slotd);
        let own = |text: &str| plain(text, &self.slotd);
        let stderr: Vec<String> = one.stderr.iter().map(|line| line.replace("slurmstepd-vm", "slurmstepd")).collect();
        let is_same = out.code == one.code
            && own(&out.stdout) == wanted(&one.stdout)
            && says(&own(&out.stderr), &wanted(&stderr))
            && (!stderr.is_empty() || out.stderr.is_empty());
        (is_same, out)
    }
}

fn recorded() -> BTreeMap<String, Vec<Invocation>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/slurm");
    let files = fs::read_dir(dir).expect("the records").map(|file| file.expect("a file").path());
    files
        .map(|file| {
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, parse(&fs::read_to_string(file).expect("a record")))
        })
        .collect()
}

#[test]
fn what_slurm_printed_is_printed_but_for_what_differs_on_purpose() {
    let mut wrong = String::new();
    let mut counts = BTreeMap::from([("same", 0), ("on purpose", 0), ("not on one host", 0)]);
    let results: Vec<_> = std::thread::scope(|scope| {
        let replays: Vec<_> = recorded()
            .into_iter()
            .map(|(name, all)| {
                scope.spawn(move || {
                    let mut replay = Replay::new();
                    all.into_iter()
                        .map(|one| (replay.is_same(&one), one))
                        .map(|(found, one)| (name.clone(), found, one))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        replays.into_iter().flat_map(|replay| replay.join().expect("a replay")).collect()
    });
    for (name, (is_same, out), one) in results {
        let mark = one.mark.split(':').next().unwrap_or_default();
        *counts.get_mut(mark).unwrap_or_else(|| panic!("{name}: {}: no mark is called {mark}", one.command)) += 1;
        if is_same != (mark == "same") {
            wrong += &format!("{name}: marked {}: {one:#?}\nslotd: {out:#?}\n", one.mark);
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// The page in contrib is what `slotd compat` prints, with what differs on purpose in the records.
#[test]
fn the_page_of_compatibility_is_true() {
    let slotd = Slotd::setup().prepare();
    let mut page = slotd.cmd("slotd", &["compat"]).ok().stdout;
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in recorded().into_values().flatten().filter(|one| one.mark != "same") {
        reasons.entry(one.mark).or_default().push(format!("`{}`", one.command));
    }
    page += "\n## Seen beside Slurm\n\nInvocations whose output and exit code were recorded with Slurm 22.05.8, and differ here.\n\n";
    for (why, commands) in reasons {
        page += &format!("* {why}: {}\n", commands.join(", "));
    }
    expect_file![format!("{}/contrib/COMPATIBILITY.md", env!("CARGO_MANIFEST_DIR"))].assert_eq(&page);
}
