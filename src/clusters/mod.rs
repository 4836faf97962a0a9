//! Other clusters: real Slurms that `-M` names, reached through the user's own `ssh`.
//!
//! A call sends a small shell program ahead of its data, runs one of Slurm's commands on the other
//! side, and passes its output and exit code through. slotd is not installed there, and nothing
//! from there is executed here. The daemon is not involved.
//!
//! Pure: [`config`] (`clusters.toml`), [`choice`] (which clusters a command names), [`framing`]
//! (output between banners), [`program`] (shell programs and quoting), [`join`] (the outputs
//! of several clusters), [`states`] and [`clean`] (answers of the programs), [`token`] (submissions that may have been lost). The others do I/O:
//! [`link`] runs ssh, [`journal`] keeps submissions on disk, [`stage`] and [`unpack`] pack work
//! trees and unpack results.

pub mod choice;
pub mod clean;
pub mod config;
pub mod framing;
pub mod join;
pub mod journal;
pub mod link;
pub mod program;
pub mod stage;
pub mod states;
pub mod token;
pub mod unpack;
