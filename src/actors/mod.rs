//! The five actors: shells around `sched`, `store`, `exec` and `sys` that translate, call, and
//! carry out effects.
//!
//! ```text
//! sessions ──► SchedulerActor ──► StoreActor ──► SchedulerActor (Committed) ──► RunnerActor, NotifierActor, sessions
//!                   ▲  ▲                                                            │
//!                   │  └──────────────── facts: StepStarted, StepEnded, JobEnded ───┘
//!                   └──── GpuInventoryActor (GpusChanged)
//! ```
//! Order of effects, everywhere: commit to the store, then launch, then reply, then notify. Stops
//! and signals act at once.

pub mod activity;
pub mod feed;
pub mod gpu_inventory;
pub mod launch_plan;
pub mod messages;
pub mod news;
pub mod notifier;
pub mod reader;
pub mod runner;
pub mod scheduler;
pub mod store;

#[cfg(test)]
mod simulation;

pub use gpu_inventory::GpuInventoryActor;
pub use notifier::NotifierActor;
pub use reader::{ReaderActor, Readers};
pub use scheduler::SchedulerActor;
pub use store::StoreActor;

/// Ends the daemon at once: a core actor cannot go on, and the service manager starts it anew. Jobs
/// are not touched.
pub fn fatal() -> ! {
    log::logger().flush();
    std::process::exit(70)
}
