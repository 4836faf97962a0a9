//! sacct: the accounting of jobs, and sstat: the usage of running steps (sacct and sstat man
//! pages).

mod fields;
mod view;

pub use fields::Sacct;
pub use view::{Layout, Listing, Options, Rows, View, parse, print, sstat_fields};
