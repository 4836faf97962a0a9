//! The only timer of the scheduler. It fires at an instant of the wall clock, and also when that
//! clock is set.
//!
//! A timerfd with `TFD_TIMER_CANCEL_ON_SET` sleeps until then without waking up in between. A begin
//! time of 16:00 tomorrow stays correct across daylight saving, sleep of the machine and clock
//! corrections.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use slotd_model::Timestamp;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::sync::watch;

/// The expiry of a timer without an instant, as far in the future as dates go. It still notices
/// that the clock was set.
const NEVER_SECS: i64 = 253_402_300_799;

/// Calls `due` whenever the instant in `next` is reached or the wall clock jumps. Returns when the
/// sender of `next` is dropped.
///
/// # Errors
/// Fails if the kernel refuses the timer.
pub async fn ring(mut next: watch::Receiver<Option<Timestamp>>, due: impl Fn()) -> io::Result<()> {
    let timer =
        TimerFd::new(ClockId::CLOCK_REALTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
    let fd: OwnedFd = timer.as_fd().try_clone_to_owned()?;
    // SAFETY: `fd` is owned by the registration and lives as long as it does.
    let ready = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    loop {
        let at = *next.borrow_and_update();
        set(&timer, at)?;
        tokio::select! {
            changed = next.changed() => if changed.is_err() { return Ok(()) },
            guard = ready.readable() => {
                guard?.clear_ready_matching(Ready::READABLE);
                match timer.wait() {
                    Ok(()) | Err(nix::Error::ECANCELED) => due(),
                    Err(nix::Error::EAGAIN) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }
}

fn set(timer: &TimerFd, at: Option<Timestamp>) -> nix::Result<()> {
    let at = at.unwrap_or(Timestamp::from_secs(NEVER_SECS));
    // An instant of zero would disarm the timer; a past one fires at once.
    let micros = at.0.max(1);
    let spec = TimeSpec::new(micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) * 1000);
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(Expiration::OneShot(spec), flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn now() -> Timestamp {
        Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64)
    }

    #[actix_rt::test]
    async fn past_instant_rings_at_once_and_none_stays_silent() {
        let (next, receiver) = watch::channel(None);
        let (rang, mut bell) = tokio::sync::mpsc::unbounded_channel();
        let count = Rc::new(Cell::new(0));
        let seen = Rc::clone(&count);
        actix_rt::spawn(async move {
            ring(receiver, move || {
                seen.set(seen.get() + 1);
                let _ = rang.send(());
            })
            .await
        });
        next.send(Some(now())).unwrap();
        bell.recv().await.unwrap();
        next.send(Some(Timestamp(now().0 + 20_000))).unwrap();
        bell.recv().await.unwrap();
        next.send(None).unwrap();
        assert!(count.get() >= 2);
    }
}
