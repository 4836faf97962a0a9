//! The command lines: what each Slurm command accepts, and what the words come to as typed values.
//!
//! Nothing here talks to the daemon or prints. Every command has a struct of what was asked for and a `parse` that
//! makes it from the words, or refuses with Slurm's text and exit code.

pub mod choices;
pub mod error;
pub mod extra;
pub mod getopt;
pub mod job_env;
pub mod lists;
pub mod options;
pub mod origin;
pub mod pages;
pub mod run;
pub mod sacct;
pub mod salloc;
pub mod salloc_options;
pub mod sattach;
pub mod sbatch;
pub mod sbatch_options;
pub mod scancel;
pub mod scontrol;
pub mod scontrol_show;
pub mod scontrol_update;
pub mod sdiag;
pub mod seff;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
pub mod srun;
pub mod srun_options;
pub mod sstat;
pub mod step;
pub mod submit;

#[cfg(test)]
mod tests_launch;
#[cfg(test)]
mod tests_query;
#[cfg(test)]
mod tests_sbatch;

pub use error::{CliError, Mark, Parsed};
pub use origin::Origin;
