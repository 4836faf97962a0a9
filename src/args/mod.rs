//! The common parts of the command lines: getopt behavior, the precedence of the command line, the
//! environment and a script's directives, and the options that sbatch, srun and salloc share.
//!
//! This module neither talks to the daemon nor prints.

pub mod choices;
pub mod error;
pub mod extra;
pub mod getopt;
pub mod headings;
pub mod job_env;
pub mod job_values;
pub mod kept;
pub mod options;
pub mod origin;
pub mod submit;
pub mod table;
pub mod value;
pub mod variables;
