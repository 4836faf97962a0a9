//! Whether a daemon answers.

use crate::client::connection::Connection;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_sys::paths::Paths;
use std::sync::mpsc;
use std::time::Duration;

/// Maximum time for a running daemon to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the configuration of the daemon, or `None` if it does not answer in time.
pub fn configuration(paths: &Paths) -> Option<Vec<(String, String)>> {
    let (answer, news) = mpsc::channel();
    let paths = paths.clone();
    // In a thread, since even connecting to a hung daemon may block.
    std::thread::spawn(move || {
        let mut daemon = Connection::open(&paths).ok()?;
        daemon.send(&Request::Config, &[]).ok()?;
        match daemon.wait().ok()?.0 {
            Answer::Config(config) => answer.send(config).ok(),
            _ => None,
        }
    });
    news.recv_timeout(PATIENCE).ok()
}
