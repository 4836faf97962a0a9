//! CPUs, memory, GPUs and exclusive jobs, the detection of GPUs, and cgroup limits.

use slotd_kit::{Setup, Slotd, proc};
use std::collections::BTreeMap;
use std::fs;

#[test]
fn gpus_are_assigned_by_number_and_exported() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 4).start();
    let script = "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE";
    let job = slotd.wrap(&["-p", "gpu", "-G", "3"], script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "0,1,2 0,1,2 3\n");
    for ask in ["--gres=gpu:2", "--gpus-per-node=2", "--gpus=2", "-G2"] {
        let job = slotd.wrap(&["-p", "gpu", ask], script);
        slotd.wait_state(job, "COMPLETED");
        assert_eq!(slotd.output(job), "0,1 0,1 2\n", "{ask}");
    }
    let job = slotd.wrap(&[], "echo \"[$CUDA_VISIBLE_DEVICES$SLURM_JOB_GPUS]\"");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "[]\n");
}

#[test]
fn gpus_per_task_apply_to_the_steps_of_the_job() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let script = "srun -l sh -c 'echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE' | sort";
    let job = slotd.wrap(&["-p", "gpu", "--gpus-per-task=1", "-n2"], script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "0: 0 2\n1: 1 2\n");
}

#[test]
fn gpu_bind_of_a_job_applies_to_its_ranks_and_steps() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let echo = "echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES";
    for script in [echo.to_owned(), format!("srun sh -c '{echo}'")] {
        let ask = ["-p", "gpu", "-G", "2", "-n2", "--gpu-bind=single:1"];
        let job = slotd.wrap(&ask, &script);
        slotd.wait_state(job, "COMPLETED");
        let output = slotd.output(job);
        let mut lines: Vec<&str> = output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0:0", "1:1"], "{script}");
    }
    let job = slotd.wrap(&["-p", "gpu", "-G", "2", "--gpu-bind=single:1"], echo);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "0:0,1\n");
}

#[test]
fn no_gpu_is_allocated_twice() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 3).set("SLOTD_CPUS", 16).start();
    let jobs: Vec<u32> = (0..20)
        .map(|i| {
            slotd.wrap(&["-p", "gpu", "-G", &(1 + i % 2).to_string(), "--mem", "1"], "sleep 0.03")
        })
        .collect();
    let mut spans: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
    for job in jobs {
        let record = slotd.wait_state(job, "COMPLETED");
        let ids = record.gpu_ids();
        assert_eq!(ids.len() as u64, record.tres().2);
        for id in ids {
            spans.entry(id).or_default().push((record.start(), record.end()));
        }
    }
    for (gpu, spans) in &mut spans {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "GPU {gpu} was allocated twice: {pair:?}");
        }
    }
}

#[test]
fn gpu_allocations_survive_a_restart() {
    let mut slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let first = slotd.endless(&["-p", "gpu"]);
    let waits = slotd.wrap(&["-p", "gpu", "-G", "2"], "true");
    slotd.crash();
    slotd.wait_reason(waits, "Resources");
    slotd.cancel(first);
    slotd.wait_state(waits, "COMPLETED");
}

#[test]
fn gpus_are_detected_with_nvidia_smi() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\necho '0, NVIDIA H200, GPU-a'\necho '1, NVIDIA H200, GPU-b'\n",
    );
    slotd.start_daemon();
    let job = slotd.wrap(&["-p", "gpu", "-G", "2"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "0,1\n");
    let gres = slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%G"]).ok();
    assert!(gres.text().contains("2"), "{}", gres.stdout);
}

#[test]
fn failing_nvidia_smi_means_no_gpus_but_a_working_daemon() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program("../bin/nvidia-smi", "#!/bin/sh\necho broken >&2\nexit 9\n");
    slotd.start_daemon();
    // Until nvidia-smi has failed, a job may wait for its result.
    slotd.wait("a refusal", || {
        (slotd.cmd("sbatch", &["-p", "gpu", "--wrap", "true"]).code == 1).then_some(())
    });
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn sighup_detects_gpus_again() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program("../bin/nvidia-smi", "#!/bin/sh\ncat \"$0.list\"\n");
    let list = slotd.base.join("bin/nvidia-smi.list");
    std::fs::write(&list, "0, NVIDIA H200, GPU-a\n").unwrap();
    slotd.start_daemon();
    slotd.wait_gpus();
    slotd.cmd("sbatch", &["-p", "gpu", "-G", "2", "--wrap", "true"]).fails(1);
    // The file may be read at any moment.
    let both = "0, NVIDIA H200, GPU-a\n1, NVIDIA H200, GPU-b\n";
    std::fs::write(list.with_extension("new"), both).unwrap();
    std::fs::rename(list.with_extension("new"), &list).unwrap();
    proc::signal(slotd.daemon_pid(), proc::HUP);
    slotd.wait("the second GPU", || {
        (slotd.cmd("sbatch", &["-p", "gpu", "-G", "2", "--wrap", "true"]).code == 0).then_some(())
    });
}

#[test]
fn gpus_are_kept_if_nvidia_smi_fails_once() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\n[ -e \"$0.broken\" ] && { touch \"$0.asked\"; exit 9; }\necho '0, NVIDIA H200, GPU-a'\n",
    );
    slotd.start_daemon();
    slotd.wait_gpus();
    std::fs::write(slotd.base.join("bin/nvidia-smi.broken"), "").unwrap();
    proc::signal(slotd.daemon_pid(), proc::HUP);
    slotd.wait("the call of nvidia-smi", || {
        slotd.base.join("bin/nvidia-smi.asked").exists().then_some(())
    });
    slotd.wait("the daemon's log message", || {
        slotd.log().contains("cannot detect GPUs").then_some(())
    });
    let job = slotd.wrap(&["-p", "gpu"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "0\n");
}

#[test]
fn exclusive_job_has_the_host_to_itself() {
    let slotd = Slotd::start();
    let running = slotd.endless(&[]);
    let exclusive = slotd.wrap(&["--exclusive"], &slotd.gate("go"));
    slotd.wait("a reason", || {
        let job = slotd.queued(exclusive);
        (job.state() == "PENDING" && job.reason() != "None").then_some(())
    });
    slotd.cancel(running);
    slotd.wait_state(exclusive, "RUNNING");
    let other = slotd.wrap(&[], "true");
    slotd.wait("a reason", || {
        let job = slotd.queued(other);
        (job.state() == "PENDING" && job.reason() != "None").then_some(())
    });
    slotd.open("go");
    slotd.wait_state(other, "COMPLETED");
}

#[test]
fn partitions_are_views_of_one_host() {
    let slotd = Setup::default()
        .set("SLOTD_CPU_PARTITIONS", "short,long")
        .set("SLOTD_GPU_COUNT", 1)
        .start();
    let first = slotd.endless(&["-p", "long", "-c", "4"]);
    let second = slotd.wrap(&["-p", "short"], "true");
    slotd.wait_reason(second, "Resources");
    let third = slotd.wrap(&["-p", "gpu"], "true");
    slotd.wait("a reason", || (slotd.queued(third).reason() == "Priority").then_some(()));
    assert_eq!(slotd.job(slotd.wrap(&["-H"], "true")).partition(), "short");
    slotd.cancel(first);
    slotd.wait_state(third, "COMPLETED");
}

#[test]
fn job_starts_in_one_of_its_partitions() {
    let slotd = Setup::default().set("SLOTD_CPU_PARTITIONS", "short,long").start();
    let job = slotd.wrap(&["-p", "long,short"], "echo $SLURM_JOB_PARTITION");
    slotd.wait_state(job, "COMPLETED");
    assert!(["long\n", "short\n"].contains(&slotd.output(job).as_str()));
}

#[test]
fn unusable_cgroup_base_is_reported_in_the_log_by_sinfo_and_at_submission() {
    let mut slotd = Setup::default().prepare();
    let base = slotd.base.join("no-cgroup");
    for (make, reason) in
        [(false, "No such file or directory"), (true, "is not a cgroup v2 directory")]
    {
        if make {
            std::fs::create_dir(&base).unwrap();
        }
        slotd.reset_var("SLOTD_CGROUP_BASE", base.display());
        slotd.start_daemon();
        let log = slotd.log();
        assert!(log.contains("SLOTD_CGROUP_BASE cannot be used") && log.contains(reason), "{log}");
        let sinfo = slotd.cmd("sinfo", &["-h", "-o", "%E"]).ok();
        assert!(
            sinfo.stdout.contains("no-cgroup") && sinfo.stdout.contains(reason),
            "{}",
            sinfo.stdout
        );
        for (command, args) in
            [("sbatch", &["--wrap", "true"][..]), ("srun", &["true"]), ("salloc", &["true"])]
        {
            let out = slotd.cmd(command, args).fails(1);
            assert!(
                out.stderr.contains(&format!("{}: ", base.display())),
                "{command}: {}",
                out.stderr
            );
            assert!(out.stderr.contains(reason), "{command}: {}", out.stderr);
        }
        assert!(slotd.all_records().is_empty());
        slotd.stop();
    }
}

#[test]
fn resources_of_the_host_are_detected_by_default() {
    let slotd = Setup::default().unset("SLOTD_CPUS").unset("SLOTD_MEMORY_MB").start();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let total = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kb: u64 = total.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let shown = slotd.cmd("sinfo", &["-h", "-p", "cpu", "-o", "%c %m"]).ok();
    assert_eq!(shown.text(), format!("{cpus} {}", kb / 1024));
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
fn cpu_and_memory_are_not_enforced_without_a_cgroup_base() {
    let slotd = Slotd::start();
    let id = slotd
        .wrap(&["--mem", "1", "-c", "1"], "head -c 20000000 /dev/zero | tail -c 20000000 | wc -c");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.output(id).trim(), "20000000");
}

#[test]
fn jobs_do_not_start_if_the_cgroup_base_is_unusable() {
    let plain = tempfile::tempdir().unwrap();
    let mut slotd = Slotd::start();
    let id = slotd.wrap(&["-H"], "touch ran");
    slotd.stop();
    slotd.reset_var("SLOTD_CGROUP_BASE", plain.path().display());
    slotd.start_daemon();
    slotd.cmd("scontrol", &["release", &id.to_string()]).ok();
    slotd.wait_reason(id, "ReqNodeNotAvail");
    let why = format!(
        "cgroup {}: is not a cgroup v2 directory: use a cgroup v2 directory that is delegated to your user, or auto\n",
        plain.path().display()
    );
    for command in ["sbatch --wrap true", "srun true", "salloc true"] {
        let refused = slotd.line(command).fails(1);
        assert!(
            refused.stderr.contains(&format!("SLOTD_CGROUP_BASE cannot be used: {why}")),
            "{}",
            refused.stderr
        );
    }
    assert!(!slotd.exists("ran"));
}

#[test]
fn gpu_models_are_detected_with_nvidia_smi() {
    let mut slotd = Slotd::setup().unset("SLOTD_GPU_COUNT").prepare();
    // Its output for `-L` and for a query.
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
fn jobs_are_blocked_by_an_exclusive_job() {
    let slotd = Slotd::start();
    slotd.endless(&["--exclusive"]);
    slotd.wait_reason(slotd.wrap(&[], "true"), "Exclusive");
}

#[test]
fn host_out_of_memory_kills_jobs_before_the_daemon() {
    let slotd = Slotd::setup().set("SLOTD_OOM_SCORE_ADJ", 300).start();
    let of = |pid: i32| -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))
            .expect("a running process");
        text.trim().parse().expect("a number")
    };
    let job =
        slotd.wrap(&[], "cat /proc/self/oom_score_adj >adj; echo $PPID >watcher; exec sleep 1000");
    let watcher = slotd.wait_text("watcher", "\n").trim().parse().expect("a number");
    let daemon = of(slotd.daemon_pid());
    assert_eq!(slotd.read("adj").trim(), daemon.max(300).to_string());
    assert_eq!(of(watcher), daemon);
    slotd.cancel(job);
}
