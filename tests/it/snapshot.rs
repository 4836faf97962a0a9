//! `sbatch --snapshot`: a job runs in a copy of its git work tree, made at submission.

use slotd_kit::disk::SmallDisk;
use slotd_kit::git::{git, git_that, repository, source};
use slotd_kit::{Slotd, proc, scripts};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

fn copies(slotd: &Slotd) -> Vec<String> {
    let Ok(found) = fs::read_dir(slotd.root.join("lib/snapshots")) else { return Vec::new() };
    found.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn the_copy(slotd: &Slotd) -> PathBuf {
    let copies = copies(slotd);
    assert_eq!(copies.len(), 1, "{copies:?}");
    slotd.root.join("lib/snapshots").join(&copies[0]).join("tree")
}

fn number(out: slotd_kit::Out) -> u32 {
    out.ok().stdout.trim().parse().expect("a number")
}

#[test]
fn a_job_sees_the_tree_as_of_submission_and_writes_output_to_the_original() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    repository(&slotd, "lib");
    git(&slotd, "work", "-c protocol.file.allow=always submodule --quiet add ../lib sub");
    git(&slotd, "work", "commit -q -m second");
    slotd.sh("cd work; echo changed >>tracked; echo new >deep/'a b'; echo no >x.o; ln -s ../tracked deep/link; echo mine >>sub/tracked").ok();
    slotd.sh("cd work; printf '#!/bin/sh\\necho tool\\n' >tool; chmod 755 tool; touch -d 2001-02-03 tool; echo gone >gone; git add gone; rm gone").ok();
    let script = "#!/bin/sh\n#SBATCH --snapshot\ncat link 'a b' ../sub/tracked; ../tool; stat -c %y ../tool | cut -c1-10\n\
        ls ..; pwd; echo $SLOTD_SNAPSHOT_DIR; echo $SLURM_SUBMIT_DIR; echo later >../tracked; echo bad >&2\n";
    slotd.write("work/deep/job.sh", script);
    let job = number(slotd.sh("cd work/deep && sbatch --parsable -H -e err-%j job.sh"));
    // Later changes to the tree do not affect the job.
    slotd.sh("cd work && rm -r deep/link tool sub/tracked && echo other >tracked").ok();
    slotd.line(&format!("scontrol release {job}")).ok();
    assert_eq!(slotd.wait_end(job).state(), "COMPLETED");
    let copy = slotd.root.join("lib/snapshots").join(&copies(&slotd)[0]).join("tree");
    let copy = copy.display();
    let expected = format!(
        "one\nchanged\nnew\none\nmine\ntool\n2001-02-03\ndeep\nsub\ntool\ntracked\n{copy}/deep\n{copy}\n{}\n",
        slotd.path("work/deep").display()
    );
    assert_eq!(slotd.read(&format!("work/deep/slurm-{job}.out")), expected);
    assert_eq!(slotd.read(&format!("work/deep/err-{job}")), "bad\n");
    assert_eq!(
        slotd.show(job, "StdOut"),
        slotd.path(&format!("work/deep/slurm-{job}.out")).display().to_string()
    );
    assert_eq!(slotd.read("work/tracked"), "other\n");

    let recorded = source(&slotd, job);
    assert_eq!(
        (&recorded["dirty"], recorded["tree"].as_str()),
        (&true.into(), slotd.path("work").to_str())
    );
    let diff = slotd.line(&format!("slotd source --diff {job}")).ok().stdout;
    assert!(
        diff.contains("\n+changed\n") && !diff.contains("later") && !diff.contains("other"),
        "{diff}"
    );
}

#[test]
fn tasks_and_retries_share_a_copy_that_is_deleted_with_the_last_of_them() {
    let mut slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    repository(&slotd, "work");
    let tasks = "cat tracked; [ -e \"$SLOTD_ROOT/ok\" ]";
    let line = format!("cd work && sbatch --parsable --snapshot -a 1,2 --wrap '{tasks}'");
    let array = number(slotd.sh(&line));
    slotd.sh("echo other >work/tracked").ok();
    slotd.wait_array(array, 2);
    assert_eq!(copies(&slotd).len(), 1);
    slotd.kill9();
    slotd.start_daemon();
    slotd.sh("touch $SLOTD_ROOT/ok").ok();
    let again = number(slotd.line(&format!("slotd retry --parsable {array}")));
    slotd.wait_array(again, 2);
    assert_eq!(slotd.read(&format!("work/slurm-{again}_2.out")), "one\n");
    assert_eq!(source(&slotd, again)["changed"], 0, "as of the copy");

    // The first array is deleted, and the copy is kept for the second.
    let clean = |slotd: &Slotd, options: &[&str]| {
        slotd.cmd("slotd", &[&["clean", "--older-than", "0s"], options].concat()).ok().stdout
    };
    assert_eq!(copies(&slotd).len(), 1);
    let dry = clean(&slotd, &["--dry-run"]);
    assert!(dry.starts_with("4 jobs ") && copies(&slotd).len() == 1, "{dry}");
    let wet = clean(&slotd, &["--yes"]);
    assert_eq!(copies(&slotd).len(), 0);
    let freed = |text: &str| {
        text.lines().next().and_then(|line| Some(line.split_once(" freed ")?.1.to_owned()))
    };
    assert_eq!(
        (&wet[..7], freed(&wet)),
        ("4 jobs ", freed(&dry.replace("would free", "freed"))),
        "{dry}{wet}"
    );
}

#[test]
fn a_missing_or_failed_copy_is_an_error_and_leaves_nothing() {
    let mut slotd = Slotd::start();
    repository(&slotd, "work");
    let none = format!(
        "--snapshot copies a git work tree, but {} is not in one\n",
        slotd.work().display()
    );
    slotd.expect("sbatch --snapshot --wrap true", 1, "", &format!("sbatch: error: {none}"));
    slotd.expect(
        "sbatch --snapshot --test-only --wrap true",
        1,
        "",
        &format!("sbatch: error: {none}"),
    );
    assert_eq!(slotd.sh("cd work && sbatch --snapshot -p nowhere --wrap true").fails(1).stdout, "");
    assert_eq!(copies(&slotd).len(), 0, "the job was refused");
    slotd.sh("mkfifo work/pipe").ok();

    let job = number(slotd.sh("cd work && sbatch --parsable --snapshot -W --wrap 'exit 0'"));
    let copy = slotd.root.join("lib/snapshots").join(&copies(&slotd)[0]);
    fs::remove_dir_all(copy).expect("a removable directory");
    let out = slotd.line(&format!("slotd retry {job}")).fails(1);
    let why = format!(
        "slotd: error: job {job} ran in a copy of its work tree (--snapshot) that no longer exists\n"
    );
    assert!(out.stderr.starts_with(&why), "{}", out.stderr);

    // The next daemon deletes the copy of a killed client, and keeps a copy that a client still
    // locks.
    let [left, held] = ["1-1", "2-2"].map(|name| slotd.root.join("lib/snapshots").join(name));
    for dir in [&left, &held] {
        fs::create_dir_all(dir.join("tree")).expect("a writable directory");
    }
    let lock = fs::File::open(&held).expect("an existing path");
    lock.lock().expect("a lock");
    slotd.stop();
    slotd.start_daemon();
    slotd.wait("the orphan to be deleted", || (!left.exists()).then_some(()));
    assert!(held.exists());
}

#[test]
fn a_copy_that_fills_the_disk_is_an_error_and_leaves_nothing() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("head -c 3000000 /dev/zero >work/large").ok();
    let place = slotd.root.join("lib/snapshots");
    fs::create_dir_all(&place).expect("a writable directory");
    let Some(_disk) = SmallDisk::mount(&place, 1 << 20) else { return };
    let out = slotd.sh("cd work && sbatch --snapshot --wrap true").fails(1);
    let root = slotd.path("work");
    let why =
        format!("sbatch: error: cannot copy the work tree {} for --snapshot: ", root.display());
    assert!(
        out.stderr.starts_with(&why) && out.stderr.contains("No space left on device"),
        "{}",
        out.stderr
    );
    assert_eq!(copies(&slotd).len(), 0);
    assert_eq!(slotd.all_records().len(), 0);
}

#[test]
fn run_sweep_and_submit_support_snapshot() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let out = slotd.sh("cd work && slotd run --snapshot -- sh -c 'cat tracked; pwd'").ok().stdout;
    assert!(out.starts_with("one\n/") && out.contains("/lib/snapshots/"), "{out}");
    slotd.write("work/each.sh", "#!/bin/sh\ncat tracked; pwd\n");
    let array =
        number(slotd.sh("cd work && slotd sweep --param a=1,2 --parsable --snapshot each.sh"));
    slotd
        .sh("cd work && (for n in 1 2; do echo '{\"wrap\": \"cat tracked; pwd\"}'; done) | slotd submit --snapshot")
        .ok();
    for record in slotd.wait_array(array, 2) {
        assert_eq!(record.state(), "COMPLETED");
    }
    let [one, two] = [array + 2, array + 3].map(|job| {
        slotd.wait_end(job);
        slotd.read(&format!("work/slurm-{job}.out"))
    });
    assert!(
        one == two && one.starts_with("one\n") && one.contains("/lib/snapshots/"),
        "{one}{two}"
    );
    assert_eq!(copies(&slotd).len(), 3, "one for each call");
}

#[test]
fn a_link_in_place_of_a_tracked_directory_is_copied_as_a_link() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("cd work && mkdir -p data/sub empty && for f in a sub/b; do echo original >data/$f; done").ok();
    git(&slotd, "work", "add .");
    git(&slotd, "work", "commit -q -m data");
    // The directory is moved and replaced by a link. There is also a link to a file outside of the
    // tree.
    slotd.sh("mv work/data moved && chmod 711 moved/sub && ln -s $PWD/moved work/data && chmod 4755 work/tracked").ok();
    slotd.sh("ln -s $PWD/moved/a work/to-a && ln -s /nonexistent work/dangling && rm -r work/empty && ln -s ../moved work/empty").ok();
    let job = number(slotd.sh("cd work && sbatch --parsable --snapshot --wrap 'cat data/a to-a'"));
    assert_eq!(slotd.wait_end(job).state(), "COMPLETED");
    assert_eq!(slotd.read(&format!("work/slurm-{job}.out")), "original\noriginal\n");
    assert_eq!(
        (slotd.read("moved/a").as_str(), slotd.read("moved/sub/b").as_str()),
        ("original\n", "original\n")
    );
    let mode = |path: PathBuf| {
        fs::symlink_metadata(path).expect("an existing path").permissions().mode() & 0o7777
    };
    assert_eq!(mode(slotd.path("moved/sub")), 0o711);
    let copy = the_copy(&slotd);
    assert_eq!(fs::read_link(copy.join("data")).expect("a link"), slotd.path("moved"));
    assert!(copy.join("dangling").is_symlink());
    assert_eq!(mode(copy.join("tracked")), 0o755, "the copy has no setuid bit");
}

#[test]
fn names_in_the_index_outside_of_the_work_tree_are_left_out() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.write("precious", "precious");
    let absolute = slotd.path("precious").display().to_string();
    let names =
        ["../precious", absolute.as_str(), ".git/config", "deep/../.git/config", ".GIT/config"];
    for (at, name) in (0_u8..).zip(names) {
        let stand_in = char::from(b'A' + at).to_string().repeat(name.len());
        slotd.write(&format!("work/{stand_in}"), "stand-in");
        git(&slotd, "work", &format!("add {stand_in}"));
    }
    let path = slotd.path("work/.git/index");
    let mut index = fs::read(&path).expect("an index");
    for (at, name) in (0_u8..).zip(names) {
        let stand_in = vec![b'A' + at; name.len()];
        let found = index.windows(name.len()).position(|part| part == stand_in).expect("its name");
        index[found..found + name.len()].copy_from_slice(name.as_bytes());
    }
    fs::write(&path, index).expect("a writable directory");
    let listed = slotd.sh("cd work && git ls-files").ok().stdout;
    assert!(listed.contains("../precious"), "git should list the name in the index: {listed}");
    slotd.sh("cd work && sbatch --snapshot --hold --wrap true").ok();
    let copy = the_copy(&slotd);
    assert_eq!(slotd.read("precious"), "precious");
    let beside =
        fs::read_dir(copy.parent().expect("a directory")).expect("an existing path").flatten();
    let mut beside: Vec<_> =
        beside.map(|entry| entry.file_name().into_string().expect("a name")).collect();
    beside.sort();
    assert_eq!(beside, ["source.json", "tree"]);
    assert!(
        copy.join("tracked").is_file()
            && !copy.join(".git").exists()
            && !copy.join(".GIT").exists()
    );
}

#[test]
fn a_sparse_file_stays_sparse() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd
        .sh("cd work && truncate -s 256M sparse && printf middle | dd of=sparse bs=1 seek=100000000 conv=notrunc 2>&1")
        .ok();
    slotd.sh("cd work && sbatch --snapshot --hold --wrap true").ok();
    let copy = the_copy(&slotd).join("sparse");
    let found = fs::metadata(&copy).expect("a copy");
    assert_eq!(found.len(), 256 << 20);
    assert!(found.blocks() * 512 < 4 << 20, "{} blocks", found.blocks());
    slotd.sh(&format!("cmp work/sparse {}", copy.display())).ok();
}

#[test]
fn the_copy_of_a_killed_client_is_deleted_at_once() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git_that(&slotd, &slotd.gate("look"));
    let mut sbatch = slotd.command("sbatch");
    sbatch.args(["--snapshot", "--wrap", "true"]).current_dir(slotd.path("work"));
    let killed = slotd.spawn(sbatch);
    slotd.wait("git to be called", || slotd.exists("calls").then_some(()));
    assert_eq!(copies(&slotd).len(), 1);
    killed.signal(9);
    slotd.wait("the copy to be deleted", || copies(&slotd).is_empty().then_some(()));
    slotd.open("look");
    killed.end();
    assert_eq!(slotd.all_records().len(), 0);
    // The copy of a job is kept when its client ends.
    slotd.sh("cd work && sbatch --snapshot --hold --wrap true").ok();
    assert_eq!(copies(&slotd).len(), 1);
    slotd.sh("cd work && sbatch --snapshot -p nowhere --wrap true").fails(1);
    assert_eq!(copies(&slotd).len(), 1);
}

#[test]
fn a_link_in_place_of_the_snapshot_directory_is_refused() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let (place, elsewhere) = (slotd.root.join("lib/snapshots"), slotd.path("elsewhere"));
    fs::create_dir(&elsewhere).expect("a writable directory");
    std::os::unix::fs::symlink(&elsewhere, &place).expect("a writable directory");
    let out = slotd.sh("cd work && sbatch --snapshot --wrap true").fails(1);
    let why = format!("{}: it is a link", place.display());
    assert!(out.stderr.contains(&why), "{}", out.stderr);
    assert_eq!(fs::read_dir(&elsewhere).expect("an existing path").count(), 0);
}

#[test]
fn a_copy_of_git_s_own_files_is_refused() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    git(&slotd, "work", "clone -q --bare . bare.git");
    git(&slotd, "work", "worktree add -q ../linked");
    slotd.sh("mkdir -p work/.git/jobs work/plain/.github").ok();
    for (place, git_dir) in [
        ("work/.git", "work/.git"),
        ("work/.git/jobs", "work/.git"),
        ("work/.git/worktrees/linked", "work/.git"),
        ("work/bare.git", "work/bare.git"),
        ("work/bare.git/refs", "work/bare.git"),
    ] {
        let out = slotd.sh(&format!("cd {place} && sbatch --snapshot --wrap true")).fails(1);
        let wanted = format!("is in git's own directory {}\n", slotd.path(git_dir).display());
        assert!(out.stderr.contains(&wanted), "{place}: {}", out.stderr);
    }
    assert!(copies(&slotd).is_empty() && slotd.all_records().is_empty());
    for place in ["work/plain", "work/plain/.github", "linked"] {
        slotd.sh(&format!("cd {place} && sbatch --snapshot --hold --wrap true")).ok();
    }
}

#[test]
fn git_variables_and_settings_cannot_redirect_a_copy() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    repository(&slotd, "other");
    slotd.sh("mkdir secret; echo secret >secret/key; echo other >other/tracked").ok();
    let at = |name: &str| slotd.path(name).display().to_string();
    let own = slotd.read("work/tracked");
    let copied = |words: &str| {
        let line = format!(
            "cd work && {words} sbatch --parsable --snapshot -o /dev/null --wrap \
             'ls >{0}; cat tracked >>{0}'",
            at("seen")
        );
        let job = number(slotd.sh(&line));
        slotd.wait_state(job, "COMPLETED");
        slotd.read("seen")
    };
    let before = copied("");
    assert!(before.ends_with(&own) && !before.contains("key"), "{before}");
    for words in [
        format!("GIT_DIR={}/.git", at("other")),
        format!("GIT_WORK_TREE={}", at("secret")),
        format!("GIT_DIR={}/.git GIT_WORK_TREE={}", at("work"), at("secret")),
        format!("GIT_INDEX_FILE={}/.git/index", at("other")),
        format!(
            "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.worktree GIT_CONFIG_VALUE_0={}",
            at("secret")
        ),
    ] {
        assert_eq!(copied(&words), before, "{words}");
    }
    for place in [at("secret"), "..".to_owned(), "../../secret".to_owned(), "/".to_owned()] {
        git(&slotd, "work", &format!("config core.worktree {place}"));
        assert_eq!(copied(""), before, "{place}");
    }
}

#[test]
fn a_killed_client_takes_its_git_with_it() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let real = slotd.sh("command -v git").ok().stdout;
    let hangs = format!(
        "#!/bin/sh\ncase \"$*\" in *ls-files*) while :; do sleep 1; done;; esac\nexec {} \"$@\"\n",
        real.trim()
    );
    scripts::executable(&slotd.base.join("bin/git"), &hangs);
    let mut command = slotd.command("sbatch");
    command.current_dir(slotd.path("work")).args(["--snapshot", "--wrap", "true"]);
    let client = slotd.spawn(command);
    let lists = |pid: &i32| proc::cmdline(*pid).contains("ls-files");
    let git = slotd
        .wait("git to list the files", || proc::children(client.pid()).into_iter().find(lists));
    client.signal(proc::KILL);
    slotd.wait("the end of git", || (!proc::is_alive(git)).then_some(()));
    assert_eq!(client.end().code, 137);
    slotd.wait("the copy to be deleted", || copies(&slotd).is_empty().then_some(()));
}

#[test]
fn fifos_that_git_would_open_are_named() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    let refused = |fifo: &str, line: &str| {
        let path = slotd.path("work").join(fifo);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let kept = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        slotd.sh(&format!("mkfifo '{}'", path.display())).ok();
        let out = slotd.sh(&format!("cd work && {line}")).fails(1);
        let expected =
            format!("{}: it is a FIFO or a device, which would block git", path.display());
        assert!(out.stderr.contains(&expected), "{fifo}: {}", out.stderr);
        fs::remove_file(&path).unwrap();
        kept.into_iter().for_each(|kept| fs::write(&path, kept).unwrap());
    };
    slotd.write("work/d/e/f", "x");
    for fifo in [".gitignore", ".gitattributes", "d/e/.gitignore", ".git/objects/info/alternates"] {
        refused(fifo, "sbatch --snapshot --wrap true");
    }
    // Patterns are read by slotd, which ignores everything but files.
    fs::create_dir_all(slotd.path("work/.git/info")).unwrap();
    let _ = fs::remove_file(slotd.path("work/.git/info/exclude"));
    slotd.sh("mkfifo work/.git/info/exclude && cd work && sbatch --snapshot --wrap true").ok();
    // A FIFO that git does not open blocks nobody.
    slotd.sh("mkfifo work/d/pipe && cd work && sbatch --snapshot --wrap true").ok();
}

#[test]
fn an_unreadable_submodule_is_an_error() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    repository(&slotd, "work/sub");
    git(&slotd, "work", "-c advice.addEmbeddedRepo=false add sub");
    slotd.sh("rm -rf work/sub/.git").ok();
    let out = slotd.sh("cd work && sbatch --snapshot --wrap true").fails(1);
    let sub = slotd.path("work/sub").display().to_string();
    assert!(
        out.stderr.contains(&format!("{sub}: the files in it would be missing from the copy")),
        "{}",
        out.stderr
    );
    assert!(copies(&slotd).is_empty() && slotd.all_records().is_empty());
    slotd
        .sh("rm -r work/sub/* work/sub/.gitignore; cd work && sbatch --snapshot --hold --wrap true")
        .ok();
}

#[test]
fn a_file_that_has_become_a_directory_is_copied_with_its_contents() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("cd work && rm tracked && mkdir -p tracked/deep && echo in >tracked/deep/file").ok();
    let job =
        number(slotd.sh("cd work && sbatch --parsable --snapshot --wrap 'cat tracked/deep/file'"));
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read(&format!("work/slurm-{job}.out")), "in\n");
    assert_eq!(source(&slotd, job)["dirty"], true);
    // Files in it that git ignores are left out, as elsewhere.
    slotd.sh("cd work && echo deep >>.gitignore").ok();
    let job = number(slotd.sh("cd work && sbatch --parsable --snapshot --wrap 'ls tracked'"));
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read(&format!("work/slurm-{job}.out")), "");
}

#[test]
fn a_submodule_is_dirty_if_its_files_or_its_commit_changed() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    repository(&slotd, "lib");
    git(&slotd, "work", "-c protocol.file.allow=always submodule --quiet add ../lib sub");
    git(&slotd, "work", "commit -q -m second");
    let is_dirty = || {
        let job = number(slotd.sh("cd work && sbatch --parsable --snapshot -H --wrap true"));
        source(&slotd, job)["dirty"].clone()
    };
    assert_eq!(is_dirty(), false);
    slotd.sh("echo more >>work/sub/tracked").ok();
    assert_eq!(is_dirty(), true, "a changed file");
    git(&slotd, "work/sub", "commit -q -a -m third");
    assert_eq!(is_dirty(), true, "another commit");
}

#[test]
fn an_unreadable_directory_is_an_error() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("cd work && mkdir closed && echo a >closed/a && chmod 0 closed").ok();
    if std::fs::read_dir(slotd.path("work/closed")).is_ok() {
        // Root can read every directory.
        return;
    }
    let out = slotd.sh("cd work && sbatch --snapshot --wrap true").fails(1);
    assert!(out.stderr.contains("closed"), "{}", out.stderr);
    assert!(copies(&slotd).is_empty() && slotd.all_records().is_empty());
    slotd.sh("chmod 700 work/closed").ok();
}

#[test]
fn a_change_with_the_same_size_and_time_is_found() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("cd work && echo 8 >old && touch -d 2020-01-01 old").ok();
    git(&slotd, "work", "add old");
    git(&slotd, "work", "commit -q -m second");
    slotd.sh("cd work && echo 9 >old && touch -d 2020-01-01 old").ok();
    let job = number(slotd.sh("cd work && sbatch --parsable --snapshot -H --wrap true"));
    let recorded = source(&slotd, job);
    assert_eq!((&recorded["dirty"], &recorded["changed"]), (&true.into(), &1.into()), "{recorded}");
    let copy = slotd.root.join("lib/snapshots").join(&copies(&slotd)[0]).join("tree/old");
    let shown = slotd.sh(&format!("stat -c %y {} | cut -c1-10", copy.display())).ok();
    assert_eq!(shown.text(), "2020-01-01");
}
