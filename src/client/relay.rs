//! Forwarding of task output: by lines, so that tasks do not cut into each other's, or as it comes;
//! with or without the task's number before each line (srun man page, `--label`, `--unbuffered`).

use std::io::{self, Write};

/// The longest line that is held back for its end.
const MAX_LINE: usize = 64 << 10;

/// One stream of one task.
#[derive(Debug)]
pub struct Relay {
    label: Option<String>,
    unbuffered: bool,
    held: Vec<u8>,
    /// The next byte begins a line.
    at_line_start: bool,
}

impl Relay {
    /// `label` is the task's number where lines are to be labelled.
    pub fn new(label: Option<String>, unbuffered: bool) -> Self {
        Relay { label, unbuffered, held: Vec::new(), at_line_start: true }
    }

    /// Passes on what can be.
    ///
    /// # Errors
    /// What `out` says.
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
            // Its memory is used again.
            whole.clear();
            self.held = whole;
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }

    /// The stream is over: what is left goes out, with the newline that it lacks where lines are
    /// labelled.
    ///
    /// # Errors
    /// What `out` says.
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
                // Another task may be next: each piece is a line of its own, as srun has it.
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

/// The width of labels: as wide as the largest task number, as srun pads them.
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
    fn lines_are_held_until_they_are_whole() {
        assert_eq!(relayed(None, false, &["ab", "c\nd", "\n"]), ["", "abc\n", "d\n", ""]);
    }

    #[test]
    fn a_line_that_is_too_long_is_held_no_longer() {
        let long = "x".repeat(MAX_LINE - 1);
        assert_eq!(
            relayed(None, false, &[&long, "yz", "\n"]),
            ["", &format!("{long}yz"), "\n", ""]
        );
    }

    #[test]
    fn unbuffered_output_goes_on_at_once() {
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
    fn labels_are_as_wide_as_the_largest() {
        assert_eq!(label(3, 4), "3");
        assert_eq!(label(3, 11), "03");
        assert_eq!(label(0, 1), "0");
    }
}
