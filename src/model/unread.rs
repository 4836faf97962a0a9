//! A failed reading of the usage by processes outside jobs.

use std::fmt;

/// The reason why the usage is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    device: &'static str,
    why: String,
}

impl Unread {
    pub fn gpus(why: impl fmt::Display) -> Self {
        Unread { device: "GPU", why: why.to_string() }
    }

    pub fn cpus(why: impl fmt::Display) -> Self {
        Unread { device: "CPU", why: why.to_string() }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the {} usage: {}", self.device, self.why)
    }
}
