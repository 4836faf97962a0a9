//! Lists the files of a work tree and how they differ from its commit.

use super::output::{Status, names_in, parse_status, submodules};
use super::{Git, GitError, MOST_DIFF, MOST_NAMES, MOST_NESTED};
use crate::beneath;
use crate::work_tree::{Head, MOST_PACKED, Repository};
use slotd_model::source::{Changes, Source, Untracked};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The maximum size in bytes of a file to diff. git reads such a file completely, and compresses
/// binary ones.
const MOST_DIFFED: u64 = 64 << 20;

/// The maximum number of untracked files that are listed.
const MOST_UNTRACKED: usize = 1000;

/// The maximum total length in bytes of the file names passed to one git process.
const MOST_ARGUMENTS: usize = 256 << 10;

/// The reason why there is no diff.
#[derive(Debug, thiserror::Error)]
enum NoDiff {
    #[error("there is no commit yet")]
    NoCommit,
    #[error("{file} is larger than {} MB", MOST_DIFFED >> 20)]
    LargeFile { file: String },
    #[error("it is larger than {} MB", MOST_DIFF >> 20)]
    TooMuch,
    #[error("it is only in the index or in submodules")]
    Elsewhere,
    #[error(transparent)]
    Git(#[from] GitError),
}

impl Git<'_> {
    /// Returns the files of the work tree, tracked and untracked but not ignored, by their paths
    /// from its top. A directory in the list is a submodule or another work tree. Since an index
    /// can contain any name, names that no file of a work tree can have, such as `../x` or
    /// `.git/config`, are omitted.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn files(&self) -> Result<Vec<PathBuf>, GitError> {
        self.copy_index()?;
        const FILES: [&str; 5] = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let mut names = Vec::new();
        let read = self.ask_into(&FILES, &mut names, MOST_NAMES)?;
        // git omits an unreadable directory and exits successfully.
        if let Some(line) = read.words.lines().find(|line| line.contains("could not open")) {
            let why = line.trim_start_matches("warning: ");
            return Err(GitError::Failed(format!("git: {why}")));
        }
        let names = names_in(&names)
            .map(|name| Path::new(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(name))));
        let mut files: Vec<PathBuf> =
            names.filter(|name| belongs(name)).map(Path::to_owned).collect();
        // A path with a conflict is listed several times.
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// Returns the names of all files and links in the index, regardless of the contents of the
    /// work tree.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn indexed_files(&self) -> Result<HashSet<PathBuf>, GitError> {
        let index = self.ask(&["ls-files", "-z", "--stage"], MOST_NAMES)?;
        let files = names_in(&index).filter(|entry| !entry.starts_with(b"160000 "));
        let names = files.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1));
        Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
    }

    /// Returns the files that differ from the commit of `head`. On an unborn branch, all files do.
    fn status(&self, head: &Head, depth: usize) -> Result<Status, GitError> {
        // In a submodule, git would start another git that reads the configuration there.
        const STATUS: [&str; 7] = [
            "status",
            "--porcelain=v2",
            "-z",
            "--no-renames",
            "--no-ahead-behind",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        ];
        if depth > MOST_NESTED {
            return Err(GitError::Nested);
        }
        self.copy_index()?;
        match &head.commit {
            Some(commit) => self.write("HEAD", commit)?,
            None if head.is_unborn => {}
            None => return Err(GitError::NoHead),
        }
        let mut status = parse_status(&self.ask(&STATUS, MOST_NAMES)?);
        let index = self.ask(&["ls-files", "-z", "--stage"], MOST_NAMES)?;
        for (name, commit) in submodules(&index) {
            let path = Path::new(OsStr::from_bytes(name));
            let top = self.top.join(path);
            if !belongs(path)
                || status.changed.iter().any(|known| known == name)
                || Repository::of(&top).is_none()
            {
                continue;
            }
            let mut inside = self.asking.at(&top)?;
            if self.files_at != self.top {
                inside = inside.with_files_of(&self.files_at.join(path));
            }
            let head = inside.repository.head(MOST_PACKED);
            // In a copy, git sees no repository and therefore no new commit of the submodule.
            let has_moved = head.commit.as_ref().is_some_and(|head| head.as_bytes() != commit);
            let found = inside.status(&head, depth + 1)?;
            if has_moved || !(found.changed.is_empty() && found.untracked.is_empty()) {
                status.changed.push(name.to_owned());
            }
        }
        Ok(status)
    }

    /// Determines how the work tree differs from its commit, and writes a diff for `git apply` to
    /// the sink. Returns false if there is no diff; the data in the sink must be ignored then.
    pub fn source(&self, to: &mut dyn Write) -> (Source, bool) {
        let head = self.repository.head(MOST_PACKED);
        let source =
            |changes| Source { commit: head.commit.clone(), branch: head.branch.clone(), changes };
        let Status { changed, mut untracked } = match self.status(&head, 0) {
            Ok(status) => status,
            Err(error) => return (source(Err(error.to_string())), false),
        };
        untracked.retain(|name| {
            let path = self.top.join(OsStr::from_bytes(name));
            !self.asking.left_out.iter().any(|one| one.matches(&path.to_string_lossy()))
        });
        let sized = |path: &Vec<u8>| Untracked {
            bytes: fs::symlink_metadata(self.files_at.join(OsStr::from_bytes(path)))
                .ok()
                .map(|file| file.len()),
            path: String::from_utf8_lossy(path).into_owned(),
        };
        let named = untracked.iter().take(MOST_UNTRACKED).map(sized).collect();
        let mut changes = Changes {
            changed: changed.len(),
            untracked: untracked.len(),
            untracked_files: named,
            left_out: None,
        };
        let diff = match &head.commit {
            _ if changed.is_empty() => Ok(false),
            None => Err(NoDiff::NoCommit),
            Some(commit) => self
                .diff(commit, &changed.iter().map(Vec::as_slice).collect::<Vec<_>>(), to)
                .map(|()| true),
        };
        let has_diff = diff.unwrap_or_else(|why| {
            changes.left_out = Some(why.to_string());
            false
        });
        (source(Ok(changes)), has_diff)
    }

    /// Writes a diff for `git apply` that changes the commit to these files. The error is the
    /// reason why there is no diff.
    fn diff(&self, commit: &str, changed: &[&[u8]], to: &mut dyn Write) -> Result<(), NoDiff> {
        // `diff.autoRefreshIndex` would let git record unchanged files in the index, to which it
        // must not write. It is not needed, since only changed files are passed.
        const WORDS: [&str; 18] = [
            "-c",
            "diff.autoRefreshIndex=false",
            "--literal-pathspecs",
            "diff",
            "--binary",
            "--full-index",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-renames",
            "--no-relative",
            "--unified=3",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--submodule=short",
            "--ignore-submodules=dirty",
            "--no-indent-heuristic",
            "--diff-algorithm=default",
        ];
        let is_large = |path: &&&[u8]| {
            let found = fs::symlink_metadata(self.files_at.join(OsStr::from_bytes(path)));
            found.is_ok_and(|found| found.is_file() && found.len() > MOST_DIFFED)
        };
        if let Some(large) = changed.iter().find(is_large) {
            return Err(NoDiff::LargeFile { file: String::from_utf8_lossy(large).into_owned() });
        }
        let mut length = 0;
        for some in in_parts(changed, MOST_ARGUMENTS) {
            let files = some.iter().map(|path| OsStr::from_bytes(path));
            let words: Vec<&OsStr> =
                WORDS.iter().copied().chain([commit, "--"]).map(OsStr::new).chain(files).collect();
            match self.ask_into(&words, to, MOST_DIFF - length) {
                Ok(part) => length += part.length,
                Err(GitError::TooMuch(_)) => return Err(NoDiff::TooMuch),
                Err(error) => return Err(error.into()),
            }
        }
        match length {
            0 => Err(NoDiff::Elsewhere),
            _ => Ok(()),
        }
    }
}

/// Returns whether a file of a work tree can have this name, which must not leave it or enter a
/// repository.
pub(super) fn belongs(name: &Path) -> bool {
    beneath::is_plain(name) && !name.iter().any(|part| part.eq_ignore_ascii_case(".git"))
}

/// Splits the names into lists with a total length of at most `most` bytes, or with a single name.
pub(super) fn in_parts<'a, 'b>(names: &'b [&'a [u8]], most: usize) -> Vec<&'b [&'a [u8]]> {
    let mut parts = Vec::new();
    let (mut from, mut length) = (0, 0);
    for (at, name) in names.iter().enumerate() {
        if length + name.len() > most && at > from {
            parts.push(&names[from..at]);
            (from, length) = (at, 0);
        }
        length += name.len();
    }
    if from < names.len() {
        parts.push(&names[from..]);
    }
    parts
}
