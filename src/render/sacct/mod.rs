//! sacct: what jobs and steps were and used (book, "Queue and Accounting: sacct"; sacct man page). Also the columns of
//! sstat, which are the same fields of running steps.

mod fields;
mod view;

pub use fields::{Row, is_field};
pub use view::{Layout, Lines, Options, Rows, View, helpformat, print};
