//! `sbatch --snapshot`: a job runs in a copy of its git work tree as it was at the submission.

use slotd_kit::Slotd;
use slotd_kit::disk::SmallDisk;
use slotd_kit::git::{git, repository, source};
use std::fs;

fn copies(slotd: &Slotd) -> Vec<String> {
    let Ok(found) = fs::read_dir(slotd.root.join("lib/snapshots")) else { return Vec::new() };
    found.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn number(out: slotd_kit::Out) -> u32 {
    out.ok().stdout.trim().parse().expect("a number")
}

#[test]
fn a_job_sees_the_tree_as_it_was_and_writes_its_output_where_it_was_submitted() {
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
    // What is done to the tree now is nothing to the job.
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

    let told = source(&slotd, job);
    assert_eq!(
        (&told["dirty"], told["tree"].as_str()),
        (&true.into(), slotd.path("work").to_str())
    );
    let diff = slotd.line(&format!("slotd source --diff {job}")).ok().stdout;
    assert!(
        diff.contains("\n+changed\n") && !diff.contains("later") && !diff.contains("other"),
        "{diff}"
    );
}

#[test]
fn tasks_requeues_restarts_and_retries_share_a_copy_that_goes_with_the_last_of_them() {
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
    assert_eq!(source(&slotd, again)["changed"], 0, "as the copy was made");

    // The first array goes, and the copy stays for the second.
    let clean = |slotd: &Slotd, options: &[&str]| {
        slotd.cmd("slotd", &[&["clean", "--older-than", "0"], options].concat()).ok().stdout
    };
    assert_eq!(copies(&slotd).len(), 1);
    let dry = clean(&slotd, &["--dry-run"]);
    assert!(dry.starts_with("4 jobs ") && copies(&slotd).len() == 1, "{dry}");
    let wet = clean(&slotd, &[]);
    assert_eq!(
        (wet.lines().next(), copies(&slotd).len()),
        (Some(dry.replace("would be", "were").replace("would free", "freed").trim()), 0)
    );
}

#[test]
fn a_copy_that_is_gone_or_cannot_be_made_is_told_and_leaves_nothing() {
    let mut slotd = Slotd::start();
    repository(&slotd, "work");
    let none =
        format!("--snapshot copies a git work tree, and {} is in none\n", slotd.work().display());
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
    fs::remove_dir_all(copy).expect("it is ours");
    let out = slotd.line(&format!("slotd retry {job}")).fails(1);
    let why = format!(
        "slotd: error: job {job} ran in a copy of its work tree (--snapshot), which is not kept any more\n"
    );
    assert!(out.stderr.starts_with(&why), "{}", out.stderr);

    // What a client left that was killed goes with the next daemon; what one holds stays.
    let [left, held] = ["1-1", "2-2"].map(|name| slotd.root.join("lib/snapshots").join(name));
    for dir in [&left, &held] {
        fs::create_dir_all(dir.join("tree")).expect("room for it");
    }
    let lock = fs::File::open(&held).expect("it is there");
    lock.lock().expect("nobody has it");
    slotd.stop();
    slotd.start_daemon();
    slotd.wait("the orphan to go", || (!left.exists()).then_some(()));
    assert!(held.exists());
}

#[test]
fn a_full_disk_is_told_and_nothing_is_left_there() {
    let slotd = Slotd::start();
    repository(&slotd, "work");
    slotd.sh("head -c 3000000 /dev/zero >work/large").ok();
    let place = slotd.root.join("lib/snapshots");
    fs::create_dir_all(&place).expect("room for it");
    let Some(_disk) = SmallDisk::mount(&place, 1 << 20) else { return };
    let out = slotd.sh("cd work && sbatch --snapshot --wrap true").fails(1);
    let root = slotd.path("work");
    let why = format!(
        "sbatch: error: the work tree {} cannot be copied for --snapshot: ",
        root.display()
    );
    assert!(
        out.stderr.starts_with(&why) && out.stderr.contains("No space left on device"),
        "{}",
        out.stderr
    );
    assert_eq!(copies(&slotd).len(), 0);
    assert_eq!(slotd.all_records().len(), 0);
}

#[test]
fn each_way_to_submit_a_script_takes_it() {
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
