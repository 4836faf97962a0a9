//! Safe access to files that another process may have replaced by a FIFO, a device, a link, or a
//! file of any size.
//!
//! No function here blocks on a FIFO, opens a device, or reads without a limit. The errors describe
//! the problem and leave it to the caller to add the path.

use crate::fresh::Fresh;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The maximum size of a settings file, in bytes.
pub const MOST_SETTINGS: u64 = 8 << 20;

/// The maximum size of a file written by slotd itself, in bytes: a job record or a journal of its
/// steps.
pub const MOST_RECORD: u64 = 512 << 20;

/// Refuses everything except regular files.
///
/// # Errors
/// Fails with `InvalidInput` if it is not a regular file.
pub fn check(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Opens a regular file for reading. The path may be a symlink to one.
///
/// # Errors
/// Fails if it cannot be opened or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked first because opening a device or a FIFO may have side effects.
    check(&fs::metadata(path)?)?;
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// Fails like [`open`], and if the file is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_open(&open(path)?, most)
}

/// Reads an open file from its current position, at most `most` bytes.
///
/// # Errors
/// Fails if the file cannot be read or more data follows.
pub fn read_open(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 <= most {
        Ok(content)
    } else {
        let limit =
            if most >= 1 << 20 { format!("{} MB", most >> 20) } else { format!("{most} bytes") };
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {limit}, the maximum"),
        ))
    }
}

/// Reads a text file that the user named as input, at most `most` bytes. It may be a regular file
/// or a pipe such as a shell's `<(…)`.
///
/// # Errors
/// Fails if it cannot be read, more data follows, or it is not UTF-8.
pub fn read_input(path: &Path, most: u64) -> io::Result<String> {
    text_of(read_open(&File::open(path)?, most)?)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// Reads a regular text file of at most `most` bytes.
///
/// # Errors
/// Fails like [`read`], and if the text is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text_of(read(path, most)?)
}

/// Opens one of slotd's own files with these options. New files are accessible only to their owner.
///
/// # Errors
/// Fails if it cannot be opened or is not a regular file. Symlinks are refused.
pub fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Opens one of slotd's own files for appending and creates it if it is missing.
///
/// # Errors
/// Fails like [`own`].
pub fn append(path: &Path) -> io::Result<File> {
    own(OpenOptions::new().read(true).append(true).create(true), path)
}

/// Replaces one of slotd's own files atomically: readers find either the old or the new content,
/// even after a power failure.
///
/// # Errors
/// Fails if the file cannot be written. The old content is kept in that case.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut fresh = Fresh::new(path, 0o600)?;
    fresh.file.write_all(content)?;
    fresh.file.sync_all()?;
    fresh.replace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::os::unix::fs::symlink;

    #[test]
    fn endless_input_is_refused_and_a_pipe_is_read() {
        let refused = read_input(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let (from, mut to) = io::pipe().unwrap();
        to.write_all("text".as_bytes()).unwrap();
        drop(to);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
        assert_eq!(read_input(Path::new(&path), 4).unwrap(), "text");
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "content").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert_eq!(read_text(&at("link"), 7).unwrap(), "content");
        assert_eq!(
            read(&at("file"), 6).unwrap_err().to_string(),
            "it is larger than 6 bytes, the maximum"
        );
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        for path in [at("fifo"), dir.path().to_owned(), "/dev/zero".into(), "/dev/tty".into()] {
            assert_eq!(
                read(&path, 7).unwrap_err().to_string(),
                "it is not a regular file",
                "{}",
                path.display()
            );
        }
        let sparse = File::create(at("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let refused = read(&at("sparse"), 1 << 20).unwrap_err().to_string();
        assert_eq!(refused, "it is larger than 1 MB, the maximum");
        fs::write(at("latin1"), [0xe9]).unwrap();
        assert_eq!(read_text(&at("latin1"), 7).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&at("none"), 7).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_and_fifos_are_never_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("precious"), "precious").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        for name in ["link", "fifo"] {
            append(&at(name)).unwrap_err();
            own(OpenOptions::new().write(true).create(true).truncate(true), &at(name)).unwrap_err();
        }
        replace(&at("file"), b"content").unwrap();
        replace(&at("link"), b"content").unwrap();
        append(&at("file")).unwrap().write_all(b", more").unwrap();
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "precious");
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "content, more");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_file());
    }
}
