//! `scontrol show`: jobs, steps, the node, partitions and the configuration as Slurm prints them,
//! with slotd's additions after Slurm's lines.

mod config;
mod host;
mod hostlist;
mod jobs;
mod licenses;
mod record;
mod reservations;
mod steps;

pub use config::{config, ping};
pub use host::{node, partition, partitions};
pub use hostlist::{hostlist, hostnames};
pub use jobs::jobs;
pub use licenses::licenses;
pub(crate) use reservations::of_node;
pub use reservations::{reservation_table, reservations};
pub use steps::{steps, steps_shown};
