//! What the benchmarks of whole commands share: a daemon with a root of its own, and times.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SLOTD: &str = env!("CARGO_BIN_EXE_slotd");

pub struct Lab {
    pub dir: tempfile::TempDir,
    daemon: Child,
}

impl Lab {
    /// Serves `root` in this directory, with what is in it already.
    pub fn start_in(dir: tempfile::TempDir) -> Lab {
        let daemon = Command::new(SLOTD)
            .arg("daemon")
            .env("SLOTD_ROOT", dir.path().join("root"))
            .env("SLOTD_CPUS", "2")
            .stderr(Stdio::null())
            .spawn()
            .expect("the daemon");
        let lab = Lab { dir, daemon };
        let socket = lab.path("root/run/slotd.sock");
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "the daemon does not answer");
            std::thread::yield_now();
        }
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a command prints.
    pub fn run(&self, command: &str, args: &[&str]) -> String {
        let out = Command::new(SLOTD)
            .arg(command)
            .args(args)
            .env("SLOTD_ROOT", self.path("root"))
            .current_dir(self.dir.path())
            .output()
            .expect("the program");
        assert!(out.status.success(), "{command} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Minimum and median in milliseconds.
pub fn summary(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    (ms(times[0]), ms(times[times.len() / 2]))
}

pub fn timed(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}
