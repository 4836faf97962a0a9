//! The other end of the manager's socket: the commands that talk to a manager that runs.

use crate::exec::job_dirs;
use crate::model::JobId;
use crate::stepmgr::api::Event;
use crate::sys::paths::Paths;
use crate::sys::{lock, root_dirs, socket};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Where the manager of a job listens.
pub fn socket_path(paths: &Paths, job: JobId) -> PathBuf {
    paths.job_dir(job).join(job_dirs::MANAGERS_SOCKET)
}

/// Lets one process at a time begin to manage the steps of a job, until that listens: whoever comes
/// next finds its socket. The job must be this user's: another one could read the steps, and would
/// get files of this user.
///
/// # Errors
/// The directories of slotd are another user's, or links; the lock cannot be made.
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
    /// # Errors
    /// No manager listens there.
    pub fn open(path: &std::path::Path) -> io::Result<Client> {
        let socket = socket::connect(path)?;
        let owner = socket::peer_uid(&socket)?;
        Ok(Client { lines: BufReader::new(socket), owner })
    }

    /// The user that the manager runs as.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// # Errors
    /// The manager is gone.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes())
    }

    /// # Errors
    /// The manager is gone.
    pub fn ask(&mut self, what: &impl Serialize) -> io::Result<()> {
        self.say(&serde_json::to_string(what)?)
    }

    /// The next event; `None` where the manager has ended.
    ///
    /// # Errors
    /// The manager is gone, or says what makes no sense.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line)?)),
        }
    }
}
