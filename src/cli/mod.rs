//! The command lines: what each Slurm command accepts, and what the words come to as typed values.
//!
//! Nothing here talks to the daemon or prints. Every command has a struct of what was asked for and a `parse` that
//! makes it from the words, or refuses with Slurm's text and exit code.

pub mod error;
pub mod getopt;
pub mod origin;
pub mod sacct;
pub mod salloc;
pub mod sbatch;
pub mod scancel;
pub mod scontrol;
pub mod sinfo;
pub mod squeue;
pub mod srun;
pub mod step;

pub use error::{CliError, Mark, Parsed};
pub use origin::Origin;
