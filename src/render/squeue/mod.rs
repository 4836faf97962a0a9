//! squeue: pending and running jobs (squeue man page).

mod fields;
mod rows;
mod steps;
mod view;

pub use fields::Squeue;
pub use rows::Row;
pub use steps::{Steps, default_layout, print_steps};
pub use view::{Layout, Listing, Options, Sort, View};
