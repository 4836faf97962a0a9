//! Views to text: what `squeue`, `sacct`, `sinfo` and `scontrol show` print, as people and as
//! programs read it.
//!
//! Pure: nothing here reads a file, a clock, the environment or a socket. The time, the time zone,
//! the name of the host and the user's output settings come in a [`Ctx`]. Nothing here decides
//! which jobs are shown: that is the query's business.
//!
//! Where no format is asked for, the tables are slotd's own (`A | B | C`) or Slurm's ([`Columns`]);
//! an explicit format is Slurm's to the letter. A listing is a [`layout`] over a table of
//! [`field`]s: squeue, sinfo, sacct, sprio, sstat and sacctmgr each have one such table, and
//! nothing else of their own but which rows there are.

pub mod accounts;
pub mod array;
pub mod cause;
pub mod ctx;
pub mod field;
pub mod host_use;
pub mod job;
pub mod job_facts;
pub mod json;
pub mod layout;
pub mod notice;
pub mod pids;
pub mod report;
pub mod sacct;
pub mod sdiag;
pub mod seff;
pub mod series;
pub mod show;
pub mod sinfo;
pub mod size;
pub mod sort;
pub mod source;
pub mod sprio;
pub mod squeue;
pub mod text;
pub mod time;
pub mod tone;
pub mod tres;
pub mod value;
pub mod why;

#[cfg(test)]
pub mod fixture;

pub use ctx::{Columns, Ctx, Screen};
pub use field::FormatError;
pub use time::TimeFormat;
