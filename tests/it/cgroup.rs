//! Limits, accounting and killing by cgroup v2. `SLOTD_TEST_CGROUP` names a delegated cgroup for
//! the tests, for instance the one of `systemd-run --user --scope -p Delegate=yes`. Without it
//! these tests are skipped.

use slotd_kit::loads::{LOADS, heads, row, start as start_load, told};
use slotd_kit::{Slotd, proc, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A command that fills 200 MB of memory in one process.
const HOG: &str = "helper eat 200";

/// Starts a daemon with the base `name` below the delegated cgroup. The daemon creates the base.
fn start(name: &str) -> Option<(Slotd, PathBuf)> {
    let root = delegated()?;
    let base = root.join(name);
    Some((Slotd::setup().set("SLOTD_CGROUP_BASE", base.display()).start(), base))
}

/// Returns the delegated cgroup, with its controllers enabled for its children. Since that requires
/// a cgroup without processes, this process moves to a child.
fn delegated() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let Some(root) = std::env::var_os("SLOTD_TEST_CGROUP").map(PathBuf::from) else {
            eprintln!("skipped: SLOTD_TEST_CGROUP does not name a delegated cgroup");
            return None;
        };
        let own = root.join("tests");
        fs::create_dir_all(&own).unwrap();
        for pid in read(root.join("cgroup.procs")).lines() {
            fs::write(own.join("cgroup.procs"), pid).unwrap();
        }
        for controller in read(root.join("cgroup.controllers")).split(' ') {
            fs::write(root.join("cgroup.subtree_control"), format!("+{controller}")).unwrap();
        }
        Some(root)
    });
    root.as_deref()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
        .trim()
        .to_owned()
}

/// Waits until no job has a cgroup, and removes the base.
#[track_caller]
fn wait_removed(base: &Path) {
    let left = || fs::read_dir(base).unwrap().flatten().filter(|e| e.path().is_dir()).count();
    assert!(
        until(|| (left() == 0).then_some(())).is_some(),
        "{:?}",
        fs::read_dir(base).unwrap().collect::<Vec<_>>()
    );
    fs::remove_dir(base).unwrap();
}

/// A command that prints the directory of the shell's own cgroup.
const OWN: &str = "echo /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)";

#[test]
fn a_job_runs_in_its_cgroup_with_its_limits() {
    let Some((slotd, base)) = start("limits") else { return };
    let gate = slotd.gate("go");
    let job = slotd.wrap(&["--mem", "64M", "-c", "2"], &format!("{OWN} >own; {gate}"));
    let own = slotd.wait_text("own", "step_batch\n");
    let dir = base.join(format!("job_{job}"));
    assert_eq!(own.trim(), dir.join("step_batch").display().to_string());
    assert_eq!(read(dir.join("memory.max")), (64 << 20).to_string());
    assert_eq!(read(dir.join("cpu.max")), "200000 100000");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    wait_removed(&base);
}

#[test]
fn steps_of_a_client_run_in_the_job_s_cgroup_with_their_own_limits() {
    let Some((slotd, base)) = start("steps") else { return };
    let show = format!("{OWN}; cat $({OWN})/memory.max $({OWN})/../memory.max");
    slotd.write("show.sh", &show);
    let out = slotd.cmd(
        "salloc",
        &["--mem", "64M", "sh", "-c", "sh show.sh; srun --mem 20M sh show.sh; srun sh show.sh"],
    );
    let out = out.ok();
    let (job, whole) = (base.join("job_1"), 64 << 20);
    let step = |name: &str| job.join(name).display().to_string();
    assert_eq!(
        out.text(),
        format!(
            "Granted job allocation 1\n{}\nmax\n{whole}\n{}\n{}\n{whole}\n{}\nmax\n{whole}",
            step("step_interactive"),
            step("step_0"),
            20 << 20,
            step("step_1")
        )
    );
    wait_removed(&base);
}

#[test]
fn exceeding_mem_is_out_of_memory_even_if_the_script_ignores_it() {
    let Some((slotd, base)) = start("oom") else { return };
    for (script, then) in
        [(format!("exec {HOG}"), ""), (format!("{HOG}; echo after $?; exit 0"), "after 137\n")]
    {
        let job = slotd.wrap(&["--mem", "64M"], &script);
        assert_eq!(slotd.wait_state(job, "OUT_OF_MEMORY").reason(), "OutOfMemory");
        assert_eq!(slotd.sacct(job, "ExitCode"), "0:125");
        let output = slotd.output(job);
        let line =
            format!("slurmstepd: error: Detected 1 oom-kill event(s) in StepId={job}.batch.");
        assert!(output.contains(then) && output.contains(&line), "{output}");
    }
    let again = slotd.wrap(&["--mem", "64M", "--requeue"], HOG);
    assert_eq!(slotd.wait_state(again, "OUT_OF_MEMORY").restarts(), 1);
    // The OOM kill of the first run must not count for the second.
    let better = slotd
        .wrap(&["--mem", "64M", "--requeue"], &format!("[ -n \"$SLURM_RESTART_COUNT\" ] || {HOG}"));
    assert_eq!(slotd.wait_state(better, "COMPLETED").restarts(), 1);
    wait_removed(&base);
}

#[test]
fn a_step_out_of_memory_does_not_affect_other_steps() {
    let Some((slotd, base)) = start("step-oom") else { return };
    let out = slotd.cmd("srun", &["--mem", "64M", "sh", "-c", HOG]).fails(253);
    assert!(out.stderr.contains(": task 0: Out Of Memory"), "{}", out.stderr);
    assert_eq!(slotd.wait_state(1, "OUT_OF_MEMORY").reason(), "OutOfMemory");
    let script = format!("srun --mem 20M sh -c '{HOG}'; srun true; exit 0");
    slotd.cmd("salloc", &["--mem", "64M", "sh", "-c", &script]).ok();
    slotd.wait_state(2, "COMPLETED");
    let states = slotd
        .cmd("sacct", &["-n", "-P", "-o", "JobID,State,ExitCode,DerivedExitCode", "-j", "2"])
        .ok();
    let wanted = [
        "2|COMPLETED|0:0|0:125",
        "2.interactive|COMPLETED|0:0|",
        "2.0|OUT_OF_MEMORY|0:125|",
        "2.1|COMPLETED|0:0|",
    ];
    assert_eq!(states.lines(), wanted);
    // If a step reaches the limit of the job, the job is out of memory.
    let job = slotd.script(&["--mem", "64M"], &format!("#!/bin/sh\nsrun sh -c '{HOG}'\nexit 0\n"));
    slotd.wait_state(job, "OUT_OF_MEMORY");
    wait_removed(&base);
}

#[test]
fn a_manager_s_step_that_exceeds_its_own_memory_does_not_affect_the_job() {
    let Some((slotd, base)) = start("managed") else { return };
    let text = format!(
        r#"
        [[step]]
        name = "hog"
        command = "{HOG}"
        mem = "50M"
        [[step]]
        name = "modest"
        command = "{OWN}; helper eat 20"
        mem = "50M"
        [[step]]
        name = "shared"
        command = "{OWN}; {HOG}"
        [[step]]
        name = "again"
        command = "test -e tried || {{ touch tried; exec {HOG}; }}"
        mem = "40M"
        retry = {{ times = 1, delay = 0 }}
        "#
    );
    slotd.write("steps.toml", &text);
    let script = format!("sjobmgr run steps.toml; echo code $?; {OWN}");
    let job = slotd.wrap(&["-c", "4", "--mem", "900M"], &script);
    slotd.wait_state(job, "COMPLETED");
    let states =
        slotd.cmd("sacct", &["-nP", "-j", &job.to_string(), "-o", "JobName,State,ExitCode"]);
    let states = states.ok();
    let mut states = states.lines();
    states.sort();
    assert_eq!(
        states,
        [
            "again|COMPLETED|0:0",
            "again|OUT_OF_MEMORY|0:125",
            "batch|COMPLETED|0:0",
            "hog|OUT_OF_MEMORY|0:125",
            "modest|COMPLETED|0:0",
            "shared|COMPLETED|0:0",
            "wrap|COMPLETED|0:0",
        ]
    );
    let output = slotd.output(job);
    let dir = base.join(format!("job_{job}/step_batch"));
    assert!(output.contains(&format!("{}\n", dir.join("own").display())), "{output}");
    assert!(output.contains(&format!("{}/1\n", dir.display())), "{output}");
    wait_removed(&base);
}

#[test]
fn limited_steps_of_a_manager_are_frozen_and_killed_with_their_job() {
    let Some((slotd, base)) = start("managed-kill") else { return };
    let text = "[[step]]\ncommand = 'helper hold 10'\nmem = '50M'\nstdout = 'held'\n";
    slotd.write("steps.toml", text);
    let job = slotd.wrap(&["--mem", "200M"], "sjobmgr run steps.toml");
    slotd.wait_text("held", "held\n");
    let step = base.join(format!("job_{job}/step_batch/0"));
    let pid = read(step.join("cgroup.procs"));
    slotd.line(&format!("scontrol suspend {job}")).ok();
    let is_frozen = || read(step.join("cgroup.events")).contains("frozen 1").then_some(());
    assert!(until(is_frozen).is_some(), "{}", read(step.join("cgroup.events")));
    slotd.line(&format!("scancel {job}")).ok();
    slotd.wait_end(job);
    assert!(!proc::is_alive(pid.parse().unwrap()));
    wait_removed(&base);
}

#[test]
fn events_without_a_daemon_are_recorded_by_the_next_one() {
    let Some((mut slotd, base)) = start("away") else { return };
    let hog = slotd.begun(&["--mem", "64M"], "go", HOG);
    let worker =
        slotd.begun(&[], "go", "head -c 60000000 /dev/zero | tail -c 30000000 >/dev/null; exit 3");
    slotd.kill9();
    let dir = base.join(format!("job_{hog}"));
    assert_eq!(read(dir.join("memory.max")), (64 << 20).to_string());
    slotd.open("go");
    let ended = |id: u32| slotd.root.join(format!("lib/jobs/{id}/exit_status")).exists();
    assert!(until(|| (ended(hog) && ended(worker)).then_some(())).is_some(), "the jobs should end");
    slotd.start_daemon();
    slotd.wait_state(hog, "OUT_OF_MEMORY");
    slotd.wait_state(worker, "FAILED");
    let used = slotd.cmd(
        "sacct",
        &["-n", "-P", "--noconvert", "-o", "MaxRSS,TotalCPU", "-j", &format!("{worker}.batch")],
    );
    let used = used.ok();
    let (rss, cpu) = used.text().split_once('|').expect("two fields");
    let bytes: u64 = rss.trim_end_matches('K').parse().expect("a number");
    assert!(bytes > 30_000 && bytes < 10 * 30_000_000, "{rss}");
    assert_ne!(cpu, "00:00:00");
    wait_removed(&base);
}

#[test]
fn processes_that_nobody_waits_for_are_accounted_for() {
    let Some((slotd, base)) = start("unwaited") else { return };
    // If a process ignores SIGCHLD, its children are reaped without being added to its times.
    let job = slotd.wrap(&[], "helper unwaited 1");
    slotd.wait_state(job, "COMPLETED");
    let cpu = slotd.sacct(job, "TotalCPU");
    assert!(cpu.as_str() >= "00:01", "{cpu}");
    wait_removed(&base);
}

#[test]
fn constantly_forking_processes_and_those_without_a_watcher_are_killed() {
    let Some((slotd, base)) = start("forks") else { return };
    // Each process starts its successor and exits, so that any process found in a scan is already
    // gone. The process table stays small.
    slotd.program("relay", "#!/bin/sh\necho x >began\n./relay &\n");
    let job = slotd.wrap(&[], "for i in 1 2 3 4; do setsid ./relay; done; sleep 1000");
    slotd.wait_text("began", "x\n");
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");

    let job = slotd.wrap(&[], "setsid sleep 1000 & sleep 1000");
    slotd.wait_state(job, "RUNNING");
    let procs = base.join(format!("job_{job}/step_batch/cgroup.procs"));
    let pids = until(|| fs::read_to_string(&procs).ok().filter(|list| list.lines().count() >= 3));
    let pids = pids.expect("the script's processes");
    let task = pids.lines().next().and_then(|pid| pid.parse().ok()).expect("a number");
    proc::signal(proc::parent(task).expect("a watcher"), proc::KILL);
    assert_eq!(slotd.wait_state(job, "FAILED").reason(), "RunnerLost");
    wait_removed(&base);
}

#[test]
fn a_killed_client_leaves_nothing_behind() {
    let Some((slotd, base)) = start("client") else { return };
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "echo began; setsid sleep 1000 & sleep 1000"]);
    let running = slotd.spawn(srun);
    let procs = base.join("job_1/step_0/cgroup.procs");
    until(|| fs::read_to_string(&procs).ok().filter(|list| list.lines().count() >= 2))
        .expect("the tasks");
    proc::signal(running.child.id() as i32, proc::KILL);
    slotd.wait_end(1);
    wait_removed(&base);
}

#[test]
fn an_unusable_base_is_reported_with_the_reason() {
    let Some(root) = delegated() else { return };
    let (inside, file) = (root.join("tests"), root.join("cgroup.procs"));
    for (base, why) in [(inside, "it contains the daemon itself"), (file, "is a file")] {
        let slotd = Slotd::setup().set("SLOTD_CGROUP_BASE", base.display()).start();
        let text = format!("cgroup {}: {why}", base.display());
        assert!(slotd.log().contains(&text), "{}", slotd.log());
        assert!(
            slotd
                .cmd("sinfo", &["-h", "-o", "%E"])
                .ok()
                .stdout
                .contains(&base.display().to_string())
        );
        let refused = slotd.cmd("sbatch", &["--wrap", "true"]).fails(1);
        assert!(
            refused.stderr.contains(&text) && refused.stderr.contains("or auto"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_mistyped_base_drains_the_node_until_it_is_corrected() {
    let mut slotd = Slotd::start();
    let plain = slotd.path("plain");
    fs::create_dir(&plain).unwrap();
    let running = slotd.begun(&["--exclusive"], "go", "true");
    let waiting = [slotd.wrap(&[], "true"), slotd.wrap(&[], "true")];
    for (base, why) in
        [(slotd.path("missing"), "could not be accessed"), (plain, "is not a cgroup v2 directory")]
    {
        slotd.reset_var("SLOTD_CGROUP_BASE", base.display());
        slotd.crash();
        slotd.open("go");
        slotd.wait_state(running, "COMPLETED");
        let text = format!("cgroup {}: {why}", base.display());
        for job in waiting {
            slotd.wait_reason(job, "ReqNodeNotAvail");
            let why = slotd.line(&format!("slotd why {job}")).ok().stdout;
            assert!(why.contains(&text), "{why}");
        }
        let reasons = slotd.cmd("sinfo", &["-R", "-h", "-o", "%200E"]).ok().stdout;
        assert!(reasons.contains(&text), "{reasons}");
        let findings = slotd.line("slotd doctor").stdout;
        assert!(findings.contains(&format!("the node accepts no jobs: {text}")), "{findings}");
        let refused = slotd.cmd("sbatch", &["--wrap", "true"]).fails(1);
        assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    }
    slotd.reset_var("SLOTD_CGROUP_BASE", "");
    slotd.crash();
    for job in waiting {
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn jobs_start_once_the_base_exists() {
    let Some(root) = delegated() else { return };
    let above = root.join("above");
    let base = above.join("base");
    let mut slotd = Slotd::start();
    let running = slotd.begun(&["--exclusive"], "go", "true");
    let waiting = slotd.wrap(&[], "true");
    slotd.reset_var("SLOTD_CGROUP_BASE", base.display());
    slotd.crash();
    slotd.open("go");
    slotd.wait_state(running, "COMPLETED");
    slotd.wait_reason(waiting, "ReqNodeNotAvail");
    fs::create_dir(&above).unwrap();
    slotd.wait_state(waiting, "COMPLETED");
    // A job fails if the base has disappeared when it is launched, and the jobs behind it wait.
    wait_removed(&base);
    fs::remove_dir(&above).unwrap();
    let lost = slotd.wrap(&[], "true");
    assert_eq!(slotd.wait_state(lost, "FAILED").reason(), "JobLaunchFailure");
    assert!(slotd.system_comment(lost).contains(&format!("cgroup {}", base.display())));
    slotd.cmd("sbatch", &["--wrap", "true"]).fails(1);
}

#[test]
fn cgroups_below_a_previous_base_are_removed() {
    for other in [Some("later"), None] {
        let Some((mut slotd, base)) = start("earlier") else { return };
        let script = "helper eat 200; echo ate $?; exit 0";
        let jobs = [slotd.begun(&["--mem", "64M"], "go", script), slotd.begun(&[], "stay", "true")];
        slotd.kill9();
        slotd.reset_var(
            "SLOTD_CGROUP_BASE",
            other.map_or_else(String::new, |name| base.with_file_name(name).display().to_string()),
        );
        slotd.open("go");
        slotd.start_daemon();
        // The daemon also reads the OOM events of a cgroup under the previous base.
        slotd.wait_state(jobs[0], "OUT_OF_MEMORY");
        slotd.cancel(jobs[1]);
        slotd.wait_state(jobs[1], "CANCELLED");
        wait_removed(&base);
        if let Some(name) = other {
            wait_removed(&base.with_file_name(name));
        }
    }
}

#[test]
fn a_fork_bomb_is_contained_in_its_job() {
    let Some(root) = delegated() else { return };
    let base = root.join("bomb");
    let slotd = Slotd::setup()
        .set("SLOTD_CGROUP_BASE", base.display())
        .set("SLOTD_MAX_PROCESSES", 40)
        .start();
    let neighbour = slotd.begun(&[], "go", "for i in 1 2 3; do sh -c true || exit 1; done");
    slotd.program("bomb", "#!/bin/sh\nwhile :; do ./bomb & done 2>/dev/null\n");
    let bomb = slotd.wrap(&[], "./bomb; sleep 1000");
    let dir = base.join(format!("job_{bomb}"));
    assert!(
        until(|| read_if(dir.join("pids.events"))?
            .strip_prefix("max ")?
            .parse::<u32>()
            .ok()
            .filter(|n| *n > 0))
        .is_some()
    );
    assert_eq!(read(dir.join("pids.max")), "40");
    slotd.open("go");
    slotd.wait_state(neighbour, "COMPLETED");
    slotd.cancel(bomb);
    slotd.wait_state(bomb, "CANCELLED");
    wait_removed(&base);
}

fn read_if(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[test]
fn a_suspended_job_is_frozen_and_can_be_killed() {
    let Some(root) = delegated() else { return };
    let base = root.join("frozen");
    // Time for the handler of SIGTERM on a busy machine.
    let slotd =
        Slotd::setup().set("SLOTD_CGROUP_BASE", base.display()).set("SLOTD_KILL_WAIT", 600).start();
    let job = slotd.wrap(
        &[],
        "trap 'echo terminated; exit' TERM; echo begun >began; while :; do sleep 0.1; done",
    );
    slotd.wait_text("began", "begun\n");
    let step = base.join(format!("job_{job}/step_batch"));
    let frozen = |wanted: &str| {
        let line = format!("frozen {wanted}");
        until(|| read_if(step.join("cgroup.events"))?.lines().any(|l| l == line).then_some(()))
    };
    slotd.cmd("scontrol", &["suspend", &job.to_string()]).ok();
    frozen("1").expect("the job should be frozen");
    let pid: i32 = read(step.join("cgroup.procs"))
        .lines()
        .next()
        .and_then(|pid| pid.parse().ok())
        .expect("a process");
    // The freezer is used, because a parent sees SIGSTOP and handlers see SIGCONT.
    assert!(!read(format!("/proc/{pid}/stat")).contains(") T "));
    slotd.cmd("scontrol", &["resume", &job.to_string()]).ok();
    frozen("0").expect("the job should be thawed");
    slotd.cmd("scontrol", &["suspend", &job.to_string()]).ok();
    frozen("1").expect("the job should be frozen again");
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    assert!(
        slotd.output(job).contains("terminated\n"),
        "SIGTERM did not arrive: {}",
        slotd.output(job)
    );
    wait_removed(&base);
}

#[test]
fn oom_kill_step_kills_the_whole_step() {
    let Some(root) = delegated() else { return };
    let base = root.join("whole");
    let slotd = Slotd::setup()
        .set("SLOTD_CGROUP_BASE", base.display())
        .set("SLOTD_OOM_KILL_STEP", "yes")
        .start();
    let job = slotd.wrap(&["--mem", "64M"], &format!("{HOG}; echo after"));
    slotd.wait_state(job, "OUT_OF_MEMORY");
    assert!(!slotd.output(job).contains("after"), "{}", slotd.output(job));
    wait_removed(&base);
}

/// Runs one job at a time. The upper bound allows for the memory of the program itself.
#[test]
fn reported_use_is_accurate_to_five_percent() {
    let Some((slotd, base)) = start("usage") else { return };
    println!("{}", heads("with a cgroup"));
    let mut wrong = Vec::new();
    for load in &LOADS {
        let told = told(&slotd, start_load(&slotd, load));
        let row = row(load, told);
        println!("{row}");
        let is_near = |truth: f64| told.mb >= truth * 0.95 && told.mb <= truth * 1.05 + 6.0;
        if !load.rss_mb.is_none_or(is_near) || load.is_busy && !told.has_true_time() {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    wait_removed(&base);
}
