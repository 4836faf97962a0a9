//! Finds the git work tree around a directory and its current commit by reading git's own files.
//! This takes a few microseconds, where running git takes milliseconds.
//!
//! Other users may be able to write in the directories that are searched. So, as in git, a
//! repository is used only if this user or root owns it and the top of its work tree. Only regular
//! files of bounded size are read.

use crate::files;
use slotd_model::source::WorkTree;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The maximum size of a file that contains a single name or commit, in bytes.
const SHORT: u64 = 4096;

/// The maximum size of git's file of packed references, in bytes. Reading a larger one would delay
/// a submission too much.
const PACKED: u64 = 256 << 10;

/// The maximum size of that file, in bytes, for callers that can wait.
pub(crate) const MOST_PACKED: u64 = 64 << 20;

/// The maximum number of chained symbolic references, as in git.
const LINKS: usize = 5;

/// The directories of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Contains HEAD and the index.
    pub git_dir: PathBuf,
    /// Contains branches, objects and the configuration, which all work trees of a repository
    /// share.
    pub common: PathBuf,
}

/// The state of HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// `None` if there is no commit yet, or HEAD has an unusual format.
    pub commit: Option<String>,
    /// `None` if HEAD is detached or has an unusual format.
    pub branch: Option<String>,
    /// The branch has no commit yet.
    pub is_unborn: bool,
}

/// Returns the work tree that contains this directory, by its canonical path. Returns `None`
/// outside of a work tree and if the directory does not exist.
pub fn probe(dir: &Path) -> Option<WorkTree> {
    let dir = fs::canonicalize(dir).ok()?;
    let (root, repository) = dir.ancestors().find_map(|at| Some((at, Repository::of(at)?)))?;
    let Head { commit, branch, .. } = repository.head(PACKED);
    Some(WorkTree { root: root.to_str()?.to_owned(), commit, branch })
}

/// Returns the first repository around this directory that is ignored because another user owns it:
/// its `.git`, and that user.
pub fn of_another_user(dir: &Path) -> Option<(PathBuf, u32)> {
    let dir = fs::canonicalize(dir).ok()?;
    dir.ancestors().find_map(|at| {
        let dot_git = at.join(".git");
        let owners = [fs::metadata(at).ok()?.uid(), fs::symlink_metadata(&dot_git).ok()?.uid()];
        owners
            .into_iter()
            .find(|owner| !is_trusted(*owner, own_user()))
            .map(|owner| (dot_git, owner))
    })
}

/// Returns the git directory or bare repository, below the top of a work tree, that this directory
/// is or is inside of. Files in it do not belong to the work tree.
pub fn git_dir_around(dir: &Path, top: &Path) -> Option<PathBuf> {
    let dir = fs::canonicalize(dir).ok()?;
    let is_git_dir = |at: &Path| {
        at.ends_with(".git")
            || (at.join("objects").is_dir()
                && at.join("refs").is_dir()
                && fs::symlink_metadata(at.join("HEAD")).is_ok())
    };
    let below = dir.ancestors().take_while(|at| *at != top).map(Path::to_owned);
    below.filter(|at| is_git_dir(at)).last()
}

fn own_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn is_trusted(owner: u32, user: u32) -> bool {
    owner == 0 || owner == user
}

fn is_own(found: &Metadata) -> bool {
    is_trusted(found.uid(), own_user())
}

/// Returns the canonical path of a directory that this user or root owns.
fn own_dir(path: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    let found = fs::symlink_metadata(&path).ok()?;
    (found.is_dir() && is_own(&found)).then_some(path)
}

impl Repository {
    /// Returns the repository of the work tree with this top directory. Returns `None` if the
    /// directory is not such a top or another user owns it.
    pub fn of(top: &Path) -> Option<Repository> {
        let dot_git = top.join(".git");
        let found = fs::symlink_metadata(&dot_git).ok()?;
        if !is_own(&fs::metadata(top).ok()?) || !is_own(&found) {
            return None;
        }
        let named = if found.is_file() {
            top.join(read(&dot_git, SHORT)?.strip_prefix("gitdir:")?.trim())
        } else {
            dot_git
        };
        let git_dir = own_dir(&named)?;
        fs::symlink_metadata(git_dir.join("HEAD")).ok()?;
        let common = match read(&git_dir.join("commondir"), SHORT) {
            Some(text) => own_dir(&git_dir.join(text.trim()))?,
            None => git_dir.clone(),
        };
        Some(Repository { git_dir, common })
    }

    /// Returns the state of HEAD. Packed references are read up to this many bytes.
    pub fn head(&self, most_packed: u64) -> Head {
        let Some(text) = read(&self.git_dir.join("HEAD"), SHORT) else { return Head::default() };
        let Some(mut name) = reference(&text).map(str::to_owned) else {
            return Head { commit: commit(&text), ..Head::default() };
        };
        // With reftables, HEAD contains only this placeholder name.
        let branch = name
            .strip_prefix("refs/heads/")
            .filter(|branch| *branch != ".invalid")
            .map(str::to_owned);
        for _ in 0..LINKS {
            let loose = self.common.join(&name);
            let Some(text) = read(&loose, SHORT) else {
                let place = self.common.join("packed-refs");
                let packed = read(&place, most_packed);
                let has_none = |path: &Path| fs::symlink_metadata(path).is_err();
                let is_unborn =
                    branch.is_some() && has_none(&loose) && (packed.is_some() || has_none(&place));
                let commit = packed.and_then(|packed| packed_commit(&packed, &name));
                return Head { is_unborn: is_unborn && commit.is_none(), commit, branch };
            };
            match reference(&text) {
                Some(next) => name = next.to_owned(),
                None => return Head { commit: commit(&text), branch, is_unborn: false },
            }
        }
        Head { branch, ..Head::default() }
    }
}

/// Parses `ref: refs/heads/main`. A name that leaves the directory is refused.
fn reference(text: &str) -> Option<&str> {
    let name = text.strip_prefix("ref:")?.trim();
    (name.starts_with("refs/") && !name.contains("..")).then_some(name)
}

fn commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_one = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| text.to_owned())
}

/// Finds a commit in lines such as `0123… refs/heads/main`.
fn packed_commit(packed: &str, name: &str) -> Option<String> {
    packed.lines().find_map(|line| commit(line.strip_suffix(name)?.strip_suffix(' ')?))
}

/// Reads a text file of at most this many bytes.
fn read(path: &Path, most: u64) -> Option<String> {
    String::from_utf8(files::read(path, most).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";

    fn write(dir: &Path, name: &str, text: &str) {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), text).unwrap();
    }

    fn found(dir: &Path) -> (PathBuf, Option<String>, Option<String>) {
        let tree = probe(dir).expect("a work tree");
        (tree.root.into(), tree.commit, tree.branch)
    }

    #[test]
    fn the_commit_is_read_from_loose_and_packed_references() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let deep = top.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(probe(&deep), None);
        fs::create_dir(top.join(".git")).unwrap();
        assert_eq!(probe(&deep), None, "git ignores a directory without HEAD");
        write(&top, ".git/HEAD", "ref: refs/heads/a/main\n");
        let main = Some("a/main".to_owned());
        assert_eq!(found(&deep), (top.clone(), None, main.clone()), "no commit yet");
        write(
            &top,
            ".git/packed-refs",
            &format!("# pack-refs\n{TWO} refs/heads/main\n{ONE} refs/heads/a/main\n^{TWO}\n"),
        );
        assert_eq!(found(&deep), (top.clone(), Some(ONE.to_owned()), main.clone()));
        write(&top, ".git/refs/heads/a/main", &format!("{TWO}\n"));
        assert_eq!(found(&top), (top.clone(), Some(TWO.to_owned()), main));
        write(&top, ".git/HEAD", &format!("{ONE}\n"));
        assert_eq!(found(&top), (top.clone(), Some(ONE.to_owned()), None));
        std::os::unix::fs::symlink(&deep, top.join("link")).unwrap();
        assert_eq!(found(&top.join("link/..")).0, top, "the canonical path");
    }

    #[test]
    fn a_linked_work_tree_has_its_own_head_and_shares_branches() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        write(&top, "main/.git/HEAD", "ref: refs/heads/main\n");
        write(&top, "main/.git/refs/heads/side", &format!("{ONE}\n"));
        write(&top, "main/.git/worktrees/side/HEAD", "ref: refs/heads/side\n");
        write(&top, "main/.git/worktrees/side/commondir", "../..\n");
        write(
            &top,
            "side/.git",
            &format!("gitdir: {}\n", top.join("main/.git/worktrees/side").display()),
        );
        assert_eq!(
            found(&top.join("side")),
            (top.join("side"), Some(ONE.to_owned()), Some("side".to_owned()))
        );
        write(&top, "sub/.git", "gitdir: ../main/.git/worktrees/side\n");
        assert_eq!(found(&top.join("sub")).1, Some(ONE.to_owned()));
    }

    #[test]
    fn unusual_heads_have_no_commit() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        for head in [
            "ref: refs/heads/.invalid\n",
            "ref: refs/../../x\n",
            "nonsense",
            "",
            "ref: refs/heads/ring\n",
        ] {
            write(&top, ".git/HEAD", head);
            write(&top, ".git/refs/heads/ring", "ref: refs/heads/ring\n");
            assert_eq!(probe(&top).expect("a work tree").commit, None, "{head}");
        }
        write(&top, ".git/HEAD", "ref: refs/heads/.invalid\n");
        assert_eq!(probe(&top).expect("a work tree").branch, None);
    }

    #[test]
    fn special_and_large_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let fifo = |name: &str| {
            nix::unistd::mkfifo(&top.join(name), nix::sys::stat::Mode::S_IRWXU).unwrap()
        };
        fifo(".git");
        assert_eq!(probe(&top), None);
        fs::remove_file(top.join(".git")).unwrap();
        fs::create_dir_all(top.join(".git/refs/heads")).unwrap();
        for name in [".git/HEAD", ".git/commondir", ".git/packed-refs", ".git/refs/heads/main"] {
            fifo(name);
        }
        assert_eq!(found(&top), (top.clone(), None, None));
        fs::remove_file(top.join(".git/HEAD")).unwrap();
        write(&top, ".git/HEAD", "ref: refs/heads/main\n");
        let repository = Repository::of(&top).unwrap();
        let unknown = Head { commit: None, branch: Some("main".to_owned()), is_unborn: false };
        assert_eq!(repository.head(PACKED), unknown);
        fs::remove_file(top.join(".git/refs/heads/main")).unwrap();
        assert_eq!(repository.head(PACKED), unknown);
        fs::remove_file(top.join(".git/packed-refs")).unwrap();
        assert_eq!(repository.head(PACKED), Head { is_unborn: true, ..unknown.clone() });
        let filler = format!("{TWO} refs/tags/x\n").repeat(10_000);
        write(&top, ".git/packed-refs", &format!("{filler}{ONE} refs/heads/main\n"));
        assert_eq!(repository.head(PACKED), unknown);
        assert_eq!(repository.head(MOST_PACKED).commit.as_deref(), Some(ONE));
        std::os::unix::fs::symlink("/dev/zero", top.join(".git/endless")).unwrap();
        write(&top, ".git/HEAD", "ref: refs/heads/../endless\n");
        assert_eq!(repository.head(PACKED), Head::default());
    }

    #[test]
    fn a_repository_of_another_user_is_ignored() {
        assert!(is_trusted(0, 1000) && is_trusted(1000, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        write(&top, "outer/.git/HEAD", &format!("{ONE}\n"));
        write(&top, "outer/sub/.git/HEAD", &format!("{TWO}\n"));
        write(&top, "outer/linked/.git", "gitdir: ../sub/.git\n");
        let sub = top.join("outer/sub");
        // Only root can change the owner of a file.
        if std::os::unix::fs::chown(sub.join(".git"), Some(12_345), None).is_err() {
            return;
        }
        assert_eq!(found(&sub).0, top.join("outer"), "the next one up is used");
        assert_eq!(of_another_user(&sub), Some((sub.join(".git"), 12_345)));
        assert_eq!(found(&top.join("outer/linked")).0, top.join("outer"));
        std::os::unix::fs::chown(sub.join(".git"), Some(0), None).unwrap();
        assert_eq!(found(&sub).1.as_deref(), Some(TWO));
        assert_eq!(of_another_user(&sub), None);
        std::os::unix::fs::chown(&sub, Some(12_345), None).unwrap();
        assert_eq!(found(&sub).0, top.join("outer"));
    }
}
