//! The settings of a QOS in `slotd.toml`: keys and values.
//!
//! Case and underscores in keys are ignored.

use crate::{mem, preempt, suggest, time};
use slotd_model::qos::{Qos, TresLimit};

/// A key: its name, its meaning for the manual, the accepted values for error messages, and a
/// function that sets the value and returns `None` if the value is invalid.
struct Key(&'static str, &'static str, &'static str, fn(&mut Qos, &str) -> Option<()>);

const COUNT: &str = "a whole number";
const LIMITS: &str = "minutes, hours:minutes:seconds, days-hours or UNLIMITED";
const AMOUNTS: &str = "amounts of cpu, mem and gres/gpu, as in \"cpu=2,mem=4G,gres/gpu=1\"";

const KEYS: [Key; 11] = [
    Key(
        "name",
        "The name, for `--qos`. Upper case becomes lower case, as in Slurm.",
        NAME,
        |q, text| put(&mut q.name, is_name(text).then(|| text.to_ascii_lowercase())),
    ),
    Key(
        "priority",
        "Added to the priority of its jobs, unless they request a priority.",
        COUNT,
        |q, text| put(&mut q.priority, text.parse().ok()),
    ),
    Key(
        "max_jobs_per_user",
        "The number of jobs and array tasks that may run at once.",
        COUNT,
        |q, text| put(&mut q.max_jobs, text.parse().ok().map(Some)),
    ),
    Key(
        "max_submit_jobs_per_user",
        "The number of jobs and array tasks that may be pending or running. More are refused.",
        COUNT,
        |q, text| put(&mut q.max_submit, text.parse().ok().map(Some)),
    ),
    Key(
        "max_tres_per_user",
        "The CPUs, memory and GPUs that the running jobs of a user may hold.",
        AMOUNTS,
        |q, text| put(&mut q.max_tres, amounts(text)),
    ),
    Key(
        "max_wall",
        "The longest time limit, which is also the limit of jobs that request none.",
        LIMITS,
        |q, text| put(&mut q.max_wall_secs, time::parse_limit(text).ok()),
    ),
    Key(
        "grp_tres",
        "The CPUs, memory and GPUs that all its running jobs may hold together.",
        AMOUNTS,
        |q, text| put(&mut q.grp_tres, amounts(text)),
    ),
    Key(
        "flags",
        "DenyOnLimit refuses a job that exceeds a limit on its own, instead of letting it wait. \
         NoReserve reserves nothing for a blocked job, so shorter jobs may delay it.",
        "a list of DenyOnLimit and NoReserve",
        flags,
    ),
    Key(
        "preempt",
        "The QOS whose running jobs make room for its jobs.",
        "a list of other QOS",
        |q, text| put(&mut q.preempt, names(text)),
    ),
    Key(
        "preempt_mode",
        "How its own jobs make room. Without it, the partition decides, and without that REQUEUE.",
        preempt::FORMS,
        |q, text| put(&mut q.preempt_mode, preempt::mode(text).map(Some)),
    ),
    Key(
        "grace_time",
        "The time from the warning of a preempted job to its end, for REQUEUE and CANCEL.",
        preempt::SECONDS,
        |q, text| put(&mut q.grace_secs, preempt::seconds(text)),
    ),
];

/// The form of a name.
const NAME: &str = "letters, digits, '_', '-' and '.'";

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Parses a list of names.
fn names(text: &str) -> Option<Vec<String>> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| is_name(word).then(|| word.to_ascii_lowercase())).collect()
}

fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn flags(qos: &mut Qos, text: &str) -> Option<()> {
    (qos.denies_on_limit, qos.reserves_nothing) = (false, false);
    for flag in text.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
        match flag.to_ascii_lowercase().as_str() {
            "denyonlimit" => qos.denies_on_limit = true,
            "noreserve" => qos.reserves_nothing = true,
            _ => return None,
        }
    }
    Some(())
}

/// Parses a list of amounts. Each resource may be named once.
fn amounts(text: &str) -> Option<TresLimit> {
    let mut limit = TresLimit::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, amount) = word.split_once('=')?;
        let is_new = match name.to_ascii_lowercase().as_str() {
            "cpu" => limit.cpus.replace(amount.parse().ok()?).is_none(),
            "mem" => limit.mem_mb.replace(mem::megabytes(amount)?).is_none(),
            "gres/gpu" => limit.gpus.replace(amount.parse().ok()?).is_none(),
            _ => false,
        };
        if !is_new {
            return None;
        }
    }
    Some(limit)
}

/// Returns the keys with their meanings and the accepted values.
pub fn manual() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    KEYS.iter().map(|Key(name, meaning, forms, _)| (*name, *meaning, *forms))
}

/// An invalid key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QosError {
    /// The key is unknown. Contains the most similar key, or a list of all keys.
    UnknownKey(String),
    /// The value is invalid. Contains the accepted forms.
    Expected(&'static str),
}

/// Sets a value of a QOS.
///
/// # Errors
/// Fails if the key is unknown or the value is invalid.
pub fn set(qos: &mut Qos, key: &str, value: &str) -> Result<(), QosError> {
    let plain = |key: &str| key.replace('_', "").to_ascii_lowercase();
    let Some(Key(_, _, forms, put)) = KEYS.iter().find(|Key(name, ..)| plain(name) == plain(key))
    else {
        let names = KEYS.iter().map(|Key(name, ..)| *name);
        return Err(QosError::UnknownKey(suggest::one_of("keys", key, names)));
    };
    put(qos, value.trim()).ok_or(QosError::Expected(forms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, value: &str) -> Result<Qos, QosError> {
        let mut qos = Qos::default();
        set(&mut qos, key, value).map(|()| qos)
    }

    #[test]
    fn values_are_read_in_slurms_forms() {
        let limit = |key: &str, value: &str| read(key, value).map(|qos| qos.max_tres);
        assert_eq!(
            limit("max_tres_per_user", "cpu=1, mem=2G,gres/gpu=3"),
            Ok(TresLimit { cpus: Some(1), mem_mb: Some(2048), gpus: Some(3) })
        );
        assert_eq!(
            limit("MaxTresPerUser", "MEM=300M"),
            Ok(TresLimit { mem_mb: Some(300), ..TresLimit::default() })
        );
        assert_eq!(limit("max_tres_per_user", ""), Ok(TresLimit::default()));
        assert_eq!(read("max_wall", "5").unwrap().max_wall_secs, Some(300));
        assert_eq!(read("max_wall", "UNLIMITED").unwrap().max_wall_secs, None);
        assert_eq!(read("name", "High-1.a_b").unwrap().name, "high-1.a_b");
        assert_eq!(
            read("flags", "NoReserve, denyonlimit").unwrap().flags(),
            "DenyOnLimit,NoReserve"
        );
    }

    #[test]
    fn invalid_values_are_refused_with_the_accepted_forms() {
        for (key, value, expected) in [
            ("max_tres_per_user", "cpu", AMOUNTS),
            ("max_tres_per_user", "cpu=-1", AMOUNTS),
            ("max_tres_per_user", "cpu=1,cpu=2", AMOUNTS),
            ("grp_tres", "node=1", AMOUNTS),
            ("grp_tres", "mem=x", AMOUNTS),
            ("max_jobs_per_user", "-1", COUNT),
            ("max_submit_jobs_per_user", "4294967296", COUNT),
            ("priority", "1.5", COUNT),
            ("max_wall", "soon", LIMITS),
            ("name", "a b", NAME),
            ("name", "", NAME),
            ("flags", "NoReserve,OverPartQOS", "a list of DenyOnLimit and NoReserve"),
        ] {
            assert_eq!(read(key, value), Err(QosError::Expected(expected)), "{key} {value}");
        }
        let unknown = read("max_job_per_user", "1").unwrap_err();
        assert_eq!(unknown, QosError::UnknownKey("did you mean max_jobs_per_user?".to_owned()));
        let unknown = read("preemptor", "low").unwrap_err();
        assert_eq!(unknown, QosError::UnknownKey("did you mean preempt?".to_owned()));
    }
}
