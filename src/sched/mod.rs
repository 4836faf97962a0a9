//! The scheduling core: every decision about jobs, and nothing else.
//!
//! [`Core`] holds the live state. It is told facts and commands together with the time, changes its state, and puts
//! what must be remembered and what must be done into an [`Outbox`]. It starts no process, reads no clock, opens no
//! file and sends nothing: the caller first commits `changes`, then carries `effects` out, in their order.
//!
//! | file | what it decides |
//! |---|---|
//! | `types` | the words between the core and its caller |
//! | `core` | the state, and the one function that changes a job's state |
//! | `index` | the records by name, by array, and those that hold resources |
//! | `admit` | whether a submission is taken, and its sizes |
//! | `choice` | what a job would be in each of its partitions |
//! | `room`, `cards`, `ledger` | what is free, who shares which GPU, and who has which CPU |
//! | `limits` | how far the limits on accounts and names are used |
//! | `readings` | when what changes by itself is read |
//! | `cpu_use` | what others than jobs use of the CPUs |
//! | `gpu_use` | what others than jobs have of the GPUs, and what jobs use of theirs |
//! | `queue` | in which order pending jobs are looked at, and which of them are alike |
//! | `blockers` | what keeps a pending job from running, one predicate for each reason |
//! | `depend`, `waits` | dependencies, and who waits for whom |
//! | `array` | the compact records of arrays and the tasks that leave them |
//! | `backfill`, `plan` | which jobs start now |
//! | `forecast` | when the others are expected to |
//! | `experience` | how long jobs of a name took |
//! | `why`, `words` | all that keeps a job from starting: figures, and words |
//! | `lifecycle` | how jobs end, and the requeue rule |
//! | `control`, `update` | cancel, signal, hold, release, requeue, suspend, resume, update |
//! | `steps` | launches inside an allocation |
//! | `managed` | steps that the job's own manager launches, and tells of |
//! | `expand` | pending jobs whose resources go to a running one |
//! | `resize` | running jobs that grow and shrink |
//! | `timers` | what becomes due |
//! | `view` | what queries see |
//! | `requests` | requests that are alike, kept once |
//! | `recover` | the state after a restart of the daemon |
//! | `found` | records of jobs that the database does not know |
//! | `reboot` | what became of jobs that ran when the machine went down |
//! | `site` | what the owner of the host changes |
//! | `machine` | how much of what the machine has jobs get, and what of it is lost |
//! | `outages` | which parts of the host no job gets |
//! | `invariants` | what must always be true, for the tests |

mod admit;
mod array;
mod backfill;
mod blockers;
mod cards;
mod choice;
mod control;
mod core;
mod cpu_use;
mod depend;
mod expand;
mod experience;
mod forecast;
mod found;
mod gpu_use;
mod index;
mod layout;
mod ledger;
mod lengths;
mod lifecycle;
mod limits;
mod machine;
mod managed;
mod node;
mod outages;
mod plan;
mod queue;
mod readings;
mod reboot;
mod recover;
mod requests;
mod resize;
mod room;
mod seats;
mod site;
mod steps;
mod telling;
mod timers;
mod types;
mod update;
mod view;
mod waits;
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

pub use self::core::{Core, dependency_targets};
pub use forecast::{Forecast, Starts};
pub use found::{FoundJob, found_changes};
pub use layout::{Layout, LayoutAsk, Outside, layout, memory_of};
pub use machine::Capacities;
pub use node::Trouble;
pub use reboot::Remains;
pub use types::*;
pub use view::view_of;
