//! What squeue, sacct, sinfo and scontrol print and return, held against the recorded output of Slurm. The numbers in
//! the names of helpers and comments (F-22, H-15) are those of the recording.

use slotd_kit::{Out, Slotd};

fn host(slotd: &Slotd) -> String {
    slotd.cmd("scontrol", &["show", "aliases"]).ok().text().to_owned()
}

/// Splits a command line at blanks and runs it.
fn run(slotd: &Slotd, line: &str) -> Out {
    let words: Vec<&str> = line.split_whitespace().collect();
    slotd.cmd(words[0], &words[1..])
}

/// A command, its exit code, standard output and standard error.
#[track_caller]
fn expect(slotd: &Slotd, line: &str, code: i32, stdout: &str, stderr: &str) {
    let out = run(slotd, line);
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (code, stdout, stderr), "{line}");
}

const HEADER: &str = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n";
const SLURM_DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";

#[test]
fn squeue_fails_for_a_single_unknown_id_only() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let array = slotd.wrap(&["-H", "-a", "1-3"], "true");
    let no_job = "slurm_load_jobs error: Invalid job id specified\n";
    expect(&slotd, "squeue -j 999999", 1, "", no_job);
    expect(&slotd, &format!("squeue -h -o %i -j 999999,{job}"), 0, &format!("{job}\n"), "");
    expect(&slotd, "squeue -h -j 999998,999999", 0, "", "");
    // The job is known; that it has no such task is no error.
    expect(&slotd, &format!("squeue -h -j {job}_1"), 0, "", "");
    expect(&slotd, &format!("squeue -h -j {array}_9"), 0, "", "");
    expect(&slotd, &format!("squeue -h -o %i -j {array}_2"), 0, &format!("{array}_2\n"), "");
}

#[test]
fn squeue_tells_ended_jobs_from_unknown_ones_and_forgets_them() {
    let mut slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).prepare();
    slotd.start_daemon();
    let job = slotd.wrap(&[], "true");
    slotd.wait_end(job);
    // The record leaves the memory with its age; accounting and the book's `show job` keep it.
    slotd.wait("the record to be forgotten", || (run(&slotd, &format!("squeue -j {job}")).code == 1).then_some(()));
    assert_eq!(slotd.sacct(job, "JobID,State"), format!("{job}|COMPLETED"));
    let out = run(&slotd, &format!("scontrol show job {job}")).ok();
    assert!(out.stdout.contains("JobState=COMPLETED"), "{}", out.stdout);
    let pending = slotd.wrap(&["-H"], "true");
    let both = run(&slotd, &format!("scontrol -o show job {pending},{job}")).ok();
    let ids: Vec<&str> = both.lines().iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ids, [format!("JobId={pending}"), format!("JobId={job}")]);
}

#[test]
fn squeue_says_what_it_cannot_find_as_slurm_does() {
    let slotd = Slotd::start();
    let format = format!("squeue -o {SLURM_DEFAULT}");
    let line = |rest: &str| {
        let mut words = vec!["-o", SLURM_DEFAULT];
        words.extend(rest.split_whitespace());
        slotd.cmd("squeue", &words)
    };
    let out = line("-u nosuchuser").ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), (HEADER, "squeue: error: Invalid user: nosuchuser\n\n"));
    let out = line("-p nopart").ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), (HEADER, ""), "{format}");
    expect(&slotd, "squeue -w nonode", 1, "", "squeue: error: Invalid node name nonode\n");
    expect(&slotd, "squeue -h -A none", 0, "", "");
    expect(&slotd, "squeue -h -L x", 0, "", "");
}

#[test]
fn squeue_filters_by_every_property() {
    let slotd = Slotd::start();
    let a = slotd.wrap(&["-H", "-J", "one", "-A", "lab", "-q", "high", "--licenses", "x"], "true");
    let b = slotd.endless(&["-J", "two"]);
    let host = host(&slotd);
    let ids = |words: &str| {
        let out = run(&slotd, &format!("squeue -h -S i -o %i {words}")).ok();
        out.lines().iter().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    for words in ["-A lab", "-q high", "-L x", "-n one", "-t PD", "--name=one,three", "--start"] {
        assert_eq!(ids(words), [a], "{words}");
    }
    for words in ["-t R", "-n two", &format!("-w {host}"), "-w localhost", "-q normal"] {
        assert_eq!(ids(words), [b], "{words}");
    }
    for words in ["", "-t all", "-t PD,R", "-p cpu", "--me", "-u root,nobody -u 0"] {
        let all = ids(words);
        assert!(all == [a, b] || words.contains("root"), "{words}: {all:?}");
    }
}

#[test]
fn squeue_shows_the_steps_that_are_named() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'echo > inner; exec sleep 1000'\n");
    slotd.wait_text("inner", "");
    let steps = |words: &str| {
        let out = run(&slotd, &format!("squeue -h -o %i {words}")).ok();
        let mut ids: Vec<String> = out.lines().iter().map(|line| line.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(steps(&format!("-s {job}.batch")), [format!("{job}.batch")]);
    assert_eq!(steps(&format!("-s {job}.0")), [format!("{job}.0")]);
    assert_eq!(steps(&format!("-s {job}")), [format!("{job}.0"), format!("{job}.batch")]);
    assert!(steps(&format!("-s {job}.7")).is_empty());
    assert!(steps("-s 999999.0").is_empty());
}

#[test]
fn squeue_iterates_with_the_date_above_each_table() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true").to_string();
    let out = slotd.sh(&format!("squeue -i 1 -o %i -j {job} | head -6")).ok();
    let lines = out.lines();
    assert_eq!((lines[1], lines[2], lines[3], lines[5]), ("JOBID", job.as_str(), "", "JOBID"));
    for date in [lines[0], lines[4]] {
        assert_eq!(date.split_whitespace().count(), 5, "{date}");
    }
    let long = slotd.cmd("squeue", &["-l", "-o", "%i"]).ok();
    assert_eq!((long.lines().len(), long.lines()[1]), (3, "JOBID"));
    let table = slotd.sh("SLOTD_OUTPUT=slurm squeue -l; SLOTD_OUTPUT=slurm sinfo -l").ok();
    let dates = table.lines().iter().filter(|line| line.split(':').count() == 3 && line.len() == 24).count();
    assert_eq!(dates, 2, "{}", table.stdout);
}

#[test]
fn sacct_shows_the_tasks_of_an_array_in_their_order() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-a", "1-3"], "exit $((SLURM_ARRAY_TASK_ID - 1))");
    let after = slotd.wrap(&[], "true");
    slotd.wait_array(array, 3);
    slotd.wait_end(after);
    // G-19. One task has the array's own number, whichever it is.
    let out = run(&slotd, "sacct -nXP -o jobid,state,exitcode").ok();
    let expected = [
        format!("{array}_1|COMPLETED|0:0"),
        format!("{array}_2|FAILED|1:0"),
        format!("{array}_3|FAILED|2:0"),
        format!("{after}|COMPLETED|0:0"),
    ];
    assert_eq!(out.lines(), expected);
    let raw = run(&slotd, &format!("sacct -nXP -o jobidraw -j {array}")).ok();
    assert!(raw.lines().contains(&array.to_string().as_str()), "{}", raw.stdout);
}

#[test]
fn sacct_prints_scripts_and_environments() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nprintf 'ö\\n' # without an end";
    slotd.write("job.sh", script);
    let mut sbatch = slotd.command("sbatch");
    sbatch.args(["--parsable", "-H", "job.sh"]).env("MARK", "a b");
    let job = slotd.run(sbatch).ok().text().to_owned();
    let rule = "-".repeat(80);
    expect(&slotd, &format!("sacct -B -j {job}"), 0, &format!("Batch Script for {job}\n{rule}\n{script}\n"), "");
    let out = run(&slotd, &format!("sacct --env-vars -j {job}")).ok();
    assert!(out.stdout.starts_with(&format!("Environment used for {job}\n{rule}\n")), "{}", out.stdout);
    assert!(out.lines().contains(&"MARK=a b"), "{}", out.stdout);
}

#[test]
fn sacct_knows_nothing_of_unknown_jobs_and_says_so_by_a_header() {
    let slotd = Slotd::start();
    let header = "JobID             State \n------------ ---------- \n";
    expect(&slotd, "sacct -j 999999 -o jobid,state", 0, header, "");
    expect(&slotd, "sacct -nX -j 999999.0 --format=Reason --noheader", 0, "", "");
    expect(&slotd, "sacct -j abc", 1, "", "sacct: fatal: Bad job/step specified: abc\n");
    expect(&slotd, "sacct -s bogus", 1, "", "sacct: fatal: unrecognized job state value 'bogus'\n");
    expect(&slotd, "sacct -S foo", 1, "", "Invalid time specification (pos=0): foo\n");
    expect(&slotd, "sacct -u nosuchuser", 1, "", "sacct: error: Invalid user id: nosuchuser\n");
    expect(&slotd, "sacct --nosuch", 1, "", "sacct: unrecognized option '--nosuch'\n");
}

#[test]
fn sinfo_shows_the_host_only_where_it_is_asked_for() {
    let slotd = Slotd::start();
    let host = host(&slotd);
    let row = |words: &str| run(&slotd, &format!("sinfo -h -p cpu -o %P|%D|%t|%N {words}")).ok().text().to_owned();
    let there = format!("cpu*|1|idle|{host}");
    for words in ["", "-t idle", &format!("-n {host}"), "-n localhost", "-r", "-a"] {
        assert_eq!(row(words), there, "{words}");
    }
    for words in ["-t alloc", "-n nonode", "-d"] {
        assert_eq!(row(words), "cpu*|0|n/a|", "{words}");
    }
    expect(&slotd, "sinfo -h -p nopart", 0, "", "");
    let reasons = "REASON               USER      TIMESTAMP           NODELIST\n";
    expect(&slotd, "sinfo -R", 0, reasons, "");
}

#[test]
fn scontrol_says_what_is_not_there_on_standard_output() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let host = host(&slotd);
    expect(&slotd, &format!("scontrol show step {job}.0"), 1, &format!("Job step {job}.0 not found\n"), "");
    expect(&slotd, &format!("scontrol show job {job}_1"), 1, &format!("Job {job}_1 not found\n"), "");
    expect(&slotd, "scontrol show node nonode", 1, "Node nonode not found\n", "");
    expect(&slotd, "scontrol show part nopart", 1, "Partition nopart not found\n", "");
    expect(&slotd, "scontrol -Q show node nonode", 1, "", "");
    expect(&slotd, "scontrol show step", 0, "No job steps in the system\n", "");
    expect(&slotd, "scontrol show res", 0, "No reservations in the system\n", "");
    expect(&slotd, "scontrol show licenses", 0, "No licenses configured in Slurm.\n", "");
    expect(&slotd, "scontrol show burst", 0, "", "");
    expect(&slotd, "scontrol show topology", 0, "", "scontrol: error: No topology information available\n");
    expect(&slotd, "scontrol show daemons", 0, "slurmctld slurmd\n", "");
    expect(&slotd, "scontrol ping", 0, &format!("Slurmctld(primary) at {host} is UP\n"), "");
    let unknown = "job script retrieval failed: ";
    let out = run(&slotd, "scontrol write batch_script 999999").fails(1);
    assert!(out.stdout.is_empty() && out.stderr.starts_with(unknown), "{}", out.stderr);
}

#[test]
fn scontrol_prompts_and_shows_what_it_read() {
    let slotd = Slotd::start();
    expect(&slotd, "scontrol", 0, "scontrol: \n", "");
    let out = slotd.feed(slotd.command("scontrol"), "show hostnames a[1-2]\nquit\nshow nothing\n").ok();
    assert_eq!(out.stdout, "scontrol: show hostnames a[1-2]\na1\na2\nscontrol: quit\n");
    let out = slotd.feed(slotd.command("scontrol"), "show nosuch\nping\n").fails(1);
    assert_eq!(out.stderr, "invalid entity:nosuch for keyword:show \n");
    assert!(out.stdout.contains(" is UP\nscontrol: \n"), "{}", out.stdout);
}

#[test]
fn scontrol_hold_and_release_fail_as_slurm_does() {
    let slotd = Slotd::start();
    let over = slotd.wrap(&[], "true");
    slotd.wait_end(over);
    let running = slotd.endless(&[]);
    for verb in ["hold", "release"] {
        let unknown = "Invalid job id specified";
        let text = format!("{unknown} for job 999999\nslurm_suspend error: {unknown}\n");
        expect(&slotd, &format!("scontrol {verb} 999999"), 1, "", &text);
        let finished = "Job has already finished";
        let text = format!("{finished} for job {over}\nslurm_suspend error: {finished}\n");
        expect(&slotd, &format!("scontrol {verb} {over}"), 1, "", &text);
        expect(&slotd, &format!("scontrol {verb} {running}"), 0, "", "");
        expect(&slotd, &format!("scontrol -Q {verb} 999999"), 1, "", "");
    }
    expect(&slotd, "scontrol hold jobname=nosuch", 1, "", "scontrol: error: No jobs with name 'nosuch'\n");
    let text = format!("Job has already finished for job {over}\n");
    expect(&slotd, &format!("scontrol suspend {over}"), 1, "", &text);
}

#[test]
fn what_scontrol_shows_as_data_is_a_document() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let document = |what: &str| -> serde_json::Value {
        serde_json::from_str(&run(&slotd, &format!("scontrol show {what} --json")).ok().stdout).unwrap()
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
    let yaml = run(&slotd, "scontrol show step --yaml").ok().stdout;
    assert!(yaml.starts_with("%YAML 1.1\n---\n") && yaml.contains("\nsteps:\n"), "{yaml}");
    expect(&slotd, &format!("scontrol show step {job}.7 --json"), 1, "", &format!("Job step {job}.7 not found\n"));
    let refused = run(&slotd, "scontrol show hostnames a[1-2] --json");
    assert!(refused.code == 1 && refused.stdout.is_empty() && refused.stderr.contains("--json"), "{}", refused.stderr);
}

#[test]
fn tasks_of_an_array_that_were_changed_together_are_listed_one_by_one() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "1-6"], "true");
    run(&slotd, &format!("scontrol update job {array}_[2-3] JobName=n23")).ok();
    let lines = |words: &str| run(&slotd, &format!("squeue -h -S K -o %i|%A|%K|%j {words}")).ok().stdout;
    let line = |task: u32, name: &str| format!("{array}_{task}|{array}|{task}|{name}\n");
    let both = line(2, "n23") + &line(3, "n23");
    assert_eq!(lines(&format!("-j {array}_[2-3]")), both);
    assert_eq!(lines(&format!("-j {array}_3")), line(3, "n23"));
    let rest = format!("{array}_[1,4-6]|{array}|1,4-6|wrap\n");
    let all = lines(&format!("-j {array}"));
    assert!(all.contains(&both) && all.contains(&rest), "{all}");
    assert_eq!(lines("-r").lines().count(), 6);
}

#[test]
fn every_key_of_update_is_shown_by_show_job() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 4).start();
    // It waits for its time, whatever else is changed.
    let job = slotd.wrap(&["--begin=now+1hour", "-n", "2"], "true");
    let other = slotd.endless(&["-c", "2"]);
    let shown = |key: &str| {
        let out = run(&slotd, &format!("scontrol -o show job {job}")).ok();
        let find = |word: &&str| word.split_once('=').is_some_and(|(k, _)| k == key);
        out.text().split(' ').find(find).map_or("", |word| word.split_once('=').unwrap().1).to_owned()
    };
    let dependency = format!("afterany:{other}");
    for (change, key, value) in [
        ("JobName=renamed", "JobName", "renamed"),
        ("Name=x", "JobName", "x"),
        ("TimeLimit=2:00:00", "TimeLimit", "02:00:00"),
        ("Time=30", "TimeLimit", "00:30:00"),
        ("TimeLimit=+10", "TimeLimit", "00:40:00"),
        ("TimeLimit=-10", "TimeLimit", "00:30:00"),
        ("TimeMin=5", "TimeMin", "00:05:00"),
        ("Partition=gpu", "Partition", "gpu"),
        ("Priority=77", "Priority", "77"),
        ("Nice=5", "Nice", "5"),
        ("Comment=new", "Comment", "new"),
        ("Comment=", "Comment", ""),
        ("Account=lab", "Account", "lab"),
        ("Account=", "Account", "(null)"),
        ("QOS=high", "QOS", "high"),
        ("WCKey=key", "WCKey", "key"),
        ("Licenses=a:1", "Licenses", "a:1"),
        ("Reservation=r", "Reservation", "r"),
        ("MailUser=a@b", "MailUser", "a@b"),
        ("MailType=END", "MailType", "END"),
        (&format!("Dependency={dependency}"), "Dependency", &format!("{dependency}(unfulfilled)")),
        ("Dependency=", "Dependency", "(null)"),
        ("NumCPUs=4", "NumCPUs", "4"),
        ("NumTasks=1", "NumTasks", "1"),
        ("MinMemoryNode=50", "MinMemoryNode", "50M"),
        ("MinMemoryCPU=60", "MinMemoryCPU", "60M"),
        ("Gres=gpu:2", "TresPerNode", "gres:gpu:2"),
        ("TresPerJob=gpu:2", "TresPerJob", "gres:gpu:2"),
        ("TresPerTask=gpu:1", "TresPerTask", "gres:gpu:1"),
        ("WorkDir=/tmp", "WorkDir", "/tmp"),
        ("StdOut=/tmp/x", "StdOut", "/tmp/x"),
        ("Requeue=0", "Requeue", "0"),
        ("OverSubscribe=no", "OverSubscribe", "NO"),
        ("NumNodes=1", "NumNodes", "1"),
    ] {
        slotd.cmd("scontrol", &["update", &format!("JobId={job}"), change]).ok();
        assert_eq!(shown(key), value, "{change}");
    }
    for (change, text) in [
        ("Nonsense=1", "Update of this parameter is not supported: Nonsense=1\nRequest aborted\n".to_owned()),
        (
            "Partition=nopart",
            format!("invalid partition specified: nopart\nInvalid partition name specified for job {job}\n"),
        ),
        ("NumCPUs=99", format!("Requested partition configuration not available now for job {job}\n")),
        ("UserID=root", "No changes specified\n".to_owned()),
    ] {
        expect(&slotd, &format!("scontrol update JobId={job} {change}"), 1, "", &text);
    }
    expect(&slotd, "scontrol update JobId=999999 TimeLimit=5", 1, "", "Invalid job id specified for job 999999\n");
    expect(&slotd, "scontrol update", 1, "", "too few arguments for update keyword\n");
}

#[test]
fn listpids_names_the_processes_of_each_step() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'echo $$ > inner; exec sleep 1000'\n");
    let pid = slotd.wait_text("inner", "\n");
    let out = run(&slotd, &format!("scontrol listpids {job}")).ok();
    assert_eq!(out.lines()[0], "PID      JOBID    STEPID   LOCALID GLOBALID");
    let task =
        out.lines().iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| row[0] == pid.trim());
    assert_eq!(task.unwrap_or_else(|| panic!("{}", out.stdout))[1..], [job.to_string().as_str(), "0", "0", "0"]);
    assert!(out.lines().iter().any(|line| line.contains(" batch ")), "{}", out.stdout);
    let only = run(&slotd, &format!("scontrol listpids {job}.0")).ok();
    assert!(!only.stdout.contains("batch") && only.lines().len() > 1, "{}", only.stdout);
    run(&slotd, "scontrol listpids 999999").fails(1);
}

#[test]
fn wait_job_returns_when_the_job_has_its_node() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "exec sleep 1000");
    let waiting = slotd.spawn({
        let mut command = slotd.command("scontrol");
        command.args(["wait_job", &job.to_string()]);
        command
    });
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    let out = waiting.end().ok();
    assert_eq!(out.stderr, format!("scontrol: Nodes are ready for job {job}\n"));
    slotd.cancel(job);
    slotd.wait_end(job);
    run(&slotd, &format!("scontrol wait_job {job}")).fails(1);
    run(&slotd, "scontrol wait_job 999999").fails(1);
}

#[test]
fn a_huge_array_is_one_line_in_every_command() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "0-999999"], "true");
    expect(&slotd, "squeue -h -o %i", 0, &format!("{array}_[0-999999]\n"), "");
    assert_eq!(slotd.sacct(array, "jobid,state"), format!("{array}_[0-999999]|PENDING"));
    let out = run(&slotd, &format!("scontrol -o show job {array}_7")).ok();
    assert!(out.stdout.starts_with(&format!("JobId={array} ArrayJobId={array} ArrayTaskId=7 ")), "{}", out.stdout);
    assert!(out.stdout.contains(&format!("/slurm-{array}_7.out ")), "{}", out.stdout);
    // Its limit is the array's, and stands by itself.
    let limited = slotd.wrap(&["-H", "-a", "0-9%2"], "true");
    let out = run(&slotd, &format!("scontrol -o show job {limited}_7")).ok();
    assert!(out.stdout.contains(" ArrayTaskId=7 ArrayTaskThrottle=2 "), "{}", out.stdout);
    slotd.cmd("scancel", &[limited.to_string()]).ok();
    assert!(run(&slotd, "squeue --json").ok().stdout.len() < 10_000);
}

#[test]
fn wait_job_of_an_array_returns_with_its_first_task() {
    let mut slotd = Slotd::start();
    let array = slotd.submit(&["-H", "-a", "1-2", "--wrap", "exec sleep 1000"]);
    let waiting = slotd.spawn({
        let mut command = slotd.command("scontrol");
        command.args(["wait_job", &array.to_string()]);
        command
    });
    let heard = || slotd.cmd("sdiag", &[""; 0]).ok().stdout.contains("REQUEST_WAIT_START");
    slotd.wait("the daemon to hear of it", || heard().then_some(()));
    // A daemon that is restarted meanwhile is asked again.
    slotd.crash();
    slotd.cmd("scontrol", &["release", &array.to_string()]).ok();
    assert_eq!(waiting.end().ok().stderr, format!("scontrol: Nodes are ready for job {array}\n"));
    slotd.cancel(array);
}
