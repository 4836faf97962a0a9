//! The state of each step, and why it is waiting.

use super::{Core, Entry, Halt, Phase, shape_of};
use crate::ready::Fit;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A row of `sjobmgr list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// `PENDING`, `RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED`, `SKIPPED`.
    pub state: String,
    /// The step number while the step runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// Set only while a manager is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    pub attempts: u32,
    /// The reason why the step is waiting.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Core {
    /// Returns the row of `sjobmgr list` for a step.
    pub fn row(&self, step: u32, now: Duration) -> Option<Row> {
        let entry = self.entry(step)?;
        let (state, number) = match entry.phase {
            Phase::Waiting | Phase::Ready | Phase::Backoff(_) => ("PENDING", None),
            Phase::Running(number) => ("RUNNING", Some(number)),
            Phase::Ended(outcome) => (outcome.name(), None),
        };
        Some(Row {
            name: entry.name.to_string(),
            state: state.to_owned(),
            step: number,
            priority: Some(entry.priority),
            attempts: entry.attempts,
            reason: self.reason(step, entry, now),
        })
    }

    /// Returns how many pending steps ask for more than the job has since it shrank, and the first
    /// of them.
    pub fn too_large(&self) -> Option<(usize, &Entry)> {
        let is_larger = |entry: &&Entry| {
            let waits = matches!(entry.phase, Phase::Waiting | Phase::Ready | Phase::Backoff(_));
            waits && !self.resources.could_hold(&entry.settings.ask)
        };
        let mut larger = self.steps.iter().filter(is_larger);
        larger.next().map(|first| (1 + larger.count(), first))
    }

    fn reason(&self, step: u32, entry: &Entry, now: Duration) -> String {
        let waits = match entry.phase {
            Phase::Running(_) | Phase::Ended(_) => return String::new(),
            phase => phase,
        };
        if entry.is_held {
            return "JobHeldUser".to_owned();
        }
        match waits {
            Phase::Waiting => format!("Dependency: {}", self.graph.waits_for(step).join(", ")),
            Phase::Backoff(at) => {
                let secs = at.saturating_sub(now).as_secs_f64().ceil();
                format!("Retry: attempt {} in {secs} s", entry.attempts + 1)
            }
            _ if self.halt != Halt::No => "Halted: no more steps are started".to_owned(),
            _ => match self.fit(&shape_of(&entry.settings), now) {
                Fit::Never => "JobEnd: cannot finish before the job's time limit".to_owned(),
                Fit::Later if !self.resources.could_hold(&entry.settings.ask) => {
                    format!("Resources: {}", self.resources.too_little_for(&entry.settings.ask))
                }
                Fit::Later => "Resources".to_owned(),
                Fit::Now if self.ready.top().is_some_and(|top| top > entry.priority) => {
                    "Priority".to_owned()
                }
                Fit::Now if self.numbers.is_empty() => {
                    "StepNumbers: waiting for more from the daemon".to_owned()
                }
                Fit::Now => "Resources".to_owned(),
            },
        }
    }
}
