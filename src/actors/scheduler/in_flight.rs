//! What waits for commits, and what does not wait.
//!
//! A launch, a grant, an answer and a notification follow their commit. What ends or signals
//! processes that exist acts at once and is recorded later: a job that fills the disk must not be
//! safe from its end because its end cannot be written. That is sound, since a stop that is done
//! again after a restart harms nothing, and since the watcher's record tells the next daemon that
//! the job was stopped: it is not started again. A job whose launch still waits is stopped by
//! taking the launch back.

use super::outgoing::Told;
use crate::model::view::JobView;
use crate::model::{JobId, StepKey};
use crate::sched::Effect;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

/// What follows a commit.
pub(super) struct Waiting<A> {
    pub seq: u64,
    pub effects: Vec<Effect>,
    /// The jobs that these effects end, as they are at their end: a commit may take longer than
    /// they stay in memory.
    pub ended: HashMap<JobId, JobView>,
    /// What people are told then.
    pub told: Vec<Told>,
    /// The jobs whose records it changes.
    pub changed: Vec<JobId>,
    /// When it was sent to the store; `None` for one that changes nothing there.
    pub sent: Option<Instant>,
    /// Who waits for it.
    pub asker: Option<A>,
}

/// The commits that are under way, in their order.
pub(super) struct InFlight<A> {
    commits: VecDeque<Waiting<A>>,
    /// How many effects on its processes each job has waiting, the launch of its script or
    /// allocation included. What comes for such a job waits behind them.
    acting: HashMap<JobId, usize>,
}

/// What becomes of the effects of a decision.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sorted {
    pub at_once: Vec<Effect>,
    /// After the commit.
    pub later: Vec<Effect>,
    pub called_off: Vec<CalledOff>,
}

/// A launch that will not be: nobody else will report its end.
#[derive(Debug, PartialEq)]
pub(super) enum CalledOff {
    Job(JobId),
    /// A step, and the ticket of its client.
    Step(StepKey, u64),
}

/// The job on whose processes an effect acts in a way that keeps the order with the others. The
/// launch of a step is not among them: the rest of its job is stopped, signalled or suspended
/// without it.
fn acts_on(effect: &Effect) -> Option<JobId> {
    match effect {
        Effect::LaunchStep { .. }
        | Effect::StepRefused { .. }
        | Effect::ManagerChanged(..)
        | Effect::PartsOut(_)
        | Effect::Ended(_)
        | Effect::Requeued(_)
        | Effect::Tell { .. }
        | Effect::Gone(_) => None,
        Effect::Launch(_)
        | Effect::Granted(_)
        | Effect::Stop { .. }
        | Effect::StopStep { .. }
        | Effect::Signal { .. }
        | Effect::Warn(_)
        | Effect::Suspend(_)
        | Effect::Resume(_)
        | Effect::Resized(_)
        | Effect::SetTimeLimit { .. } => effect.job(),
    }
}

/// Ends or signals what exists, and starts nothing.
fn is_urgent(effect: &Effect) -> bool {
    acts_on(effect).is_some() && !matches!(effect, Effect::Launch(_) | Effect::Granted(_))
}

/// Starts processes or does something to them.
fn is_of_processes(effect: &Effect) -> bool {
    acts_on(effect).is_some() || matches!(effect, Effect::LaunchStep { .. })
}

impl<A> Default for InFlight<A> {
    fn default() -> Self {
        InFlight { commits: VecDeque::new(), acting: HashMap::new() }
    }
}

impl<A> InFlight<A> {
    /// Decides about each effect whether it waits. What is to come later is expected by
    /// [`Self::push`] right after.
    pub fn sort(&mut self, effects: Vec<Effect>) -> Sorted {
        let mut sorted = Sorted::default();
        for effect in effects {
            let waits = acts_on(&effect).is_some_and(|job| self.acts(job));
            if let Some(called_off) = self.call_off(&effect) {
                sorted.called_off.push(called_off);
            } else if is_urgent(&effect) && !waits {
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

    /// Takes the launch back that this effect is to stop, if one still waits.
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

    pub fn push(&mut self, commit: Waiting<A>) {
        self.commits.push_back(commit);
    }

    /// The earliest commit, which is durable now.
    pub fn pop(&mut self) -> Option<Waiting<A>> {
        let done = self.commits.pop_front()?;
        done.effects.iter().for_each(|effect| self.forget(effect));
        Some(done)
    }

    /// Whether all that was decided is durable.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Whether something waits that is to be done to this job's processes, or their launch.
    pub fn acts(&self, job: JobId) -> bool {
        self.acting.contains_key(&job)
    }

    /// Whether one of these jobs has an end that is not durable yet.
    pub fn ends_one_of(&self, jobs: &[JobId]) -> bool {
        let is_end = |effect: &Effect| matches!(effect, Effect::Ended(id) if jobs.contains(id));
        self.commits.iter().any(|commit| commit.effects.iter().any(is_end))
    }

    /// How many were sent to the store.
    pub fn sent(&self) -> usize {
        self.commits.iter().filter(|commit| commit.sent.is_some()).count()
    }

    /// The launches of steps that wait, taken back, with the tickets of their clients.
    pub fn take_step_launches(&mut self) -> Vec<(StepKey, u64)> {
        let mut taken = Vec::new();
        for effect in self.remove(|effect| matches!(effect, Effect::LaunchStep { .. })) {
            if let Effect::LaunchStep { step, ticket, .. } = effect {
                taken.push((step, ticket));
            }
        }
        taken
    }

    /// The launches of batch and run jobs that wait, taken back.
    pub fn take_launches(&mut self) -> Vec<JobId> {
        let launches = self.remove(|effect| matches!(effect, Effect::Launch(_)));
        let jobs: Vec<JobId> = launches.iter().filter_map(Effect::job).collect();
        let gone: HashSet<JobId> = jobs.iter().copied().collect();
        self.remove(|effect| {
            is_of_processes(effect) && effect.job().is_some_and(|job| gone.contains(&job))
        });
        jobs
    }

    /// Nothing comes of these jobs any more.
    pub fn remove_jobs(&mut self, jobs: &HashSet<JobId>) {
        self.remove(|effect| effect.job().is_some_and(|job| jobs.contains(&job)));
        for commit in &mut self.commits {
            commit.ended.retain(|job, _| !jobs.contains(job));
            commit.told.retain(|told| told.job.is_none_or(|job| !jobs.contains(&job)));
        }
    }

    /// Who waits, with the number of the commit.
    pub fn askers(&mut self) -> impl Iterator<Item = (u64, &mut Option<A>)> {
        self.commits.iter_mut().map(|commit| (commit.seq, &mut commit.asker))
    }

    /// Whether what is known of the job is not on disk yet.
    pub fn is_unrecorded(&self, job: JobId) -> bool {
        self.commits.iter().any(|commit| commit.changed.contains(&job))
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
    use crate::model::tres::Allocation;
    use crate::model::{Job, StepId};
    use crate::sched::{SignalTarget, StopCause};

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

    /// Decides about effects and lets the rest wait.
    fn commit(line: &mut InFlight<()>, effects: Vec<Effect>) -> Sorted {
        let sorted = line.sort(effects);
        let effects = sorted.later.clone();
        line.push(Waiting {
            seq: 0,
            effects,
            ended: HashMap::new(),
            told: Vec::new(),
            changed: vec![],
            sent: None,
            asker: None,
        });
        sorted
    }

    #[test]
    fn what_ends_or_signals_a_running_job_waits_for_no_commit() {
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
    fn a_job_that_is_stopped_before_its_launch_is_not_launched() {
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
    fn the_launch_of_a_step_waits_alone() {
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
    fn order_is_kept_behind_what_waits() {
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
