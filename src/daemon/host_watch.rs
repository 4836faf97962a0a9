//! Records the host's resource usage over time. Takes a sample every ten seconds while a job is
//! running, and none otherwise.

use crate::actors::activity::Activity;
use crate::daemon::host_file::{self, HostFile};
use slotd_model::Timestamp;
use slotd_model::gpu::GpuReading;
use slotd_model::host_use::{GpuSpan, HostSpan, thinned};
use slotd_sys::aside::Unfinished;
use slotd_sys::host_use::{self, Look};
use slotd_sys::paths::Paths;
use slotd_sys::{aside, clock};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The time between two samples.
const PERIOD: Duration = Duration::from_secs(10);

/// Shorter pauses between two jobs are ignored.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time between two GPU readings while jobs use GPUs.
const READINGS_APART: Duration = Duration::from_secs(15);

/// The reason why the usage of the host is unknown.
#[derive(Debug, thiserror::Error)]
pub enum HostUseError {
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
}

pub struct HostWatch {
    path: PathBuf,
    /// While jobs are running: the last sample, and the GPU readings since then.
    open: RefCell<Option<Open>>,
    /// A failure to record has been logged.
    is_logged: Cell<bool>,
}

struct Open {
    look: Look,
    gpus: Readings,
}

/// The GPU readings since the last sample, and the last one before it if it is recent.
#[derive(Debug, Clone, Default)]
struct Readings {
    since: Vec<Vec<GpuReading>>,
    last: Option<(Instant, Vec<GpuReading>)>,
}

impl Readings {
    fn take(&mut self, read: Vec<GpuReading>, now: Instant) {
        self.since.push(read.clone());
        self.last = Some((now, read));
    }

    /// Returns the usage of each GPU in a span of `ms` milliseconds.
    fn spans(&self, ms: u64, now: Instant) -> BTreeMap<u32, GpuSpan> {
        let before =
            self.last.iter().filter(|(at, _)| now.saturating_duration_since(*at) <= READINGS_APART);
        let known = before.map(|(_, read)| read);
        let all: Vec<&Vec<GpuReading>> =
            if self.since.is_empty() { known.collect() } else { self.since.iter().collect() };
        let mut of: BTreeMap<u32, Vec<&GpuReading>> = BTreeMap::new();
        all.into_iter()
            .flatten()
            .for_each(|reading| of.entry(reading.id).or_default().push(reading));
        let mean = |sum: u64, count: usize| sum.checked_div(count as u64);
        of.into_iter()
            .map(|(id, readings)| {
                let busy: Vec<u64> =
                    readings.iter().filter_map(|reading| reading.busy).map(u64::from).collect();
                let mem = readings.iter().map(|reading| reading.used_mb);
                let busy_milli = mean(busy.iter().sum::<u64>().saturating_mul(10), busy.len());
                let span = GpuSpan {
                    ms,
                    busy_milli: busy_milli.and_then(|milli| u32::try_from(milli).ok()),
                    mem_max_mb: mem.clone().max().unwrap_or(0),
                    mem_mean_mb: mean(mem.sum(), readings.len()).unwrap_or(0),
                };
                (id, span)
            })
            .collect()
    }
}

impl HostWatch {
    pub fn new(paths: &Paths) -> HostWatch {
        HostWatch { path: paths.host_use(), open: RefCell::default(), is_logged: Cell::default() }
    }

    /// Samples while jobs are running, until the scheduler stops.
    pub async fn follow(self: Rc<Self>, mut activity: watch::Receiver<Activity>) {
        let mut file = HostFile::new(self.path.clone());
        while activity.wait_for(|known| known.runs).await.is_ok() {
            file = self.keep(&mut activity, file).await;
            self.open.take();
        }
    }

    /// Records from the start of a job until none is running.
    async fn keep(&self, activity: &mut watch::Receiver<Activity>, mut file: HostFile) -> HostFile {
        let mut reading = activity.borrow().reading;
        if let Some(look) = self.look().await {
            self.open.replace(Some(Open { look, gpus: Readings::default() }));
        }
        let mut next = Instant::now() + PERIOD;
        let mut end = None;
        loop {
            tokio::select! {
                changed = activity.changed() => {
                    if changed.is_err() {
                        return file;
                    }
                    let known = activity.borrow_and_update();
                    end = if known.runs { None } else { end.or(Some(Instant::now() + PAUSE)) };
                    if known.reading != reading && let Some(open) = &mut *self.open.borrow_mut() {
                        reading = known.reading;
                        open.gpus.take(known.gpus.clone(), Instant::now());
                    }
                }
                () = sleep_until(end.unwrap_or(next).min(next)) => {
                    let now = Instant::now();
                    file = self.add(file).await;
                    if end.is_some_and(|end| end <= now) {
                        return file;
                    }
                    next = now + PERIOD;
                }
            }
        }
    }

    /// Takes a sample on another thread.
    async fn look(&self) -> Option<Look> {
        let seen =
            aside::run("sampling the usage of the host", aside::PATIENCE, host_use::look).await;
        seen.ok().and_then(|seen| self.log_failure(seen))
    }

    /// Logs a failure, but only once until an operation succeeds again.
    fn log_failure<T>(&self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(done) => {
                self.is_logged.set(false);
                Some(done)
            }
            Err(e) => {
                if !self.is_logged.replace(true) {
                    log::warn!("cannot record the usage of the host: {}: {e}", self.path.display());
                }
                None
            }
        }
    }

    /// Records the usage since the last sample.
    async fn add(&self, mut file: HostFile) -> HostFile {
        let Some(look) = self.look().await else { return file };
        let now = clock::now();
        let Some(span) = self.next_span(look, now) else { return file };
        let write = move || {
            let added = file.add(&span, now);
            (file, added)
        };
        match aside::run("writing the usage of the host", aside::PATIENCE, write).await {
            Ok((file, added)) => {
                self.log_failure(added);
                file
            }
            // The disk does not respond.
            Err(_) => HostFile::new(self.path.clone()),
        }
    }

    /// Returns the span from the last sample to this one, which starts the next span.
    fn next_span(&self, look: Look, now: Timestamp) -> Option<HostSpan> {
        let mut open = self.open.borrow_mut();
        let Some(known) = &mut *open else {
            *open = Some(Open { look, gpus: Readings::default() });
            return None;
        };
        let span = span(&known.look, &known.gpus, &look, now);
        known.look = look;
        known.gpus.since.clear();
        Some(span)
    }

    /// Returns the host's usage from a point in time until now.
    ///
    /// # Errors
    /// Fails if the recorded usage cannot be read.
    pub async fn since(&self, from: Timestamp) -> Result<Vec<HostSpan>, HostUseError> {
        let path = self.path.clone();
        let what = "reading the usage of the host";
        let read = aside::run(what, aside::PATIENCE, move || host_file::read(&path)).await?;
        let mut spans =
            read.map_err(|error| HostUseError::Read { path: self.path.clone(), error })?;
        let is_open = self.open.borrow().is_some();
        if is_open
            && let Some(look) = self.look().await
            && let Some(open) = &*self.open.borrow()
        {
            spans.push(span(&open.look, &open.gpus, &look, clock::now()));
        }
        let from_ms = from.0.div_euclid(1000);
        let mut spans = thinned(spans, clock::now());
        spans.retain(|span| span.to > from_ms);
        Ok(spans)
    }
}

fn span(before: &Look, gpus: &Readings, look: &Look, now: Timestamp) -> HostSpan {
    let span = look.since(before, now.0.div_euclid(1000));
    HostSpan { gpus: gpus.spans(span.ms, Instant::now()), ..span }
}
