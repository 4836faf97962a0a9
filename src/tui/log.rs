//! The part of an output that is on the screen. The event loop decides which part of the file to
//! read.

/// The text that the event loop has read from a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    pub path: String,
    pub lines: Vec<String>,
    /// The offset of the first line and the length of the file, bytes.
    pub at: u64,
    pub size: u64,
    /// Why nothing could be read.
    pub error: Option<String>,
    /// Whether the view follows the end of the output.
    pub follows: bool,
}

/// A change of the position in an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    Lines(i64),
    Start,
    End,
    /// Start or stop following the end.
    Follow,
    /// The next or the previous line that contains this text.
    Search {
        text: String,
        back: bool,
    },
}

/// Returns a line as a terminal would show it, with control characters escaped. Only the
/// last state of a progress bar that overwrites itself remains.
pub fn shown(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let last = line.rsplit('\r').next().unwrap_or_default();
    slotd_render::text::printable(last.replace('\t', "    ").into(), true).into_owned()
}

/// Returns a name or another value with all its control characters escaped.
pub fn escaped(value: &str) -> String {
    slotd_render::text::printable(value.replace('\t', "\\011").into(), true).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{escaped, shown};

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\tb\u{1b}[2J"), "a    b\\033[2J");
        assert_eq!(shown(" 10%\r 50%\r 99%\r"), " 99%");
        assert_eq!(escaped("evil\rgood\ta\nb\u{1b}"), "evil\\015good\\011a\\012b\\033");
    }
}
