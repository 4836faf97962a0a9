//! The configuration of the host: its capacity, and the partitions and limits in `slotd.toml`.

use slotd_kit::{Setup, Slotd};
use std::fs;

/// Starts a daemon with 4 CPUs and this `slotd.toml`.
fn with_file(text: &str) -> Slotd {
    let mut slotd = prepared(text);
    slotd.start_daemon();
    slotd
}

fn prepared(text: &str) -> Slotd {
    let mut slotd = Setup::default().prepare();
    let file = slotd.base.join("slotd.toml");
    fs::write(&file, text).unwrap();
    slotd.reset_var("SLOTD_CONFIG", file.display());
    slotd
}

/// Returns the error of a daemon that refuses to start.
fn refusal(slotd: &Slotd) -> String {
    slotd.run(slotd.daemon_command()).fails(78).stderr
}

const DAY_AND_NIGHT: &str = r#"
[[partition]]
name = "day"
cpus = "0-1"
max_time = "2:00:00"
default_time = "10"
def_mem_per_cpu = "100M"

[[partition]]
name = "night"
default = true
max_cpus_per_node = 3
priority_tier = 5
state = "DOWN"
"#;

#[test]
fn partitions_come_from_the_file() {
    let slotd = with_file(DAY_AND_NIGHT);
    let rows = slotd.line("sinfo -h -o %P|%a|%l|%L|%p").ok();
    assert_eq!(
        rows.lines(),
        ["day|up|2:00:00|10:00|1", "night*|up|infinite|n/a|5"]
            .map(|row| row.replace("*|up", "*|down"))
    );
    let shown = slotd.line("scontrol show partition day").ok().stdout;
    for words in
        ["DefaultTime=00:10:00", "MaxTime=02:00:00", "TotalCPUs=2", "DefMemPerCPU=100", "CPUs=0-1"]
    {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    let shown = slotd.line("scontrol show partition night").ok().stdout;
    for words in ["MaxCPUsPerNode=3", "PriorityTier=5", "State=DOWN", "TRES=cpu=3,", "Default=YES"]
    {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    // The defaults and limits of the partition apply.
    let job = slotd.endless(&["-p", "day", "-c", "2"]);
    assert_eq!(slotd.line(&format!("squeue -h -j {job} -o %l|%m")).ok().text(), "10:00|200M");
    let second = slotd.wrap(&["-p", "day"], "true");
    slotd.wait_reason(second, "Resources");
    let long = slotd.wrap(&["-p", "day", "-t", "3:00:00"], "true");
    slotd.wait_reason(long, "PartitionTimeLimit");
    let down = slotd.wrap(&[], "true");
    slotd.wait_reason(down, "PartitionDown");
    let out = slotd.line("sbatch -p day -c 3 --wrap true").fails(1);
    assert!(out.stderr.contains("3 CPUs requested, 2 in partition day"), "{}", out.stderr);
}

#[test]
fn a_variable_overrides_the_file_but_keeps_its_partition_settings() {
    let mut slotd = prepared(DAY_AND_NIGHT);
    slotd.reset_var("SLOTD_CPU_PARTITIONS", "all,day");
    slotd.start_daemon();
    assert_eq!(slotd.line("sinfo -h -o %P|%l").ok().lines(), ["all*|infinite", "day|2:00:00"]);
    let warning = slotd.line("scontrol reconfigure").ok().stderr;
    let words = "the partition night does not exist, because SLOTD_CPU_PARTITIONS names others: \
                 remove that setting, or add the name to it";
    assert!(warning.trim_end().ends_with(words), "{warning}");
    // The installer writes the default value.
    slotd.reset_var("SLOTD_CPU_PARTITIONS", "cpu");
    slotd.stop();
    slotd.start_daemon();
    assert_eq!(slotd.line("sinfo -h -o %P|%l").ok().lines(), ["day|2:00:00", "night*|infinite"]);
    assert_eq!(slotd.line("scontrol reconfigure").ok().stderr, "");
}

#[test]
fn the_error_of_an_invalid_file_names_the_line_and_a_suggestion() {
    let file = |text: &str| {
        let slotd = prepared(text);
        refusal(&slotd).replace(&slotd.base.display().to_string(), "")
    };
    let text = file("[[partition]]\nname = \"a\"\nmax_tiem = 5\n");
    assert!(
        text.contains("/slotd.toml:3: unknown key max_tiem in a partition: did you mean max_time?"),
        "{text}"
    );
    let text = file("[[partition]]\nname = \"a\"\ncpus = \"0-9\"\n");
    assert!(text.contains("/slotd.toml:3: partition a: there is no CPU "), "{text}");
}

#[test]
fn the_capacity_can_be_relative_to_the_host() {
    let mut slotd =
        Setup::default().set("SLOTD_CPUS", "200%").set("SLOTD_MEMORY_MB", "-100").prepare();
    slotd.start_daemon();
    let available = std::thread::available_parallelism().unwrap().get();
    assert_eq!(slotd.line("sinfo -h -o %c").ok().text(), (2 * available).to_string());
    let slotd = Setup::default().set("SLOTD_CPUS", "-60000").prepare();
    let text = refusal(&slotd);
    assert!(
        text.contains(&format!(
            "SLOTD_CPUS=\"-60000\": expected a number to keep back that is less \
             than {available}, the total of this host"
        )),
        "{text}"
    );
}

#[test]
fn reconfigure_applies_a_valid_file_and_ignores_an_invalid_one() {
    let slotd = with_file(DAY_AND_NIGHT);
    let waiting = slotd.wrap(&["-p", "day", "-t", "3:00:00"], "true");
    slotd.wait_reason(waiting, "PartitionTimeLimit");
    let file = slotd.base.join("slotd.toml");
    fs::write(&file, DAY_AND_NIGHT.replace("2:00:00", "two hours")).unwrap();
    let error = slotd
        .line("scontrol reconfigure")
        .fails(1)
        .stderr
        .replace(&slotd.base.display().to_string(), "");
    assert!(
        error.starts_with(
            "slurm_reconfigure error: /slotd.toml:5: max_time = \"two hours\": expected "
        ),
        "{error}"
    );
    assert_eq!(slotd.line("sinfo -h -p day -o %l").ok().text(), "2:00:00");
    fs::write(&file, DAY_AND_NIGHT.replace("2:00:00", "4:00:00").replace("DOWN", "UP")).unwrap();
    slotd.line("scontrol reconfigure").ok();
    assert_eq!(slotd.line("sinfo -h -o %a|%l").ok().lines(), ["up|4:00:00", "up|infinite"]);
    slotd.wait_end(waiting);
    fs::write(&file, "[[partition]]\nname = \"day\"\nmemory = \"9G\"\n").unwrap();
    let warning = slotd.line("scontrol reconfigure").ok().stderr;
    let words =
        "partition day may use 9216 MB of memory (8192 available), which this host does not have";
    assert_eq!(warning, format!("scontrol: warning: {words}\n"));
}

#[test]
fn changes_of_a_partition_last_until_reconfigure() {
    let slotd = with_file(DAY_AND_NIGHT);
    let waiting = slotd.wrap(&[], "true");
    slotd.wait_reason(waiting, "PartitionDown");
    slotd.line("scontrol update PartitionName=night State=UP").ok();
    slotd.wait_end(waiting);
    slotd.line("scontrol update PartitionName=night MaxTime=60").ok();
    assert_eq!(slotd.line("sinfo -h -p night -o %a|%l").ok().text(), "up|1:00:00");
    slotd.line("scontrol update PartitionName=night State=DRAIN").ok();
    let error = slotd.line("sbatch -p night --wrap true").fails(1).stderr;
    assert!(
        error.contains("partition night is DRAIN") && error.contains("(inactive or drain)"),
        "{error}"
    );
    slotd.line("scontrol reconfigure").ok();
    assert_eq!(slotd.line("sinfo -h -p night -o %a|%l").ok().text(), "down|infinite");
    let error = slotd.line("scontrol update PartitionName=nope State=UP").fails(1).stderr;
    assert!(error.starts_with("slurm_update error: Invalid partition name specified"), "{error}");
    let error = slotd.line("scontrol update PartitionName=day Xyzzy=1").fails(1).stderr;
    assert!(error.contains("keys: CPUs, GPUs, Memory, MaxCPUsPerNode"), "{error}");
    let error = slotd.line("scontrol update PartitionName=day CPUs=99").fails(1).stderr;
    assert!(error.contains("there is no CPU 99"), "{error}");
}

#[test]
fn a_drained_node_starts_nothing_even_after_a_restart() {
    let mut slotd = Slotd::start();
    let running = slotd.endless(&[]);
    let host = slotd_kit::host();
    slotd
        .cmd("scontrol", &["update", &format!("NodeName={host}"), "State=DRAIN", "Reason=new fan"])
        .ok();
    let waiting = slotd.wrap(&[], "true");
    slotd.wait_reason(waiting, "ReqNodeNotAvail");
    assert_eq!(slotd.line("sinfo -h -o %T").ok().text(), "draining");
    slotd.crash();
    slotd.wait_reason(waiting, "ReqNodeNotAvail");
    let reasons = slotd.line("sinfo -R").ok().stdout;
    assert!(reasons.contains("new fan") && reasons.contains(&host), "{reasons}");
    slotd.cancel(running);
    slotd.wait_end(running);
    slotd.line("scontrol update NodeName=localhost State=RESUME").ok();
    slotd.wait_end(waiting);
    slotd.line("scontrol update NodeName=other State=RESUME").fails(1);
}

#[test]
fn drained_gpus_and_cpus_are_not_allocated_even_after_a_crash() {
    let mut slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let node = format!("NodeName={}", slotd_kit::host());
    let update = |slotd: &Slotd, words: &[&str]| {
        slotd.cmd("scontrol", &[&["update", &node], words].concat())
    };
    let continues = slotd.begun(&["-G1"], "go", "true");
    update(&slotd, &["State=DRAIN", "Reason=dust", "Gres=gpu:0", "CPUs=2-3"]).ok();
    update(&slotd, &["State=DRAIN", "Reason=hot", "CPUs=3"]).ok();
    let both = slotd.wrap(&["-G2"], "echo $CUDA_VISIBLE_DEVICES");
    let wide = slotd.wrap(&["-c3"], "true");
    [both, wide].into_iter().for_each(|job| slotd.wait_reason(job, "ReqNodeNotAvail"));
    assert_eq!(slotd.ran(&["-G1"], "echo $CUDA_VISIBLE_DEVICES"), "1\n");
    slotd.crash();
    let reasons = || {
        let rows = slotd.line("sinfo -hR").ok();
        rows.lines().into_iter().map(|line| line[..20].trim_end().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(reasons(), ["CPU 2, GPU 0: dust", "CPU 3: hot"]);
    assert_eq!(slotd.line("sinfo -h -p cpu -o %t,%C").ok().text(), "mix,1/1/2/4");
    let shown = slotd.line("scontrol -d show node").ok().stdout;
    for field in [
        "CPUEfctv=2 CPUTot=4",
        "GresDrain=gpu:1(IDX:0)",
        "State=MIXED ",
        "Reason=CPU 2, GPU 0: dust [",
        "; CPU 3: hot [",
    ] {
        assert!(shown.contains(field), "{field} in {shown}");
    }
    assert_eq!(slotd.state(continues), "RUNNING");
    [both, wide].into_iter().for_each(|job| slotd.wait_reason(job, "ReqNodeNotAvail"));
    // Resuming the whole node does not resume its parts.
    update(&slotd, &["State=RESUME"]).ok();
    update(&slotd, &["State=RESUME", "CPUs=2-3"]).ok();
    slotd.wait_state(wide, "COMPLETED");
    assert_eq!(reasons(), ["GPU 0: dust"]);
    update(&slotd, &["State=RESUME", "Gres=gpu:0"]).ok();
    slotd.open("go");
    slotd.wait_state(both, "COMPLETED");
    assert_eq!(slotd.output(both), "0,1\n");
    assert!(reasons().is_empty());
    update(&slotd, &["State=DRAIN", "Reason=fan", "CPUs=0-3"]).ok();
    assert_eq!(slotd.line("sinfo -h -p cpu -o %T").ok().text(), "drained");
}

#[test]
fn invalid_parts_of_the_node_are_refused() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let refused = |words: &str, message: &str| {
        let out = slotd.line(&format!("scontrol update NodeName=localhost {words}")).fails(1);
        assert!(out.stderr.contains(message), "{words}: {}", out.stderr);
    };
    refused("State=DRAIN Reason=x Gres=gpu:1-2", "this host has no GPU 2: it has CPU 0-3, GPU 0-1");
    refused("State=RESUME CPUs=9", "this host has no CPU 9");
    refused(
        "State=DRAIN Reason=x Gres=gpu:a100:1",
        "gpu: with numbers and ranges, such as gpu:0,2-3",
    );
    refused("State=DRAIN Reason=x CPUs=all", "numbers and ranges, such as 0-3,6");
    refused("State=DRAIN CPUs=1", "You must specify a reason");
    refused("CPUs=1", "State=DRAIN Reason=... takes them out of use");
    assert_eq!(slotd.line("sinfo -hR").ok().text(), "");
}

#[test]
fn show_config_prints_the_settings_in_effect() {
    let set = [
        ("SLOTD_BATCH_TASKS", "once"),
        ("SLOTD_CPUS", "7"),
        ("SLOTD_CPU_FOREIGN", "avoid"),
        ("SLOTD_GPU_FOREIGN", "avoid"),
        ("SLOTD_GPU_HIDE", "no"),
        ("SLOTD_GPU_SHARDS", "4"),
        ("SLOTD_IO_WEIGHT", "10"),
        ("SLOTD_LOG", "debug"),
        ("SLOTD_MAX_PROCESSES", "unlimited"),
        ("SLOTD_MEMORY_MB", "4000"),
        ("SLOTD_NOTIFY_CMD", "true"),
        ("SLOTD_OOM_KILL_STEP", "yes"),
        ("SLOTD_OOM_SCORE_ADJ", "900"),
    ];
    let slotd =
        set.iter().fold(Setup::default(), |setup, (name, value)| setup.set(name, value)).start();
    let shown = slotd.line("scontrol show config").ok().stdout.to_ascii_lowercase();
    for (name, value) in set {
        let key = name.replace('_', "").to_ascii_lowercase();
        let line = shown
            .lines()
            .find(|line| line.split('=').next().is_some_and(|word| word.trim() == key));
        assert_eq!(line.and_then(|line| line.split("= ").nth(1)), Some(value), "{name} in {shown}");
    }
}

#[test]
fn a_limit_applies_to_its_account_and_delays_no_other() {
    let limits = "[[limit]]\naccount = \"lab\"\njobs = 1\n\n[[limit]]\nname = \"fit*\"\ncpus = 2\n";
    let slotd = with_file(limits);
    let shown = slotd.line("scontrol show config").ok().stdout;
    assert!(
        shown.lines().any(|line| line.starts_with("SlotdLimits")
            && line.ends_with("= Account=lab MaxJobs=1; Name=fit* GrpTRES=cpu=2")),
        "{shown}"
    );
    let columns = "format=cluster,account,jobname,grpjobs,maxjobs,grptres";
    slotd.expect(
        &format!("sacctmgr -nP show assoc {columns}"),
        0,
        "slotd|lab||1|1|\nslotd||fit*|||cpu=2\n",
        "",
    );
    slotd.expect(
        &format!("sacctmgr -nP show assoc where account=lab {columns}"),
        0,
        "slotd|lab||1|1|\n",
        "",
    );
    let first = slotd.endless(&["-A", "lab"]);
    let second = slotd.wrap(&["-A", "lab"], "true");
    slotd.wait_reason(second, "AssocMaxJobsLimit");
    let fit = slotd.wrap(&["-J", "fit-1", "-c", "3"], "true");
    slotd.wait_reason(fit, "AssocGrpCpuLimit");
    let other = slotd.wrap(&["-c", "3"], "true");
    slotd.wait_end(other);
    slotd.line(&format!("scancel {first}")).ok();
    slotd.wait_end(second);
    // An invalid limit changes nothing. A higher one lets the job start.
    let file = slotd.base.join("slotd.toml");
    fs::write(&file, "[[limit]]\naccount = \"lab\"\njobs = \"one\"\n").unwrap();
    let error = slotd
        .line("scontrol reconfigure")
        .fails(1)
        .stderr
        .replace(&slotd.base.display().to_string(), "");
    assert!(
        error.contains(
            "/slotd.toml:3: jobs = \"one\": expected the number of jobs that may run at once"
        ),
        "{error}"
    );
    slotd.wait_reason(fit, "AssocGrpCpuLimit");
    fs::write(&file, limits.replace("cpus = 2", "cpus = 3")).unwrap();
    slotd.line("scontrol reconfigure").ok();
    slotd.wait_end(fit);
}

#[test]
fn a_job_in_several_partitions_starts_in_the_first_free_one() {
    let slotd = with_file(
        "[[partition]]\nname = \"a\"\ncpus = \"0-1\"\n[[partition]]\nname = \"b\"\ncpus = \"2-3\"\n",
    );
    let [left, right] = ["a", "b"].map(|name| slotd.endless(&["-p", name, "-c", "2"]));
    let job = slotd.wrap(&["-p", "a,b", "-c", "2"], "echo $SLURM_JOB_PARTITION");
    let cancelled = slotd.wrap(&["-p", "a,b", "-c", "2"], "true");
    slotd.wait_reason(job, "Resources");
    assert_eq!(slotd.line(&format!("squeue -h -p b -t PD -j {job} -o %P")).ok().text(), "a,b");
    slotd.line(&format!("scancel {cancelled}")).ok();
    assert_eq!(
        slotd.line(&format!("sacct -X -n -P -r b -j {cancelled} -o Partition")).ok().text(),
        "a,b"
    );
    slotd.line(&format!("scancel {right}")).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.line(&format!("sacct -X -n -P -j {job} -o Partition")).ok().text(), "b");
    assert_eq!(slotd.output(job).trim(), "b");
    slotd.line(&format!("scancel {left}")).ok();
}
