//! Why a job waits, or why it ended as it did. Spelled as Slurm prints them.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        pub enum Reason { $($(#[$doc])* #[serde(rename = $text)] $name,)* }
        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];
            pub const fn name(self) -> &'static str { match self { $(Reason::$name => $text,)* } }
        }
    };
}

reasons! {
    #[default]
    None => "None",
    /// Not enough CPUs, memory or GPUs are free now.
    Resources => "Resources",
    /// Jobs before this one are waiting for the same resources.
    Priority => "Priority",
    Dependency => "Dependency",
    DependencyNeverSatisfied => "DependencyNeverSatisfied",
    BeginTime => "BeginTime",
    JobHeldUser => "JobHeldUser",
    JobHeldAdmin => "JobHeldAdmin",
    JobArrayTaskLimit => "JobArrayTaskLimit",
    /// An exclusive job has the host, or this exclusive job waits for it to be empty.
    Exclusive => "Exclusive",
    DeadLine => "DeadLine",
    /// The host has shrunk below what the job asks for (fewer GPUs after a restart, say).
    BadConstraints => "BadConstraints",
    /// The node is drained: it takes no jobs.
    ReqNodeNotAvail => "ReqNodeNotAvail",
    PartitionConfig => "PartitionConfig",
    /// It starts no jobs, or none at this hour.
    PartitionDown => "PartitionDown",
    PartitionInactive => "PartitionInactive",
    /// The job's limit is longer than the partition allows.
    PartitionTimeLimit => "PartitionTimeLimit",
    /// As many jobs of its account, or with such a name, run as may.
    AssocMaxJobsLimit => "AssocMaxJobsLimit",
    /// With it they would have more CPUs than they may.
    AssocGrpCpuLimit => "AssocGrpCpuLimit",
    NonZeroExitCode => "NonZeroExitCode",
    RaisedSignal => "RaisedSignal",
    TimeLimit => "TimeLimit",
    OutOfMemory => "OutOfMemory",
    JobLaunchFailure => "JobLaunchFailure",
    /// Cancelled by its user. Slurm has no name for it.
    CancelledByUser => "CancelledByUser",
    /// The process that watched the job died, and with it the knowledge of how the job ended.
    RunnerLost => "RunnerLost",
    /// The machine went down while the job ran (Slurm's word for a node that fails).
    NodeDown => "NodeDown",
    /// The client that held the allocation went away.
    ClientLost => "ClientLost",
    Requeued => "Requeued",
}

impl Reason {
    /// Slurm 22.05's own word for it. Programs read reasons by closed lists of these.
    pub const fn slurm_name(self) -> &'static str {
        match self {
            Reason::RaisedSignal => Reason::NonZeroExitCode.name(),
            Reason::RunnerLost => "SystemFailure",
            Reason::ClientLost => "InactiveLimit",
            Reason::Exclusive => Reason::Resources.name(),
            Reason::Requeued => Reason::None.name(),
            other => other.name(),
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
