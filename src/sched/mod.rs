//! The scheduling core: every decision about jobs, and nothing else.
//!
//! [`Core`] holds the live state. It is told facts and commands together with the time, changes its
//! state, and puts what must be remembered and what must be done into an [`Outbox`]. It starts no
//! process, reads no clock, opens no file and sends nothing: the caller first commits `changes`,
//! then carries `effects` out, in their order.
//!
//! | file | what it decides |
//! |---|---|
//! | `types` | the words between the core and its caller |
//! | `core` | the state, and the one function that changes a job's state |
//! | `records` | every job in memory, with all indexes over them: arrays, dependencies, names |
//! | `admit`, `sizes`, `submit` | whether a submission is taken, and its sizes |
//! | `choice` | what a job would be in each of its partitions |
//! | `resources` | the host: what is free, who has which part, and what others than jobs use |
//! | `line` | the queue, the timers, the steps that wait, and how long jobs take |
//! | `blockers` | what keeps a pending job from running, one predicate for each reason |
//! | `line::backfill`, `plan` | which jobs start now |
//! | `forecast` | when the others are expected to |
//! | `why`, `words` | all that keeps a job from starting: figures, and words |
//! | `foreign_use` | when it is read what others than jobs use |
//! | `launches` | launches that are late or come to nothing |
//! | `ending`, `lifecycle` | how jobs end, and the requeue rule |
//! | `control`, `update` | cancel, signal, hold, release, requeue, suspend, resume, update |
//! | `steps` | launches inside an allocation |
//! | `managed` | steps that the job's own manager launches, and tells of |
//! | `expand` | pending jobs whose resources go to a running one |
//! | `resize` | running jobs that grow and shrink |
//! | `timers` | what becomes due |
//! | `view` | what queries see |
//! | `recover` | the state after a restart of the daemon |
//! | `found` | records of jobs that the database does not know |
//! | `reboot` | what became of jobs that ran when the machine went down |
//! | `site` | what the owner of the host changes |
//! | `invariants` | what must always be true, for the tests |

mod admit;
mod blockers;
mod choice;
mod control;
mod core;
mod ending;
mod expand;
mod forecast;
mod foreign_use;
mod found;
mod launches;
mod layout;
mod lengths;
mod lifecycle;
mod line;
mod managed;
mod notify;
mod plan;
mod reboot;
mod records;
mod recover;
mod resize;
mod resources;
mod site;
mod sizes;
mod steps;
mod submit;
mod timers;
mod types;
mod update;
mod view;
mod why;
mod withdraw;
mod words;

#[cfg(test)]
mod invariants;
#[cfg(test)]
mod properties;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::core::Core;
pub use forecast::{Forecast, Starts};
pub use found::{FoundJob, found_changes};
pub use layout::{Layout, LayoutAsk, Outside, layout, memory_of};
pub use reboot::Interrupted;
pub use records::depend::dependency_targets;
pub use resources::machine::Capacities;
pub use resources::node::Trouble;
pub use types::*;
pub use view::view_of;
