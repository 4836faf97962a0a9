//! `--json` and `--yaml`: the records as data, in the shape of Slurm's own (OpenAPI v0.0.38, Slurm
//! 22.05).
//!
//! Every document has `meta` (versions), `errors` (always empty, since errors are reported before a
//! document begins) and one list: `jobs` (squeue, scontrol show job and, in another shape, sacct),
//! `nodes` (sinfo, scontrol show node), `partitions, reservations`, or `steps` (scontrol show step; the same
//! shape as the steps of sacct's jobs). The documents of sdiag and scontrol show config have the
//! objects `statistics` and `config` instead. Times are seconds since 1970, 0 for none; time limits
//! are minutes, `null` for none; memory is in MB. `--json=v0.0.40` selects the shape of newer Slurm
//! (`newer`), which is converted from this one. If Slurm 22.05 is known to print a wrong value
//! (`exit_code` of a failed job in sacct), slotd prints the correct one.

mod accounting;
mod diagnostics;
mod document;
mod host;
mod newer;
mod parts;
mod queue;
pub(crate) mod record;
mod yaml;

pub use accounting::{accounting_parts, accounting_records, steps};
pub use diagnostics::diagnostics;
pub use document::text;
pub use host::{config, licenses, nodes, none_of, partitions, reservations};
pub use newer::document as newer;
pub use parts::{Form, Parts, Shape};
pub use queue::{jobs, jobs_parts, jobs_records};
pub use yaml::yaml;
