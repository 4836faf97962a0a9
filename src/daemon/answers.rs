//! Answers on their way out: what clients have not read is bounded, whoever does not read.
//!
//! A short answer goes out whatever waits. A longer one takes room for as long as its client reads
//! it; where there is none it is kept as what it says, and written out again once there is. Who
//! reads nothing keeps its room until another client needs it, and loses its connection then: a
//! pager that stands still is no fault.

use crate::model::Refusal;
use crate::protocol::answer::Answer;
use crate::protocol::frame::{Frame, FrameError};
use crate::sys::aside;
use crate::sys::socket::send_some;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

/// An answer and the raw part of its frame.
pub type Reply = (Answer, Vec<u8>);

/// Answers of no more bytes than this are short: a socket takes them at once. All others are
/// written out on another thread: the scheduler does not wait for it.
const SHORT: usize = 64 << 10;

/// Answers of no more bytes than this do not wait for longer ones. A part of many jobs is one of
/// them.
const MIDDLING: usize = 2 << 20;

/// Budget for middling answers, and as much for long ones. A longer one goes out when no other waits.
const ROOM_KIB: u32 = 16 << 10;

/// Answers that are written out at once to see whether there is room for them.
const ENCODERS: usize = 4;

/// How long an answer waits for room.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may read nothing while another one waits for its room.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// The room that all sessions share.
pub struct Answers {
    long: Budget,
    middling: Budget,
    /// How many longer answers may be written out before it is known what room they take.
    encoders: Semaphore,
    read_patience: Duration,
}

struct Budget {
    free_kib: Semaphore,
    /// How many answers wait for it.
    wanted: watch::Sender<usize>,
}

/// The part of a budget that one answer uses.
struct Place<'a> {
    budget: &'a Budget,
    _kib: SemaphorePermit<'a>,
}

impl Budget {
    fn new() -> Budget {
        Budget { free_kib: Semaphore::new(ROOM_KIB as usize), wanted: watch::Sender::new(0) }
    }

    /// Without waiting.
    fn place_now(&self, kib: u32) -> Option<Place<'_>> {
        Some(Place { budget: self, _kib: self.free_kib.try_acquire_many(kib).ok()? })
    }

    /// `None`: it took too long.
    async fn place(&self, kib: u32) -> Option<Place<'_>> {
        self.wanted.send_modify(|n| *n += 1);
        let free = timeout(ROOM_PATIENCE, self.free_kib.acquire_many(kib)).await;
        self.wanted.send_modify(|n| *n -= 1);
        Some(Place { budget: self, _kib: free.ok()?.ok()? })
    }
}

impl Place<'_> {
    /// Ends when somebody waits for room.
    async fn is_wanted(&self) {
        // The sender lives as long as the budget.
        let _ = self.budget.wanted.subscribe().wait_for(|n| *n > 0).await;
    }
}

impl Answers {
    pub fn new() -> Answers {
        Answers {
            long: Budget::new(),
            middling: Budget::new(),
            encoders: Semaphore::new(ENCODERS),
            read_patience: READ_PATIENCE,
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// It cannot be written out, or the client is gone; `TimedOut` where it does not read and
    /// others need the room.
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
        let (bytes, place) = {
            let _turn = self.encoders.acquire().await.map_err(io::Error::other)?;
            let bytes = off_thread(&reply, encode).await??;
            let place = self.budget(bytes.len()).place_now(kib(bytes.len()));
            (bytes, place)
        };
        if place.is_some() {
            drop(reply);
            return Ok(self.write(socket, &bytes, place).await?);
        }
        let length = bytes.len();
        drop(bytes);
        match self.budget(length).place(kib(length)).await {
            Some(place) => {
                let bytes = off_thread(&reply, encode).await??;
                drop(reply);
                Ok(self.write(socket, &bytes, Some(place)).await?)
            }
            None => Ok(self
                .write(socket, &encode(&Answer::Refused(Refusal::Crowded), &[])?, None)
                .await?),
        }
    }

    fn budget(&self, length: usize) -> &Budget {
        if length > MIDDLING { &self.long } else { &self.middling }
    }

    /// Writes a frame, as fast as the client reads.
    async fn write(
        &self,
        socket: &UnixStream,
        bytes: &[u8],
        place: Option<Place<'_>>,
    ) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let some =
                socket.async_io(Interest::WRITABLE, || send_some(socket, bytes, &[], &mut sent));
            tokio::pin!(some);
            let Some(place) = &place else {
                some.await?;
                continue;
            };
            match timeout(self.read_patience, &mut some).await {
                Ok(done) => done?,
                Err(_) => tokio::select! {
                    done = &mut some => done?,
                    () = place.is_wanted() => return Err(io::ErrorKind::TimedOut.into()),
                },
            }
        }
        Ok(())
    }
}

fn kib(length: usize) -> u32 {
    u32::try_from(length / 1024).unwrap_or(u32::MAX).min(ROOM_KIB)
}

async fn off_thread<T: Send + 'static>(
    reply: &Arc<Reply>,
    work: fn(&Answer, &[u8]) -> T,
) -> Result<T, FrameError> {
    let reply = Arc::clone(reply);
    let done =
        aside::run("an answer to a client", aside::LONG, move || work(&reply.0, &reply.1)).await;
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
    async fn who_reads_nothing_is_given_up_when_another_needs_the_room() {
        let patience = Duration::from_millis(20);
        let answers = Answers { read_patience: patience, ..Answers::new() };
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (others, mut reader) = UnixStream::pair().unwrap();
        let unread = send(&answers, &ours, 10 << 10);
        tokio::pin!(unread);
        // It has its room before another asks for some.
        let has_room = async {
            while answers.long.free_kib.available_permits() == ROOM_KIB as usize {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = has_room => {}
            sent = &mut unread => panic!("nobody has read it: {sent:?}"),
        }
        assert!(timeout(patience * 20, &mut unread).await.is_err(), "nobody needs the room");
        for kib in [1, 100] {
            timeout(ROOM_PATIENCE / 2, send(&answers, &others, kib))
                .await
                .expect("a shorter one does not wait")
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
    async fn the_longest_answer_goes_out_when_no_other_waits() {
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
        assert_eq!(answers.long.free_kib.available_permits(), ROOM_KIB as usize);
    }
}
