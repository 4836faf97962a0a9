//! What `slotd top` shows: the state of its screen, what keys do to it, what it asks the daemon
//! for, and how it is drawn.
//!
//! Pure: keys, answers and the time come in, requests and actions come out, and drawing fills a
//! buffer. The loop around it is `commands::top`. Its plots are also drawn by `seff` and
//! `slotd report`.

pub mod areas;
pub mod draw;
pub mod keys;
pub mod link;
pub mod log;
pub mod order;
pub mod page;
pub mod pane;
pub mod picture;
pub mod plot;
pub mod sorted;
pub mod state;

#[cfg(test)]
mod tests;

pub use state::{Action, Input, Screen};
