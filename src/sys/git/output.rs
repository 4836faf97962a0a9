//! Parses the output of git.

/// The names in the output of `git status --porcelain=v2 -z`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub changed: Vec<Vec<u8>>,
    pub untracked: Vec<Vec<u8>>,
}

pub(super) fn names_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

pub(super) fn parse_status(text: &[u8]) -> Status {
    let mut status = Status::default();
    let mut entries = names_in(text);
    while let Some(entry) = entries.next() {
        match entry {
            [b'?', b' ', path @ ..] => status.untracked.push(path.to_owned()),
            [b'1', ..] => status.changed.extend(field(entry, 8)),
            [b'2', ..] => {
                status.changed.extend(field(entry, 9));
                // The previous path.
                status.changed.extend(entries.next().map(<[u8]>::to_owned));
            }
            [b'u', ..] => status.changed.extend(field(entry, 10)),
            _ => {}
        }
    }
    status
}

/// Returns the rest of an entry after this many spaces.
fn field(entry: &[u8], blanks: usize) -> Option<Vec<u8>> {
    entry.splitn(blanks + 1, |byte| *byte == b' ').nth(blanks).map(<[u8]>::to_owned)
}

/// Parses the output of `git config --null --list`: names in lower case with their values. A name
/// without a value has the value `true`.
pub(super) fn entries(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    names_in(list).map(|entry| {
        let mut parts = entry.splitn(2, |byte| *byte == b'\n');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"true"))
    })
}

/// Returns the submodules in the output of `git ls-files --stage -z`, each with its commit. Their
/// format is `160000 COMMIT 0<tab>NAME`.
pub(super) fn submodules(index: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    names_in(index).filter_map(|entry| {
        let entry = entry.strip_prefix(b"160000 ")?;
        let blank = entry.iter().position(|byte| *byte == b' ')?;
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        Some((&entry[tab + 1..], &entry[..blank]))
    })
}
