//! The book's page "Runtime Model", line by line: a test for each sentence, named after it.

use slotd_kit::{Slotd, most_at_once, proc, until};
use std::fs;
use std::os::unix::fs::FileTypeExt;

// High-level model.

#[test]
fn one_local_daemon() {
    let slotd = Slotd::start();
    let second = slotd.run(slotd.daemon_command());
    assert!(second.code != 0 && second.stderr.contains("already"), "{second:?}");
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
}

#[test]
fn one_local_sqlite_database() {
    let slotd = Slotd::start();
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    let header = fs::read(slotd.root.join("lib/state.db")).unwrap();
    assert!(header.starts_with(b"SQLite format 3\0"));
    let databases = slotd.sh(&format!("find {} -name '*.db' | wc -l", slotd.root.display())).ok();
    assert_eq!(databases.text().trim(), "1");
}

#[test]
fn one_local_execution_host() {
    let slotd = Slotd::start();
    let host = slotd.sh("hostname -s").ok();
    assert_eq!(slotd.ran(&[], "hostname -s; echo $SLURM_JOB_NUM_NODES $SLURM_JOB_NODELIST"), {
        format!("{0}\n1 {0}\n", host.text())
    });
    assert_eq!(slotd.cmd("sinfo", &["-h", "-N", "-o", "%N"]).ok().lines().len(), 1);
}

#[test]
fn one_local_user_workflow() {
    let slotd = Slotd::start();
    let user = slotd.sh("id -un").ok();
    assert_eq!(slotd.ran(&[], "id -un"), user.stdout);
    // Others have no way in.
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(slotd.root.join("run")).unwrap().permissions());
    let socket = fs::metadata(slotd.root.join("run/slotd.sock")).unwrap().permissions();
    let socket = std::os::unix::fs::PermissionsExt::mode(&socket);
    assert!(mode & 0o077 == 0 || socket & 0o077 == 0, "{mode:o} {socket:o}");
}

#[test]
fn there_is_no_controller_and_worker_split() {
    let slotd = Slotd::start();
    // The daemon and its launcher are all there is beside the jobs.
    let programs: Vec<String> = slotd.processes().into_iter().map(proc::cmdline).collect();
    assert!(programs.len() <= 1, "{programs:?}");
}

// Core resources.

#[test]
fn cpu_reservation_is_ntasks_times_cpus_per_task() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-n", "2", "-c", "2", "--hold"], "true");
    assert_eq!(slotd.job(id).tres().0, 4);
}

#[test]
fn ntasks_launches_one_local_process_per_task_rank_for_batch_execution() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-n", "2"], "echo $SLURM_PROCID $SLURM_LOCALID $$");
    slotd.wait_state(id, "COMPLETED");
    let mut lines: Vec<String> = slotd.output(id).lines().map(str::to_owned).collect();
    lines.sort();
    assert!(lines.len() == 2 && lines[0].starts_with("0 0 ") && lines[1].starts_with("1 1 "), "{lines:?}");
}

#[test]
fn ntasks_launches_one_local_process_per_task_rank_for_foreground_execution() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["-n", "2", "--", "sh", "-c", "echo $SLURM_PROCID $SLURM_LOCALID"]).ok();
    let mut lines = out.lines();
    lines.sort();
    assert_eq!(lines, ["0 0", "1 1"]);
}

#[test]
fn total_memory_defaults_to_memtotal() {
    let slotd = Slotd::setup().unset("SLOTD_MEMORY_MB").start();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let kb: u64 = total.trim().trim_end_matches(" kB").parse().unwrap();
    assert_eq!(slotd.cmd("sinfo", &["-h", "-N", "-o", "%m"]).ok().text(), (kb / 1024).to_string());
}

#[test]
fn memory_is_stored_in_mb() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--mem", "2G", "--hold"], "true");
    assert_eq!(slotd.job(id).tres().1, 2048);
}

#[test]
fn gpus_are_integer_slots() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 2).start();
    let holder = slotd.endless(&["-G", "1"]);
    assert_eq!(slotd.job(holder).gpu_ids(), [0]);
    assert_eq!(slotd.ran(&["-G", "1"], "echo $CUDA_VISIBLE_DEVICES"), "1\n");
    let both = slotd.wrap(&["-G", "2"], "true");
    slotd.wait_reason(both, "Resources");
    let out = slotd.cmd("sbatch", &["-G", "0.5", "--wrap", "true"]);
    assert!(out.code != 0 && out.stderr.contains("0.5"), "{out:?}");
}

#[test]
fn admission_is_reservation_based_not_usage_based() {
    let slotd = Slotd::start();
    // It sleeps, and nothing of what it has reserved is in use.
    slotd.endless(&["-c", "4"]);
    let next = slotd.wrap(&[], "true");
    slotd.wait_reason(next, "Resources");
}

#[test]
fn without_a_cgroup_base_cpu_and_memory_are_reservation_only() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--mem", "1", "-c", "1"], "head -c 20000000 /dev/zero | tail -c 20000000 | wc -c");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.output(id).trim(), "20000000");
}

#[test]
fn if_cgroup_setup_fails_the_launch_fails_instead_of_silently_skipping_enforcement() {
    let plain = tempfile::tempdir().unwrap();
    let slotd = Slotd::setup().set("SLOTD_CGROUP_BASE", plain.path().display()).start();
    let id = slotd.wrap(&[], "touch ran");
    let job = slotd.wait_state(id, "FAILED");
    assert_eq!(job.reason(), "JobLaunchFailure");
    let why = slotd.show(id, "SystemComment");
    assert!(why.contains("cgroup") && why.contains(&plain.path().display().to_string()), "{why}");
    assert!(!slotd.exists("ran"));
}

// Partitions.

#[test]
fn partitions_are_configured_by_environment() {
    let slotd = Slotd::setup()
        .set("SLOTD_CPU_PARTITIONS", "short,long")
        .set("SLOTD_GPU_PARTITIONS", "fast")
        .set("SLOTD_GPU_COUNT", 1)
        .start();
    let out = slotd.cmd("sinfo", &["-h", "-o", "%P"]).ok();
    assert_eq!(out.lines(), ["short*", "long", "fast"]);
}

#[test]
fn only_configured_partition_names_are_accepted() {
    let slotd = Slotd::start();
    slotd.wait_state(slotd.wrap(&["-p", "cpu"], "true"), "COMPLETED");
    let out = slotd.cmd("sbatch", &["-p", "nowhere", "--wrap", "true"]).fails(1);
    assert_eq!(
        out.stderr,
        "sbatch: error: invalid partition specified: nowhere\n\
         sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    );
}

#[test]
fn without_gpus_no_gpu_partition_is_exposed() {
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("sinfo", &["-h", "-o", "%P"]).ok().lines(), ["cpu*"]);
    slotd.cmd("sbatch", &["-p", "gpu", "--wrap", "true"]).fails(1);
}

#[test]
fn in_a_gpu_partition_the_default_gpu_request_is_1_and_otherwise_0() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 2).start();
    let gpus = |args: &[&str]| slotd.job(slotd.wrap(&[args, &["--hold"]].concat(), "true")).tres().2;
    assert_eq!((gpus(&["-p", "gpu"]), gpus(&["-p", "cpu"]), gpus(&["-p", "gpu", "-G", "2"])), (1, 0, 2));
}

#[test]
fn cpu_and_gpu_partitions_are_virtual_views_over_one_host() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    let nodes = slotd.cmd("sinfo", &["-h", "-o", "%N %c %m"]).ok();
    let lines = nodes.lines();
    assert!(lines.windows(2).all(|pair| pair[0] == pair[1]), "{lines:?}");
}

#[test]
fn cpu_and_memory_capacity_stay_shared_across_partitions() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    slotd.endless(&["-p", "cpu", "-c", "4"]);
    let other = slotd.wrap(&["-p", "gpu"], "true");
    slotd.wait_reason(other, "Resources");
}

// GPU detection.

#[test]
fn gpus_are_detected_from_nvidia_smi_where_no_count_is_set() {
    let mut slotd = Slotd::setup().unset("SLOTD_GPU_COUNT").prepare();
    // What it prints for `-L`, and for a query.
    let script = "#!/bin/sh\ncase \"$*\" in\n\
                  *-L*) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0)'; echo 'GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)';;\n\
                  *) echo '0, NVIDIA A100-SXM4-40GB'; echo '1, NVIDIA A100-SXM4-40GB';;\nesac\n";
    let program = slotd.program("nvidia-smi", script);
    fs::rename(program, slotd.base.join("bin/nvidia-smi")).unwrap();
    slotd.start_daemon();
    slotd.wait("two GPUs", || {
        let gres = slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%G"]).ok();
        (gres.text().ends_with(":2")).then_some(())
    });
    let id = slotd.wrap(&["--gres=gpu:a100:2"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.output(id), "0,1\n");
}

#[test]
fn nvidia_smi_is_looked_for_at_four_places() {
    assert_eq!(
        slotd::sys::gpus::PLACES,
        ["nvidia-smi", "/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/bin/nvidia-smi"]
    );
}

// Job types.

#[test]
fn persisted_records_are_batch_jobs_allocations_array_tasks_and_steps() {
    let mut slotd = Slotd::start();
    let batch = slotd.wrap(&[], "true");
    slotd.wait_state(batch, "COMPLETED");
    let array = slotd.wrap(&["-a", "3"], "true");
    slotd.wait_array(array, 1);
    slotd.cmd("salloc", &["srun", "true"]).ok();
    let allocation = array + 1;
    slotd.wait_state(allocation, "COMPLETED");
    slotd.crash();
    let all = slotd.cmd("sacct", &["-n", "-P", "-o", "JobID,JobName,State"]).ok();
    for line in [
        format!("{batch}|wrap|COMPLETED"),
        format!("{array}_3|wrap|COMPLETED"),
        format!("{allocation}|interactive|COMPLETED"),
        format!("{allocation}.0|true|COMPLETED"),
    ] {
        assert!(all.lines().contains(&line.as_str()), "{line} in {}", all.stdout);
    }
}

// Job states.

#[test]
fn state_pending() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--begin", "now+1hour"], "true");
    assert_eq!(slotd.sacct(id, "State"), "PENDING");
}

#[test]
fn state_running() {
    let slotd = Slotd::start();
    let id = slotd.endless(&[]);
    assert_eq!(slotd.sacct(id, "State"), "RUNNING");
}

#[test]
fn state_completing() {
    let slotd = Slotd::setup().set("SLOTD_KILL_WAIT", 60).start();
    let id = slotd.wrap(&["-o", "log"], "trap '' TERM; echo ready; while [ ! -e go ]; do sleep 0.03; done");
    slotd.wait_text("log", "ready");
    slotd.cancel(id);
    let state = slotd.cmd("squeue", &["-h", "-j", &id.to_string(), "-o", "%t %T"]).ok();
    assert_eq!(state.text(), "CG COMPLETING");
    slotd.open("go");
    slotd.wait_state(id, "CANCELLED");
}

#[test]
fn state_completed() {
    let slotd = Slotd::start();
    assert_eq!(slotd.wait_end(slotd.wrap(&[], "true")).state(), "COMPLETED");
}

#[test]
fn state_failed() {
    let slotd = Slotd::start();
    let job = slotd.wait_end(slotd.wrap(&[], "exit 3"));
    assert_eq!(
        (job.state().as_str(), job.reason().as_str(), job.exit().as_str()),
        ("FAILED", "NonZeroExitCode", "3:0")
    );
}

#[test]
fn state_cancelled() {
    let slotd = Slotd::start();
    let id = slotd.endless(&[]);
    slotd.cancel(id);
    assert_eq!(slotd.wait_end(id).state(), "CANCELLED");
}

#[test]
fn state_timeout() {
    let slotd = Slotd::start();
    let id = slotd.endless(&["-t", "10"]);
    slotd.limit(id, 1);
    assert_eq!(slotd.wait_end(id).state(), "TIMEOUT");
}

#[test]
fn state_out_of_memory_has_its_name() {
    // It needs a cgroup to happen; that it is kept and shown has tests beside the scheduler and the views.
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("sacct", &["-n", "-s", "OUT_OF_MEMORY"]).ok().stdout, "");
}

#[test]
fn terminal_states_stay() {
    let slotd = Slotd::start();
    let ended = [slotd.wrap(&[], "true"), slotd.wrap(&[], "exit 1"), slotd.endless(&[])];
    slotd.cancel(ended[2]);
    let states = ended.map(|id| slotd.wait_end(id).state());
    assert_eq!(states, ["COMPLETED", "FAILED", "CANCELLED"]);
    for id in ended {
        drop(slotd.cmd("scancel", &[id.to_string()]));
        drop(slotd.cmd("scontrol", &["hold", &id.to_string()]));
    }
    assert_eq!(ended.map(|id| slotd.state(id)), states);
}

// Scheduling rules.

#[test]
fn what_can_start_starts_within_300_ms() {
    let slotd = Slotd::start();
    // The best of some: a busy test machine may delay any single one.
    let best = (0..5).map(|_| {
        let first = slotd.wrap(&["-c", "4"], "true");
        let second = slotd.wrap(&["-c", "4"], "true");
        slotd.wait_state(second, "COMPLETED").start() - slotd.job(first).end()
    });
    assert!(best.min().unwrap() < 300_000);
}

#[test]
fn blocked_by_dependencies() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    slotd.wait_reason(slotd.wrap(&["-d", &format!("afterok:{first}")], "true"), "Dependency");
}

#[test]
fn blocked_by_array_concurrency_limits() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "1-3%1"], "exec sleep 1000");
    slotd.wait_reason(id, "JobArrayTaskLimit");
}

#[test]
fn blocked_by_delayed_start_time() {
    let slotd = Slotd::start();
    slotd.wait_reason(slotd.wrap(&["--begin", "now+1hour"], "true"), "BeginTime");
}

#[test]
fn blocked_by_exclusive_host_use() {
    let slotd = Slotd::start();
    slotd.endless(&["--exclusive"]);
    slotd.wait_reason(slotd.wrap(&[], "true"), "Exclusive");
}

#[test]
fn blocked_by_insufficient_reserved_resources() {
    let slotd = Slotd::start();
    slotd.endless(&["--mem", "8G"]);
    slotd.wait_reason(slotd.wrap(&[], "true"), "Resources");
}

#[test]
fn blocked_by_user_hold_state() {
    let slotd = Slotd::start();
    slotd.wait_reason(slotd.wrap(&["--hold"], "true"), "JobHeldUser");
}

#[test]
fn submission_order_is_the_base_rule() {
    let slotd = Slotd::start();
    let busy = slotd.endless(&["-c", "4"]);
    let ids: Vec<u32> = (0..4).map(|i| slotd.wrap(&["-c", "4"], &format!("echo {i} >> order"))).collect();
    slotd.cancel(busy);
    ids.iter().for_each(|id| drop(slotd.wait_state(*id, "COMPLETED")));
    assert_eq!(slotd.read("order"), "0\n1\n2\n3\n");
}

#[test]
fn explicit_job_priority_can_override_submission_order() {
    let slotd = Slotd::start();
    let busy = slotd.endless(&["-c", "4"]);
    let first = slotd.wrap(&["-c", "4"], "echo first >> order");
    let second = slotd.wrap(&["-c", "4"], "echo second >> order");
    slotd.cmd("scontrol", &["update", "job", &second.to_string(), "Priority=4000000000"]).ok();
    slotd.cancel(busy);
    slotd.wait_state(first, "COMPLETED");
    slotd.wait_state(second, "COMPLETED");
    assert_eq!(slotd.read("order"), "second\nfirst\n");
}

#[test]
fn array_tasks_are_interleaved_by_array_group() {
    let slotd = Slotd::start();
    let busy = slotd.endless(&["-c", "4"]);
    let arrays = ["a", "b"]
        .map(|name| slotd.wrap(&["-c", "4", "-a", "1-3"], &format!("echo {name}$SLURM_ARRAY_TASK_ID >> order")));
    slotd.cancel(busy);
    arrays.iter().for_each(|id| drop(slotd.wait_array(*id, 3)));
    assert_eq!(slotd.read("order"), "a1\nb1\na2\nb2\na3\nb3\n");
    let all: Vec<_> = arrays.iter().flat_map(|id| slotd.records(*id)).collect();
    assert_eq!(most_at_once(&all), 1);
}

// Runtime files.

#[test]
fn file_daemon_socket() {
    let slotd = Slotd::start();
    assert!(fs::metadata(slotd.root.join("run/slotd.sock")).unwrap().file_type().is_socket());
}

#[test]
fn file_sqlite_state() {
    let slotd = Slotd::start();
    assert!(slotd.root.join("lib/state.db").is_file());
}

#[test]
fn file_batch_script() {
    let slotd = Slotd::start();
    let id = slotd.script(&[], "#!/bin/sh\necho mine\n");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(fs::read_to_string(slotd.job_dir(id).join("script.sh")).unwrap(), "#!/bin/sh\necho mine\n");
}

#[test]
fn file_daemon_wrapper() {
    let slotd = Slotd::start();
    slotd.write("in", "from the input\n");
    let id = slotd.wrap(&["-J", "again", "-i", "in"], "cat; echo $SLURM_JOB_NAME $SLURM_JOB_ID; exit 3");
    slotd.wait_state(id, "FAILED");
    let first = slotd.output(id);
    fs::remove_file(slotd.path(&format!("slurm-{id}.out"))).unwrap();
    // By hand, it reproduces the launch.
    let mut again = slotd.shell();
    again.arg(slotd.job_dir(id).join("runner.sh"));
    slotd.run(again).fails(3);
    assert_eq!(slotd.output(id), first);
}

#[test]
fn file_wrapper_exit_status() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&[], "exit 3");
    slotd.wait_state(id, "FAILED");
    let status = fs::read_to_string(slotd.job_dir(id).join("exit_status")).unwrap();
    assert!(status.starts_with('3') || status.contains("\"status\":3"), "{status}");
}

// Notifications.

#[test]
fn the_notify_command_runs_for_terminal_top_level_jobs_with_its_variables() {
    let base = tempfile::tempdir().unwrap();
    let log = base.path().join("log");
    let command = format!(
        "echo \"$SLOTD_JOB_ID|$SLOTD_JOB_NAME|$SLOTD_JOB_STATE|$SLOTD_JOB_PARTITION|$SLOTD_JOB_REASON\" >> {}",
        log.display()
    );
    let slotd = Slotd::setup().set("SLOTD_NOTIFY_CMD", command).start();
    let good = slotd.wrap(&["-J", "good"], "srun true");
    slotd.wait_state(good, "COMPLETED");
    let bad = slotd.wrap(&["-J", "bad"], "exit 1");
    slotd.wait_state(bad, "FAILED");
    let held = slotd.wrap(&["-J", "held", "--hold"], "true");
    slotd.cancel(held);
    let wanted = [
        format!("{good}|good|COMPLETED|cpu|None"),
        format!("{bad}|bad|FAILED|cpu|NonZeroExitCode"),
        format!("{held}|held|CANCELLED|cpu|CancelledByUser"),
    ];
    let mut seen = Vec::new();
    until(|| {
        seen = fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect();
        (seen.len() >= wanted.len()).then_some(())
    });
    // Hooks of different jobs may overtake each other; the step had none.
    seen.sort();
    assert_eq!(seen, wanted);
}
