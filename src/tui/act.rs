//! The actions on jobs: their targets, the questions before them, and how to undo them.

use super::pane::Key;
use super::state::{Action, JobAction, Question, Screen};
use crate::live::Place;
use crate::live::picture::named;
use slotd_model::view::JobView;
use slotd_model::{JobId, JobRef};
use slotd_render::job::is_held;
use std::collections::BTreeSet;

impl JobAction {
    /// Returns whether the action applies to jobs in this list.
    pub fn is_for(self, place: Place) -> bool {
        match self {
            JobAction::Cancel => place != Place::Ended,
            JobAction::Hold | JobAction::Release | JobAction::Top => place == Place::Waiting,
            JobAction::Requeue => place == Place::Running,
            JobAction::Retry => place == Place::Ended,
        }
    }

    /// Returns the action that undoes this one.
    fn opposite(self) -> Option<JobAction> {
        match self {
            JobAction::Hold => Some(JobAction::Release),
            JobAction::Release => Some(JobAction::Hold),
            JobAction::Cancel | JobAction::Top | JobAction::Requeue | JobAction::Retry => None,
        }
    }
}

impl Screen {
    /// Asks for confirmation before an action that cannot be undone.
    fn ask(&mut self, what: JobAction) {
        let jobs = self.targets();
        if jobs.is_empty() {
            return;
        }
        let target = match &jobs[..] {
            [one] => format!("job {one}"),
            many => format!("{} jobs", many.len()),
        };
        let text = match what {
            JobAction::Requeue => format!("End and requeue {target}? (y/n)"),
            JobAction::Retry => format!("Submit {target} again? (y/n)"),
            JobAction::Top => format!("Move {target} to the top of the queue? (y/n)"),
            JobAction::Cancel | JobAction::Hold | JobAction::Release => {
                format!("Cancel {target}? (y/n)")
            }
        };
        self.question = Some(Question { text, action: Action::Do { what, jobs } });
    }

    /// Starts an action that can be undone, and asks before any other.
    pub(super) fn job_action(&mut self, what: JobAction) -> Vec<Action> {
        let Some(opposite) = what.opposite() else {
            self.ask(what);
            return Vec::new();
        };
        let jobs = self.targets();
        if jobs.is_empty() {
            return Vec::new();
        }
        let changed = self.changed_by(what);
        self.undo = (!changed.is_empty()).then_some(Action::Do { what: opposite, jobs: changed });
        vec![Action::Do { what, jobs }]
    }

    /// Returns the pending jobs that this action holds or releases: those that are not so already.
    fn changed_by(&self, what: JobAction) -> Vec<JobRef> {
        let keys = self.target_keys();
        let is_target = |job: &&JobView| {
            let array = job.array_job_id().map(Key::Array);
            keys.contains(&Key::Job(job.id)) || array.is_some_and(|key| keys.contains(&key))
        };
        let changes = |job: &&JobView| is_held(job) == (what == JobAction::Release);
        let waiting = self.picture.list(Place::Waiting);
        waiting.filter(is_target).filter(changes).map(|job| job.own_ref()).collect()
    }

    /// Opens one job in the user's editor.
    pub(super) fn edit(&mut self) -> Vec<Action> {
        match &self.targets()[..] {
            [] => {}
            [one] if self.places().contains(&Place::Waiting) => {
                return vec![Action::Edit(one.clone())];
            }
            [one] => {
                self.message =
                    Some(format!("job {one} is not pending: only pending jobs can be edited"))
            }
            [..] => {
                self.message = Some(
                    "only one job can be edited at a time: press Esc to clear the marks".to_owned(),
                )
            }
        }
        Vec::new()
    }

    /// Returns the lists of the jobs that an action applies to.
    pub fn places(&self) -> BTreeSet<Place> {
        let of = |id: &JobId| self.picture.jobs.get(id).map(|job| Place::of(job.run.state));
        match &self.page {
            Some(page) => of(&page.job).into_iter().collect(),
            None if self.marks.is_empty() => BTreeSet::from([self.panes[self.focus].place]),
            None => {
                let of_mark = |key: &Key| match key {
                    Key::Job(id) => of(id).into_iter().collect::<Vec<_>>(),
                    // The tasks of an array may be in any list.
                    Key::Array(_) => Place::ALL.to_vec(),
                };
                self.marks.iter().flat_map(of_mark).collect()
            }
        }
    }

    /// Returns the rows of an action's targets: the job of the page, the marked rows, or the selected
    /// one.
    fn target_keys(&self) -> BTreeSet<Key> {
        match &self.page {
            Some(page) => BTreeSet::from([Key::Job(page.job)]),
            None if !self.marks.is_empty() => self.marks.clone(),
            None => self.panes[self.focus].selected().into_iter().collect(),
        }
    }

    fn targets(&self) -> Vec<JobRef> {
        let of = |key: Key| match key {
            Key::Job(id) => named(&self.picture, id),
            Key::Array(array) => JobRef::job(array),
        };
        self.target_keys().into_iter().map(of).collect()
    }

    pub(super) fn mark(&mut self) {
        let pane = &mut self.panes[self.focus];
        if let Some(key) = pane.selected() {
            if !self.marks.remove(&key) {
                self.marks.insert(key);
            }
            pane.step(1);
        }
    }

    pub(super) fn mark_all(&mut self) {
        let all: BTreeSet<Key> = self.panes[self.focus].keys().collect();
        if all.is_subset(&self.marks) {
            self.marks.retain(|key| !all.contains(key));
        } else {
            self.marks.extend(all);
        }
    }
}
