//! The settings of a partition: keys and values in `slotd.toml` and in `scontrol update`.
//!
//! A key is spelled `max_time` in the file and `MaxTime` by Slurm. Case and underscores are
//! ignored.

use crate::{hours, mem, node_parts, preempt, suggest, time};
use slotd_model::Partition;
use slotd_model::partition::{OverSubscribe, PartitionState};
use std::collections::BTreeSet;

/// A key: its spelling in the file, its spelling in Slurm, its meaning for the manual, the accepted
/// values for error messages, and a function that sets the value and returns `None` if the value is
/// invalid.
struct Key(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    fn(&mut Partition, &str) -> Option<()>,
);

/// The place where a key was written, which determines its spelling in error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    InFile,
    ToScontrol,
}

const LIMITS: &str = "minutes, hours:minutes:seconds, days-hours or UNLIMITED";
const COUNT: &str = "a positive whole number or UNLIMITED";
const NUMBERS: &str = "numbers and ranges, such as 0-3,6, or ALL";
const AMOUNT: &str = "megabytes, a number with K, M, G or T (at least 1M), or UNLIMITED";

const KEYS: [Key; 15] = [
    Key(
        "cpus",
        "CPUs",
        "The CPUs of the partition. A number without quotes is a count, as in max_cpus_per_node.",
        NUMBERS,
        |p, text| put(&mut p.cpus, numbers(text)),
    ),
    Key(
        "gpus",
        "GPUs",
        "The GPUs of the partition. A number without quotes is a count, as in max_gpus.",
        NUMBERS,
        |p, text| put(&mut p.gpus, numbers(text)),
    ),
    Key("memory", "Memory", "The memory that its jobs may use together.", AMOUNT, |p, text| {
        put(&mut p.max_mem_mb, megabytes(text))
    }),
    Key(
        "max_cpus_per_node",
        "MaxCPUsPerNode",
        "The number of CPUs that its jobs may use together.",
        COUNT,
        |p, text| put(&mut p.max_cpus, count(text)),
    ),
    Key(
        "max_gpus",
        "MaxGPUs",
        "The number of GPUs that its jobs may use together.",
        COUNT,
        |p, text| put(&mut p.max_gpus, count(text)),
    ),
    Key(
        "max_time",
        "MaxTime",
        "The longest time limit. Jobs that request more wait with the reason PartitionTimeLimit.",
        LIMITS,
        |p, text| put(&mut p.max_time_secs, time::parse_limit(text).ok()),
    ),
    Key(
        "default_time",
        "DefaultTime",
        "The time limit of jobs that request none.",
        "minutes, hours:minutes:seconds, days-hours or NONE",
        |p, text| {
            put(
                &mut p.default_time_secs,
                if is(text, "none") { Some(None) } else { time::parse_limit(text).ok() },
            )
        },
    ),
    Key(
        "def_mem_per_cpu",
        "DefMemPerCPU",
        "The memory per CPU of jobs that request none.",
        AMOUNT,
        |p, text| put(&mut p.def_mem_per_cpu_mb, megabytes(text)),
    ),
    Key(
        "priority_tier",
        "PriorityTier",
        "Jobs in partitions of a higher tier go first.",
        "a whole number from 0 to 65533",
        |p, text| {
            put(&mut p.priority_tier, text.parse().ok().filter(|tier| *tier <= 65_533).map(Some))
        },
    ),
    Key(
        "preempt_mode",
        "PreemptMode",
        "How its jobs make room for jobs in partitions of a higher tier. OFF protects them.",
        preempt::FORMS,
        |p, text| put(&mut p.preempt_mode, preempt::mode(text).map(Some)),
    ),
    Key(
        "grace_time",
        "GraceTime",
        "The time from the warning of a preempted job to its end, for REQUEUE and CANCEL.",
        preempt::SECONDS,
        |p, text| put(&mut p.grace_secs, preempt::seconds(text)),
    ),
    Key(
        "over_subscribe",
        "OverSubscribe",
        "Whether jobs share CPUs with others, and how many share one.",
        "NO, EXCLUSIVE, YES, YES:n, FORCE or FORCE:n with n from 1 to 1000",
        |p, text| put(&mut p.over_subscribe, over_subscribe(text)),
    ),
    Key(
        "allowed_hours",
        "AllowedHours",
        "The hours of the day in which it starts jobs, in the daemon's time zone.",
        "two different times of day, such as 18:00-08:00, or ALL",
        |p, text| {
            put(
                &mut p.allowed_hours,
                if is(text, "all") { Some(None) } else { hours::parse(text).map(Some) },
            )
        },
    ),
    Key(
        "state",
        "State",
        "Whether it accepts and starts jobs: DOWN only accepts them, DRAIN only starts them, INACTIVE does neither.",
        "UP, DOWN, DRAIN or INACTIVE",
        |p, text| {
            put(&mut p.state, PartitionState::ALL.into_iter().find(|state| is(text, state.name())))
        },
    ),
    Key(
        "default",
        "Default",
        "Whether jobs that name no partition go to it. At most one partition; if there is none, the first one.",
        "YES or NO",
        |p, text| put(&mut p.is_default, yes_or_no(text)),
    ),
];

/// Returns the keys as the file spells them, with their meanings and the accepted values.
pub fn manual() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    KEYS.iter().map(|Key(name, _, meaning, forms, _)| (*name, *meaning, *forms))
}

/// Returns the keys as `scontrol update` spells them.
pub fn scontrol_keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|Key(_, of_slurm, ..)| *of_slurm)
}

fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

/// An invalid key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionError {
    /// The key is unknown. Contains the most similar key, or a list of all keys.
    UnknownKey(String),
    /// The value is invalid. Contains the accepted forms.
    Expected(&'static str),
}

/// Sets a value of a partition.
///
/// # Errors
/// Fails if the key is unknown or the value is invalid.
pub fn set(
    partition: &mut Partition,
    key: &str,
    value: &str,
    written: Written,
) -> Result<(), PartitionError> {
    let plain = |key: &str| key.replace('_', "").to_ascii_lowercase();
    let Some(Key(.., forms, put)) = KEYS.iter().find(|Key(name, ..)| plain(name) == plain(key))
    else {
        let names = KEYS.iter().map(|Key(in_file, of_slurm, ..)| match written {
            Written::InFile => *in_file,
            Written::ToScontrol => *of_slurm,
        });
        return Err(PartitionError::UnknownKey(suggest::one_of("keys", key, names)));
    };
    put(partition, value.trim()).ok_or(PartitionError::Expected(forms))
}

/// A default time limit above the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "DefaultTime {default_secs} s exceeds MaxTime {max_secs} s: jobs without a time limit would never start"
)]
pub struct NeverStarts {
    default_secs: u64,
    max_secs: u64,
}

/// Checks for valid values that contradict each other.
///
/// # Errors
/// Fails if jobs could never start because of the combination.
pub fn check(partition: &Partition) -> Result<(), NeverStarts> {
    match (partition.default_time_secs, partition.max_time_secs) {
        (Some(default_secs), Some(max_secs)) if default_secs > max_secs => {
            Err(NeverStarts { default_secs, max_secs })
        }
        _ => Ok(()),
    }
}

fn is(text: &str, word: &str) -> bool {
    text.eq_ignore_ascii_case(word)
}

fn unlimited(text: &str) -> bool {
    is(text, "unlimited") || is(text, "infinite") || text == "-1"
}

fn numbers(text: &str) -> Option<Option<BTreeSet<u32>>> {
    if is(text, "all") {
        return Some(None);
    }
    node_parts::numbers(text).map(Some)
}

fn count(text: &str) -> Option<Option<u32>> {
    if unlimited(text) { Some(None) } else { text.parse().ok().filter(|n| *n > 0).map(Some) }
}

fn megabytes(text: &str) -> Option<Option<u64>> {
    if unlimited(text) {
        return Some(None);
    }
    mem::parse_mb_for(text, "memory").ok().filter(|mb| *mb > 0).map(Some)
}

/// Slurm's default number of jobs for `YES` and `FORCE`.
const DEFAULT_JOBS: u32 = 4;

fn over_subscribe(text: &str) -> Option<OverSubscribe> {
    let (word, jobs) = match text.split_once(':') {
        Some((word, jobs)) => {
            (word, Some(jobs.parse().ok().filter(|jobs| (1..=1000).contains(jobs))?))
        }
        None => (text, None),
    };
    match (word.to_ascii_lowercase().as_str(), jobs) {
        ("no", None) => Some(OverSubscribe::No),
        ("exclusive", None) => Some(OverSubscribe::Exclusive),
        ("yes", jobs) => Some(OverSubscribe::Yes(jobs.unwrap_or(DEFAULT_JOBS))),
        ("force", jobs) => Some(OverSubscribe::Force(jobs.unwrap_or(DEFAULT_JOBS))),
        _ => None,
    }
}

fn yes_or_no(text: &str) -> Option<bool> {
    let words = |words: &[&str]| words.iter().any(|word| is(text, word));
    if words(&["yes", "true"]) { Some(true) } else { words(&["no", "false"]).then_some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(key: &str, value: &str) -> Result<Partition, PartitionError> {
        let mut partition = Partition::default();
        set(&mut partition, key, value, Written::InFile).map(|()| partition)
    }

    #[test]
    fn keys_have_a_file_spelling_and_a_slurm_spelling() {
        assert_eq!(with("max_time", "2:00:00").unwrap().max_time_secs, Some(7200));
        assert_eq!(with("MaxTime", "2:00:00"), with("max_time", "2:00:00"));
        assert_eq!(with("cpus", "0-2,5").unwrap().cpus, Some([0, 1, 2, 5].into()));
        assert_eq!(with("memory", "8G").unwrap().max_mem_mb, Some(8192));
        assert_eq!(
            with("OverSubscribe", "force:2").unwrap().over_subscribe,
            OverSubscribe::Force(2)
        );
        assert_eq!(with("State", "drain").unwrap().state, PartitionState::Drain);
        assert_eq!(
            with("allowed_hours", "18:00-08:00").unwrap().allowed_hours.unwrap().to_string(),
            "18:00-08:00"
        );
        let open = Partition { max_cpus: Some(4), ..Partition::default() };
        let mut partition = open;
        set(&mut partition, "MaxCPUsPerNode", "UNLIMITED", Written::ToScontrol).unwrap();
        assert_eq!(partition, Partition::default());
    }

    #[test]
    fn an_invalid_value_error_lists_the_accepted_forms() {
        for (key, value) in [
            ("cpus", "3-1"),
            ("cpus", "0-3%2"),
            ("cpus", ""),
            ("memory", "0"),
            ("max_cpus_per_node", "0"),
            ("max_time", "1h"),
            ("over_subscribe", "FORCE:0"),
            ("over_subscribe", "NO:2"),
            ("allowed_hours", "8-9"),
            ("state", "open"),
            ("priority_tier", "-1"),
            ("default", "maybe"),
        ] {
            assert!(matches!(with(key, value), Err(PartitionError::Expected(_))), "{key}={value}");
        }
        assert_eq!(
            with("max_tme", "1"),
            Err(PartitionError::UnknownKey("did you mean max_time?".to_owned()))
        );
    }

    #[test]
    fn an_unknown_key_error_uses_the_spelling_of_its_source() {
        let hint = |written| match set(&mut Partition::default(), "xyzzy", "1", written) {
            Err(PartitionError::UnknownKey(hint)) => hint,
            other => panic!("{other:?}"),
        };
        assert!(hint(Written::InFile).starts_with("keys: cpus, gpus, memory, max_cpus_per_node"));
        assert!(hint(Written::ToScontrol).starts_with("keys: CPUs, GPUs, Memory, MaxCPUsPerNode"));
    }

    #[test]
    fn the_default_time_must_not_exceed_the_maximum() {
        let limits = |default, max| {
            let (default_time_secs, max_time_secs) = (default, max);
            check(&Partition { default_time_secs, max_time_secs, ..Partition::default() })
        };
        assert_eq!(limits(Some(60), Some(60)), Ok(()));
        assert_eq!((limits(None, Some(60)), limits(Some(60), None)), (Ok(()), Ok(())));
        assert!(
            limits(Some(61), Some(60))
                .unwrap_err()
                .to_string()
                .starts_with("DefaultTime 61 s exceeds MaxTime 60 s")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(at in 0..KEYS.len(), value in "\\PC{0,20}") {
            let _ = with(KEYS[at].0, &value);
        }
    }
}
