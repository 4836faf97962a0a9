//! QOS (quality of service): a class of jobs with a priority and limits.
//!
//! One host has one user, so all jobs of a QOS count towards its limits per user.

use crate::preempt::{Means, PreemptMode};
use crate::{JobRequest, Reason, Tres};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The QOS of jobs that request none. It always exists.
pub const DEFAULT: &str = "normal";

/// How a job makes room for one of another QOS if neither its own QOS nor its partition says so.
pub const DEFAULT_MODE: PreemptMode = PreemptMode::Requeue;

/// The text with which a submission above `MaxSubmitPU` is refused.
pub const SUBMIT_LIMIT: &str = "QOSMaxSubmitJobPerUserLimit";

/// A QOS of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Qos {
    /// In lower case, as in Slurm.
    pub name: String,
    /// Added to the priority of its jobs, unless they request one.
    pub priority: u32,
    /// Maximum number of jobs and array tasks to run at once (`MaxJobsPU`).
    pub max_jobs: Option<u32>,
    /// Maximum number of jobs and array tasks that are pending or running (`MaxSubmitPU`).
    pub max_submit: Option<u32>,
    /// Maximum that the running jobs of a user may hold (`MaxTRESPU`).
    pub max_tres: TresLimit,
    /// The longest time limit, in seconds (`MaxWall`).
    pub max_wall_secs: Option<u64>,
    /// Maximum that all running jobs may hold together (`GrpTRES`).
    pub grp_tres: TresLimit,
    /// The names of the QOS whose running jobs its jobs may preempt.
    pub preempt: Vec<String>,
    /// How its own jobs make room. `None`: as their partition says.
    pub preempt_mode: Option<PreemptMode>,
    /// The time from the warning of a preempted job to its end, in seconds.
    pub grace_secs: u64,
    /// Refuse jobs that exceed a limit on their own, instead of letting them wait.
    pub denies_on_limit: bool,
    /// A job that waits for resources reserves none, so shorter jobs may delay it.
    pub reserves_nothing: bool,
}

impl Qos {
    /// Maximum number of QOS in the configuration.
    pub const MOST: usize = 64;

    /// Returns whether this is the default QOS without any settings.
    pub fn is_plain_default(&self) -> bool {
        self.name == DEFAULT
            && !self.affects_starts()
            && (self.priority, self.max_submit, self.max_wall_secs) == (0, None, None)
            && (self.preempt_mode, self.grace_secs) == (None, 0)
    }

    /// Returns whether the start of a job depends on which jobs of the QOS run, or on whether the
    /// job may hold a reservation.
    pub fn affects_starts(&self) -> bool {
        self.max_jobs.is_some()
            || self.max_tres != TresLimit::default()
            || self.grp_tres != TresLimit::default()
            || self.reserves_nothing
            || !self.preempt.is_empty()
    }

    /// Returns how a job of this QOS makes room for one of a QOS that may preempt it.
    /// `of_partition`: the mode of its partition.
    pub fn means(&self, of_partition: Option<PreemptMode>) -> Means {
        let mode = self.preempt_mode.or(of_partition).unwrap_or(DEFAULT_MODE);
        Means { mode, grace_secs: self.grace_secs }
    }

    /// Returns the reason why a job with this time limit cannot start.
    pub fn time_limit_blocker(&self, limit_secs: Option<u64>) -> Option<Reason> {
        let most = self.max_wall_secs?;
        (limit_secs.unwrap_or(u64::MAX) > most).then_some(Reason::QosMaxWallDurationPerJobLimit)
    }

    /// Returns the flags as `sacctmgr` prints them.
    pub fn flags(&self) -> String {
        let flags = [("DenyOnLimit", self.denies_on_limit), ("NoReserve", self.reserves_nothing)];
        let set: Vec<&str> =
            flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        set.join(",")
    }
}

/// Adds the default QOS as the first one, unless it is there.
pub fn with_default(mut all: Vec<Qos>) -> Vec<Qos> {
    if all.iter().all(|qos| qos.name != DEFAULT) {
        all.insert(0, Qos { name: DEFAULT.to_owned(), ..Qos::default() });
    }
    all
}

/// Returns the name of a request's QOS.
pub fn of(request: &JobRequest) -> &str {
    request.qos.as_deref().unwrap_or(DEFAULT)
}

/// Writes the name of a request's QOS in lower case, as configured names are. An empty name
/// requests none.
pub fn normalize(request: &mut JobRequest) {
    request.qos = request.qos.take().filter(|name| !name.is_empty());
    if let Some(name) = &mut request.qos {
        name.make_ascii_lowercase();
    }
}

/// Prints the QOS as `scontrol show config` does.
impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = self.max_wall_secs.map(|secs| format!("{secs}s"));
        let amounts = |limit: &TresLimit| {
            (*limit != TresLimit::default()).then(|| limit.text(|mb| format!("{mb}M")))
        };
        let words = [
            ("Priority", Some(self.priority).filter(|own| *own > 0).map(|own| own.to_string())),
            (
                "GraceTime",
                Some(self.grace_secs).filter(|own| *own > 0).map(|own| format!("{own}s")),
            ),
            ("Preempt", Some(self.preempt.join(",")).filter(|names| !names.is_empty())),
            ("PreemptMode", self.preempt_mode.map(|mode| mode.name().to_ascii_lowercase())),
            ("Flags", Some(self.flags()).filter(|flags| !flags.is_empty())),
            ("GrpTRES", amounts(&self.grp_tres)),
            ("MaxWall", wall),
            ("MaxTRESPU", amounts(&self.max_tres)),
            ("MaxJobsPU", self.max_jobs.map(|most| most.to_string())),
            ("MaxSubmitPU", self.max_submit.map(|most| most.to_string())),
        ];
        f.write_str(&self.name)?;
        let words = words.into_iter().filter_map(|(key, value)| Some((key, value?)));
        words.into_iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// A limit on some resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TresLimit {
    pub cpus: Option<u32>,
    pub mem_mb: Option<u64>,
    /// Whole GPUs; GPUs that jobs share do not count.
    pub gpus: Option<u32>,
}

/// A resource that a QOS can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limited {
    Cpus,
    Memory,
    Gpus,
}

impl Limited {
    pub const ALL: [Limited; 3] = [Limited::Cpus, Limited::Memory, Limited::Gpus];

    /// Returns one of this resource and nothing else.
    pub fn one(self) -> Tres {
        match self {
            Limited::Cpus => Tres { cpus: 1, ..Tres::ZERO },
            Limited::Memory => Tres { mem_mb: 1, ..Tres::ZERO },
            Limited::Gpus => Tres { gpus: 1, ..Tres::ZERO },
        }
    }

    /// Returns the amount of this resource, in MB for memory.
    pub fn of(self, tres: &Tres) -> u64 {
        match self {
            Limited::Cpus => tres.cpus.into(),
            Limited::Memory => tres.mem_mb,
            Limited::Gpus => tres.gpus.into(),
        }
    }
}

impl TresLimit {
    /// Returns the limited amounts.
    pub fn tres(&self) -> Tres {
        Tres {
            cpus: self.cpus.unwrap_or(0),
            mem_mb: self.mem_mb.unwrap_or(0),
            gpus: self.gpus.unwrap_or(0),
            ..Tres::ZERO
        }
    }

    /// Returns the limit on one resource.
    pub fn on(&self, what: Limited) -> Option<u64> {
        match what {
            Limited::Cpus => self.cpus.map(u64::from),
            Limited::Memory => self.mem_mb,
            Limited::Gpus => self.gpus.map(u64::from),
        }
    }

    /// Returns the first resource of which this is too much. A job that takes none of a resource
    /// is not subject to its limit.
    pub fn exceeded_by(&self, used: &Tres, more: &Tres) -> Option<Limited> {
        Limited::ALL.into_iter().find(|what| {
            let more = what.of(more);
            more > 0 && self.on(*what).is_some_and(|most| what.of(used).saturating_add(more) > most)
        })
    }

    /// Returns the limit as Slurm writes it: `cpu=2,mem=1000M,gres/gpu=1`. `memory` formats
    /// megabytes.
    pub fn text(&self, memory: impl Fn(u64) -> String) -> String {
        let words = [
            self.cpus.map(|most| format!("cpu={most}")),
            self.mem_mb.map(|most| format!("mem={}", memory(most))),
            self.gpus.map(|most| format!("gres/gpu={most}")),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tres(cpus: u32, mem_mb: u64, gpus: u32) -> Tres {
        Tres { cpus, mem_mb, gpus, ..Tres::ZERO }
    }

    #[test]
    fn a_limit_names_the_first_resource_that_exceeds_it() {
        let limit = TresLimit { cpus: Some(2), mem_mb: Some(100), gpus: Some(0) };
        assert_eq!(limit.exceeded_by(&tres(1, 50, 0), &tres(1, 50, 0)), None);
        for (more, first) in [
            (tres(2, 51, 1), Limited::Cpus),
            (tres(1, 51, 1), Limited::Memory),
            (tres(1, 50, 1), Limited::Gpus),
        ] {
            assert_eq!(limit.exceeded_by(&tres(1, 50, 0), &more), Some(first));
        }
        assert_eq!(limit.exceeded_by(&tres(9, 900, 9), &Tres::ZERO), None);
        let most = tres(u32::MAX, u64::MAX, u32::MAX);
        assert_eq!(TresLimit::default().exceeded_by(&most, &most), None);
        assert_eq!(limit.exceeded_by(&most, &most), Some(Limited::Cpus));
    }

    #[test]
    fn a_qos_is_shown_in_slurms_words() {
        let limit = TresLimit { cpus: Some(2), mem_mb: Some(300), gpus: Some(1) };
        let qos = Qos {
            name: "deny".to_owned(),
            priority: 10,
            max_jobs: Some(1),
            max_submit: Some(3),
            max_tres: limit,
            max_wall_secs: Some(90),
            grp_tres: TresLimit { cpus: Some(4), ..TresLimit::default() },
            preempt: vec!["low".to_owned(), "normal".to_owned()],
            preempt_mode: Some(PreemptMode::Cancel),
            grace_secs: 4,
            denies_on_limit: true,
            reserves_nothing: true,
        };
        assert_eq!(
            qos.to_string(),
            "deny Priority=10 GraceTime=4s Preempt=low,normal PreemptMode=cancel \
             Flags=DenyOnLimit,NoReserve GrpTRES=cpu=4 MaxWall=90s \
             MaxTRESPU=cpu=2,mem=300M,gres/gpu=1 MaxJobsPU=1 MaxSubmitPU=3"
        );
        assert_eq!(Qos { name: "normal".to_owned(), ..Qos::default() }.to_string(), "normal");
    }
}
