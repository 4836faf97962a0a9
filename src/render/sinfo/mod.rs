//! sinfo: the host and its partitions (book, "Node and Partition View"; sinfo man page).

mod fields;
mod view;

pub use fields::{Row, State, features, gres, load};
pub use view::{Layout, Options, View, helpformat, print, state_list_matches};
