//! The end of a file, found from behind: a log may have gigabytes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// What is read at once.
const CHUNK: u64 = 64 << 10;

/// Where the last `lines` lines of a file begin. What stands behind the last line end counts as a line.
///
/// # Errors
/// The file cannot be read.
pub fn start_of_last(file: &mut File, lines: u64) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let (mut end, mut ends_seen) = (len, 0);
    let mut chunk = Vec::new();
    if lines == 0 {
        return Ok(len);
    }
    while end > 0 {
        let begin = end.saturating_sub(CHUNK);
        file.seek(SeekFrom::Start(begin))?;
        chunk.clear();
        file.take(end - begin).read_to_end(&mut chunk)?;
        for (at, _) in chunk.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let at = begin + at as u64;
            // The end of the last line begins no other.
            if at + 1 < len {
                ends_seen += 1;
            }
            if ends_seen == lines {
                return Ok(at + 1);
            }
        }
        end = begin;
    }
    Ok(0)
}

/// The last lines of a file as text, cut to this many bytes from behind.
///
/// # Errors
/// The file cannot be read.
pub fn last_lines(file: &mut File, lines: u64, most_bytes: u64) -> io::Result<Vec<String>> {
    let start = start_of_last(file, lines)?.max(file.metadata()?.len().saturating_sub(most_bytes));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(most_bytes).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn file(text: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file
    }

    #[test]
    fn the_last_lines_are_found_in_a_file_larger_than_what_is_read_at_once() {
        let text: String = (0..100_000).map(|i| format!("line {i}\n")).collect();
        let mut all = file(text.as_bytes());
        assert_eq!(last_lines(&mut all, 2, 1 << 20).unwrap(), ["line 99998", "line 99999"]);
        let start = start_of_last(&mut all, 50_000).unwrap() as usize;
        assert!(text[start..].starts_with("line 50000\n"), "{}", &text[start..start + 20]);
        assert_eq!(start_of_last(&mut all, 100_001).unwrap(), 0);
    }

    #[test]
    fn a_line_that_has_no_end_yet_counts() {
        let mut open = file(b"a\nb\nc");
        assert_eq!(last_lines(&mut open, 1, 100).unwrap(), ["c"]);
        assert_eq!(last_lines(&mut open, 2, 100).unwrap(), ["b", "c"]);
        assert_eq!(last_lines(&mut open, 3, 3).unwrap(), ["b", "c"]);
        assert!(last_lines(&mut open, 0, 100).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn as_many_lines_are_left_as_were_asked_for(text in "[a\n]{0,40}", lines in 0u64..10) {
            let start = start_of_last(&mut file(text.as_bytes()), lines).unwrap() as usize;
            let all = text.lines().count() as u64;
            prop_assert_eq!(text[start..].lines().count() as u64, lines.min(all));
            prop_assert!(start == 0 || start == text.len() || text.as_bytes()[start - 1] == b'\n');
        }
    }
}
