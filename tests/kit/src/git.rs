//! git work trees that jobs are submitted from.

use crate::Slotd;
use serde_json::Value;

/// git, asked by the test as its user would.
pub fn git(slotd: &Slotd, dir: &str, words: &str) -> String {
    let line = format!(
        "cd {dir} && unset GIT_DIR GIT_TRACE && HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 git -c user.name=a -c user.email=a@b -c init.defaultBranch=main {words}"
    );
    slotd.sh(&line).ok().stdout
}

/// A repository `name` with one commit, in which `tracked` is.
pub fn repository(slotd: &Slotd, name: &str) {
    slotd
        .sh(&format!("mkdir -p {name}/deep && printf 'one\\n' >{name}/tracked && printf '*.o\\n' >{name}/.gitignore"))
        .ok();
    git(slotd, name, "init -q");
    git(slotd, name, "add .");
    git(slotd, name, "commit -q -m first");
}

pub fn source(slotd: &Slotd, job: impl ToString) -> Value {
    let told = slotd.cmd("slotd", &["source", "--json", &job.to_string()]).ok().stdout;
    serde_json::from_str(&told).unwrap_or_else(|why| panic!("{why}: {told}"))
}

/// Puts a `git` before the true one, each call of which is a line of `calls`, and then this shell
/// text is run. The place of the true one.
pub fn git_that(slotd: &Slotd, does: &str) -> String {
    let real = slotd.sh("command -v git").ok().stdout.trim().to_owned();
    let calls = slotd.path("calls");
    let script =
        format!("#!/bin/sh\necho \"$*\" >>'{}'\n{does}\nexec '{real}' \"$@\"\n", calls.display());
    crate::scripts::executable(&slotd.base.join("bin/git"), &script);
    real
}
