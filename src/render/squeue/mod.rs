//! squeue: pending and running jobs (squeue man page).

mod fields;
mod listing;
mod rows;
mod steps;
mod view;

pub use fields::Squeue;
pub use listing::Listing;
pub use rows::Row;
pub use steps::{Steps, default_layout, print_steps};
pub use view::{Layout, Options, Sort, View};
