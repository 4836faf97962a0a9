//! Commits that are in flight, and the effects that wait for them.
//!
//! Launches, grants, answers and notifications follow their commit. Effects that end or signal
//! existing processes act at once and are recorded later: otherwise, a job that fills the disk
//! could not be stopped, because its end could not be written. This is safe for two reasons:
//! repeating a stop after a restart does no harm, and the watcher's record shows the next daemon
//! that the job was stopped, so that it does not start again. For the same reason, the stop of a
//! job that is to run again follows its commit: without it, the job would be over. Another stop
//! takes its place. A job whose launch still waits is stopped by cancelling the launch.

use super::outgoing::Outgoing;
use slotd_model::view::JobView;
use slotd_model::{Job, JobId, StepKey};
use slotd_sched::{Effect, StopCause};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

/// The effects and answers that follow a commit.
pub(super) struct Waiting<A> {
    pub seq: u64,
    pub effects: Vec<Effect>,
    /// The jobs that these effects end, with their views at that time: a commit may take longer
    /// than a job stays in memory.
    pub ended: HashMap<JobId, JobView>,
    /// The notifications to send afterwards.
    pub outgoing: Vec<Outgoing>,
    /// The jobs whose records the commit changes.
    pub changed: Vec<JobId>,
    /// When it was sent to the store, or `None` if it contains no changes.
    pub sent: Option<Instant>,
    /// The receiver of its result.
    pub asker: Option<A>,
}

/// The commits in flight, in order.
pub(super) struct InFlight<A> {
    commits: VecDeque<Waiting<A>>,
    /// The number of waiting effects on the processes of each job, including the launch of its
    /// script or allocation. Further effects on the job wait behind them.
    acting: HashMap<JobId, usize>,
}

/// The effects of a decision, grouped by when they are carried out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sorted {
    pub at_once: Vec<Effect>,
    /// After the commit.
    pub later: Vec<Effect>,
    pub called_off: Vec<CalledOff>,
}

/// A cancelled launch. No runner will report its end.
#[derive(Debug, PartialEq)]
pub(super) enum CalledOff {
    Job(JobId),
    /// A step and the ticket of its client.
    Step(StepKey, u64),
}

/// Returns the job whose other effects this effect must not overtake. A step launch has none:
/// stopping, signalling or suspending the rest of its job need not wait for it.
fn acts_on(effect: &Effect) -> Option<JobId> {
    match effect {
        Effect::LaunchStep { .. }
        | Effect::StepRefused { .. }
        | Effect::ManagerChanged(..)
        | Effect::PartsOut(_)
        | Effect::Ended(_)
        | Effect::Requeued(_)
        | Effect::Notify { .. }
        | Effect::Gone(_) => None,
        Effect::Launch(_)
        | Effect::Granted(_)
        | Effect::Stop { .. }
        | Effect::StopStep { .. }
        | Effect::Signal { .. }
        | Effect::Warn(_)
        | Effect::Preempt(_)
        | Effect::Suspend(_)
        | Effect::Resume(_)
        | Effect::Resized(_)
        | Effect::SetTimeLimit { .. }
        | Effect::SetStepLimit { .. } => effect.job(),
    }
}

/// Whether an effect ends or signals existing processes, and need not follow its commit.
fn is_urgent(effect: &Effect) -> bool {
    acts_on(effect).is_some()
        && !matches!(effect, Effect::Launch(_) | Effect::Granted(_))
        && !is_to_run_again(effect)
}

/// Whether an effect stops a job that may run again afterwards.
fn is_to_run_again(effect: &Effect) -> bool {
    matches!(effect, Effect::Stop { cause: StopCause::Requeue | StopCause::Preempted, .. })
}

/// Whether an effect starts processes or acts on them.
fn is_of_processes(effect: &Effect) -> bool {
    acts_on(effect).is_some() || matches!(effect, Effect::LaunchStep { .. })
}

impl<A> Default for InFlight<A> {
    fn default() -> Self {
        InFlight { commits: VecDeque::new(), acting: HashMap::new() }
    }
}

impl<A> InFlight<A> {
    /// Decides for each effect whether it waits. The caller must then [`push`](Self::push) the ones
    /// for later.
    pub fn sort(&mut self, effects: Vec<Effect>) -> Sorted {
        let mut sorted = Sorted::default();
        for effect in effects {
            if let Some(called_off) = self.call_off(&effect) {
                sorted.called_off.push(called_off);
                continue;
            }
            self.take_place_of_stop(&effect);
            let waits = acts_on(&effect).is_some_and(|job| self.acts(job));
            if is_urgent(&effect) && !waits {
                sorted.at_once.push(effect);
            } else {
                if let Some(job) = acts_on(&effect) {
                    *self.acting.entry(job).or_insert(0) += 1;
                }
                sorted.later.push(effect);
            }
        }
        sorted
    }

    /// Cancels the waiting launch that this effect is meant to stop, if there is one.
    fn call_off(&mut self, effect: &Effect) -> Option<CalledOff> {
        match effect {
            Effect::Stop { job, .. } if self.acts(*job) && self.is_launch_waiting(*job) => {
                let job = *job;
                self.remove(|effect| effect.job() == Some(job) && is_of_processes(effect));
                Some(CalledOff::Job(job))
            }
            Effect::StopStep { step, .. } => {
                let (wanted, ticket) = (*step, self.ticket_of(*step)?);
                self.remove(
                    |effect| matches!(effect, Effect::LaunchStep { step, .. } if *step == wanted),
                );
                Some(CalledOff::Step(wanted, ticket))
            }
            _ => None,
        }
    }

    /// Removes a waiting stop whose place this one takes, and the other waiting effects on the job,
    /// which must not follow its end.
    fn take_place_of_stop(&mut self, effect: &Effect) {
        let Effect::Stop { job, .. } = effect else { return };
        let is_other = |effect: &Effect| is_to_run_again(effect) && effect.job() == Some(*job);
        if is_urgent(effect)
            && self.acts(*job)
            && self.commits.iter().any(|commit| commit.effects.iter().any(is_other))
        {
            self.remove(|effect| acts_on(effect) == Some(*job));
        }
    }

    pub fn push(&mut self, commit: Waiting<A>) {
        self.commits.push_back(commit);
    }

    /// Removes the earliest commit, which is now durable.
    pub fn pop(&mut self) -> Option<Waiting<A>> {
        let done = self.commits.pop_front()?;
        done.effects.iter().for_each(|effect| self.forget(effect));
        Some(done)
    }

    /// Whether all decisions are durable.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Whether an effect on this job's processes, or their launch, is waiting.
    pub fn acts(&self, job: JobId) -> bool {
        self.acting.contains_key(&job)
    }

    /// Whether any of these jobs has an end that is not yet durable.
    pub fn ends_one_of(&self, jobs: &[JobId]) -> bool {
        let is_end = |effect: &Effect| matches!(effect, Effect::Ended(id) if jobs.contains(id));
        self.commits.iter().any(|commit| commit.effects.iter().any(is_end))
    }

    /// Returns the number of commits sent to the store.
    pub fn sent(&self) -> usize {
        self.commits.iter().filter(|commit| commit.sent.is_some()).count()
    }

    /// Cancels all waiting launches of steps. Returns them with the tickets of their clients.
    pub fn take_step_launches(&mut self) -> Vec<(StepKey, u64)> {
        let mut taken = Vec::new();
        for effect in self.remove(|effect| matches!(effect, Effect::LaunchStep { .. })) {
            if let Effect::LaunchStep { step, ticket, .. } = effect {
                taken.push((step, ticket));
            }
        }
        taken
    }

    /// Cancels all waiting launches of batch and run jobs.
    pub fn take_launches(&mut self) -> Vec<JobId> {
        let launches = self.remove(|effect| matches!(effect, Effect::Launch(_)));
        let jobs: Vec<JobId> = launches.iter().filter_map(Effect::job).collect();
        let gone: HashSet<JobId> = jobs.iter().copied().collect();
        self.remove(|effect| {
            is_of_processes(effect) && effect.job().is_some_and(|job| gone.contains(&job))
        });
        jobs
    }

    /// Removes all effects and notifications of these jobs.
    pub fn remove_jobs(&mut self, jobs: &HashSet<JobId>) {
        self.remove(|effect| effect.job().is_some_and(|job| jobs.contains(&job)));
        for commit in &mut self.commits {
            commit.ended.retain(|job, _| !jobs.contains(job));
            commit.outgoing.retain(|outgoing| outgoing.job.is_none_or(|job| !jobs.contains(&job)));
        }
    }

    /// Returns the number and the receiver of each commit.
    pub fn askers(&mut self) -> impl Iterator<Item = (u64, &mut Option<A>)> {
        self.commits.iter_mut().map(|commit| (commit.seq, &mut commit.asker))
    }

    /// Whether a change of the job's record is not yet on disk.
    pub fn is_unrecorded(&self, job: JobId) -> bool {
        self.commits.iter().any(|commit| commit.changed.contains(&job))
    }

    /// Returns the waiting launch of a batch or run job.
    pub fn launch_of(&self, id: JobId) -> Option<&Job> {
        let effects = self.commits.iter().rev().flat_map(|commit| &commit.effects);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Launch(job) if job.id == id => Some(&**job),
            _ => None,
        })
    }

    fn is_launch_waiting(&self, job: JobId) -> bool {
        let is_it = |effect: &Effect| match effect {
            Effect::Launch(launched) => launched.id == job,
            Effect::Granted(granted) => *granted == job,
            _ => false,
        };
        self.commits.iter().any(|commit| commit.effects.iter().any(is_it))
    }

    fn ticket_of(&self, wanted: StepKey) -> Option<u64> {
        self.commits.iter().flat_map(|commit| &commit.effects).find_map(|effect| match effect {
            Effect::LaunchStep { step, ticket, .. } if *step == wanted => Some(*ticket),
            _ => None,
        })
    }

    fn remove(&mut self, unwanted: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        let mut removed = Vec::new();
        for commit in &mut self.commits {
            removed.extend(commit.effects.extract_if(.., |effect| unwanted(effect)));
        }
        removed.iter().for_each(|effect| self.forget(effect));
        removed
    }

    fn forget(&mut self, effect: &Effect) {
        if let Some(job) = acts_on(effect)
            && let Some(count) = self.acting.get_mut(&job)
        {
            *count -= 1;
            if *count == 0 {
                self.acting.remove(&job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::tres::Allocation;
    use slotd_model::{Job, StepId};
    use slotd_sched::SignalTarget;

    const JOB: JobId = JobId(1);
    const STEP: StepKey = StepKey { job: JOB, step: StepId::Num(0) };

    fn launch(id: u32) -> Effect {
        Effect::Launch(Box::new(Job { id: JobId(id), ..Job::default() }))
    }

    fn stop(id: u32) -> Effect {
        Effect::Stop { job: JobId(id), cause: StopCause::Cancelled { by: 0 } }
    }

    fn usr1() -> Effect {
        Effect::Signal { job: JOB, target: SignalTarget::Full, signal: 10 }
    }

    fn launch_step() -> Effect {
        Effect::LaunchStep { step: STEP, ticket: 7, alloc: Allocation::default() }
    }

    /// Sorts effects and queues the later ones.
    fn commit(line: &mut InFlight<()>, effects: Vec<Effect>) -> Sorted {
        let sorted = line.sort(effects);
        let effects = sorted.later.clone();
        line.push(Waiting {
            seq: 0,
            effects,
            ended: HashMap::new(),
            outgoing: Vec::new(),
            changed: vec![],
            sent: None,
            asker: None,
        });
        sorted
    }

    #[test]
    fn stops_and_signals_do_not_wait_for_a_commit() {
        let mut line = InFlight::default();
        commit(&mut line, vec![launch(2), Effect::Ended(JobId(3))]);
        let urgent = vec![usr1(), Effect::Suspend(JOB), Effect::Resume(JOB), stop(1)];
        let sorted = commit(&mut line, [urgent.clone(), vec![Effect::Ended(JOB)]].concat());
        assert_eq!(
            sorted,
            Sorted { at_once: urgent, later: vec![Effect::Ended(JOB)], called_off: Vec::new() }
        );
    }

    #[test]
    fn job_that_is_to_run_again_is_stopped_after_the_commit_or_by_another_stop() {
        for cause in [StopCause::Requeue, StopCause::Preempted] {
            let again = Effect::Stop { job: JOB, cause };
            let mut line = InFlight::default();
            let sorted = commit(&mut line, vec![again.clone()]);
            assert_eq!((sorted.at_once, sorted.later), (Vec::new(), vec![again.clone()]));
            assert_eq!(commit(&mut line, vec![usr1()]).later, [usr1()]);
            assert_eq!(commit(&mut line, vec![stop(2)]).at_once, [stop(2)]);
            let sorted = commit(&mut line, vec![stop(1)]);
            assert_eq!((sorted.at_once, sorted.later), (vec![stop(1)], Vec::new()));
            let left = std::iter::from_fn(|| line.pop()).flat_map(|commit| commit.effects);
            assert_eq!(left.collect::<Vec<_>>(), []);
            assert!(!line.acts(JOB));
            assert_eq!(commit(&mut line, vec![again.clone()]).later, [again]);
        }
    }

    #[test]
    fn job_stopped_before_its_launch_is_not_launched() {
        let mut line = InFlight::default();
        commit(&mut line, vec![launch(1), launch(2)]);
        assert_eq!(commit(&mut line, vec![usr1()]).later, [usr1()], "there is no process yet");
        let sorted = commit(&mut line, vec![stop(1), Effect::Ended(JOB)]);
        assert_eq!((sorted.at_once, sorted.called_off), (Vec::new(), vec![CalledOff::Job(JOB)]));
        let left: Vec<Effect> =
            std::iter::from_fn(|| line.pop()).flat_map(|commit| commit.effects).collect();
        assert_eq!(left, [launch(2), Effect::Ended(JOB)]);
        assert!(!line.acts(JOB) && !line.acts(JobId(2)));
    }

    #[test]
    fn waiting_step_launch_does_not_delay_a_stop_of_the_job() {
        let mut line = InFlight::default();
        commit(&mut line, vec![launch_step()]);
        assert_eq!(commit(&mut line, vec![stop(1)]).at_once, [stop(1)], "the rest of the job runs");
        let cause = StopCause::Cancelled { by: 0 };
        let sorted = commit(&mut line, vec![Effect::StopStep { step: STEP, cause }]);
        assert_eq!(sorted.called_off, [CalledOff::Step(STEP, 7)]);
        assert_eq!(line.pop().map(|commit| commit.effects), Some(Vec::new()));
        assert_eq!(
            commit(&mut line, vec![Effect::StopStep { step: STEP, cause }]).at_once.len(),
            1,
            "it runs now"
        );
    }

    #[test]
    fn effects_keep_their_order_behind_a_waiting_one() {
        let mut line = InFlight::default();
        commit(&mut line, vec![launch(1)]);
        commit(&mut line, vec![Effect::Suspend(JOB)]);
        line.pop();
        assert_eq!(commit(&mut line, vec![Effect::Resume(JOB)]).later, [Effect::Resume(JOB)]);
        line.pop();
        line.pop();
        assert_eq!(commit(&mut line, vec![Effect::Suspend(JOB)]).at_once, [Effect::Suspend(JOB)]);
    }
}
