//! `slotd source`: the work tree that a job was submitted from.

use crate::Ctx;
use crate::text;
use crate::time::iso;
use serde_json::{Value, json};
use slotd_model::Timestamp;
use slotd_model::source::{Changes, JobSource, Taken, WorkTree};
use std::borrow::Cow;

/// Maximum number of files listed; `--json` has more.
const NAMED: usize = 10;

fn changes(source: &JobSource) -> Option<Result<&Changes, &str>> {
    source.taken.as_ref().map(|taken| taken.source.changes.as_ref().map_err(String::as_str))
}

/// Returns the commit and the branch at submission, or as git reported them shortly afterwards.
fn head<'a>(tree: &'a WorkTree, taken: Option<&'a Taken>) -> (Option<&'a str>, Option<&'a str>) {
    let later = taken.map(|taken| &taken.source);
    let commit = tree.commit.as_deref().or_else(|| later?.commit.as_deref());
    (commit, tree.branch.as_deref().or_else(|| later?.branch.as_deref()))
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what} file{}", if count == 1 { "" } else { "s" })
}

/// Returns the source as several lines of text.
pub fn text(label: &str, tree: &WorkTree, source: &JobSource, ctx: &Ctx) -> String {
    let printable =
        |text: &str| text::printable(Cow::Owned(text.to_owned()), ctx.is_terminal()).into_owned();
    let (commit, branch) = head(tree, source.taken.as_ref());
    let mut text = format!("Job {label} was submitted from {}\n", printable(&tree.root));
    let branch = branch.map(|branch| format!(", branch {}", printable(branch))).unwrap_or_default();
    text += &format!("  commit: {}{branch}\n", commit.unwrap_or("none or unknown"));
    match changes(source) {
        None => text += "  changes: unknown: the daemon exited before it could run git\n",
        Some(Err(why)) => text += &format!("  changes: unknown: {}\n", printable(why)),
        Some(Ok(found)) if found.is_clean() => text += "  changes: none, the work tree is clean\n",
        Some(Ok(found)) => {
            let parts = [(found.changed, "changed"), (found.untracked, "untracked")];
            let parts = parts.into_iter().filter(|(number, _)| *number > 0);
            let parts: Vec<String> = parts.map(|(number, what)| count(number, what)).collect();
            text += &format!("  changes: dirty, {}\n", parts.join(", "));
            if let Some(why) = &found.left_out {
                text += &format!("  diff not recorded: {}\n", printable(why));
            }
            for file in found.untracked_files.iter().take(NAMED) {
                let size = file.bytes.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default();
                text += &format!("  untracked: {}{size}\n", printable(&file.path));
            }
            if let more @ 1.. =
                found.untracked.saturating_sub(NAMED.min(found.untracked_files.len()))
            {
                text += &format!("  untracked: {more} more\n");
            }
        }
    }
    if let Some(taken) = &source.taken {
        text += &format!("  checked at: {}\n", iso(taken.at, &ctx.tz));
    }
    text
}

/// Returns the source as JSON. Unknown values are null.
pub fn json(label: &str, tree: &WorkTree, source: &JobSource) -> Value {
    let (commit, branch) = head(tree, source.taken.as_ref());
    let found = changes(source);
    let known = found.and_then(Result::ok);
    json!({
        "job": label,
        "tree": tree.root,
        "commit": commit,
        "branch": branch,
        "looked_at": source.taken.as_ref().map(|taken| Timestamp::as_secs(taken.at)),
        "dirty": known.map(|changes| !changes.is_clean()),
        "changed": known.map(|changes| changes.changed),
        "untracked": known.map(|changes| changes.untracked),
        "untracked_files": known.map(|changes| &changes.untracked_files),
        "diff_left_out": known.and_then(|changes| changes.left_out.as_ref()),
        "not_known": found.and_then(Result::err),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::source::{Source, Untracked};

    fn printed(changes: Result<Changes, String>) -> String {
        let tree =
            WorkTree { root: "/w".to_owned(), commit: Some("0123".to_owned()), branch: None };
        let source =
            Source { commit: Some("4567".to_owned()), branch: Some("main".to_owned()), changes };
        let taken = Some(Taken { at: Timestamp::from_secs(0), source });
        let source = JobSource { tree: Some(tree.clone()), taken };
        text("12", &tree, &source, &crate::fixture::ctx())
    }

    #[test]
    fn the_commit_is_from_submission_and_files_are_counted() {
        let head = "Job 12 was submitted from /w\n  commit: 0123, branch main\n";
        let at = "  checked at: 1970-01-01T00:00:00\n";
        assert_eq!(
            printed(Ok(Changes::default())),
            format!("{head}  changes: none, the work tree is clean\n{at}")
        );
        let file = |n| Untracked { path: format!("f{n}"), bytes: (n > 0).then_some(n) };
        let changes = Changes {
            changed: 1,
            untracked: 12,
            untracked_files: (0..12).map(file).collect(),
            left_out: None,
        };
        let text = printed(Ok(changes));
        assert!(
            text.contains(
                "  changes: dirty, 1 changed file, 12 untracked files\n  untracked: f0\n"
            ),
            "{text}"
        );
        assert!(text.contains("f9 (9 bytes)\n  untracked: 2 more\n"), "{text}");
        let unknown = printed(Err("git\tfailed".to_owned()));
        assert!(unknown.contains("  changes: unknown: git"), "{unknown}");
    }
}
