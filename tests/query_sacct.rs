//! sacct: the book's default view, Slurm's columns, records of jobs and steps, filters.

use slotd_kit::{Out, Setup, Slotd};

#[track_caller]
fn sacct(slotd: &Slotd, args: &[&str]) -> Out {
    slotd.cmd("sacct", args).ok()
}

fn words(line: &str) -> Vec<String> {
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn default_view_is_that_of_the_book() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-J", "first"], "true");
    slotd.wait_state(job, "COMPLETED");
    let out = sacct(&slotd, &[]);
    assert_eq!(
        words(out.lines()[0]),
        ["JobID", "Partition", "JobName", "User", "State", "ExitCode"]
    );
    let row = words(out.lines()[1]);
    assert_eq!(row[..3], [job.to_string(), "cpu".to_owned(), "first".to_owned()]);
    assert_eq!(row[4..], ["COMPLETED", "0:0"]);
}

#[test]
fn jobs_and_their_ends_are_visible_immediately() {
    let slotd = Slotd::start();
    for _ in 0..10 {
        let out =
            slotd.sh("id=$(sbatch --parsable -W --wrap 'exit 3'); sacct -nXP -j $id -o jobid,state,exitcode").ok();
        assert!(out.text().ends_with("|FAILED|3:0"), "{out:?}");
        let out =
            slotd.sh("id=$(sbatch --parsable -H --wrap true); sacct -nXP -j $id -o state").ok();
        assert_eq!(out.text(), "PENDING");
    }
}

#[test]
fn explicit_formats_match_slurm() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-J", "bad"], "exit 5");
    slotd.wait_state(job, "FAILED");
    let id = job.to_string();
    assert_eq!(
        sacct(&slotd, &["-j", &id, "-o", "JobID,JobName%20,State%12,ExitCode"]).stdout,
        format!(
            "JobID                     JobName        State ExitCode \n\
             ------------ -------------------- ------------ -------- \n\
             {job:<12} {:>20} {:>12} {:>8} \n{:<12} {:>20} {:>12} {:>8} \n",
            "bad",
            "FAILED",
            "5:0",
            format!("{job}.batch"),
            "batch",
            "FAILED",
            "5:0"
        )
    );
    let expected = format!("{job}|FAILED|5:0\n{job}.batch|FAILED|5:0\n");
    assert_eq!(sacct(&slotd, &["-nP", "-j", &id, "-o", "jobid,state,exitcode"]).stdout, expected);
    assert_eq!(
        sacct(&slotd, &["-n", "--parsable2", "--jobs", &id, "--format=jobid,state,exitcode"])
            .stdout,
        expected
    );
    assert_eq!(
        sacct(&slotd, &["-np", "-X", "-j", &id, "-o", "jobid,state"]).stdout,
        format!("{job}|FAILED|\n")
    );
    assert_eq!(
        sacct(&slotd, &["-nP", "--delimiter=,", "-X", "-j", &id, "-o", "jobid,state"]).text(),
        format!("{job},FAILED")
    );
    assert_eq!(
        sacct(&slotd, &["-P", "-X", "-j", &id, "-o", "jobid,state"]).lines()[0],
        "JobID|State"
    );
    let cut = sacct(&slotd, &["-n", "-X", "-j", &id, "-o", "JobName%2,State%-10"]);
    assert_eq!(cut.stdout, "b+ FAILED     \n");
}

#[test]
fn all_fields_of_the_book_exist() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-c", "2", "--mem", "1G"], "true");
    let record = slotd.wait_state(job, "COMPLETED");
    let ran = (record.end() - record.start()) / 1_000_000;
    let one = |field: &str| {
        sacct(&slotd, &["-nPX", "-j", &job.to_string(), "-o", field]).text().to_owned()
    };
    for (field, value) in [
        ("JobID", job.to_string()),
        ("ArrayJobID", String::new()),
        ("ArrayTaskID", String::new()),
        ("JobName", "wrap".into()),
        ("Partition", "cpu".into()),
        ("State", "COMPLETED".into()),
        ("Reason", "None".into()),
        ("ExitCode", "0:0".into()),
        ("Elapsed", format!("00:{:02}:{:02}", ran / 60, ran % 60)),
        ("AllocCPUS", "2".into()),
        ("ReqMem", "1G".into()),
        ("WorkDir", slotd.work().display().to_string()),
        ("User", slotd.sh("id -un").ok().text().to_owned()),
    ] {
        // Fields without a value in a plain job only need to exist.
        let got = one(field);
        assert!(value.is_empty() || got == value, "{field}: {got:?} is not {value:?}");
    }
    for field in ["ReqTRES", "AllocTRES"] {
        assert!(
            one(field).contains("cpu=2") && one(field).contains("mem=1G"),
            "{field}: {}",
            one(field)
        );
    }
    for field in ["Submit", "Start", "End"] {
        assert!(one(field).starts_with("20") && one(field).len() == 19, "{field}: {}", one(field));
    }
    for field in ["NodeList", "BatchFlag"] {
        assert_ne!(one(field), "", "{field}");
    }
    one("MaxRSS");
    for field in [
        "TotalCPU",
        "UserCPU",
        "SystemCPU",
        "CPUTimeRAW",
        "ElapsedRaw",
        "Timelimit",
        "Eligible",
        "DerivedExitCode",
        "SubmitLine",
        "AllocNodes",
        "NTasks",
        "Comment",
        "JobIDRaw",
        "NNodes",
        "QOS",
        "Account",
        "Cluster",
        "Priority",
    ] {
        one(field);
    }
}

#[test]
fn percent_codes_of_the_book_are_accepted() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-J", "nm"], "true");
    slotd.wait_state(job, "COMPLETED");
    let id = job.to_string();
    assert_eq!(
        sacct(&slotd, &["-nX", "-j", &id, "-o", "%i %j %P %T"]).text().trim_end(),
        format!("{job} nm cpu COMPLETED")
    );
    for code in [
        "%i", "%F", "%K", "%j", "%P", "%u", "%t", "%T", "%R", "%X", "%M", "%C", "%m", "%b", "%B",
        "%N", "%V", "%S", "%E", "%Z",
    ] {
        sacct(&slotd, &["-nX", "-j", &id, "-o", code]);
    }
}

#[test]
fn unknown_field_is_an_error_without_a_daemon() {
    let slotd = Slotd::setup().prepare();
    let out = slotd.cmd("sacct", &["--format=nosuch"]).fails(1);
    assert!(
        out.stderr.starts_with("sacct: error: Invalid field requested: \"nosuch\"\n"),
        "{}",
        out.stderr
    );
}

#[test]
fn steps_have_the_account_and_the_eligible_time_of_their_job() {
    let slotd = Slotd::start();
    let job = slotd.script(&["-A", "lab"], "#!/bin/sh\nsrun true\n");
    slotd.wait_state(job, "COMPLETED");
    let out = sacct(&slotd, &["-nP", "-j", &job.to_string(), "-o", "account,eligible,constraints"]);
    let rows: Vec<&str> = out.lines();
    assert!(rows.len() == 3 && rows[0].starts_with("lab|20"), "{rows:?}");
    assert!(rows.iter().all(|row| *row == rows[0]), "{rows:?}");
}

#[test]
fn steps_are_listed_below_their_job() {
    let slotd = Slotd::start();
    let job =
        slotd.script(&["-n", "1"], "#!/bin/sh\nsrun true\nsrun -J named sh -c 'exit 7'\nexit 0\n");
    slotd.wait_state(job, "COMPLETED");
    let id = job.to_string();
    let out = sacct(&slotd, &["-nP", "-j", &id, "-o", "jobid,jobname,state,exitcode"]);
    let rows: Vec<&str> = out.lines();
    assert_eq!(
        rows,
        [
            format!("{job}|job.sh|COMPLETED|0:0"),
            format!("{job}.batch|batch|COMPLETED|0:0"),
            format!("{job}.0|true|COMPLETED|0:0"),
            format!("{job}.1|named|FAILED|7:0"),
        ]
    );
    assert_eq!(
        sacct(&slotd, &["-nPX", "-j", &id, "-o", "jobid,derivedexitcode"]).text(),
        format!("{job}|7:0")
    );
    assert_eq!(
        sacct(&slotd, &["-nP", "-j", &format!("{job}.1"), "-o", "jobid,state"]).text(),
        format!("{job}.1|FAILED")
    );
    assert_eq!(
        sacct(&slotd, &["-nP", "-j", &format!("{job}.batch"), "-o", "jobid"]).text(),
        format!("{job}.batch")
    );
}

#[test]
fn allocations_have_records_too() {
    let slotd = Slotd::start();
    slotd.cmd("salloc", &["-Q", "-J", "sess", "sh", "-c", "srun true"]).ok();
    slotd.wait_end(1);
    let out = sacct(&slotd, &["-nP", "-j", "1", "-o", "jobid,jobname,state"]);
    assert_eq!(out.lines()[0], "1|sess|COMPLETED");
    assert!(out.stdout.contains("1.0|true|COMPLETED\n"), "{}", out.stdout);
    slotd.cmd("srun", &["-J", "run", "true"]).ok();
    slotd.wait_end(2);
    let out = sacct(&slotd, &["-nP", "-j", "2", "-o", "jobid,jobname,state"]);
    assert_eq!(out.stdout, "2|run|COMPLETED\n2.0|run|COMPLETED\n");
}

#[test]
fn array_tasks_are_shown_by_array_and_index() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "1-3"], "exit $((SLURM_ARRAY_TASK_ID - 1))");
    slotd.wait_array(job, 3);
    let out = sacct(
        &slotd,
        &["-nXP", "-j", &job.to_string(), "-o", "jobid,state,exitcode,arrayjobid,arraytaskid"],
    );
    let mut rows = out.lines();
    rows.sort_unstable();
    assert_eq!(
        rows,
        [
            format!("{job}_1|COMPLETED|0:0|{job}|1"),
            format!("{job}_2|FAILED|1:0|{job}|2"),
            format!("{job}_3|FAILED|2:0|{job}|3")
        ]
    );
    assert_eq!(
        sacct(&slotd, &["-nXP", "-j", &format!("{job}_2"), "-o", "jobid"]).text(),
        format!("{job}_2")
    );
}

#[test]
fn filters_select_records() {
    let slotd = Slotd::start();
    let good = slotd.wrap(&["-J", "good"], "true");
    let bad = slotd.wrap(&["-J", "bad"], "false");
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    slotd.wait_end(good);
    slotd.wait_end(bad);
    let ids = |args: &[&str]| {
        sacct(&slotd, &[&["-nXP", "-o", "jobid"], args].concat())
            .lines()
            .iter()
            .map(|id| id.parse().unwrap())
            .collect::<Vec<u32>>()
    };
    assert_eq!(ids(&[]), [good, bad, held]);
    assert_eq!(ids(&["-s", "F", "-j", &format!("{good},{bad},{held}")]), [bad]);
    assert_eq!(ids(&["-s", "FAILED,CD", "-S", "now-1hour", "-E", "now+1minute"]), [good, bad]);
    assert_eq!(ids(&["--name=bad,held"]), [bad, held]);
    assert_eq!(ids(&["-p", "nopart"]), [] as [u32; 0]);
    assert_eq!(ids(&["-p", "cpu"]), [good, bad, held]);
    assert_eq!(ids(&["-j", &good.to_string(), "-j", &held.to_string()]), [good, held]);
    let me = slotd.sh("id -un").ok().text().to_owned();
    assert_eq!(sacct(&slotd, &["-XPnu", &me, "-o", "jobid"]).lines().len(), 3);
    assert_eq!(ids(&["-S", "now-1hour"]).len(), 3);
    assert_eq!(ids(&["-S", "2001-01-01", "-E", "2001-01-02"]), [] as [u32; 0]);
    // In Slurm, an empty list for these options matches nothing, and for the others it is ignored.
    for option in ["--name=", "--name=,", "--partition=", "--accounts=", "--qos=", "--nodelist="] {
        assert_eq!(ids(&[option]), [] as [u32; 0], "{option}");
    }
    for option in ["--jobs=", "--jobs=,", "--state=", "--wckeys=", "--reason=", "--constraints="] {
        assert_eq!(ids(&[option]), [good, bad, held], "{option}");
    }
    for option in ["--user=", "--user=,", "--group="] {
        slotd.cmd("sacct", &[option]).fails(1);
    }
}

#[test]
fn window_until_now_includes_the_current_second() {
    let slotd = Slotd::start();
    // Slurm counts whole seconds: a job submitted and queried within the same second is in the
    // window.
    for _ in 0..6 {
        let job = slotd.wrap(&["-H"], "true").to_string();
        let out = sacct(&slotd, &["-nXP", "-S", "now-1hour", "-E", "now", "-o", "jobid"]);
        assert!(out.lines().contains(&job.as_str()), "job {job} is not among {:?}", out.lines());
    }
}

#[test]
fn invalid_values_print_slurms_errors() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sacct", &["-j", "999999", "-o", "jobid"]).ok();
    assert_eq!(out.lines().len(), 2);
    let out = slotd.cmd("sacct", &["-j", "abc"]).fails(1);
    assert_eq!(out.stderr, "sacct: fatal: Bad job/step specified: abc\n");
    let out = slotd.cmd("sacct", &["-s", "bogus"]).fails(1);
    let text = "sacct: fatal: unrecognized job state value 'bogus'\n  hint: states: PENDING, ";
    assert!(out.stderr.starts_with(text), "{}", out.stderr);
    let out = slotd.cmd("sacct", &["-u", "nosuchuser"]).fails(1);
    assert_eq!(out.stderr, "sacct: error: Invalid user id: nosuchuser\n");
    let out = slotd.cmd("sacct", &["-S", "foo"]).fails(1);
    assert!(out.stderr.contains("Invalid time specification (pos=0): foo"), "{}", out.stderr);
    let out = slotd.cmd("sacct", &["-S", "2026-01-02", "-E", "2026-01-01"]).fails(1);
    assert!(out.stderr.contains("requested is after end time"), "{}", out.stderr);
}

#[test]
fn states_are_spelled_like_slurms() {
    let slotd = Slotd::start();
    let cancelled = slotd.endless(&[]);
    slotd.cancel(cancelled);
    slotd.wait_end(cancelled);
    let uid = slotd.sh("id -u").ok().text().to_owned();
    assert_eq!(slotd.sacct(cancelled, "state,exitcode"), format!("CANCELLED by {uid}|0:0"));
    let killed = slotd.wrap(&[], "kill -9 $$");
    slotd.wait_end(killed);
    assert_eq!(slotd.sacct(killed, "state,exitcode"), "FAILED|0:9");
}

#[test]
fn usage_of_a_job_is_measured() {
    let slotd = Slotd::start();
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; head -c 60000000 /dev/zero | tail -c 50000000 > /dev/null";
    let job = slotd.wrap(&[], script);
    slotd.wait_state(job, "COMPLETED");
    let step = sacct(&slotd, &["-nP", "-j", &format!("{job}.batch"), "-o", "maxrss,totalcpu"]);
    let (rss, cpu) = step.text().split_once('|').unwrap();
    let kb: f64 = rss.trim_end_matches(['K', 'M', 'G']).parse().unwrap();
    let kb = if rss.ends_with('M') { kb * 1024.0 } else { kb };
    assert!(kb > 40_000.0, "MaxRSS={rss}");
    assert_ne!(cpu, "00:00:00", "TotalCPU={cpu}");
}

#[test]
fn cancelled_script_that_caught_the_signal_shows_its_code_but_the_job_shows_none() {
    // Both end by themselves, however late they receive the signal.
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    for (code, shown) in [(0, "COMPLETED|0:0"), (9, "FAILED|9:0")] {
        // A step that fails because of the signal does not affect the state of its job.
        let script = format!(
            "#!/bin/sh\ntrap 'wait; exit {code}' TERM\n\
             srun sh -c 'trap \"exit 3\" TERM; echo > begun.{code}; while :; do sleep 0.03; done' &\n\
             while :; do sleep 0.03; done\n"
        );
        let job = slotd.script(&[], &script);
        slotd.wait_text(&format!("begun.{code}"), "\n");
        slotd.cancel(job);
        slotd.wait_end(job);
        let out = sacct(
            &slotd,
            &["-nP", "-j", &job.to_string(), "-o", "jobid,state%9,exitcode,derivedexitcode"],
        );
        let lines = out.lines();
        assert!(
            lines[0].starts_with(&format!("{job}|CANCELLED")) && lines[0].ends_with("|0:0|0:0"),
            "{out:?}"
        );
        assert_eq!(lines[1], format!("{job}.batch|{shown}|"));
        assert_eq!(lines[2], format!("{job}.0|FAILED|3:0|"));
    }
}

/// Parses a size such as `40000K` or `1.50M`. Returns KiB.
fn kib(text: &str) -> f64 {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let number: f64 = number.parse().unwrap_or_else(|_| panic!("not a size: {text:?}"));
    match unit {
        "K" => number,
        "M" => number * 1024.0,
        "G" => number * 1024.0 * 1024.0,
        _ => panic!("not a size: {text:?}"),
    }
}

#[test]
fn tasks_are_measured_separately() {
    let mut slotd = Slotd::start();
    // The shell of task 1 holds 40 MB, which its children piped to it.
    let task = format!(
        "[ $SLURM_PROCID = 0 ] || x=$(head -c 40000000 /dev/zero | tr '\\0' a); echo > ready.$SLURM_PROCID; {}",
        slotd.gate("go")
    );
    let task = slotd.program("task", &format!("#!/bin/sh\n{task}\n"));
    let job = slotd.wrap(&["-n2"], &format!("srun -n2 {}", task.display()));
    for rank in [0, 1] {
        slotd.wait_text(&format!("ready.{rank}"), "\n");
    }
    let now = slotd
        .cmd("sstat", &["-nP", "-j", &format!("{job}.0"), "-o", "maxvmsize,maxvmsizetask"])
        .ok();
    let (vm, rank) = now.text().split_once('|').unwrap();
    assert!(kib(vm) > 40_000.0 && rank == "1", "{now:?}");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    slotd.crash();

    let of_step =
        |fields: &str| slotd.cmd("sacct", &["-nP", "-j", &format!("{job}.0"), "-o", fields]).ok();
    let out = of_step(
        "maxvmsize,avevmsize,maxdiskread,avediskread,maxvmsizetask,maxdiskreadtask,maxpages",
    );
    let cells = words(out.text());
    let [vm, mean_vm, read, mean_read] = [0, 1, 2, 3].map(|i| kib(&cells[i]));
    assert!(vm > 40_000.0 && mean_vm < vm && mean_vm * 2.0 > vm, "{out:?}");
    // head, tr and the shell each read it.
    assert!(read > 3.0 * 39_000.0 && mean_read < read, "{out:?}");
    assert_eq!(cells[4..6], ["1", "1"], "{out:?}");
    assert!(cells[6].parse::<u64>().is_ok(), "{out:?}");
    assert_eq!(slotd.sacct(job, "maxvmsize,avevmsize,maxdiskread,maxpages"), "|||");
    let json: serde_json::Value =
        serde_json::from_str(&slotd.cmd("sacct", &["--json", "-j", &job.to_string()]).ok().stdout)
            .unwrap();
    let steps = json["jobs"][0]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["step"]["id"] == 0).unwrap();
    let most = step["tres"]["requested"]["max"].as_array().unwrap();
    let vmem = most.iter().find(|tres| tres["type"] == "vmem").unwrap();
    assert_eq!(vmem["count"].as_f64().unwrap(), vm * 1024.0);
}

#[test]
fn earlier_runs_of_a_requeued_job_are_duplicates() {
    let mut slotd = Slotd::start();
    let gate = slotd.gate("go");
    let script = format!("srun true; echo > begun.$SLURM_RESTART_COUNT; {gate}");
    let job = slotd.wrap(&[], &script);
    slotd.wait_text("begun.", "\n");
    slotd.cmd("scontrol", &["requeue", &job.to_string()]).ok();
    slotd.wait_text("begun.1", "\n");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    slotd.crash();
    let id = job.to_string();
    let of = |args: &[&str]| {
        let args = [&["-nP", "-j", &id, "-o", "jobid,state,exitcode,restarts"], args].concat();
        sacct(&slotd, &args).lines().iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()
    };
    let present = [
        format!("{id}|COMPLETED|0:0|1"),
        format!("{id}.batch|COMPLETED|0:0|"),
        format!("{id}.0|COMPLETED|0:0|"),
    ];
    assert_eq!(of(&[]), present);
    let earlier = [
        format!("{id}|REQUEUED|0:0|0"),
        format!("{id}.batch|CANCELLED|0:15|"),
        format!("{id}.0|COMPLETED|0:0|"),
    ];
    assert_eq!(of(&["-D"]), [earlier, present].concat());
    let json: serde_json::Value =
        serde_json::from_str(&slotd.cmd("sacct", &["-D", "--json", "-j", &id]).ok().stdout)
            .unwrap();
    let states: Vec<_> =
        json["jobs"].as_array().unwrap().iter().map(|job| &job["state"]["current"]).collect();
    assert_eq!(states, ["REQUEUED", "COMPLETED"]);
}

#[test]
fn history_survives_a_restart() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&["-J", "old"], "exit 2");
    slotd.wait_end(job);
    let before =
        slotd.sacct(job, "jobid,jobname,state,exitcode,submit,start,end,workdir,submitline");
    slotd.crash();
    assert_eq!(
        slotd.sacct(job, "jobid,jobname,state,exitcode,submit,start,end,workdir,submitline"),
        before
    );
}

#[test]
fn json_is_valid_and_lists_each_job() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "exit 3");
    slotd.wait_end(job);
    let json: serde_json::Value = serde_json::from_str(&sacct(&slotd, &["--json"]).stdout).unwrap();
    assert_eq!(json["jobs"][0]["job_id"], job);
}

#[test]
fn slurms_columns_can_be_the_default() {
    let slotd = Slotd::start();
    let mut command = slotd.command("sacct");
    command.env("SLOTD_OUTPUT", "slurm");
    let out = slotd.run(command).ok();
    assert_eq!(
        out.lines()[0],
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode "
    );
}

#[test]
fn persisted_records_are_batch_jobs_allocations_array_tasks_and_steps() {
    let mut slotd = Slotd::start();
    let batch = slotd.wrap(&[], "true");
    slotd.wait_state(batch, "COMPLETED");
    let array = slotd.wrap(&["-a", "3"], "true");
    slotd.wait_array(array, 1);
    slotd.cmd("salloc", &["srun", "true"]).ok();
    let allocation = array + 1;
    slotd.wait_state(allocation, "COMPLETED");
    slotd.crash();
    let all = slotd.cmd("sacct", &["-n", "-P", "-o", "JobID,JobName,State"]).ok();
    for line in [
        format!("{batch}|wrap|COMPLETED"),
        format!("{array}_3|wrap|COMPLETED"),
        format!("{allocation}|interactive|COMPLETED"),
        format!("{allocation}.0|true|COMPLETED"),
    ] {
        assert!(all.lines().contains(&line.as_str()), "{line} in {}", all.stdout);
    }
}

#[test]
fn out_of_memory_is_a_valid_state() {
    // Jobs only get this state with a cgroup. Tests of the scheduler and the views cover how it is
    // stored and shown.
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("sacct", &["-n", "-s", "OUT_OF_MEMORY"]).ok().stdout, "");
}

#[test]
fn array_tasks_are_sorted_by_index() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-a", "1-3"], "exit $((SLURM_ARRAY_TASK_ID - 1))");
    let after = slotd.wrap(&[], "true");
    slotd.wait_array(array, 3);
    slotd.wait_end(after);
    // G-19. One task, whichever it is, has the array's ID.
    let out = slotd.line("sacct -nXP -o jobid,state,exitcode").ok();
    let expected = [
        format!("{array}_1|COMPLETED|0:0"),
        format!("{array}_2|FAILED|1:0"),
        format!("{array}_3|FAILED|2:0"),
        format!("{after}|COMPLETED|0:0"),
    ];
    assert_eq!(out.lines(), expected);
    let raw = slotd.line(&format!("sacct -nXP -o jobidraw -j {array}")).ok();
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
    slotd.expect(
        &format!("sacct -B -j {job}"),
        0,
        &format!("Batch Script for {job}\n{rule}\n{script}\n"),
        "",
    );
    let out = slotd.line(&format!("sacct --env-vars -j {job}")).ok();
    assert!(
        out.stdout.starts_with(&format!("Environment used for {job}\n{rule}\n")),
        "{}",
        out.stdout
    );
    assert!(out.lines().contains(&"MARK=a b"), "{}", out.stdout);
}

#[test]
fn unknown_jobs_print_only_the_header() {
    let slotd = Slotd::start();
    let header = "JobID             State \n------------ ---------- \n";
    slotd.expect("sacct -j 999999 -o jobid,state", 0, header, "");
    slotd.expect("sacct -nX -j 999999.0 --format=Reason --noheader", 0, "", "");
    slotd.expect("sacct -j abc", 1, "", "sacct: fatal: Bad job/step specified: abc\n");
    let out = slotd.cmd("sacct", &["-s", "bogus"]).fails(1);
    assert!(
        out.stderr.starts_with("sacct: fatal: unrecognized job state value 'bogus'\n  hint: "),
        "{}",
        out.stderr
    );
    let hint = "  hint: now-2days, today, noon, 14:30, 12/31, 2026-12-31, 2026-12-31T23:59\n";
    slotd.expect(
        "sacct -S foo",
        1,
        "",
        &format!("Invalid time specification (pos=0): foo\n{hint}"),
    );
    slotd.expect("sacct -u nosuchuser", 1, "", "sacct: error: Invalid user id: nosuchuser\n");
    slotd.expect("sacct --nosuch", 1, "", "sacct: unrecognized option '--nosuch'\n");
}

#[test]
fn state_filter_applies_to_current_states() {
    let slotd = Slotd::start();
    let failed = slotd.wrap(&[], "exit 3");
    slotd.wait_end(failed);
    let running = slotd.endless(&[]);
    let found = |words: &[&str]| {
        slotd.cmd("sacct", &[&["-n", "-P", "-X", "-o", "JobID"], words].concat()).ok().stdout
    };
    assert_eq!(found(&["-s", "FAILED"]), format!("{failed}\n"));
    assert_eq!(found(&["-s", "RUNNING"]), format!("{running}\n"));
    assert_eq!(found(&["-s", "COMPLETED"]), "");
    assert_eq!(found(&["-s", "FAILED", "-j", &failed.to_string()]), format!("{failed}\n"));
    // With a given window, the filter applies to the states that jobs had in it.
    assert_eq!(found(&["-s", "RUNNING", "-S", "now-1hours"]), format!("{failed}\n{running}\n"));
}

#[test]
fn array_option_lists_pending_tasks_one_by_one() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H", "-a", "2-4"], "true");
    let ids = |args: &[&str]| {
        let out = sacct(&slotd, &[&["-nXP", "-o", "jobid,state"], args].concat());
        out.stdout.replace(&job.to_string(), "J").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["J_[2-4]|PENDING"]);
    assert_eq!(ids(&["--array"]), ["J_2|PENDING", "J_3|PENDING", "J_4|PENDING"]);
}

#[test]
fn time_limit_filters_match_slurms_man_page() {
    let slotd = Slotd::start();
    let [one, five, none] =
        [&["-H", "-t", "1"][..], &["-H", "-t", "5"], &["-H"]].map(|args| slotd.wrap(args, "true"));
    let ids = |args: &[&str]| -> Vec<u32> {
        let out = sacct(&slotd, &[&["-nXP", "-o", "jobid"], args].concat());
        out.lines().iter().map(|id| id.parse().unwrap()).collect()
    };
    assert_eq!(ids(&["-k", "1"]), [one], "exactly this limit");
    assert_eq!(ids(&["-k", "1", "-K", "5"]), [one, five], "a range");
    assert_eq!(ids(&["-k", "2", "-K", "9"]), [five]);
    assert_eq!(ids(&["-K", "1"]), [one, five, none], "without effect unless -k is given");
}

#[test]
fn option_x_shows_the_job_of_a_named_step_and_steps_show_their_gpus() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let script = "srun --gres=gpu:1 true; srun true; srun --gres=none true";
    let job = slotd.wrap(&["--gres=gpu:2", "--mem", "100"], script);
    slotd.wait_state(job, "COMPLETED");
    for step in ["batch", "0"] {
        let out = sacct(&slotd, &["-nXP", "-j", &format!("{job}.{step}"), "-o", "jobid"]);
        assert_eq!(out.text(), job.to_string(), "{step}");
    }
    let out = sacct(&slotd, &["-nP", "-j", &job.to_string(), "-o", "jobid,alloctres"]);
    let gpus = |step: &str, gpus: &str| format!("{job}{step}|{gpus}");
    let want = [
        gpus("", "billing=1,cpu=1,gres/gpu=2,mem=100M,node=1"),
        gpus(".batch", "cpu=1,gres/gpu=2,mem=100M,node=1"),
        gpus(".0", "cpu=1,gres/gpu=1,mem=100M,node=1"),
        gpus(".1", "cpu=1,gres/gpu=2,mem=100M,node=1"),
        gpus(".2", "cpu=1,mem=100M,node=1"),
    ];
    assert_eq!(out.lines(), want);
}

/// Long answers have parts. Jobs that have never run come from memory, others from the database.
#[test]
fn a_long_list_has_waiting_and_ended_jobs() {
    let slotd = Slotd::start();
    let many = "for n in $(seq 1100); do echo '{\"wrap\": \"true\"}'; done | slotd submit -H >ids";
    slotd.sh(many).ok();
    // The first part ends before 600.
    slotd.sh("scancel 600 1090; scontrol release 700; scontrol update JobId=1000 Name=named").ok();
    slotd.wait_state(700, "COMPLETED");
    slotd.sh("scontrol requeuehold 700").ok();
    slotd.wait_state(700, "PENDING");
    let lines = |args: &str| -> Vec<String> {
        let format = "sacct -n -P -X -o jobid,jobname,state";
        let out = slotd.sh(&format!("{format} {args}")).ok();
        out.lines().iter().map(|line| (*line).to_owned()).collect()
    };
    let all = lines("");
    let ids: Vec<u32> =
        all.iter().map(|line| line.split('|').next().unwrap().parse().unwrap()).collect();
    assert_eq!(ids, (1..=1100).collect::<Vec<u32>>());
    assert_eq!(all[599], format!("600|wrap|CANCELLED by {}", nix::unistd::getuid()));
    assert_eq!(all[999], "1000|named|PENDING");
    assert_eq!(all[699], "700|wrap|PENDING");
    assert_eq!(lines("-s CA").len(), 2);
    assert_eq!(lines("-s PD").len(), 1098);
    assert_eq!(lines("--name named"), ["1000|named|PENDING"]);
    // Earlier runs are only in the database.
    assert_eq!(lines("-D").iter().filter(|line| line.starts_with("700|")).count(), 2);
}

#[test]
fn derived_exit_code_prefers_an_exit_status_to_a_signal() {
    let slotd = Slotd::start();
    let steps = |slotd: &Slotd, script: &str| {
        let job = slotd.wrap(&[], script);
        slotd.wait_state(job, "COMPLETED");
        let shown = slotd.line(&format!("scontrol show job -d -o {job}")).ok().stdout;
        let word = format!(" DerivedExitCode={} ", slotd.sacct(job, "DerivedExitCode"));
        assert!(shown.contains(&word), "{word}: {shown}");
        slotd.sacct(job, "ExitCode,DerivedExitCode")
    };
    let (one, killed) = ("srun sh -c 'exit 1'", "srun sh -c 'kill -9 $$'");
    assert_eq!(steps(&slotd, &format!("{killed}; true")), "0:0|0:9");
    assert_eq!(steps(&slotd, &format!("{killed}; {one}; true")), "0:0|1:0");
    assert_eq!(steps(&slotd, &format!("{one}; {killed}; true")), "0:0|1:0");
}

#[test]
fn step_that_a_signal_ended_is_cancelled_and_names_its_canceller() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "srun sh -c 'kill -9 $$'; srun sh -c 'exit 3'; true");
    slotd.wait_state(job, "COMPLETED");
    let shown = slotd.steps(job, "JobID,State,ExitCode,ReqNodes");
    assert_eq!(
        shown,
        format!(
            "{job}|COMPLETED|0:0|1\n{job}.batch|COMPLETED|0:0|1\n{job}.0|CANCELLED|0:9|1\n\
             {job}.1|FAILED|3:0|1"
        )
    );
    let job = slotd.wrap(&[], "srun sh -c 'echo up > up; exec sleep 1000'; true");
    slotd.wait_text("up", "up");
    slotd.cmd("scancel", &[&format!("{job}.0")]).ok();
    slotd.wait_state(job, "COMPLETED");
    let state = slotd.cmd("sacct", &["-nPj", &format!("{job}.0"), "-o", "State,ExitCode"]).ok();
    assert_eq!(state.stdout, format!("CANCELLED by {}|0:15\n", nix::unistd::getuid()));
}
