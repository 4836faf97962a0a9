//! How messages and descriptors travel between the daemon, the launcher and a watcher: frames of a length
//! (u32, little endian) and that many bytes over a stream socket, JSON inside.
//!
//! A launch is three frames: the JSON of the `LaunchSpec`, the script, the environment. Its descriptors travel
//! with its first bytes (`sys::socket`).

use crate::exec::launch_spec::LaunchSpec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// A longer frame is a broken peer. Scripts are at most 4 MB with Slurm's default; environments may be larger.
pub const MAX_FRAME: usize = 256 << 20;

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn push_frame(out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).ok().filter(|n| *n as usize <= MAX_FRAME);
    let len = len.ok_or_else(|| bad(&format!("a message of {} bytes is too long", bytes.len())))?;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// One message as a frame.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    push_frame(&mut out, &serde_json::to_vec(message)?)?;
    Ok(out)
}

/// A launch as its three frames.
pub fn encode_launch(spec: &LaunchSpec) -> io::Result<Vec<u8>> {
    let script = spec.script.as_deref();
    let mut out = Vec::with_capacity(1024 + spec.env.len() + script.map_or(0, <[u8]>::len));
    push_frame(&mut out, &serde_json::to_vec(spec)?)?;
    // The first byte of the second frame tells "no script" from "an empty one".
    let mut marked = vec![u8::from(script.is_some())];
    marked.extend_from_slice(script.unwrap_or_default());
    push_frame(&mut out, &marked)?;
    push_frame(&mut out, &spec.env)?;
    Ok(out)
}

/// The launch in three frames' contents.
pub fn decode_launch(json: &[u8], script: &[u8], env: Vec<u8>) -> io::Result<LaunchSpec> {
    let mut spec: LaunchSpec = serde_json::from_slice(json)?;
    spec.script = match script.split_first() {
        Some((1, text)) => Some(text.to_vec()),
        _ => None,
    };
    spec.env = env;
    Ok(spec)
}

/// Collects the bytes of a stream and hands out whole frames.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    read: usize,
}

impl FrameBuffer {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` where more bytes are needed.
    ///
    /// # Errors
    /// A length above `MAX_FRAME`.
    pub fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let rest = &self.bytes[self.read..];
        let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > MAX_FRAME {
            return Err(bad(&format!("a message of {len} bytes is too long")));
        }
        let Some(frame) = body.get(..len) else { return Ok(None) };
        let frame = frame.to_vec();
        self.read += 4 + len;
        Ok(Some(frame))
    }

    /// The next whole frame as a message. A message that this version does not know is skipped: the peer may be
    /// an older or newer slotd.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        while let Some(frame) = self.next_frame()? {
            if let Ok(message) = serde_json::from_slice(&frame) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::launch_spec::{StepCommand, StepEvent};

    #[test]
    fn a_launch_arrives_as_it_was_sent() {
        let spec = LaunchSpec {
            script: Some(b"#!/bin/sh\n\xff\n".to_vec()),
            env: b"A=\xfe\0B=2\0".to_vec(),
            argv: vec!["x y".into()],
            ..LaunchSpec::default()
        };
        let mut buffer = FrameBuffer::default();
        // Byte by byte, as a slow peer would send it.
        let mut frames = Vec::new();
        for byte in encode_launch(&spec).unwrap() {
            buffer.push(&[byte]);
            frames.extend(buffer.next_frame().unwrap());
        }
        assert_eq!(decode_launch(&frames[0], &frames[1], frames[2].clone()).unwrap(), spec);
    }

    #[test]
    fn an_empty_script_is_not_a_missing_one() {
        for script in [None, Some(Vec::new())] {
            let spec = LaunchSpec { script, ..LaunchSpec::default() };
            let mut buffer = FrameBuffer::default();
            buffer.push(&encode_launch(&spec).unwrap());
            let mut next = || buffer.next_frame().unwrap().unwrap();
            assert_eq!(decode_launch(&next(), &next(), next()).unwrap(), spec);
        }
    }

    #[test]
    fn an_unknown_message_is_skipped() {
        let mut buffer = FrameBuffer::default();
        buffer.push(&encode(&serde_json::json!({"from_the_future": 1})).unwrap());
        buffer.push(&encode(&StepCommand::KillAll).unwrap());
        assert_eq!(buffer.next_message::<StepCommand>().unwrap(), Some(StepCommand::KillAll));
        assert_eq!(buffer.next_message::<StepEvent>().unwrap(), None);
    }

    #[test]
    fn a_length_that_nobody_sends_is_an_error() {
        let mut buffer = FrameBuffer::default();
        buffer.push(&u32::MAX.to_le_bytes());
        assert!(buffer.next_frame().is_err());
    }
}
