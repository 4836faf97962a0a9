//! The five actors. They translate and forward between `sched`, `store`, `exec` and `sys`, and
//! carry out effects.
//!
//! ```text
//! sessions ──► SchedulerActor ──► StoreActor ──► SchedulerActor (Committed) ──► RunnerActor, NotifierActor, sessions
//!                   ▲  ▲                                                            │
//!                   │  └──────────────── facts: StepStarted, StepEnded, JobEnded ───┘
//!                   └──── GpuInventoryActor (GpusChanged)
//! ```
//! The order of effects is always the same: commit to the store, launch, reply, notify. Stops and
//! signals act immediately.

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
mod tests;

pub use gpu_inventory::GpuInventoryActor;
pub use notifier::NotifierActor;
pub use reader::{ReaderActor, Readers};
pub use scheduler::SchedulerActor;
pub use store::StoreActor;

/// Exits the daemon immediately because a core actor failed. The service manager restarts it. Jobs
/// keep running.
pub fn fatal() -> ! {
    log::logger().flush();
    std::process::exit(70)
}
