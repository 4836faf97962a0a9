//! What each step does, and what it waits for.

use super::{Core, Entry, Halt, Phase, shape_of};
use crate::stepmgr::ready::Fit;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A line of `sjobmgr list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// `PENDING`, `RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED`, `SKIPPED`.
    pub state: String,
    /// The number of the step of the job, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// While there is a manager that may start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    pub attempts: u32,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Core {
    /// What `sjobmgr list` shows of a step.
    pub fn row(&self, step: u32, now: Duration) -> Option<Row> {
        let entry = self.entry(step)?;
        let (state, number) = match entry.phase {
            Phase::Waiting | Phase::Ready | Phase::Backoff(_) => ("PENDING", None),
            Phase::Running(number) => ("RUNNING", Some(number)),
            Phase::Ended(fate) => (fate.name(), None),
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

    /// Steps that have not started and ask for more than there is since the job was made smaller:
    /// how many, and the first.
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
            _ if self.halt != Halt::No => "Halted: no other step is started".to_owned(),
            _ => match self.fit(&shape_of(&entry.settings), now) {
                Fit::Never => "JobEnd: it cannot end before the time limit of the job".to_owned(),
                Fit::Later if !self.resources.could_hold(&entry.settings.ask) => {
                    format!("Resources: {}", self.resources.too_little_for(&entry.settings.ask))
                }
                Fit::Later => "Resources".to_owned(),
                Fit::Now if self.ready.top().is_some_and(|top| top > entry.priority) => {
                    "Priority".to_owned()
                }
                Fit::Now if self.numbers.is_empty() => {
                    "StepNumbers: the daemon has to give some".to_owned()
                }
                Fit::Now => "Resources".to_owned(),
            },
        }
    }
}
