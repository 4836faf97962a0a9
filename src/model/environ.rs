//! The environment of a process.

use std::ffi::OsStr;
use std::fmt;

/// The variables of a process, in their original order. Names and values may not be UTF-8. They are
/// kept in one piece, as the kernel passes them: each submission brings those of its process.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environ {
    /// `NAME=value`, one after another.
    text: Vec<u8>,
    places: Vec<Place>,
}

/// The place of a variable in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    start: usize,
    /// The length of the name, and of `NAME=value`.
    name: usize,
    len: usize,
}

impl Environ {
    /// Parses strings of which each ends with a zero byte. As in `std::env::vars_os`, a name may
    /// start with `=`, and a string that has no other `=` is no variable.
    pub fn parse(block: Vec<u8>) -> Environ {
        let mut start = 0;
        let mut places = Vec::with_capacity(64);
        for string in block.split(|byte| *byte == 0) {
            if let Some(at) = string.iter().skip(1).position(|byte| *byte == b'=') {
                places.push(Place { start, name: at + 1, len: string.len() });
            }
            start += string.len() + 1;
        }
        Environ { text: block, places }
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let has_length = |place: &&Place| place.name == name.len();
        let mut like_it = self.places.iter().filter(has_length).map(|place| self.at(*place));
        like_it.find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| self.at(*place))
    }

    fn at(&self, place: Place) -> (&[u8], &[u8]) {
        let Place { start, name, len } = place;
        let part = |from, to| self.text.get(start + from..start + to).unwrap_or_default();
        (part(0, name), part(name + 1, len))
    }

    /// Keeps only variables with these names.
    pub fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let places = std::mem::take(&mut self.places);
        self.places = places.into_iter().filter(|place| keep(self.at(*place).0)).collect();
    }
}

impl<N: AsRef<OsStr>, V: AsRef<OsStr>> FromIterator<(N, V)> for Environ {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(variables: T) -> Environ {
        let mut environ = Environ::default();
        for (name, value) in variables {
            let name = name.as_ref().as_encoded_bytes();
            let value = value.as_ref().as_encoded_bytes();
            let start = environ.text.len();
            environ.text.extend_from_slice(name);
            environ.text.push(b'=');
            environ.text.extend_from_slice(value);
            let len = environ.text.len() - start;
            environ.places.push(Place { start, name: name.len(), len });
        }
        environ
    }
}

impl fmt::Debug for Environ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        f.debug_map().entries(self.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(environ: &Environ) -> Vec<String> {
        let pair = |(name, value): (&[u8], &[u8])| {
            format!("{}:{}", name.escape_ascii(), value.escape_ascii())
        };
        environ.iter().map(pair).collect()
    }

    #[test]
    fn strings_are_split_like_those_of_a_process() {
        let environ = Environ::parse(b"A=b=c\0=A=b\0A\0\0=\0B=\0A=2\0\xff=\xfe\0".to_vec());
        assert_eq!(pairs(&environ), ["A:b=c", "=A:b", "B:", "A:2", r"\xff:\xfe"]);
        let get = |name: &str| environ.get(name).map(|value| value.escape_ascii().to_string());
        let expected = [Some("b=c"), Some("b"), Some(""), None, None];
        assert_eq!(
            ["A", "=A", "B", "C", ""].map(get),
            expected.map(|value| value.map(ToOwned::to_owned))
        );
        assert_eq!(Environ::parse(Vec::new()), Environ::default());
    }

    #[test]
    fn variables_can_be_collected_and_dropped() {
        let mut environ: Environ = [("A", "1"), ("B", "x=y"), ("C", "")].into_iter().collect();
        assert_eq!(environ.get("B"), Some(&b"x=y"[..]));
        environ.retain(|name| name != b"B");
        assert_eq!(pairs(&environ), ["A:1", "C:"]);
    }
}
