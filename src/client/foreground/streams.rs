//! Relays the tasks' streams to and from this client's own streams, its terminal, and clients
//! attached with `sattach`.

use super::keyboard::Keyboard;
use crate::client::relay::Relay;
use crate::client::share::Share;
use crate::client::terminal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use slotd_exec::client_line::ClientLine;
use slotd_model::StepId;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The output stream of a task.
pub(super) struct Output {
    pub task: u32,
    pub from: OwnedFd,
    pub relay: Relay,
    pub to_stderr: bool,
}

/// The input stream of a task.
pub(super) struct Input {
    pub task: u32,
    pub to: OwnedFd,
    pub pending: Vec<u8>,
    /// The task has closed its input.
    pub is_closed: bool,
}

/// This client's ends of the tasks' streams.
pub(super) struct ClientStreams {
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    /// Our end of the pseudo-terminal.
    pub master: Option<OwnedFd>,
    /// The clients attached with `sattach`.
    pub share: Option<Share>,
    /// Our standard input has not ended.
    pub stdin_open: bool,
    pub keyboard: Keyboard,
    /// The connection to the step's watcher, which keeps running while this is open. `None` once
    /// the watcher has exited.
    pub client_line: Option<ClientLine>,
    /// Why output of the tasks was lost: the first error of our standard output or standard error.
    pub fault: Option<String>,
}

/// A stream that is ready.
#[derive(Debug, Clone, Copy)]
pub(super) enum StreamEvent {
    Stdin,
    Input(usize),
    Output(usize),
    Terminal,
    Share,
    Guest(usize),
}

impl ClientStreams {
    /// Returns the descriptors to poll. Our standard input is read only once the step
    /// `has_started`.
    pub fn poll_entries<'a>(
        &'a self,
        stdin: BorrowedFd<'a>,
        has_started: bool,
    ) -> Vec<(BorrowedFd<'a>, PollFlags, StreamEvent)> {
        let mut entries = Vec::new();
        let is_all_written =
            self.inputs.iter().all(|input| input.is_closed || input.pending.is_empty());
        let is_relayed = !self.inputs.is_empty() || self.master.is_some();
        if self.stdin_open && is_relayed && is_all_written && has_started {
            entries.push((self.keyboard.source(stdin), PollFlags::POLLIN, StreamEvent::Stdin));
        }
        for (i, input) in self.inputs.iter().enumerate() {
            // Polled even with nothing to write: an error shows that the reader has closed its end.
            let flags =
                if input.pending.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            entries.push((input.to.as_fd(), flags, StreamEvent::Input(i)));
        }
        for (i, output) in self.outputs.iter().enumerate() {
            entries.push((output.from.as_fd(), PollFlags::POLLIN, StreamEvent::Output(i)));
        }
        if let Some(master) = &self.master {
            entries.push((master.as_fd(), PollFlags::POLLIN, StreamEvent::Terminal));
        }
        if let Some(share) = &self.share {
            entries.push((share.listener(), PollFlags::POLLIN, StreamEvent::Share));
            for (i, (guest, is_behind)) in share.guests().enumerate() {
                // Guests' input is read only as fast as the tasks read theirs.
                let mut flags = if is_all_written { PollFlags::POLLIN } else { PollFlags::empty() };
                flags.set(PollFlags::POLLOUT, is_behind);
                entries.push((guest, flags, StreamEvent::Guest(i)));
            }
        }
        entries
    }

    /// Handles one event. Events must be handled from last to first, since a stream that has ended
    /// is removed from its list.
    ///
    /// # Errors
    /// Fails if no descriptors are left.
    pub fn handle(&mut self, event: StreamEvent) -> io::Result<()> {
        match event {
            StreamEvent::Stdin => self.read_stdin()?,
            StreamEvent::Input(i) => self.inputs.get_mut(i).into_iter().for_each(write_pending),
            StreamEvent::Output(i) => {
                let Some(output) = self.outputs.get_mut(i) else { return Ok(()) };
                if !forward(output, &mut self.share, &mut self.fault) {
                    self.outputs.remove(i);
                }
            }
            StreamEvent::Terminal => self.relay_terminal(),
            StreamEvent::Share => self.share.iter_mut().for_each(Share::accept),
            StreamEvent::Guest(i) => self.read_guest(i),
        }
        Ok(())
    }

    /// Removes ended streams and guests after a round of events.
    pub fn tidy(&mut self) {
        self.share.iter_mut().for_each(Share::tidy);
        let stdin_open = self.stdin_open;
        self.inputs.retain(|input| !input.is_closed && (stdin_open || !input.pending.is_empty()));
    }

    fn read_stdin(&mut self) -> io::Result<()> {
        if !self.keyboard.is_ours(io::stdin().as_fd())? {
            return Ok(());
        }
        let mut chunk = [0; 65_536];
        match read(io::stdin().as_fd(), &mut chunk) {
            Ok(0) => self.stdin_open = false,
            Ok(n) => self.type_in(None, &chunk[..n]),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => self.stdin_open = false,
        }
        Ok(())
    }

    fn read_guest(&mut self, guest: usize) {
        let typed = self.share.as_mut().map(|share| share.serve(guest)).unwrap_or_default();
        for (task, data) in typed {
            self.type_in(task, &data);
        }
    }

    /// Writes input to one task or to all. With a pseudo-terminal, writes to the terminal.
    fn type_in(&mut self, task: Option<u32>, data: &[u8]) {
        if let Some(master) = &self.master {
            // The terminal may be gone, which `relay_terminal` handles.
            let _ = write_whole(master.as_fd(), data);
        }
        for input in
            self.inputs.iter_mut().filter(|input| task.is_none_or(|task| task == input.task))
        {
            input.pending.extend_from_slice(data);
            write_pending(input);
        }
    }

    /// Lets others attach if the tasks' streams are relayed. The step runs normally if the socket
    /// cannot be created.
    pub fn open_share(&mut self, job_dir: &Path, step: StepId, tasks: u32) {
        let is_relayed =
            !self.outputs.is_empty() || !self.inputs.is_empty() || self.master.is_some();
        if is_relayed && self.share.is_none() {
            self.share = Share::open(job_dir, step, tasks, self.master.is_some()).ok();
        }
    }

    /// Sets the pseudo-terminal to the size of our terminal's window.
    pub fn resize(&self) {
        if let (Some(master), Some(size)) = (&self.master, terminal::window(io::stdin().as_fd())) {
            terminal::set_window(master.as_fd(), size);
        }
    }

    fn relay_terminal(&mut self) {
        let Some(master) = &self.master else { return };
        let mut chunk = [0; 65_536];
        match read(master, &mut chunk) {
            Ok(0) => self.master = None,
            Ok(n) => {
                match write_whole(io::stdout().as_fd(), &chunk[..n]) {
                    Err(error) if !is_closed(&error) => note(&mut self.fault, "output", &error),
                    // Our terminal may have been closed. The program keeps its own one.
                    Ok(()) | Err(_) => {}
                }
                if let Some(share) = &mut self.share {
                    share.show(0, false, &chunk[..n]);
                }
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // EIO: the program has closed its terminal.
            Err(_) => self.master = None,
        }
    }

    /// Relays the remaining output after the step and all its processes have ended.
    pub fn drain(&mut self) {
        for output in &mut self.outputs {
            while forward(output, &mut self.share, &mut self.fault) {
                if !readable_now(output.from.as_fd()) {
                    write_out(output, &mut self.fault, Relay::finish);
                    break;
                }
            }
        }
        while self.master.as_ref().is_some_and(|m| readable_now(m.as_fd())) {
            self.relay_terminal();
        }
    }
}

/// Writes as much as a task accepts now. Closes the input of a task that has closed its end, which
/// poll(2) reports even when nothing is pending.
fn write_pending(input: &mut Input) {
    if input.pending.is_empty() {
        input.is_closed = true;
        return;
    }
    match write(&input.to, &input.pending) {
        Ok(n) => drop(input.pending.drain(..n)),
        Err(Errno::EINTR | Errno::EAGAIN) => {}
        Err(_) => input.is_closed = true,
    }
}

fn readable_now(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
}

/// Relays available output of a task to our stream. Returns false at its end.
fn forward(output: &mut Output, share: &mut Option<Share>, fault: &mut Option<String>) -> bool {
    let mut chunk = [0; 65_536];
    match read(&output.from, &mut chunk) {
        Ok(n @ 1..) => {
            if let Some(share) = share {
                share.show(output.task, output.to_stderr, &chunk[..n]);
            }
            write_out(output, fault, |relay, out| relay.push(&chunk[..n], out))
        }
        Err(Errno::EINTR | Errno::EAGAIN) => true,
        Ok(0) | Err(_) => {
            write_out(output, fault, Relay::finish);
            false
        }
    }
}

/// Writes to our stream what the relay has for it. Returns false if nobody reads the stream any
/// more: the task need not keep writing. On a full disk, the output is lost but the task continues:
/// its work may be worth more, and there may be space again for the rest.
fn write_out(
    output: &mut Output,
    fault: &mut Option<String>,
    write: impl FnOnce(&mut Relay, &mut OurStream) -> io::Result<()>,
) -> bool {
    let mut stream = OurStream { is_stderr: output.to_stderr };
    let Err(error) = write(&mut output.relay, &mut stream) else { return true };
    if error.kind() == io::ErrorKind::BrokenPipe {
        return false;
    }
    note(fault, if output.to_stderr { "error" } else { "output" }, &error);
    true
}

/// Keeps the first reason why output was lost. `stream`: the name of the standard stream.
fn note(fault: &mut Option<String>, stream: &str, error: &io::Error) {
    fault.get_or_insert_with(|| format!("cannot write to standard {stream}: {error}"));
}

/// Returns whether the error means that nobody reads the stream any more: the reader of the pipe or
/// the terminal has gone.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::EIO | libc::ENXIO))
}

/// Our standard output or standard error, without a buffer: the relay writes whole lines.
struct OurStream {
    is_stderr: bool,
}

impl Write for OurStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_stderr {
            write_whole(io::stderr().as_fd(), bytes)?;
        } else {
            write_whole(io::stdout().as_fd(), bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all bytes and waits whenever the stream is not ready.
fn write_whole(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
