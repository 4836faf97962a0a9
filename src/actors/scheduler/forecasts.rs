//! Forecasts of the queue, for `squeue --start` and `sbatch --test-only`.
//!
//! Only the copy of the state is made on the scheduler's thread. The forecast is computed on
//! another thread and shared by all queries of the same state.

use slotd_model::Timestamp;
use slotd_sched::{Core, Forecast, Starts};
use slotd_sys::aside;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// The longest time a forecast is reused without a change of state. The expected end of an overdue
/// job is always soon, so it moves with the time.
const FRESH: Duration = Duration::from_secs(1);

pub(super) struct Forecasts {
    /// Incremented on each change of the state.
    generation: u64,
    latest: Option<Arc<Shared>>,
    /// Limits forecasts to one at a time, so that they never use more than one CPU.
    turns: Arc<Semaphore>,
}

/// A forecast and, once computed, its result.
pub(super) struct Shared {
    generation: u64,
    at: Timestamp,
    forecast: Arc<Forecast>,
    turns: Arc<Semaphore>,
    starts: OnceCell<Starts>,
}

impl Forecasts {
    pub(super) fn new(turns: Arc<Semaphore>) -> Forecasts {
        Forecasts { generation: 0, latest: None, turns }
    }

    /// Marks the state as changed.
    pub(super) fn outdate(&mut self) {
        self.generation += 1;
    }

    /// Returns the forecast of the current state.
    pub(super) fn present(&mut self, core: &Core, now: Timestamp) -> Arc<Shared> {
        let is_good = |old: &&Arc<Shared>| {
            old.generation == self.generation && now >= old.at && now.since(old.at) < FRESH
        };
        if let Some(known) = self.latest.as_ref().filter(is_good) {
            return Arc::clone(known);
        }
        let shared = Arc::new(Shared {
            generation: self.generation,
            at: now,
            forecast: Arc::new(core.forecast(now)),
            turns: Arc::clone(&self.turns),
            starts: OnceCell::new(),
        });
        self.latest = Some(Arc::clone(&shared));
        shared
    }

    /// Computes a forecast that is not shared.
    pub(super) fn once(&self, forecast: Forecast) -> impl Future<Output = Starts> + use<> {
        work_out(Arc::clone(&self.turns), Arc::new(forecast))
    }
}

impl Shared {
    pub(super) async fn starts(&self) -> &Starts {
        self.starts
            .get_or_init(|| work_out(Arc::clone(&self.turns), Arc::clone(&self.forecast)))
            .await
    }
}

async fn work_out(turns: Arc<Semaphore>, forecast: Arc<Forecast>) -> Starts {
    let turn = turns.acquire_owned().await;
    let work = move || {
        let starts = Arc::unwrap_or_clone(forecast).starts();
        drop(turn);
        starts
    };
    aside::run("a forecast of the queue", aside::LONG, work).await.unwrap_or_else(|e| {
        log::error!("{e}");
        Starts::new()
    })
}
