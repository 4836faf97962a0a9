//! GPUs by what `nvidia-smi` tells of them: memory and parts of GPUs, processes of others, what
//! jobs see and use.

use serde_json::Value;
use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::process::{Child, Command};

/// Prints what lies beside it, for the queries of GPUs, slices and processes.
const NVIDIA_SMI: &str = "#!/bin/sh\ncase \"$*\" in\n\
    *compute-apps*) cat \"$0.apps\";;\n\
    *-L*) cat \"$0.slices\";;\n\
    *) cat \"$0.gpus\";;\nesac\n";

/// A setup whose GPUs are told by a file: see [`tell`].
fn host(setup: Setup, gpus: &str) -> Slotd {
    let mut slotd = setup.unset("SLOTD_GPU_COUNT").prepare();
    slotd.program("../bin/nvidia-smi", NVIDIA_SMI);
    tell(&slotd, "gpus", gpus);
    tell(&slotd, "apps", "");
    slotd.start_daemon();
    slotd.wait_gpus();
    slotd
}

/// From now on `nvidia-smi` prints this. It may be asked at any moment.
fn tell(slotd: &Slotd, what: &str, text: &str) {
    let file = slotd.base.join(format!("bin/nvidia-smi.{what}"));
    fs::write(file.with_extension("new"), text).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

/// index, name, uuid, MB, MB that are free, percent.
fn gpu(id: u32, mb: u64, free: u64) -> String {
    format!("{id}, NVIDIA H200, GPU-{id}, {mb}, {free}, 0, Disabled\n")
}

/// A process that the queue knows nothing of, and that is no child of the test when it is gone.
struct Stranger(Child);

impl Stranger {
    fn start() -> Stranger {
        Stranger(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn on_gpu(&self, id: u32, mb: u64) -> String {
        format!("{}, GPU-{id}, {mb}\n", self.0.id())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_waits_until_a_process_beside_the_queue_leaves_it_the_memory_that_it_asks_for() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 5000));
    let stranger = Stranger::start();
    tell(&slotd, "apps", &stranger.on_gpu(0, 35_000));
    let waits = slotd.wrap(&["--gres=gpumem:10G"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(waits, "Resources");
    slotd.wait("the reason in words", || {
        slotd.system_comment(waits).contains("35000 MB of GPU 0").then_some(())
    });
    // It keeps nobody else from starting: neither who needs no GPU, nor who needs less of it.
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    slotd.wait_state(slotd.wrap(&["--gres=gpumem:4G"], "true"), "COMPLETED");
    assert_eq!(slotd.state(waits), "PENDING");
    drop(stranger);
    tell(&slotd, "apps", "");
    tell(&slotd, "gpus", &gpu(0, 40_000, 40_000));
    slotd.wait_state(waits, "COMPLETED");
    assert_eq!(slotd.output(waits), "0\n");
    assert_eq!(slotd.system_comment(waits), "");
}

#[test]
fn where_it_is_set_so_a_gpu_with_processes_of_others_is_left_alone() {
    let gpus = [gpu(0, 40_000, 39_000), gpu(1, 40_000, 39_000)].concat();
    let slotd = host(Setup::default().set("SLOTD_GPU_FOREIGN", "avoid"), &gpus);
    let stranger = Stranger::start();
    tell(&slotd, "apps", &stranger.on_gpu(0, 1000));
    let other = slotd.wrap(&["-G1"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_state(other, "COMPLETED");
    assert_eq!(slotd.output(other), "1\n");
    let both = slotd.wrap(&["-G2"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(both, "Resources");
    drop(stranger);
    tell(&slotd, "apps", "");
    slotd.wait_state(both, "COMPLETED");
    assert_eq!(slotd.output(both), "0,1\n");
}

#[test]
fn without_that_setting_gpus_are_given_by_reservation_alone() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 39_000));
    let stranger = Stranger::start();
    tell(&slotd, "apps", &stranger.on_gpu(0, 1000));
    slotd.wait_state(slotd.wrap(&["-G1"], "true"), "COMPLETED");
}

#[test]
fn jobs_share_a_gpu_by_memory_and_their_own_use_of_it_is_not_counted_twice() {
    let slotd = host(Setup::default(), &gpu(0, 40_000, 40_000));
    let first = slotd.begun(&["--gres=gpumem:20000M"], "go", "true");
    let pid = pid_of(&slotd, first);
    tell(&slotd, "apps", &format!("{pid}, GPU-0, 15000\n"));
    tell(&slotd, "gpus", &gpu(0, 40_000, 25_000));
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
    tell(&slotd, "apps", "");
    tell(&slotd, "gpus", &gpu(0, 40_000, 40_000));
    slotd.open("go");
    for id in [first, second, third, whole] {
        slotd.wait_state(id, "COMPLETED");
    }
    assert_eq!(slotd.output(second), "0\n");
    let held = slotd.sacct(second, "AllocTRES");
    assert!(held.contains("gres/gpumem=20000M") && !held.contains("gres/gpu="), "{held}");
}

/// The first process of a batch job.
fn pid_of(slotd: &Slotd, job: u32) -> i32 {
    let text = slotd.cmd("scontrol", &["listpids", &job.to_string()]).ok().stdout;
    let rows = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()?.parse().ok());
    rows.min().unwrap_or_else(|| panic!("no process of job {job}: {text}"))
}

#[test]
fn each_of_several_gpus_gives_the_memory_and_the_freest_go_first() {
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
fn gpus_are_shared_by_parts() {
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
fn a_job_without_gpus_sees_none_unless_it_is_set_so() {
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
    tell(&slotd, "gpus", "0, NVIDIA A100, GPU-0, 81920, 81000, 0, Enabled\n");
    tell(
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
fn a_gpu_that_vanishes_is_not_given_out_and_the_others_keep_their_numbers() {
    let slotd = host(Setup::default(), &[gpu(0, 1, 1), gpu(1, 1, 1)].concat());
    let goes_on = slotd.begun(&["-G1"], "go", "true");
    tell(&slotd, "gpus", "0, NVIDIA H200, GPU-1, 1, 1, 0, Disabled\n");
    proc::signal(slotd.daemon_pid(), proc::HUP);
    let reason = || slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%E"]).ok().text().to_owned();
    slotd.wait("sinfo's word", || (reason() == "GPU 0 (GPU-0): not found any more").then_some(()));
    let rows = slotd.cmd("sinfo", &["-hR"]).ok();
    assert!(rows.stdout.starts_with("GPU 0 (GPU-0): not f"), "{}", rows.stdout);
    assert_eq!(
        slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%G %t"]).ok().text(),
        "gpu:nvidia_h200:1,gpumem:1M mix"
    );
    assert_eq!(slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS"), "GPU-1 1\n");
    slotd.cmd("sbatch", &["-G2", "--wrap", "true"]).fails(1);
    assert_eq!(slotd.state(goes_on), "RUNNING");
    tell(&slotd, "gpus", &[gpu(0, 1, 1), gpu(1, 1, 1)].concat());
    slotd.cmd("scontrol", &["reconfigure"]).ok();
    slotd.wait("the GPU's return", || (reason() == "none").then_some(()));
    slotd.open("go");
    slotd.wait_state(goes_on, "COMPLETED");
    assert_eq!(slotd.ran(&["-G2"], "echo $CUDA_VISIBLE_DEVICES"), "0,1\n");
}

#[test]
fn over_a_restart_in_which_a_gpu_vanishes_the_others_keep_their_numbers() {
    let mut slotd = host(Setup::default(), &[gpu(0, 1, 1), gpu(1, 1, 1), gpu(2, 1, 1)].concat());
    let on_lost = slotd.begun(&["-G1"], "go", "true");
    let on_second = slotd.begun(&["-G1"], "go", "true");
    slotd.stop();
    // The driver counts anew.
    tell(
        &slotd,
        "gpus",
        "0, NVIDIA H200, GPU-1, 1, 1, 0, Disabled\n1, NVIDIA H200, GPU-2, 1, 1, 0, Disabled\n",
    );
    slotd.start_daemon();
    let reason = || slotd.cmd("sinfo", &["-h", "-p", "gpu", "-o", "%E"]).ok().text().to_owned();
    slotd.wait("sinfo's word", || (reason() == "GPU 0 (GPU-0): not found any more").then_some(()));
    assert_eq!(slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS"), "GPU-2 2\n");
    slotd.open("go");
    for job in [on_lost, on_second] {
        slotd.wait_state(job, "COMPLETED");
    }
    let both = slotd.ran(&["-G2"], "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS");
    assert_eq!(both, "GPU-1,GPU-2 1,2\n");
}

#[test]
fn what_no_gpu_can_give_is_refused_with_the_value_and_what_there_is() {
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
    assert!(unknown.stderr.contains("is not known"), "{}", unknown.stderr);
}

/// The spans of the batch step of a job.
fn series(slotd: &Slotd, job: u32) -> Vec<Value> {
    let text = slotd.cmd("sstat", &["--series", "--json", "-j", &job.to_string()]).ok().stdout;
    let told: Value = serde_json::from_str(&text).unwrap();
    told["steps"][0]["spans"].as_array().unwrap().clone()
}

#[track_caller]
fn wait_use(slotd: &Slotd, job: u32) {
    let used = || {
        slotd
            .cmd("sstat", &["-a", "-P", "-n", "-o", "TRESUsageInMax", "-j", &job.to_string()])
            .ok()
            .stdout
    };
    slotd.wait("the use", || used().contains("gres/gpumem=8000M,gres/gpuutil=90,").then_some(()));
}

#[test]
fn what_a_job_uses_of_its_gpus_is_kept() {
    let mut slotd = host(Setup::default(), "0, NVIDIA H200, GPU-0, 40000, 32000, 90, Disabled\n");
    let job = slotd.begun(&["-G1"], "go", "true");
    let pid = pid_of(&slotd, job);
    tell(&slotd, "apps", &format!("{pid}, GPU-0, 8000\n"));
    wait_use(&slotd, job);
    let is_it = |span: &Value| {
        span["gpus"]["busy_percent"] == 90.0 && span["gpus"]["mem_max"] == 8000u64 << 20
    };
    slotd.wait("the use over time", || series(&slotd, job).last().is_some_and(is_it).then_some(()));
    assert!(
        series(&slotd, job)[0]["gpus"]["busy_percent"] == 90.0,
        "it was so from the start on, as far as is known: {:?}",
        series(&slotd, job)
    );
    // Who watches the step keeps it.
    slotd.kill9();
    slotd.start_daemon();
    wait_use(&slotd, job);
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert!(series(&slotd, job).iter().any(is_it), "{:?}", series(&slotd, job));
    let table = slotd.cmd("sstat", &["--series", "-P", "-j", &job.to_string()]).ok().stdout;
    assert!(
        table.starts_with("JobID|Start|") && table.contains("|GPUs|MaxGPUMem|AveGPUMem\n"),
        "{table}"
    );
    assert!(table.contains("|0.90|"), "{table}");
    let kept = slotd.steps(job, "TRESUsageInMax");
    assert!(kept.contains("gres/gpumem=8000M,gres/gpuutil=90,"), "{kept}");
    let plots = slotd.cmd("seff", &["--plot".to_owned(), job.to_string()]).ok().stdout;
    assert!(plots.contains("\nGPUs in use: 0.90 of 1, at most 0.90\n"), "{plots}");
    assert!(plots.contains("\nGPU memory: at most 7.8G\n"), "{plots}");
    let seff = slotd.cmd("seff", &[job.to_string()]).ok();
    assert!(
        seff.stdout.contains("GPU Efficiency: 90.00% of 1 GPUs\nGPU Memory Utilized: 7.81 GB\n"),
        "{}",
        seff.stdout
    );
}

#[test]
fn a_daemon_serves_while_nvidia_smi_hangs_and_jobs_with_gpus_wait_for_it() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\nwhile [ -e \"$0.hangs\" ]; do sleep 0.1; done; cat \"$0.gpus\"\n",
    );
    let hangs = slotd.base.join("bin/nvidia-smi.hangs");
    tell(&slotd, "gpus", &[gpu(0, 40_000, 40_000), gpu(1, 40_000, 40_000)].concat());
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
    // The other one is in use, by a job of the daemon before.
    assert_eq!((slotd.output(waits).as_str(), slotd.state(holder).as_str()), ("1\n", "RUNNING"));
    slotd.open("go");
    slotd.wait_state(holder, "COMPLETED");
}

#[test]
fn a_daemon_listens_before_it_looks_for_gpus_and_who_comes_early_is_told_of_them() {
    let asks = "#!/bin/sh\nset -e\n[ -S \"$SLOTD_ROOT/run/slotd.sock\" ]\n\
                (sinfo -h -p gpu -o '%G' >\"$0.early\" 2>&1; echo >>\"$0.ended\") >&- 2>&- &\n\
                cat \"$0.gpus\"\n";
    // The daemon waits two seconds for the answer. On a busy machine that may be too short.
    for is_last in [false, false, false, true] {
        let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
        slotd.program("../bin/nvidia-smi", asks);
        tell(&slotd, "gpus", &gpu(0, 40_000, 40_000));
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
fn a_card_in_use_is_known_by_its_name_when_the_cards_are_counted_anew_and_their_numbers_are_lost() {
    let cards = |order: [u32; 2]| -> String {
        let line = |(at, card): (usize, u32)| {
            format!("{at}, NVIDIA H200, GPU-{card}, 1, 1, 0, Disabled\n")
        };
        order.into_iter().enumerate().map(line).collect()
    };
    for lost in [&["gpus.json"][..], &["gpus.json", "state.db", "state.db-wal", "state.db-shm"]] {
        let mut slotd = host(Setup::default(), &cards([0, 1]));
        let holder = slotd.begun(&["-G1"], "go", "true");
        slotd.wait("the job is written down", || {
            slotd.job_dir(holder).join("job.json").exists().then_some(())
        });
        slotd.kill9();
        for name in lost {
            let _ = fs::remove_file(slotd.root.join("lib").join(name));
        }
        tell(&slotd, "gpus", &cards([1, 0]));
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
