//! The git work tree from which a job was submitted: its commit, and the differences from that
//! commit.

use serde_json::Value;
use slotd_kit::git::{git, git_that, repository, source};
use slotd_kit::{Setup, Slotd, proc, scripts};

fn submit_in(slotd: &Slotd, dir: &str, options: &str) -> u32 {
    let printed = slotd
        .sh(&format!("cd {dir} && sbatch --parsable -o /dev/null {options} --wrap true"))
        .ok()
        .stdout;
    printed.trim().parse().unwrap_or_else(|why| panic!("{why}: {printed}"))
}

fn head(slotd: &Slotd, dir: &str) -> String {
    git(slotd, dir, "rev-parse HEAD").trim().to_owned()
}

#[test]
fn source_shows_the_commit_and_the_changes_at_submission() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let clean = submit_in(&slotd, "work/deep", "");
    let first = head(&slotd, "work");
    let recorded = source(&slotd, clean);
    assert_eq!(
        (&recorded["commit"], &recorded["branch"]),
        (&first.as_str().into(), &"main".into())
    );
    assert_eq!(
        (&recorded["dirty"], &recorded["changed"], &recorded["untracked"]),
        (&false.into(), &0.into(), &0.into())
    );
    assert_eq!(recorded["tree"].as_str(), slotd.path("work").to_str());
    assert_eq!(slotd.line(&format!("slotd source --diff {clean}")).ok().stdout, "");

    slotd
        .sh("printf 'two\\n' >>work/tracked; printf '\\0\\1\\377' >work/blob; printf 12345 >'work/a b'; touch work/x.o")
        .ok();
    git(&slotd, "work", "add blob");
    let dirty = submit_in(&slotd, "work", "-a 3,5");
    let recorded = source(&slotd, format!("{dirty}_5"));
    assert_eq!(
        (&recorded["dirty"], &recorded["changed"], &recorded["untracked"]),
        (&true.into(), &2.into(), &1.into())
    );
    assert_eq!(recorded["untracked_files"], serde_json::json!([{ "path": "a b", "bytes": 5 }]));
    let text = slotd.line(&format!("slotd source {dirty}")).ok().stdout;
    assert!(text.contains(&format!("  commit: {first}, branch main\n")), "{text}");
    assert!(
        text.contains(
            "  changes: dirty, 2 changed files, 1 untracked file\n  untracked: a b (5 bytes)\n"
        ),
        "{text}"
    );

    // Applied to the commit, the printed diff restores the work tree.
    slotd
        .sh(&format!("git clone -q work again && slotd source --diff {dirty} >diff && cd again && git apply ../diff"))
        .ok();
    slotd.sh("cmp work/tracked again/tracked && cmp work/blob again/blob").ok();
    let status = git(&slotd, "work", "status --porcelain");
    assert_eq!(status, "A  blob\n M tracked\n?? \"a b\"\n", "the work tree is unchanged");

    // A later commit and another branch do not change the record.
    git(&slotd, "work", "commit -q -a -m second");
    git(&slotd, "work", "checkout -q -b side");
    let later = submit_in(&slotd, "work", "");
    assert_eq!(source(&slotd, later)["branch"], "side");
    assert_eq!(source(&slotd, dirty)["commit"], first.as_str());
    assert_ne!(source(&slotd, later)["commit"], first.as_str());
}

#[test]
fn every_kind_of_submission_records_the_work_tree() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("cd work/deep && srun --no-wait true && srun true && salloc true && echo '{\"wrap\": \"true\"}' | slotd submit").ok();
    slotd.sh("sbatch -D work/deep --wrap true && slotd run -D work -- true && mkdir other && sbatch -D other --wrap true").ok();
    let commit = head(&slotd, "work");
    for job in 1..=6 {
        assert_eq!(source(&slotd, job)["commit"], commit.as_str(), "{job}");
    }
    slotd.wait_end(5);
    // A retry is a new submission.
    git(&slotd, "work", "commit -q --allow-empty -m second");
    slotd.line("slotd retry 5").ok();
    assert_eq!(source(&slotd, 8)["commit"], head(&slotd, "work").as_str());
    assert_eq!(source(&slotd, 5)["commit"], commit.as_str());
    let none =
        "slotd: error: job 7 was not submitted from a git work tree, or SLOTD_GIT=off was set\n";
    slotd.expect("slotd source 7", 1, "", none);
    slotd.expect(
        "slotd source 99",
        1,
        "",
        "slotd: error: there is no job 99\n  hint: `sacct` lists all jobs\n",
    );
    slotd.expect("slotd source x", 2, "", "slotd: error: Invalid job id x\n");
}

#[test]
fn one_run_of_git_serves_all_jobs_submitted_before_it() {
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
fn changes_are_unknown_if_the_commit_changed_meanwhile() {
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
    let recorded = source(&slotd, job);
    assert_eq!((&recorded["commit"], &recorded["dirty"]), (&first.as_str().into(), &Value::Null));
    let why = format!("HEAD had moved to {} before git ran", head(&slotd, "work"));
    assert_eq!(recorded["not_known"], why.as_str());
    let out = slotd.cmd("slotd", &["source", "--diff", &job.to_string()]).fails(1);
    assert_eq!(
        out.stderr,
        format!("slotd: error: the uncommitted changes of job {job} are not available: {why}\n")
    );

    // The daemon dies before git has finished.
    std::fs::remove_file(slotd.path("look")).expect("an existing file");
    let job = submit_in(&slotd, "work", "--hold");
    slotd.kill9();
    slotd.start_daemon();
    slotd.open("look");
    let text = slotd.line(&format!("slotd source {job}")).ok().stdout;
    assert!(
        text.contains("changes: unknown: the daemon exited before it could run git\n"),
        "{text}"
    );
    assert_eq!(source(&slotd, job)["commit"], head(&slotd, "work").as_str());
}

#[test]
fn a_large_diff_is_left_out_and_an_error_of_git_is_reported() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let noise: Vec<u8> =
        (0..5_000_000_u32).map(|n| b'a' + (n.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
    std::fs::write(slotd.path("work/tracked"), noise).expect("a writable directory");
    let large = submit_in(&slotd, "work", "--hold");
    let recorded = source(&slotd, large);
    assert_eq!(
        (&recorded["changed"], &recorded["diff_left_out"]),
        (&1.into(), &"it is larger than 4 MB".into())
    );
    let out = slotd.cmd("slotd", &["source", "--diff", &large.to_string()]).fails(1);
    assert!(out.stderr.ends_with(" are not available: it is larger than 4 MB\n"), "{}", out.stderr);

    git_that(&slotd, "echo fatal: dubious ownership >&2; exit 128");
    let refused = submit_in(&slotd, "work", "--hold");
    let recorded = source(&slotd, refused);
    assert_eq!(
        (&recorded["not_known"], &recorded["dirty"]),
        (&"git: dubious ownership".into(), &Value::Null)
    );
    assert!(recorded["commit"].is_string(), "the commit is read without git: {recorded}");
}

#[test]
fn no_user_programs_are_run_and_the_owner_can_disable_git() {
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

#[test]
fn a_client_can_disable_git() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git_that(&slotd, "");
    for command in ["sbatch -W --wrap true", "srun true", "salloc true"] {
        slotd.sh(&format!("cd work && SLOTD_GIT=off {command}")).ok();
    }
    slotd.sh("cd work && echo '{\"wrap\": \"true\"}' | SLOTD_GIT=off slotd submit").ok();
    for job in 1..=4 {
        slotd.cmd("slotd", &["source", &job.to_string()]).fails(1);
    }
    assert!(!slotd.exists("calls"));
    // An explicit --snapshot still works.
    slotd.sh("cd work && SLOTD_GIT=off sbatch --snapshot --hold --wrap true").ok();
}

#[test]
fn the_output_of_a_job_is_no_change_of_its_tree() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git_that(&slotd, &slotd.gate("look"));
    let submit = |options: &str| {
        let words = format!("cd work && sbatch --parsable {options} --wrap true");
        slotd.sh(&words).ok().stdout.trim().parse::<u32>().unwrap()
    };
    // The first query of git serves only this job, and the second one all others.
    submit("--hold");
    slotd.wait("git to be called", || slotd.exists("calls").then_some(()));
    let (job, named) = (submit(""), submit("-o out-%j-%x -e err"));
    let array = submit("-a 1-2");
    for job in [job, named, array] {
        slotd.wait_end(job);
    }
    slotd.write("work/other", "x");
    slotd.open("look");
    for job in [job, named, array] {
        let recorded = source(&slotd, job);
        assert_eq!(recorded["untracked"], 1, "{recorded}");
        assert_eq!(recorded["untracked_files"][0]["path"], "other", "{recorded}");
    }
}

#[test]
fn fifos_in_place_of_repository_files_block_nobody() {
    let slotd = Slotd::start();
    slotd.sh("mkdir -p shared/mine dir/.git/refs/heads && mkfifo shared/.git dir/.git/HEAD dir/.git/config").ok();
    for dir in ["shared/mine", "dir"] {
        let job = submit_in(&slotd, dir, "--hold");
        let out = slotd.cmd("slotd", &["source", &job.to_string()]);
        assert_ne!(out.stdout.contains("commit: none"), dir == "shared/mine", "{out:?}");
    }
    repository(&slotd, "work");
    for file in ["config", "packed-refs", "info/exclude", "refs/heads/main", "index"] {
        let file = slotd.path("work/.git").join(file);
        let old = std::fs::read(&file).ok();
        let _ = std::fs::remove_file(&file);
        slotd.sh(&format!("mkfifo '{}'", file.display())).ok();
        let job = submit_in(&slotd, "work", "--hold");
        let recorded = source(&slotd, job);
        let is_harmless = ["packed-refs", "info/exclude"].iter().any(|name| file.ends_with(name));
        assert_eq!(recorded["not_known"].is_null(), is_harmless, "{}: {recorded}", file.display());
        std::fs::remove_file(&file).expect("an existing file");
        old.into_iter().for_each(|old| std::fs::write(&file, old).expect("a writable directory"));
    }
    assert_eq!(source(&slotd, submit_in(&slotd, "work", "--hold"))["dirty"], false);
}

#[test]
fn a_hanging_git_blocks_nobody_and_is_reported_by_doctor() {
    let slotd = Setup::default().prepare();
    repository(&slotd, "work");
    repository(&slotd, "hung");
    let hung = slotd.path("hung").display().to_string();
    let real = slotd.sh("command -v git").ok().stdout;
    let hangs = format!(
        "#!/bin/sh\ncase \"$*\" in *'-C {hung} '*)\n\
         [ -e '{hung}.once' ] || {{ touch '{hung}.once'; exec sleep 1000; }}\n\
         while [ ! -e '{hung}.go' ]; do sleep 0.1; done;; esac\nexec {} \"$@\"\n",
        real.trim()
    );
    scripts::executable(&slotd.base.join("bin/git"), &hangs);
    let mut slotd = slotd;
    slotd.start_daemon();
    let first = submit_in(&slotd, "hung", "--hold");
    let asked = || {
        let is_git = |pid: &i32| proc::cmdline(*pid).trim_end() == "sleep 1000";
        slotd.processes().into_iter().find(is_git)
    };
    let git = slotd.wait("git to hang", asked);
    let second = submit_in(&slotd, "hung", "--hold");
    assert_eq!(source(&slotd, submit_in(&slotd, "work", "--hold"))["dirty"], false);
    let named = format!("git took too long in {hung}: ");
    let recorded = source(&slotd, first);
    let why = recorded["not_known"].as_str().unwrap_or_default();
    assert!(why.starts_with(&format!("git has made no progress in {hung} ")), "{recorded}");
    assert!(!proc::is_alive(git));
    let doctor = slotd.line("slotd doctor").fails(1).stdout;
    assert!(doctor.contains(&named) && doctor.contains("fix: run `git status` there"), "{doctor}");
    // git is still running for the second submission.
    std::fs::write(format!("{hung}.go"), "").expect("free space");
    assert_eq!(source(&slotd, second)["dirty"], false);
    assert!(!slotd.line("slotd doctor").stdout.contains(&named));
}

/// Lists everything in a directory: names, modes, modification times and contents.
fn listing(slotd: &Slotd, dir: &str) -> String {
    let names = "find . -printf '%p %M %T@ %s\n' | sort";
    slotd
        .sh(&format!("cd {dir} && {names} && find . -type f | sort | xargs -d '\n' sha256sum"))
        .ok()
        .stdout
}

/// Sets every known setting of a repository that makes git start a program. These programs create
/// files in `sprung`.
fn set_traps(slotd: &Slotd, dir: &str) {
    let trap =
        slotd.program("trap", "#!/bin/sh\ntouch \"$(dirname \"$0\")/../work/sprung/$1\"; exit 1\n");
    let trap = trap.display();
    slotd.sh("mkdir -p sprung").ok();
    let git_dir = git(slotd, dir, "rev-parse --absolute-git-dir");
    let git_dir = git_dir.trim();
    let config = format!(
        "[core]\nfsmonitor = {trap} fsmonitor\nhooksPath = {git_dir}/hooks\npager = {trap} pager\nsshCommand = {trap} ssh\n\
         askPass = {trap} askpass\neditor = {trap} editor\ngitProxy = {trap} proxy\nalternateRefsCommand = {trap} refs\n\
         attributesFile = {git_dir}/attributes\nuntrackedCache = true\n\
         [filter \"evil\"]\nclean = {trap} clean\nsmudge = {trap} smudge\nrequired = true\n\
         [filter \"longevil\"]\nprocess = {trap} process\nrequired = true\n\
         [diff]\nexternal = {trap} external\nnoprefix = true\n\
         [diff \"evil\"]\ntextconv = {trap} textconv\ncommand = {trap} command\ncachetextconv = true\n\
         [merge \"evil\"]\ndriver = {trap} driver\n\
         [pager]\nstatus = {trap} pager-status\ndiff = {trap} pager-diff\nconfig = {trap} pager-config\n\
         [alias]\nstatus = !{trap} alias\ndiff = !{trap} alias\nls-files = !{trap} alias\n\
         [gpg]\nprogram = {trap} gpg\n[credential]\nhelper = {trap} credential\n[uploadpack]\npackObjectsHook = {trap} pack\n\
         [gc]\nauto = 1\n[maintenance]\nauto = true\nstrategy = incremental\n[index]\nthreads = 2\n\
         [status]\nsubmoduleSummary = true\n[log]\nshowSignature = true\n[protocol \"ext\"]\nallow = always\n\
         [include]\npath = {git_dir}/more\n[extensions]\npartialClone = evil\n\
         [remote \"evil\"]\npromisor = true\nurl = ext::{trap} promisor %S\n"
    );
    slotd
        .sh(&format!(
            "sed -i 's/repositoryformatversion = 0/repositoryformatversion = 1/' {git_dir}/config"
        ))
        .ok();
    let file = std::path::Path::new(git_dir).join("config");
    let old = std::fs::read_to_string(&file).expect("a configuration");
    std::fs::write(&file, old + &config).expect("a writable directory");
    let more = format!("[filter \"evil\"]\nclean = {trap} included\n");
    std::fs::write(file.with_file_name("more"), more).expect("a writable directory");
    std::fs::write(file.with_file_name("attributes"), "* filter=evil diff=evil\n")
        .expect("a writable directory");
    std::fs::create_dir_all(file.with_file_name("hooks")).expect("a writable directory");
    for hook in [
        "post-index-change",
        "pre-auto-gc",
        "reference-transaction",
        "post-checkout",
        "fsmonitor-watchman",
    ] {
        let text = format!("#!/bin/sh\nexec '{trap}' hook-{hook}\n");
        slotd_kit::scripts::executable(&file.with_file_name("hooks").join(hook), &text);
    }
}

#[test]
fn no_program_of_a_repository_is_run_and_nothing_is_changed() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    repository(&slotd, "lib");
    let attributes = "* filter=evil diff=evil merge=evil\n*.long filter=longevil\n*.o -filter\n";
    for dir in ["work", "lib"] {
        slotd.write(&format!("{dir}/.gitattributes"), attributes);
        slotd.sh(&format!("cd {dir} && echo two >two && echo three >three.long")).ok();
        git(&slotd, dir, "add .");
        git(&slotd, dir, "commit -q -m attributes");
    }
    git(&slotd, "work", "-c protocol.file.allow=always submodule --quiet add ../lib sub");
    git(&slotd, "work", "commit -q -m sub");
    // Without this object, git would fetch it.
    let blob = git(&slotd, "work", "rev-parse HEAD:two");
    let object = format!("work/.git/objects/{}/{}", &blob[..2], blob[2..].trim());
    std::fs::rename(slotd.path(&object), slotd.path("two.object")).expect("a loose object");
    for dir in ["work", "work/sub"] {
        set_traps(&slotd, dir);
        slotd
            .sh(&format!(
                "cd {dir} && for f in tracked two three.long .gitignore; do echo more >>$f; done; echo new >new"
            ))
            .ok();
    }
    // The user's own settings also name programs, but only for repositories that the user trusts.
    let trap = slotd.path("trap").display().to_string();
    let own = format!(
        "[filter \"evil\"]\nclean = {trap} own\n[core]\nfsmonitor = {trap} own\nexcludesFile = ~/ignored\n"
    );
    std::fs::write(slotd.base.join("home/.gitconfig"), own).expect("a writable directory");
    std::fs::write(slotd.base.join("home/ignored"), "*.mine\n").expect("a writable directory");
    slotd.sh("touch work/x.mine").ok();
    let before = listing(&slotd, "work/.git");

    let plain = submit_in(&slotd, "work", "--hold");
    let recorded = source(&slotd, plain);
    assert_eq!(
        (&recorded["changed"], &recorded["untracked"]),
        (&5.into(), &1.into()),
        "with the submodule: {recorded}"
    );
    assert!(
        recorded["diff_left_out"].as_str().is_some_and(|why| why.starts_with("git: ")),
        "{recorded}"
    );
    let copied = submit_in(&slotd, "work", "--snapshot --hold");
    assert_eq!(
        (&source(&slotd, copied)["changed"], &source(&slotd, copied)["untracked"]),
        (&5.into(), &1.into())
    );
    slotd.cmd("slotd", &["source", "--diff", &copied.to_string()]).fails(1);
    assert_eq!(slotd.sh("ls sprung").ok().stdout, "");
    assert!(listing(&slotd, "work/.git") == before);

    let copies = std::fs::read_dir(slotd.root.join("lib/snapshots")).expect("a copy").flatten();
    let copy = copies.map(|entry| entry.path().join("tree")).next().expect("a copy");
    for name in ["two", "three.long", "new", "sub/two", "sub/new"] {
        let content = |dir: &std::path::Path| std::fs::read(dir.join(name)).expect("a copy");
        assert_eq!(content(&copy), content(&slotd.path("work")), "{name}");
    }
    assert!(!copy.join("x.mine").exists(), "the user's global excludes apply");

    // With all objects, there is a diff.
    std::fs::rename(slotd.path("two.object"), slotd.path(&object)).expect("an existing file");
    let whole = submit_in(&slotd, "work", "--hold");
    let diff = slotd.line(&format!("slotd source --diff {whole}")).ok().stdout;
    assert!(
        diff.contains("diff --git a/two b/two\n") && diff.contains("\n two\n+more\n"),
        "{diff}"
    );
    assert_eq!(slotd.sh("ls sprung").ok().stdout, "");

    // Verify that the traps work.
    slotd
        .sh(&format!(
            "cd work; git status; echo >.gitattributes; alone='git -c core.attributesFile=/dev/null'; $alone diff --ignore-submodules=all; \
             rm ../{object}; $alone diff --no-ext-diff --ignore-submodules=all; $alone add tracked; true"
        ))
        .ok();
    let sprung = slotd.sh("ls sprung").ok().stdout;
    for trap in ["external", "fsmonitor", "hook-post-index-change", "included", "promisor"] {
        assert!(sprung.lines().any(|name| name == trap), "{trap}: {sprung}");
    }
}

#[test]
fn a_clone_without_blobs_is_not_changed() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git(&slotd, "work", "config uploadpack.allowFilter true");
    let from = slotd.path("work").display().to_string();
    git(
        &slotd,
        ".",
        &format!(
            "-c protocol.file.allow=always clone -q --no-checkout --filter=blob:none file://{from} clone"
        ),
    );
    slotd.sh("cp work/.gitignore clone && echo other >clone/tracked").ok();
    git(&slotd, "clone", "reset -q --mixed");
    let before = listing(&slotd, "clone/.git");
    let recorded = source(&slotd, submit_in(&slotd, "clone", "--hold"));
    assert_eq!(
        (&recorded["changed"], &recorded["commit"]),
        (&1.into(), &head(&slotd, "work").as_str().into()),
        "{recorded}"
    );
    assert!(
        recorded["diff_left_out"].as_str().is_some_and(|why| why.starts_with("git: ")),
        "{recorded}"
    );
    submit_in(&slotd, "clone", "--hold --snapshot");
    assert!(listing(&slotd, "clone/.git") == before);
    assert!(
        git(&slotd, "clone", "rev-list --objects --all --missing=print").contains('?'),
        "a blob is still missing"
    );
}

#[test]
fn every_repository_format_is_read_or_reported_as_unreadable() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git(&slotd, "work", "gc -q");
    let mut forms = vec!["work"];
    let mut made = |name: &'static str, words: &str| {
        git(&slotd, ".", words);
        forms.push(name);
    };
    made("shared", "clone -q --shared work shared");
    made("linked", "-C work worktree add -q ../linked -b side");
    for (name, words) in
        [("sha256", "--object-format=sha256"), ("reftable", "--ref-format=reftable")]
    {
        let is_known = slotd.sh(&format!("git init -q {words} {name}")).code == 0;
        if is_known {
            slotd
                .sh(&format!("cp -r work/tracked work/.gitignore {name} && mkdir -p {name}/deep"))
                .ok();
            made(name, &format!("-C {name} add ."));
            git(&slotd, name, "commit -q -m first");
        }
    }
    made("split", "clone -q work split");
    git(&slotd, "split", "update-index --split-index");
    made("sparse", "clone -q work sparse");
    slotd.sh("cd sparse && mkdir -p deep other && echo x >deep/x && echo y >other/y").ok();
    git(&slotd, "sparse", "add .");
    git(&slotd, "sparse", "commit -q -m second");
    git(&slotd, "sparse", "sparse-checkout set --cone --sparse-index deep");
    for form in forms {
        let clean = source(&slotd, submit_in(&slotd, form, "--hold"));
        slotd.sh(&format!("cd {form} && echo two >>tracked && echo new >new")).ok();
        let job = submit_in(&slotd, form, "--hold");
        let recorded = source(&slotd, job);
        if form == "reftable" {
            assert_eq!(recorded["not_known"], "HEAD or its branch has an unusual format");
        } else {
            assert_eq!(clean["dirty"], false, "{form}: {clean}");
            assert_eq!(
                (&recorded["changed"], &recorded["untracked"]),
                (&1.into(), &1.into()),
                "{form}: {recorded}"
            );
            assert_eq!(recorded["commit"], head(&slotd, form).as_str(), "{form}");
            let diff = slotd.line(&format!("slotd source --diff {job}")).ok().stdout;
            assert!(diff.ends_with(" one\n+two\n"), "{form}: {diff}");
        }
        submit_in(&slotd, form, "--hold --snapshot");
    }
    // A file outside of the sparse checkout that exists anyway.
    slotd.sh("cd sparse && mkdir -p other && echo z >other/y").ok();
    let recorded = source(&slotd, submit_in(&slotd, "sparse", "--hold"));
    assert_eq!(
        (&recorded["changed"], &recorded["untracked"]),
        (&2.into(), &1.into()),
        "{recorded}"
    );
    git(&slotd, "work", "config extensions.newHash true");
    let recorded = source(&slotd, submit_in(&slotd, "work", "--hold"));
    assert_eq!(
        recorded["not_known"],
        "the repository has the extension newhash, which slotd cannot read"
    );
}

#[test]
fn recorded_diffs_are_limited_and_the_oldest_are_deleted_first() {
    let slotd = Slotd::setup().set("SLOTD_DIFFS_MB", 4).start();
    let config = slotd.line("scontrol show config").ok().stdout;
    assert!(config.contains("\nSlotdDiffsMb            = 4\n"), "{config}");
    repository(&slotd, "work");
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", slotd.daemon_pid()))
            .expect("a running daemon");
        let own = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB"))
            .expect("a figure");
        own.trim().parse::<u64>().expect("a number") >> 10
    };
    let before = memory();
    // Each file has 3 MB and cannot be compressed to less than half.
    let mut seed = 7_u32;
    let mut noise = || -> Vec<u8> {
        let mut digit = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"0123456789abcdef"[(seed >> 28) as usize]
        };
        (0..3_000_000).map(|at| if at % 80 == 79 { b'\n' } else { digit() }).collect()
    };
    let sizes: Vec<u64> = (1..=8)
        .map(|n| {
            slotd.sh(&format!("cp -r work tree{n}")).ok();
            std::fs::write(slotd.path(&format!("tree{n}/tracked")), noise())
                .expect("a writable directory");
            let job = submit_in(&slotd, &format!("tree{n}"), "--hold");
            assert_eq!(source(&slotd, job)["diff_left_out"], Value::Null);
            std::fs::metadata(slotd.root.join("lib/state.db")).expect("a database").len()
        })
        .collect();
    assert!(sizes.iter().all(|size| *size < 6_000_000), "{sizes:?}");
    let after = memory();
    assert!(after < before + 12, "the daemon grew from {before} MB to {after} MB");
    let recorded = source(&slotd, 1);
    assert_eq!(
        (&recorded["changed"], &recorded["dirty"]),
        (&1.into(), &true.into()),
        "the rest of the record is kept"
    );
    let why = "it was deleted to keep all diffs within SLOTD_DIFFS_MB";
    assert_eq!(recorded["diff_left_out"], why);
    let out = slotd.cmd("slotd", &["source", "--diff", "1"]).fails(1);
    assert_eq!(
        out.stderr,
        format!("slotd: error: the uncommitted changes of job 1 are not available: {why}\n")
    );
    slotd.sh("cd work && slotd source --diff 8 | git apply && cmp tracked ../tree8/tracked").ok();
}
