//! sacct: what was, and sstat: what steps use (sacct and sstat man pages).

mod fields;
mod view;

pub use fields::Sacct;
pub use view::{Layout, Listing, Options, Rows, View, parse, print};
