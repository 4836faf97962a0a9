//! What every rendering needs to know beside the data: the moment, the place and the user's output
//! settings.

use crate::model::Timestamp;
use crate::render::size::Units;
use crate::render::time::TimeFormat;
use jiff::tz::TimeZone;
use std::cell::LazyCell;
use std::rc::Rc;

/// The version that Slurm's own clients and their parsers see: the Slurm release whose output is
/// followed, then ours.
pub const VERSION: &str = concat!("22.05.8-slotd-", env!("CARGO_PKG_VERSION"));

/// Which columns a view has where the user named none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Columns {
    /// slotd's own tables, with bars between the columns.
    #[default]
    Own,
    /// Slurm's own columns (`SLOTD_OUTPUT=slurm`).
    Slurm,
}

/// The surroundings of a rendering.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// The daemon's clock when it answered.
    pub now: Timestamp,
    /// The user's time zone, found out where a time is shown.
    pub tz: Rc<LazyCell<TimeZone>>,
    /// `SLURM_TIME_FORMAT`.
    pub time_format: TimeFormat,
    /// The short host name: the name of the one node.
    pub node: String,
    /// The name that `Cluster` shows.
    pub cluster: String,
    /// `--noconvert`, `--units`: how sizes are written.
    pub units: Units,
    /// `SLURM_BITSTR_LEN`: the longest list of array tasks that is printed, in bytes; 0 lifts the
    /// limit. `None` where the variable is not set, which is not the same as its default of 64 (see
    /// [`crate::render::array`]).
    pub bitstr_len: Option<usize>,
    /// Which default columns.
    pub columns: Columns,
    /// The terminal that the text goes to, if it goes to one: control characters in names are
    /// written in octal then.
    pub screen: Option<Screen>,
}

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// Characters in a line; `None` where it does not tell.
    pub columns: Option<u16>,
    pub has_colours: bool,
}

impl Ctx {
    /// Standard settings at a moment, in a time zone, on a host.
    pub fn new(now: Timestamp, tz: Rc<LazyCell<TimeZone>>, node: &str) -> Self {
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

    /// Whether the text goes to a terminal.
    pub fn is_terminal(&self) -> bool {
        self.screen.is_some()
    }

    /// Whether it goes to one that shows colours.
    pub fn has_colours(&self) -> bool {
        self.screen.is_some_and(|screen| screen.has_colours)
    }
}
