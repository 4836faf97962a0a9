//! Forwards task output, either line by line, so that tasks do not cut into each other's lines, or
//! unbuffered. Can prefix each line with the task number (srun man page, `--label`,
//! `--unbuffered`).

use std::io::{self, Write};

/// The maximum length of an incomplete line that is buffered, in bytes.
const MAX_LINE: usize = 64 << 10;

/// One stream of one task.
#[derive(Debug)]
pub struct Relay {
    label: Option<String>,
    unbuffered: bool,
    held: Vec<u8>,
    /// The next byte starts a line.
    at_line_start: bool,
}

impl Relay {
    /// Creates a relay. `label` is the task number to prefix lines with.
    pub fn new(label: Option<String>, unbuffered: bool) -> Self {
        Relay { label, unbuffered, held: Vec::new(), at_line_start: true }
    }

    /// Forwards all complete lines, or everything if unbuffered.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        if self.unbuffered {
            return self.write(bytes, out);
        }
        let whole = match bytes.iter().rposition(|b| *b == b'\n') {
            Some(end) => end + 1,
            None if self.held.len() + bytes.len() >= MAX_LINE => bytes.len(),
            None => 0,
        };
        let (lines, rest) = bytes.split_at(whole);
        if self.held.is_empty() {
            self.write(lines, out)?;
        } else if whole > 0 {
            let mut whole = std::mem::take(&mut self.held);
            whole.extend_from_slice(lines);
            self.write(&whole, out)?;
            // Reuse the allocation.
            whole.clear();
            self.held = whole;
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }

    /// Writes the rest at the end of the stream. Labelled lines get a missing newline.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rest = std::mem::take(&mut self.held);
        self.write(&rest, out)?;
        if self.label.is_some() && !self.at_line_start {
            self.at_line_start = true;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    fn write(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &self.label {
            None => out.write_all(bytes)?,
            Some(label) => {
                let mut labelled = Vec::with_capacity(bytes.len() + 16);
                for piece in bytes.split_inclusive(|b| *b == b'\n') {
                    if self.at_line_start {
                        labelled.extend_from_slice(label.as_bytes());
                        labelled.extend_from_slice(b": ");
                    }
                    labelled.extend_from_slice(piece);
                    self.at_line_start = piece.ends_with(b"\n");
                }
                // Another task may write next, so each piece becomes a line of its own, like in
                // srun.
                if self.unbuffered && !self.at_line_start {
                    labelled.push(b'\n');
                    self.at_line_start = true;
                }
                out.write_all(&labelled)?;
            }
        }
        out.flush()
    }
}

/// Returns the label of a task, padded to the width of the largest task number, like in srun.
pub fn label(task: u32, tasks: u32) -> String {
    let width = tasks.saturating_sub(1).to_string().len();
    format!("{task:0width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(label: Option<&str>, unbuffered: bool, parts: &[&str]) -> Vec<String> {
        let mut relay = Relay::new(label.map(str::to_owned), unbuffered);
        let mut seen = Vec::new();
        for part in parts {
            let mut out = Vec::new();
            relay.push(part.as_bytes(), &mut out).unwrap();
            seen.push(String::from_utf8(out).unwrap());
        }
        let mut out = Vec::new();
        relay.finish(&mut out).unwrap();
        seen.push(String::from_utf8(out).unwrap());
        seen
    }

    #[test]
    fn lines_are_buffered_until_they_are_complete() {
        assert_eq!(relayed(None, false, &["ab", "c\nd", "\n"]), ["", "abc\n", "d\n", ""]);
    }

    #[test]
    fn a_very_long_line_is_forwarded_early() {
        let long = "x".repeat(MAX_LINE - 1);
        assert_eq!(
            relayed(None, false, &[&long, "yz", "\n"]),
            ["", &format!("{long}yz"), "\n", ""]
        );
    }

    #[test]
    fn unbuffered_output_is_forwarded_immediately() {
        assert_eq!(relayed(None, true, &["ab", "c\nd"]), ["ab", "c\nd", ""]);
    }

    #[test]
    fn each_line_is_labelled_once() {
        assert_eq!(relayed(Some("0"), false, &["hel", "lo\nx"]), ["", "0: hello\n", "0: x\n"]);
    }

    #[test]
    fn unbuffered_pieces_are_labelled_lines() {
        assert_eq!(
            relayed(Some("0"), true, &["a", "b\nc", "d\n"]),
            ["0: a\n", "0: b\n0: c\n", "0: d\n", ""]
        );
    }

    #[test]
    fn labels_are_padded_to_the_largest_task_number() {
        assert_eq!(label(3, 4), "3");
        assert_eq!(label(3, 11), "03");
        assert_eq!(label(0, 1), "0");
    }
}
