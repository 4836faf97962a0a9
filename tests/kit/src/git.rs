//! Git work trees from which jobs are submitted.

use crate::Slotd;
use serde_json::Value;

/// Runs git as the user would.
pub fn git(slotd: &Slotd, dir: &str, words: &str) -> String {
    let line = format!(
        "cd {dir} && unset GIT_DIR GIT_TRACE && HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 git -c user.name=a -c user.email=a@b -c init.defaultBranch=main {words}"
    );
    slotd.sh(&line).ok().stdout
}

/// Creates a repository with one commit that contains the file `tracked`.
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

/// Puts a `git` in front of the real one. It appends each call as a line to `calls`, runs the shell
/// code `does` and then the real git. Returns the path of the real one.
pub fn git_that(slotd: &Slotd, does: &str) -> String {
    let real = slotd.sh("command -v git").ok().stdout.trim().to_owned();
    let calls = slotd.path("calls");
    let script =
        format!("#!/bin/sh\necho \"$*\" >>'{}'\n{does}\nexec '{real}' \"$@\"\n", calls.display());
    crate::scripts::executable(&slotd.base.join("bin/git"), &script);
    real
}
