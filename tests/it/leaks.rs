//! After many jobs, the daemon, its launcher and the disk must be as before.
//! `SLOTD_TEST_JOBS=10000 cargo test --test it leaks:: -- --nocapture` runs more jobs and prints
//! the figures.

use slotd_kit::Slotd;
use std::fs;
use std::path::Path;

/// The resources that the daemon uses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    descriptors: usize,
    threads: usize,
    /// Processes of the test other than the daemon: its launcher.
    processes: usize,
    /// Files and directories below the root, except those of stored jobs.
    files: usize,
    memory_kb: u64,
}

fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let inside = |entry: fs::DirEntry| {
        1 + entry.file_type().map_or(0, |kind| if kind.is_dir() { count(&entry.path()) } else { 0 })
    };
    entries.flatten().map(inside).sum()
}

impl Figures {
    fn of(slotd: &Slotd) -> Figures {
        let process = format!("/proc/{}", slotd.daemon_pid());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let memory = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        Figures {
            descriptors: count(&Path::new(&process).join("fd")),
            threads: fs::read_dir(format!("{process}/task")).unwrap().count(),
            processes: slotd.processes().len(),
            files: count(&slotd.root) - count(&slotd.root.join("lib/jobs")),
            memory_kb: memory.unwrap(),
        }
    }
}

/// Runs an array with this many tasks, with a client that waits for it.
fn run(slotd: &Slotd, tasks: u32) {
    let array = format!("1-{tasks}");
    slotd
        .cmd("sbatch", &["-W", "-a", &array, "-c1", "--mem=1", "-o", "/dev/null", "--wrap", "true"])
        .ok();
}

#[test]
fn many_jobs_leak_no_resources() {
    let jobs: u32 =
        std::env::var("SLOTD_TEST_JOBS").map_or(100, |text| text.parse().expect("SLOTD_TEST_JOBS"));
    let slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    run(&slotd, 100);
    // The first client also causes a one-time cost.
    slotd.cmd("squeue", &[] as &[&str]).ok();
    let settled = |what: &str, is_settled: &dyn Fn(&Figures) -> bool| {
        slotd.wait(what, || Some(Figures::of(&slotd)).filter(is_settled))
    };
    // The first sample of the host's use, which creates a file, is taken after the last end.
    let host_use = slotd.root.join("lib/host_use.jsonl");
    slotd.wait("a sample of the host's use", || host_use.exists().then_some(()));
    let before = settled("the end of the watchers", &|figures| figures.processes == 1);
    for _ in 0..jobs / 100 {
        run(&slotd, 100);
    }
    // Idle threads end after a while and close their files.
    let has_no_more = |now: &Figures| {
        let pairs = [
            (now.descriptors, before.descriptors),
            (now.threads, before.threads),
            (now.files, before.files),
        ];
        now.processes == before.processes && pairs.iter().all(|(now, before)| now <= before)
    };
    let after = slotd_kit::until(|| Some(Figures::of(&slotd)).filter(has_no_more))
        .unwrap_or_else(|| Figures::of(&slotd));
    println!("{jobs} jobs: before {before:?}, after {after:?}");
    assert!(has_no_more(&after), "before {before:?}, after {jobs} jobs {after:?}");
    assert!(
        after.memory_kb < before.memory_kb + 8 * 1024,
        "memory: {before:?}, after {jobs} jobs {after:?}"
    );
    // An end is visible slightly before the database has it.
    let all = format!("{} jobs ", 100 + jobs / 100 * 100);
    slotd.wait("all ends in the database", || {
        let printed = slotd.line("slotd clean --older-than 0s --dry-run").ok().stdout;
        printed.starts_with(&all).then_some(())
    });
    slotd.cmd("slotd", &["clean", "--older-than", "0s", "--yes"]).ok();
    let kept = fs::read_dir(slotd.root.join("lib/jobs")).unwrap().count();
    assert_eq!(kept, 0, "slotd clean left job directories");
}
