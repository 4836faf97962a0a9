//! `slotd top`: the queue on a full screen, as it is from moment to moment.
//!
//! The loop around [`crate::screen`]: it waits for keys, for the daemon's word that something has changed and for the files
//! that are shown, and for nothing else while nothing runs.

mod outputs;
mod terminal;

use crate::args::error::CliError;
use crate::client::connection::{ClientError, Connection, SocketWatch};
use crate::commands::tasks::signal_text;
use crate::commands::{Done, now, origin, output, paths};
use crate::model::JobRef;
use crate::model::query::JobQuery;
use crate::protocol::answer::{Answer, Outcome};
use crate::protocol::frame::FrameError;
use crate::protocol::request::{CancelAsk, ControlAction, Request};
use crate::screen::page::Side;
use crate::screen::state::{Deed, Theme, Words};
use crate::screen::{Action, Input, Screen};
use crate::sys::paths::Paths;
use crate::sys::user::user_name;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use outputs::Outputs;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use terminal::Terminal;

#[derive(Debug, clap::Args)]
pub struct TopArgs {}

/// How often the times on the screen are moved on, while something runs.
const TICK: Duration = Duration::from_secs(1);

/// The least time between two looks at the queue, however much happens in it.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

pub fn run(_: &TopArgs) -> Done {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(
            CliError::error(1, "slotd top needs a terminal: its input or its output is none").hint("see squeue")
        );
    }
    let paths = paths()?;
    let daemon = Daemon::open(&paths)?;
    let signals = Signals::take().map_err(|e| CliError::error(1, format!("signals cannot be taken: {e}")))?;
    let failed = |e: io::Error| CliError::error(1, format!("the terminal cannot be used: {e}"));
    let terminal = Terminal::enter().map_err(failed)?;
    let size = terminal.size().map_err(failed)?;
    let origin = origin();
    let mut ctx = output::ctx(&origin, now());
    ctx.is_terminal = true;
    let theme = Theme { colour: origin.nonempty("NO_COLOR").is_none(), ascii: !output::is_utf8(&origin) };
    let top = Top {
        screen: Screen::new(ctx, theme, Words { signal: signal_text, user: user_name }, size),
        terminal,
        link: Link::Open(daemon),
        outputs: Outputs::default(),
        paths,
        signals,
        ticked: Instant::now(),
        looked: None,
        ended_by: None,
    };
    top.run().map_err(failed)
}

/// The connection to the daemon. It answers questions, and says in between that something has changed.
struct Daemon {
    conn: Connection,
    /// It is asked what has changed, and keeps the connection however long nothing does.
    is_asked: bool,
}

impl Daemon {
    fn open(paths: &Paths) -> Result<Daemon, ClientError> {
        let mut conn = Connection::open(paths)?;
        conn.send(&Request::Watch, &[])?;
        Ok(Daemon { conn, is_asked: true })
    }
}

enum Link {
    Open(Daemon),
    /// It is gone: the kernel tells when its socket is there again.
    Lost(SocketWatch),
}

/// The signals that end the loop, and that of another size of the terminal.
struct Signals {
    fd: SignalFd,
}

impl Signals {
    fn take() -> io::Result<Signals> {
        let set: SigSet = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGWINCH].into_iter().collect();
        set.thread_block()?;
        Ok(Signals { fd: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)? })
    }
}

struct Top {
    screen: Screen,
    terminal: Terminal,
    link: Link,
    outputs: Outputs,
    paths: Paths,
    signals: Signals,
    /// When the daemon's clock was last known or moved on.
    ticked: Instant,
    /// When the daemon last said that something has changed.
    looked: Option<Instant>,
    /// The exit code, once the loop is to end.
    ended_by: Option<u8>,
}

/// What there is to do after a wait.
#[derive(Default)]
struct Ready {
    keys: bool,
    /// The terminal was closed. Nothing is read from it then: crossterm would do so for ever.
    gone: bool,
    signals: bool,
    outputs: bool,
    daemon: bool,
    back: bool,
}

impl Top {
    fn run(mut self) -> io::Result<u8> {
        loop {
            self.ask();
            if let Some(code) = self.ended_by {
                return Ok(code);
            }
            self.terminal.draw(&self.screen)?;
            let ready = self.wait()?;
            if ready.signals {
                self.signals()?;
            }
            if ready.gone {
                self.ended_by = Some(128 + Signal::SIGHUP as u8);
            } else if ready.keys {
                for input in self.terminal.events()? {
                    self.take(input);
                }
            }
            if ready.back {
                self.reconnect();
            }
            if ready.daemon && self.hear().is_err() {
                self.lost();
            }
            if ready.outputs {
                self.outputs.changed();
            }
            self.time_passes();
        }
    }

    /// Asks the daemon what the screen wants to know, or to say what changes next.
    fn ask(&mut self) {
        let Link::Open(daemon) = &mut self.link else { return };
        let mut sent = Ok(());
        if let Some(request) = self.screen.next_request() {
            sent = daemon.conn.send(&request, &[]);
        }
        // Beside the other questions: those that come each second might leave it no moment of its own.
        if sent.is_ok() && !daemon.is_asked && self.looked.is_none_or(|at| at.elapsed() >= LOOK_PAUSE) {
            daemon.is_asked = true;
            sent = daemon.conn.send(&Request::Watch, &[]);
        }
        if sent.is_err() {
            self.lost();
        }
    }

    /// How long nothing has to be done; `None` until something happens.
    fn rest(&self) -> Option<Duration> {
        let until = |from: Instant, pause: Duration| pause.saturating_sub(from.elapsed());
        let tick = self.screen.ticks().then(|| until(self.ticked, TICK));
        let is_due = matches!(&self.link, Link::Open(daemon) if !daemon.is_asked);
        let look = self.looked.filter(|_| is_due).map(|at| until(at, LOOK_PAUSE));
        [tick, look, self.outputs.rest()].into_iter().flatten().min()
    }

    fn wait(&self) -> io::Result<Ready> {
        let stdin = io::stdin();
        let always = [stdin.as_fd(), self.signals.fd.as_fd()];
        let mut fds: Vec<PollFd> = always.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).into();
        let outputs = self.outputs.watched();
        match &self.link {
            Link::Open(daemon) => fds.push(PollFd::new(daemon.conn.as_fd(), PollFlags::POLLIN)),
            Link::Lost(back) => fds.push(PollFd::new(back.as_fd(), PollFlags::POLLIN)),
        }
        fds.extend(outputs.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // Rounded up: waking too early would only be to wait again.
        let rest = self.rest().map(|rest| rest + Duration::from_millis(1));
        let timeout = rest.map_or(PollTimeout::NONE, |rest| PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX));
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(e) => return Err(e.into()),
        }
        let is_ready = |i: usize| fds.get(i).and_then(PollFd::any).unwrap_or(false);
        let is_closed = |events: PollFlags| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        let is_open = matches!(self.link, Link::Open(_));
        Ok(Ready {
            keys: is_ready(0),
            gone: fds[0].revents().is_some_and(is_closed),
            signals: is_ready(1),
            daemon: is_open && is_ready(2),
            back: !is_open && is_ready(2),
            outputs: outputs.is_some() && fds.len().checked_sub(1).is_some_and(is_ready),
        })
    }

    fn signals(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.fd.read_signal()? {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            if number == Signal::SIGWINCH as i32 {
                let (columns, rows) = self.terminal.size()?;
                self.take(Input::Size(columns, rows));
            } else {
                self.ended_by = Some(128 + u8::try_from(number).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// What the daemon has said.
    fn hear(&mut self) -> Result<(), ClientError> {
        let Link::Open(daemon) = &mut self.link else { return Ok(()) };
        let is_open = daemon.conn.fill()?;
        let mut heard = Vec::new();
        while let Some(answer) = daemon.conn.next_whole()? {
            heard.push(answer);
        }
        for answer in heard {
            match answer {
                Answer::Changed(changed) => {
                    if let Link::Open(daemon) = &mut self.link {
                        daemon.is_asked = false;
                    }
                    self.looked = Some(Instant::now());
                    self.take(Input::Changed(changed));
                }
                answer => {
                    self.take(Input::Answer(answer));
                    self.ticked = Instant::now();
                }
            }
        }
        if is_open { Ok(()) } else { Err(ClientError::Broken(FrameError::Closed)) }
    }

    fn lost(&mut self) {
        match SocketWatch::new(&self.paths) {
            Ok(watch) => self.link = Link::Lost(watch),
            // Its directory is gone, and it with it.
            Err(_) => self.ended_by = Some(1),
        }
        self.take(Input::Lost);
        // It may be back already.
        self.reconnect();
    }

    fn reconnect(&mut self) {
        if let Link::Lost(back) = &self.link {
            back.clear();
            if let Ok(daemon) = Daemon::open(&self.paths) {
                self.link = Link::Open(daemon);
            }
        }
    }

    fn time_passes(&mut self) {
        if self.screen.ticks() && self.ticked.elapsed() >= TICK {
            let now = self.screen.now().plus(self.ticked.elapsed());
            self.ticked = Instant::now();
            self.take(Input::Tick(now));
        }
        if self.outputs.is_due() {
            self.read_outputs();
        }
    }

    fn read_outputs(&mut self) {
        for (side, text) in self.outputs.read(|side| lines(&self.screen, side)) {
            self.screen.update(Input::Log(side, text));
        }
    }

    fn take(&mut self, input: Input) {
        for action in self.screen.update(input) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Quit => self.ended_by = Some(0),
            Action::Suspend => {
                if self.terminal.suspend().is_err() {
                    self.ended_by = Some(1);
                }
                self.act(Action::Redraw);
            }
            Action::Do { what, jobs } => {
                let told = self.carry_out(what, jobs);
                self.take(Input::Told(told));
            }
            Action::OpenLogs { out, err } => {
                self.outputs = Outputs::of(out, err);
                self.read_outputs();
            }
            Action::CloseLogs => self.outputs = Outputs::default(),
            Action::Log { side, to } => {
                if let Err(why) = self.outputs.go(side, &to, lines(&self.screen, side)) {
                    self.take(Input::Told(why));
                }
                self.read_outputs();
            }
            Action::Redraw => self.read_outputs(),
        }
    }

    /// Asks for it, and what there is to tell of it.
    fn carry_out(&self, what: Deed, jobs: Vec<JobRef>) -> String {
        let of = |action| (action, Request::Control { jobs: jobs.clone(), action: control(what) });
        let (done, request) = match what {
            Deed::Cancel => {
                let uid = nix::unistd::getuid().as_raw();
                ("cancelled", Request::Cancel(CancelAsk { query: JobQuery::of(jobs), uid, ..CancelAsk::default() }))
            }
            Deed::Hold => of("held"),
            Deed::Release => of("released"),
            Deed::Top => of("put first"),
            Deed::Requeue => of("put back into the queue"),
        };
        match Connection::open(&self.paths).and_then(|mut conn| conn.ask(&request, &[])) {
            Ok((Answer::Done(outcomes), _)) => told(done, &outcomes),
            Ok((Answer::Refused(why), _)) => why.to_string(),
            Ok(_) => "the daemon's answer makes no sense here".to_owned(),
            Err(e) => e.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }
}

fn control(what: Deed) -> ControlAction {
    match what {
        Deed::Release => ControlAction::Release,
        Deed::Top => ControlAction::Top,
        Deed::Requeue => ControlAction::Requeue,
        Deed::Hold | Deed::Cancel => ControlAction::Hold,
    }
}

fn lines(screen: &Screen, side: Side) -> usize {
    screen.part_lines(side.part())
}

/// `held: 12, 13; job 14: Job/step already completing or completed`
fn told(done: &str, outcomes: &[Outcome]) -> String {
    let is_done = |outcome: &&Outcome| outcome.result.is_ok();
    let (well, badly): (Vec<&Outcome>, Vec<&Outcome>) = outcomes.iter().partition(is_done);
    let names: Vec<String> = well.iter().map(|outcome| outcome.target.to_string()).collect();
    let mut parts = Vec::new();
    if !names.is_empty() {
        parts.push(format!("{done}: {}", names.join(", ")));
    }
    for outcome in badly {
        if let Err(why) = &outcome.result {
            parts.push(format!("job {}: {why}", outcome.target));
        }
    }
    parts.join("; ")
}
