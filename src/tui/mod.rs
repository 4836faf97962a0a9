//! The screen of `slotd top`: its state, its response to keys, and its drawing.
//!
//! Pure: keys, answers and the time come in, requests and actions go out, and drawing fills a
//! buffer. `commands::top` runs the event loop. `seff` and `slotd report` use the plots too.

mod act;
pub mod areas;
pub mod columns;
pub mod draw;
pub mod elsewhere;
pub mod keys;
pub mod log;
mod mouse;
pub mod order;
pub mod page;
pub mod pane;
pub mod plans;
pub mod plot;
pub mod sheet;
pub mod state;
pub mod theme;

#[cfg(test)]
mod tests;

pub use state::{Action, Input, Screen};
