//! The decisions of the job step manager: which steps there are, which may start now, which wait
//! and for what.
//!
//! The manager runs in user space, inside an allocation. This layer is what it knows and decides;
//! `manager` starts the processes, keeps the journal and talks to the daemon. Like `sched` it is
//! pure: `on_*` functions take a fact and the time, change the state, and say what is to be done.
//!
//! ```text
//!  text ──language──► StepSpec ──expand──► StepDef ──graph──► waiting ──► ready ──► running ──► ended
//!                                                      │        ▲ │                   │
//!                                                      │        └─┼────── retry ──────┘
//!                                                      └──────────┴──► skipped, cancelled
//! ```

pub mod api;
pub mod core;
pub mod def;
pub mod graph;
pub mod language;
pub mod ready;
pub mod resources;
