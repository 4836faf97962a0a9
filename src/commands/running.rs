//! Whether a daemon answers.

use crate::client::connection::{ClientError, Connection};
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::FrameError;
use slotd_protocol::request::Request;
use slotd_sys::paths::Paths;
use std::sync::mpsc;
use std::time::Duration;

/// Maximum time for a running daemon to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer of a running daemon.
#[derive(Debug)]
pub enum Running {
    /// Its configuration.
    Config(Vec<(String, String)>),
    /// It belongs to another version of slotd, and this command does not understand it. The text
    /// says what to do.
    Other(String),
}

/// Returns the answer of the daemon, or `None` if it does not answer in time.
pub fn running(paths: &Paths) -> Option<Running> {
    let (answer, news) = mpsc::channel();
    let paths = paths.clone();
    // In a thread, since even connecting to a hung daemon may block.
    std::thread::spawn(move || match ask(&paths) {
        Ok(Answer::Config(config)) => answer.send(Running::Config(config)).ok(),
        Err(error @ ClientError::Broken(FrameError::Version(_))) => {
            answer.send(Running::Other(error.to_string())).ok()
        }
        Ok(_) | Err(_) => None,
    });
    news.recv_timeout(PATIENCE).ok()
}

fn ask(paths: &Paths) -> Result<Answer, ClientError> {
    let mut daemon = Connection::open(paths)?;
    daemon.send(&Request::Config, &[])?;
    Ok(daemon.wait()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_protocol::VERSION;
    use slotd_protocol::frame::Frame;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// Returns what a command sees of a daemon that answers with this frame.
    fn seen(answer: Vec<u8>) -> Option<Running> {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        std::fs::create_dir_all(paths.socket().parent().unwrap()).unwrap();
        let listener = UnixListener::bind(paths.socket()).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 4096]).unwrap();
            client.write_all(&answer).unwrap();
        });
        let seen = running(&paths);
        daemon.join().unwrap();
        seen
    }

    #[test]
    fn a_daemon_of_another_version_runs() {
        let config = vec![("Key".to_owned(), "value".to_owned())];
        let mut answer = Frame::encode(&Answer::Config(config.clone()), &[]).unwrap();
        assert!(matches!(seen(answer.clone()), Some(Running::Config(known)) if known == config));
        let at = answer.iter().position(|byte| u16::from(*byte) == VERSION).unwrap();
        answer[at] += 1;
        let Some(Running::Other(text)) = seen(answer) else { panic!("it answers") };
        assert!(text.contains("this command is older than the daemon"), "{text}");
        assert!(seen(b"HTTP/1.1 400 Bad Request\r\n".to_vec()).is_none());
        assert!(seen(Vec::new()).is_none());
    }
}
