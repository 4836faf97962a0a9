//! The context of every rendering besides the data: the time, the host and the user's output
//! settings.

use crate::size::Units;
use crate::time::TimeFormat;
use jiff::tz::TimeZone;
use slotd_model::Timestamp;
use slotd_model::late::Late;

use std::rc::Rc;

/// The version shown to Slurm's own clients and to parsers: the Slurm release whose output slotd
/// follows, then slotd's version.
pub const VERSION: &str = concat!("22.05.8-slotd-", env!("CARGO_PKG_VERSION"));

/// The columns of a view when the user names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Columns {
    /// slotd's own tables, with bars between the columns.
    #[default]
    Own,
    /// Slurm's own columns (`SLOTD_OUTPUT=slurm`).
    Slurm,
}

/// The context of a rendering.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// The daemon's clock when it answered.
    pub now: Timestamp,
    /// The user's time zone, looked up only when a time is printed.
    pub tz: Rc<Late<TimeZone>>,
    /// `SLURM_TIME_FORMAT`.
    pub time_format: TimeFormat,
    /// The short host name: the name of the one node.
    pub node: String,
    /// The name in the `Cluster` columns.
    pub cluster: String,
    /// `--noconvert`, `--units`: the units of sizes.
    pub units: Units,
    /// `SLURM_BITSTR_LEN`: the maximum length of a printed list of array tasks, in bytes; 0 removes
    /// the limit. `None` if the variable is not set, which differs from its default of 64 (see
    /// [`crate::array`]).
    pub bitstr_len: Option<usize>,
    /// The kind of default columns.
    pub columns: Columns,
    /// The terminal that the text is printed to, if any. Control characters in names are then
    /// escaped in octal.
    pub screen: Option<Screen>,
}

/// The capabilities of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// Its width in characters; `None` if unknown.
    pub columns: Option<u16>,
    pub has_colours: bool,
}

impl Ctx {
    /// Returns the standard settings for a time, a time zone and a host.
    pub fn new(now: Timestamp, tz: Rc<Late<TimeZone>>, node: &str) -> Self {
        Ctx {
            now,
            tz,
            time_format: TimeFormat::Standard,
            node: node.to_owned(),
            cluster: "slotd".to_owned(),
            units: Units::Exact,
            bitstr_len: None,
            columns: Columns::Own,
            screen: None,
        }
    }

    /// Returns whether the text is printed to a terminal.
    pub fn is_terminal(&self) -> bool {
        self.screen.is_some()
    }

    /// Returns whether the text is printed to a terminal with colours.
    pub fn has_colours(&self) -> bool {
        self.screen.is_some_and(|screen| screen.has_colours)
    }
}
