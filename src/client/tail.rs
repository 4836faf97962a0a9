//! Finds the last lines of a file by reading backwards, since a log may contain gigabytes of data
//! and terabytes of holes.

use slotd_sys::extents;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Returns whether this file holds no data for other readers: it is a FIFO, a device or a socket.
/// Below /dev and /proc, the same path may refer to another file in each process, such as its own
/// standard output.
pub fn keeps_nothing(path: &Path) -> bool {
    let is_of_process =
        ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir)) && !path.starts_with("/dev/shm");
    // A FIFO is not even opened, because its writer would see a reader that disappears at once.
    is_of_process || std::fs::metadata(path).is_ok_and(|about| !about.is_file())
}

/// Opens an output file of a job for reading. Returns `None` if there is no regular file.
///
/// # Errors
/// Fails if the file cannot be opened.
pub fn open_output(path: &Path) -> io::Result<Option<File>> {
    if keeps_nothing(path) {
        return Ok(None);
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        // Sockets cannot be opened.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The number of bytes to read at once.
const CHUNK: u64 = 64 << 10;

/// Returns where the last `lines` lines of a file begin. Text after the last newline counts as a
/// line.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn start_of_last(file: &mut File, lines: u64) -> io::Result<u64> {
    let len = file.metadata()?.len();
    if lines == 0 {
        return Ok(len);
    }
    let mut with_data = Vec::new();
    let mut from = 0;
    while let Some(extent) = extents::next(file, from, len)? {
        from = extent.end;
        with_data.push(extent);
    }
    let mut ends_seen = 0;
    let mut chunk = Vec::new();
    for extent in with_data.into_iter().rev() {
        let mut end = extent.end;
        while end > extent.start {
            let begin = end.saturating_sub(CHUNK).max(extent.start);
            file.seek(SeekFrom::Start(begin))?;
            chunk.clear();
            file.take(end - begin).read_to_end(&mut chunk)?;
            for at in memchr::memrchr_iter(b'\n', &chunk).map(|at| begin + at as u64) {
                // The newline that ends the file does not start another line.
                if at + 1 < len {
                    ends_seen += 1;
                }
                if ends_seen == lines {
                    return Ok(at + 1);
                }
            }
            end = begin;
        }
    }
    Ok(0)
}

/// Returns the last lines of a file, limited to the last `most_bytes` bytes.
///
/// # Errors
/// Fails if the file cannot be read.
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
    fn the_last_lines_are_found_across_chunks() {
        let text: String = (0..100_000).map(|i| format!("line {i}\n")).collect();
        let mut all = file(text.as_bytes());
        assert_eq!(last_lines(&mut all, 2, 1 << 20).unwrap(), ["line 99998", "line 99999"]);
        let start = start_of_last(&mut all, 50_000).unwrap() as usize;
        assert!(text[start..].starts_with("line 50000\n"), "{}", &text[start..start + 20]);
        assert_eq!(start_of_last(&mut all, 100_001).unwrap(), 0);
    }

    #[test]
    fn only_regular_files_are_opened_as_output() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "a").unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(open_output(&at("file")).unwrap().is_some());
        for nothing in ["fifo", "socket", "missing"] {
            assert!(open_output(&at(nothing)).unwrap().is_none(), "{nothing}");
        }
        let own = File::open(at("file")).unwrap();
        let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own));
        for own in [by_descriptor.as_str(), "/dev/stdin", "/dev/zero"] {
            assert!(open_output(Path::new(own)).unwrap().is_none(), "{own}");
        }
    }

    #[test]
    fn lines_on_both_sides_of_a_hole_are_found() {
        const FAR: u64 = 1 << 42;
        let mut sparse = file(b"a\nb\n");
        sparse.seek(SeekFrom::Start(FAR)).unwrap();
        sparse.write_all(b"\nc\n").unwrap();
        assert_eq!(start_of_last(&mut sparse, 1).unwrap(), FAR + 1);
        assert_eq!(start_of_last(&mut sparse, 2).unwrap(), 4);
        assert_eq!(start_of_last(&mut sparse, 3).unwrap(), 2);
        assert_eq!(start_of_last(&mut sparse, 9).unwrap(), 0);
    }

    #[test]
    fn an_unfinished_line_counts() {
        let mut open = file(b"a\nb\nc");
        assert_eq!(last_lines(&mut open, 1, 100).unwrap(), ["c"]);
        assert_eq!(last_lines(&mut open, 2, 100).unwrap(), ["b", "c"]);
        assert_eq!(last_lines(&mut open, 3, 3).unwrap(), ["b", "c"]);
        assert!(last_lines(&mut open, 0, 100).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn the_requested_number_of_lines_is_returned(text in "[a\n]{0,40}", lines in 0u64..10) {
            let start = start_of_last(&mut file(text.as_bytes()), lines).unwrap() as usize;
            let all = text.lines().count() as u64;
            prop_assert_eq!(text[start..].lines().count() as u64, lines.min(all));
            prop_assert!(start == 0 || start == text.len() || text.as_bytes()[start - 1] == b'\n');
        }
    }
}
