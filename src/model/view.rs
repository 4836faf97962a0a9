//! Answers to queries: everything known about a job, step, partition or node at one moment.
//!
//! `render` turns these into text. A view is self-contained: the only clock it needs is its own
//! `now`.

use crate::brief::BriefJob;
use crate::cpu_use::CpusElsewhere;
use crate::license::LicenseUse;
use crate::limit::Limit;
use crate::node::{NodeReason, Outage};
use crate::partition::Host;
use crate::qos::Qos;
use crate::reservation::ReservationView;
use crate::why::Blocker;
use crate::{Job, JobId, Partition, Step, Timestamp, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A job record with values computed for queries. It derefs to the job.
///
/// The steps include the script's own step. The reason of a pending job is its current one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobView {
    pub job: Job,
    /// The unsatisfied terms of the dependency. Empty if none are left.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dependency: String,
    /// The predicted start of a pending job (`squeue --start`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start: Option<Timestamp>,
    /// Everything that keeps a pending job from starting, if requested. The reason that squeue
    /// shows comes first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blockers: Vec<Blocker>,
    /// Whether this is an earlier run that was ended for a requeue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requeued: bool,
    /// Absolute paths with their patterns filled in, as far as the IDs are known. Input defaults to
    /// `/dev/null`. Empty for an allocation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_out: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_err: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_in: String,
    /// Whether the job runs one process per rank. Slurm runs the script (salloc: the command) once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batch_ranks: bool,
    /// The priority of its QOS, if that counts: a requested priority takes its place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub qos_priority: u32,
    /// From when on other jobs may preempt it, if any may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible_since: Option<Timestamp>,
    /// When a recurring job runs next: the begin of a pending one, otherwise the time after its
    /// current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run: Option<Timestamp>,
}

impl Deref for JobView {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        JobView { job, ..JobView::default() }
    }
}

impl JobView {
    /// Clears the paths of the standard streams, for clients that do not need them.
    pub fn clear_paths(&mut self) {
        for path in [&mut self.std_out, &mut self.std_err, &mut self.std_in] {
            path.clear();
        }
    }
}

impl DerefMut for JobView {
    fn deref_mut(&mut self) -> &mut Job {
        &mut self.job
    }
}

impl Job {
    /// Returns the run time without suspensions; zero for a job that has not started.
    pub fn elapsed(&self, now: Timestamp) -> Duration {
        let Some(start) = self.run.start else { return Duration::ZERO };
        let until = self.run.end.or(self.run.suspended_at).unwrap_or(now);
        passed(start, until, self.run.stepped_us, self.run.suspended_us)
    }

    /// Returns the time limit, in seconds, with which this running job ends at `end`. It is at least
    /// 1, and rounded up: the job does not end in an earlier second.
    pub fn limit_until(&self, end: Timestamp) -> u64 {
        let secs = self.elapsed(end).as_micros().div_ceil(1_000_000);
        u64::try_from(secs).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the run time of a step without suspensions.
    pub fn step_elapsed(&self, step: &Step, now: Timestamp) -> Duration {
        let until = step.end.or(self.run.suspended_at).unwrap_or(now);
        passed(step.start, until, step.stepped_us, step.suspended_us)
    }
}

/// Returns the time elapsed between two readings of the wall clock, which has jumped by
/// `stepped_us` in between.
fn passed(from: Timestamp, until: Timestamp, stepped_us: i64, suspended_us: u64) -> Duration {
    let shown = until.0.saturating_sub(from.0).saturating_sub(stepped_us);
    Duration::from_micros(u64::try_from(shown).unwrap_or(0).saturating_sub(suspended_us))
}

/// A partition and its job counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionView {
    pub partition: Partition,
    /// Job counts; each task of a pending array counts as one job.
    pub running: u64,
    pub pending: u64,
}

/// The host with its partitions: the answer to sinfo and `scontrol show node|partition`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub host: Host,
    pub allocated: Tres,
    /// CPUs that are neither allocated nor available.
    #[serde(default, skip_serializing_if = "is_default")]
    pub closed_cpus: u32,
    /// An exclusive job holds the host.
    pub exclusive: bool,
    pub partitions: Vec<PartitionView>,
    /// The reason why the node is drained, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<NodeReason>,
    /// Parts of the node that are not allocated, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// The owner's limits on groups of jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The licenses, ordered by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<LicenseUse>,
    /// The QOS, the default one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos: Vec<Qos>,
    /// The reservations, in the order of their creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<ReservationView>,
    pub daemon_start: Timestamp,
    /// The one-minute load average times 100, as Slurm's `CPULoad` prints it.
    pub load_centi: u32,
    /// CPU use by processes that do not belong to any job, if it affects scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_elsewhere: Option<CpusElsewhere>,
    /// Memory of the machine that is available to new processes, MB.
    pub free_mem_mb: u64,
    pub now: Timestamp,
}

impl NodeView {
    /// Returns the memory of the machine, MB. Jobs may be allowed to use less, or more.
    pub fn machine_mem_mb(&self) -> u64 {
        match self.host.machine_mem_mb {
            0 => self.host.mem_mb,
            known => known,
        }
    }

    /// Returns the memory in use by all processes, MB.
    pub fn used_mem_mb(&self) -> u64 {
        self.machine_mem_mb().saturating_sub(self.free_mem_mb)
    }
}

impl JobList {
    /// Moves the brief jobs into `jobs`, before the others: earlier runs of a job, which have ended,
    /// stay before the current one.
    #[must_use]
    pub fn whole(mut self) -> JobList {
        let brief = std::mem::take(&mut self.brief).into_iter().map(JobView::from);
        self.jobs.splice(..0, brief);
        self
    }

    /// Combines the jobs of the earlier parts with this one, the last part of the answer.
    #[must_use]
    pub fn after(mut self, earlier: Vec<JobView>) -> JobList {
        let changed: BTreeSet<JobId> = std::mem::take(&mut self.changed).into_iter().collect();
        let own = std::mem::replace(&mut self.jobs, earlier);
        self.jobs.retain(|job| !changed.contains(&job.id));
        self.jobs.extend(own);
        if !changed.is_empty() {
            self.jobs.sort_by_key(|job| job.id);
        }
        self
    }

    /// Creates an answer without jobs.
    pub fn at(now: Timestamp) -> JobList {
        JobList {
            jobs: Vec::new(),
            brief: Vec::new(),
            now,
            unknown: Vec::new(),
            changed: Vec::new(),
        }
    }
}

/// The answer to a job query, or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    pub jobs: Vec<JobView>,
    /// Used instead of `jobs` if the query was brief.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::brief")]
    pub brief: Vec<BriefJob>,
    /// The daemon's clock when it answered.
    pub now: Timestamp,
    /// Requested IDs that do not exist.
    #[serde(default)]
    pub unknown: Vec<JobId>,
    /// Records that were changed or deleted after their part of the answer was sent. This part
    /// repeats the ones that still match the query.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<JobId>,
}
