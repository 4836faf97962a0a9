//! The job step manager's decisions: which steps exist, which can start, and why the others have
//! to wait.
//!
//! The manager runs in user space, inside an allocation. This layer holds its state and makes its
//! decisions. `stepmgrd` starts the processes, keeps the journal and talks to the daemon. Like
//! `sched` this layer is pure: `on_*` functions take an event and the time, update the state and
//! return effects to carry out.
//!
//! ```text
//!  text ──language──► StepSpec ──expand──► StepDef ──graph──► waiting ──► ready ──► running ──► ended
//!                                                      │        ▲ │                   │
//!                                                      │        └─┼────── retry ──────┘
//!                                                      └──────────┴──► skipped, cancelled
//! ```

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod api;
pub mod core;
pub mod def;
pub mod graph;
pub mod language;
pub mod ready;
pub mod resources;
