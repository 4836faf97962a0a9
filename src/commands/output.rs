//! Functions shared by the query commands: rendering settings, machine-readable output, printing.

use super::Done;
use crate::args::error::{CliError, Mark};
use crate::args::headings::SHOWN;
use crate::args::options::{DataVersion, Machine};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::client::terminal;
use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use slotd_model::Timestamp;
use slotd_parse::suggest;
use slotd_render::json;
use slotd_render::size::Units;
use slotd_render::text::printable;
use slotd_render::{Columns, Ctx, FormatError, Screen, TimeFormat};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

options! {
    /// The field separators of sacct and sstat.
    #[derive(Debug, Clone, Default, Args)]
    pub struct LineOpts {
        /// Print a | after each field
        #[arg(short = 'p', long, overrides_with = "parsable2", help_heading = SHOWN)]
        pub parsable: bool,
        /// Print a | between fields
        #[arg(short = 'P', long, overrides_with = "parsable", help_heading = SHOWN)]
        pub parsable2: bool,
    }
}

impl LineOpts {
    /// Returns the delimiter and whether it also follows the last field, or `None` for columns.
    pub fn separator<'a>(&self, delimiter: &'a str) -> Option<(&'a str, bool)> {
        (self.parsable || self.parsable2).then_some((delimiter, self.parsable))
    }
}

/// Returns the rendering context: the user's settings and the daemon's clock.
pub fn ctx(origin: &Origin, now: Timestamp) -> Ctx {
    let mut ctx = Ctx::new(now, Rc::clone(&origin.tz), &origin.host);
    ctx.cluster = slotd_model::CLUSTER.to_owned();
    if let Some(format) = origin.nonempty("SLURM_TIME_FORMAT") {
        ctx.time_format = TimeFormat::parse(format);
    }
    ctx.bitstr_len = origin.nonempty("SLURM_BITSTR_LEN").and_then(|n| n.parse().ok());
    ctx.columns = default_columns(origin);
    ctx.screen = (*origin.terminal).map(|columns| screen(columns, origin));
    ctx
}

/// Returns a terminal with this many columns. It has no colours if `NO_COLOR` is set
/// (no-color.org) or its type is unknown.
fn screen(columns: Option<u16>, origin: &Origin) -> Screen {
    let has_colours = origin.nonempty("TERM").is_some_and(|kind| kind != "dumb");
    Screen { columns, has_colours: has_colours && origin.nonempty("NO_COLOR").is_none() }
}

/// Applies `--units` and `--noconvert`.
pub fn units(ctx: &mut Ctx, units: Option<char>, no_convert: bool) {
    if no_convert {
        ctx.units = Units::Keep;
    } else if let Some(unit) = units.and_then(|c| Units::parse(&c.to_string())) {
        ctx.units = unit;
    }
}

/// Returns the default columns: Slurm's if `SLOTD_OUTPUT=slurm` is set.
pub fn default_columns(origin: &Origin) -> Columns {
    if origin.var("SLOTD_OUTPUT") == Some("slurm") { Columns::Slurm } else { Columns::Own }
}

/// Returns whether the locale's character set is UTF-8.
pub fn is_utf8(origin: &Origin) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| origin.nonempty(name));
    locale.is_some_and(|name| name.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// Returns the width of the terminal on standard output, or 80 if it is not a terminal.
pub fn columns() -> u16 {
    terminal::window(io::stdout().as_fd()).map_or(80, |size| size.ws_col)
}

/// Implements `-i/--iterate`: runs `once` repeatedly, with an empty line after each run, until a
/// signal ends it. Prints errors and continues, since the daemon may come back.
pub fn repeat(command: &str, secs: Option<u32>, mut once: impl FnMut() -> Done) -> Done {
    let Some(secs) = secs else { return once() };
    loop {
        if let Err(error) = once() {
            print_error(command, &error);
        }
        print("\n")?;
        // The interval that the user asked for.
        std::thread::sleep(Duration::from_secs(secs.into()));
    }
}

/// Prints to standard error in a single write, so that commands that share a terminal do not
/// interleave their lines.
pub fn print_stderr(text: &str) {
    // An error on standard error cannot be reported anywhere.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints an error to standard error. Escapes control characters, since it may contain user input.
pub fn print_error(command: &str, error: &CliError) {
    let is_terminal = io::stderr().is_terminal();
    for line in error.text(command).lines() {
        report!("{}", printable(line.into(), is_terminal));
    }
}

/// Writes to standard output and flushes. If the reader has exited, SIGPIPE ends the process.
pub fn print(text: &str) -> Done {
    print_bytes(text.as_bytes())
}

/// Like [`print`], for bytes that need not be text.
pub fn print_bytes(mut bytes: &[u8]) -> Done {
    let mut out = io::stdout().lock();
    let written = loop {
        let result = match bytes {
            [] => match out.flush() {
                Ok(()) => break Ok(()),
                failed => failed,
            },
            _ => out.write(bytes).map(|count| bytes = bytes.get(count..).unwrap_or_default()),
        };
        match result.map_err(|error| (error.kind(), error)) {
            Ok(()) | Err((io::ErrorKind::Interrupted, _)) => {}
            // The stream itself does not wait for its reader.
            Err((io::ErrorKind::WouldBlock, _)) => {
                let _ =
                    poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err((_, error)) => break Err(error),
        }
    };
    match written {
        Ok(()) => Ok(0),
        Err(e) => Err(CliError::error(1, format!("cannot write to standard output: {e}"))),
    }
}

/// Asks a question on standard output. Any answer but yes means no, and so does the end of standard
/// input.
pub fn says_yes(question: &str) -> bool {
    print!("{question}");
    let _ = io::stdout().flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    answer.trim_start().starts_with(['y', 'Y'])
}

/// Returns the requested form and shape of a document.
pub fn form(machine: Machine) -> (json::Form, json::Shape) {
    let (form, version) = match machine {
        Machine::Json(version) => (json::Form::Json, version),
        Machine::Yaml(version) => (json::Form::Yaml, version),
    };
    let shape = match version {
        DataVersion::V38 => json::Shape::Slurm22,
        DataVersion::V40 => json::Shape::Slurm23,
    };
    (form, shape)
}

pub fn print_machine(document: Value, machine: Machine) -> Done {
    let (form, shape) = form(machine);
    let document = if shape == json::Shape::Slurm23 { json::newer(document) } else { document };
    print(&match form {
        json::Form::Json => json::text(&document),
        json::Form::Yaml => json::yaml(&document),
    })
}

/// Returns the error for an invalid format: Slurm's text, then a suggestion or the valid names.
pub fn format_error(error: FormatError) -> CliError {
    marked_format_error(Mark::Error, error)
}

/// Like [`format_error`], with another prefix.
pub fn marked_format_error(mark: Mark, error: FormatError) -> CliError {
    let meant =
        suggest::nearest(&error.word, error.names).map(|name| format!("did you mean {name}?"));
    CliError::new(mark, 1, error.message).hint(meant.unwrap_or(error.hint))
}

/// Returns whether a name is that of the one node. Published examples also use `localhost`.
pub fn is_node(name: &str, node: &str) -> bool {
    name == node || name == "localhost"
}

/// Returns whether these users are known to exist without a look at the user database.
pub fn are_known_at_once(users: &[String], origin: &Origin) -> bool {
    users.iter().all(|user| user.parse::<u32>().is_ok() || *user == **origin.user)
}

/// Returns the users that do not exist, which Slurm reports before it continues.
pub fn unknown_users(users: &[String]) -> Vec<&String> {
    let known =
        |user: &String| user.parse::<u32>().is_ok() || slotd_sys::user::uid_of(user).is_some();
    users.iter().filter(|user| !known(user)).collect()
}
