//! Detects that a client of an earlier daemon has exited and will not reconnect.

use slotd_model::job::ClientProcess;
use slotd_sys::{clock, proc};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Returns once exactly this process has exited. Returns at once if the kernel does not allow
/// watching it.
pub async fn end_of(client: ClientProcess) {
    let Ok(pid) = i32::try_from(client.pid) else { return };
    if client.boot.differs(clock::boot_id()) {
        return;
    }
    let Ok(fd) = proc::pidfd(pid) else { return };
    // Checked after opening the descriptor: the PID may have been reused before that.
    if proc::start_ticks(pid) != Some(client.start_ticks) {
        return;
    }
    // SAFETY: the registration owns the descriptor.
    if let Ok(ready) = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) } {
        let _ = ready.readable().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_rt::test]
    async fn killing_the_process_ends_the_watch() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let client = ClientProcess {
            pid,
            start_ticks: proc::start_ticks(pid as i32).unwrap(),
            boot: clock::boot_id(),
        };
        let watch = actix_rt::spawn(end_of(client));
        child.kill().unwrap();
        watch.await.unwrap();
        child.wait().unwrap();
        end_of(client).await;
    }
}
