//! Growing and shrinking running jobs.

use slotd_kit::{Setup, Slotd};
use std::fs;

fn resize(slotd: &Slotd, job: u32, keys: &[&str]) -> slotd_kit::Out {
    let id = format!("JobId={job}");
    slotd.cmd("scontrol", &[&["update", &id], keys].concat())
}

/// Returns `CPU_IDs` and `Mem` of `scontrol show job -d`.
fn has(slotd: &Slotd, job: u32) -> (String, String) {
    let all = slotd.cmd("scontrol", &["show", "job", "-d", "-o", &job.to_string()]).ok();
    let of = |key: &str| {
        let word =
            all.text().split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default();
        word.to_owned()
    };
    (of("CPU_IDs="), of("Mem="))
}

#[test]
fn freed_cpus_and_memory_are_allocated_at_once() {
    let slotd = Slotd::start();
    let job = slotd.begun(
        &["-c", "4", "--mem", "6000"],
        "go",
        "srun -c 2 sh -c 'echo $SLURM_CPUS_ON_NODE $SLURM_MEM_PER_NODE'",
    );
    let next = slotd.wrap(&["-c", "2", "--mem", "4000"], "sleep 1000");
    slotd.wait_reason(next, "Resources");
    resize(&slotd, job, &["NumCPUs=2", "MinMemoryNode=3000"]).ok();
    slotd.wait_state(next, "RUNNING");
    assert_eq!(
        (has(&slotd, job), has(&slotd, next)),
        (("0-1".into(), "3000".into()), ("2-3".into(), "4000".into()))
    );
    assert_eq!(slotd.show(job, "NumCPUs"), "2");
    assert_eq!(
        slotd.cmd("squeue", &["-h", "-j", &job.to_string(), "-o", "%C %m"]).ok().text(),
        "2 3000M"
    );
    assert_eq!(
        slotd.sacct(job, "AllocCPUS,AllocTRES,ReqTRES"),
        "2|billing=2,cpu=2,mem=3000M,node=1|billing=2,cpu=2,mem=3000M,node=1"
    );
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "2 3000\n");
}

#[test]
fn resources_in_use_by_steps_are_freed_as_the_steps_end() {
    let mut slotd = Slotd::start();
    let gate = |name: &str| format!("srun -n1 -c1 --exact sh -c \"{}\" &", slotd.gate(name));
    let script = format!("{} {} wait", gate("one"), gate("two"));
    let job = slotd.wrap(&["-c", "4"], &script);
    slotd.wait("two steps", || {
        (slotd.steps(job, "State").matches("RUNNING").count() == 4).then_some(())
    });
    resize(&slotd, job, &["NumCPUs=1"]).ok();
    assert_eq!(
        (has(&slotd, job).0.as_str(), slotd.show(job, "PendingTRES").as_str()),
        ("0-1", "cpu=1,mem=512M,node=1,billing=1")
    );
    slotd.kill9();
    slotd.start_daemon();
    assert_eq!(has(&slotd, job).0, "0-1");
    slotd.open("one");
    slotd.wait("one CPU", || (slotd.show(job, "NumCPUs") == "1").then_some(()));
    let next = slotd.wrap(&["-c", "3"], "true");
    slotd.wait_state(next, "COMPLETED");
    slotd.open("two");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.sacct(job, "AllocCPUS"), "1");
}

#[test]
fn the_cpu_affinity_of_a_script_follows_its_job() {
    let slotd = Setup::default().set("SLOTD_CPUS", 2).start();
    if fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .contains("Cpus_allowed_list:\t0\n")
    {
        return eprintln!("skipped: this takes two CPUs");
    }
    let job = slotd.wrap(&["-c", "2"], "sleep 1000 & echo $! > pid; wait");
    let pid = slotd.wait("a process", || {
        fs::read_to_string(slotd.path("pid")).ok()?.trim().parse::<u32>().ok()
    });
    let allowed = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"))
            .unwrap()
            .to_owned()
    };
    for (cpus, list) in [("2", "0-1"), ("1", "0"), ("2", "0-1")] {
        resize(&slotd, job, &[&format!("NumCPUs={cpus}")]).ok();
        slotd
            .wait(&format!("CPUs {list}, not {}", allowed()), || (allowed() == list).then_some(()));
    }
}

#[test]
fn a_job_that_cannot_grow_gets_the_free_resources_and_a_time() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-c", "2"]);
    slotd.endless(&["-c", "1", "-t", "10"]);
    let out = resize(&slotd, job, &["NumCPUs=4"]).fails(1);
    let (before, after) = out.stderr.split_once("enough will be free in 0:0").expect("when");
    assert_eq!(before, format!("job {job} needs 2 CPUs more; 1 CPU is free; "));
    assert!(
        after.contains(&format!("; to wait for it: sbatch --dependency=expand:{job}\n")),
        "{after}"
    );
    assert_eq!(has(&slotd, job).0, "0-1");
    resize(&slotd, job, &["NumCPUs=3"]).ok();
    assert_eq!(has(&slotd, job).0, "0-1,3");
    for (key, why) in [
        ("NumCPUs=0", "Invalid numeric value \"0\" for NumCPUs"),
        ("NumCPUs=9", "9 CPUs requested, 4 on this host"),
    ] {
        let out = resize(&slotd, job, &[key]).fails(1);
        assert!(out.stderr.contains(why), "{out:?}");
    }
    slotd.cancel(job);
    slotd.wait_end(job);
    resize(&slotd, job, &["NumCPUs=1"]).fails(1);
}

#[test]
fn a_manager_uses_added_cpus_and_frees_idle_ones() {
    let slotd = Slotd::start();
    let steps: String =
        (0..4).map(|n| format!("{} # {n}\n", slotd.gate(&format!("go{n}")))).collect();
    slotd.write("steps", steps);
    let job = slotd.wrap(&["-c", "2"], "sjobmgr run steps");
    let running = |count: usize| {
        let named = || {
            slotd
                .steps(job, "JobID,State")
                .lines()
                .filter(|l| l.contains(".") && !l.contains("batch") && l.ends_with("RUNNING"))
                .count()
        };
        slotd.wait(&format!("{count} steps"), || (named() == count).then_some(()));
    };
    running(2);
    resize(&slotd, job, &["NumCPUs=3"]).ok();
    running(3);
    resize(&slotd, job, &["NumCPUs=1"]).ok();
    let next = slotd.wrap(&["-c", "3"], "true");
    assert_eq!(
        (has(&slotd, job).0.as_str(), slotd.show(job, "PendingTRES").is_empty()),
        ("0-2", false)
    );
    slotd.open("go0");
    slotd.open("go1");
    slotd.wait_state(next, "COMPLETED");
    assert_eq!(slotd.show(job, "NumCPUs"), "1");
    running(1);
    slotd.open("go2");
    slotd.open("go3");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn an_expand_job_waits_and_transfers_its_resources() {
    let slotd = Slotd::start();
    let job = slotd.begun(&["-c", "2"], "go", "srun sh -c 'echo $SLURM_CPUS_ON_NODE'");
    let other = slotd.endless(&["-c", "2", "-t", "10"]);
    let expand = format!("--dependency=expand:{job}");
    let more = slotd.wrap(&[&expand, "-c", "2"], "echo > ran");
    slotd.wait_reason(more, "Resources");
    let start = slotd.cmd("squeue", &["-h", "--start", "-j", &more.to_string(), "-o", "%S"]).ok();
    assert_ne!(start.text(), "N/A");
    slotd.cancel(other);
    slotd.wait_state(more, "COMPLETED");
    assert_eq!(has(&slotd, job).0, "0-3");
    assert_eq!(slotd.sacct(job, "AllocCPUS,State"), "4|RUNNING");
    assert_eq!(
        slotd.sacct(more, "AllocCPUS,State,Elapsed,SystemComment"),
        format!("2|COMPLETED|00:00:00|its resources were transferred to job {job}")
    );
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert!(!slotd.exists("ran"));
    let late = slotd.wrap(&[&expand], "true");
    slotd.wait_reason(late, "DependencyNeverSatisfied");
}

#[test]
fn sjobmgr_resize_grows_waits_and_shrinks() {
    let slotd = Slotd::start();
    let steps: String = (0..4).map(|n| format!("{} # {n}\n", slotd.gate("go"))).collect();
    slotd.write("steps", steps);
    let job = slotd.wrap(&["-c", "1"], "sjobmgr run steps");
    let running = |count: usize| {
        slotd.wait(&format!("{count} steps"), || {
            let lines = slotd.cmd("squeue", &["-hs", "-j", &job.to_string(), "-o", "%i"]).ok();
            let own = format!("{job}.batch");
            (lines.lines().iter().filter(|line| **line != own).count() == count).then_some(())
        });
    };
    let resize = |args: &[&str]| {
        let id = format!("--jobid={job}");
        slotd.cmd("sjobmgr", &[&["resize", &id], args].concat())
    };
    running(1);
    let other = slotd.endless(&["-c", "2", "-t", "10"]);
    assert_eq!(resize(&["+1"]).ok().text(), format!("JobId={job} CPUs=2 Mem=512M"));
    running(2);
    let out = resize(&["4"]).ok();
    let more = other + 1;
    let lines = out.lines();
    assert_eq!(
        lines[..2],
        [format!("Submitted batch job {more}"), format!("JobId={job} CPUs=2 Mem=512M")]
    );
    let wait = format!("   ExpandedBy={more} CPUs=+2 Reason=Resources StartTime=2");
    assert!(lines[2].starts_with(&wait), "{out:?}");
    assert_eq!(resize(&[]).ok().lines()[1], lines[2], "the pending expansion is shown again");
    slotd.cancel(other);
    slotd.wait_state(more, "COMPLETED");
    running(4);
    // The memory stays the same, because more was not requested.
    assert_eq!(resize(&[]).ok().text(), format!("JobId={job} CPUs=4 Mem=512M"));
    let out = resize(&["-3", "--mem=100"]).ok();
    // The manager may have freed the memory by now, but has no idle CPU.
    assert!(out.text().starts_with(&format!("JobId={job} CPUs=4 Mem=")), "{out:?}");
    assert!(out.text().ends_with(" PendingCPUs=1 PendingMem=100M"), "{out:?}");
    for bad in ["-4", "0", "x", "+99"] {
        assert_ne!(resize(&[bad]).code, 0, "{bad}");
    }
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn a_step_larger_than_its_job_is_reported_and_starts_once_the_job_grows() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    slotd.write(
        "steps.toml",
        format!("step = [{{ name = 'gate', command = \"{gate}\" }}, {{ name = 'wide', command = 'true', cpus = 3 }}]"),
    );
    let job = slotd.wrap(&["-c", "3"], "sjobmgr run steps.toml");
    let list = || slotd.cmd("sjobmgr", &["list", "--jobid", &job.to_string(), "wide"]);
    slotd.wait("a manager", || (list().code == 0).then_some(()));
    resize(&slotd, job, &["NumCPUs=1"]).ok();
    slotd.wait("a reason", || {
        list().stdout.contains("Resources: asks for 3 CPUs; the job has 1 CPU").then_some(())
    });
    slotd.open("go");
    let message = "1 step needs a larger job: resize it (sjobmgr resize), or cancel steps (sjobmgr cancel): \
                step \"wide\" asks for 3 CPUs; the job has 1 CPU";
    slotd.wait("the message", || slotd.output(job).contains(message).then_some(()));
    resize(&slotd, job, &["NumCPUs=3"]).ok();
    slotd.wait_state(job, "COMPLETED");
}
