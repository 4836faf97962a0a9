//! The submission commands of a Slurm guide, unchanged, and scripts with the header that it
//! teaches.

use slotd_kit::{Setup, Slotd, most_at_once};

/// Returns the setup of a host with the resources that the guide's script requests.
fn cluster() -> Setup {
    Slotd::setup()
        .set("SLOTD_CPUS", 32)
        .set("SLOTD_MEMORY_MB", 256 * 1024)
        .set("SLOTD_GPU_COUNT", 4)
}

/// Installs the programs that the script calls: `python` prints its arguments, `module` and
/// `activate` do nothing.
fn install_programs(slotd: &Slotd) {
    for (name, text) in [
        ("python", "#!/bin/sh\necho \"rank $SLURM_PROCID: $*\"\n"),
        ("module", "#!/bin/sh\n"),
        ("activate", "ENVIRONMENT_NAME=$1\n"),
    ] {
        let path = slotd.program(name, text);
        std::fs::rename(path, slotd.base.join("bin").join(name)).unwrap();
    }
}

const HEADER: &str = "#!/bin/bash\n\
    #SBATCH --job-name=train-resnet\n\
    #SBATCH --partition=gpu\n\
    #SBATCH --nodes=1\n\
    #SBATCH --ntasks-per-node=4\n\
    #SBATCH --gres=gpu:a100:4\n\
    #SBATCH --cpus-per-task=8\n\
    #SBATCH --mem=128G\n\
    #SBATCH --time=08:00:00\n\
    #SBATCH --output=logs/%x_%j.out\n\
    #SBATCH --error=logs/%x_%j.err\n\
    #SBATCH --mail-type=END,FAIL\n\
    #SBATCH --mail-user=user@example.com\n";

#[test]
fn sbatch_train_sh() {
    let slotd = Slotd::start();
    slotd.write("train.sh", "#!/bin/sh\necho trained\n");
    assert_eq!(slotd.sh("sbatch train.sh").ok().text(), "Submitted batch job 1");
    slotd.wait_state(1, "COMPLETED");
}

#[test]
fn srun_on_two_nodes_is_refused_as_slurm_refuses_it() {
    let slotd = cluster().start();
    let out = slotd.sh("srun --nodes=2 --ntasks=8 python distributed_train.py").fails(1);
    assert!(out.stderr.contains("Node count specification invalid"), "{}", out.stderr);
}

#[test]
fn srun_on_one_node() {
    let slotd = cluster().start();
    install_programs(&slotd);
    let out = slotd.sh("srun --nodes=1 --ntasks=8 python distributed_train.py").ok();
    let mut lines = out.lines();
    lines.sort();
    let wanted: Vec<String> =
        (0..8).map(|rank| format!("rank {rank}: distributed_train.py")).collect();
    assert_eq!(lines, wanted);
}

#[test]
fn salloc_nodes_gres_time() {
    let slotd = cluster().start();
    let mut command = slotd.shell();
    command.arg("-c").arg("salloc --nodes=1 --gres=gpu:2 --time=01:00:00");
    let out = slotd.feed(command, "echo $SLURM_JOB_ID has $SLURM_GPUS_ON_NODE; exit\n").ok();
    let both = format!("{}{}", out.stdout, out.stderr);
    assert!(both.contains("Granted job allocation 1"), "{both}");
    assert!(both.contains("1 has 2"), "{both}");
    assert_eq!(slotd.wait_end(1).state(), "COMPLETED");
    assert_eq!(slotd.sacct(1, "Timelimit"), "01:00:00");
}

#[test]
fn the_job_script_with_the_full_header() {
    let slotd = cluster().start();
    install_programs(&slotd);
    let body = "set -euo pipefail\n\
        trap 'echo \"Job $SLURM_JOB_ID failed at line $LINENO\" >&2' ERR\n\
        # --- Environment ---\n\
        module load cuda/12.1\n\
        source activate myenv\n\
        # --- Run ---\n\
        srun python train.py --epochs 100 --checkpoint-dir /scratch/$USER/$SLURM_JOB_ID\n\
        echo $ENVIRONMENT_NAME $CUDA_VISIBLE_DEVICES\n";
    slotd.write("train.sh", format!("{HEADER}{body}"));
    let out = slotd.sh("USER=me sbatch train.sh").ok();
    assert_eq!(out.text(), "Submitted batch job 1");
    slotd.wait_state(1, "COMPLETED");
    let log = slotd.read("logs/train-resnet_1.out");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let step = |rank| format!("rank {rank}: train.py --epochs 100 --checkpoint-dir /scratch/me/1");
    assert_eq!(lines, ["myenv 0,1,2,3".to_owned(), step(0), step(1), step(2), step(3)]);
    assert_eq!(slotd.read("logs/train-resnet_1.err"), "");
    let fields = "JobName,Partition,NTasks,AllocCPUS,ReqMem,Timelimit";
    assert_eq!(slotd.sacct(1, fields), "train-resnet|gpu||32|128G|08:00:00");
    assert_eq!(slotd.show(1, "MailType"), "END,FAIL");
    assert_eq!(slotd.show(1, "MailUser"), "user@example.com");
    assert_eq!(slotd.show(1, "TresPerNode"), "gres:gpu:a100:4");
}

#[test]
fn the_trap_prints_the_line_that_failed() {
    let slotd = cluster().start();
    let body = "set -euo pipefail\n\
        trap 'echo \"Job $SLURM_JOB_ID failed at line $LINENO\" >&2' ERR\n\
        false\n\
        echo never\n";
    let id = slotd.script(&[], &format!("{HEADER}{body}"));
    let job = slotd.wait_state(id, "FAILED");
    assert_eq!(job.exit(), "1:0");
    assert_eq!(slotd.read("logs/train-resnet_1.err"), "Job 1 failed at line 16\n");
    assert_eq!(slotd.read("logs/train-resnet_1.out"), "");
}

const SWEEP: &str = "#!/bin/bash\n\
    #SBATCH --job-name=hp-sweep\n\
    #SBATCH --array=0-99\n\
    #SBATCH --gres=gpu:1\n\
    #SBATCH --time=04:00:00\n\
    #SBATCH --output=logs/sweep_%A_%a.out # %A = array master job ID, %a = array task index\n\
    LEARNING_RATES=(1e-2 1e-3 1e-4 5e-4 1e-5)\n\
    LR_IDX=$((SLURM_ARRAY_TASK_ID % 5))\n\
    SEED=$((SLURM_ARRAY_TASK_ID / 5))\n\
    python train.py --lr ${LEARNING_RATES[$LR_IDX]} --seed $SEED\n";

#[test]
fn the_array_script() {
    let slotd = cluster().start();
    install_programs(&slotd);
    slotd.write("sweep.sh", SWEEP);
    slotd.sh("sbatch sweep.sh").ok();
    let records = slotd.wait_array(1, 100);
    assert!(records.iter().all(|job| job.state() == "COMPLETED"));
    // Each task has one of the four GPUs.
    assert!(most_at_once(&records) <= 4);
    assert_eq!(slotd.read("logs/sweep_1_0.out"), "rank 0: train.py --lr 1e-2 --seed 0\n");
    assert_eq!(slotd.read("logs/sweep_1_98.out"), "rank 0: train.py --lr 5e-4 --seed 19\n");
}

#[test]
fn array_job_controls() {
    let slotd = cluster().start();
    slotd.write("sweep.sh", format!("#!/bin/sh\n#SBATCH --gres=gpu:1\n{}\n", slotd.gate("go")));
    slotd.sh("sbatch --array=0-99%10 sweep.sh").ok();
    // The array allows ten at a time, the four GPUs only four.
    slotd.wait("four tasks", || {
        let running = slotd.records(1).iter().filter(|job| job.state() == "RUNNING").count();
        (running == 4).then_some(())
    });
    slotd.sh("scancel 1_[50-99]").ok();
    let rows = slotd.sh("squeue -h -j 1 -r").ok();
    assert_eq!(rows.lines().len(), 50);
    slotd.open("go");
    slotd.wait("the end of the others", || {
        let ended =
            |state: &str| slotd.records(1).iter().filter(|job| job.state() == state).count();
        (ended("COMPLETED") == 50).then_some(())
    });
    assert_eq!(slotd.sh("squeue -h -j 1 -r").ok().stdout, "");
}

#[test]
fn the_pipeline_of_dependencies() {
    let slotd = Slotd::start();
    for name in ["data-prep", "train", "eval"] {
        slotd.write(&format!("{name}.sh"), format!("#!/bin/sh\necho {name} >> order\n"));
    }
    slotd
        .sh("DATA_JOB=$(sbatch --parsable data-prep.sh)\n\
             TRAIN_JOB=$(sbatch --parsable --dependency=afterok:$DATA_JOB train.sh)\n\
             EVAL_JOB=$(sbatch --parsable --dependency=afterok:$TRAIN_JOB eval.sh)\n\
             echo $DATA_JOB $TRAIN_JOB $EVAL_JOB")
        .ok();
    slotd.wait_state(3, "COMPLETED");
    assert_eq!(slotd.read("order"), "data-prep\ntrain\neval\n");
}

#[test]
fn the_dependency_types() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let [good, bad] = [slotd.wrap(&[], &gate), slotd.wrap(&[], &format!("{gate}; exit 1"))];
    let on = |expression: String| slotd.wrap(&[&format!("--dependency={expression}")], "true");
    // Satisfied once the other job has started.
    slotd.wait_state(on(format!("after:{good}")), "COMPLETED");
    let met = [
        on(format!("afterok:{good}")),
        on(format!("afternotok:{bad}")),
        on(format!("afterany:{bad}")),
    ];
    let fan_in = on(format!("afterok:{good}:{}", met[0]));
    slotd.wait_reason(fan_in, "Dependency");
    slotd.open("go");
    for id in met.into_iter().chain([fan_in]) {
        slotd.wait_state(id, "COMPLETED");
    }
}

#[test]
fn requesting_too_many_gpus_is_refused_at_once() {
    // The guide says that Slurm queues this forever. slotd refuses it, with Slurm's words.
    let slotd = cluster().start();
    let out = slotd.sh("sbatch --gres=gpu:8 --wrap true").fails(1);
    let words = "sbatch: error: Batch job submission failed: Requested node configuration is not available\n";
    assert!(
        out.stderr.contains("8 GPUs requested") && out.stderr.ends_with(words),
        "{}",
        out.stderr
    );
}

#[test]
fn why_a_job_is_pending() {
    let slotd = Slotd::start();
    let busy = slotd.endless(&["-c", "4"]);
    let [wide, behind] = [slotd.wrap(&["-c", "4"], "true"), slotd.wrap(&["-c", "4"], "true")];
    let waits = slotd.wrap(&["-d", &format!("afterok:{busy}")], "true");
    for (id, reason) in [(wide, "(Resources)"), (behind, "(Priority)"), (waits, "(Dependency)")] {
        slotd.wait_reason(id, reason.trim_matches(['(', ')']));
        assert_eq!(slotd.sh(&format!("squeue -h -j {id} -o \"%R\"")).ok().text(), reason);
    }
}

#[test]
fn why_a_job_failed() {
    let slotd = Slotd::start();
    for (script, wanted) in
        [("true", "COMPLETED|0:0"), ("exit 1", "FAILED|1:0"), ("kill -9 $$", "FAILED|0:9")]
    {
        let id = slotd.wrap(&[], script);
        slotd.wait_end(id);
        let out = slotd.sh(&format!("sacct -nPX -j {id} --format=JobID,State,ExitCode")).ok();
        assert_eq!(out.text(), format!("{id}|{wanted}"));
    }
}

#[test]
fn graceful_shutdown_on_time_limit() {
    let slotd = Slotd::start();
    let script = "#!/bin/bash\n\
        #SBATCH --time=10\n\
        #SBATCH --signal=B:USR1@300 # Send SIGUSR1 300 seconds before time limit\n\
        #SBATCH --output=%x_%j.log\n\
        trap 'echo saved > checkpoint; exit 0' USR1\n\
        echo ready\n\
        while :; do sleep 0.05; done\n";
    let id = slotd.script(&["-J", "train"], script);
    slotd.wait_text(&format!("train_{id}.log"), "ready");
    // That leaves five minutes, so the signal is due.
    slotd.limit(id, 301);
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read("checkpoint"), "saved\n");
}

#[test]
fn graceful_shutdown_of_the_handler_in_python() {
    let slotd = Slotd::start();
    if slotd.sh("command -v python3").code != 0 {
        eprintln!("not tested: there is no python3");
        return;
    }
    let program = "import signal, sys, time\n\
        def handler(signum, frame):\n    \
            open('checkpoint', 'w').write('saved')\n    \
            sys.exit(0)\n\
        signal.signal(signal.SIGUSR1, handler)\n\
        print('ready', flush=True)\n\
        while True: time.sleep(0.05)\n";
    slotd.write("train.py", program);
    // Without `B:` only the step is signalled, not the batch script.
    let id = slotd.wrap(
        &["--time=10", "--signal=USR1@300", "-o", "log"],
        "srun python3 train.py; echo code $?",
    );
    slotd.wait_text("log", "ready");
    slotd.limit(id, 301);
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read("checkpoint"), "saved");
    assert!(slotd.read("log").ends_with("code 0\n"), "{}", slotd.read("log"));
}
