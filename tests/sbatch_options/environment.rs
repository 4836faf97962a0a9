//! The environment of a job: variables exported by the submitter and variables set by slotd.

use slotd_kit::Slotd;
use std::collections::BTreeMap;

#[track_caller]
fn seen(slotd: &Slotd, args: &[&str], script: &str) -> String {
    let mut command = slotd.command("sbatch");
    command
        .env("FOO", "mine")
        .env("BAR", "two words")
        .arg("--parsable")
        .args(args)
        .args(["--wrap", script]);
    let id = slotd.run(command).ok().text().parse().unwrap();
    slotd.wait_state(id, "COMPLETED");
    slotd.output(id)
}

const SHOW: &str = "echo \"${FOO-unset},${BAR-unset},${NEW-unset}\"";

#[test]
fn export_all() {
    let slotd = Slotd::start();
    assert_eq!(seen(&slotd, &["--export", "ALL"], SHOW), "mine,two words,unset\n");
    // This is the default.
    assert_eq!(seen(&slotd, &[], SHOW), "mine,two words,unset\n");
}

#[test]
fn export_none() {
    let slotd = Slotd::start();
    assert_eq!(seen(&slotd, &["--export", "NONE"], SHOW), "unset,unset,unset\n");
    // Variables that a shell and slotd's own commands need are still set.
    let basics = seen(&slotd, &["--export=NONE"], "echo $HOME; scontrol ping; echo $SLURM_JOB_ID");
    assert!(basics.starts_with(&slotd.base.join("home").display().to_string()), "{basics}");
    assert!(basics.contains(" is UP\n"), "{basics}");
}

#[test]
fn export_key_value() {
    let slotd = Slotd::start();
    assert_eq!(seen(&slotd, &["--export", "FOO=other,NEW=1"], SHOW), "other,unset,1\n");
    assert_eq!(seen(&slotd, &["--export", "ALL,NEW='a,b'"], SHOW), "mine,two words,a,b\n");
    assert_eq!(seen(&slotd, &["--export", "BAR,NEW=1"], SHOW), "unset,two words,1\n");
}

/// Returns the environment of a job that was submitted with these arguments, as the job sees it.
#[track_caller]
fn environment(slotd: &Slotd, args: &[&str], vars: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut command = slotd.command("sbatch");
    command.envs(vars.iter().copied()).args(["--parsable", "-o", "env.%j"]).args(args);
    command.args(["--wrap", "exec env -0"]);
    let id: u32 = slotd.run(command).ok().text().parse().unwrap();
    slotd
        .wait("the end of the job", || slotd.records(id).iter().all(|r| r.is_over()).then_some(()));
    let last = slotd.records(id).iter().map(|r| r.id()).max().unwrap();
    let text = slotd.read(&format!("env.{last}"));
    text.split_terminator('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.into(), v.into()))
        .collect()
}

#[test]
fn slurms_variables_are_set() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 2).start();
    let host = slotd_kit::host();
    let work = slotd.work().display().to_string();
    let user = slotd.sh("id -un; id -u; id -g").ok();
    let [user, uid, gid] = user.lines()[..] else { panic!("{user:?}") };
    let args = [
        "-J",
        "envjob",
        "--ntasks-per-node=2",
        "-c",
        "2",
        "--mem=200",
        "-G",
        "2",
        "-t",
        "10",
        "-A",
        "acct",
    ];
    let env = environment(&slotd, &args, &[]);
    for (name, value) in [
        ("ENVIRONMENT", "BATCH"),
        ("SLURMD_NODENAME", &host),
        ("SLURM_CLUSTER_NAME", "slotd"),
        ("SLURM_CPUS_ON_NODE", "4"),
        ("SLURM_CPUS_PER_TASK", "2"),
        ("SLURM_GPUS", "2"),
        ("SLURM_GPUS_ON_NODE", "2"),
        ("SLURM_GTIDS", "0"),
        ("SLURM_JOBID", "1"),
        ("SLURM_JOB_ACCOUNT", "acct"),
        ("SLURM_JOB_CPUS_PER_NODE", "4"),
        ("SLURM_JOB_GID", gid),
        ("SLURM_JOB_GPUS", "0,1"),
        ("SLURM_JOB_ID", "1"),
        ("SLURM_JOB_NAME", "envjob"),
        ("SLURM_JOB_NODELIST", &host),
        ("SLURM_JOB_NUM_NODES", "1"),
        ("SLURM_JOB_PARTITION", "cpu"),
        ("SLURM_JOB_QOS", "normal"),
        ("SLURM_JOB_UID", uid),
        ("SLURM_JOB_USER", user),
        ("SLURM_LOCALID", "0"),
        ("SLURM_MEM_PER_NODE", "200"),
        ("SLURM_NNODES", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_NODELIST", &host),
        ("SLURM_NPROCS", "2"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_NTASKS_PER_NODE", "2"),
        ("SLURM_PRIO_PROCESS", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_SUBMIT_DIR", &work),
        ("SLURM_SUBMIT_HOST", &host),
        ("SLURM_TASKS_PER_NODE", "2"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("TMPDIR", "/tmp"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    for name in ["SLURM_TASK_PID", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME"] {
        assert!(env.get(name).is_some_and(|value| value.parse::<i64>().is_ok()), "{name}");
    }
}

#[test]
fn variables_of_unused_options_are_not_set() {
    let slotd = Slotd::start();
    let env = environment(&slotd, &[], &[]);
    let told = [
        "NTASKS",
        "NPROCS",
        "CPUS_PER_TASK",
        "NTASKS_PER_NODE",
        "RESTART_COUNT",
        "ARRAY_TASK_ID",
        "STEP_ID",
    ];
    for name in told {
        assert!(!env.contains_key(&format!("SLURM_{name}")), "{name}");
    }
    assert!(!env.contains_key("CUDA_VISIBLE_DEVICES"));
}

#[test]
fn array_tasks_get_the_variables_of_their_array() {
    let slotd = Slotd::start();
    let env = environment(&slotd, &["--array=3-7:2%2"], &[]);
    let of = |name: &str| env.get(&format!("SLURM_ARRAY_{name}")).map(String::as_str);
    // The record with the highest ID is the second of the three tasks, since the last one has the
    // array's ID.
    assert_eq!(of("TASK_ID"), Some("5"));
    let rest = ["JOB_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP"].map(of);
    assert_eq!(rest, [Some("1"), Some("3"), Some("3"), Some("7"), Some("2")]);
    assert_eq!(env.get("SLURM_JOB_ID").map(String::as_str), Some("3"));
}

#[test]
fn environment_is_the_submitters_and_not_the_daemons() {
    let slotd = Slotd::setup().set("DAEMON_ONLY", "leak").set("SLURM_LEAK", "leak").start();
    let env = environment(
        &slotd,
        &[],
        &[("MINE", "yes"), ("SLURM_NTASKS", "77"), ("SBATCH_EXPORT", "ALL")],
    );
    assert_eq!(env.get("MINE").map(String::as_str), Some("yes"));
    // Slurm leaves the submitter's variables unchanged unless it sets them itself.
    assert_eq!(env.get("SLURM_NTASKS").map(String::as_str), Some("77"));
    assert_eq!(env.get("SBATCH_EXPORT").map(String::as_str), Some("ALL"));
    let leaks: Vec<_> =
        env.keys().filter(|k| k.starts_with("SLOTD_") && *k != "SLOTD_ROOT").collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    assert!(!env.contains_key("DAEMON_ONLY") && !env.contains_key("SLURM_LEAK"), "{env:?}");
}

#[test]
fn job_submitted_by_an_array_task_is_not_an_array_task() {
    let slotd = Slotd::start();
    let inner = "sbatch -Q -W -o inner --wrap 'env | grep -c SLURM_ARRAY'";
    let id = slotd.wrap(&["-a", "1"], &format!("{inner}; true"));
    slotd.wait_array(id, 1);
    assert_eq!(slotd.read("inner"), "0\n");
}

#[test]
fn default_memory_sets_no_variable_but_the_open_mode_does() {
    let slotd = Slotd::start();
    let env = slotd.ran(&["--open-mode=append"], "env");
    assert!(!env.contains("SLURM_MEM_PER"), "{env}");
    assert!(env.contains("SLURM_OPEN_MODE=a\n"), "{env}");
    assert!(env.contains(&format!("HOSTNAME={}\n", slotd_kit::host())), "{env}");
}
