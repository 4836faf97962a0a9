//! Temporary faults of the host (no processes, descriptors, inodes), and jobs that crash the
//! daemon: no job fails because of them, and none is lost.

use serde_json::json;
use slotd_kit::disk::ReadOnly;
use slotd_kit::wire::{connect, frame, receive};
use slotd_kit::{Setup, Slotd, limits, proc, until, users};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// A separate small disk for the runtime root, with 200 inodes.
struct SmallDisk {
    at: PathBuf,
    fillers: PathBuf,
}

impl SmallDisk {
    /// Returns `None` and prints a line if the user may not mount.
    fn below(slotd: &Slotd) -> Option<SmallDisk> {
        let at = slotd.root.clone();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m,nr_inodes=200,mode=700", "none"]).arg(&at);
        let mounted = mount.output().is_ok_and(|out| out.status.success());
        if !mounted {
            eprintln!("skipped: no small disk can be mounted");
            return None;
        }
        let fillers = at.join("fillers");
        fs::create_dir(&fillers).unwrap();
        Some(SmallDisk { at, fillers })
    }

    /// Uses up all inodes.
    fn fill(&self) {
        for n in 0.. {
            if File::create(self.fillers.join(n.to_string())).is_err() {
                return;
            }
        }
    }

    fn empty(&self) {
        for entry in fs::read_dir(&self.fillers).unwrap().flatten() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmount lazily, because processes of a failed test may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

#[test]
fn a_host_without_inodes_is_drained_and_its_jobs_wait() {
    let mut slotd = Setup::default().prepare();
    let Some(disk) = SmallDisk::below(&slotd) else { return };
    slotd.start_daemon();
    assert_eq!(slotd.ran(&[], "echo before"), "before\n");
    disk.fill();
    let jobs: Vec<u32> = (0..3).map(|n| slotd.wrap(&[], &format!("echo {n}"))).collect();
    for job in &jobs {
        slotd.wait_reason(*job, "ReqNodeNotAvail");
    }
    let node = slotd_kit::host();
    // While a job is being tried, the node is draining.
    slotd.wait("a drained node", || {
        let shown = slotd.cmd("sinfo", &["-h", "-o", "%T %t %A %F"]).ok();
        (shown.text() == "drained drain 0/0 0/0/1/1").then_some(())
    });
    let user = slotd.sh("printf '%s(%s) ' $(id -un) $(id -u)").ok().stdout;
    let why = slotd.cmd("sinfo", &["-R"]).ok();
    let lines: Vec<&str> = why.lines();
    assert_eq!(lines[0], "REASON               USER      TIMESTAMP           NODELIST");
    assert!(
        lines[1].starts_with("no space on disk: co ") && lines[1].ends_with(&node),
        "{}",
        why.stdout
    );
    let long = slotd.cmd("sinfo", &["-hRl"]).ok();
    let words: Vec<&str> = long.text().split_whitespace().collect();
    assert!(
        ["drng", "drain"].contains(&words[words.len() - 2]) && long.text().contains(&user),
        "{}",
        long.stdout
    );
    let shown = slotd.wait("a drained node", || {
        let shown = slotd.cmd("scontrol", &["show", "node"]).ok();
        shown.stdout.contains("State=IDLE+DRAIN ").then_some(shown)
    });
    assert!(shown.stdout.contains("Reason=no space on disk: could not "), "{}", shown.stdout);
    disk.empty();
    for (n, job) in jobs.iter().enumerate() {
        assert_eq!(slotd.wait_state(*job, "COMPLETED").restarts(), 0);
        assert_eq!(slotd.output(*job), format!("{n}\n"));
    }
    slotd.wait("an idle node", || {
        (slotd.cmd("sinfo", &["-h", "-o", "%T"]).ok().text() == "idle").then_some(())
    });
    assert_eq!(slotd.cmd("sinfo", &["-R"]).ok().lines().len(), 1);
}

/// Runs a job on the whole host, with an array behind it, and makes the host fail meanwhile. The
/// tasks must wait, without having been started, until the host has recovered.
fn check_jobs_wait<T>(
    slotd: &Slotd,
    reason: &str,
    break_host: impl FnOnce() -> Option<T>,
    repair_host: impl FnOnce(T),
) {
    let first = slotd.begun(&["-c", "4"], "go", "true");
    let array = slotd.wrap(&["-a", "0-3"], &slotd.gate("go on"));
    let Some(fault) = break_host() else { return };
    slotd.open("go");
    // Without descriptors, the daemon can report it only in its log.
    slotd.wait("a drained node", || {
        slotd.log().contains(&format!("the node is drained: {reason}: ")).then_some(())
    });
    slotd.wait("another attempt", || {
        (slotd.log().matches(".batch: the launch failed: ").count() > 1).then_some(())
    });
    repair_host(fault);
    slotd.open("go on");
    assert_eq!(slotd.wait_state(first, "COMPLETED").restarts(), 0);
    for task in slotd.wait_array(array, 4) {
        assert_eq!((task.state().as_str(), task.restarts()), ("COMPLETED", 0));
    }
    slotd.wait("an idle node", || {
        (slotd.cmd("sinfo", &["-h", "-o", "%T"]).ok().text() == "idle").then_some(())
    });
}

#[test]
fn jobs_wait_while_the_host_has_no_descriptors() {
    let slotd = Slotd::start();
    let daemon = slotd.daemon_pid();
    // One descriptor is enough for a client. A launch needs two and keeps one.
    let limited = |more| {
        limits::descriptors(daemon, more);
        daemon
    };
    check_jobs_wait(
        &slotd,
        "no descriptors left",
        || Some(limited(Some(1))),
        |_| _ = limited(None),
    );
}

#[test]
fn jobs_wait_while_the_host_cannot_create_processes() {
    let slotd = Slotd::start();
    let is_launcher = |pid: &i32| proc::name(*pid) == "slotd-launcher";
    let launcher = until(|| slotd.processes().into_iter().find(is_launcher)).expect("a launcher");
    check_jobs_wait(&slotd, "no processes left", || limits::Barren::make(launcher), drop);
}

#[test]
fn jobs_wait_while_the_disk_is_read_only() {
    let slotd = Slotd::start();
    check_jobs_wait(&slotd, "read-only disk", || ReadOnly::make(&slotd.root), drop);
}

#[test]
fn a_watcher_that_cannot_write_its_record_ends_on_sigterm() {
    let mut slotd = Setup::default().prepare();
    let Some(disk) = SmallDisk::below(&slotd) else { return };
    slotd.start_daemon();
    let job = slotd.begun(&[], "go", "true");
    let watcher = slotd.watcher_of(job);
    slotd.kill9();
    disk.fill();
    slotd.open("go");
    let left = until(|| (slotd.processes() == [watcher]).then_some(()));
    assert!(left.is_some(), "only the watcher {watcher} should be left: {:?}", slotd.processes());
    assert!(!slotd.job_dir(job).join("exit_status").exists());
    // It receives SIGTERM only while it waits, so repeat the signal until it has checked the disk
    // and waits again.
    let gone = until(|| {
        proc::signal(watcher, proc::TERM);
        slotd.processes().is_empty().then_some(())
    });
    assert!(gone.is_some(), "{:?}", slotd.processes());
}

#[test]
fn a_job_that_crashes_the_daemon_is_held() {
    let mut slotd = Slotd::setup().prepare();
    let hangs = slotd.path("hangs");
    slotd.reset_var("SLOTD_TEST_BREAK", format!("launch hangs:1:{}", hangs.display()));
    slotd.start_daemon();
    let job = slotd.wrap(&["-c", "4"], "true");
    let other = slotd.wrap(&["-c", "4"], "echo started");
    for deaths in 1..=2 {
        slotd.wait_state(job, "RUNNING");
        slotd.wait("a launch in progress", || hangs.exists().then_some(()));
        slotd.kill9();
        if deaths == 1 {
            fs::remove_file(&hangs).unwrap();
        }
        slotd.start_daemon();
    }
    slotd.wait_state(other, "COMPLETED");
    slotd.wait_reason(job, "JobHeldAdmin");
    let shown = slotd.system_comment(job);
    assert!(shown.starts_with("the daemon died 2 times while launching the job"), "{shown}");
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn a_step_that_crashes_the_daemon_fails() {
    let mut slotd = Slotd::setup().prepare();
    let broken = slotd.path("broken");
    slotd.reset_var("SLOTD_TEST_BREAK", format!("launch begins:1:{}", broken.display()));
    slotd.start_daemon();
    slotd.line("salloc --no-shell").ok();
    let mut srun = slotd.command("srun");
    srun.args(["--jobid", "1", "touch", "ran"]);
    let srun = slotd.spawn(srun);
    for _ in 0..2 {
        assert!(
            until(|| (!slotd.daemon_is_running()).then_some(())).is_some(),
            "the daemon is alive"
        );
        // Stop the client until the next daemon serves, so that it does not connect earlier.
        srun.signal(proc::STOP);
        slotd.start_daemon();
        fs::remove_file(&broken).unwrap();
        srun.signal(proc::CONT);
    }
    let failed = srun.end().fails(1);
    let why = "the daemon died 2 times while launching the step";
    assert!(failed.stderr.contains(why), "{}", failed.stderr);
    assert!(slotd.daemon_is_running() && !slotd.exists("ran"));
    assert!(
        slotd.steps(1, "jobid,state").contains("1.0|FAILED"),
        "{}",
        slotd.steps(1, "jobid,state")
    );
    File::create(&broken).unwrap();
    slotd.line("srun --jobid 1 touch ran").ok();
    assert!(slotd.exists("ran"));
    slotd.line("scancel 1").ok();
}

#[test]
fn the_daemon_starts_all_threads_at_the_beginning() {
    let slotd = Slotd::start();
    let threads = || {
        let of_daemon =
            fs::read_dir(format!("/proc/{}/task", slotd.daemon_pid())).unwrap().flatten();
        let named = of_daemon.filter_map(|entry| {
            Some((entry.file_name(), fs::read_to_string(entry.path().join("comm")).ok()?))
        });
        named.collect::<BTreeMap<_, _>>()
    };
    // The threads for blocking work. Each sets its name when it begins.
    let at_start = slotd.wait("four threads for blocking work", || {
        let found = threads();
        (found.values().filter(|name| *name == "aside\n").count() == 4).then_some(found)
    });
    // Writing a script, long responses, start predictions and history are blocking work.
    let last = slotd.wrap(&["-a", "1-100%1", "-H"], "true");
    slotd.cmd("squeue", &["-r", "--start"]).ok();
    slotd.cmd("sacct", &["-X"]).ok();
    slotd.cmd("scancel", &[&last.to_string()]).ok();
    assert_eq!(slotd.ran(&[], "echo after"), "after\n");
    slotd.cmd("slotd", &["clean", "--older-than", "0s", "--yes"]).ok();
    // Other threads may have set their names since then.
    let ids = |of: &BTreeMap<std::ffi::OsString, String>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(ids(&threads()), ids(&at_start), "{at_start:?}");
}

#[test]
fn a_lack_of_descriptors_is_reported_to_each_client() {
    let slotd = Slotd::start();
    let open = || fs::read_dir(format!("/proc/{}/fd", slotd.daemon_pid())).unwrap().count() as u64;
    proc::limit_descriptors(slotd.daemon_pid(), open() + 8);
    let ping = frame(br#""Ping""#, b"");
    let mut clients = Vec::new();
    // Connect until a client is refused. Other threads hold descriptors for short times, so some
    // may become free later.
    let mut fill = || loop {
        let mut client = connect(&slotd.root).unwrap();
        drop(client.write_all(&ping));
        let answer = receive(&mut client).unwrap();
        match answer.get("Refused") {
            Some(why) => break why.clone(),
            None => clients.push(client),
        }
        assert!(clients.len() < 100, "more clients than descriptors");
    };
    let refused = fill();
    assert!(refused["NoDescriptors"].is_u64(), "{refused}");
    let mut times = 0;
    while times < 20 {
        let out = slotd.cmd("squeue", &[] as &[&str]);
        if out.code == 0 {
            fill();
            continue;
        }
        let wanted = "squeue: error: the daemon has no file descriptors left (limit: ";
        let out = out.fails(1);
        assert!(out.stderr.contains(wanted), "{}\n{}", out.stderr, slotd.log());
        times += 1;
    }
    drop(clients);
    slotd.wait("a free descriptor for a client", || slotd.ask(&json!("Ping")).ok());
    let log = slotd.log();
    let count = |words: &str| log.matches(words).count();
    assert!(count("cannot accept a client") <= count("clients are accepted again"), "{log}");
}

#[test]
fn a_daemon_with_too_few_descriptors_says_what_to_do() {
    let slotd = Setup::default().prepare();
    for limit in [12, 20, 24, 32, 36, 63] {
        let why = format!("the limit on open files is {limit}, and the daemon needs 64: raise it");
        let out = slotd.sh(&format!("ulimit -n {limit}; exec slotd daemon")).fails(78);
        assert!(out.stderr.contains(&why) && !out.stderr.contains("panicked"), "{}", out.stderr);
        let out = slotd.sh(&format!("ulimit -n {limit}; exec slotd daemon start")).fails(1);
        assert!(out.stderr.contains(&why) && !out.stderr.contains("panicked"), "{}", out.stderr);
    }
    // A soft limit is raised, but not that of jobs.
    for (limit, of_jobs) in [("-n 64", "64"), ("-S -n 20", "20")] {
        slotd.sh(&format!("ulimit {limit}; exec slotd daemon start")).ok();
        assert_eq!(slotd.ran(&["--propagate=NONE"], "ulimit -S -n").trim(), of_jobs);
        slotd.line("slotd daemon stop").ok();
    }
}

#[test]
fn special_files_as_configuration_are_refused() {
    let mut slotd = Setup::default().prepare();
    let config = slotd.base.join("slotd.toml");
    slotd.reset_var("SLOTD_CONFIG", config.display());
    fs::write(&config, "").unwrap();
    slotd.start_daemon();
    let big = slotd.path("big");
    fs::File::create(&big).unwrap().set_len(1 << 40).unwrap();
    Command::new("mkfifo").arg(slotd.path("fifo")).status().unwrap();
    for (target, why) in [
        (slotd.path("fifo"), "it is not a regular file"),
        ("/dev/zero".into(), "it is not a regular file"),
        (slotd.work(), "it is not a regular file"),
        (big, "it is larger than 8 MB, the maximum"),
    ] {
        fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink(&target, &config).unwrap();
        let out = slotd.line("scontrol reconfigure").fails(1);
        let text = format!("{}: {why}", config.display());
        assert!(out.stderr.contains(&text), "{}", out.stderr);
        slotd.stop();
        let out = slotd.run(slotd.daemon_command()).fails(78);
        assert!(out.stderr.contains(&text), "{}", out.stderr);
        fs::remove_file(&config).unwrap();
        fs::write(&config, "").unwrap();
        slotd.start_daemon();
    }
}

#[test]
fn hanging_work_times_out_and_does_not_block_the_shutdown() {
    let mut slotd = Setup::default().prepare();
    let work = "reading the configuration";
    slotd.reset_var("SLOTD_TEST_BREAK", format!("{work}:1:{}", slotd.base.join("hung").display()));
    slotd.start_daemon();
    let mut reconfigure = slotd.command("scontrol");
    reconfigure.arg("reconfigure");
    let waiting = slotd.spawn(reconfigure);
    slotd.wait("the hanging work", || slotd.base.join("hung").exists().then_some(()));
    // Other work still has threads.
    assert_eq!(slotd.ran(&[], "echo other"), "other\n");
    let hung = format!("{work} has not ended since ");
    slotd.wait("the timeout of the work", || {
        slotd.line("slotd doctor").stdout.contains(&hung).then_some(())
    });
    assert!(waiting.end().fails(1).stderr.contains(&hung));
    let refused = slotd.line("scontrol reconfigure").fails(1);
    assert!(refused.stderr.contains(&hung), "{}", refused.stderr);
    assert_eq!(slotd.ran(&[], "echo again"), "again\n");
    assert!(slotd.stop().success());
    assert!(slotd.log().contains(&format!("{work} has not ended since")), "{}", slotd.log());
    slotd.start_daemon();
    slotd.line("scontrol reconfigure").ok();
}

#[test]
fn commands_and_daemons_without_threads_fail_in_words() {
    let mut slotd = Setup::default().prepare();
    // The limit does not apply to root.
    let user = if nix::unistd::geteuid().is_root() {
        let Some(user) = users::nobody() else { return };
        users::give(&slotd.base, &user);
        Some(user)
    } else {
        None
    };
    let line = |slotd: &Slotd, line: &str| {
        let mut command = slotd.shell();
        command.args(["-c", line]);
        if let Some(user) = &user {
            command.uid(user.uid).gid(user.gid);
        }
        slotd.run(command)
    };
    let limited = |slotd: &Slotd, processes: u32, words: &str| {
        let out = line(slotd, &format!("exec prlimit --nproc={processes} -- slotd {words}"));
        assert!([0, 1].contains(&out.code), "{processes}: {out:?}");
        assert!(!out.stderr.contains("panicked"), "{processes}: {out:?}");
        out
    };
    // Enough for the command itself, then also for one process and one thread more each time.
    for processes in 1..16 {
        if limited(&slotd, processes, "daemon start").code == 0 {
            line(&slotd, "slotd daemon stop").ok();
        }
    }
    match &user {
        Some(user) => slotd.start_daemon_as(user),
        None => slotd.start_daemon(),
    }
    let out = limited(&slotd, 1, "daemon status").fails(1);
    assert_eq!(
        out.stderr,
        "slotd: error: cannot start a thread: the limit on processes (ulimit -u) or on memory is reached: \
         end some of your processes, or raise the limit\n"
    );
}
