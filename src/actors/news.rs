//! The events of a job, sent to a waiting client as they happen.

use slotd_protocol::answer::Answer;
use tokio::sync::mpsc;

/// The sending end. It is unbounded, since a job has few events and the scheduler must never wait
/// for a client. It closes when the client disconnects.
pub type NewsSender = mpsc::UnboundedSender<Answer>;
