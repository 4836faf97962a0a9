//! Job counts by stage.

use super::{Job, JobState};
use serde::Serialize;
use std::ops::{AddAssign, SubAssign};

/// The number of jobs in each stage. Each array task counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Progress {
    /// All tasks of the array, including those whose records were deleted. Zero means that only the
    /// jobs counted below are known.
    pub total: usize,
    pub waiting: usize,
    pub running: usize,
    #[serde(skip)]
    pub over: usize,
    /// The failed ones among `over`.
    #[serde(skip)]
    pub failed: usize,
}

impl Progress {
    pub fn of(job: &Job) -> Progress {
        Progress::of_tasks(job.run.state, job.weight())
    }

    /// Counts `tasks` tasks in this state.
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

    /// Returns the number of tasks that have ended.
    pub fn done(&self) -> usize {
        self.all().saturating_sub(self.waiting + self.running)
    }
}

/// Adds counts of the same array; the total stays.
impl AddAssign for Progress {
    fn add_assign(&mut self, other: Progress) {
        self.waiting += other.waiting;
        self.running += other.running;
        self.over += other.over;
        self.failed += other.failed;
    }
}

/// Subtracts counts that were added before.
impl SubAssign for Progress {
    fn sub_assign(&mut self, other: Progress) {
        self.waiting -= other.waiting;
        self.running -= other.running;
        self.over -= other.over;
        self.failed -= other.failed;
    }
}
