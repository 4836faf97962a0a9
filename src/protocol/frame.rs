//! Framing: a fixed header, a JSON part and a part of raw bytes.
//!
//! ```text
//! "SLTD" | version u16 | 0 u16 | length of the JSON u32 | length of the bytes u32 | JSON | bytes     (little endian)
//! ```
//! The raw part carries what need not be text: scripts and environments.

use crate::protocol::VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read};

/// Length of the header in bytes.
pub const HEADER: usize = 16;

/// The longest JSON part in bytes: the whole queue of a hundred thousand jobs fits.
pub const MAX_JSON: usize = 256 << 20;

/// The longest raw part in bytes: a script and an environment.
pub const MAX_RAW: usize = 64 << 20;

/// The longest JSON part that the daemon takes from a client, in bytes.
pub const MAX_REQUEST_JSON: usize = 16 << 20;

const MAGIC: [u8; 4] = *b"SLTD";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    pub json: Vec<u8>,
    pub raw: Vec<u8>,
}

#[derive(Debug)]
pub enum FrameError {
    /// The other side closed the connection between two frames.
    Closed,
    Io(io::Error),
    /// Not our protocol at all.
    NotOurs,
    /// The other side speaks this version.
    Version(u16),
    /// Longer than allowed: what, length, limit.
    TooLong(&'static str, usize, usize),
    /// The JSON part says something this version does not know.
    Content(serde_json::Error),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Closed => f.write_str("the connection was closed"),
            FrameError::Io(e) => write!(f, "io error: {e}"),
            FrameError::NotOurs => f.write_str("the other side does not speak slotd's protocol"),
            FrameError::Version(v) => {
                write!(f, "protocol version {v} on the other side, {VERSION} here: restart the daemon after an upgrade")
            }
            FrameError::TooLong(what, len, max) => write!(f, "{what} of {len} bytes is longer than the {max} allowed"),
            FrameError::Content(e) => write!(f, "malformed message: {e}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<io::Error> for FrameError {
    fn from(e: io::Error) -> Self {
        FrameError::Io(e)
    }
}

/// The two lengths in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    pub json: usize,
    pub raw: usize,
}

/// Reads a header.
///
/// # Errors
/// [`FrameError::NotOurs`], [`FrameError::Version`], or [`FrameError::TooLong`] against `max_json` and [`MAX_RAW`].
pub fn parse_header(header: &[u8; HEADER], max_json: usize) -> Result<Lengths, FrameError> {
    if header[..4] != MAGIC {
        return Err(FrameError::NotOurs);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let length = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
    let (json, raw) = (length(8), length(12));
    if json > max_json {
        return Err(FrameError::TooLong("a message", json, max_json));
    }
    if raw > MAX_RAW {
        return Err(FrameError::TooLong("a script with its environment", raw, MAX_RAW));
    }
    Ok(Lengths { json, raw })
}

impl Frame {
    /// A frame with `message` as its JSON part.
    ///
    /// # Errors
    /// [`FrameError::Content`] where `message` cannot be JSON, [`FrameError::TooLong`] past the limits.
    pub fn encode<T: Serialize>(message: &T, raw: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut out = vec![0; HEADER];
        serde_json::to_writer(&mut out, message).map_err(FrameError::Content)?;
        let json = out.len() - HEADER;
        if json > MAX_JSON {
            return Err(FrameError::TooLong("a message", json, MAX_JSON));
        }
        if raw.len() > MAX_RAW {
            return Err(FrameError::TooLong("a script with its environment", raw.len(), MAX_RAW));
        }
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&(json as u32).to_le_bytes());
        out[12..16].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        out.extend_from_slice(raw);
        Ok(out)
    }

    /// The message in the JSON part.
    ///
    /// # Errors
    /// [`FrameError::Content`].
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, FrameError> {
        serde_json::from_slice(&self.json).map_err(FrameError::Content)
    }

    /// Reads one frame, blocking.
    ///
    /// # Errors
    /// [`FrameError::Closed`] at a clean end, else what went wrong.
    pub fn read(from: &mut impl Read, max_json: usize) -> Result<Frame, FrameError> {
        let mut header = [0; HEADER];
        let mut have = 0;
        while have < HEADER {
            match from.read(&mut header[have..]) {
                Ok(0) if have == 0 => return Err(FrameError::Closed),
                Ok(0) => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset && have == 0 => return Err(FrameError::Closed),
                Err(e) => return Err(e.into()),
            }
        }
        let lengths = parse_header(&header, max_json)?;
        let mut frame = Frame { json: vec![0; lengths.json], raw: vec![0; lengths.raw] };
        from.read_exact(&mut frame.json)?;
        from.read_exact(&mut frame.raw)?;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let bytes = Frame::encode(&vec!["a", "b"], b"raw\0bytes").unwrap();
        let frame = Frame::read(&mut bytes.as_slice(), MAX_JSON).unwrap();
        assert_eq!(frame.message::<Vec<String>>().unwrap(), ["a", "b"]);
        assert_eq!(frame.raw, b"raw\0bytes");
        assert!(matches!(Frame::read(&mut [].as_slice(), MAX_JSON), Err(FrameError::Closed)));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = Frame::encode(&1, b"").unwrap();
        bytes[4] = 77;
        assert!(matches!(Frame::read(&mut bytes.as_slice(), MAX_JSON), Err(FrameError::Version(77))));
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_anything_is_allocated() {
        let mut bytes = Frame::encode(&1, b"").unwrap();
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Frame::read(&mut bytes.as_slice(), MAX_REQUEST_JSON), Err(FrameError::TooLong(..))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::read(&mut bytes.as_slice(), 1000);
        }
    }
}
