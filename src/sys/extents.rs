//! Finds the data in sparse files. Holes read as zeros (lseek(2), `SEEK_DATA`).

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io;
use std::ops::Range;

/// Returns the first range of data that extends beyond `from`, in bytes from the beginning of the
/// file, or `None` if no data follows. If the file system does not support holes, all bytes up to
/// `length` are data. Moves the file's position.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn next(file: &File, from: u64, length: u64) -> io::Result<Option<Range<u64>>> {
    if from >= length {
        return Ok(None);
    }
    let place = |whence, at: u64| match lseek(file, i64::try_from(at).unwrap_or(i64::MAX), whence) {
        Ok(found) => Ok(u64::try_from(found).ok()),
        // No more data follows.
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error),
    };
    let Ok(begin) = place(Whence::SeekData, from) else { return Ok(Some(from..length)) };
    let Some(begin) = begin else { return Ok(None) };
    let end = place(Whence::SeekHole, begin)?.unwrap_or(length);
    Ok(Some(begin..end.min(length)).filter(|extent| !extent.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_skipped() {
        const FAR: u64 = 1 << 40;
        let file = tempfile::tempfile().unwrap();
        assert_eq!(next(&file, 0, 0).unwrap(), None);
        file.write_at(b"end", FAR).unwrap();
        let length = FAR + 3;
        let data = next(&file, 0, length).unwrap().unwrap();
        if data.start == 0 {
            // The file system of the tests does not support holes.
            assert_eq!(data, 0..length);
            return;
        }
        assert!(data.contains(&FAR) && data.end == length, "{data:?}");
        assert_eq!(next(&file, FAR + 1, length).unwrap(), Some(FAR + 1..length));
        assert_eq!(next(&file, length, length).unwrap(), None);
        file.set_len(2 * FAR).unwrap();
        assert_eq!(next(&file, FAR + (1 << 20), 2 * FAR).unwrap(), None, "hole at the end");
        assert_eq!(next(&file, 0, FAR / 2).unwrap(), None, "data beyond the length");
    }
}
