//! Crontabs: the user replaces or removes the crontab at any time.
//!
//! Besides the guarantees of all jobs: an entry has one job, which has not ended unless its user
//! cancelled it; each of its runs is for a later time than the run before; and no job of an earlier
//! crontab waits, unless its run was interrupted.

use super::*;
use slotd_model::Reason;
use slotd_model::run::Run;
use slotd_sched::EntryToInstall;

/// Times that come as often as other events.
const TIMES: [&str; 3] = ["* * * * *", "*/2 * * * *", "1-59/3 * * * *"];

impl Play {
    /// Replaces the crontab, or removes it.
    pub fn change_crontab(&self) {
        let entries: Vec<EntryToInstall> = {
            let world = &mut *self.world.borrow_mut();
            let count = world.rng.usize(0..4);
            (0..count).map(|line| entry(world, line)).collect()
        };
        if entries.is_empty() {
            return self.remove_crontab();
        }
        let count = entries.len();
        let comments: Vec<String> =
            entries.iter().filter_map(|entry| entry.submission.request.comment.clone()).collect();
        let message = ReplaceCrontab { uid: USER, text: Vec::new(), entries };
        self.send(message, move |world, answer| match answer {
            Ok(jobs) => {
                assert_eq!(jobs.len(), count, "one job per entry");
                world.log(|| format!("installed {jobs:?}"));
                world.promises.extend(jobs.into_iter().map(|id| (id, Promise::default())));
            }
            // Nothing was changed.
            Err((_, Refusal::NotStored(_) | Refusal::QosLimit(_))) => {
                world.refused.extend(comments);
            }
            // It may have been stored.
            Err((None, Refusal::Unrecorded(_))) => {}
            Err(refused) => panic!("a crontab was refused: {refused:?}"),
        });
    }

    pub fn remove_crontab(&self) {
        self.world.borrow().log(|| "the crontab is removed".to_owned());
        self.send(RemoveCrontab { uid: USER }, |_, _| {});
    }
}

fn entry(world: &mut World, line: usize) -> EntryToInstall {
    let time = TIMES[world.rng.usize(..TIMES.len())];
    let request = ask().cpus(world.rng.u32(1..=CPUS)).mem(10).limit(world.rng.u64(1..200));
    let request = request.qos(world.some_qos());
    let comment = world.rng.u64(..).to_string();
    let request = request.with(|request| request.comment = Some(comment));
    let recurrence =
        slotd_parse::cron::parse(&format!("{time} true")).expect("a valid time").recurrence;
    EntryToInstall {
        submission: Submission { request: request.0, ..Submission::default() },
        recurrence,
        lines: (line, line),
    }
}

impl World {
    /// Checks what holds for the stored crontab and its jobs after every commit.
    pub fn check_crontab(&self) {
        let stored = &self.disk.stored;
        let listed: BTreeSet<JobId> = stored
            .crontabs
            .values()
            .flat_map(|crontab| &crontab.entries)
            .map(|entry| entry.job)
            .collect();
        for id in &listed {
            let job = stored.jobs.get(id).unwrap_or_else(|| panic!("entry {id} has no job"));
            // A daemon that did not stop the job itself does not know who did.
            let may_end = job.run.state == JobState::Ended(End::Cancelled);
            let is_over = job.run.state.is_terminal() && !may_end;
            assert!(!is_over, "the entry {id} ended although nobody cancelled it: {:?}", job.run);
        }
        let waits =
            |job: &&Job| job.run.state == JobState::Pending && job.request.recurrence.is_some();
        for job in stored.jobs.values().filter(waits).filter(|job| !listed.contains(&job.id)) {
            // A run that failed to start or was interrupted is repeated, as for any job.
            let last = stored.runs.iter().rfind(|(id, _)| *id == job.id);
            let was_interrupted = last.is_some_and(|(_, Run { run, .. })| {
                run.reason == Reason::JobLaunchFailure
                    || matches!(run.state, JobState::Ended(End::Preempted | End::NodeFail))
            });
            // After its end, its user may requeue it.
            let was_requeued =
                self.promises.get(&job.id).is_some_and(|promise| promise.requeues > 0);
            assert!(
                was_interrupted || was_requeued,
                "job {} of an earlier crontab waits: {last:?}",
                job.id
            );
        }
    }

    /// Returns whether its user made an ended job run again.
    fn was_requeued(&self, id: JobId) -> bool {
        self.promises.get(&id).is_some_and(|promise| promise.requeues > 0)
    }

    /// Checks that a run of an entry is for a later time than the one before.
    pub fn check_recurrence(&mut self, job: &Job) {
        if job.request.recurrence.is_none() || self.was_requeued(job.id) {
            return;
        }
        let begin = job.begin().expect("an entry has a time");
        let last = self.recurred.insert(job.id, begin);
        assert!(
            last.is_none_or(|last| last < begin),
            "the entry {} runs twice for {begin:?}",
            job.id
        );
    }
}
