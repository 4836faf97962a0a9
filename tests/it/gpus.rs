//! GPUs as `nvidia-smi` reports them: their memory and slices, processes of others, and the GPUs
//! that jobs see and use.

use serde_json::Value;
use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::process::{Child, Command};

/// A script that prints the files next to it in response to queries of GPUs, slices and processes.
const NVIDIA_SMI: &str = "#!/bin/sh\ncase \"$*\" in\n\
    *compute-apps*) cat \"$0.apps\";;\n\
    *-L*) cat \"$0.slices\";;\n\
    *) cat \"$0.gpus\";;\nesac\n";

/// Starts a daemon with the GPUs of a file, see [`set_output`].
fn host(setup: Setup, gpus: &str) -> Slotd {
    let mut slotd = setup.unset("SLOTD_GPU_COUNT").prepare();
    slotd.program("../bin/nvidia-smi", NVIDIA_SMI);
    set_output(&slotd, "gpus", gpus);
    set_output(&slotd, "apps", "");
    slotd.start_daemon();
    slotd.wait_gpus();
    slotd
}

/// Sets the output of `nvidia-smi`. The file is replaced atomically, because `nvidia-smi` may run
/// at any moment.
fn set_output(slotd: &Slotd, what: &str, text: &str) {
    let file = slotd.base.join(format!("bin/nvidia-smi.{what}"));
    fs::write(file.with_extension("new"), text).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

/// Returns the line of a GPU: index, name, UUID, MB, free MB, percent.
fn gpu(id: u32, mb: u64, free: u64) -> String {
    format!("{id}, NVIDIA H200, GPU-{id}, {mb}, {free}, 0, Disabled\n")
}

/// A process outside of the queue. It is reaped when dropped.
struct ForeignProcess(Child);

impl ForeignProcess {
    fn start() -> ForeignProcess {
        ForeignProcess(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn on_gpu(&self, id: u32, mb: u64) -> String {
        format!("{}, GPU-{id}, {mb}\n", self.0.id())
    }
}

impl Drop for ForeignProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_waits_until_a_foreign_process_frees_its_gpu_memory() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 5000));
    let foreign = ForeignProcess::start();
    set_output(&slotd, "apps", &foreign.on_gpu(0, 35_000));
    let waits = slotd.wrap(&["--gres=gpumem:10G"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(waits, "Resources");
    slotd.wait("the reason", || {
        slotd.system_comment(waits).contains("35000 MB of GPU 0").then_some(())
    });
    // Jobs without a GPU and jobs that need less of it can still start.
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    slotd.wait_state(slotd.wrap(&["--gres=gpumem:4G"], "true"), "COMPLETED");
    assert_eq!(slotd.state(waits), "PENDING");
    drop(foreign);
    set_output(&slotd, "apps", "");
    set_output(&slotd, "gpus", &gpu(0, 40_000, 40_000));
    slotd.wait_state(waits, "COMPLETED");
    assert_eq!(slotd.output(waits), "0\n");
    assert_eq!(slotd.system_comment(waits), "");
}

#[test]
fn gpus_with_foreign_processes_are_avoided_if_configured() {
    let gpus = [gpu(0, 40_000, 39_000), gpu(1, 40_000, 39_000)].concat();
    let slotd = host(Setup::default().set("SLOTD_GPU_FOREIGN", "avoid"), &gpus);
    let foreign = ForeignProcess::start();
    set_output(&slotd, "apps", &foreign.on_gpu(0, 1000));
    let other = slotd.wrap(&["-G1"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_state(other, "COMPLETED");
    assert_eq!(slotd.output(other), "1\n");
    let both = slotd.wrap(&["-G2"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(both, "Resources");
    drop(foreign);
    set_output(&slotd, "apps", "");
    slotd.wait_state(both, "COMPLETED");
    assert_eq!(slotd.output(both), "0,1\n");
}

#[test]
fn foreign_processes_on_gpus_are_ignored_by_default() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 39_000));
    let foreign = ForeignProcess::start();
    set_output(&slotd, "apps", &foreign.on_gpu(0, 1000));
    slotd.wait_state(slotd.wrap(&["-G1"], "true"), "COMPLETED");
}

#[test]
fn jobs_share_a_gpu_by_memory_without_counting_their_use_twice() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 40_000));
    let first = slotd.begun(&["--gres=gpumem:20000M"], "go", "true");
    let pid = pid_of(&slotd, first);
    set_output(&slotd, "apps", &format!("{pid}, GPU-0, 15000\n"));
    set_output(&slotd, "gpus", &gpu(0, 40_000, 25_000));
    let second = slotd.begun(&["--gres=gpumem:20000M"], "go", "echo $CUDA_VISIBLE_DEVICES");
    let third = slotd.wrap(&["--gres=gpumem:100M"], "true");
    slotd.wait_reason(third, "Resources");
    let whole = slotd.wrap(&["-G1"], "true");
    slotd.wait_reason(whole, "Priority");
    let node = slotd.cmd("scontrol", &["show", "node", "-d"]).ok();
    assert!(node.stdout.contains("AllocTRES=cpu=2,mem=1G,gres/gpumem=40000M\n"), "{}", node.stdout);
    assert!(
        node.stdout.contains("CfgTRES=cpu=4,mem=8G,billing=4,gres/gpu=1,gres/gpumem=40000M\n"),
        "{}",
        node.stdout
    );
    assert!(node.stdout.contains("GresUsed=gpu:0,gpumem:40000M\n"), "{}", node.stdout);
    assert_eq!(slotd.show(second, "TresPerNode"), "gres:gpumem:20000M");
    set_output(&slotd, "apps", "");
    set_output(&slotd, "gpus", &gpu(0, 40_000, 40_000));
    slotd.open("go");
    for id in [first, second, third, whole] {
        slotd.wait_state(id, "COMPLETED");
    }
    assert_eq!(slotd.output(second), "0\n");
    let held = slotd.sacct(second, "AllocTRES");
    assert!(held.contains("gres/gpumem=20000M") && !held.contains("gres/gpu="), "{held}");
}

/// Returns the PID of the job's shell: the one process with a rank. Its children are short-lived,
/// and their PIDs are lower where the numbers have wrapped around.
fn pid_of(slotd: &Slotd, job: u32) -> i32 {
    let text = slotd.cmd("scontrol", &["listpids", &job.to_string()]).ok().stdout;
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|row| row.get(3) == Some(&"0"))
        .find_map(|row| row[0].parse().ok())
        .unwrap_or_else(|| panic!("no process of job {job}: {text}"))
}

#[test]
fn gpu_memory_is_per_gpu_and_the_freest_gpus_are_allocated_first() {
    let slotd = host(
        Setup::default(),
        &[gpu(0, 10_000, 10_000), gpu(1, 30_000, 30_000), gpu(2, 20_000, 20_000)].concat(),
    );
    let job = slotd
        .wrap(&["--gres=gpu:2,gpumem:10000M"], "echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "1,2 2\n");
}

#[test]
fn jobs_share_a_gpu_by_shards() {
    let slotd = host(Setup::default().set("SLOTD_GPU_SHARDS", 4), &gpu(0, 40_000, 40_000));
    let first = slotd.begun(&["--gres=shard:3"], "go", "true");
    let second = slotd.wrap(&["--gres=shard:2"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(second, "Resources");
    let node = slotd.cmd("scontrol", &["show", "node"]).ok();
    assert!(
        node.stdout.contains("Gres=gpu:nvidia_h200:1,gpumem:40000M,shard:4\n"),
        "{}",
        node.stdout
    );
    assert!(node.stdout.contains(",gres/shard=3\n"), "{}", node.stdout);
    slotd.open("go");
    for id in [first, second] {
        slotd.wait_state(id, "COMPLETED");
    }
    assert_eq!(slotd.output(second), "0\n");
}

#[test]
fn the_steps_of_a_job_share_its_gpu_by_memory() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 40_000));
    let script = "srun -n1 --gres=gpumem:10G sh -c 'touch a; until [ -e b ]; do sleep 0.01; done; echo a $SLURM_STEP_GPUS' &\n\
                  srun -n1 --gres=gpumem:10G sh -c 'touch b; until [ -e a ]; do sleep 0.01; done; echo b $SLURM_STEP_GPUS' &\n\
                  wait; srun -n1 --gres=gpumem:21G true || echo too much; srun -n1 --gres=none sh -c 'echo \"[$CUDA_VISIBLE_DEVICES]\"'";
    let job = slotd.wrap(&["-n2", "--gres=gpumem:20G"], script);
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    let mut lines: Vec<&str> = output.lines().filter(|line| !line.starts_with("srun: ")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[]", "a 0", "b 0", "too much"], "{output}");
}

#[test]
fn a_job_without_gpus_sees_none_unless_configured() {
    let script = "echo \"[${CUDA_VISIBLE_DEVICES-unset}]\"";
    let slotd = host(Setup::default(), &gpu(0, 1, 1));
    assert_eq!(slotd.ran(&[], script), "[]\n");
    assert_eq!(slotd.cmd("srun", &["sh", "-c", script]).ok().stdout, "[]\n");
    let of_gpu = slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER");
    assert_eq!(of_gpu, "0 PCI_BUS_ID\n");
    let slotd = host(Setup::default().set("SLOTD_GPU_HIDE", "no"), &gpu(0, 1, 1));
    assert_eq!(slotd.ran(&[], script), "[unset]\n");
}

#[test]
fn a_slice_is_a_gpu_with_its_profile_as_its_model() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program("../bin/nvidia-smi", NVIDIA_SMI);
    set_output(&slotd, "gpus", "0, NVIDIA A100, GPU-0, 81920, 81000, 0, Enabled\n");
    set_output(
        &slotd,
        "slices",
        "GPU 0: NVIDIA A100 (UUID: GPU-0)\n  MIG 3g.40gb     Device  0: (UUID: MIG-a)\n  MIG 1g.10gb     Device  1: (UUID: MIG-b)\n",
    );
    slotd.start_daemon();
    slotd.wait_gpus();
    let of = |gres: &str| slotd.ran(&[gres], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS");
    assert_eq!(of("--gres=gpu:1g.10gb:1"), "MIG-b 1\n");
    assert_eq!(of("--gres=gpu:2"), "MIG-a,MIG-b 0,1\n");
    let refused = slotd.cmd("sbatch", &["--gres=gpu:h100:1", "--wrap", "true"]).fails(1);
    assert!(refused.stderr.contains("3g.40gb"), "{}", refused.stderr);
}

#[test]
fn a_lost_gpu_is_not_allocated_and_the_others_keep_their_numbers() {
    let slotd = host(Setup::default(), &[gpu(0, 1, 1), gpu(1, 1, 1)].concat());
    let continues = slotd.begun(&["-G1"], "go", "true");
    set_output(&slotd, "gpus", "0, NVIDIA H200, GPU-1, 1, 1, 0, Disabled\n");
    proc::signal(slotd.daemon_pid(), proc::HUP);
    let reason = || slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%E"]).ok().text().to_owned();
    slotd.wait("the reason in sinfo", || {
        (reason() == "GPU 0 (GPU-0): no longer found").then_some(())
    });
    let rows = slotd.cmd("sinfo", &["-hR"]).ok();
    assert!(rows.stdout.starts_with("GPU 0 (GPU-0): no lo"), "{}", rows.stdout);
    assert_eq!(
        slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%G %t"]).ok().text(),
        "gpu:nvidia_h200:1,gpumem:1M mix"
    );
    assert_eq!(slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS"), "GPU-1 1\n");
    slotd.cmd("sbatch", &["-G2", "--wrap", "true"]).fails(1);
    assert_eq!(slotd.state(continues), "RUNNING");
    set_output(&slotd, "gpus", &[gpu(0, 1, 1), gpu(1, 1, 1)].concat());
    slotd.cmd("scontrol", &["reconfigure"]).ok();
    slotd.wait("the GPU's return", || (reason() == "none").then_some(()));
    slotd.open("go");
    slotd.wait_state(continues, "COMPLETED");
    assert_eq!(slotd.ran(&["-G2"], "echo $CUDA_VISIBLE_DEVICES"), "0,1\n");
}

#[test]
fn gpus_keep_their_numbers_if_one_is_lost_during_a_restart() {
    let mut slotd = host(Setup::default(), &[gpu(0, 1, 1), gpu(1, 1, 1), gpu(2, 1, 1)].concat());
    let on_lost = slotd.begun(&["-G1"], "go", "true");
    let on_second = slotd.begun(&["-G1"], "go", "true");
    slotd.stop();
    // The driver renumbers the GPUs.
    set_output(
        &slotd,
        "gpus",
        "0, NVIDIA H200, GPU-1, 1, 1, 0, Disabled\n1, NVIDIA H200, GPU-2, 1, 1, 0, Disabled\n",
    );
    slotd.start_daemon();
    let reason = || slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%E"]).ok().text().to_owned();
    slotd.wait("the reason in sinfo", || {
        (reason() == "GPU 0 (GPU-0): no longer found").then_some(())
    });
    assert_eq!(slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS"), "GPU-2 2\n");
    slotd.open("go");
    for job in [on_lost, on_second] {
        slotd.wait_state(job, "COMPLETED");
    }
    let both = slotd.ran(&["-G2"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS");
    assert_eq!(both, "GPU-1,GPU-2 1,2\n");
}

#[test]
fn impossible_gpu_requests_are_refused_with_the_value_and_the_limit() {
    let slotd = host(Setup::default(), &[gpu(0, 40_000, 40_000), gpu(1, 80_000, 1)].concat());
    let refused = |gres: &str, words: &[&str]| {
        let out = slotd.cmd("sbatch", &[gres, "--wrap", "true"]).fails(1);
        words.iter().for_each(|word| assert!(out.stderr.contains(word), "{gres}: {}", out.stderr));
    };
    refused("--gres=gpu:t4:1", &["no such GPU model on this host: t4", "nvidia_h200"]);
    refused("--gres=gpumem:0", &["gpumem:0", "at least 1M"]);
    refused("--gres=gpumem:900G", &["921600 MB", "80000 MB on the largest GPU"]);
    refused("--gres=gpu:2,gpumem:50000M", &["2 GPUs requested, 1 on this host"]);
    refused("--gres=shard:1", &["set SLOTD_GPU_SHARDS"]);
    refused("--gres=gpu:1,shard:1", &["not both"]);
    let both = slotd.cmd("sbatch", &["-G1", "--gres=shard:1", "--wrap", "true"]).fails(1);
    assert!(both.stderr.contains("not both"), "{}", both.stderr);
    let counted = Setup::default().set("SLOTD_GPU_COUNT", 1).start();
    let unknown = counted.cmd("sbatch", &["--gres=gpumem:1G", "--wrap", "true"]).fails(1);
    assert!(unknown.stderr.contains("is unknown"), "{}", unknown.stderr);
}

/// Returns the spans of the batch step of a job.
fn series(slotd: &Slotd, job: u32) -> Vec<Value> {
    let text = slotd.cmd("sstat", &["--series", "--json", "-j", &job.to_string()]).ok().stdout;
    let output: Value = serde_json::from_str(&text).unwrap();
    output["steps"][0]["spans"].as_array().unwrap().clone()
}

#[track_caller]
fn wait_use(slotd: &Slotd, job: u32) {
    let used = || {
        slotd
            .cmd("sstat", &["-a", "-P", "-n", "-o", "TRESUsageInMax", "-j", &job.to_string()])
            .ok()
            .stdout
    };
    slotd.wait("the usage", || used().contains("gres/gpumem=8000M,gres/gpuutil=90,").then_some(()));
}

#[test]
fn the_gpu_use_of_a_job_is_recorded() {
    let mut slotd = host(Setup::default(), "0, NVIDIA H200, GPU-0, 40000, 32000, 90, Disabled\n");
    let job = slotd.begun(&["-G1"], "go", "true");
    let pid = pid_of(&slotd, job);
    set_output(&slotd, "apps", &format!("{pid}, GPU-0, 8000\n"));
    wait_use(&slotd, job);
    let is_expected = |span: &Value| {
        span["gpus"]["busy_percent"] == 90.0 && span["gpus"]["mem_max"] == 8000u64 << 20
    };
    slotd.wait("the use over time", || {
        series(&slotd, job).last().is_some_and(is_expected).then_some(())
    });
    assert!(
        series(&slotd, job)[0]["gpus"]["busy_percent"] == 90.0,
        "the first sample also counts for the time before it: {:?}",
        series(&slotd, job)
    );
    // The watcher of the step still has the samples.
    slotd.kill9();
    slotd.start_daemon();
    wait_use(&slotd, job);
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert!(series(&slotd, job).iter().any(is_expected), "{:?}", series(&slotd, job));
    let table = slotd.cmd("sstat", &["--series", "-P", "-j", &job.to_string()]).ok().stdout;
    assert!(
        table.starts_with("JobID|Start|") && table.contains("|GPUs|MaxGPUMem|AveGPUMem\n"),
        "{table}"
    );
    assert!(table.contains("|0.90|"), "{table}");
    let kept = slotd.steps(job, "TRESUsageInMax");
    assert!(kept.contains("gres/gpumem=8000M,gres/gpuutil=90,"), "{kept}");
    let plots = slotd.cmd("seff", &["--plot".to_owned(), job.to_string()]).ok().stdout;
    assert!(plots.contains("\nGPUs in use: 0.90 of 1, peak 0.90\n"), "{plots}");
    assert!(plots.contains("\nGPU memory: peak 7.8G\n"), "{plots}");
    let seff = slotd.cmd("seff", &[job.to_string()]).ok();
    assert!(
        seff.stdout.contains("GPU Efficiency: 90.00% of 1 GPU\nGPU Memory Utilized: 7.81 GB\n"),
        "{}",
        seff.stdout
    );
}

#[test]
fn only_gpu_jobs_wait_while_nvidia_smi_hangs() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\nwhile [ -e \"$0.hangs\" ]; do sleep 0.1; done; cat \"$0.gpus\"\n",
    );
    let hangs = slotd.base.join("bin/nvidia-smi.hangs");
    set_output(&slotd, "gpus", &[gpu(0, 40_000, 40_000), gpu(1, 40_000, 40_000)].concat());
    slotd.start_daemon();
    let holder = slotd.begun(&["-p", "gpu"], "go", "true");
    slotd.kill9();
    fs::write(&hangs, "").unwrap();
    slotd.start_daemon();
    assert!(slotd.log().contains("the GPUs are still being detected"), "{}", slotd.log());
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    let waits = slotd.wrap(&["-p", "gpu"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(waits, "Resources");
    assert_eq!(slotd.system_comment(waits), "the GPUs of this host are being detected");
    assert!(slotd.line("sinfo -h -o %P").ok().stdout.contains("gpu"));
    assert_eq!(slotd.line("sinfo -hR").ok().stdout, "");
    fs::remove_file(&hangs).unwrap();
    slotd.wait_state(waits, "COMPLETED");
    // The other GPU is used by a job from before the restart.
    assert_eq!((slotd.output(waits).as_str(), slotd.state(holder).as_str()), ("1\n", "RUNNING"));
    slotd.open("go");
    slotd.wait_state(holder, "COMPLETED");
}

#[test]
fn early_clients_get_the_gpus_once_they_are_detected() {
    let asks = "#!/bin/sh\nset -e\n[ -S \"$SLOTD_ROOT/run/slotd.sock\" ]\n\
                (sinfo -h -p gpu -o '%G' >\"$0.early\" 2>&1; echo >>\"$0.ended\") >&- 2>&- &\n\
                cat \"$0.gpus\"\n";
    // The daemon waits two seconds for `nvidia-smi`, which may be too short on a busy machine.
    for is_last in [false, false, false, true] {
        let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
        slotd.program("../bin/nvidia-smi", asks);
        set_output(&slotd, "gpus", &gpu(0, 40_000, 40_000));
        slotd.start_daemon();
        let is_late = slotd.log().contains("still being detected");
        assert!(!is_late || !is_last, "{}", slotd.log());
        if is_late {
            continue;
        }
        let place = |what: &str| slotd.base.join(format!("bin/nvidia-smi.{what}"));
        slotd.wait("the answer", || place("ended").exists().then_some(()));
        let early = fs::read_to_string(place("early")).unwrap();
        assert_eq!(early, "gpu:nvidia_h200:1,gpumem:40000M\n");
        return;
    }
}

#[test]
fn a_gpu_in_use_is_recognized_by_its_uuid_if_the_numbering_is_lost() {
    let gpus = |order: [u32; 2]| -> String {
        let line =
            |(at, gpu): (usize, u32)| format!("{at}, NVIDIA H200, GPU-{gpu}, 1, 1, 0, Disabled\n");
        order.into_iter().enumerate().map(line).collect()
    };
    for lost in [&["gpus.json"][..], &["gpus.json", "state.db", "state.db-wal", "state.db-shm"]] {
        let mut slotd = host(Setup::default(), &gpus([0, 1]));
        let holder = slotd.begun(&["-G1"], "go", "true");
        slotd.wait("the job is recorded", || {
            slotd.job_dir(holder).join("job.json").exists().then_some(())
        });
        slotd.kill9();
        for name in lost {
            let _ = fs::remove_file(slotd.root.join("lib").join(name));
        }
        set_output(&slotd, "gpus", &gpus([1, 0]));
        slotd.start_daemon();
        assert_eq!(
            slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS"),
            "GPU-1 1\n",
            "without {lost:?}"
        );
        let both = slotd.wrap(&["-G2"], "echo $SLURM_JOB_GPUS");
        slotd.wait_reason(both, "Resources");
        slotd.open("go");
        slotd.wait_state(holder, "COMPLETED");
        slotd.wait_state(both, "COMPLETED");
        assert_eq!(slotd.output(both), "0,1\n");
    }
}
