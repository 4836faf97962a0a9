//! The messages between the daemon, the launcher and the watchers: JSON in frames with bare
//! headers.
//!
//! A launch consists of three frames: the JSON of the `LaunchSpec`, the script, and the
//! environment. Its descriptors are sent with its first bytes (`sys::socket`). The command to begin
//! follows.

use crate::launch_spec::LaunchSpec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use slotd_protocol::frame::{Decoder, Frame, Header};
use std::io;

/// Returns a decoder for incoming messages.
pub fn decoder() -> Decoder {
    Decoder::new(Header::Bare)
}

/// Encodes a message as a frame.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    Frame::push_bare(&mut out, &serde_json::to_vec(message)?)?;
    Ok(out)
}

/// Encodes a launch as three frames, without the command to begin.
pub(crate) fn encode_launch(spec: &LaunchSpec) -> io::Result<Vec<u8>> {
    let script = spec.script.as_deref();
    let mut out = Vec::with_capacity(1024 + spec.env.len() + script.map_or(0, <[u8]>::len));
    Frame::push_bare(&mut out, &serde_json::to_vec(spec)?)?;
    // The first byte of the second frame distinguishes an empty script from none.
    let mut marked = vec![u8::from(script.is_some())];
    marked.extend_from_slice(script.unwrap_or_default());
    Frame::push_bare(&mut out, &marked)?;
    Frame::push_bare(&mut out, &spec.env)?;
    Ok(out)
}

/// Decodes a launch from the contents of its three frames.
pub fn decode_launch(json: &[u8], script: &[u8], env: Vec<u8>) -> io::Result<LaunchSpec> {
    let mut spec: LaunchSpec = serde_json::from_slice(json)?;
    spec.script = match script.split_first() {
        Some((1, text)) => Some(text.to_vec()),
        _ => None,
    };
    spec.env = env;
    Ok(spec)
}

/// Returns the next complete message. Skips unknown messages, since the peer may be an older or
/// newer slotd.
pub fn next_message<T: DeserializeOwned>(decoder: &mut Decoder) -> io::Result<Option<T>> {
    while let Some(frame) = decoder.next_frame()? {
        if let Ok(message) = frame.message() {
            return Ok(Some(message));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch_spec::{StepCommand, StepEvent};

    fn roundtrip(spec: &LaunchSpec) -> LaunchSpec {
        let mut decoder = decoder();
        decoder.push(&encode_launch(spec).unwrap());
        let mut next = || decoder.next_frame().unwrap().unwrap().json;
        decode_launch(&next(), &next(), next()).unwrap()
    }

    #[test]
    fn a_launch_arrives_as_it_was_sent() {
        // These are sent later.
        let late = LaunchSpec { broken: Some("x".to_owned()), ..LaunchSpec::default() };
        assert_eq!(roundtrip(&late), LaunchSpec::default());
        let spec = LaunchSpec {
            script: Some(b"#!/bin/sh\n\xff\n".to_vec()),
            env: b"A=\xfe\0B=2\0".to_vec(),
            argv: vec!["x y".into()],
            ..LaunchSpec::default()
        };
        assert_eq!(roundtrip(&spec), spec);
    }

    #[test]
    fn an_empty_script_is_not_a_missing_one() {
        for script in [None, Some(Vec::new())] {
            let spec = LaunchSpec { script, ..LaunchSpec::default() };
            assert_eq!(roundtrip(&spec), spec);
        }
    }

    #[test]
    fn an_unknown_message_is_skipped() {
        let mut decoder = decoder();
        decoder.push(&encode(&serde_json::json!({"from_the_future": 1})).unwrap());
        decoder.push(&encode(&StepCommand::KillAll).unwrap());
        assert_eq!(next_message::<StepCommand>(&mut decoder).unwrap(), Some(StepCommand::KillAll));
        assert_eq!(next_message::<StepEvent>(&mut decoder).unwrap(), None);
    }
}
