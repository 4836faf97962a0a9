//! scontrol: showing and changing jobs, the node and the partitions.

use expect_test::expect_file;
use slotd_kit::Slotd;

/// Returns the value of a key in `scontrol show`.
fn value(text: &str, key: &str) -> String {
    let found = text.split_whitespace().find_map(|word| word.strip_prefix(&format!("{key}=")));
    found.unwrap_or_else(|| panic!("no {key} in {text}")).to_owned()
}

#[test]
fn show_job_shows_all_details_of_a_running_job() {
    let slotd = Slotd::start();
    let job =
        slotd.endless(&["-J", "runner", "-c", "2", "--mem", "1G", "-t", "30", "--comment", "hi"]);
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
    for key in ["SubmitTime", "StartTime", "EndTime", "NodeList", "ReqTRES", "AllocTRES", "MaxRSS"]
    {
        value(&text, key);
    }
}

#[test]
fn show_job_prints_every_line_of_a_held_array() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 2).start();
    let args = [
        "-H",
        "-J",
        "held",
        "-a",
        "1-3%2",
        "-n",
        "2",
        "-G",
        "1",
        "--mem",
        "1G",
        "-t",
        "30",
        "--comment",
        "hi",
    ];
    let job = slotd.wrap(&[&args[..], &["-A", "lab", "--signal", "B:USR1@60"]].concat(), "true");
    let shown =
        |what: &str| slotd.stable(&slotd.line(&format!("scontrol show {what}")).ok().stdout);
    let recorded =
        |name: &str| expect_file![format!("{}/tests/recorded/{name}", env!("CARGO_MANIFEST_DIR"))];
    recorded("show-job.txt").assert_eq(&shown(&format!("job {job}")));
    recorded("show-partition.txt")
        .assert_eq(&shown("partition").replace(&slotd_kit::host(), "{host}"));
}

#[test]
fn show_job_shows_an_ended_job() {
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
fn ids_are_accepted_in_all_of_slurms_forms() {
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
fn unknown_jobs_print_slurms_errors() {
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
    assert!(
        out.stderr.starts_with("invalid keyword: nosuch\n  hint: commands: show, "),
        "{}",
        out.stderr
    );
    let out = slotd.cmd("scontrol", &["show", "nosuch"]).fails(1);
    assert!(
        out.stderr.starts_with("invalid entity:nosuch for keyword:show \n  hint: entities: "),
        "{}",
        out.stderr
    );
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
fn several_jobs_can_be_released() {
    let slotd = Slotd::start();
    let jobs: Vec<u32> = (0..3).map(|_| slotd.wrap(&["-H"], "true")).collect();
    slotd
        .cmd("scontrol", &["release", &format!("{},{}", jobs[0], jobs[1]), &jobs[2].to_string()])
        .ok();
    for job in jobs {
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn single_array_task_can_be_held() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "1-3"], "true");
    slotd.cmd("scontrol", &["release", &array.to_string()]).ok();
    slotd.wait_array(array, 3);
    let running = slotd.endless(&["-c", "4"]);
    let array = slotd.wrap(&["-a", "1-3"], "true");
    slotd.cmd("scontrol", &["hold", &format!("{array}_2")]).ok();
    slotd.cancel(running);
    slotd.wait("two tasks", || {
        (slotd.records(array).iter().filter(|r| r.state() == "COMPLETED").count() == 2)
            .then_some(())
    });
    let held: Vec<_> =
        slotd.records(array).into_iter().filter(|r| r.state() == "PENDING").collect();
    assert_eq!(held.len(), 1);
    slotd.cmd("scontrol", &["release", &format!("{array}_2")]).ok();
    slotd.wait_array(array, 3);
}

#[test]
fn host_partitions_and_configuration_are_shown() {
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
fn batch_script_can_be_read_back() {
    let slotd = Slotd::start();
    let text = "#!/bin/sh\n# my script\nexit 0\n";
    let job = slotd.script(&["-H"], text).to_string();
    assert_eq!(
        slotd.cmd("scontrol", &["write", "batch_script", &job, "-"]).ok().stdout.trim_end(),
        text.trim_end()
    );
    slotd.cmd("scontrol", &["write", "batch_script", &job]).ok();
    assert_eq!(slotd.read(&format!("slurm-{job}.sh")).trim_end(), text.trim_end());
}

#[test]
fn suspend_stops_the_processes_and_their_clock() {
    let slotd = Slotd::start();
    // A shell that waits for a child in vfork does not appear as stopped.
    let job = slotd.wrap(&[], "echo $$ > pid; exec sleep 1000");
    let pid: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    let id = job.to_string();
    slotd.cmd("scontrol", &["suspend", &id]).ok();
    slotd.wait_state(job, "SUSPENDED");
    slotd.wait("the process to stop", || (slotd_kit::proc::state(pid) == Some('T')).then_some(()));
    // From here, the limit is at most two seconds away, however long the job has run.
    let used = slotd.line(&format!("squeue -h -j {id} -O TimeUsed")).ok().stdout;
    let secs = |all: u64, part: &str| all * 60 + part.parse::<u64>().expect("a number");
    let limit = used.trim().split(':').fold(0, secs) + 2;
    slotd.limit(job, limit);
    // Wait longer than that.
    let begun = std::time::Instant::now();
    slotd_kit::until(|| (begun.elapsed().as_millis() > 2500).then_some(())).unwrap();
    assert_eq!(slotd.state(job), "SUSPENDED");
    slotd.cmd("scontrol", &["resume", &id]).ok();
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert!(ended.end() - ended.start() >= limit as i64 * 1_000_000 + 2_500_000);
}

#[test]
fn commands_are_read_from_standard_input() {
    let slotd = Slotd::start();
    let out = slotd.feed(slotd.command("scontrol"), "show hostnames a[1-2]\nquit\n").ok();
    assert!(out.stdout.contains("a1\na2\n"), "{}", out.stdout);
}

#[test]
fn interactive_commands_change_the_output_of_the_following_ones() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let lines = |text: &str| {
        let out = slotd.feed(slotd.command("scontrol"), text).ok().stdout;
        let is_record = |line: &&str| line.contains("JobState=PENDING");
        out.lines().filter(is_record).map(|line| line.contains("JobId=")).collect::<Vec<_>>()
    };
    let show = format!("show job {job}\n");
    assert_eq!(lines(&format!("{show}oneliner\n{show}!!\nall\nexit\n{show}")), [false, true, true]);
    let out =
        slotd.feed(slotd.command("scontrol"), "quiet\nshow nosuch\nverbose\n!!\nshow nosuch\n");
    assert_eq!(out.fails(1).stderr.matches("invalid entity:nosuch").count(), 1);
    for mode in ["all", "hide", "oneliner", "details", "quiet", "verbose", "exit", "quit"] {
        slotd.expect(&format!("scontrol {mode}"), 0, "", "");
    }
}

#[test]
fn host_names_can_come_from_a_file() {
    let slotd = Slotd::start();
    let file = slotd.work().join("hosts");
    std::fs::write(&file, "n2\nn1,n3\n\n").unwrap();
    let show = |what: &str, path: &std::path::Path| {
        slotd.line(&format!("scontrol show {what} {}", path.display()))
    };
    assert_eq!(show("hostlist", &file).ok().text(), "n[2,1,3]");
    assert_eq!(show("hostlistsorted", &file).ok().text(), "n[1-3]");
    let fifo = slotd.work().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [&fifo, &slotd.work(), &slotd.work().join("missing")] {
        let out = show("hostlist", path).fails(1);
        assert!(out.stderr.contains("cannot read the host names in"), "{}", out.stderr);
    }
}

#[test]
fn an_invalid_mail_type_is_not_stored() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H", "--mail-type=END"], "true");
    let out = slotd.line(&format!("scontrol update job {job} MailType=FOO")).fails(1);
    assert!(out.stderr.contains("FOO"), "{}", out.stderr);
    assert_eq!(slotd.show(job, "MailType"), "END");
    slotd.line(&format!("scontrol update job {job} MailType=FAIL")).ok();
    assert_eq!(slotd.show(job, "MailType"), "FAIL");
}

#[test]
fn missing_entities_are_reported_on_standard_output() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let host = slotd_kit::host();
    slotd.expect(
        &format!("scontrol show step {job}.0"),
        1,
        &format!("Job step {job}.0 not found\n"),
        "",
    );
    slotd.expect(&format!("scontrol show job {job}_1"), 1, &format!("Job {job}_1 not found\n"), "");
    slotd.expect("scontrol show node nonode", 1, "Node nonode not found\n", "");
    slotd.expect("scontrol show part nopart", 1, "Partition nopart not found\n", "");
    slotd.expect("scontrol -Q show node nonode", 1, "", "");
    slotd.expect("scontrol show step", 0, "No job steps in the system\n", "");
    slotd.expect("scontrol show res", 0, "No reservations in the system\n", "");
    slotd.expect("scontrol show licenses", 0, "No licenses configured in Slurm.\n", "");
    slotd.expect("scontrol show burst", 0, "", "");
    slotd.expect(
        "scontrol show topology",
        0,
        "",
        "scontrol: error: No topology information available\n",
    );
    slotd.expect("scontrol show daemons", 0, "slurmctld slurmd\n", "");
    slotd.expect("scontrol ping", 0, &format!("Slurmctld(primary) at {host} is UP\n"), "");
    let unknown = "job script retrieval failed: ";
    let out = slotd.line("scontrol write batch_script 999999").fails(1);
    assert!(out.stdout.is_empty() && out.stderr.starts_with(unknown), "{}", out.stderr);
}

#[test]
fn scontrol_prompts_and_echoes_its_input() {
    let slotd = Slotd::start();
    slotd.expect("scontrol", 0, "scontrol: \n", "");
    let out =
        slotd.feed(slotd.command("scontrol"), "show hostnames a[1-2]\nquit\nshow nothing\n").ok();
    assert_eq!(out.stdout, "scontrol: show hostnames a[1-2]\na1\na2\nscontrol: quit\n");
    let out = slotd.feed(slotd.command("scontrol"), "show nosuch\nping\n").fails(1);
    assert!(
        out.stderr.starts_with("invalid entity:nosuch for keyword:show \n  hint: entities: "),
        "{}",
        out.stderr
    );
    assert!(out.stdout.contains(" is UP\nscontrol: \n"), "{}", out.stdout);
}

#[test]
fn hold_and_release_print_slurms_errors() {
    let slotd = Slotd::start();
    let over = slotd.wrap(&[], "true");
    slotd.wait_end(over);
    let running = slotd.endless(&[]);
    for verb in ["hold", "release"] {
        let unknown = "Invalid job id specified";
        let text = format!("{unknown} for job 999999\nslurm_suspend error: {unknown}\n");
        slotd.expect(&format!("scontrol {verb} 999999"), 1, "", &text);
        let finished = "Job has already finished";
        let text = format!("{finished} for job {over}\nslurm_suspend error: {finished}\n");
        slotd.expect(&format!("scontrol {verb} {over}"), 1, "", &text);
        slotd.expect(&format!("scontrol {verb} {running}"), 0, "", "");
        slotd.expect(&format!("scontrol -Q {verb} 999999"), 1, "", "");
    }
    slotd.expect(
        "scontrol hold jobname=nosuch",
        1,
        "",
        "scontrol: error: No jobs with name 'nosuch'\n",
    );
    let text = format!("Job has already finished for job {over}\n");
    slotd.expect(&format!("scontrol suspend {over}"), 1, "", &text);
}

#[test]
fn scontrol_shows_json_and_yaml_documents() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let document = |what: &str| -> serde_json::Value {
        serde_json::from_str(&slotd.line(&format!("scontrol show {what} --json")).ok().stdout)
            .unwrap()
    };
    for what in ["step".to_owned(), format!("step {job}.batch")] {
        let steps = document(&what);
        assert_eq!(
            (&steps["steps"][0]["step"]["id"], &steps["steps"][0]["state"]),
            (&"batch".into(), &"RUNNING".into())
        );
        assert_eq!(steps["steps"].as_array().map(Vec::len), Some(1), "{what}");
    }
    assert_eq!(document("config")["config"]["ClusterName"], "slotd");
    assert_eq!(document("licenses")["licenses"], serde_json::json!([]));
    let yaml = slotd.line("scontrol show step --yaml").ok().stdout;
    assert!(yaml.starts_with("%YAML 1.1\n---\n") && yaml.contains("\nsteps:\n"), "{yaml}");
    slotd.expect(
        &format!("scontrol show step {job}.7 --json"),
        1,
        "",
        &format!("Job step {job}.7 not found\n"),
    );
    let refused = slotd.line("scontrol show hostnames a[1-2] --json");
    assert!(
        refused.code == 1 && refused.stdout.is_empty() && refused.stderr.contains("--json"),
        "{}",
        refused.stderr
    );
}

#[test]
fn listpids_lists_the_processes_of_each_step() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'echo $$ > inner; exec sleep 1000'\n");
    let pid = slotd.wait_text("inner", "\n");
    let out = slotd.line(&format!("scontrol listpids {job}")).ok();
    assert_eq!(out.lines()[0], "PID      JOBID    STEPID   LOCALID GLOBALID");
    let task = out
        .lines()
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|row| row[0] == pid.trim());
    assert_eq!(
        task.unwrap_or_else(|| panic!("{}", out.stdout))[1..],
        [job.to_string().as_str(), "0", "0", "0"]
    );
    assert!(out.lines().iter().any(|line| line.contains(" batch ")), "{}", out.stdout);
    let only = slotd.line(&format!("scontrol listpids {job}.0")).ok();
    assert!(!only.stdout.contains("batch") && only.lines().len() > 1, "{}", only.stdout);
    slotd.line("scontrol listpids 999999").fails(1);
}

#[test]
fn wait_job_reports_whether_a_job_has_its_node() {
    let slotd = Slotd::start();
    let wait = |job: &str, code, said: &str| {
        let out = slotd.cmd("scontrol", &["wait_job", job]).fails(code);
        assert_eq!(out.stderr, format!("scontrol: {said}\n"));
    };
    let job = slotd.wrap(&["-H"], "exec sleep 1000");
    let id = job.to_string();
    // Slurm does not wait for a pending job.
    wait(&id, 1, &format!("Job {id} no longer running"));
    slotd.cmd("scontrol", &["release", &id]).ok();
    slotd.wait_state(job, "RUNNING");
    wait(&id, 0, &format!("Nodes are ready for job {id}"));
    slotd.cancel(job);
    slotd.wait_end(job);
    wait(&id, 1, &format!("Job {id} no longer running"));
    wait("999999", 1, "Problem running job 999999");
    let array = slotd.submit(&["-a", "1-2%1", "--wrap", "exec sleep 1000"]).to_string();
    let task = format!("{array}_1");
    slotd.wait("a running task", || {
        slotd.line(&format!("squeue -h -t R -j {task}")).stdout.contains(&task).then_some(())
    });
    wait(&array, 0, &format!("Nodes are ready for job {array}"));
}

#[test]
fn new_step_in_a_suspended_job_waits_until_it_is_resumed() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-n", "2"]);
    slotd.wait_state(job, "RUNNING");
    let id = job.to_string();
    slotd.cmd("scontrol", &["suspend", &id]).ok();
    let mut srun = slotd.command("srun");
    srun.args(["--jobid", &id, "-n", "1", "--overlap", "sh", "-c", "echo begun > begun"]);
    let mut srun = slotd.spawn(srun);
    srun.wait_stderr("step creation temporarily disabled");
    assert!(!slotd.path("begun").exists());
    slotd.cmd("scontrol", &["resume", &id]).ok();
    srun.end().ok();
    assert_eq!(slotd.read("begun"), "begun\n");
    slotd.cmd("scancel", &[&id]).ok();
}

#[test]
fn priority_does_not_start_a_held_job() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let out = slotd.line(&format!("scontrol update JobId={job} Priority=9")).fails(1);
    assert!(
        out.stderr.contains("Job is in held state, pending scheduler release"),
        "{}",
        out.stderr
    );
    slotd.wait_reason(job, "JobHeldUser");
    slotd.line(&format!("scontrol release {job}")).ok();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn keys_without_effect_can_be_updated_but_other_hosts_are_refused() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let host = slotd_kit::host();
    for change in [
        "AdminComment=x",
        "MinCPUsNode=1",
        "Contiguous=1",
        "Switches=1",
        "Shared=0",
        &format!("ReqNodeList={host}"),
    ] {
        slotd.expect(&format!("scontrol update JobId={job} {change}"), 0, "", "");
    }
    slotd.expect(
        &format!("scontrol update JobId={job} ReqNodeList=other"),
        1,
        "",
        &format!("no such node: other\nInvalid node name specified for job {job}\n"),
    );
    let why = "Requested node configuration is not available\n";
    slotd.expect(&format!("scontrol update JobId={job} ExcNodeList={host}"), 1, "", why);
}

#[test]
fn reasons_match_slurm_and_show_job_adds_the_cause() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "kill -9 $$");
    slotd.wait_state(job, "FAILED");
    for words in ["squeue -h -t all -o %r", "squeue -h -t all -O Reason:.20", "sacct -nXPo reason"]
    {
        assert_eq!(slotd.line(words).ok().stdout.trim(), "NonZeroExitCode", "{words}");
    }
    assert_eq!(slotd.show(job, "Reason"), "NonZeroExitCode");
    assert_eq!(slotd.show(job, "Cause"), "RaisedSignal");
    let found = |words: &str| slotd.line(&format!("sacct -nXP -o jobid {words}")).ok().stdout;
    assert_eq!(found("--reason=NonZeroExitCode --use-local-uid"), format!("{job}\n"));
    assert_eq!(found("-R TimeLimit"), "");
    assert_eq!(found("-C tape"), "");
}

#[test]
fn create_and_delete_are_refused_with_an_alternative() {
    let slotd = Slotd::start();
    let unsupported = |verb, why| format!("{verb} is not supported by slotd: {why}\n");
    let node = "this host is the only node";
    for (words, why) in [
        ("create NodeName=n1", unsupported("create", node)),
        (
            "create PartitionName=p Nodes=ALL",
            unsupported("create", "add the partition to slotd.toml and run scontrol reconfigure"),
        ),
        ("delete node=n1", unsupported("delete", node)),
        (
            "delete PartitionName=cpu",
            unsupported(
                "delete",
                "remove the partition from slotd.toml and run scontrol reconfigure",
            ),
        ),
        ("delete job=1", "Invalid deletion entity: job=1\n".to_owned()),
    ] {
        slotd.expect(&format!("scontrol {words}"), 1, "", &why);
    }
}

#[test]
fn show_config_has_slurms_keys() {
    let slotd = Slotd::start();
    let shown = slotd.line("scontrol show config").ok().stdout;
    let keys = |text: &str| {
        let lines = text
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(key, _)| key.trim().to_owned());
        lines.collect::<Vec<_>>()
    };
    // In the order recorded from Slurm 22.05. slotd's own keys follow.
    let recorded = include_str!("recorded/config_keys.txt").lines().collect::<Vec<_>>();
    let (of_slurm, own): (Vec<_>, Vec<_>) =
        keys(&shown).into_iter().partition(|key| !key.starts_with("Slotd"));
    assert_eq!(of_slurm, recorded);
    assert!(own.len() > 20 && shown.find("SlotdRoot") > shown.find("X11Parameters"));
    for (key, value) in [
        ("StateSaveLocation", format!("{}/lib", slotd.root.display())),
        ("SlurmUser", format!("({})", nix::unistd::getuid())),
        ("SlurmctldHost[0]", slotd_kit::host()),
    ] {
        let line = shown.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(line.contains(&value), "{line}");
    }
    for key in [
        "ProctrackType",
        "SelectType",
        "SlurmctldHost",
        "MaxArraySize",
        "MpiDefault",
        "GresTypes",
        "TaskPlugin",
    ] {
        assert!(
            shown.lines().any(|line| line.starts_with(key) && line.contains(" = ")),
            "{key}: {shown}"
        );
    }
}
