//! An independent implementation of the daemon's protocol, which can also send invalid frames.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The protocol version of the daemon under test.
pub const VERSION: u16 = 12;

/// The length of a frame header: magic, version, two zero bytes, and the lengths of the JSON and
/// the raw bytes.
const HEADER: usize = 16;

/// Connects to the daemon of a root, whatever the length of its path.
pub fn connect(root: &Path) -> io::Result<UnixStream> {
    let dir = std::fs::File::open(root.join("run"))?;
    let socket = UnixStream::connect(format!("/proc/self/fd/{}/slotd.sock", dir.as_raw_fd()))?;
    socket.set_read_timeout(Some(super::PATIENCE))?;
    Ok(socket)
}

/// Builds a frame header with any lengths.
pub fn header(json: u32, raw: u32) -> Vec<u8> {
    let mut out = b"SLTD".to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend([0, 0]);
    out.extend(json.to_le_bytes());
    out.extend(raw.to_le_bytes());
    assert_eq!(out.len(), HEADER);
    out
}

/// Builds a frame.
pub fn frame(json: &[u8], raw: &[u8]) -> Vec<u8> {
    let mut out = header(json.len() as u32, raw.len() as u32);
    out.extend(json);
    out.extend(raw);
    out
}

/// Receives a frame and returns its JSON.
pub fn receive(socket: &mut UnixStream) -> io::Result<Value> {
    Ok(receive_whole(socket)?.0)
}

/// Receives a frame and returns its JSON and its raw bytes.
pub fn receive_whole(socket: &mut UnixStream) -> io::Result<(Value, Vec<u8>)> {
    let mut header = [0; HEADER];
    socket.read_exact(&mut header)?;
    let length = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap()) as usize;
    let mut json = vec![0; length(8)];
    socket.read_exact(&mut json)?;
    let mut raw = vec![0; length(12)];
    socket.read_exact(&mut raw)?;
    Ok((serde_json::from_slice(&json)?, raw))
}

/// Sends a request and returns the answer.
pub fn ask(root: &Path, request: &Value) -> Result<Value, String> {
    let talk = || -> io::Result<Value> {
        let mut socket = connect(root)?;
        socket.write_all(&frame(request.to_string().as_bytes(), &[]))?;
        receive(&mut socket)
    };
    let answer = talk().map_err(|e| e.to_string())?;
    match answer.get("Refused") {
        Some(why) => Err(why.to_string()),
        None => Ok(answer),
    }
}

/// Reads until the daemon closes the connection, and returns the bytes received.
pub fn drain(mut socket: UnixStream) -> Vec<u8> {
    drop(socket.set_read_timeout(Some(super::PATIENCE)));
    let mut all = Vec::new();
    drop(socket.read_to_end(&mut all));
    all
}
