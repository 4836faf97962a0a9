//! Taking a submission back that could not be made durable.

use super::core::Core;
use super::ending::Ending;
use super::types::Cx;
use crate::model::tres::Usage;
use crate::model::{JobId, JobRef, JobState, Reason};

impl Core {
    /// Forgets a job, or an array with all its tasks, as if it had never been submitted. To be
    /// called only while nobody was told its number and nothing of it was launched. Those that
    /// depend on it see it cancelled. What `cx` gets is about other jobs alone; the number is not
    /// given again. The records that are gone.
    pub fn withdraw(&mut self, submitted: JobId, cx: &mut Cx) -> Vec<JobId> {
        let ids = self.records.resolve(&JobRef::job(submitted));
        // What happens to the records themselves is nobody's business.
        let mut unsaid = Cx::at(cx.now);
        self.notifications.set_quiet(true);
        let ending = Ending::cancelled(Reason::None, None);
        for id in &ids {
            let Some(state) = self.job(*id).map(|job| job.run.state) else { continue };
            if state == JobState::Pending {
                self.end_pending(*id, ending, &mut unsaid);
            } else if state.is_active() {
                self.finish(*id, ending, Usage::default(), cx.now, &mut unsaid);
            }
        }
        self.notifications.set_quiet(false);
        self.settle(cx);
        for id in &ids {
            self.forget(*id, &mut unsaid);
        }
        cx.out.changes.retain(|change| change.job().is_none_or(|job| !ids.contains(&job)));
        cx.out.effects.retain(|effect| effect.job().is_none_or(|job| !ids.contains(&job)));
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::model::End;
    use crate::model::Reason;
    use crate::model::dependency::DependencyKind;

    /// Takes back what the store was never told of: it knows nothing of it afterwards either.
    fn withdraw(d: &mut Double, id: JobId) {
        let gone = d.act(|core, cx| core.withdraw(id, cx));
        gone.iter().for_each(|id| drop(d.store.jobs.remove(id)));
        d.effects.retain(|effect| effect.job().is_none_or(|job| !gone.contains(&job)));
        assert!(gone.iter().all(|id| d.core.job(*id).is_none()));
    }

    #[test]
    fn what_a_withdrawn_job_had_is_free_for_others() {
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
        assert!(
            d.submit(ask()) > second,
            "a number that somebody may have seen is not given again"
        );
    }

    #[test]
    fn an_array_goes_with_all_its_tasks() {
        let mut d = Double::new(2, 1000, 0);
        let array = d.submit(ask().array(0, 9, None));
        d.plan();
        assert_eq!(d.store.jobs.len(), 3, "two tasks run");
        withdraw(&mut d, array);
        assert_eq!((d.store.jobs.len(), d.core.jobs().count()), (0, 0));
    }

    #[test]
    fn who_depends_on_a_withdrawn_job_sees_it_cancelled() {
        let mut d = Double::new(4, 1000, 0);
        let gone = d.submit(ask().held());
        let after = d.submit(ask().after(DependencyKind::AfterOk, gone));
        let dropped = d.submit(
            ask().after(DependencyKind::AfterOk, gone).with(|r| r.kill_on_invalid_dep = true),
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
