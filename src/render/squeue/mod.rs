//! squeue: jobs that wait and run (book, "Queue and Accounting: squeue"; squeue man page).

mod fields;
mod rows;
mod steps;
mod view;

pub use rows::{Row, Sort};
pub use steps::print_steps;
pub use view::{Layout, Options, View, helpformat, print, print_table};
