//! How far jobs are, in tasks.

use super::{Job, JobState};
use serde::Serialize;
use std::ops::{AddAssign, SubAssign};

/// How many jobs are where. Each task of an array counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Progress {
    /// All tasks of the array, with those whose records are gone. 0: nothing is known of others
    /// than are counted here.
    pub total: usize,
    pub waiting: usize,
    pub running: usize,
    #[serde(skip)]
    pub over: usize,
    /// Of those that are over.
    #[serde(skip)]
    pub failed: usize,
}

impl Progress {
    pub fn of(job: &Job) -> Progress {
        Progress::of_tasks(job.run.state, job.weight())
    }

    /// So many tasks in this state.
    pub fn of_tasks(state: JobState, tasks: usize) -> Progress {
        let none = Progress::default();
        match state {
            JobState::Pending => Progress { waiting: tasks, ..none },
            JobState::Running | JobState::Suspended | JobState::Completing => {
                Progress { running: tasks, ..none }
            }
            JobState::Ended(end) => {
                Progress { over: tasks, failed: if end.is_failure() { tasks } else { 0 }, ..none }
            }
        }
    }

    pub fn all(&self) -> usize {
        let counted = self.waiting + self.running + self.over;
        if self.total > 0 { self.total } else { counted }
    }

    /// Of all of them those that are over.
    pub fn done(&self) -> usize {
        self.all().saturating_sub(self.waiting + self.running)
    }
}

/// Of the same array: the total stays.
impl AddAssign for Progress {
    fn add_assign(&mut self, other: Progress) {
        self.waiting += other.waiting;
        self.running += other.running;
        self.over += other.over;
        self.failed += other.failed;
    }
}

/// As it was before the other was added.
impl SubAssign for Progress {
    fn sub_assign(&mut self, other: Progress) {
        self.waiting -= other.waiting;
        self.running -= other.running;
        self.over -= other.over;
        self.failed -= other.failed;
    }
}
