//! News for a client that waits: what happens to its job, as it happens.

use crate::protocol::answer::Answer;
use tokio::sync::mpsc;

/// Where news go. Unbounded, since a job makes few of them and the scheduler never waits for a
/// client; a client that is gone closes it.
pub type NewsSender = mpsc::UnboundedSender<Answer>;
