//! `slotd top`: shows the queue in a full-screen view.
//!
//! The event loop around [`crate::tui`]. It waits for keys, for notifications from the daemon and
//! for changes of the shown files, and for nothing else while no job runs. Work that may take long
//! is done in the background.

mod actions;
mod background;
mod elsewhere;
mod outputs;
mod signals;
mod terminal;
mod window;

use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::client::connection::ClientError;
use crate::client::follow::{Follower, Heard};
use crate::commands::launch::signal_text;
use crate::commands::output::print_stderr;
use crate::commands::{Done, now, origin, output, paths};
use crate::tui::page::Side;
use crate::tui::state::{JobAction, Words};
use crate::tui::theme::{self, Palette, Theme};
use crate::tui::{Action, Input, Screen};
use background::{Background, News};
use elsewhere::Elsewhere;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use outputs::Outputs;
use signals::{Asked, Signals};
use slotd_model::JobRef;
use slotd_sys::paths::Paths;
use slotd_sys::system::CpuTimes;
use slotd_sys::user::user_name;
use slotd_sys::{break_point, system};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use terminal::Terminal;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd top\n  slotd top --theme=light\n  NO_COLOR=1 slotd top    without colours"
)]
pub struct TopArgs {
    /// Select colors for a dark or light background, if the terminal has 256 colors
    #[arg(long, value_enum, value_name = "THEME", default_value_t)]
    theme: Choice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Choice {
    /// The background in COLORFGBG; if it is not set, only the 16 colors of the terminal
    #[default]
    Auto,
    Dark,
    Light,
}

/// Returns the appearance that the options and the environment ask for.
fn appearance(choice: Choice, origin: &Origin) -> Theme {
    let background = match choice {
        Choice::Auto => origin.nonempty("COLORFGBG").and_then(theme::Background::of),
        Choice::Dark => Some(theme::Background::Dark),
        Choice::Light => Some(theme::Background::Light),
    };
    let has_256 = origin.nonempty("COLORTERM").is_some()
        || origin.nonempty("TERM").is_some_and(|term| term.contains("256color"));
    let palette = match origin.nonempty("NO_COLOR") {
        Some(_) => Palette::None,
        None => Palette::of(has_256, background),
    };
    Theme { palette, ascii: !output::is_utf8(origin) }
}

/// Interval at which the times on the screen are updated while a job runs.
const TICK: Duration = Duration::from_secs(1);

/// Minimum time between two updates of the queue, however often it changes.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

pub fn run(args: &TopArgs) -> Done {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliError::error(1, "slotd top needs a terminal for its input and output")
            .hint("use squeue instead"));
    }
    let paths = paths()?;
    let follower = Follower::new(&paths)?.with_pause(LOOK_PAUSE);
    let signals =
        Signals::take().map_err(|e| CliError::error(1, format!("cannot handle signals: {e}")))?;
    let terminal = Terminal::enter().map_err(Ended::Terminal)?;
    let size = terminal.size().map_err(Ended::Terminal)?;
    let origin = origin();
    let ctx = output::ctx(&origin, now());
    let theme = appearance(args.theme, &origin);
    let mut top = Top {
        screen: Screen::new(ctx, theme, Words { signal: signal_text, user: user_name }, size),
        terminal,
        follower,
        outputs: Outputs::default(),
        elsewhere: Elsewhere::new(),
        background: Background::new().map_err(Ended::Terminal)?,
        paths,
        signals,
        ticked: Instant::now(),
        cpu_times: CpuTimes::default(),
    };
    top.show_elsewhere();
    match top.run() {
        Ended::With(code) => Ok(code),
        failed => Err(failed.into()),
    }
}

/// Why the loop ends.
enum Ended {
    With(u8),
    Terminal(io::Error),
    Daemon(ClientError),
}

impl From<io::Error> for Ended {
    fn from(e: io::Error) -> Ended {
        Ended::Terminal(e)
    }
}

impl From<Ended> for CliError {
    fn from(ended: Ended) -> CliError {
        match ended {
            Ended::With(code) => CliError { exit: code.into(), ..CliError::default() },
            Ended::Terminal(e) => CliError::error(1, format!("cannot use the terminal: {e}")),
            Ended::Daemon(e) => e.into(),
        }
    }
}

struct Top {
    screen: Screen,
    terminal: Terminal,
    follower: Follower,
    outputs: Outputs,
    elsewhere: Elsewhere,
    background: Background,
    paths: Paths,
    signals: Signals,
    /// When the daemon's time was last received or advanced.
    ticked: Instant,
    /// The CPU times at that moment.
    cpu_times: CpuTimes,
}

/// The events that ended a wait.
#[derive(Default)]
struct Ready {
    keys: bool,
    /// The terminal was closed. It must not be read then: crossterm would loop forever.
    gone: bool,
    signals: bool,
    outputs: bool,
    elsewhere: bool,
    daemon: bool,
    background: bool,
}

impl Top {
    fn run(mut self) -> Ended {
        loop {
            if let Err(ended) = self.turn() {
                return ended;
            }
        }
    }

    /// Draws the screen, then waits for events and handles them.
    fn turn(&mut self) -> Result<(), Ended> {
        self.follower.go_on();
        if let Some(question) = self.screen.next_request() {
            self.follower.ask(&question);
        }
        // The new size may be known before SIGWINCH arrives.
        if let Some((columns, rows)) = self.terminal.draw(&self.screen)? {
            self.take(Input::Size(columns, rows))?;
            self.terminal.draw(&self.screen)?;
        }
        break_point::panic_at("screen drawn");
        let ready = self.wait()?;
        if ready.signals {
            self.signals()?;
        }
        if ready.gone {
            return Err(Ended::With(128 + Signal::SIGHUP as u8));
        }
        if ready.keys {
            for input in self.terminal.events()? {
                self.take(input)?;
            }
        }
        if ready.daemon {
            self.receive()?;
        }
        if ready.background {
            for news in self.background.news() {
                self.note(news)?;
            }
        }
        if ready.outputs {
            self.outputs.changed();
        }
        if ready.elsewhere {
            self.elsewhere.changed();
            self.show_elsewhere();
        }
        self.elsewhere.ask(&self.background);
        self.time_passes()
    }

    /// Returns the time until the next scheduled work, or `None` if nothing is scheduled.
    fn rest(&self) -> Option<Duration> {
        let tick = self.screen.ticks().then(|| TICK.saturating_sub(self.ticked.elapsed()));
        [tick, self.follower.rest(), self.outputs.rest(), self.elsewhere.rest()]
            .into_iter()
            .flatten()
            .min()
    }

    fn wait(&self) -> io::Result<Ready> {
        let stdin = io::stdin();
        let always =
            [stdin.as_fd(), self.signals.as_fd(), self.follower.fd(), self.background.as_fd()];
        let (outputs, elsewhere) = (self.outputs.watched(), self.elsewhere.watched());
        let after = always.len() + usize::from(outputs.is_some());
        let is_there = [outputs.is_some(), elsewhere.is_some()];
        let fds = always.into_iter().chain(outputs).chain(elsewhere);
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Rounded up, since waking too early would only mean another wait.
        let rest = self.rest().map(|rest| rest + Duration::from_millis(1));
        let timeout = rest.map_or(PollTimeout::NONE, |rest| {
            PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(e) => return Err(e.into()),
        }
        let is_ready = |i: usize| fds.get(i).and_then(PollFd::any).unwrap_or(false);
        let is_closed =
            |events: PollFlags| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        Ok(Ready {
            keys: is_ready(0),
            gone: fds[0].revents().is_some_and(is_closed),
            signals: is_ready(1),
            daemon: is_ready(2),
            background: is_ready(3),
            outputs: is_there[0] && is_ready(4),
            elsewhere: is_there[1] && is_ready(after),
        })
    }

    fn signals(&mut self) -> Result<(), Ended> {
        for asked in self.signals.asked()? {
            match asked {
                Asked::Size => {
                    let (columns, rows) = self.terminal.size()?;
                    self.take(Input::Size(columns, rows))?;
                }
                Asked::Stop => self.suspend(|| raise(Signal::SIGTSTP))?,
                Asked::Continued => self.terminal.back()?,
                Asked::End(number) => return Err(Ended::With(128 + number)),
            }
        }
        Ok(())
    }

    /// Stops until the shell continues the process.
    fn suspend(&mut self, stop: impl FnOnce() -> nix::Result<()>) -> Result<(), Ended> {
        self.terminal.leave();
        self.signals.without(stop)?.map_err(io::Error::from)?;
        self.terminal.back()?;
        let (columns, rows) = self.terminal.size()?;
        self.take(Input::Size(columns, rows))
    }

    /// Handles messages from the daemon.
    fn receive(&mut self) -> Result<(), Ended> {
        self.follower.read().map_err(Ended::Daemon)?;
        while let Some(heard) = self.follower.next() {
            match heard {
                Heard::Changed(changed) => self.take(Input::Changed(changed))?,
                Heard::Away => self.take(Input::Lost)?,
                Heard::Answer(answer) => {
                    self.take(Input::Answer(*answer))?;
                    self.ticked = Instant::now();
                }
            }
        }
        Ok(())
    }

    fn show_elsewhere(&mut self) {
        self.screen.update(Input::Elsewhere(self.elsewhere.lines()));
    }

    fn time_passes(&mut self) -> Result<(), Ended> {
        if !self.screen.ticks() {
            // The previous measurement is too old to compare with.
            self.cpu_times = CpuTimes::default();
        } else if self.ticked.elapsed() >= TICK {
            let now = self.screen.now().plus(self.ticked.elapsed());
            self.ticked = Instant::now();
            let before = std::mem::replace(&mut self.cpu_times, system::probe_cpu_times());
            self.take(Input::Tick { now, cpus: self.cpu_times.share_since(&before) })?;
        }
        if self.outputs.is_due() {
            self.read_outputs();
        }
        Ok(())
    }

    fn read_outputs(&mut self) {
        for (side, text) in self.outputs.read(|side| lines(&self.screen, side)) {
            self.screen.update(Input::Log(side, text));
        }
    }

    /// Handles a result from the background.
    fn note(&mut self, news: News) -> Result<(), Ended> {
        match news {
            News::Done(text) => self.take(Input::Message(text)),
            News::Searching { search, done, of } if self.outputs.is_searching(search) => {
                self.take(Input::Searching { done, of })
            }
            News::Searched { search, side, found } if self.outputs.is_searching(search) => {
                let message = match found {
                    Ok(hit) => {
                        self.outputs.found(side, hit.at);
                        hit.around.map(str::to_owned)
                    }
                    Err(why) => {
                        self.outputs.stop_search();
                        Some(why.to_string())
                    }
                };
                self.read_outputs();
                self.take(Input::Searched(message))
            }
            News::Elsewhere(answered) => {
                self.elsewhere.note(answered);
                self.show_elsewhere();
                Ok(())
            }
            // From an abandoned search.
            News::Searching { .. } | News::Searched { .. } => Ok(()),
        }
    }

    fn take(&mut self, input: Input) -> Result<(), Ended> {
        self.screen.update(input).into_iter().try_for_each(|action| self.act(action))
    }

    fn act(&mut self, action: Action) -> Result<(), Ended> {
        match action {
            Action::Quit => return Err(Ended::With(0)),
            // Stop the whole process group, as the terminal would do, including a script that runs
            // `slotd top`.
            Action::Suspend => return self.suspend(|| kill(Pid::from_raw(0), Signal::SIGTSTP)),
            Action::Do { what, jobs } => self.start(what, jobs),
            Action::Edit(job) => return self.edit(&job),
            Action::OpenLogs { out, err } => {
                self.outputs = Outputs::of(out, err);
                self.read_outputs();
            }
            Action::CloseLogs => self.outputs = Outputs::default(),
            Action::Log { side, to } => {
                if let Err(why) =
                    self.outputs.go(side, &to, lines(&self.screen, side), &self.background)
                {
                    self.take(Input::Message(why.to_string()))?;
                }
                self.read_outputs();
            }
            Action::StopSearch => {
                self.outputs.stop_search();
                return self.take(Input::Searched(Some("the search was stopped".to_owned())));
            }
            Action::Redraw => self.read_outputs(),
        }
        Ok(())
    }

    /// Carries out an action in the background, since the daemon may take long to answer.
    fn start(&mut self, what: JobAction, jobs: Vec<JobRef>) {
        let paths = self.paths.clone();
        let started = self.background.start(move |reporter| {
            reporter.report(News::Done(actions::carry_out(&paths, what, jobs)))
        });
        if let Err(e) = started {
            self.screen
                .update(Input::Message(format!("nothing was done: cannot start a thread: {e}")));
        }
    }

    /// Leaves the screen to the user's editor. `slotd edit` prints the result there, since it may
    /// have several lines.
    fn edit(&mut self, job: &JobRef) -> Result<(), Ended> {
        self.terminal.leave();
        let started = self.signals.without(|| actions::editor(job).spawn())?;
        let failure = match started {
            Ok(mut child) => {
                self.signals.behind(|| {
                    let ended = child.wait();
                    wait_for_enter();
                    ended
                })??;
                None
            }
            Err(e) => Some(format!("cannot start slotd edit: {e}")),
        };
        // Interrupts were meant for the editor. The size is queried anyway.
        let asked = self.signals.asked()?;
        self.terminal.back()?;
        if let Some(end) = asked.into_iter().find(|asked| is_end(*asked))
            && let Asked::End(number) = end
        {
            return Err(Ended::With(128 + number));
        }
        let (columns, rows) = self.terminal.size()?;
        self.take(Input::Size(columns, rows))?;
        failure.map_or(Ok(()), |why| self.take(Input::Message(why)))
    }
}

/// Waits for Enter, so that earlier output stays visible until then.
fn wait_for_enter() {
    print_stderr("Press Enter to return to slotd top: ");
    // Return even if reading fails.
    let _ = io::stdin().read_line(&mut String::new());
}

/// Returns whether a signal that arrived while another program had the terminal ends this one.
/// Interrupts were meant for the other program.
fn is_end(asked: Asked) -> bool {
    matches!(asked, Asked::End(number) if ![Signal::SIGINT as u8, Signal::SIGQUIT as u8].contains(&number))
}

fn lines(screen: &Screen, side: Side) -> usize {
    screen.part_lines(side.part())
}
