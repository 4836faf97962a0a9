//! The git work tree that a job was submitted from: its commit, and how it differed from that.

use serde_json::Value;
use slotd_kit::Slotd;
use slotd_kit::git::{git, repository, source};

fn submit_in(slotd: &Slotd, dir: &str, options: &str) -> u32 {
    let told = slotd
        .sh(&format!("cd {dir} && sbatch --parsable -o /dev/null {options} --wrap true"))
        .ok()
        .stdout;
    told.trim().parse().unwrap_or_else(|why| panic!("{why}: {told}"))
}

fn head(slotd: &Slotd, dir: &str) -> String {
    git(slotd, dir, "rev-parse HEAD").trim().to_owned()
}

#[test]
fn a_job_is_told_with_the_commit_and_the_changes_that_it_was_submitted_with() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let clean = submit_in(&slotd, "work/deep", "");
    let first = head(&slotd, "work");
    let told = source(&slotd, clean);
    assert_eq!((&told["commit"], &told["branch"]), (&first.as_str().into(), &"main".into()));
    assert_eq!(
        (&told["dirty"], &told["changed"], &told["untracked"]),
        (&false.into(), &0.into(), &0.into())
    );
    assert_eq!(told["tree"].as_str(), slotd.path("work").to_str());
    assert_eq!(slotd.line(&format!("slotd source --diff {clean}")).ok().stdout, "");

    slotd
        .sh("printf 'two\\n' >>work/tracked; printf '\\0\\1\\377' >work/blob; printf 12345 >'work/a b'; touch work/x.o")
        .ok();
    git(&slotd, "work", "add blob");
    let dirty = submit_in(&slotd, "work", "-a 3,5");
    let told = source(&slotd, format!("{dirty}_5"));
    assert_eq!(
        (&told["dirty"], &told["changed"], &told["untracked"]),
        (&true.into(), &2.into(), &1.into())
    );
    assert_eq!(told["untracked_files"], serde_json::json!([{ "path": "a b", "bytes": 5 }]));
    let text = slotd.line(&format!("slotd source {dirty}")).ok().stdout;
    assert!(text.contains(&format!("  commit: {first}, branch main\n")), "{text}");
    assert!(
        text.contains(
            "  changes: dirty, 2 changed files, 1 untracked file\n  untracked: a b (5 bytes)\n"
        ),
        "{text}"
    );

    // What it printed makes of the commit what was there.
    slotd
        .sh(&format!("git clone -q work again && slotd source --diff {dirty} >diff && cd again && git apply ../diff"))
        .ok();
    slotd.sh("cmp work/tracked again/tracked && cmp work/blob again/blob").ok();
    let status = git(&slotd, "work", "status --porcelain");
    assert_eq!(status, "A  blob\n M tracked\n?? \"a b\"\n", "it is left as it was");

    // A commit later, and another branch: what was recorded stays.
    git(&slotd, "work", "commit -q -a -m second");
    git(&slotd, "work", "checkout -q -b side");
    let later = submit_in(&slotd, "work", "");
    assert_eq!(source(&slotd, later)["branch"], "side");
    assert_eq!(source(&slotd, dirty)["commit"], first.as_str());
    assert_ne!(source(&slotd, later)["commit"], first.as_str());
}

#[test]
fn each_way_to_submit_notes_the_work_tree_of_the_working_directory() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("cd work/deep && srun --no-wait true && srun true && salloc true && echo '{\"wrap\": \"true\"}' | slotd submit").ok();
    slotd.sh("sbatch -D work/deep --wrap true && slotd run -D work -- true && mkdir other && sbatch -D other --wrap true").ok();
    let commit = head(&slotd, "work");
    for job in 1..=6 {
        assert_eq!(source(&slotd, job)["commit"], commit.as_str(), "{job}");
    }
    slotd.wait_end(5);
    // A retry is a submission of its own.
    git(&slotd, "work", "commit -q --allow-empty -m second");
    slotd.line("slotd retry 5").ok();
    assert_eq!(source(&slotd, 8)["commit"], head(&slotd, "work").as_str());
    assert_eq!(source(&slotd, 5)["commit"], commit.as_str());
    let none =
        "slotd: error: job 7 was submitted from no git work tree, or while SLOTD_GIT=off was set\n";
    slotd.expect("slotd source 7", 1, "", none);
    slotd.expect(
        "slotd source 99",
        1,
        "",
        "slotd: error: there is no job 99\n  hint: `sacct` lists all jobs\n",
    );
    slotd.expect("slotd source x", 2, "", "slotd: error: Invalid job id x\n");
}

/// Puts a `git` before the true one, each call of which is a line of `calls`, and then this shell text is run. The place of
/// the true one.
fn git_that(slotd: &Slotd, does: &str) -> String {
    let real = slotd.sh("command -v git").ok().stdout.trim().to_owned();
    let calls = slotd.path("calls");
    let script =
        format!("#!/bin/sh\necho \"$*\" >>'{}'\n{does}\nexec '{real}' \"$@\"\n", calls.display());
    slotd_kit::scripts::executable(&slotd.base.join("bin/git"), &script);
    real
}

#[test]
fn one_look_serves_all_that_were_submitted_before_it_began() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git_that(&slotd, &slotd.gate("look"));
    let first = submit_in(&slotd, "work", "--hold");
    slotd.wait("git to be called", || slotd.exists("calls").then_some(()));
    slotd.sh("cd work && for n in 1 2 3 4 5 6 7 8 9; do sbatch --hold --wrap true; done").ok();
    slotd.open("look");
    for job in first..first + 10 {
        assert_eq!(source(&slotd, job)["dirty"], false, "{job}");
    }
    assert_eq!(slotd.read("calls").matches(" status ").count(), 2, "{}", slotd.read("calls"));
}

#[test]
fn changes_of_another_commit_than_that_of_the_submission_are_not_known() {
    let mut slotd = Slotd::start();
    repository(&slotd, "work");
    let first = head(&slotd, "work");
    let real = git_that(&slotd, &slotd.gate("look"));
    let job = submit_in(&slotd, "work", "--hold");
    slotd.wait("git to be called", || slotd.exists("calls").then_some(()));
    let commit = format!(
        "cd work && '{real}' -c user.name=a -c user.email=a@b commit -q --allow-empty -m second"
    );
    slotd.sh(&commit).ok();
    slotd.open("look");
    let told = source(&slotd, job);
    assert_eq!((&told["commit"], &told["dirty"]), (&first.as_str().into(), &Value::Null));
    let why = format!("HEAD was at {} before git could be asked", head(&slotd, "work"));
    assert_eq!(told["not_known"], why.as_str());
    let out = slotd.cmd("slotd", &["source", "--diff", &job.to_string()]).fails(1);
    assert_eq!(
        out.stderr,
        format!("slotd: error: how the work tree of job {job} differed is not known: {why}\n")
    );

    // A daemon that dies before git has answered.
    std::fs::remove_file(slotd.path("look")).expect("it is there");
    let job = submit_in(&slotd, "work", "--hold");
    slotd.kill9();
    slotd.start_daemon();
    slotd.open("look");
    let text = slotd.line(&format!("slotd source {job}")).ok().stdout;
    assert!(
        text.contains("changes: not known: git was not asked, since the daemon ended before\n"),
        "{text}"
    );
    assert_eq!(source(&slotd, job)["commit"], head(&slotd, "work").as_str());
}

#[test]
fn what_is_too_much_is_left_out_and_what_git_refuses_is_told() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let noise: Vec<u8> =
        (0..5_000_000_u32).map(|n| b'a' + (n.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
    std::fs::write(slotd.path("work/tracked"), noise).expect("room for it");
    let large = submit_in(&slotd, "work", "--hold");
    let told = source(&slotd, large);
    assert_eq!(
        (&told["changed"], &told["diff_left_out"]),
        (&1.into(), &"it is more than 4 MB".into())
    );
    let out = slotd.cmd("slotd", &["source", "--diff", &large.to_string()]).fails(1);
    assert!(out.stderr.ends_with(" is not known: it is more than 4 MB\n"), "{}", out.stderr);

    git_that(&slotd, "echo fatal: dubious ownership >&2; exit 128");
    let refused = submit_in(&slotd, "work", "--hold");
    let told = source(&slotd, refused);
    assert_eq!(
        (&told["not_known"], &told["dirty"]),
        (&"git: dubious ownership".into(), &Value::Null)
    );
    assert!(told["commit"].is_string(), "it is known without git: {told}");
}

#[test]
fn nothing_of_the_user_is_run_or_changed_and_the_owner_can_forbid_it() {
    let slotd =
        Slotd::setup().set("GIT_DIR", "/nonexistent").set("GIT_TRACE", "/dev/stderr").start();
    repository(&slotd, "work");
    let trap =
        slotd.program("trap", &format!("#!/bin/sh\ntouch '{}'\n", slotd.path("sprung").display()));
    let trap = trap.display();
    git(&slotd, "work", &format!("config core.fsmonitor '{trap}'"));
    git(&slotd, "work", &format!("config diff.external '{trap}'"));
    git(&slotd, "work", "config diff.noprefix true");
    slotd.sh(&format!("cp '{trap}' work/.git/hooks/post-index-change; echo two >>work/tracked; touch -d 2001-01-01 work/.gitignore")).ok();
    let index = std::fs::read(slotd.path("work/.git/index")).expect("an index");
    let job = submit_in(&slotd, "work", "");
    let diff = slotd.line(&format!("slotd source --diff {job}")).ok().stdout;
    assert!(
        diff.starts_with("diff --git a/tracked b/tracked\n") && diff.ends_with("\n+two\n"),
        "{diff}"
    );
    assert!(!slotd.exists("sprung"));
    assert!(std::fs::read(slotd.path("work/.git/index")).expect("an index") == index);

    let off = Slotd::setup().set("SLOTD_GIT", "off").start();
    repository(&off, "work");
    git_that(&off, "");
    let job = submit_in(&off, "work", "-W");
    off.cmd("slotd", &["source", &job.to_string()]).fails(1);
    assert!(!off.exists("calls"));
    assert!(
        off.line("scontrol show config").ok().stdout.contains("\nSlotdGit                = off\n")
    );
}
