//! sinfo: the host and its partitions (sinfo man page).

mod fields;
mod view;

pub use fields::{Row, Sinfo, State, features, gres, load};
pub use view::{Layout, Options, REASONS, Sort, View, long, parse, print, state_list_matches};
