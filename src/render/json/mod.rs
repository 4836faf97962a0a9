//! `--json` and `--yaml`: the same records as data, in the shape of Slurm's own (OpenAPI v0.0.38,
//! Slurm 22.05).
//!
//! Every document has `meta` (versions), `errors` (empty: what fails, fails before a document is
//! begun) and one list: `jobs` (squeue, scontrol show job; another shape for sacct), `nodes`
//! (sinfo, scontrol show node) or `partitions`, `steps` (scontrol show step; each as among the
//! steps of sacct's jobs); those of sdiag and scontrol show config have the objects `statistics`
//! and `config` instead. Times are seconds since 1970, 0 for "none"; time limits are minutes,
//! `null` for none; memory is in MB. `--json=v0.0.40` asks for the shape of newer Slurm (`newer`),
//! which is made of this one. Where Slurm 22.05 is known to print nonsense (`exit_code` of a failed
//! job in sacct), the truth is printed.

mod accounting;
mod diagnostics;
mod document;
mod host;
mod newer;
mod parts;
mod queue;
mod record;
mod yaml;

pub use accounting::{accounting_parts, accounting_records, steps};
pub use diagnostics::diagnostics;
pub use document::text;
pub use host::{config, nodes, none_of, partitions};
pub use newer::document as newer;
pub use parts::{Form, Parts, Shape};
pub use queue::{jobs, jobs_parts, jobs_records};
pub use yaml::yaml;
