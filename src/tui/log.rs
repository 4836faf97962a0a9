//! A part of an output as it is on the screen. Which part is read of the file is the loop's
//! business.

/// What the loop has read of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    pub path: String,
    pub lines: Vec<String>,
    /// Where the first line begins, and how long the file is, bytes.
    pub at: u64,
    pub size: u64,
    /// Why there is nothing to read.
    pub error: Option<String>,
    /// The end stays in sight.
    pub follows: bool,
}

/// Where to look in an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    Lines(i64),
    Start,
    End,
    /// Follow the end, or stand still.
    Follow,
    /// The next line with this in it, or the one before.
    Search {
        text: String,
        back: bool,
    },
}

/// What a terminal would show of a line, with what it would act on written out: a progress bar that
/// draws over itself leaves its last state.
pub fn shown(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let last = line.rsplit('\r').next().unwrap_or_default();
    crate::render::text::printable(last.replace('\t', "    ").into(), true).into_owned()
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_would_do_something_to_the_terminal_is_written_out() {
        assert_eq!(shown("a\tb\u{1b}[2J"), "a    b\\033[2J");
        assert_eq!(shown(" 10%\r 50%\r 99%\r"), " 99%");
    }
}
