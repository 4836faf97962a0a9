//! What mail a job asks for (`--mail-type`).

use serde::{Deserialize, Serialize};

/// What may be named (sbatch man page).
pub const NAMES: [&str; 14] = [
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
    "PURGE",
];

/// What a mail is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailKind {
    Begin,
    End,
    Fail,
    Requeue,
    InvalidDepend,
    /// So much of its time limit is over, percent: 50, 80, 90 or 100.
    TimeLimit(u8),
}

/// The mails that a job asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MailTypes {
    pub begin: bool,
    pub end: bool,
    pub fail: bool,
    pub requeue: bool,
    pub invalid_depend: bool,
    /// The parts of the time limit, percent.
    limits: [Option<u8>; 4],
    /// Each task of an array has mails of its own; else there is one for all.
    pub array_tasks: bool,
}

impl MailTypes {
    /// Those of a list that was checked when it was given; what has no meaning on one host
    /// (`STAGE_OUT`) asks for none.
    pub fn of(text: &str) -> MailTypes {
        let mut types = MailTypes::default();
        for word in text.split(',') {
            match word.trim().to_ascii_uppercase().as_str() {
                // It takes back what was named before.
                "NONE" => types = MailTypes::default(),
                "BEGIN" => types.begin = true,
                "END" => types.end = true,
                "FAIL" => types.fail = true,
                "REQUEUE" => types.requeue = true,
                "INVALID_DEPEND" => types.invalid_depend = true,
                "ALL" => {
                    (types.begin, types.end, types.fail) = (true, true, true);
                    (types.requeue, types.invalid_depend) = (true, true);
                }
                "TIME_LIMIT" => types.limits[3] = Some(100),
                "TIME_LIMIT_90" => types.limits[2] = Some(90),
                "TIME_LIMIT_80" => types.limits[1] = Some(80),
                "TIME_LIMIT_50" => types.limits[0] = Some(50),
                "ARRAY_TASKS" => types.array_tasks = true,
                _ => {}
            }
        }
        types
    }

    /// Which part of the time limit is told of first after `told` percent of it.
    pub fn limit_after(&self, told: u8) -> Option<u8> {
        self.limits.iter().flatten().copied().find(|percent| *percent > told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_means_the_union_of_its_words() {
        let types = MailTypes::of("end,Fail,time_limit_80,TIME_LIMIT");
        assert!(types.end && types.fail && !types.begin && !types.array_tasks);
        assert_eq!(
            [0, 50, 80, 100].map(|told| types.limit_after(told)),
            [Some(80), Some(80), Some(100), None]
        );
        let all = MailTypes::of("ALL");
        assert!(
            all.begin
                && all.end
                && all.fail
                && all.requeue
                && all.invalid_depend
                && !all.array_tasks
        );
        assert_eq!(all.limit_after(0), None, "as in Slurm");
        assert_eq!(MailTypes::of("ALL,NONE"), MailTypes::default());
    }
}
