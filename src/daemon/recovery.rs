//! The queue as an earlier daemon left it.

use crate::actors::scheduler::clients_to_expect;
use crate::actors::store::ended_facts;
use crate::daemon::run::{DaemonError, failed};
use crate::model::job::ClientProcess;
use crate::model::{Job, JobId, JobState, Timestamp};
use crate::sched::{self, Core};
use crate::store::{Reader, Store};
use std::path::Path;

/// The core with the queue of the database, and what is still going on.
pub struct Recovered {
    pub core: Core,
    /// Jobs whose processes may live.
    pub adopted: Vec<Job>,
    /// Clients that wait for their allocations.
    pub clients: Vec<(JobId, ClientProcess)>,
    pub daemon_start: Timestamp,
}

/// Reads the queue from the database.
///
/// # Errors
/// The database cannot be read, or holds what makes no sense.
pub fn recover(config: sched::Config, store: &mut Store, database: &Path) -> Result<Recovered, DaemonError> {
    const WHERE: &str = "the queue in the database";
    let daemon_start = crate::sys::clock::now();
    let shown_secs = i64::try_from(config.min_job_age_secs).unwrap_or(i64::MAX);
    let since = Timestamp(daemon_start.0.saturating_sub(shown_secs.saturating_mul(1_000_000)));
    let jobs = store.load_live(since).map_err(failed(WHERE))?;
    let next_id = store.next_job_id().map_err(failed(WHERE))?;
    let targets = sched::dependency_targets(
        jobs.iter().filter(|job| job.run.state == JobState::Pending).map(|job| &job.request.dependency),
    );
    let ended =
        Reader::open(database).and_then(|mut reader| ended_facts(&mut reader, &targets)).map_err(failed(WHERE))?;
    let adopted = jobs.iter().filter(|job| job.run.state.is_active()).cloned().collect();
    let clients = clients_to_expect(&jobs);
    Ok(Recovered { core: Core::recover(config, jobs, ended, next_id, daemon_start), adopted, clients, daemon_start })
}
