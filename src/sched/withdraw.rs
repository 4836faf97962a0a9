//! Undoing a submission that could not be made durable.

use super::core::Core;
use super::ending::Ending;
use super::types::Cx;
use slotd_model::tres::Usage;
use slotd_model::{JobId, JobRef, JobState, Reason};

impl Core {
    /// Removes a job, or an array with all its tasks, as if it had never been submitted, and
    /// returns the removed records. Call this only while nobody has received its ID and nothing of
    /// it was launched. Dependent jobs see it as cancelled. `cx` receives only changes and effects
    /// of other jobs; the ID is not used again.
    pub fn withdraw(&mut self, submitted: JobId, cx: &mut Cx) -> Vec<JobId> {
        let ids = self.records.resolve(&JobRef::job(submitted));
        // Changes and effects of the records themselves are discarded.
        let mut discarded = Cx::at(cx.now);
        self.notifications.set_quiet(true);
        let ending = Ending::cancelled(Reason::None, None);
        for id in &ids {
            let Some(state) = self.job(*id).map(|job| job.run.state) else { continue };
            if state == JobState::Pending {
                self.end_pending(*id, ending, &mut discarded);
            } else if state.is_active() {
                self.finish(*id, ending, Usage::default(), cx.now, &mut discarded);
            }
        }
        self.notifications.set_quiet(false);
        self.settle(cx);
        for id in &ids {
            self.forget(*id, &mut discarded);
        }
        cx.out.changes.retain(|change| change.job().is_none_or(|job| !ids.contains(&job)));
        cx.out.effects.retain(|effect| effect.job().is_none_or(|job| !ids.contains(&job)));
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::tests::double::Double;
    use super::*;
    use slotd_model::End;
    use slotd_model::Reason;
    use slotd_model::dependency::DependencyKind;

    /// Withdraws a job that was never stored, and checks that no record remains.
    fn withdraw(d: &mut Double, id: JobId) {
        let gone = d.act(|core, cx| core.withdraw(id, cx));
        gone.iter().for_each(|id| drop(d.store.jobs.remove(id)));
        d.effects.retain(|effect| effect.job().is_none_or(|job| !gone.contains(&job)));
        assert!(gone.iter().all(|id| d.core.job(*id).is_none()));
    }

    #[test]
    fn a_withdrawn_job_frees_its_resources() {
        let mut d = Double::new(4, 1000, 0);
        let first = d.submit(ask().cpus(4));
        d.plan();
        let second = d.submit(ask().cpus(4));
        withdraw(&mut d, first);
        d.plan();
        assert_eq!(d.store.jobs[&second].run.state, JobState::Running);
        assert_eq!(d.store.jobs.len(), 1);
        withdraw(&mut d, second);
        assert_eq!((d.core.line().queue().len(), d.core.jobs().count()), (0, 0));
        assert!(d.submit(ask()) > second, "an ID that may have been seen is not used again");
    }

    #[test]
    fn an_array_is_withdrawn_with_all_its_tasks() {
        let mut d = Double::new(2, 1000, 0);
        let array = d.submit(ask().array(0, 9, None));
        d.plan();
        assert_eq!(d.store.jobs.len(), 3, "two tasks run");
        withdraw(&mut d, array);
        assert_eq!((d.store.jobs.len(), d.core.jobs().count()), (0, 0));
    }

    #[test]
    fn dependents_see_a_withdrawn_job_as_cancelled() {
        let mut d = Double::new(4, 1000, 0);
        let gone = d.submit(ask().held());
        let after = d.submit(ask().after(DependencyKind::AfterOk, gone));
        let dropped = d.submit(
            ask().after(DependencyKind::AfterOk, gone).with(|r| r.kill_on_invalid_dep = Some(true)),
        );
        withdraw(&mut d, gone);
        d.plan();
        assert_eq!(d.store.jobs[&dropped].run.state, JobState::Ended(End::Cancelled));
        assert_eq!(
            d.core.view(after, d.now).map(|view| view.run.reason),
            Some(Reason::DependencyNeverSatisfied)
        );
    }
}
