//! The daemon: wiring and life cycle. It decides nothing and prints nothing but its log.

mod alarm;
mod answers;
mod client_watch;
mod core_config;
pub mod database;
pub mod detached;
mod error;
mod history;
mod host_file;
mod host_watch;
mod listener;
mod log_file;
mod logging;
mod machine_watch;
mod node_order;
mod reboot;
mod recovery;
mod repeats;
mod requests;
mod run;
mod sendmail;
mod session;
mod settings;
mod shutdown;
mod site;
mod slurm_config;
mod sources;
mod wire;
mod wiring;
mod work_trees;

pub use core_config::{CGROUP_KEY, SENDMAIL_KEY, VERSION_KEY};
pub use history::clean_directly;
pub use listener::InstanceLock;
pub use run::run;
pub use settings::{
    Environment, TABLE as SETTINGS, check as check_settings, unknown as unknown_settings,
};
pub use sources::Sources;
