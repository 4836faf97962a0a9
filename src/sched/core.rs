//! The live state.
#![allow(unused_variables)]
use super::types::*;
use crate::model::job::Hold;
use crate::model::view::JobView;
use crate::model::*;
use crate::model::{job::ClientProcess, partition::Host};
use std::collections::BTreeMap;

pub struct Core {
    config: Config,
}

/// The jobs that the dependencies of these records name: what to ask the store about before `recover`.
pub fn dependency_targets<'a>(requests: impl IntoIterator<Item = &'a JobRequest>) -> Vec<JobId> {
    Vec::new()
}

impl Core {
    pub fn new(config: Config) -> Core {
        Core { config }
    }
    /// `jobs`: every non-terminal record and those that ended within `min_job_age_secs`.
    /// `ended`: what the store knows of `dependency_targets(pending jobs)`.
    pub fn recover(config: Config, jobs: Vec<Job>, ended: Vec<EndedJob>, next_id: JobId, now: Timestamp) -> Core {
        Core { config }
    }
    pub fn config(&self) -> &Config {
        &self.config
    }
    pub fn next_id(&self) -> JobId {
        JobId(1)
    }
    /// The GPUs, memory or partitions are others now.
    pub fn set_host(&mut self, host: Host, partitions: Vec<Partition>, now: Timestamp) {}
    pub fn submit(&mut self, s: Submission, now: Timestamp, out: &mut Outbox) -> Result<JobId, Refusal> {
        Err(Refusal::cause(""))
    }
    pub fn test_only(&self, s: &Submission, now: Timestamp) -> Result<Estimate, Refusal> {
        Err(Refusal::cause(""))
    }
    pub fn plan(&mut self, now: Timestamp, out: &mut Outbox) {}
    pub fn next_due(&self) -> Option<Timestamp> {
        None
    }
    pub fn on_due(&mut self, now: Timestamp, out: &mut Outbox) {}
    pub fn on_job_ended(&mut self, id: JobId, outcome: JobOutcome, now: Timestamp, out: &mut Outbox) {}
    pub fn on_step_ended(&mut self, step: StepKey, outcome: StepOutcome, now: Timestamp, out: &mut Outbox) {}
    pub fn create_step(
        &mut self,
        job: JobId,
        ask: StepAsk,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<StepStart, Refusal> {
        Ok(StepStart::Waits)
    }
    pub fn cancel_step_wait(&mut self, ticket: u64) {}
    pub fn release_allocation(&mut self, id: JobId, exit: ExitCode, now: Timestamp, out: &mut Outbox) {}
    pub fn client_lost(&mut self, id: JobId, now: Timestamp, out: &mut Outbox) {}
    /// A client took up its allocation again after a restart.
    pub fn set_client(&mut self, id: JobId, client: Option<ClientProcess>, out: &mut Outbox) {}
    pub fn cancel(
        &mut self,
        sel: &JobRef,
        by_uid: u32,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn signal(
        &mut self,
        sel: &JobRef,
        target: SignalTarget,
        signal: i32,
        by_uid: u32,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn hold(
        &mut self,
        sel: &JobRef,
        hold: Hold,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn release(&mut self, sel: &JobRef, now: Timestamp, out: &mut Outbox) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn requeue(
        &mut self,
        sel: &JobRef,
        and_hold: bool,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    /// A terminal record that is no longer in memory, brought back from the store so that it can be requeued or seen.
    pub fn adopt_ended(&mut self, job: Job, now: Timestamp) {}
    pub fn suspend(&mut self, sel: &JobRef, now: Timestamp, out: &mut Outbox) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn resume(&mut self, sel: &JobRef, now: Timestamp, out: &mut Outbox) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn top(&mut self, sel: &JobRef, now: Timestamp, out: &mut Outbox) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    pub fn update(
        &mut self,
        sel: &JobRef,
        updates: &[Update],
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<Vec<JobId>, ControlError> {
        Ok(vec![])
    }
    /// Records in memory that a reference names; a task of a compact record names that record.
    pub fn resolve(&self, sel: &JobRef) -> Vec<JobId> {
        vec![]
    }
    pub fn job(&self, id: JobId) -> Option<&Job> {
        None
    }
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        std::iter::empty()
    }
    pub fn view(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        None
    }
    pub fn views(&self, now: Timestamp) -> Vec<JobView> {
        vec![]
    }
    pub fn reason(&self, id: JobId, now: Timestamp) -> Reason {
        Reason::None
    }
    pub fn expected_starts(&self, now: Timestamp) -> BTreeMap<JobId, Timestamp> {
        BTreeMap::new()
    }
    pub fn batch_ranks(&self, request: &JobRequest) -> bool {
        false
    }
    pub fn allocated(&self) -> Tres {
        Tres::ZERO
    }
    pub fn is_exclusive(&self) -> bool {
        false
    }
    pub fn partition_loads(&self) -> Vec<PartitionLoad> {
        vec![]
    }
    /// What was found broken; empty when all is well.
    pub fn check_invariants(&self) -> Result<(), String> {
        Ok(())
    }
}
