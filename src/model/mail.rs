//! The email that a job requests (`--mail-type`).

use serde::{Deserialize, Serialize};

/// The accepted values (sbatch man page).
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

/// The types in Slurm's order. `ALL` means the second to the seventh.
const SHOWN: [&str; 11] = [
    "ARRAY_TASKS",
    "INVALID_DEPEND",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "STAGE_OUT",
    "TIME_LIMIT_50",
    "TIME_LIMIT_80",
    "TIME_LIMIT_90",
    "TIME_LIMIT",
];

/// Returns the types of a list as `scontrol show job` prints them, or `None` if it requests no mail.
pub fn shown(list: &str) -> Option<String> {
    let words: Vec<String> = list.split(',').map(|word| word.trim().to_ascii_uppercase()).collect();
    let has = |name: &str| words.iter().any(|word| word == name);
    let of_all = if has("ALL") { &SHOWN[1..7] } else { &[] };
    let names = SHOWN.into_iter().filter(|name| has(name) || of_all.contains(name));
    let names: Vec<&str> = names.filter(|_| !has("NONE")).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Returns the users and addresses of a list separated by commas.
pub fn recipients(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|one| !one.is_empty())
}

/// Returns whether this can be the user or address of an email. It becomes an argument of
/// `sendmail`, which takes a leading `-` for an option, `|` for a program, `/` for a file and `:`
/// for a list to include.
pub fn is_recipient(one: &str) -> bool {
    !one.starts_with(['-', '|', '/', ':'])
        && !one.starts_with("\"|")
        && !one.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// The event that an email reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailKind {
    Begin,
    End,
    Fail,
    Requeue,
    InvalidDepend,
    /// The job reached this percentage of its time limit: 50, 80, 90 or 100.
    TimeLimit(u8),
}

/// The kinds of email that a job requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MailTypes {
    pub begin: bool,
    pub end: bool,
    pub fail: bool,
    pub requeue: bool,
    pub invalid_depend: bool,
    /// Percentages of the time limit.
    limits: [Option<u8>; 4],
    /// Send email for each array task instead of for the array as a whole.
    pub array_tasks: bool,
}

impl MailTypes {
    /// Parses a list that was already validated. `NONE` in it discards all others, as in Slurm.
    /// Types that are meaningless on one host (`STAGE_OUT`) request no mail.
    pub fn of(text: &str) -> MailTypes {
        let mut types = MailTypes::default();
        for word in text.split(',') {
            match word.trim().to_ascii_uppercase().as_str() {
                "NONE" => return MailTypes::default(),
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

    /// Returns the next percentage of the time limit to report after `reported` percent.
    pub fn limit_after(&self, reported: u8) -> Option<u8> {
        self.limits.iter().flatten().copied().find(|percent| *percent > reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_types_of_a_list_add_up() {
        let types = MailTypes::of("end,Fail,time_limit_80,TIME_LIMIT");
        assert!(types.end && types.fail && !types.begin && !types.array_tasks);
        assert_eq!(
            [0, 50, 80, 100].map(|reported| types.limit_after(reported)),
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
        assert_eq!(MailTypes::of("NONE,END"), MailTypes::default());
    }

    #[test]
    fn types_are_shown_in_slurms_order() {
        for (list, expected) in [
            ("fail,END", Some("END,FAIL")),
            ("all", Some("INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT")),
            ("time_limit, TIME_LIMIT_50,end", Some("END,TIME_LIMIT_50,TIME_LIMIT")),
            ("array_tasks,end", Some("ARRAY_TASKS,END")),
            ("none", None),
            ("fail,none,end", None),
            ("", None),
        ] {
            assert_eq!(shown(list).as_deref(), expected, "{list}");
        }
    }
}
