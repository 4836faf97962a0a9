//! The scheduling core: every decision about jobs, and nothing else.
//!
//! [`Core`] holds the live state. It receives facts and commands together with the time, changes
//! its state, and puts the changes to record and the actions to take into an [`Outbox`]. It starts
//! no process, reads no clock, opens no file and sends nothing: the caller first commits `changes`,
//! then carries `effects` out, in their order.
//!
//! | file | contents |
//! |---|---|
//! | `types` | the interface between the core and its caller |
//! | `core` | the state, and the one function that changes a job's state |
//! | `records` | every job in memory, with all indexes over them: arrays, dependencies, names |
//! | `admit`, `sizes`, `submit` | accepting or refusing a submission, and computing its sizes |
//! | `choice` | a job as it would run in each of its partitions |
//! | `resources` | the host: free and allocated resources, and usage by processes outside jobs |
//! | `line` | the queue, the timers, the waiting steps, and expected run times |
//! | `blockers` | the reasons that keep a pending job from running, one predicate each |
//! | `line::backfill`, `plan` | which jobs start now |
//! | `forecast` | when the others are expected to start |
//! | `why`, `words` | everything that keeps a job from starting, as figures and as text |
//! | `foreign_use` | when to sample usage by processes outside jobs |
//! | `launches` | launches that are late or never happen |
//! | `ending`, `lifecycle` | how jobs end, and the requeue rule |
//! | `crontab` | jobs that recur |
//! | `control`, `update` | cancel, signal, hold, release, requeue, suspend, resume, update |
//! | `steps` | launches inside an allocation |
//! | `managed` | steps that the job's own manager launches and reports |
//! | `expand` | pending jobs whose resources go to a running one |
//! | `resize` | running jobs that grow and shrink |
//! | `timers` | timers that expire |
//! | `view` | jobs as queries see them |
//! | `recover` | the state after a restart of the daemon |
//! | `found` | job records that the database lacks |
//! | `reboot` | jobs that were running when the machine went down |
//! | `site` | changes that the owner of the host makes |
//! | `invariants` | conditions that must always hold, for the tests |

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

mod admit;
mod blockers;
mod choice;
mod control;
mod core;
mod crontab;
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
mod preempt;
mod reboot;
mod records;
mod recover;
mod recurrence;
mod reservations;
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

#[cfg(any(test, feature = "test-support"))]
mod invariants;
#[cfg(test)]
mod properties;
#[cfg(any(test, feature = "test-support"))]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::core::Core;
pub use crontab::EntryToInstall;
pub use forecast::{Forecast, Starts};
pub use found::{FoundJob, found_changes};
pub use layout::{Layout, LayoutAsk, Outside, layout, memory_of};
pub use reboot::Interrupted;
pub use records::depend::dependency_targets;
pub use resources::machine::Capacities;
pub use resources::node::Trouble;
pub use types::*;
pub use view::{view_of, view_without_own_step};
