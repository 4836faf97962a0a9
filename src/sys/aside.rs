//! Runs work that may block on a disk or a program, on dedicated threads.
//!
//! The few threads are started together at the beginning, so that such work continues even if the
//! host cannot start more threads later. If work does not finish in time (for example on a hard NFS
//! mount whose server is down), the caller receives an error, another thread replaces the hung one,
//! and the same work is refused until it finishes.

use crate::{break_point, clock};
use slotd_model::Timestamp;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The number of worker threads.
pub const THREADS: usize = 4;

/// The maximum number of hung threads that are replaced. If it is reached, all work is refused.
const MOST_HUNG: usize = 16;

/// The default time limit of work, from the moment that a thread starts it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The time limit of long-running work, such as deleting directory trees, copying the database, or
/// planning a long queue.
pub const LONG: Duration = Duration::from_secs(3600);

/// The reason why work has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    #[error(transparent)]
    Hangs(#[from] Hung),
    /// The name of the work.
    #[error("{0} failed: it panicked")]
    Panicked(String),
}

/// Work that did not finish in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Hung {
    /// The name of the work.
    pub what: String,
    pub since: Timestamp,
}

impl fmt::Display for Hung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.since.as_secs();
        let at = jiff::Timestamp::from_second(secs)
            .map_or_else(|_| secs.to_string(), |at| at.to_string());
        write!(f, "{} has not ended since {at}", self.what)
    }
}

type Work = Box<dyn FnOnce() -> Next + Send>;

/// The next action of a thread after finishing its work.
enum Next {
    Continue,
    /// Exit, since another thread has replaced it.
    End,
}

struct Pool {
    queue: Mutex<VecDeque<Work>>,
    queued: Condvar,
    hung: Mutex<BTreeMap<u64, Hung>>,
}

static POOL: Pool = Pool {
    queue: Mutex::new(VecDeque::new()),
    queued: Condvar::new(),
    hung: Mutex::new(BTreeMap::new()),
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve() {
    loop {
        let work = {
            let mut queue = lock(&POOL.queue);
            loop {
                match queue.pop_front() {
                    Some(work) => break work,
                    None => queue = POOL.queued.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        if matches!(work(), Next::End) {
            return;
        }
    }
}

fn add_thread() -> io::Result<()> {
    thread::Builder::new().name("aside".to_owned()).spawn(serve).map(drop)
}

/// Starts the threads. Later calls do nothing.
///
/// # Errors
/// Fails if the host cannot start them.
pub fn start() -> io::Result<()> {
    static STARTED: Once = Once::new();
    let mut made = Ok(());
    STARTED.call_once(|| made = (0..THREADS).try_for_each(|_| add_thread()));
    made
}

/// Returns the hung work that has not finished yet.
pub fn hung() -> Vec<Hung> {
    lock(&POOL.hung).values().cloned().collect()
}

/// The progress of work.
enum Stage {
    Working,
    Done,
    /// The work hung and is listed as hung under this key.
    GivenUp(u64),
}

/// Runs blocking work and waits for its result, for at most `patience` after it starts. The time
/// limit applies even if the caller no longer waits. Must be called inside a tokio runtime.
///
/// # Errors
/// Fails if the work hangs, work with the same name is already hung, or it panics.
pub async fn run<T: Send + 'static>(
    what: impl Into<String>,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let what = what.into();
    refuse(&what)?;
    // Without threads, the work stays in the queue until the daemon exits.
    let _ = start();
    let (begins, begun) = oneshot::channel();
    let (ends, mut ended) = oneshot::channel();
    let stage = Arc::new(Mutex::new(Stage::Working));
    let (name, own) = (what.clone(), Arc::clone(&stage));
    let piece: Work = Box::new(move || {
        let _ = begins.send(clock::now());
        break_point::hang_at(&name);
        let result =
            catch_unwind(AssertUnwindSafe(work)).map_err(|panic: Box<dyn Any + Send>| drop(panic));
        let mut stage = lock(&own);
        if let Stage::GivenUp(number) = *stage {
            lock(&POOL.hung).remove(&number);
            log::warn!("{name} has finished after all");
            return Next::End;
        }
        *stage = Stage::Done;
        let _ = ends.send(result);
        Next::Continue
    });
    lock(&POOL.queue).push_back(piece);
    POOL.queued.notify_one();
    let (sender, answer) = oneshot::channel();
    tokio::spawn(async move {
        // The work always starts, because hung threads are replaced.
        let since = begun.await.unwrap_or_else(|_| clock::now());
        let result = match timeout(patience, &mut ended).await {
            Ok(result) => Ok(result),
            Err(_) => match give_up(&stage, &what, since) {
                Some(hung) => Err(hung),
                None => Ok(ended.await),
            },
        };
        let _ = sender.send(match result {
            Err(hung) => Err(Unfinished::Hangs(hung)),
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(())) | Err(_)) => Err(Unfinished::Panicked(what)),
        });
    });
    match answer.await {
        Ok(result) => result,
        // The runtime is shutting down, and nothing waits for the result.
        Err(_) => std::future::pending().await,
    }
}

/// Refuses work that is already hung, and all work if too much is hung.
fn refuse(what: &str) -> Result<(), Hung> {
    let hung = lock(&POOL.hung);
    let same = hung.values().find(|hung| hung.what == what);
    match same.or_else(|| hung.values().next().filter(|_| hung.len() >= MOST_HUNG)) {
        Some(hung) => Err(hung.clone()),
        None => Ok(()),
    }
}

/// Marks unfinished work as hung. Returns `None` if it has just finished.
fn give_up(stage: &Mutex<Stage>, what: &str, since: Timestamp) -> Option<Hung> {
    let mut stage = lock(stage);
    if !matches!(*stage, Stage::Working) {
        return None;
    }
    let hung = Hung { what: what.to_owned(), since };
    let mut all = lock(&POOL.hung);
    let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
    all.insert(number, hung.clone());
    *stage = Stage::GivenUp(number);
    log::error!("{what} did not finish in time: it is abandoned, and refused until it finishes");
    if let Err(e) = add_thread() {
        log::error!("cannot start a thread for other work: {e}");
    }
    Some(hung)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[actix_rt::test]
    async fn hung_work_is_refused_until_it_finishes() {
        let mut gates = Vec::new();
        for number in 0..THREADS {
            let (open, gate) = mpsc::channel::<()>();
            gates.push(open);
            let work = move || gate.recv();
            let what = format!("test work {number}");
            let error = run(&what, Duration::from_millis(1), work).await.unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("{what} has not ended since ")),
                "{error}"
            );
            assert_eq!(run(&what, PATIENCE, || 1).await.map_err(|again| again == error), Err(true));
        }
        // Every thread hangs and has been replaced.
        assert_eq!(run("other work", PATIENCE, || 7).await, Ok(7));
        let of_this =
            || hung().into_iter().filter(|hung| hung.what.starts_with("test work ")).count();
        assert_eq!(of_this(), THREADS);
        drop(gates);
        while of_this() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(run("test work 0", PATIENCE, || 8).await, Ok(8));
    }

    #[actix_rt::test]
    async fn a_panic_is_an_error_and_the_thread_survives() {
        for _ in 0..2 * THREADS {
            let panics = || assert_eq!(1, 2, "this panic belongs to the test");
            assert_eq!(
                run("panic", PATIENCE, panics).await,
                Err(Unfinished::Panicked("panic".to_owned()))
            );
        }
        assert_eq!(run("work", PATIENCE, || 7).await, Ok(7));
    }

    #[actix_rt::test]
    async fn work_without_a_waiting_caller_times_out() {
        let (open, gate) = mpsc::channel::<()>();
        let (begins, begun) = oneshot::channel();
        let work = move || {
            let _ = begins.send(());
            gate.recv()
        };
        let waiter = actix_rt::spawn(run("left work", Duration::from_millis(50), work));
        begun.await.unwrap();
        waiter.abort();
        while !hung().iter().any(|hung| hung.what == "left work") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(open);
    }
}
