//! Published Slurm scripts (`tests/published`), unmodified: each must do its work and run once.
//! Large programs are replaced by small ones that print their arguments.

use slotd_kit::{Out, Slotd, host, most_at_once};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The programs that the scripts call.
const PROGRAMS: &[(&str, &str)] = &[
    // Appends its arguments to the file of --out. tune.py waits for the head of Ray.
    (
        "python",
        "for word; do [ \"$last\" = --out ] && mkdir -p results && echo \"$*\" >>\"$word\"; last=$word; done\n\
         case \"$*\" in *tune.py*) until [ -s ray.started ]; do sleep 0.05; done ;; esac\n\
         echo \"python $*${CONDA_DEFAULT_ENV:+ in $CONDA_DEFAULT_ENV}\"\n",
    ),
    ("conda", "[ \"$*\" = 'info --base' ] && echo \"$HOME/conda\"\n"),
    (
        "hostname",
        "case $1 in --ip-address) echo 10.0.0.7 ;; -f) echo here.example.org ;; *) echo here ;; esac\n",
    ),
    ("torchrun", "echo \"torchrun $* on $CUDA_VISIBLE_DEVICES as $SLURM_PROCID\"\n"),
    ("accelerate", "echo \"accelerate $* on $CUDA_VISIBLE_DEVICES as $SLURM_PROCID\"\n"),
    (
        "mpirun",
        "[ \"$1\" = -np ] || exit 9\nfor rank in $(seq \"$2\"); do \"$3\" \"$rank\" & done; wait\n",
    ),
    ("ray", "echo \"$*\" >ray.started; exec sleep 1000\n"),
    ("jupyter-notebook", "echo \"jupyter $*\"; exec sleep 1000\n"),
];

/// The BASH_ENV of each script: defines the function `module`, and appends a line to `begun` for
/// each batch script that begins.
const BEFORE: &str = "module() { echo \"module $*\"; }\n\
    case $0 in */script.sh) [ -n \"$counted\" ] || echo \"$SLURM_JOB_ID\" >>\"$HOME/begun\"; counted=yes ;; esac\n";

/// Starts a daemon with eight CPUs and four GPUs, and installs these programs and the script.
fn site(name: &str) -> Slotd {
    let slotd = Slotd::setup().set("SLOTD_CPUS", 8).set("SLOTD_GPU_COUNT", 4).start();
    for (program, text) in PROGRAMS {
        let path = slotd.program(program, &format!("#!/bin/sh\n{text}"));
        fs::rename(path, slotd.base.join("bin").join(program)).unwrap();
    }
    let home = slotd.base.join("home");
    fs::create_dir_all(home.join("conda/etc/profile.d")).unwrap();
    fs::write(
        home.join("conda/etc/profile.d/conda.sh"),
        "conda() { export CONDA_DEFAULT_ENV=$2; }\n",
    )
    .unwrap();
    fs::write(home.join("before"), BEFORE).unwrap();
    // Login shells reset PATH.
    fs::write(home.join(".profile"), format!("PATH={}:$PATH\n", slotd.base.join("bin").display()))
        .unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published").join(name);
    slotd.write(name, fs::read(script).unwrap());
    slotd
}

fn with_environment(slotd: &Slotd, mut command: Command) -> Command {
    command
        .env("BASH_ENV", slotd.base.join("home/before"))
        .env("USER", nix::unistd::geteuid().to_string());
    command.env("TMPDIR", slotd.base.join("home"));
    command
}

/// Submits the script.
fn submitted(slotd: &Slotd, script: &[&str]) -> u32 {
    let mut sbatch = with_environment(slotd, slotd.command("sbatch"));
    sbatch.arg("--parsable").args(script);
    slotd.run(sbatch).ok().text().parse().unwrap()
}

/// Submits the script and waits until its job is COMPLETED.
fn completed(slotd: &Slotd, script: &[&str]) -> u32 {
    let id = submitted(slotd, script);
    slotd.wait_state(id, "COMPLETED");
    id
}

/// Runs the script in a shell outside of jobs, and waits until the queue is empty.
fn run_script(slotd: &Slotd, name: &str) -> Out {
    let mut shell = with_environment(slotd, slotd.shell());
    shell.args(["-c", &format!("exec bash {name}")]);
    let out = slotd.run(shell).ok();
    slotd.wait("an empty queue", || {
        Some(()).filter(|()| slotd.cmd("squeue", &["-h"]).ok().text().is_empty())
    });
    out
}

/// Returns the jobs of the scripts that have begun, in order.
fn begun(slotd: &Slotd) -> Vec<u32> {
    let text = fs::read_to_string(slotd.base.join("home/begun")).unwrap_or_default();
    let mut jobs: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    jobs.sort_unstable();
    jobs
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn an_array_that_sweeps_parameters() {
    let slotd = site("array-sweep.sh");
    let id = submitted(&slotd, &["array-sweep.sh"]);
    let tasks = slotd.wait_array(id, 6);
    assert!(most_at_once(&tasks) <= 2);
    assert_eq!(begun(&slotd).len(), 6);
    for (task, (lr, seed)) in
        ["0.1", "0.01", "0.001"].iter().flat_map(|lr| [(lr, 1), (lr, 2)]).enumerate()
    {
        let call = format!("train.py --lr {lr} --seed {seed} --out results/{lr}-{seed}");
        assert_eq!(slotd.read(&format!("results/{lr}-{seed}")), format!("{call}\n"));
        let log = slotd.read(&format!("logs/sweep_{id}_{task}.out"));
        assert_eq!(log, format!("Task {task} of 6: lr={lr} seed={seed}\npython {call}\n"));
    }
}

#[test]
fn an_array_that_reads_a_line_of_a_file_per_task() {
    let slotd = site("array-lines.sh");
    slotd.write("samples.txt", "first a.txt\nsecond b.txt\nthird c.txt\n");
    for (name, text) in [("a.txt", "1"), ("b.txt", "22"), ("c.txt", "333")] {
        slotd.write(name, text);
    }
    let id = submitted(&slotd, &["array-lines.sh"]);
    slotd.wait_array(id, 3);
    assert_eq!(
        ["first", "second", "third"].map(|name| slotd.read(&format!("{name}.count"))),
        ["1\n", "2\n", "3\n"]
    );
    assert_eq!(begun(&slotd).len(), 3);
}

#[test]
fn a_checkpoint_on_usr1_and_a_requeue() {
    let slotd = site("checkpoint-requeue.sh");
    let solver = "#!/bin/bash\n[ -e state ] && { echo finished >>state; exit 0; }\n\
        trap 'echo saved >>state; exit 0' TERM\necho solving >solving\nsleep 1000 & wait\n";
    slotd.program("solver", solver);
    let id = submitted(&slotd, &["checkpoint-requeue.sh"]);
    slotd.wait_text("solving", "solving");
    // As the daemon does one minute before the time limit.
    slotd.line(&format!("scancel --batch --signal=USR1 {id}")).ok();
    slotd.wait_text("state", "finished");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read("state"), "saved\nfinished\n");
    let log = slotd.read("resumable.log");
    let printed: Vec<&str> = log
        .lines()
        .filter(|line| line.starts_with("start") || line.starts_with("caught"))
        .collect();
    assert_eq!(printed, ["start 0", &format!("caught USR1, requeue {id}"), "start 1"]);
    assert_eq!(begun(&slotd), [id, id]);
}

#[test]
fn a_checkpoint_in_the_tasks_of_a_step() {
    let slotd = site("checkpoint-step.sh");
    let worker = "#!/bin/bash\ntrap 'echo saved $SLURM_PROCID >>saved; exit 0' TERM\n\
        echo up $SLURM_PROCID >>up\nwhile :; do sleep 0.1; done\n";
    slotd.program("worker", worker);
    let id = submitted(&slotd, &["checkpoint-step.sh"]);
    slotd.wait_text("up", "up 0");
    slotd.wait_text("up", "up 1");
    slotd.line(&format!("scancel --signal=TERM {id}")).ok();
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(sorted(&slotd.read("saved")), ["saved 0", "saved 1"]);
    assert!(slotd.read("ckpt.log").ends_with("srun ended with 0\n"), "{}", slotd.read("ckpt.log"));
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn a_step_on_each_gpu() {
    let slotd = site("gpu-each.sh");
    // Each task waits for the others, so all of them run at once.
    let train = "#!/bin/sh\necho \"run $2 on $CUDA_VISIBLE_DEVICES\"\n: >begun.$2\n\
        for i in 0 1 2 3; do until [ -e begun.$i ]; do sleep 0.05; done; done\n";
    slotd.program("train", train);
    let id = completed(&slotd, &["gpu-each.sh"]);
    let printed: Vec<String> = (0..4).map(|i| slotd.read(&format!("gpu-{i}.log"))).collect();
    let mut gpus: Vec<&str> =
        printed.iter().map(|text| text.trim_end().rsplit(' ').next().unwrap()).collect();
    gpus.sort_unstable();
    assert_eq!(gpus, ["0", "1", "2", "3"], "{printed:?}");
    assert!((0..4).all(|i| printed[i].starts_with(&format!("run {i} on "))), "{printed:?}");
    assert_eq!(slotd.read("four-gpus.out"), "all done\n");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn modules_and_a_conda_environment() {
    let slotd = site("modules-conda.sh");
    let id = completed(&slotd, &["modules-conda.sh", "a", "b c"]);
    let wanted =
        ["module purge", "module load gcc/12.2 cuda/12.1", "python -u analysis.py a b c in torch"];
    assert_eq!(slotd.read(&format!("conda_{id}.out")).lines().collect::<Vec<_>>(), wanted);
    assert_eq!(slotd.sacct(id, "Account,AllocCPUS,ReqMem,Timelimit"), "proj|2|1G|00:10:00");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn jobs_that_are_submitted_in_a_loop() {
    let slotd = site("heredoc.sh");
    fs::create_dir(slotd.path("data")).unwrap();
    slotd.write("data/one.txt", "b\na\n");
    slotd.write("data/two.txt", "d\nc\ne\n");
    let printed = run_script(&slotd, "heredoc.sh");
    assert_eq!(printed.text(), "Submitted batch job 1\nSubmitted batch job 2");
    assert_eq!([slotd.read("sorted.one"), slotd.read("sorted.two")], ["a\nb\n", "c\nd\ne\n"]);
    let place = slotd.work();
    assert_eq!(slotd.read("one.out"), format!("2\njob wc-one in {}\n", place.display()));
    assert_eq!(begun(&slotd), [1, 2]);
}

#[test]
fn a_chain_of_jobs() {
    let slotd = site("chain.sh");
    run_script(&slotd, "chain.sh");
    assert_eq!(slotd.read("sum"), "1 2 3\n");
    assert_eq!(slotd.read("clean.log"), "cleaned\n");
    assert!(!slotd.exists("never"));
    let names = slotd.line("sacct -nXP -o JobName,State").ok();
    let mut wanted = vec!["clean|COMPLETED", "prep|COMPLETED", "sum|COMPLETED"];
    wanted.extend(["work|COMPLETED"; 3]);
    let found: Vec<&str> = sorted(&names.stdout)
        .into_iter()
        .filter(|row| !row.starts_with("never|CANCELLED"))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_job_that_queries_itself() {
    let slotd = site("show-job.sh");
    let id = completed(&slotd, &["show-job.sh"]);
    let log = slotd.read("about.log");
    assert!(log.starts_with(&format!("JobId={id} JobName=about-me\n")), "{log}");
    let wanted = format!("limit 01:30:00 script show-job.sh left 1 node {}", host());
    assert_eq!(log.lines().last(), Some(wanted.as_str()), "{log}");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn a_loop_that_polls_a_job() {
    let slotd = site("poll.sh");
    assert_eq!(run_script(&slotd, "poll.sh").text(), "job 1\nended as FAILED with 3:0");
}

#[test]
fn ranks_started_by_mpirun() {
    let slotd = site("mpirun.sh");
    slotd.program("a.out", "#!/bin/sh\necho \"rank $1\" >>ranks\n");
    let id = completed(&slotd, &["mpirun.sh"]);
    assert_eq!(sorted(&slotd.read("ranks")), ["rank 1", "rank 2", "rank 3", "rank 4"]);
    let begin = format!("module load openmpi\nRunning on 1 node(s): {}, 4 tasks\n", host());
    assert_eq!(slotd.read("mpi.out"), format!("{begin}mpirun ended with 0\n"));
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn torchrun_with_a_rendezvous() {
    let slotd = site("torchrun.sh");
    let id = completed(&slotd, &["torchrun.sh"]);
    let call = format!(
        "--nnodes 1 --nproc_per_node 2 --rdzv_id {id} --rdzv_backend c10d --rdzv_endpoint 10.0.0.7:29500"
    );
    assert_eq!(slotd.read("torchrun.out"), format!("torchrun {call} train.py 50 10 on 0,1 as 0\n"));
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn accelerate_on_all_gpus_of_a_job() {
    let slotd = site("accelerate.sh");
    let id = completed(&slotd, &["accelerate.sh"]);
    let call = format!(
        "--num_processes 4 --num_machines 1 --rdzv_backend c10d --main_process_ip {}",
        host()
    );
    let rest = "--main_process_port 29500 train.py --mixed_precision fp16 on 0,1,2,3 as 0";
    assert_eq!(slotd.read(&format!("O-llm.{id}")), format!("accelerate launch {call} {rest}\n"));
    assert_eq!(slotd.read(&format!("E-llm.{id}")), "");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn openmp_threads() {
    let slotd = site("openmp.sh");
    slotd.program(
        "solve",
        "#!/bin/sh\necho \"$OMP_NUM_THREADS $OMP_PLACES $SLURM_CPUS_PER_TASK\" >>solved\n",
    );
    let id = completed(&slotd, &["openmp.sh"]);
    assert_eq!(slotd.read("openmp.out"), "threads 3, cpus 3, per node 3\n");
    assert_eq!(slotd.read("solved"), "3 threads 3\n");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn a_scratch_directory_that_is_copied_back() {
    let slotd = site("scratch.sh");
    slotd.write("input.dat", "words\n");
    let id = completed(&slotd, &["scratch.sh"]);
    assert_eq!(slotd.read("upper.result"), "WORDS\n");
    let log = slotd.read("scratch.log");
    let place = log.trim_end().strip_prefix("copied back from ").unwrap();
    assert!(place.ends_with(&format!("scratch.{id}")) && !Path::new(place).exists(), "{log}");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn a_job_that_resubmits_itself() {
    let slotd = site("resubmit.sh");
    submitted(&slotd, &["resubmit.sh"]);
    slotd.wait_text("again.log", "step 3 of 3");
    slotd.wait_state(3, "COMPLETED");
    let wanted = "step 1 of 3 in job 1\nSubmitted batch job 2\nstep 2 of 3 in job 2\nSubmitted batch job 3\nstep 3 of 3 in job 3\n";
    assert_eq!(slotd.read("again.log"), wanted);
    assert_eq!(begun(&slotd), [1, 2, 3]);
}

#[test]
fn a_notebook_that_is_cancelled_by_name() {
    let slotd = site("jupyter.sh");
    let id = submitted(&slotd, &["jupyter.sh"]);
    let log = slotd.wait_text(&format!("jupyter-{id}.log"), "--ip=here\n");
    let lines: Vec<&str> = log.lines().collect();
    let port = lines[1].split("--port=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(lines[0].starts_with(&format!("ssh -N -L {port}:here:{port} ")), "{log}");
    assert_eq!(lines.len(), 2, "{log}");
    slotd.line("scancel --name=jupyter").ok();
    slotd.wait_state(id, "CANCELLED");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn more_steps_than_cpus() {
    let slotd = site("packed.sh");
    slotd.program("one", "#!/bin/sh\necho \"$SLURM_NTASKS\" >>done.$1\n");
    let id = completed(&slotd, &["packed.sh"]);
    assert_eq!((1..=8).map(|i| slotd.read(&format!("done.{i}"))).collect::<Vec<_>>(), ["1\n"; 8]);
    assert_eq!(slotd.read("packed.out").lines().last(), Some("finished 8"));
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn a_script_that_limits_the_queue_length() {
    let slotd = site("throttle.sh");
    assert_eq!(run_script(&slotd, "throttle.sh").text(), "");
    for i in 1..=5 {
        let count: u32 = slotd.read(&format!("count.{i}")).trim().parse().unwrap();
        assert!((1..=2).contains(&count), "{count} jobs while {i} ran");
    }
}

#[test]
fn a_job_that_replaces_a_failed_one() {
    let slotd = site("rescue.sh");
    run_script(&slotd, "rescue.sh");
    assert_eq!(slotd.read("result"), "whole\n");
    let printed: Vec<String> =
        slotd.read("rescue.log").split_whitespace().map(str::to_owned).collect();
    assert_eq!(printed, ["fails", "FAILED", "7:0"]);
}

#[test]
fn a_ray_head_and_its_client() {
    let slotd = site("ray.sh");
    let id = completed(&slotd, &["ray.sh"]);
    assert_eq!(
        slotd.read("ray.started"),
        "start --head --node-ip-address=10.0.0.7 --port=6379 --num-cpus 4 --block\n"
    );
    let log = slotd.read("ray.out");
    assert!(log.starts_with("python -u tune.py 4\n"), "{log}");
    assert_eq!(begun(&slotd), [id]);
}

#[test]
fn every_script_has_a_test() {
    let source = include_str!("published.rs");
    for entry in
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published")).unwrap()
    {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(source.contains(&format!("site(\"{name}\")")), "{name} has no test");
    }
}
