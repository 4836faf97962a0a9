//! The daemon: wiring and life cycle. It decides nothing and prints nothing but its log.

mod alarm;
mod client_watch;
mod core_config;
pub mod detached;
mod listener;
mod logging;
mod recovery;
mod requests;
mod run;
mod session;
mod settings;
mod wire;
mod wiring;

pub use core_config::VERSION_KEY;
pub use run::run;
pub use settings::{VARIABLES as SETTINGS, check as check_settings};
