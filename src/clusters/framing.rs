//! Separates the output of a remote command from everything else on the same stream.
//!
//! Login shells print greetings, logout files print farewells, and ssh itself prints to standard
//! error. A frame with a random name surrounds the output of the command, on both streams. The end
//! of the frame carries the exit code, so that an exit code of ssh is never taken for one of the
//! command.

use memchr::memmem;

/// The number of bytes before the frame that are kept to explain a failure.
const MOST_BANNER: usize = 16 << 10;

/// Extracts the output of one stream, in pieces of any size.
#[derive(Debug)]
pub struct Framer {
    begin: Vec<u8>,
    end: Vec<u8>,
    /// Bytes that may be the start of a mark.
    held: Vec<u8>,
    banner: Vec<u8>,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Before,
    Inside,
    After(String),
}

impl Framer {
    /// Creates the framer of a stream. `mark` is the random name of the call's frames.
    pub fn new(mark: &str) -> Framer {
        Framer {
            begin: format!("{mark}-begin\n").into_bytes(),
            end: format!("{mark}-end ").into_bytes(),
            held: Vec::new(),
            banner: Vec::new(),
            stage: Stage::Before,
        }
    }

    /// Takes the next bytes of the stream. Returns those that are known to be output.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        if self.stage == Stage::Before {
            match memmem::find(&self.held, &self.begin) {
                Some(at) => {
                    let rest = self.held.split_off(at + self.begin.len());
                    self.held.truncate(at);
                    self.banner.append(&mut self.held);
                    self.held = rest;
                    self.stage = Stage::Inside;
                }
                None => {
                    let sure = self.held.len().saturating_sub(self.begin.len() - 1);
                    self.banner.extend(self.held.drain(..sure));
                }
            }
            let extra = self.banner.len().saturating_sub(MOST_BANNER);
            self.banner.drain(..extra);
        }
        if self.stage != Stage::Inside {
            if self.stage != Stage::Before {
                self.held.clear();
            }
            return Vec::new();
        }
        let Some(at) = memmem::find(&self.held, &self.end) else {
            let sure = self.held.len().saturating_sub(self.end.len() - 1);
            return self.held.drain(..sure).collect();
        };
        let word = &self.held[at + self.end.len()..];
        let Some(newline) = memchr::memchr(b'\n', word) else {
            return self.held.drain(..at).collect();
        };
        let word = String::from_utf8_lossy(&word[..newline]).into_owned();
        self.held.truncate(at);
        self.stage = Stage::After(word);
        std::mem::take(&mut self.held)
    }

    /// Returns whether the output has begun.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Before
    }

    /// Returns the word that ends the frame, usually an exit code; `None` before the end.
    pub fn end(&self) -> Option<&str> {
        match &self.stage {
            Stage::After(word) => Some(word),
            Stage::Before | Stage::Inside => None,
        }
    }

    /// Returns the last part of the stream before the frame. Call it at the end of the stream.
    pub fn banner(&self) -> String {
        let held: &[u8] = if self.stage == Stage::Before { &self.held } else { &[] };
        String::from_utf8_lossy(&[&self.banner, held].concat()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARK: &str = "slotd-0123";

    fn whole(banner: &[u8], output: &[u8], end: &str, farewell: &[u8]) -> Vec<u8> {
        let frame = format!("{MARK}-begin\n");
        let last = format!("{MARK}-end {end}\n");
        [banner, frame.as_bytes(), output, last.as_bytes(), farewell].concat()
    }

    #[test]
    fn output_is_found_between_greeting_and_farewell() {
        let mut framer = Framer::new(MARK);
        let got = framer.feed(&whole(b"Welcome to", b"17\n", "255", b"bye\n"));
        assert_eq!((got.as_slice(), framer.end()), (&b"17\n"[..], Some("255")));
        assert_eq!((framer.banner().as_str(), framer.has_begun()), ("Welcome to", true));
    }

    #[test]
    fn a_connection_that_breaks_has_no_end() {
        let text = whole(b"hi\n", b"17\n", "0", b"");
        for cut in 0..text.len() {
            let mut framer = Framer::new(MARK);
            framer.feed(&text[..cut]);
            assert_eq!(framer.end(), None, "{cut}");
        }
        let mut framer = Framer::new(MARK);
        framer.feed(b"ssh: Permission denied\n");
        assert_eq!(
            (framer.has_begun(), framer.banner().as_str()),
            (false, "ssh: Permission denied\n")
        );
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_output(
            banner in prop::collection::vec(any::<u8>(), 0..40),
            output in prop::collection::vec(prop_oneof![any::<u8>(), Just(b's'), Just(b'-')], 0..60),
            code in 0i32..256,
            cuts in prop::collection::vec(0usize..300, 0..8),
        ) {
            let code = code.to_string();
            let text = whole(&banner, &output, &code, b"Connection closed\n");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut framer = Framer::new(MARK);
            let mut got = Vec::new();
            for pair in cuts.windows(2) {
                got.extend(framer.feed(&text[pair[0]..pair[1]]));
            }
            prop_assert_eq!(&got, &output);
            prop_assert_eq!(framer.end(), Some(code.as_str()));
        }
    }
}
