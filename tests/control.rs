//! scontrol: show, hold, release and what else steers jobs.

use slotd_kit::Slotd;

/// The value of a key in `scontrol show`.
fn value(text: &str, key: &str) -> String {
    let found = text.split_whitespace().find_map(|word| word.strip_prefix(&format!("{key}=")));
    found.unwrap_or_else(|| panic!("no {key} in {text}")).to_owned()
}

#[test]
fn show_job_tells_everything_of_a_running_job() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-J", "runner", "-c", "2", "--mem", "1G", "-t", "30", "--comment", "hi"]);
    let text = slotd.cmd("scontrol", &["show", "job", &job.to_string()]).ok().stdout;
    assert!(text.starts_with(&format!("JobId={job} JobName=runner\n   UserId=")), "{text}");
    let work = slotd.work().display().to_string();
    for (key, expected) in [
        ("JobState", "RUNNING"),
        ("Reason", "None"),
        ("Dependency", "(null)"),
        ("Restarts", "0"),
        ("BatchFlag", "1"),
        ("ExitCode", "0:0"),
        ("TimeLimit", "00:30:00"),
        ("Partition", "cpu"),
        ("NumCPUs", "2"),
        ("NumTasks", "1"),
        ("CPUs/Task", "2"),
        ("MinMemoryNode", "1G"),
        ("Command", "(null)"),
        ("WorkDir", &work),
        ("StdOut", &format!("{work}/slurm-{job}.out")),
        ("StdErr", &format!("{work}/slurm-{job}.out")),
        ("StdIn", "/dev/null"),
        ("Comment", "hi"),
    ] {
        assert_eq!(value(&text, key), expected, "{key}\n{text}");
    }
    for key in ["SubmitTime", "StartTime", "EndTime", "NodeList", "ReqTRES", "AllocTRES", "MaxRSS"] {
        value(&text, key);
    }
}

#[test]
fn show_job_tells_of_a_job_that_is_over() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun true\nexit 3\n");
    slotd.wait_state(job, "FAILED");
    let text = slotd.cmd("scontrol", &["show", "job", &job.to_string()]).ok().stdout;
    assert_eq!(
        (value(&text, "JobState"), value(&text, "Reason"), value(&text, "ExitCode")),
        ("FAILED".into(), "NonZeroExitCode".into(), "3:0".into())
    );
    assert_eq!(value(&text, "Command"), slotd.path("job.sh").display().to_string());
}

#[test]
fn the_words_around_an_id_may_be_as_slurm_takes_them() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true").to_string();
    for words in [
        vec!["show", "job", &job],
        vec!["show", "jobid", &job],
        vec!["show", &format!("jobid={job}")],
        vec!["show", &format!("jobs={job}")],
    ] {
        let out = slotd.cmd("scontrol", &words).ok();
        assert!(out.stdout.starts_with(&format!("JobId={job} ")), "{words:?}: {}", out.stdout);
    }
    let line = slotd.cmd("scontrol", &["-o", "show", "job", &job]).ok();
    assert_eq!(line.lines().len(), 1, "{}", line.stdout);
    slotd.wrap(&["-H"], "true");
    let all = slotd.cmd("scontrol", &["-o", "show", "job"]).ok();
    assert_eq!(all.lines().len(), 2, "{}", all.stdout);
}

#[test]
fn unknown_jobs_are_told_as_slurm_does() {
    let slotd = Slotd::start();
    let out = slotd.cmd("scontrol", &["show", "job", "999999"]).fails(1);
    assert_eq!(out.stderr, "slurm_load_jobs error: Invalid job id specified\n");
    let out = slotd.cmd("scontrol", &["show", "job", "abc"]).fails(1);
    assert_eq!(out.stderr, "scontrol_print_job error: Invalid job id specified\n");
    for verb in ["hold", "release", "requeue"] {
        let out = slotd.cmd("scontrol", &[verb, "999999"]).fails(1);
        assert!(out.stderr.contains("Invalid job id specified"), "{verb}: {}", out.stderr);
    }
    let out = slotd.cmd("scontrol", &["nosuch"]).fails(1);
    assert_eq!(out.stderr, "invalid keyword: nosuch\n");
    let out = slotd.cmd("scontrol", &["show", "nosuch"]).fails(1);
    assert_eq!(out.stderr, "invalid entity:nosuch for keyword:show \n");
}

#[test]
fn hold_and_release_in_both_forms() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let job = slotd.wrap(&["-c", "4"], "true");
    let id = job.to_string();
    for words in [vec!["hold"], vec!["hold", "job"]] {
        slotd.cmd("scontrol", &[words, vec![&id]].concat()).ok();
        slotd.wait_reason(job, "JobHeldUser");
        assert_eq!(slotd.state(job), "PENDING");
        slotd.cmd("scontrol", &["release", "job", &id]).ok();
        slotd.wait_reason(job, "Resources");
    }
    slotd.cmd("scontrol", &["hold", &id]).ok();
    slotd.cancel(running);
    let other = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(other, "COMPLETED");
    assert_eq!(slotd.state(job), "PENDING");
    slotd.cmd("scontrol", &["release", &id]).ok();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn several_jobs_may_be_named() {
    let slotd = Slotd::start();
    let jobs: Vec<u32> = (0..3).map(|_| slotd.wrap(&["-H"], "true")).collect();
    slotd.cmd("scontrol", &["release", &format!("{},{}", jobs[0], jobs[1]), &jobs[2].to_string()]).ok();
    for job in jobs {
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn one_array_task_may_be_held() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "1-3"], "true");
    slotd.cmd("scontrol", &["release", &array.to_string()]).ok();
    slotd.wait_array(array, 3);
    let running = slotd.endless(&["-c", "4"]);
    let array = slotd.wrap(&["-a", "1-3"], "true");
    slotd.cmd("scontrol", &["hold", &format!("{array}_2")]).ok();
    slotd.cancel(running);
    slotd.wait("two tasks", || {
        (slotd.records(array).iter().filter(|r| r.state() == "COMPLETED").count() == 2).then_some(())
    });
    let held: Vec<_> = slotd.records(array).into_iter().filter(|r| r.state() == "PENDING").collect();
    assert_eq!(held.len(), 1);
    slotd.cmd("scontrol", &["release", &format!("{array}_2")]).ok();
    slotd.wait_array(array, 3);
}

#[test]
fn the_host_its_partitions_and_the_configuration_are_shown() {
    let slotd = Slotd::start();
    let node = slotd.cmd("scontrol", &["show", "node"]).ok().stdout;
    assert!(node.starts_with("NodeName="), "{node}");
    assert_eq!(value(&node, "CPUTot"), "4");
    assert_eq!(value(&node, "RealMemory"), "8192");
    let partition = slotd.cmd("scontrol", &["show", "partition", "cpu"]).ok().stdout;
    assert!(partition.starts_with("PartitionName=cpu\n"), "{partition}");
    assert_eq!(value(&partition, "Default"), "YES");
    let config = slotd.cmd("scontrol", &["show", "config"]).ok().stdout;
    assert!(config.contains("KillWait") && config.contains("1 sec"), "{config}");
    let out = slotd.cmd("scontrol", &["show", "partition", "nopart"]).fails(1);
    assert!(format!("{}{}", out.stdout, out.stderr).contains("Partition nopart not found"));
    assert!(slotd.cmd("scontrol", &["ping"]).ok().stdout.contains(" is UP"));
    let names = slotd.cmd("scontrol", &["show", "hostnames", "n[1-3,7],m[01-02]"]).ok();
    assert_eq!(names.stdout, "n1\nn2\nn3\nn7\nm01\nm02\n");
}

#[test]
fn a_batch_script_can_be_read_back() {
    let slotd = Slotd::start();
    let text = "#!/bin/sh\n# my script\nexit 0\n";
    let job = slotd.script(&["-H"], text).to_string();
    assert_eq!(slotd.cmd("scontrol", &["write", "batch_script", &job, "-"]).ok().stdout.trim_end(), text.trim_end());
    slotd.cmd("scontrol", &["write", "batch_script", &job]).ok();
    assert_eq!(slotd.read(&format!("slurm-{job}.sh")).trim_end(), text.trim_end());
}

#[test]
fn suspend_stops_the_processes_and_their_clock() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "0:03"], "echo $$ > pid; while :; do sleep 0.05; done");
    let pid: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    let id = job.to_string();
    slotd.cmd("scontrol", &["suspend", &id]).ok();
    slotd.wait_state(job, "SUSPENDED");
    slotd.wait("its stop", || (slotd_kit::proc::state(pid) == Some('T')).then_some(()));
    // Longer than its limit.
    let begun = std::time::Instant::now();
    slotd_kit::until(|| (begun.elapsed().as_millis() > 3500).then_some(())).unwrap();
    assert_eq!(slotd.state(job), "SUSPENDED");
    slotd.cmd("scontrol", &["resume", &id]).ok();
    slotd.wait_state(job, "RUNNING");
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert!(ended.end() - ended.start() >= 6_000_000);
}

#[test]
fn commands_may_come_by_standard_input() {
    let slotd = Slotd::start();
    let out = slotd.feed(slotd.command("scontrol"), "show hostnames a[1-2]\nquit\n").ok();
    assert!(out.stdout.contains("a1\na2\n"), "{}", out.stdout);
}
