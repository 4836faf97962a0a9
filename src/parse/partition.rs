//! What the owner of the host says about a partition: a key and a value, in `slotd.toml` and of
//! `scontrol update`.
//!
//! A key is spelled `max_time` in the file and `MaxTime` by Slurm: case and underscores make no
//! difference.

use crate::model::Partition;
use crate::model::partition::{OverSubscribe, PartitionState};
use crate::parse::{hours, mem, node_parts, suggest, time};
use std::collections::BTreeSet;

/// A key as the file spells it, as Slurm does, what its values look like, and how one is put in.
/// `None`: it makes no sense.
struct Key(&'static str, &'static str, &'static str, fn(&mut Partition, &str) -> Option<()>);

/// Where a key was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    InFile,
    ToScontrol,
}

const LIMITS: &str = "minutes, hours:minutes:seconds, days-hours or UNLIMITED";
const COUNT: &str = "a whole number from 1 on, or UNLIMITED";
const NUMBERS: &str = "numbers and ranges, such as 0-3,6, or ALL";
const AMOUNT: &str = "megabytes, or a number with K, M, G or T, from 1M on, or UNLIMITED";

const KEYS: [Key; 13] = [
    Key("cpus", "CPUs", NUMBERS, |p, text| put(&mut p.cpus, numbers(text))),
    Key("gpus", "GPUs", NUMBERS, |p, text| put(&mut p.gpus, numbers(text))),
    Key("memory", "Memory", AMOUNT, |p, text| put(&mut p.max_mem_mb, megabytes(text))),
    Key("max_cpus_per_node", "MaxCPUsPerNode", COUNT, |p, text| put(&mut p.max_cpus, count(text))),
    Key("max_gpus", "MaxGPUs", COUNT, |p, text| put(&mut p.max_gpus, count(text))),
    Key("max_time", "MaxTime", LIMITS, |p, text| {
        put(&mut p.max_time_secs, time::parse_limit(text).ok())
    }),
    Key(
        "default_time",
        "DefaultTime",
        "minutes, hours:minutes:seconds, days-hours or NONE",
        |p, text| {
            put(
                &mut p.default_time_secs,
                if is(text, "none") { Some(None) } else { time::parse_limit(text).ok() },
            )
        },
    ),
    Key("def_mem_per_cpu", "DefMemPerCPU", AMOUNT, |p, text| {
        put(&mut p.def_mem_per_cpu_mb, megabytes(text))
    }),
    Key("priority_tier", "PriorityTier", "a whole number from 0 to 65533", |p, text| {
        put(&mut p.priority_tier, text.parse().ok().filter(|tier| *tier <= 65_533).map(Some))
    }),
    Key(
        "over_subscribe",
        "OverSubscribe",
        "NO, EXCLUSIVE, YES, YES:n, FORCE or FORCE:n, n from 1 to 1000",
        |p, text| put(&mut p.over_subscribe, over_subscribe(text)),
    ),
    Key(
        "allowed_hours",
        "AllowedHours",
        "two times of the day that differ, such as 18:00-08:00, or ALL",
        |p, text| {
            put(
                &mut p.allowed_hours,
                if is(text, "all") { Some(None) } else { hours::parse(text).map(Some) },
            )
        },
    ),
    Key("state", "State", "UP, DOWN, DRAIN or INACTIVE", |p, text| {
        put(&mut p.state, PartitionState::ALL.into_iter().find(|state| is(text, state.name())))
    }),
    Key("default", "Default", "YES or NO", |p, text| put(&mut p.is_default, yes_or_no(text))),
];

fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

/// What is wrong with a key or a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionError {
    /// With the key that may be meant, or all that there are.
    UnknownKey(String),
    /// What a value looks like.
    Expected(&'static str),
}

/// Puts a value into a partition.
///
/// # Errors
/// The key is not known, or the value makes no sense.
pub fn set(
    partition: &mut Partition,
    key: &str,
    value: &str,
    written: Written,
) -> Result<(), PartitionError> {
    let plain = |key: &str| key.replace('_', "").to_ascii_lowercase();
    let Some(Key(_, _, forms, put)) = KEYS.iter().find(|Key(name, ..)| plain(name) == plain(key))
    else {
        let names = KEYS.iter().map(|Key(in_file, of_slurm, ..)| match written {
            Written::InFile => *in_file,
            Written::ToScontrol => *of_slurm,
        });
        return Err(PartitionError::UnknownKey(suggest::one_of("keys", key, names)));
    };
    put(partition, value.trim()).ok_or(PartitionError::Expected(forms))
}

/// A default time limit above the largest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "DefaultTime {default_secs} s is more than MaxTime {max_secs} s: jobs that name no time limit would never start"
)]
pub struct NeverStarts {
    default_secs: u64,
    max_secs: u64,
}

/// Values that each make sense and together keep jobs from ever starting.
///
/// # Errors
/// What contradicts what.
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

/// Slurm's number where none is given.
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
    fn keys_are_spelled_as_in_the_file_and_as_by_slurm() {
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
    fn a_value_without_sense_is_answered_with_the_forms() {
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
    fn an_unknown_key_is_answered_with_the_keys_as_they_are_spelled_there() {
        let hint = |written| match set(&mut Partition::default(), "xyzzy", "1", written) {
            Err(PartitionError::UnknownKey(hint)) => hint,
            other => panic!("{other:?}"),
        };
        assert!(hint(Written::InFile).starts_with("keys: cpus, gpus, memory, max_cpus_per_node"));
        assert!(hint(Written::ToScontrol).starts_with("keys: CPUs, GPUs, Memory, MaxCPUsPerNode"));
    }

    #[test]
    fn a_default_limit_is_within_the_largest_one() {
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
                .starts_with("DefaultTime 61 s is more than MaxTime 60 s")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(at in 0..KEYS.len(), value in "\\PC{0,20}") {
            let _ = with(KEYS[at].0, &value);
        }
    }
}
