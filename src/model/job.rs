//! Job records.

use crate::array::TaskSet;
use crate::request::JobKind;
use crate::run::RunState;
use crate::{
    BootId, ClockBase, JobId, JobRequest, JobState, Reason, Step, StepId, Timestamp, Tres,
    is_default,
};
use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

/// The part of an array that a record represents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ArrayRole {
    #[default]
    None,
    /// All tasks of the array that have not been split off yet, as one record.
    Rest {
        tasks: TaskSet,
        /// Maximum number of tasks of the array to run at once.
        limit: Option<u32>,
    },
    /// One task with a record of its own.
    Task { array_job: JobId, task: u32 },
    /// Several tasks that were held, changed or cancelled together before they started: a compact
    /// record like `Rest`, with its own ID.
    Part { array_job: JobId, tasks: TaskSet },
}

/// The kind of hold on a pending job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub enum Hold {
    #[default]
    No,
    User,
    Admin,
    /// Its reservation has ended.
    Reservation,
    /// It was requeued as a special exit (`scontrol requeuehold State=SpecialExit`).
    SpecialExit,
}

impl Hold {
    /// Returns the reason of a pending job with this hold, if it is held.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Hold::No => None,
            Hold::User => Some(Reason::JobHeldUser),
            Hold::Admin => Some(Reason::JobHeldAdmin),
            Hold::Reservation => Some(Reason::ReservationDeleted),
            Hold::SpecialExit => Some(Reason::SpecialExit),
        }
    }
}

/// A process, identified uniquely across PID reuse and reboots.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
pub struct ClientProcess {
    pub pid: u32,
    /// The start time from field 22 of `/proc/pid/stat`, which differs for a later process with the
    /// same PID.
    pub start_ticks: u64,
    /// The boot that both values belong to. They start over with each boot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub boot: BootId,
}

/// The process that made a submission. It also identifies the submission: a process makes only one,
/// so that a client can safely submit again if it received no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(from = "StoredClient", into = "StoredClient")]
pub struct Client {
    pub process: ClientProcess,
    /// The allocation ends with the process (salloc, srun) instead of outliving it (sbatch).
    pub holds: bool,
    /// `holds` applies only while the job is pending: a running job outlives the process (`salloc
    /// --no-shell`).
    pub until_granted: bool,
}

/// A [`Client`] as it is stored. Every record has one, and the fields of the process are spelled out
/// because serde's `flatten` reads each value twice.
#[derive(Serialize, Deserialize)]
struct StoredClient {
    pid: u32,
    start_ticks: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    boot: BootId,
    #[serde(default = "yes")]
    holds: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    until_granted: bool,
}

impl From<StoredClient> for Client {
    fn from(stored: StoredClient) -> Client {
        let StoredClient { pid, start_ticks, boot, holds, until_granted } = stored;
        Client { process: ClientProcess { pid, start_ticks, boot }, holds, until_granted }
    }
}

impl From<Client> for StoredClient {
    fn from(client: Client) -> StoredClient {
        let Client { process: ClientProcess { pid, start_ticks, boot }, holds, until_granted } =
            client;
        StoredClient { pid, start_ticks, boot, holds, until_granted }
    }
}

/// In records of older versions, every client holds its allocation.
fn yes() -> bool {
    true
}

/// Failed launches for which the job is not known to be at fault. They count until a launch works
/// or the job is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedLaunches {
    /// The daemon died during the launch.
    pub deaths: u32,
    /// The host could not launch the job, although it could launch others before.
    pub faults: u32,
}

/// The texts of a submission that often differ between jobs that are otherwise alike.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnTexts {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub submit_line: Box<str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub args: Box<[String]>,
}

impl OwnTexts {
    /// Moves the texts out of a request. `None` for an array: its records share the request, and
    /// with it the texts.
    pub fn take_out_of(request: &mut JobRequest) -> Option<Arc<OwnTexts>> {
        if request.array.is_some() {
            return None;
        }
        let submit_line = std::mem::take(&mut request.submit_line).into_boxed_str();
        let args = std::mem::take(&mut request.args).into_boxed_slice();
        Some(Arc::new(OwnTexts { submit_line, args }))
    }
}

/// A job record: a plain job, the rest of an array, an array task, or an allocation.
///
/// All records of an array share `request`, so that a task costs little more than its own state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub role: ArrayRole,
    /// The request as submitted, whole array included: `SLURM_ARRAY_TASK_COUNT` and the like need
    /// it.
    #[serde(default = "no_request", skip_serializing_if = "is_no_request")]
    pub request: Arc<JobRequest>,
    /// The texts that are not in `request`, so that jobs that differ only in them share one request.
    /// Views of the job share them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_texts: Option<Arc<OwnTexts>>,
    /// The partition that the job runs in. For a pending job: all its partitions, separated by
    /// commas.
    pub partition: CompactString,
    /// Resources to allocate while it runs.
    pub tres: Tres,
    pub priority: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: Hold,
    pub submit: Timestamp,
    /// The number of its next step.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed_launches: FailedLaunches,
    /// The current run, or the last one.
    pub run: RunState,
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Vec<Step>,
}

/// Returns the empty request, which all records without one share: a request is large, and a list of
/// records whose requests are stored elsewhere may be long.
pub(crate) fn no_request() -> Arc<JobRequest> {
    static NONE: LazyLock<Arc<JobRequest>> = LazyLock::new(Arc::default);
    Arc::clone(&NONE)
}

fn is_no_request(request: &Arc<JobRequest>) -> bool {
    *request == no_request()
}

impl Default for Job {
    fn default() -> Self {
        Job {
            id: JobId::default(),
            role: ArrayRole::None,
            request: no_request(),
            own_texts: None,
            partition: CompactString::default(),
            tres: Tres::default(),
            priority: 0,
            hold: Hold::No,
            submit: Timestamp::default(),
            next_step: 0,
            client: None,
            failed_launches: FailedLaunches::default(),
            run: RunState::default(),
            steps: Vec::new(),
        }
    }
}

impl ArrayRole {
    /// Returns the ID of the array that a record with the ID `own` belongs to.
    pub fn array_job(&self, own: JobId) -> Option<JobId> {
        match self {
            ArrayRole::None => None,
            ArrayRole::Rest { .. } => Some(own),
            ArrayRole::Task { array_job, .. } | ArrayRole::Part { array_job, .. } => {
                Some(*array_job)
            }
        }
    }

    /// Returns the array tasks that a record with this role represents.
    pub fn tasks(&self) -> TaskSet {
        match self {
            ArrayRole::None => TaskSet::new(),
            ArrayRole::Task { task, .. } => TaskSet::one(*task),
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => tasks.clone(),
        }
    }
}

impl Job {
    /// Returns the step of the script (`12.batch`) or of the command of `srun --no-wait` (`12.0`),
    /// which starts and ends with the job. `None` for allocations.
    pub fn own_step_id(&self) -> Option<StepId> {
        match self.request.kind {
            JobKind::Batch => Some(StepId::Batch),
            JobKind::Run => Some(StepId::Num(0)),
            JobKind::Allocation => None,
        }
    }

    /// Returns the command line that submitted it.
    pub fn submit_line(&self) -> &str {
        self.own_texts.as_ref().map_or(&self.request.submit_line, |own| &own.submit_line)
    }

    /// Returns the arguments of its script or command.
    pub fn args(&self) -> &[String] {
        self.own_texts.as_ref().map_or(&self.request.args, |own| &own.args)
    }

    /// Returns its request, with its own texts.
    pub fn whole_request(&self) -> JobRequest {
        JobRequest {
            submit_line: self.submit_line().to_owned(),
            args: self.args().to_vec(),
            ..JobRequest::clone(&self.request)
        }
    }

    /// Returns the number of the first step that an srun inside the job creates.
    pub fn first_step(&self) -> u32 {
        u32::from(self.request.kind == JobKind::Run)
    }

    /// Returns the partitions that the job may run in: just one, once it runs.
    pub fn partitions(&self) -> impl Iterator<Item = &str> {
        self.partition.split(',')
    }

    /// Returns whether the partition is still undecided.
    pub fn has_several_partitions(&self) -> bool {
        self.partition.contains(',')
    }

    /// Returns the ID of the array that the record belongs to, if any.
    pub fn array_job_id(&self) -> Option<JobId> {
        self.role.array_job(self.id)
    }

    /// Returns the ID as users write it: `12`, or `12_3` for an array task.
    pub fn label(&self) -> String {
        match &self.role {
            ArrayRole::Task { array_job, task } => format!("{array_job}_{task}"),
            ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => {
                self.id.to_string()
            }
        }
    }

    /// Like [`Self::label`], with the tasks of a compact record: `12_[4-99]`.
    pub fn full_label(&self) -> String {
        match &self.role {
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                let array = self.array_job_id().unwrap_or(self.id);
                match tasks.single() {
                    Some(task) => format!("{array}_{task}"),
                    None => format!("{array}_[{tasks}]"),
                }
            }
            ArrayRole::None | ArrayRole::Task { .. } => self.label(),
        }
    }

    /// Adds a step. Most jobs have only one, and a step is large: a growing vector would reserve
    /// room for four.
    pub fn add_step(&mut self, step: Step) {
        if self.steps.is_empty() {
            self.steps.reserve_exact(1);
        }
        self.steps.push(step);
    }

    /// Copies the record without its steps. A job may have thousands, and copying them for a launch
    /// or a query that ignores them would cost more than all the rest.
    pub fn without_steps(&self) -> Job {
        Job {
            id: self.id,
            role: self.role.clone(),
            request: Arc::clone(&self.request),
            own_texts: self.own_texts.clone(),
            partition: self.partition.clone(),
            tres: self.tres,
            priority: self.priority,
            hold: self.hold,
            submit: self.submit,
            next_step: self.next_step,
            client: self.client,
            failed_launches: self.failed_launches,
            run: self.run.clone(),
            steps: Vec::new(),
        }
    }

    /// Updates the run and the steps that have not ended with the current clocks.
    pub fn catch_up(&mut self, clock: ClockBase) {
        self.run.catch_up(clock);
        self.steps
            .iter_mut()
            .filter(|step| step.end.is_none())
            .for_each(|step| step.catch_up(clock));
    }

    /// Returns whether `--requeue` makes the job run again, which happens once. This never applies
    /// to an allocation or a cancelled job. A setting of the daemon decides which ends trigger it.
    pub fn runs_again(&self) -> bool {
        let request = &self.request;
        let is_asked = request.requeue && !request.no_requeue;
        let is_wanted = is_asked && self.run.cancelled_by.is_none();
        is_wanted && request.kind != JobKind::Allocation && self.run.restarts == 0
    }

    /// Returns when the job may begin.
    pub fn begin(&self) -> Option<Timestamp> {
        self.run.begin.or(self.request.begin)
    }

    /// Returns when a pending job must have started, or a running one must have ended, because of
    /// `--deadline`. A pending job misses its deadline as soon as its minimum time no longer fits
    /// before it (sbatch man page).
    pub fn deadline(&self) -> Option<Timestamp> {
        let deadline = self.request.deadline?;
        if self.run.state != JobState::Pending {
            return Some(deadline);
        }
        let needs = self.request.time_min_secs.or(self.request.time_limit_secs).unwrap_or(0);
        let micros = i64::try_from(needs).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        Some(deadline.plus_us(micros.saturating_neg()))
    }

    /// Returns whether its `--deadline` has been missed.
    pub fn is_late(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns the process that the allocation currently depends on.
    pub fn holder(&self) -> Option<ClientProcess> {
        let holds = |client: &Client| {
            client.holds && (!client.until_granted || self.run.state == JobState::Pending)
        };
        self.client.filter(holds).map(|client| client.process)
    }

    /// Returns the array tasks of a compact record.
    pub fn compact_tasks(&self) -> Option<&TaskSet> {
        match &self.role {
            ArrayRole::None | ArrayRole::Task { .. } => None,
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => Some(tasks),
        }
    }

    /// Returns the number of jobs that the record represents: 1, or the array tasks of a compact
    /// record.
    pub fn weight(&self) -> usize {
        self.compact_tasks().map_or(1, TaskSet::len)
    }

    /// Returns the number of tasks that may still start from this record.
    pub fn pending_tasks(&self) -> usize {
        if self.run.state == JobState::Pending { self.weight() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{ArraySpec, TaskSet};

    fn submission(line: &str) -> JobRequest {
        let args = vec![line.to_owned(), "an argument".to_owned()];
        JobRequest { submit_line: line.to_owned(), args, ..JobRequest::default() }
    }

    fn job(mut request: JobRequest) -> Job {
        let own_texts = OwnTexts::take_out_of(&mut request);
        Job { own_texts, request: Arc::new(request), ..Job::default() }
    }

    #[test]
    fn jobs_that_differ_only_in_their_own_texts_have_equal_requests() {
        let jobs = ["sbatch a.sh 1", "sbatch a.sh 2"].map(|line| job(submission(line)));
        assert_eq!(jobs[0].request, jobs[1].request);
        assert_ne!(jobs[0], jobs[1]);
        for (job, line) in jobs.iter().zip(["sbatch a.sh 1", "sbatch a.sh 2"]) {
            assert_eq!((job.submit_line(), job.args()[0].as_str()), (line, line));
            assert_eq!(job.whole_request(), submission(line));
            assert_eq!(job.without_steps(), *job);
            let text = serde_json::to_string(job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), *job);
        }
    }

    #[test]
    fn an_array_keeps_its_texts_in_the_request_that_its_records_share() {
        let array = Some(ArraySpec { tasks: TaskSet::one(3), limit: None });
        let asked = JobRequest { array, ..submission("sbatch -a 3 a.sh") };
        let job = job(asked.clone());
        assert_eq!((&job.own_texts, &*job.request), (&None, &asked));
        assert_eq!((job.submit_line(), job.args().len()), ("sbatch -a 3 a.sh", 2));
        assert_eq!(job.whole_request(), asked);
    }

    #[test]
    fn a_record_of_an_older_version_has_its_texts_in_the_request() {
        let text = serde_json::to_string(&Job::default()).unwrap();
        let old: Job = serde_json::from_str(&text).unwrap();
        let old = Job { request: Arc::new(submission("sbatch old.sh")), ..old };
        assert_eq!((old.submit_line(), old.args().len()), ("sbatch old.sh", 2));
    }

    #[test]
    fn a_single_step_takes_the_memory_of_one() {
        let mut job = Job::default();
        job.add_step(Step::started(StepId::Num(0), Timestamp(1)));
        assert_eq!(job.steps.capacity(), 1);
        job.add_step(Step::started(StepId::Num(1), Timestamp(2)));
        assert_eq!(job.steps.len(), 2);
    }

    #[test]
    fn client_is_stored_with_its_process() {
        let process = ClientProcess { pid: 7, start_ticks: 9, boot: BootId::default() };
        let new = Client { process, holds: false, until_granted: false };
        let text = r#"{"pid":7,"start_ticks":9,"holds":false}"#;
        assert_eq!(serde_json::to_string(&new).unwrap(), text);
        let granted = Client {
            process: ClientProcess { boot: BootId(10), ..process },
            holds: true,
            until_granted: true,
        };
        for client in [new, granted] {
            let text = serde_json::to_string(&client).unwrap();
            assert_eq!(serde_json::from_str::<Client>(&text).unwrap(), client, "{text}");
        }
        let old: Client = serde_json::from_str(r#"{"pid":7,"start_ticks":9}"#).unwrap();
        assert_eq!(old, Client { holds: true, ..new }, "a record of an older version");
    }
}
