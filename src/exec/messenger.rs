//! What the daemon and its messengers say to each other. A messenger is a process of this program
//! that sends mail or posts events: the daemon has no more memory and no other threads for it, and
//! no slow host holds it up.

use crate::model::notice::Notice;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The first argument of one that posts events, in the order in which it gets them, until its
/// standard input ends. It reads a [`PostTo`] and then [`Post`]s, and writes a [`Posted`] for each,
/// one a line.
pub const POST_ARG: &str = "__post";

/// The first argument of one that sends a [`Mail`], which it reads as a line of JSON. What goes
/// wrong it says on standard error.
pub const MAIL_ARG: &str = "__mail";

/// What a hook or a mail has left when the daemon ends: time for one that works, and not for one
/// that hangs.
pub const GRACE: Duration = Duration::from_secs(5);

/// Where to post to.
#[derive(Serialize, Deserialize)]
pub struct PostTo {
    pub url: String,
    /// For one try, seconds.
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
    /// The first of the tries has failed, so.
    Failing(String),
    /// All have.
    GivenUp(String),
}

#[derive(Serialize, Deserialize)]
pub struct Mail {
    pub sendmail: PathBuf,
    pub number: u64,
    pub notice: Notice,
}
