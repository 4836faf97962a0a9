//! Launches: late, successful and failed ones.

use super::core::Core;
use super::records::depend::Known;
use super::recurrence;
use super::resources::node::MAX_DEATHS;
use super::types::Cx;
use slotd_model::job::Hold;
use slotd_model::node::HostFault;
use slotd_model::request::JobKind;
use slotd_model::reservation::Reservation;
use slotd_model::{Job, JobId, JobState, StepId, StepKey, Timestamp};
use std::time::Duration;

/// A launch this long after its decision is late. A shorter delay is not visible.
const LATE: Duration = Duration::from_secs(1);

/// After this many host faults a job is held if another job was launched before each of them. Five
/// faults mean that the job has kept others from starting for ten seconds or more.
const MAX_FAULTS: u32 = 5;

impl Core {
    /// Notes that the job is about to be launched, and returns whether it is. If that is long after
    /// the decision, because the commit had to wait for the disk, the job's start time is set to
    /// now, so that it does not lose run time. A batch job that would then run into a reservation
    /// returns to the queue.
    pub fn launches(&mut self, id: JobId, cx: &mut Cx) -> bool {
        let clock = self.records.clock();
        let Some(job) = self.job(id) else { return true };
        let run = &job.run;
        let waited =
            run.started_at().map(|decided| clock.monotonic(cx.now).saturating_sub(decided));
        let is_as_decided = run.state == JobState::Running && run.suspended_us == 0;
        if is_as_decided && waited.is_some_and(|waited| waited >= LATE) {
            if job.request.kind == JobKind::Batch && self.runs_into_reservation(job, cx.now) {
                self.back_to_queue(id, None, None, &Known::default(), cx);
                self.settle(cx);
                return false;
            }
            self.records.edit(id, |Job { run, .. }| {
                (run.start, run.clock, run.stepped_us) = (Some(cx.now), Some(Box::new(clock)), 0);
            });
            self.records.save(id, cx);
        }
        true
    }

    /// Returns whether a job that would have ended before a reservation of others runs into it if it
    /// starts now.
    fn runs_into_reservation(&self, job: &Job, now: Timestamp) -> bool {
        let config = self.resources.config();
        let Some((start, limit)) = job.run.start.zip(job.request.time_limit_secs) else {
            return false;
        };
        let (planned, end) = (start.plus_secs(limit), now.plus_secs(limit));
        let all = &config.reservations;
        let own = all.iter().find(|one| one.is_named_by(&job.request));
        let passes = |other: &Reservation| own.is_some_and(|own| own == other || own.passes(other));
        let mut periods = all
            .iter()
            .filter(|other| !passes(other))
            .filter_map(|other| recurrence::from(other, planned, &config.zone));
        periods.any(|period| period.start >= planned && period.start < end)
    }

    /// Notes that processes of this job were started, so the host can launch jobs.
    pub fn on_launched(&mut self, id: JobId) {
        self.resources.node_mut().launched();
        self.records.edit(id, |job| job.failed_launches = Default::default());
    }

    /// Handles a launch that failed because of a host fault. The tasks of an array are alike: their
    /// faults count together, and they are held together.
    pub(super) fn launch_failed_by_host(
        &mut self,
        id: JobId,
        fault: HostFault,
        why: &str,
        cx: &mut Cx,
    ) {
        let array = self.job(id).and_then(Job::array_job_id);
        let alike: Vec<JobId> = self.records.of_submission(array.unwrap_or(id)).collect();
        if !self.resources.node_mut().launch_failed(id, array, format!("{fault}: {why}"), cx.now) {
            return;
        }
        self.records.edit(id, |job| job.failed_launches.faults += 1);
        let jobs = alike.iter().filter_map(|other| self.job(*other));
        let times: u32 = jobs.map(|job| job.failed_launches.faults).sum();
        if times < MAX_FAULTS {
            return;
        }
        let text = format!(
            "its launch failed {times} times while other jobs could be launched: {fault}: {why}"
        );
        for other in alike {
            let Some(job) = self.job(other) else { continue };
            if other != id && (job.run.state != JobState::Pending || job.hold != Hold::No) {
                continue;
            }
            self.records.edit(other, |job| {
                job.hold = Hold::Admin;
                job.run.system_comment = Some(text.clone());
            });
            // The caller handles the job itself.
            if other != id {
                self.refresh(other, cx.now);
                self.records.save(other, cx);
            }
        }
    }

    /// Counts a launch that started nothing because the daemon died. Holds the job after
    /// [`MAX_DEATHS`] of them.
    pub(super) fn count_lost_launch(&mut self, id: JobId) {
        let step = StepKey { job: id, step: StepId::Batch };
        if !self.resources.node_mut().take_launch_at_death(step) {
            return;
        }
        // Counted in the record, because a much later daemon may launch the job.
        self.records.edit(id, |job| {
            job.failed_launches.deaths += 1;
            let times = job.failed_launches.deaths;
            if times >= MAX_DEATHS {
                job.hold = Hold::Admin;
                job.run.system_comment =
                    Some(format!("the daemon died {times} times while launching the job"));
            }
        });
    }
}
