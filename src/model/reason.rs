//! The reasons why a job is pending or has ended, spelled as Slurm prints them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Lists each reason once, with its name and its meaning for the documentation.
macro_rules! reasons {
    ($($(#[$attr:meta])* $name:ident => $text:literal, $meaning:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        pub enum Reason { $($(#[$attr])* #[doc = $meaning] #[serde(rename = $text)] $name,)* }
        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];
            pub const fn name(self) -> &'static str { match self { $(Reason::$name => $text,)* } }
            /// A sentence for the documentation.
            pub const fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning,)* }
            }
        }
    };
}

reasons! {
    #[default]
    None => "None", "Nothing keeps the job from starting, or nothing special ended it.";
    Resources => "Resources",
        "Not enough CPUs, memory or GPUs are free, and this job is the next to get them.";
    Priority => "Priority", "Other jobs come first for the same resources.";
    Dependency => "Dependency", "Jobs that it depends on have not started or ended yet.";
    DependencyNeverSatisfied => "DependencyNeverSatisfied",
        "A job that it depends on ended in a way that rules the dependency out.";
    BeginTime => "BeginTime", "Its begin time has not come.";
    JobHeldUser => "JobHeldUser", "Its user holds it. `scontrol release` lets it start.";
    JobHeldAdmin => "JobHeldAdmin",
        "slotd holds it, because it could not be launched. `scontrol release` lets it start.";
    JobArrayTaskLimit => "JobArrayTaskLimit",
        "As many tasks of its array run as `--array=...%N` allows.";
    Exclusive => "Exclusive",
        "An exclusive job has the host, or this exclusive job waits until the host is empty.";
    DeadLine => "DeadLine", "It cannot end, or did not end, before its deadline.";
    BadConstraints => "BadConstraints",
        "The host can no longer satisfy its request, for example with fewer GPUs after a restart.";
    ReqNodeNotAvail => "ReqNodeNotAvail", "The node, or the part of it that the job needs, is drained.";
    PartitionConfig => "PartitionConfig", "Its partition no longer exists.";
    PartitionDown => "PartitionDown", "Its partition is DOWN or outside its allowed hours.";
    PartitionInactive => "PartitionInactive", "Its partition is INACTIVE.";
    PartitionTimeLimit => "PartitionTimeLimit",
        "Its time limit is longer than its partition allows.";
    AssocMaxJobsLimit => "AssocMaxJobsLimit",
        "The jobs of its account or name have reached their limit of running jobs.";
    AssocGrpCpuLimit => "AssocGrpCpuLimit",
        "With this job, the jobs of its account or name would exceed their limit of CPUs.";
    InvalidQos => "InvalidQOS", "Its QOS no longer exists.";
    QosMaxJobsPerUserLimit => "QOSMaxJobsPerUserLimit",
        "The jobs of its QOS have reached the QOS' limit of running jobs.";
    QosMaxCpuPerUserLimit => "QOSMaxCpuPerUserLimit",
        "With this job, the jobs of its QOS would exceed the QOS' limit of CPUs per user.";
    QosMaxMemoryPerUser => "QOSMaxMemoryPerUser",
        "With this job, the jobs of its QOS would exceed the QOS' limit of memory per user.";
    QosMaxGresPerUser => "QOSMaxGRESPerUser",
        "With this job, the jobs of its QOS would exceed the QOS' limit of GPUs per user.";
    QosMaxWallDurationPerJobLimit => "QOSMaxWallDurationPerJobLimit",
        "Its time limit is longer than its QOS allows.";
    QosGrpCpuLimit => "QOSGrpCpuLimit",
        "With this job, the jobs of its QOS would exceed the QOS' limit of CPUs.";
    QosGrpMemLimit => "QOSGrpMemLimit",
        "With this job, the jobs of its QOS would exceed the QOS' limit of memory.";
    QosGrpGres => "QOSGrpGRES",
        "With this job, the jobs of its QOS would exceed the QOS' limit of GPUs.";
    Licenses => "Licenses", "Other jobs hold the licenses that it needs.";
    Reservation => "Reservation", "Its reservation has not begun.";
    ReservedForMaintenance => "ReqNodeNotAvail, Reserved for maintenance",
        "It would run into a reservation of the whole node that it does not name.";
    ReservationDeleted => "ReservationDeleted",
        "Its reservation ended before it started. `scontrol release` lets it start.";
    SpecialExit => "SpecialExit",
        "It was requeued and held after a special exit. `scontrol release` lets it start.";
    NonZeroExitCode => "NonZeroExitCode", "It ended with an exit code other than 0.";
    RaisedSignal => "RaisedSignal", "A signal ended it.";
    TimeLimit => "TimeLimit", "It reached its time limit.";
    OutOfMemory => "OutOfMemory", "It ran out of memory.";
    JobLaunchFailure => "JobLaunchFailure",
        "It could not be launched, for example because its output file cannot be opened.";
    CancelledByUser => "CancelledByUser", "A user cancelled it.";
    RunnerLost => "RunnerLost", "Its watcher died, so it is unknown how the job ended.";
    NodeDown => "NodeDown", "The machine went down while it ran.";
    ClientLost => "ClientLost", "The command that held its allocation disappeared.";
    Requeued => "Requeued", "It was stopped to be queued again.";
    Preempted => "Preempted", "It was stopped to make room for a more important job.";
}

impl Reason {
    /// Returns whether a limit, a QOS or a license keeps the job from starting, and not the lack of
    /// other resources.
    pub const fn is_limit(self) -> bool {
        matches!(
            self,
            Reason::AssocMaxJobsLimit
                | Reason::AssocGrpCpuLimit
                | Reason::InvalidQos
                | Reason::QosMaxJobsPerUserLimit
                | Reason::QosMaxCpuPerUserLimit
                | Reason::QosMaxMemoryPerUser
                | Reason::QosMaxGresPerUser
                | Reason::QosGrpCpuLimit
                | Reason::QosGrpMemLimit
                | Reason::QosGrpGres
                | Reason::Licenses
        )
    }

    /// Returns the name that Slurm 22.05 uses. Programs match reasons against a closed list of
    /// these.
    pub const fn slurm_name(self) -> &'static str {
        match self {
            Reason::RaisedSignal => Reason::NonZeroExitCode.name(),
            Reason::RunnerLost => "SystemFailure",
            Reason::ClientLost => "InactiveLimit",
            Reason::Exclusive => Reason::Resources.name(),
            Reason::Requeued | Reason::Preempted => Reason::None.name(),
            Reason::SpecialExit => Reason::JobHeldUser.name(),
            other => other.name(),
        }
    }

    /// Returns the state, by name and code, that Slurm shows instead of PENDING for a job that is
    /// held for this reason.
    pub const fn held_state(self) -> Option<(&'static str, &'static str)> {
        match self {
            Reason::ReservationDeleted => Some(("RESV_DEL_HOLD", "RD")),
            Reason::SpecialExit => Some(("SPECIAL_EXIT", "SE")),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Reason {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|r| r.name() == s).ok_or(())
    }
}
