//! Outgoing answers. The memory for answers that clients have not read is bounded, even if they
//! never read them.
//!
//! A short answer is always sent at once. A longer one holds a share of a budget while its client
//! reads it. If no share is free, only the unencoded answer is kept, and encoded again once there
//! is one. A client that reads nothing keeps its share until another client needs it, and is then
//! disconnected. A paused pager alone is not an error.

use slotd_model::Refusal;
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::{Frame, FrameError};
use slotd_sys::aside;
use slotd_sys::socket::send_some;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

/// An answer and the raw part of its frame.
pub type Reply = (Answer, Vec<u8>);

/// The size of the largest short answer, in bytes. The socket buffer holds all of it. Longer
/// answers are encoded on another thread, so that the scheduler does not wait.
const SHORT: usize = 64 << 10;

/// The size of the largest medium answer, in bytes. These do not wait for long answers. A part with
/// many jobs is a medium answer.
const MEDIUM: usize = 2 << 20;

/// The budget for medium answers, and the separate one for long answers. A larger answer waits for
/// the whole budget.
const BUDGET_KIB: u32 = 16 << 10;

/// The most answers to encode at the same time before their share of the budget is known.
const ENCODERS: usize = 4;

/// The longest wait of an answer for its share.
const BUDGET_PATIENCE: Duration = Duration::from_secs(30);

/// The longest time that a client may read nothing while another client waits for a share.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// The budgets that all sessions share.
pub struct Answers {
    long: Budget,
    medium: Budget,
    /// Limits how many longer answers are encoded before they have a share.
    encoders: Semaphore,
    read_patience: Duration,
}

struct Budget {
    free_kib: Semaphore,
    /// The number of answers that wait for a share.
    wanted: watch::Sender<usize>,
}

/// The share of a budget that one answer uses.
struct Share<'a> {
    budget: &'a Budget,
    _kib: SemaphorePermit<'a>,
}

impl Budget {
    fn new() -> Budget {
        Budget { free_kib: Semaphore::new(BUDGET_KIB as usize), wanted: watch::Sender::new(0) }
    }

    /// Returns a share without waiting, if one is free.
    fn share_now(&self, kib: u32) -> Option<Share<'_>> {
        Some(Share { budget: self, _kib: self.free_kib.try_acquire_many(kib).ok()? })
    }

    /// Waits for a share. Returns `None` on a timeout.
    async fn share(&self, kib: u32) -> Option<Share<'_>> {
        self.wanted.send_modify(|n| *n += 1);
        let free = timeout(BUDGET_PATIENCE, self.free_kib.acquire_many(kib)).await;
        self.wanted.send_modify(|n| *n -= 1);
        Some(Share { budget: self, _kib: free.ok()?.ok()? })
    }
}

impl Share<'_> {
    /// Waits until another answer wants a share.
    async fn is_wanted(&self) {
        // The sender lives as long as the budget.
        let _ = self.budget.wanted.subscribe().wait_for(|n| *n > 0).await;
    }
}

impl Answers {
    pub fn new() -> Answers {
        Answers {
            long: Budget::new(),
            medium: Budget::new(),
            encoders: Semaphore::new(ENCODERS),
            read_patience: READ_PATIENCE,
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// Fails if the answer cannot be encoded or the client has disconnected. Fails with `TimedOut`
    /// if the client does not read while others wait for its share.
    pub async fn send(
        &self,
        socket: &UnixStream,
        answer: Answer,
        raw: Vec<u8>,
    ) -> Result<(), FrameError> {
        let is_part = matches!(answer, Answer::SomeJobs(_));
        let short = if is_part { None } else { Frame::encode_within(SHORT, &answer, &raw)? };
        if let Some(bytes) = short {
            return Ok(self.write(socket, &bytes, None).await?);
        }
        let reply = Arc::new((answer, raw));
        let (bytes, share) = {
            let _turn = self.encoders.acquire().await.map_err(io::Error::other)?;
            let bytes = off_thread(&reply, encode).await??;
            let share = self.budget(bytes.len()).share_now(kib(bytes.len()));
            (bytes, share)
        };
        if share.is_some() {
            drop(reply);
            return Ok(self.write(socket, &bytes, share).await?);
        }
        let length = bytes.len();
        drop(bytes);
        match self.budget(length).share(kib(length)).await {
            Some(share) => {
                let bytes = off_thread(&reply, encode).await??;
                drop(reply);
                Ok(self.write(socket, &bytes, Some(share)).await?)
            }
            None => Ok(self
                .write(socket, &encode(&Answer::Refused(Refusal::Crowded), &[])?, None)
                .await?),
        }
    }

    fn budget(&self, length: usize) -> &Budget {
        if length > MEDIUM { &self.long } else { &self.medium }
    }

    /// Writes a frame as fast as the client reads it.
    async fn write(
        &self,
        socket: &UnixStream,
        bytes: &[u8],
        share: Option<Share<'_>>,
    ) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let some =
                socket.async_io(Interest::WRITABLE, || send_some(socket, bytes, &[], &mut sent));
            tokio::pin!(some);
            let Some(share) = &share else {
                some.await?;
                continue;
            };
            match timeout(self.read_patience, &mut some).await {
                Ok(done) => done?,
                Err(_) => tokio::select! {
                    done = &mut some => done?,
                    () = share.is_wanted() => return Err(io::ErrorKind::TimedOut.into()),
                },
            }
        }
        Ok(())
    }
}

fn kib(length: usize) -> u32 {
    u32::try_from(length / 1024).unwrap_or(u32::MAX).min(BUDGET_KIB)
}

async fn off_thread<T: Send + 'static>(
    reply: &Arc<Reply>,
    work: fn(&Answer, &[u8]) -> T,
) -> Result<T, FrameError> {
    let reply = Arc::clone(reply);
    let done =
        aside::run("encoding an answer to a client", aside::LONG, move || work(&reply.0, &reply.1))
            .await;
    done.map_err(|e| FrameError::Io(io::Error::other(e)))
}

fn encode(answer: &Answer, raw: &[u8]) -> Result<Vec<u8>, FrameError> {
    match Frame::encode(answer, raw) {
        Err(e) => Frame::encode(&Answer::Refused(Refusal::Unsendable(e.to_string())), &[]),
        bytes => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    async fn send(answers: &Answers, socket: &UnixStream, kib: usize) -> Result<(), FrameError> {
        answers.send(socket, Answer::Script, vec![b'x'; kib << 10]).await
    }

    #[actix_rt::test]
    async fn client_that_reads_nothing_is_disconnected_when_another_needs_its_share() {
        let patience = Duration::from_millis(20);
        let answers = Answers { read_patience: patience, ..Answers::new() };
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (others, mut reader) = UnixStream::pair().unwrap();
        let unread = send(&answers, &ours, 10 << 10);
        tokio::pin!(unread);
        // It must have its share before another one wants one.
        let has_share = async {
            while answers.long.free_kib.available_permits() == BUDGET_KIB as usize {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = has_share => {}
            sent = &mut unread => panic!("sent although nobody read it: {sent:?}"),
        }
        assert!(
            timeout(patience * 20, &mut unread).await.is_err(),
            "no other client needs its share"
        );
        for kib in [1, 100] {
            timeout(BUDGET_PATIENCE / 2, send(&answers, &others, kib))
                .await
                .expect("a shorter answer does not wait")
                .unwrap();
        }
        let second = send(&answers, &others, 10 << 10);
        let reads = async {
            let mut chunk = vec![0; 1 << 16];
            while reader.read(&mut chunk).await.unwrap() > 0 {}
        };
        tokio::pin!(reads);
        let both = async {
            let (unread, second) = tokio::join!(unread, second);
            assert!(
                matches!(unread, Err(FrameError::Io(e)) if e.kind() == io::ErrorKind::TimedOut)
            );
            second.unwrap();
        };
        tokio::select! {
            () = both => {}
            () = &mut reads => panic!("the end came first"),
        }
    }

    #[actix_rt::test]
    async fn longest_answer_is_sent_when_no_other_waits() {
        let answers = Answers::new();
        let (ours, mut reader) = UnixStream::pair().unwrap();
        let reads = async {
            let mut chunk = vec![0; 1 << 16];
            while reader.read(&mut chunk).await.unwrap() > 0 {}
        };
        tokio::select! {
            sent = send(&answers, &ours, 20 << 10) => sent.unwrap(),
            () = reads => panic!("the end came first"),
        }
        assert_eq!(answers.long.free_kib.available_permits(), BUDGET_KIB as usize);
    }
}
