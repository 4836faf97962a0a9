//! The format of the records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A file of records.
#[derive(Debug, Default)]
pub struct Record {
    /// Settings of the daemon.
    pub settings: Vec<(String, String)>,
    pub parts: Vec<Part>,
}

#[derive(Debug)]
pub enum Part {
    Preparation(Preparation),
    Invocation(Invocation),
}

/// A command that prepares the state for the next invocation.
#[derive(Debug, PartialEq)]
pub struct Preparation {
    /// The recorded ID of the job that the command submits.
    pub job: Option<String>,
    pub command: String,
}

#[derive(Debug, Default, Clone)]
pub struct Invocation {
    pub command: String,
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
    /// It waited for resources and was ended by SIGTERM.
    pub is_ended: bool,
    pub mark: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mark {
    Same,
    /// The same, except for figures.
    SameButForFigures,
    /// The same for an ordinary user, who made the record. Root is permitted to do it, as in Slurm.
    SameButForRoot,
    OnPurpose,
    NotOnOneHost,
}

impl Mark {
    /// Returns whether the user who runs the tests should get the recorded result.
    pub fn is_same(self) -> bool {
        self.is_same_for_all() || self == Mark::SameButForRoot && !nix::unistd::geteuid().is_root()
    }

    pub const fn is_same_for_all(self) -> bool {
        matches!(self, Mark::Same | Mark::SameButForFigures)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Mark::Same | Mark::SameButForFigures | Mark::SameButForRoot => "same",
            Mark::OnPurpose => "on purpose",
            Mark::NotOnOneHost => "not on one host",
        }
    }
}

impl Invocation {
    pub fn mark(&self) -> Mark {
        let (word, why) = self.mark.split_once(": ").unwrap_or((&self.mark, ""));
        match (word, why.is_empty()) {
            ("same", true) => Mark::Same,
            ("same but for figures", true) => Mark::SameButForFigures,
            ("same but for root", false) => Mark::SameButForRoot,
            ("on purpose", false) => Mark::OnPurpose,
            ("not on one host", false) => Mark::NotOnOneHost,
            _ => panic!("{}: unknown mark: {}", self.command, self.mark),
        }
    }
}

/// Reads all records, by name.
pub fn all() -> BTreeMap<String, Record> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/slurm");
    let files = fs::read_dir(dir).expect("the records").map(|file| file.expect("a file").path());
    files
        .map(|file| {
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, parse(&fs::read_to_string(file).expect("a record")))
        })
        .collect()
}

/// Returns the invocations of all records.
pub fn invocations() -> impl Iterator<Item = Invocation> {
    all().into_values().flat_map(|record| record.parts).filter_map(|part| match part {
        Part::Invocation(one) => Some(one),
        Part::Preparation(_) => None,
    })
}

fn parse(text: &str) -> Record {
    let mut record = Record::default();
    let mut now: Option<Invocation> = None;
    for line in text.lines() {
        let Some(one) = &mut now else {
            if let Some(command) = line.strip_prefix("$ ") {
                now = Some(Invocation { command: command.to_owned(), ..Invocation::default() });
            } else if let Some(ready) = line.strip_prefix("% ") {
                record.parts.push(Part::Preparation(preparation_of(ready)));
            } else if let Some((name, value)) =
                line.strip_prefix("@ ").and_then(|line| line.split_once('='))
            {
                record.settings.push((name.to_owned(), value.to_owned()));
            } else {
                assert!(line.is_empty() || line.starts_with('#'), "invalid line: {line}");
            }
            continue;
        };
        if let Some((code, mark)) =
            line.strip_prefix("[exit ").and_then(|rest| rest.split_once("] "))
        {
            let (code, how) = code.split_once(' ').unwrap_or((code, ""));
            one.code = code.parse().expect("an exit code");
            one.is_ended = how == "after TERM";
            one.mark = mark.to_owned();
            record.parts.extend(now.take().map(Part::Invocation));
        } else if let Some(text) = line.strip_prefix("0< ") {
            one.stdin += &format!("{text}\n");
        } else if let Some(text) = line.strip_prefix("2> ") {
            one.stderr += &format!("{text}\n");
        } else {
            one.stdout += &format!("{line}\n");
        }
    }
    assert!(now.is_none(), "an invocation without an end: {now:?}");
    record
}

fn preparation_of(line: &str) -> Preparation {
    match line.split_once(' ') {
        Some((job, command)) if job.chars().all(|c| c.is_ascii_digit()) => {
            Preparation { job: Some(job.to_owned()), command: command.to_owned() }
        }
        _ => Preparation { job: None, command: line.to_owned() },
    }
}

#[test]
fn records_contain_settings_preparations_and_invocations() {
    let record = parse(
        "# t\n@ A=b=c\n\n% 7 sbatch x\n% true\n\n$ cat\n0< a\nb\n2> c\n[exit 3 after TERM] on purpose: d\n",
    );
    assert_eq!(record.settings, [("A".to_owned(), "b=c".to_owned())]);
    let [Part::Preparation(first), Part::Preparation(second), Part::Invocation(one)] =
        &record.parts[..]
    else {
        panic!("{record:?}");
    };
    assert_eq!(first, &Preparation { job: Some("7".to_owned()), command: "sbatch x".to_owned() });
    assert_eq!(second, &Preparation { job: None, command: "true".to_owned() });
    assert_eq!(
        (one.stdin.as_str(), one.stdout.as_str(), one.stderr.as_str()),
        ("a\n", "b\n", "c\n")
    );
    assert_eq!((one.code, one.is_ended, one.mark()), (3, true, Mark::OnPurpose));
}
