//! Compares two outputs, ignoring what depends on the machine and the time: blanks, process IDs and
//! ports, dates, and durations.

use super::record::Mark;
use serde_json::Value;

/// Variables and fields with values that depend on the machine, the time or the daemon.
const ANY_VALUE: [&str; 28] = [
    "ActiveFeatures",
    "AllocNode:Sid",
    "Arch",
    "AvailableFeatures",
    "AveWatts",
    "CPULoad",
    "CoresPerSocket",
    "CurrentWatts",
    "FreeMem",
    "LastSchedEval",
    "OS",
    "PATH",
    "Priority",
    "Q",
    "Scheduler",
    "SecsPreSuspend",
    "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR",
    "Sid",
    "SrunHost:Pid",
    "StepId",
    "ThreadsPerCore",
    "Version",
    "f",
    "b",
    "p",
    "pid",
    "version",
];

/// Differences in all output of slotd: Slurm's text, slotd's text and the reason.
pub const EVERYWHERE: [(&str, &str, &str); 6] = [
    (" MinMemoryCPU=100M", "", "default memory is shown as MinMemoryNode"),
    ("365-00:00:00", "UNLIMITED", "a job without a time limit is unlimited"),
    ("NodeAddr=127.0.0.1", "NodeAddr=vm", "the node's address is its name"),
    ("JobHeldAdmin", "JobHeldUser", "the only user is the administrator"),
    (" Requeue=1 ", " Requeue=0 ", "jobs are requeued automatically only with --requeue"),
    ("SLURM_CLUSTER_NAME=lab", "SLURM_CLUSTER_NAME=slotd", "the cluster is named slotd"),
];

/// Variables that slotd's jobs and steps don't have, with the reason.
pub const ABSENT: [(&str, &str); 12] = [
    ("   OS=", "it depends on the host"),
    ("SLURM_CONF=", "there is no slurm.conf"),
    ("SLURM_DISTRIBUTION=", "tasks are distributed on one node unless --distribution is given"),
    ("SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0=", "there are no heterogeneous jobs"),
    ("SLURM_MEM_PER_CPU=100", "default memory is not an option of the srun in a job"),
    ("SLURM_NODE_ALIASES=", "there are no cloud nodes"),
    ("SLURM_PTY_PORT=", "srun listens on no port"),
    ("SLURM_SRUN_COMM_HOST=", "srun listens on no port"),
    ("SLURM_SRUN_COMM_PORT=", "srun listens on no port"),
    ("SLURM_STEP_LAUNCHER_PORT=", "srun listens on no port"),
    ("SLURM_WORKING_CLUSTER=", "there is only one cluster"),
    ("SRUN_DEBUG=", "the verbosity of srun is set with -v"),
];

/// How to compare the output of a command.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    figures: bool,
    /// Lists of `NAME=VALUE`, in which slotd may have additional entries.
    more: bool,
    /// `4:05` is in minutes and seconds.
    minutes: bool,
    /// Rows may be in any order, because many are equal by the default sort order.
    any_order: bool,
}

impl Comparison {
    pub fn new(command: &str, recorded: &str, mark: Mark) -> Comparison {
        let mut words = recorded.split_whitespace();
        let first = words.next().unwrap_or_default();
        // A task number may precede the name.
        let named = if first.ends_with(':') { words.next().unwrap_or_default() } else { first };
        Comparison {
            figures: mark == Mark::SameButForFigures,
            more: command.contains("show job")
                || named.split_once('=').is_some_and(|(name, _)| is_name(name)),
            minutes: command.contains("squeue"),
            any_order: ["squeue", "sacct"].iter().any(|word| command.contains(word))
                && !command.contains("-S"),
        }
    }

    /// Returns whether the whole output is as recorded.
    pub fn is_same(self, own: &str, recorded: &str) -> bool {
        if recorded.trim_start().starts_with('{') {
            let parse = |text| serde_json::from_str::<Value>(text).ok();
            return parse(own)
                .zip(parse(recorded))
                .is_some_and(|(own, recorded)| lacks("", &own, &recorded).is_empty());
        }
        let words = |text: &str| -> Vec<Vec<String>> {
            let lines = text
                .trim_end()
                .lines()
                .map(|line| line.split_whitespace().map(|w| self.plain(w)).collect());
            lines.collect()
        };
        let (own, recorded) = (words(own), words(recorded));
        if self.more {
            let mut own = own.iter().flatten();
            return recorded
                .iter()
                .flatten()
                .all(|wanted| own.any(|own| self.is_same_word(own, wanted)));
        }
        if self.any_order {
            let mut left = own;
            return recorded.iter().all(|wanted| {
                let at = left.iter().position(|own| self.is_same_line(own, wanted));
                at.map(|at| left.remove(at)).is_some()
            }) && left.is_empty();
        }
        own.len() == recorded.len()
            && own.iter().zip(&recorded).all(|(own, wanted)| self.is_same_line(own, wanted))
    }

    /// Describes the difference for a person.
    pub fn difference(self, own: &str, recorded: &str) -> String {
        if self.more {
            let mut words = own.split_whitespace();
            let missing = recorded.split_whitespace().filter(|wanted| {
                let before = words.clone();
                let is_missing =
                    !words.any(|own| self.is_same_word(&self.plain(own), &self.plain(wanted)));
                if is_missing {
                    words = before;
                }
                is_missing
            });
            return missing.map(|word| format!("without {word}\n")).collect();
        }
        if recorded.trim_start().starts_with('{') {
            let parse = |text| serde_json::from_str::<Value>(text).unwrap_or_default();
            return lacks("", &parse(own), &parse(recorded))
                .iter()
                .map(|line| format!("{line}\n"))
                .collect();
        }
        let lines = |text: &str, before: &str| {
            text.lines().map(|line| format!("{before}{line}\n")).collect::<String>()
        };
        lines(recorded, "- ") + &lines(own, "+ ")
    }

    /// Returns whether the output contains all recorded lines in order. Lines may have additional
    /// text at the end. If nothing was recorded, the output must be empty.
    pub fn contains(self, own: &str, recorded: &str) -> bool {
        let words =
            |line: &str| line.split_whitespace().map(|word| self.plain(word)).collect::<Vec<_>>();
        let mut lines = own.lines().map(words);
        let begins = |own: &[String], wanted: &[String]| {
            let Some((last, before)) = wanted.split_last() else {
                return own.is_empty();
            };
            let is_last = |own: &String| {
                self.is_same_word(own, last) || own.starts_with(last.trim_end_matches('.'))
            };
            own.len() >= wanted.len()
                && self.is_same_line(&own[..before.len()], before)
                && is_last(&own[before.len()])
        };
        let all = recorded.lines().filter(|line| !line.is_empty()).all(|line| {
            let wanted = words(line);
            lines.any(|own| begins(&own, &wanted))
        });
        all && (!recorded.is_empty() || own.is_empty())
    }

    fn plain(self, word: &str) -> String {
        let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
        let mut plain: String =
            if self.figures { word.chars().map(digits).collect() } else { word.to_owned() };
        while self.figures && plain.contains("00") {
            plain = plain.replace("00", "0");
        }
        plain
    }

    fn is_same_line(self, own: &[String], wanted: &[String]) -> bool {
        // Dates such as `Fri Nov 20 23:39:43 2026`.
        let is_date = |line: &[String]| {
            line.len() == 5
                && ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&line[0].as_str())
        };
        is_date(own) && is_date(wanted)
            || own.len() == wanted.len()
                && own.iter().zip(wanted).all(|(own, wanted)| self.is_same_word(own, wanted))
    }

    fn is_same_word(self, own: &str, wanted: &str) -> bool {
        let name = |word: &str| word.split_once('=').map(|(name, _)| name.to_owned());
        own == wanted
            || is_day_or_month(own) && is_day_or_month(wanted)
            || name(wanted)
                .is_some_and(|key| ANY_VALUE.contains(&key.as_str()) && name(own) == Some(key))
            || self.is_same_list(own, wanted)
    }

    /// Compares the values in a word with separators.
    fn is_same_list(self, own: &str, wanted: &str) -> bool {
        const SEPARATORS: [char; 10] = ['@', '=', '|', '[', ']', '(', ')', '<', '>', ','];
        let separators = |text: &str| text.matches(SEPARATORS).collect::<String>();
        let is_exit_code = wanted.contains("ExitCode=");
        separators(own) == separators(wanted)
            && own.split(SEPARATORS).zip(wanted.split(SEPARATORS)).all(|(own, wanted)| {
                own == wanted
                    || is_moment(own) && is_moment(wanted)
                    || is_epoch(own) && is_epoch(wanted)
                    || !is_exit_code && self.are_seconds_apart(own, wanted)
            })
    }

    /// Returns whether two durations differ by less than a minute.
    fn are_seconds_apart(self, own: &str, wanted: &str) -> bool {
        let secs = |text: &str| {
            let text = text.split('.').next().unwrap_or_default();
            let (days, clock) = text.split_once('-').unwrap_or(("0", text));
            let parts: Vec<&str> = clock.split(':').collect();
            let is_clock = if self.minutes {
                parts.len() >= 2
            } else {
                parts.len() == 3 || text.starts_with("00:")
            };
            let two = parts.iter().skip(1).all(|part| part.len() == 2);
            let number = |part: &&str| part.parse::<u64>().ok();
            let parts: Option<Vec<u64>> = parts.iter().map(number).collect();
            let days: u64 = days.parse().ok()?;
            parts
                .filter(|_| is_clock && two)
                .map(|parts| days * 86_400 + parts.iter().fold(0, |all, part| all * 60 + part))
        };
        secs(own).zip(secs(wanted)).is_some_and(|(own, wanted)| own.abs_diff(wanted) < 60)
    }
}

/// Returns whether the word is a name such as `SLURM_JOB_ID`, `AllocNode:Sid`, `ReqB:S:C:T` or
/// `gres/gpu`.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:/".contains(c))
}

/// Returns whether the word is an abbreviated day or month.
fn is_day_or_month(word: &str) -> bool {
    const NAMES: &str =
        "Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
    word.len() == 3 && NAMES.split(' ').any(|name| name == word)
}

/// Returns whether the word is a time such as `2026-11-20T23:40:23`, possibly followed by a period.
fn is_moment(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.trim_end_matches('.') == "0000-00-00T00:00:00"
}

/// Returns whether the word is a number of seconds since 1970.
fn is_epoch(word: &str) -> bool {
    word.len() == 10 && word.chars().all(|c| c.is_ascii_digit())
}

/// JSON members with strings that depend on the host or the daemon.
const ANY_TEXT: [&str; 9] = [
    "active_features",
    "address",
    "cluster",
    "features",
    "group",
    "operating_system",
    "release",
    "slurmd_version",
    "working_directory",
];

/// Returns the differences from the recorded document. All its members must exist with the same
/// types and strings. Numbers depend on the time and are ignored.
fn lacks(path: &str, own: &Value, recorded: &Value) -> Vec<String> {
    match (own, recorded) {
        (Value::Object(own), Value::Object(recorded)) => {
            let members = recorded.iter().map(|(name, value)| {
                let path = format!("{path}.{name}");
                own.get(name).map_or_else(
                    || vec![format!("{path} is missing")],
                    |own| lacks(&path, own, value),
                )
            });
            members.flatten().collect()
        }
        (Value::Array(own), Value::Array(recorded)) if own.len() >= recorded.len() => {
            own.iter().zip(recorded).flat_map(|(own, value)| lacks(path, own, value)).collect()
        }
        (Value::Number(_), Value::Number(_)) => Vec::new(),
        (Value::String(_), Value::String(_))
            if path.starts_with(".meta.")
                || ANY_TEXT.contains(&path.rsplit('.').next().unwrap_or_default()) =>
        {
            Vec::new()
        }
        _ if own == recorded => Vec::new(),
        _ => vec![format!("{path} is {own}, not {recorded}")],
    }
}

#[test]
fn times_durations_and_figures_are_ignored_but_not_values() {
    let squeue = Comparison { figures: false, more: false, minutes: true, any_order: false };
    assert!(squeue.is_same("7 R 0:04 2026-11-20T23:40:23", "7 R  0:01 2026-01-01T00:00:00\n"));
    assert!(!squeue.is_same("7 R 4:04", "7 R 0:04"));
    assert!(!squeue.is_same("7 R 0:04\n8 R 0:04", "7 R 0:04"));
    let sacct = Comparison { minutes: false, ..squeue };
    assert!(sacct.is_same("7|0:9|00:00:01", "7|0:9|00:00:00"));
    assert!(!sacct.is_same("7|0:15|", "7|0:09|"));
    let show = Comparison { more: true, ..sacct };
    assert!(show.is_same(
        "JobId=7 New=1 Priority=3 RunTime=00:00:02",
        "JobId=7 Priority=9\n   RunTime=00:00:00"
    ));
    assert!(!show.is_same("JobId=7 TimeLimit=00:01:00", "JobId=7 TimeLimit=00:02:00"));
    assert!(!show.is_same("JobId=7 ExitCode=0:15", "JobId=7 ExitCode=0:53"));
    let figures = Comparison { figures: true, ..sacct };
    assert!(figures.is_same("a 12K b1", "a 9K b77"));
    assert!(!figures.is_same("a 12K", "a 12M"));
    assert!(sacct.is_same("{\"a\": [{\"b\": 2, \"c\": \"x\"}]}", "{\"a\": [{\"b\": 1}]}"));
    assert!(!sacct.is_same("{\"a\": [{\"b\": null}]}", "{\"a\": [{\"b\": 1}]}"));
}

#[test]
fn errors_may_contain_more_but_not_less() {
    let comparison = Comparison { figures: false, more: false, minutes: false, any_order: false };
    assert!(comparison.contains("a: b c: hint\nmore\n", "a: b c\n"));
    assert!(!comparison.contains("a: b\n", "a: b c\n"));
    assert!(!comparison.contains("a\n", ""));
    assert!(comparison.contains("", ""));
}
