//! Files that another process may have replaced: by a FIFO, a device, a link, or a file of any
//! size.
//!
//! Nothing here waits for the other end of a FIFO, opens a device, or reads without a limit. The
//! errors say what is wrong and leave the path to the caller.

use crate::sys::fresh::Fresh;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most that a file of settings may have, bytes.
pub const MOST_SETTINGS: u64 = 8 << 20;

/// The most that is read of a file that slotd itself writes, bytes: a record of a job, or a journal
/// of its steps.
pub const MOST_RECORD: u64 = 512 << 20;

/// Refuses everything but a regular file.
///
/// # Errors
/// It is something else (`InvalidInput`).
pub fn check(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Opens a regular file for reading. A link to one will do.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked first, because even to open a device or a FIFO may have an effect.
    check(&fs::metadata(path)?)?;
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// The content of a regular file of at most `most` bytes.
///
/// # Errors
/// As of [`open`]; it is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_open(&open(path)?, most)
}

/// The content of an open file from its position, at most `most` bytes.
///
/// # Errors
/// It cannot be read, or there is more.
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
            format!("it is larger than {limit}, the most that is read"),
        ))
    }
}

/// The text that a user names as input, at most `most` bytes of it: that of a regular file, or of a
/// pipe such as a shell's `<(…)`.
///
/// # Errors
/// It cannot be read, there is more, or it is not UTF-8.
pub fn read_input(path: &Path, most: u64) -> io::Result<String> {
    text_of(read_open(&File::open(path)?, most)?)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// The text of a regular file of at most `most` bytes.
///
/// # Errors
/// As of [`read`]; it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text_of(read(path, most)?)
}

/// Opens a file of slotd's own as these options say. A new one is for its owner alone.
///
/// # Errors
/// It cannot be opened, or a link or anything else that is not a regular file is in its place.
pub fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file of slotd's own to append to it, and creates it if it is missing.
///
/// # Errors
/// As of [`own`].
pub fn append(path: &Path) -> io::Result<File> {
    own(OpenOptions::new().read(true).append(true).create(true), path)
}

/// Replaces a file of slotd's own: whoever reads it finds the old content or the new one, also
/// after a loss of power.
///
/// # Errors
/// The disk. The old content is still there.
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
    fn input_without_an_end_is_refused_and_a_pipe_is_read() {
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
            "it is larger than 6 bytes, the most that is read"
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
        assert_eq!(refused, "it is larger than 1 MB, the most that is read");
        fs::write(at("latin1"), [0xe9]).unwrap();
        assert_eq!(read_text(&at("latin1"), 7).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&at("none"), 7).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nothing_is_written_through_a_link_or_into_a_fifo() {
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
