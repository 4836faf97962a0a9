//! Bytes, without the functions that the compiler would call for them.

use core::mem::MaybeUninit;
use core::slice::from_raw_parts;

/// A text of at most `N` bytes.
pub(crate) struct Text<const N: usize> {
    bytes: [MaybeUninit<u8>; N],
    len: usize,
    /// Something did not fit.
    is_cut: bool,
}

impl<const N: usize> Text<N> {
    #[inline(always)]
    pub(crate) fn new() -> Text<N> {
        Text { bytes: [const { MaybeUninit::uninit() }; N], len: 0, is_cut: false }
    }

    /// Returns the text, or `None` if something did not fit.
    pub(crate) fn get(&self) -> Option<&[u8]> {
        // SAFETY: these bytes were written.
        (!self.is_cut).then(|| unsafe { from_raw_parts(self.bytes.as_ptr().cast(), self.len) })
    }

    pub(crate) fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.len) {
            Some(place) => {
                place.write(byte);
                self.len += 1;
            }
            None => self.is_cut = true,
        }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            self.push(*byte);
        }
        self
    }

    /// Adds a number in decimal digits.
    pub(crate) fn number(&mut self, number: usize) -> &mut Self {
        let mut unit = 1;
        while number / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            self.push(b'0' + (number / unit % 10) as u8);
            unit /= 10;
        }
        self
    }

    /// Adds what `read` writes. It returns the number of bytes.
    pub(crate) fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let count = read(free)?;
        self.len = (self.len + count).min(N);
        Ok(count)
    }

    /// Keeps only the first `len` bytes.
    pub(crate) fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one == other)
}

/// Returns the rest after this start.
pub(crate) fn after<'a>(text: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(start.len())?;
    is_same(head, start).then_some(rest)
}

/// Returns the part after the last `/`.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    path.get(start..).unwrap_or_default()
}

/// Reads a number of 4 bytes, little endian.
pub(crate) fn number_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_refused() {
        let mut text = Text::<4>::new();
        text.add(b"ab").number(10);
        assert_eq!(text.get(), Some(&b"ab10"[..]));
        text.push(b'c');
        assert_eq!(text.get(), None);
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 99, 100, 4_194_304, usize::MAX] {
            let mut text = Text::<20>::new();
            text.number(number);
            assert_eq!(text.get(), Some(number.to_string().as_bytes()));
        }
    }

    #[test]
    fn parts_of_a_text_are_found() {
        assert_eq!(after(b"PWD=/tmp", b"PWD="), Some(&b"/tmp"[..]));
        assert_eq!(after(b"PW", b"PWD="), None);
        assert_eq!(
            (file_name(b"/a/sbatch"), file_name(b"sbatch")),
            (&b"sbatch"[..], &b"sbatch"[..])
        );
        assert_eq!((number_at(&[1, 2, 0, 0, 9], 0), number_at(&[1, 2], 0)), (Some(513), None));
    }
}
