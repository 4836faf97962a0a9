//! The five actors: shells around `sched`, `store`, `exec` and `sys` that translate, call, and carry out effects.
//!
//! ```text
//! sessions ──► SchedulerActor ──► StoreActor ──► SchedulerActor (Committed) ──► RunnerActor, NotifierActor, sessions
//!                   ▲  ▲                                                            │
//!                   │  └──────────────── facts: StepStarted, StepEnded, JobEnded ───┘
//!                   └──── GpuInventoryActor (GpusChanged)
//! ```
//! Order of effects, everywhere: commit to the store, then launch or signal, then reply, then notify.

pub mod gpu_inventory;
pub mod launch_plan;
pub mod messages;
pub mod news;
pub mod notifier;
pub mod runner;
pub mod scheduler;
pub mod store;

pub use gpu_inventory::GpuInventoryActor;
pub use notifier::NotifierActor;
pub use scheduler::SchedulerActor;
pub use store::{ReaderActor, StoreActor};

/// Ends the daemon at once: a core actor cannot go on, and the service manager starts it anew. Jobs are not touched.
pub fn fatal() -> ! {
    log::logger().flush();
    std::process::exit(70)
}
