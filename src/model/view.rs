//! What queries answer: everything that is known of a job, step, partition or node at one moment.
//!
//! `render` turns these into text. A view is data on its own: it needs no clock but `now`, which it
//! carries.

use crate::model::brief::BriefJob;
use crate::model::cpu_use::CpusElsewhere;
use crate::model::limit::Limit;
use crate::model::node::{NodeReason, Outage};
use crate::model::partition::Host;
use crate::model::why::Blocker;
use crate::model::{Job, JobId, Partition, Step, Timestamp, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A job record as queries see it, with what is worked out for them. Its fields are read as those
/// of the job.
///
/// The steps include the one that stands for the script. The reason of a pending job is why it
/// waits now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobView {
    pub job: Job,
    /// The dependency as it stands now: satisfied terms are gone. Empty: none left.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dependency: String,
    /// When the plan would start a pending job (`squeue --start`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start: Option<Timestamp>,
    /// All that keeps a pending job from starting, where that is asked for; first what squeue
    /// shows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blockers: Vec<Blocker>,
    /// An earlier run, which was ended for a requeue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requeued: bool,
    /// Absolute paths, with their patterns filled in where the ids are known. `/dev/null` for input
    /// where none was given. Empty for an allocation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_out: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_err: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_in: String,
    /// The job launches one process a rank, rather than its script (salloc: its command) once, as
    /// with Slurm.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batch_ranks: bool,
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
    /// For who does not look at the paths of the standard streams.
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
    /// Time it has run, without suspension; zero for a job that has not started.
    pub fn elapsed(&self, now: Timestamp) -> Duration {
        let Some(start) = self.run.start else { return Duration::ZERO };
        let until = self.run.end.or(self.run.suspended_at).unwrap_or(now);
        passed(start, until, self.run.stepped_us, self.run.suspended_us)
    }

    /// Time that a step of it has run, without suspension.
    pub fn step_elapsed(&self, step: &Step, now: Timestamp) -> Duration {
        let until = step.end.or(self.run.suspended_at).unwrap_or(now);
        passed(step.start, until, step.stepped_us, step.suspended_us)
    }
}

/// What has passed of the time between two readings of the wall clock, which has jumped by
/// `stepped_us` in between.
fn passed(from: Timestamp, until: Timestamp, stepped_us: i64, suspended_us: u64) -> Duration {
    let shown = until.0.saturating_sub(from.0).saturating_sub(stepped_us);
    Duration::from_micros(u64::try_from(shown).unwrap_or(0).saturating_sub(suspended_us))
}

/// A partition with what is going on in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionView {
    pub partition: Partition,
    /// Jobs, not tasks; a pending array counts each of its tasks.
    pub running: u64,
    pub pending: u64,
}

/// The host with its partitions: the answer to sinfo and `scontrol show node|partition`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub host: Host,
    pub allocated: Tres,
    /// CPUs that no job has, and none gets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub closed_cpus: u32,
    /// An exclusive job has the host.
    pub exclusive: bool,
    pub partitions: Vec<PartitionView>,
    /// Why it takes no jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<NodeReason>,
    /// What of it no job gets, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// What some kind of jobs may have together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    pub daemon_start: Timestamp,
    /// Load of the last minute times 100, as Slurm's `CPULoad` prints it.
    pub load_centi: u32,
    /// What processes that no job started use of the CPUs, where that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_elsewhere: Option<CpusElsewhere>,
    /// MB not in use now.
    pub free_mem_mb: u64,
    pub now: Timestamp,
}

impl JobList {
    /// With what is told in brief among the jobs.
    #[must_use]
    pub fn whole(mut self) -> JobList {
        let brief = std::mem::take(&mut self.brief).into_iter().map(|BriefJob(view)| view);
        if self.jobs.is_empty() {
            // The same memory: nothing is copied.
            self.jobs = brief.collect();
        } else {
            self.jobs.extend(brief);
        }
        self
    }

    /// The last part of an answer, with the jobs of the parts before it.
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

    /// An answer of this moment, without jobs.
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
    /// In place of `jobs`, where the query was brief.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brief: Vec<BriefJob>,
    /// The daemon's clock when it answered.
    pub now: Timestamp,
    /// Ids that were asked for and are not known.
    #[serde(default)]
    pub unknown: Vec<JobId>,
    /// Records that have changed since their part of the answer was sent, or are gone. Those that
    /// still belong to the answer are in this part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<JobId>,
}
