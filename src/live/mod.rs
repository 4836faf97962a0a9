//! A live picture of the queue: [`picture::Picture`] holds it, and [`link::Link`] turns the
//! daemon's change notifications into the requests that keep it current.
//!
//! Pure: the caller sends the requests and passes the answers in. `slotd top` and `slotd web` show
//! the same picture.

pub mod link;
pub mod picture;
mod sorted;

pub use link::{InView, Link};
pub use picture::{Picture, Place, Touched};
pub use sorted::Sorted;
