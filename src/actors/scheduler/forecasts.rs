//! Forecasts of the queue, for `squeue --start` and `sbatch --test-only`.
//!
//! Only the copy that a forecast is made of is taken on the scheduler's thread; what follows from
//! it is worked out on another one, and everybody who asks about the same state shares it.

use crate::model::Timestamp;
use crate::sched::{Core, Forecast, Starts};
use crate::sys::aside;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// How old a forecast may be where nothing has changed: a job that is overdue is taken to end soon,
/// again and again.
const FRESH: Duration = Duration::from_secs(1);

pub(super) struct Forecasts {
    /// Counts the changes of the state.
    generation: u64,
    latest: Option<Arc<Shared>>,
    /// One is worked out at a time: a crowd that asks takes no more than one CPU.
    turns: Arc<Semaphore>,
}

/// A forecast, and the answer once it is there.
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

    /// The state is another now.
    pub(super) fn outdate(&mut self) {
        self.generation += 1;
    }

    /// The forecast of the present state.
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

    /// What follows from a forecast that nobody else asks for.
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
