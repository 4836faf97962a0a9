//! The git work tree around a directory, and the commit that it is at, read from git's own files: a few microseconds, where
//! git itself takes milliseconds. What is not there in the usual form is left to git.

use crate::model::source::WorkTree;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file with a name or a commit in it is longer.
const SHORT: u64 = 4096;

/// References that git has packed into one file: a longer one takes longer to read than is worth it.
const PACKED: u64 = 256 << 10;

/// References that name references, one after the other. git follows five.
const LINKS: usize = 5;

/// The work tree that this directory is in, by its true path; `None` where it is in none, or is not there.
pub fn probe(dir: &Path) -> Option<WorkTree> {
    let dir = fs::canonicalize(dir).ok()?;
    let (root, git_dir) = dir.ancestors().find_map(|at| Some((at, git_dir(at)?)))?;
    let (commit, branch) = head(&git_dir);
    Some(WorkTree { root: root.to_str()?.to_owned(), commit, branch })
}

/// Where git keeps what belongs to the work tree with this top directory; `None` where it is no such top.
pub fn git_dir(top: &Path) -> Option<PathBuf> {
    let dot_git = top.join(".git");
    let found = if fs::metadata(&dot_git).ok()?.is_dir() {
        dot_git
    } else {
        // Of a linked work tree, or a submodule.
        let text = read(&dot_git, SHORT)?;
        top.join(text.strip_prefix("gitdir:")?.trim())
    };
    fs::symlink_metadata(found.join("HEAD")).is_ok().then_some(found)
}

/// The commit, and the branch.
fn head(git_dir: &Path) -> (Option<String>, Option<String>) {
    let Some(text) = read(&git_dir.join("HEAD"), SHORT) else { return (None, None) };
    let Some(mut name) = reference(&text).map(str::to_owned) else { return (commit(&text), None) };
    // In reftables HEAD has no more than this for a name.
    let branch =
        name.strip_prefix("refs/heads/").filter(|branch| *branch != ".invalid").map(str::to_owned);
    // All work trees of a repository share its branches.
    let common = read(&git_dir.join("commondir"), SHORT).map(|text| git_dir.join(text.trim()));
    let common = common.as_deref().unwrap_or(git_dir);
    for _ in 0..LINKS {
        let Some(text) = read(&common.join(&name), SHORT) else {
            let packed = read(&common.join("packed-refs"), PACKED);
            return (packed.and_then(|packed| packed_commit(&packed, &name)), branch);
        };
        match reference(&text) {
            Some(next) => name = next.to_owned(),
            None => return (commit(&text), branch),
        }
    }
    (None, branch)
}

/// `ref: refs/heads/main`. A name that leads out of the directory is none.
fn reference(text: &str) -> Option<&str> {
    let name = text.strip_prefix("ref:")?.trim();
    (name.starts_with("refs/") && !name.contains("..")).then_some(name)
}

fn commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_one = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| text.to_owned())
}

/// From lines like `0123… refs/heads/main`.
fn packed_commit(packed: &str, name: &str) -> Option<String> {
    packed.lines().find_map(|line| commit(line.strip_suffix(name)?.strip_suffix(' ')?))
}

/// A text that is there and no longer than this.
fn read(path: &Path, most: u64) -> Option<String> {
    let mut text = String::new();
    let read = File::open(path).ok()?.take(most + 1).read_to_string(&mut text).ok()?;
    (read as u64 <= most).then_some(text)
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
    fn the_commit_stands_in_the_file_of_the_branch_or_in_the_packed_references() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let deep = top.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(probe(&deep), None);
        fs::create_dir(top.join(".git")).unwrap();
        assert_eq!(probe(&deep), None, "git takes a directory without HEAD for none");
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
        assert_eq!(found(&top.join("link/..")).0, top, "the true path");
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
    fn what_is_odd_is_left_to_git() {
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
}
