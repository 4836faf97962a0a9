//! Packs a submission: the script, and a copy of the work tree, in one tar archive.
//!
//! The work tree may change in the meantime, and others may be able to write to it. So everything
//! is opened beneath its top without following links; links are packed as links.

use slotd_sys::beneath::{self, Dir};
use slotd_sys::git::{Asking, Git, GitError, MOST_NESTED};
use slotd_sys::work_tree::Repository;
use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tar::{Builder, EntryType, Header};

/// The last entry. If it is there, everything before it has arrived.
pub const COMPLETE: &str = "complete";

/// The time limit for all git commands together.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);

/// The permission bits that are copied.
const PERMISSIONS: u32 = 0o777;

#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{}: the index lists it as a submodule, but its .git is missing, broken, or owned by another user, so its files would be \
         missing from the copy: repair or move it",
        .0.display()
    )]
    NoSubmodule(PathBuf),
    #[error(transparent)]
    Git(#[from] GitError),
}

/// The files of a submission.
#[derive(Debug)]
pub struct Stage {
    /// The script's name and text.
    pub script: (String, Vec<u8>),
    /// The time of the script, in seconds since 1970.
    pub at: u64,
    /// The work tree and its files, by their paths from its top.
    pub tree: Option<(Dir, Vec<PathBuf>)>,
    /// The directory below the top in which the job starts.
    pub below: PathBuf,
}

/// Lists the files of a work tree that git tracks or does not ignore, including those of
/// submodules. `own` is an empty directory of slotd's for git's use; files in `without` are left
/// out.
///
/// # Errors
/// Fails if git does not respond or a directory cannot be read.
pub fn list(top: &Path, own: &Path, without: &Path) -> Result<(Dir, Vec<PathBuf>), StageError> {
    let asking = Asking::new(own, GIT_TIMEOUT)?;
    let dir = Dir::open(top).map_err(|error| StageError::File { path: top.to_owned(), error })?;
    let mut found = Vec::new();
    let listing = Listing { asking: &asking, without };
    listing.tree(&asking.at(top)?, top, &dir, Path::new(""), 0, &mut found)?;
    Ok((dir, found))
}

struct Listing<'a> {
    asking: &'a Asking,
    without: &'a Path,
}

impl Listing<'_> {
    fn tree(
        &self,
        git: &Git<'_>,
        path: &Path,
        dir: &Dir,
        prefix: &Path,
        depth: usize,
        found: &mut Vec<PathBuf>,
    ) -> Result<(), StageError> {
        if depth > MOST_NESTED {
            return Err(GitError::Nested.into());
        }
        for name in git.files()? {
            let source = path.join(&name);
            let at = |error| StageError::File { path: source.clone(), error };
            if source.starts_with(self.without) {
                continue;
            }
            let metadata = match dir.metadata(&name) {
                Ok(metadata) => metadata,
                Err(error) if beneath::is_absent(&error) => continue,
                Err(error) => return Err(at(error)),
            };
            if !metadata.is_dir() {
                found.push(prefix.join(&name));
                continue;
            }
            let inside = dir.dir(&name).map_err(at)?;
            if Repository::of(&source).is_some() {
                let prefix = prefix.join(&name);
                self.tree(&self.asking.at(&source)?, &source, &inside, &prefix, depth + 1, found)?;
            } else if !inside.names().map_err(at)?.is_empty()
                && !git.indexed_files()?.contains(&name)
            {
                return Err(StageError::NoSubmodule(source));
            }
        }
        Ok(())
    }
}

impl Stage {
    /// Writes the archive: `script/NAME`, `work/…`, `complete`. Files that have vanished, FIFOs,
    /// sockets and devices are skipped. A file that has shrunk is filled with zeros.
    ///
    /// # Errors
    /// Fails if a file cannot be read or `to` cannot be written.
    pub fn pack(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut tar = Builder::new(to);
        let (name, text) = &self.script;
        let mut header = file_header(text.len() as u64, 0o700, self.at);
        tar.append_data(&mut header, Path::new("script").join(name), text.as_slice())?;
        self.dir(&mut tar, Path::new("work"))?;
        let mut below = PathBuf::from("work");
        for part in self.below.iter() {
            below.push(part);
            self.dir(&mut tar, &below)?;
        }
        if let Some((dir, files)) = &self.tree {
            for name in files {
                pack_file(&mut tar, dir, name)?;
            }
        }
        let mut header = file_header(0, 0o600, self.at);
        tar.append_data(&mut header, COMPLETE, io::empty())?;
        tar.finish()
    }

    fn dir(&self, tar: &mut Builder<&mut dyn Write>, path: &Path) -> io::Result<()> {
        let mut header = file_header(0, 0o755, self.at);
        header.set_entry_type(EntryType::Directory);
        tar.append_data(&mut header, path, io::empty())
    }
}

fn file_header(size: u64, mode: u32, at: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode & PERMISSIONS);
    header.set_mtime(at);
    header
}

fn pack_file(tar: &mut Builder<&mut dyn Write>, dir: &Dir, name: &Path) -> io::Result<()> {
    let there = Path::new("work").join(name);
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", name.display()));
    let is_gone = |error: &io::Error| {
        beneath::is_absent(error) || error.kind() == io::ErrorKind::InvalidInput
    };
    let header = |found: &Metadata, size| {
        file_header(size, found.mode(), u64::try_from(found.mtime()).unwrap_or(0))
    };
    let found = match dir.metadata(name) {
        Ok(found) => found,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if found.is_symlink() {
        let target = match dir.read_link(name) {
            Ok(target) => target,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let mut header = header(&found, 0);
        header.set_entry_type(EntryType::Symlink);
        return tar.append_link(&mut header, there, target);
    }
    if !found.is_file() {
        return Ok(());
    }
    let file = match dir.file(name) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let size = file.metadata()?.len();
    let mut header = header(&found, size);
    tar.append_data(&mut header, there, file.chain(io::repeat(0)).take(size)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn packed(stage: &Stage) -> BTreeMap<String, String> {
        let mut bytes = Vec::new();
        stage.pack(&mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            if let Some(target) = entry.link_name().unwrap() {
                text = format!("-> {}", target.display());
            }
            entry.read_to_string(&mut text).unwrap();
            found.insert(name, text);
        }
        found
    }

    fn stage(tree: Option<(Dir, Vec<PathBuf>)>) -> Stage {
        let script = ("job 'x'\n.sh".to_owned(), b"#!/bin/sh\n".to_vec());
        Stage { script, at: 7, tree, below: "a/b".into() }
    }

    #[test]
    fn archive_contains_script_tree_and_end() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
        for (name, text) in [("plain", "1"), ("with\nnewline", "2"), (&long, "3")] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("/etc/passwd", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("dir")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let names = ["plain", "with\nnewline", &long, "link", "dir/passwd", "fifo", "gone"];
        let files = names.iter().map(PathBuf::from).collect();
        let found = packed(&stage(Some((Dir::open(dir.path()).unwrap(), files))));
        let expected: BTreeMap<String, String> = [
            ("script/job 'x'\n.sh", "#!/bin/sh\n"),
            ("work", ""),
            ("work/a", ""),
            ("work/a/b", ""),
            ("work/plain", "1"),
            ("work/with\nnewline", "2"),
            (&format!("work/{long}"), "3"),
            ("work/link", "-> /etc/passwd"),
            (COMPLETE, ""),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_stage_without_a_tree_has_an_empty_directory() {
        let names: Vec<String> = packed(&stage(None)).into_keys().collect();
        assert_eq!(names, ["complete", "script/job 'x'\n.sh", "work", "work/a", "work/a/b"]);
    }
}
