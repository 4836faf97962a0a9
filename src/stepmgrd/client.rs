//! The client side of the manager's socket, for the commands that talk to a running manager.

use serde::Serialize;
use slotd_exec::job_dirs;
use slotd_model::JobId;
use slotd_stepmgr::api::Event;
use slotd_sys::paths::Paths;
use slotd_sys::{lock, root_dirs, socket};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Returns the path of the socket of a job's manager.
pub fn socket_path(paths: &Paths, job: JobId) -> PathBuf {
    paths.job_dir(job).join(job_dirs::MANAGERS_SOCKET)
}

/// Locks the start of a manager until it listens, so that the next process finds its socket. The
/// job must belong to this user: another user could read the steps, and would receive files of this
/// user.
///
/// # Errors
/// Fails if slotd's directories belong to another user or are links, or if the lock cannot be
/// created.
pub fn begin(paths: &Paths, job: JobId) -> io::Result<File> {
    let dir = paths.job_dir(job);
    root_dirs::open(paths, &dir)?;
    std::fs::create_dir_all(&dir)?;
    lock::take(&dir.join("sjobmgr.lock"), lock::Kind::Exclusive)
}

/// A connection to a manager.
pub struct Client {
    lines: BufReader<UnixStream>,
    owner: u32,
}

impl Client {
    /// Connects to a manager.
    ///
    /// # Errors
    /// Fails if no manager listens at `path`.
    pub fn open(path: &std::path::Path) -> io::Result<Client> {
        let socket = socket::connect(path)?;
        let owner = socket::peer_uid(&socket)?;
        Ok(Client { lines: BufReader::new(socket), owner })
    }

    /// Returns the user ID of the manager.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Sends one line.
    ///
    /// # Errors
    /// Fails if the manager has exited.
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes())
    }

    /// Sends a request as one line of JSON.
    ///
    /// # Errors
    /// Fails if the manager has exited.
    pub fn ask(&mut self, what: &impl Serialize) -> io::Result<()> {
        self.send_line(&serde_json::to_string(what)?)
    }

    /// Returns the next event; `None` if the manager has closed the connection.
    ///
    /// # Errors
    /// Fails if the connection breaks or the event cannot be parsed.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line)?)),
        }
    }
}
