//! sinfo: the host and its partitions (sinfo man page).

mod fields;
mod states;
mod view;

pub use fields::{Sinfo, features, gres, gres_drained, gres_used, load, lost_gpus};
pub use states::{State, States};
pub use view::{Layout, Options, Sort, View, long, parse, print, reasons};
