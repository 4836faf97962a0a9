//! The messages between the daemon and its messengers. A messenger is a process of this program
//! that sends mail or posts events. This saves the daemon memory and threads, and a slow host does
//! not delay it.

use serde::{Deserialize, Serialize};
use slotd_model::notice::Notice;
use std::path::PathBuf;
use std::time::Duration;

/// The first argument of a messenger that posts events, in the order in which it receives them,
/// until its standard input ends. It reads a [`PostTo`] followed by [`Post`]s, and writes a
/// [`Posted`] for each, one per line.
pub const POST_ARG: &str = "__post";

/// The first argument of a messenger that sends a [`Mail`], which it reads as a line of JSON. It
/// prints errors to standard error.
pub const MAIL_ARG: &str = "__mail";

/// The time that hooks and mails get when the daemon exits: enough for one that works, but not
/// for one that hangs.
pub const GRACE: Duration = Duration::from_secs(5);

/// The destination of posts.
#[derive(Serialize, Deserialize)]
pub struct PostTo {
    pub url: String,
    /// The timeout of each attempt, in seconds.
    pub timeout_secs: u64,
}

#[derive(Serialize, Deserialize)]
pub struct Post {
    pub number: u64,
    pub notice: Notice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Posted {
    Given,
    /// The first attempt failed, with this error.
    Failing(String),
    /// All attempts failed.
    GivenUp(String),
}

#[derive(Serialize, Deserialize)]
pub struct Mail {
    pub sendmail: PathBuf,
    pub number: u64,
    pub notice: Notice,
}
