//! sinfo: the host and its partitions (sinfo man page).

mod fields;
mod states;
mod view;

pub use fields::{Sinfo, centi, features, gres, load, reason};
pub(crate) use fields::{gres_drained, gres_used, reasons_of};
pub use states::{State, States};
pub use view::{Layout, Options, Sort, View, as_known, long, print, reasons};
