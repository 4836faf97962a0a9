//! The framing of all slotd sockets. Pure: bytes in, frames out; `sys::socket` does the I/O.
//!
//! ```text
//! "SLTD" | version u16 | 0 u16 | length of the JSON u32 | length of the bytes u32 | JSON | bytes     (little endian)
//! ```
//! The raw part carries data that need not be text: scripts and environments. Between a daemon and
//! the watchers of its steps, the header is only the length ([`Header::Bare`]). Watchers outlive
//! the version that started them, so nothing there may depend on a version, and these bytes never
//! change.

use crate::VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// Length of the header in bytes.
pub const HEADER: usize = 16;

/// The longest JSON part in bytes. A queue of a hundred thousand jobs fits.
pub(crate) const MAX_JSON: usize = 256 << 20;

/// The longest raw part in bytes: a script and an environment.
pub const MAX_RAW: usize = 64 << 20;

/// The longest JSON part that the daemon accepts from a client, in bytes.
const MAX_REQUEST_JSON: usize = 16 << 20;

/// The longest raw part that the daemon accepts from a client, in bytes. It is larger than a job's
/// limit, so that an oversized job is refused with an explanation.
const MAX_REQUEST_RAW: usize = 16 << 20;

/// The first bytes of a frame, which name the protocol.
pub const MAGIC: [u8; 4] = *b"SLTD";

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    pub json: Vec<u8>,
    pub raw: Vec<u8>,
}

/// A failure to read or write a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other side closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    #[error("io error: {0}")]
    Io(#[from] io::Error),
    /// The other side does not speak slotd's protocol.
    #[error("the other side does not speak slotd's protocol")]
    NotOurs,
    /// The other side speaks this version.
    #[error("protocol version {0} on the other side, {VERSION} here")]
    Version(u16),
    /// A part is too long: its name, length and limit.
    #[error("{0} of {1} bytes is longer than the {2} allowed")]
    TooLong(&'static str, usize, usize),
    /// The JSON part does not match a message of this version.
    #[error("malformed message: {0}")]
    Content(serde_json::Error),
}

impl From<FrameError> for io::Error {
    fn from(e: FrameError) -> Self {
        match e {
            FrameError::Io(e) => e,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}

fn check(what: &'static str, len: usize, max: usize) -> Result<usize, FrameError> {
    if len > max { Err(FrameError::TooLong(what, len, max)) } else { Ok(len) }
}

/// The header of a frame, which determines the maximum lengths of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The protocol version and the lengths of both parts.
    Versioned { max_json: usize, max_raw: usize },
    /// Only the length of the JSON part (u32, little endian), at most [`MAX_JSON`].
    Bare,
}

impl Header {
    /// The header of requests to the daemon.
    pub const REQUEST: Header =
        Header::Versioned { max_json: MAX_REQUEST_JSON, max_raw: MAX_REQUEST_RAW };
    /// The header of answers.
    pub const ANSWER: Header = Header::Versioned { max_json: MAX_JSON, max_raw: MAX_RAW };

    fn size(self) -> usize {
        match self {
            Header::Versioned { .. } => HEADER,
            Header::Bare => 4,
        }
    }

    /// Parses the lengths of the JSON and the raw part. `header` must have [`Self::size`] bytes.
    fn lengths(self, header: &[u8]) -> Result<(usize, usize), FrameError> {
        let number = |at: usize| {
            header[at..at + 4].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte))
        };
        let Header::Versioned { max_json, max_raw } = self else {
            return Ok((check("a message", number(0), MAX_JSON)?, 0));
        };
        if header[..4] != MAGIC {
            return Err(FrameError::NotOurs);
        }
        let version = u16::from_le_bytes([header[4], header[5]]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        Ok((
            check("a message", number(8), max_json)?,
            check("a script with its environment", number(12), max_raw)?,
        ))
    }
}

impl Frame {
    /// Encodes a frame with `message` as its JSON part.
    ///
    /// # Errors
    /// Fails with [`FrameError::Content`] if `message` cannot be serialized, and with
    /// [`FrameError::TooLong`] if a part exceeds its limit.
    pub fn encode<T: Serialize>(message: &T, raw: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut out = vec![0; HEADER];
        serde_json::to_writer(&mut out, message).map_err(FrameError::Content)?;
        Self::complete(out, raw)
    }

    /// Encodes a frame of at most `most` bytes. Returns `None`, without encoding the rest, if it
    /// would be longer.
    ///
    /// # Errors
    /// Like [`Self::encode`].
    pub fn encode_within<T: Serialize>(
        most: usize,
        message: &T,
        raw: &[u8],
    ) -> Result<Option<Vec<u8>>, FrameError> {
        let Some(left) = most.checked_sub(HEADER + raw.len()) else { return Ok(None) };
        let mut out = Limited { bytes: vec![0; HEADER], most: HEADER + left };
        match serde_json::to_writer(&mut out, message) {
            Ok(()) => Self::complete(out.bytes, raw).map(Some),
            Err(e) if e.is_io() => Ok(None),
            Err(e) => Err(FrameError::Content(e)),
        }
    }

    /// Fills in the header before the message and appends the raw part.
    fn complete(mut out: Vec<u8>, raw: &[u8]) -> Result<Vec<u8>, FrameError> {
        let json = check("a message", out.len() - HEADER, MAX_JSON)?;
        check("a script with its environment", raw.len(), MAX_RAW)?;
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&(json as u32).to_le_bytes());
        out[12..16].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        out.extend_from_slice(raw);
        Ok(out)
    }

    /// Appends a frame with a bare header to `out`.
    ///
    /// # Errors
    /// Fails with [`FrameError::TooLong`] if `json` is longer than [`MAX_JSON`].
    pub fn push_bare(out: &mut Vec<u8>, json: &[u8]) -> Result<(), FrameError> {
        let len = check("a message", json.len(), MAX_JSON)?;
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(json);
        Ok(())
    }

    /// Parses the message in the JSON part.
    ///
    /// # Errors
    /// Fails with [`FrameError::Content`] if the JSON is not such a message.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, FrameError> {
        serde_json::from_slice(&self.json).map_err(FrameError::Content)
    }
}

/// A writer that accepts at most `most` bytes.
struct Limited {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects the bytes of a connection and returns whole frames. It never allocates more than it has
/// received, regardless of the lengths in the header.
#[derive(Debug)]
pub struct Decoder {
    header: Header,
    bytes: Vec<u8>,
    /// Bytes at the front that were already returned.
    read: usize,
}

impl Decoder {
    pub fn new(header: Header) -> Decoder {
        Decoder { header, bytes: Vec::new(), read: 0 }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, if it is complete.
    ///
    /// # Errors
    /// Fails if the header is not ours, has another version, or announces more than the limit. The
    /// connection is unusable afterwards.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.read..];
        let size = self.header.size();
        let Some((header, body)) = rest.split_at_checked(size) else { return Ok(None) };
        let (json, raw) = self.header.lengths(header)?;
        let Some(body) = body.get(..json + raw) else { return Ok(None) };
        let (json_part, raw_part) = body.split_at(json);
        let frame = Frame { json: json_part.to_vec(), raw: raw_part.to_vec() };
        self.read += size + json + raw;
        if self.read == self.bytes.len() {
            // Frees the memory of a long frame instead of keeping it for the rest of the
            // connection.
            (self.bytes, self.read) = (Vec::new(), 0);
        }
        Ok(Some(frame))
    }

    /// Returns the number of bytes that the next frame still lacks, as far as its header is known.
    /// A reader that receives no more than this gets only the descriptors that belong to this
    /// frame.
    ///
    /// # Errors
    /// Like [`Self::next_frame`].
    pub fn missing(&self) -> Result<usize, FrameError> {
        let rest = &self.bytes[self.read..];
        let size = self.header.size();
        let whole = match rest.get(..size) {
            None => size,
            Some(header) => {
                let (json, raw) = self.header.lengths(header)?;
                size + json + raw
            }
        };
        Ok(whole.saturating_sub(rest.len()))
    }

    /// Returns the error for the connection ending now: [`FrameError::Closed`] between two frames.
    pub fn end(&self) -> FrameError {
        if self.read == self.bytes.len() {
            FrameError::Closed
        } else {
            FrameError::Io(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoder(header: Header, bytes: &[u8]) -> Decoder {
        let mut decoder = Decoder::new(header);
        decoder.push(bytes);
        decoder
    }

    #[test]
    fn frames_round_trip_however_the_bytes_arrive() {
        let mut bytes = Frame::encode(&vec!["a", "b"], b"raw\0bytes").unwrap();
        bytes.extend(Frame::encode(&vec!["c"], b"").unwrap());
        for piece in [1, 7, bytes.len()] {
            let mut decoder = Decoder::new(Header::ANSWER);
            let mut frames = Vec::new();
            for part in bytes.chunks(piece) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 2);
            assert_eq!(frames[0].message::<Vec<String>>().unwrap(), ["a", "b"]);
            assert_eq!(frames[0].raw, b"raw\0bytes");
            assert!(matches!(decoder.end(), FrameError::Closed));
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_not_encoded() {
        let whole = Frame::encode(&"abc", b"de").unwrap();
        assert_eq!(Frame::encode_within(whole.len(), &"abc", b"de").unwrap(), Some(whole.clone()));
        assert_eq!(Frame::encode_within(whole.len() - 1, &"abc", b"de").unwrap(), None);
        assert_eq!(Frame::encode_within(1, &"abc", b"de").unwrap(), None);
    }

    #[test]
    fn half_a_frame_is_not_a_clean_end() {
        let bytes = Frame::encode(&1, b"x").unwrap();
        for len in 1..bytes.len() {
            let mut decoder = decoder(Header::ANSWER, &bytes[..len]);
            assert_eq!(decoder.next_frame().unwrap(), None);
            assert!(matches!(decoder.end(), FrameError::Io(_)));
        }
    }

    #[test]
    fn missing_bytes_never_reach_past_the_frame() {
        let bytes = Frame::encode(&"abc", b"de").unwrap();
        let mut decoder = Decoder::new(Header::ANSWER);
        assert_eq!(decoder.missing().unwrap(), HEADER);
        decoder.push(&bytes[..HEADER]);
        assert_eq!(decoder.missing().unwrap(), bytes.len() - HEADER);
        decoder.push(&bytes[HEADER..]);
        assert_eq!(decoder.missing().unwrap(), 0);
        decoder.next_frame().unwrap();
        assert_eq!(decoder.missing().unwrap(), HEADER);
    }

    #[test]
    fn an_unknown_version_is_reported() {
        let mut bytes = Frame::encode(&1, b"").unwrap();
        bytes[4] = 77;
        assert!(matches!(
            decoder(Header::ANSWER, &bytes).next_frame(),
            Err(FrameError::Version(77))
        ));
        assert!(matches!(
            decoder(Header::ANSWER, b"GET / HTTP/1.1\r\n").next_frame(),
            Err(FrameError::NotOurs)
        ));
    }

    #[test]
    fn a_length_over_the_limit_is_refused() {
        let mut bytes = Frame::encode(&1, b"").unwrap();
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(
            decoder(Header::REQUEST, &bytes).next_frame(),
            Err(FrameError::TooLong(..))
        ));
        assert!(matches!(decoder(Header::REQUEST, &bytes).missing(), Err(FrameError::TooLong(..))));
        assert!(matches!(
            decoder(Header::Bare, &[255; 4]).next_frame(),
            Err(FrameError::TooLong(..))
        ));
    }

    #[test]
    fn a_bare_frame_is_a_length_and_its_bytes() {
        let mut bytes = Vec::new();
        Frame::push_bare(&mut bytes, b"{}").unwrap();
        assert_eq!(bytes, b"\x02\0\0\0{}", "watchers of every version read this");
        assert_eq!(decoder(Header::Bare, &bytes).next_frame().unwrap().unwrap().json, b"{}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            ours in any::<bool>(),
            piece in 1usize..50,
        ) {
            let mut bytes = bytes;
            if ours && bytes.len() > 6 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
            }
            for header in [Header::Versioned { max_json: 1000, max_raw: 100 }, Header::Bare] {
                let mut decoder = Decoder::new(header);
                for part in bytes.chunks(piece) {
                    decoder.push(part);
                    while let Ok(Some(_)) = decoder.next_frame() {}
                    let _ = decoder.missing();
                }
            }
        }
    }
}
