//! squeue: the book's views, Slurm's formats, filters, exit codes.

#[path = "query_squeue/decoded.rs"]
mod decoded;
#[path = "query_squeue/measures.rs"]
mod measures;
#[path = "query_squeue/terminal.rs"]
mod terminal;

use expect_test::expect_file;
use slotd_kit::{Out, Setup, Slotd};
use std::fmt::Display;

fn words(line: &str) -> Vec<String> {
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[track_caller]
fn squeue(slotd: &Slotd, args: &[&str]) -> Out {
    slotd.cmd("squeue", args).ok()
}

/// Starts a daemon with one running, one pending and one held job, with different names.
fn queue() -> (Slotd, [u32; 3]) {
    let slotd = Slotd::start();
    let running =
        slotd.endless(&["-J", "runner", "-c", "3", "-t", "30", "--mem", "1G", "--comment", "hi"]);
    let pending = slotd
        .wrap(&["-J", "a-very-long-job-name", "-c", "2", "-t", "1-02:03:04", "-n", "2"], "true");
    let held = slotd.wrap(&["-J", "held", "-H"], "true");
    slotd.wait_reason(pending, "Resources");
    (slotd, [running, pending, held])
}

#[test]
fn default_view_is_that_of_the_book() {
    let (slotd, [running, pending, held]) = queue();
    let out = squeue(&slotd, &[]);
    let lines = out.lines();
    assert_eq!(
        words(lines[0]),
        ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODELIST(REASON)"]
    );
    assert_eq!(lines.len(), 4);
    let row = |id: u32| {
        let found = lines.iter().map(|line| words(line)).find(|cells| cells[0] == id.to_string());
        found.unwrap_or_else(|| panic!("{}", out.stdout))
    };
    assert_eq!(row(running)[1..3], ["cpu", "runner"]);
    assert_eq!(row(running)[4], "R");
    assert_eq!(row(pending)[4..], ["PD", "0:00", "(Resources)"]);
    assert_eq!(row(held)[4..], ["PD", "0:00", "(JobHeldUser)"]);
    // Every line is as wide as the header, so that the columns are aligned.
    let bars = |line: &str| line.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>();
    assert!(lines.iter().all(|line| bars(line) == bars(lines[0])), "{}", out.stdout);
}

#[test]
fn long_and_start_views_are_those_of_the_book() {
    let (slotd, [_, pending, _]) = queue();
    let long = squeue(&slotd, &["-l"]);
    let header = "JOBID | PARTITION | NAME | USER | ST | TIME | TIME_LIMIT | NTASKS | CPUS | REQ_MEM | REQ_GPU | NODELIST(REASON)";
    assert_eq!(words(long.lines()[0]), words(header));
    let row = long
        .lines()
        .iter()
        .map(|l| words(l))
        .find(|cells| cells[0] == pending.to_string())
        .unwrap();
    assert_eq!(row[6..9], ["1-02:04:00", "2", "4"]);
    let start = squeue(&slotd, &["--start"]);
    let header = "JOBID | PARTITION | NAME | USER | ST | START_TIME | NODELIST(REASON)";
    assert_eq!(words(start.lines()[0]), words(header));
}

#[test]
fn start_view_shows_the_planned_start() {
    let (slotd, [running, pending, _]) = queue();
    let end = squeue(&slotd, &["-h", "-j", &running.to_string(), "-o", "%e"]);
    let start = squeue(&slotd, &["--start", "-h", "-j", &pending.to_string(), "-o", "%S"]);
    assert_eq!(start.text(), end.text());
}

#[test]
fn percent_formats_match_slurm_exactly() {
    let (slotd, [running, pending, _]) = queue();
    let (r, p) = (running.to_string(), pending.to_string());
    let both = format!("{r},{p}");
    let show = |format: &str| squeue(&slotd, &["-S", "i", "-j", &both, "-o", format]).stdout;
    assert_eq!(
        show("%i|%j|%t"),
        format!("JOBID|NAME|ST\n{r}|runner|R\n{p}|a-very-long-job-name|PD\n")
    );
    assert_eq!(
        show("%10i<%.10j>%3t%5D"),
        format!(
            "JOBID     <      NAME>ST NODES\n{r:<10}<    runner>R  1    \n{p:<10}<a-very-lon>PD 1    \n"
        )
    );
    assert_eq!(
        show("%.18i %.9P %.8j %.2t %.6D").lines().next().unwrap(),
        "             JOBID PARTITION     NAME ST  NODES"
    );
    assert_eq!(show("plain text"), "plain text\n".repeat(3));
    let one = |code: &str| squeue(&slotd, &["-h", "-j", &r, "-o", code]).text().to_owned();
    for (code, value) in [
        ("%A", r.as_str()),
        ("%C", "3"),
        ("%D", "1"),
        ("%F", &r),
        ("%K", "N/A"),
        ("%P", "cpu"),
        ("%T", "RUNNING"),
        ("%Z", &slotd.work().display().to_string()),
        ("%a", "(null)"),
        ("%h", "OK"),
        ("%k", "hi"),
        ("%l", "30:00"),
        ("%m", "1G"),
        ("%q", "normal"),
        ("%r", "None"),
        ("%v", "(null)"),
        ("%y", "0"),
    ] {
        assert_eq!(one(code), value, "{code}");
    }
    assert_eq!(one("%u"), slotd.sh("id -un").ok().text());
    assert_eq!(one("%U"), slotd.sh("id -u").ok().text());
    assert_eq!(one("%R"), one("%N"));
}

#[test]
fn option_o_accepts_the_field_names_of_the_book() {
    let (slotd, [running, ..]) = queue();
    let out = squeue(
        &slotd,
        &[
            "-j",
            &running.to_string(),
            "-o",
            "JobID,JobName,State,ReqCPUS,NTasks,ReqMem,ReqGPU,TimeLimit",
        ],
    );
    let lines = out.lines();
    assert_eq!(words(lines[0]).len(), 8);
    assert_eq!(words(lines[1])[..2], [running.to_string(), "runner".to_owned()]);
    assert_eq!(words(lines[1])[3], "3");
    let fields = "JobID,Partition,Name,JobName,User,ST,State,Time,Elapsed,TimeLimit,Time_Limit,NTasks,CPUS,ReqCPUS,ReqMem,\
                  ReqGPU,ReqGPUS,Start,StartTime,NodeList(Reason),NodeListReason,Reason,NodeList";
    assert_eq!(words(squeue(&slotd, &["-o", fields]).lines()[0]).len(), 23);
}

#[test]
fn option_capital_o_matches_slurm() {
    let (slotd, [running, ..]) = queue();
    let r = running.to_string();
    assert_eq!(
        squeue(&slotd, &["-h", "-j", &r, "-O", "jobid:5,name:4,statecompact:3"]).stdout,
        format!("{r:<5}runnR  \n")
    );
    assert_eq!(
        squeue(&slotd, &["-j", &r, "-O", "JobID,Name,State"]).stdout,
        format!(
            "{:<20}{:<20}{:<20}\n{r:<20}{:<20}{:<20}\n",
            "JOBID", "NAME", "STATE", "runner", "RUNNING"
        )
    );
}

#[test]
fn unknown_field_is_an_error() {
    let slotd = Slotd::start();
    let out = slotd.cmd("squeue", &["-o", "nosuch"]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("nosuch"), "{}", out.stderr);
    let out = slotd.cmd("squeue", &["-O", "nosuch"]);
    assert!(out.stderr.contains("nosuch"), "{}", out.stderr);
    let out = slotd.cmd("squeue", &["-o", "JobID,Nmae"]).fails(1);
    assert_eq!(
        out.stderr,
        "squeue: error: Invalid job format specification: Nmae\n  hint: did you mean Name?\n"
    );
    slotd.cmd("sprio", &["-o", "foo"]).fails(1);
}

#[test]
fn filters_select_jobs() {
    let (slotd, [running, pending, held]) = queue();
    let ids = |args: &[&str]| {
        let mut found: Vec<u32> = squeue(&slotd, &[&["-h", "-o", "%i"], args].concat())
            .lines()
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(ids(&[]), [running, pending, held]);
    assert_eq!(ids(&["-t", "R"]), [running]);
    assert_eq!(ids(&["-t", "pd,running"]), [running, pending, held]);
    assert_eq!(ids(&["--states=PENDING"]), [pending, held]);
    assert_eq!(ids(&["-n", "runner"]), [running]);
    assert_eq!(ids(&["-j", &format!("{running},{held}")]), [running, held]);
    assert_eq!(ids(&["-p", "cpu"]), [running, pending, held]);
    assert_eq!(ids(&["-p", "nopart"]), [] as [u32; 0]);
    assert_eq!(ids(&["--me"]), [running, pending, held]);
    let me = slotd.sh("id -un").ok().text().to_owned();
    assert_eq!(ids(&["-u", &me]), [running, pending, held]);
    assert_eq!(ids(&[&format!("-u{me}")]), [running, pending, held]);
    assert_eq!(ids(&[&format!("--user={me}")]), [running, pending, held]);
    // A unique prefix of an option, and combined options after other arguments.
    assert_eq!(ids(&["--job", &running.to_string()]), [running]);
    assert_eq!(squeue(&slotd, &["-hlu", &me]).lines().len(), 3);
}

#[test]
fn ended_jobs_are_shown_on_request() {
    let slotd = Slotd::start();
    let done = slotd.wrap(&[], "true");
    let failed = slotd.wrap(&[], "false");
    slotd.wait_end(done);
    slotd.wait_end(failed);
    assert_eq!(squeue(&slotd, &["-h"]).stdout, "");
    for option in ["--all", "-tall", "--states=all"] {
        let mut lines: Vec<String> = squeue(&slotd, &["-h", option, "-o", "%i %t"])
            .lines()
            .iter()
            .map(|l| (*l).to_owned())
            .collect();
        lines.sort();
        assert_eq!(lines, [format!("{done} CD"), format!("{failed} F")], "{option}");
    }
    assert_eq!(squeue(&slotd, &["-h", "-t", "F", "-o", "%i"]).text(), failed.to_string());
    assert_eq!(squeue(&slotd, &["-h", "-j", &done.to_string()]).stdout, "");
}

#[test]
fn unknown_ids_and_states_print_slurms_errors() {
    let (slotd, [running, ..]) = queue();
    let out = slotd.cmd("squeue", &["-j", "999999"]).fails(1);
    assert_eq!(out.stderr, "slurm_load_jobs error: Invalid job id specified\n");
    let out = slotd.cmd("squeue", &["-h", "-o", "%i", "-j", &format!("999999,{running}")]).ok();
    assert_eq!(out.text(), running.to_string());
    let out = slotd.cmd("squeue", &["-j", "abc"]).fails(1);
    assert_eq!(out.stderr, "squeue: error: Invalid job id: abc\n");
    let out = slotd.cmd("squeue", &["-t", "bogus"]).fails(1);
    assert!(
        out.stderr.starts_with("squeue: error: Invalid job state specified: bogus\n"),
        "{}",
        out.stderr
    );
    let out = slotd.cmd("squeue", &["-u", "nosuchuser"]).ok();
    assert!(out.stderr.starts_with("squeue: error: Invalid user: nosuchuser\n"), "{}", out.stderr);
    assert_eq!(out.lines().len(), 1);
}

#[test]
fn rows_are_sorted_on_request() {
    let (slotd, [running, pending, held]) = queue();
    let ids = |sort: &str| {
        squeue(&slotd, &["-h", "-o", "%i", "-S", sort])
            .lines()
            .iter()
            .map(|id| id.parse().unwrap())
            .collect::<Vec<u32>>()
    };
    assert_eq!(ids("i"), [running, pending, held]);
    assert_eq!(ids("-i"), [held, pending, running]);
    assert_eq!(ids("j"), [pending, held, running]);
}

#[test]
fn pending_arrays_are_one_line() {
    let slotd = Setup::default().set("SLOTD_CPUS", 2).start();
    let job = slotd.wrap(&["-a", "1-9%2"], "exec sleep 1000");
    slotd.wait("two tasks", || {
        (slotd.records(job).iter().filter(|r| r.state() == "RUNNING").count() == 2).then_some(())
    });
    let ids = |args: &[&str]| {
        let out = squeue(&slotd, &[&["-h", "-o", "%i %t"], args].concat());
        let mut lines: Vec<String> = out.lines().iter().map(|l| (*l).to_owned()).collect();
        lines.sort();
        lines
    };
    let compact = [format!("{job}_1 R"), format!("{job}_2 R"), format!("{job}_[3-9%2] PD")];
    assert_eq!(ids(&[]), compact);
    let spread: Vec<String> =
        (1..=9).map(|task| format!("{job}_{task} {}", if task < 3 { "R" } else { "PD" })).collect();
    assert_eq!(ids(&["-r"]), spread);
    assert_eq!(ids(&["--array"]), spread);
    assert_eq!(ids(&["-j", &format!("{job}_5")]), [format!("{job}_5 PD")]);
    assert_eq!(ids(&["-j", &format!("{job}_1")]), [format!("{job}_1 R")]);
}

#[test]
fn steps_are_shown_on_request() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'echo > inner; exec sleep 1000'\n");
    slotd.wait_text("inner", "");
    let out = squeue(&slotd, &["-h", "-s"]);
    let ids: Vec<&str> =
        out.lines().iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(
        ids.contains(&format!("{job}.batch").as_str())
            && ids.contains(&format!("{job}.0").as_str()),
        "{}",
        out.stdout
    );
}

#[test]
fn environment_variables_set_defaults() {
    let (slotd, [running, ..]) = queue();
    let with = |name: &str, value: &str, args: &[&str]| {
        let mut command = slotd.command("squeue");
        command.env(name, value).args(args);
        slotd.run(command).ok()
    };
    assert_eq!(with("SQUEUE_FORMAT", "%i:%t", &["-h", "-t", "R"]).text(), format!("{running}:R"));
    assert_eq!(with("SQUEUE_STATES", "R", &["-h", "-o", "%i"]).text(), running.to_string());
    let seconds = with("SLURM_TIME_FORMAT", "%s", &["-h", "-t", "R", "-o", "%S"]);
    assert_eq!(seconds.text(), (slotd.job(running).start() / 1_000_000).to_string());
    let slurm = with("SLOTD_OUTPUT", "slurm", &[]);
    assert_eq!(
        slurm.lines()[0],
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    );
}

#[test]
fn json_is_valid_and_lists_each_job() {
    let (slotd, ids) = queue();
    let out = squeue(&slotd, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    let mut found: Vec<u64> =
        json["jobs"].as_array().unwrap().iter().filter_map(|job| job["job_id"].as_u64()).collect();
    found.sort_unstable();
    assert_eq!(found, ids.map(u64::from));
}

#[test]
fn json_of_a_held_array_matches_the_record() {
    let slotd = Slotd::start();
    slotd.wrap(
        &[
            "-H",
            "-J",
            "held",
            "-a",
            "1-3%2",
            "-c",
            "2",
            "--mem",
            "1G",
            "-t",
            "30",
            "--comment",
            "hi",
        ],
        "true",
    );
    let mut json: serde_json::Value =
        serde_json::from_str(&squeue(&slotd, &["--json"]).stdout).unwrap();
    for (key, value) in json["jobs"][0].as_object_mut().unwrap() {
        let is_id = ["user_id", "group_id", "user_name", "group_name"].contains(&key.as_str());
        // Seconds since 1970, and not 0 for an event that has not happened.
        let is_time = value.as_i64().is_some_and(|secs| secs > 1_000_000_000);
        if is_id || is_time {
            *value = format!("{{{key}}}").into();
        }
    }
    let text = format!("{}\n", serde_json::to_string_pretty(&json).unwrap());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/squeue.json");
    expect_file![file].assert_eq(&slotd.stable(&text));
}

#[test]
fn extra_arguments_are_refused() {
    let slotd = Slotd::start();
    let out = slotd.cmd("squeue", &["extra"]).fails(1);
    assert!(out.stderr.contains("extra"), "{}", out.stderr);
}

#[test]
fn multibyte_name_does_not_break_the_table() {
    let slotd = Slotd::start();
    slotd.wrap(&["-H", "-J", "täg 日本語 \t|x"], "true");
    let out = squeue(&slotd, &[]);
    assert_eq!(out.lines().len(), 2, "{}", out.stdout);
    assert_eq!(squeue(&slotd, &["-h", "-o", "%j"]).text(), "täg 日本語 \t|x");
}

const HEADER: &str =
    "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n";

const SLURM_DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";

#[test]
fn squeue_fails_only_for_a_single_unknown_id() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let array = slotd.wrap(&["-H", "-a", "1-3"], "true");
    let no_job = "slurm_load_jobs error: Invalid job id specified\n";
    slotd.expect("squeue -j 999999", 1, "", no_job);
    slotd.expect(&format!("squeue -h -o %i -j 999999,{job}"), 0, &format!("{job}\n"), "");
    slotd.expect("squeue -h -j 999998,999999", 0, "", "");
    // A known job without this task is not an error.
    slotd.expect(&format!("squeue -h -j {job}_1"), 0, "", "");
    slotd.expect(&format!("squeue -h -j {array}_9"), 0, "", "");
    slotd.expect(&format!("squeue -h -o %i -j {array}_2"), 0, &format!("{array}_2\n"), "");
}

/// Waits until the job is only in the database and no longer in the daemon's memory.
fn forgotten(slotd: &Slotd, job: u32) {
    let is_shown = || slotd.line("scontrol -o show job").stdout.contains(&format!("JobId={job} "));
    slotd.wait("the record to leave the memory", || (!is_shown()).then_some(()));
}

#[test]
fn jobs_no_longer_in_memory_are_found_in_the_database() {
    let slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    let job = slotd.wrap(&[], "true");
    slotd.wait_end(job);
    forgotten(&slotd, job);
    let shown =
        |words: &[&str]| slotd.cmd("squeue", &[&["-h", "-o", "%i %T"], words].concat()).ok().stdout;
    let (id, line) = (job.to_string(), format!("{job} COMPLETED\n"));
    assert_eq!(shown(&["-j", &id]), "", "the job is known but has ended");
    for words in [&["--all"][..], &["-t", "CD"], &["-t", "all", "-j", &id], &["--all", "-j", &id]] {
        assert_eq!(shown(words), line, "{words:?}");
    }
    assert_eq!(shown(&["-t", "F"]), "");
    let array = slotd.wrap(&["-a", "1-3"], "true");
    slotd.wait_array(array, 3);
    forgotten(&slotd, array);
    for (named, count) in [(array.to_string(), 3), (format!("{array}_2"), 1)] {
        let both = format!("{job},{named}");
        assert_eq!(shown(&["-j", &named]) + &shown(&["-j", &both]), "");
        assert_eq!(shown(&["-t", "all", "-j", &named]).lines().count(), count);
        assert_eq!(shown(&["-t", "all", "-j", &both]).lines().count(), count + 1);
    }
    // As for an array in memory, Slurm looks up only the array.
    let never = format!("{array}_9");
    assert_eq!(shown(&["-j", &never]) + &shown(&["-t", "all", "-j", &never]), "");
    for words in [&["-j", "99_9"][..], &["-t", "all", "-j", "99_9"]] {
        assert!(slotd.cmd("squeue", words).fails(1).stderr.contains("Invalid job id specified"));
    }
    let out = slotd.line(&format!("scontrol show job {job}")).ok();
    assert!(out.stdout.contains("JobState=COMPLETED"), "{}", out.stdout);
    let pending = slotd.wrap(&["-H"], "true");
    let both = slotd.line(&format!("scontrol -o show job {pending},{job}")).ok();
    let mut ids: Vec<&str> =
        both.lines().iter().filter_map(|line| line.split_whitespace().next()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [format!("JobId={job}"), format!("JobId={pending}")]);
    slotd.expect("squeue -j 999999", 1, "", "slurm_load_jobs error: Invalid job id specified\n");
}

#[test]
fn job_no_longer_in_memory_cannot_be_changed_but_can_be_requeued() {
    let slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    let job = slotd.wrap(&[], "echo again >> runs");
    let array = slotd.wrap(&["-a", "1-2"], "echo $SLURM_ARRAY_TASK_ID >> tasks");
    slotd.wait_end(job);
    slotd.wait_array(array, 2);
    forgotten(&slotd, job);
    forgotten(&slotd, array);
    let over = format!("Job has already finished for job {job}\n");
    slotd.expect(
        &format!("scontrol hold {job}"),
        1,
        "",
        &format!("{over}slurm_suspend error: Job has already finished\n"),
    );
    slotd.expect(&format!("scontrol update JobId={job} Comment=x"), 1, "", &over);
    let done = "Job/step already completing or completed";
    slotd.expect(
        &format!("scancel -v {job} {array}_1 {array}"),
        0,
        "",
        &[job.to_string(), format!("{array}_1"), array.to_string()]
            .map(|id| format!("scancel: Terminating job {id}\nscancel: error: Kill job error on job id {id}: {done}\n"))
            .concat(),
    );
    let not_running = "sattach: error: Could not get job step info: Job step is not running\n";
    slotd.expect(&format!("sattach {job}.0"), 1, "", not_running);
    slotd.expect(
        "sattach 99.0",
        1,
        "",
        &not_running.replace("Job step is not running", "Invalid job id specified"),
    );
    slotd.cmd("scontrol", &["requeue", &format!("{job},{array}_1")]).ok();
    slotd.wait("the job's second run", || (slotd.read("runs").lines().count() == 2).then_some(()));
    slotd.wait("the task's second run", || {
        (slotd.read("tasks").matches("1\n").count() == 2).then_some(())
    });
    assert_eq!(slotd.wait_state(job, "COMPLETED").restarts(), 1);
    assert_eq!(slotd.read("tasks").matches("2\n").count(), 1);
}

#[test]
fn squeue_reports_unknown_users_and_nodes_like_slurm() {
    let slotd = Slotd::start();
    let format = format!("squeue -o {SLURM_DEFAULT}");
    let line = |rest: &str| {
        let mut words = vec!["-o", SLURM_DEFAULT];
        words.extend(rest.split_whitespace());
        slotd.cmd("squeue", &words)
    };
    let out = line("-u nosuchuser").ok();
    assert_eq!(
        (out.stdout.as_str(), out.stderr.as_str()),
        (HEADER, "squeue: error: Invalid user: nosuchuser\n\n")
    );
    let out = line("-p nopart").ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), (HEADER, ""), "{format}");
    slotd.expect("squeue -w nonode", 1, "", "squeue: error: Invalid node name nonode\n");
    slotd.expect("squeue -h -A none", 0, "", "");
    slotd.expect("squeue -h -L x", 0, "", "");
}

#[test]
fn unknown_column_is_reported_and_the_others_are_printed() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    let error = "squeue: error: Invalid job format specification: nosuch\n";
    slotd.expect(
        "squeue -h --Format=jobid:3,nosuch,statecompact:2",
        0,
        &format!("{job:<3}PD\n"),
        error,
    );
    // Slurm parses the columns first, wherever they are.
    let errors = format!("{error}squeue: error: Invalid sort specification: bogus\n");
    for line in ["squeue -O jobid:3,nosuch -S bogus", "squeue -S bogus -O jobid:3,nosuch"] {
        let out = slotd.line(line).fails(1);
        assert!(out.stderr.starts_with(&errors), "{line}: {}", out.stderr);
    }
}

#[test]
fn squeue_filters_by_each_property() {
    let slotd = Slotd::setup().toml("[[qos]]\nname = \"high\"\n").start();
    let a = slotd.wrap(&["-H", "-J", "one", "-A", "lab", "-q", "high"], "true");
    let b = slotd.endless(&["-J", "two"]);
    let host = slotd_kit::host();
    let ids = |words: &str| {
        let out = slotd.line(&format!("squeue -h -S i -o %i {words}")).ok();
        out.lines().iter().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    for words in ["-A lab", "-q high", "-n one", "-t PD", "--name=one,three", "--start"] {
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
fn squeue_shows_the_named_steps() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'echo > inner; exec sleep 1000'\n");
    slotd.wait_text("inner", "");
    let steps = |words: &str| {
        let out = slotd.line(&format!("squeue -h -o %i {words}")).ok();
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
fn squeue_iterate_prints_the_date_above_each_table() {
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
    let dates = table
        .lines()
        .iter()
        .filter(|line| line.split(':').count() == 3 && line.len() == 24)
        .count();
    assert_eq!(dates, 2, "{}", table.stdout);
}

#[test]
fn tasks_updated_together_are_listed_one_by_one() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "1-6"], "true");
    slotd.line(&format!("scontrol update job {array}_[2-3] JobName=n23")).ok();
    let lines =
        |words: &str| slotd.line(&format!("squeue -h -S K -o %i|%A|%K|%j {words}")).ok().stdout;
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
fn huge_array_is_one_line_in_every_command() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "0-999999"], "true");
    slotd.expect("squeue -h -o %i", 0, &format!("{array}_[0-999999]\n"), "");
    assert_eq!(slotd.sacct(array, "jobid,state"), format!("{array}_[0-999999]|PENDING"));
    let out = slotd.line(&format!("scontrol -o show job {array}_7")).ok();
    assert!(
        out.stdout.starts_with(&format!("JobId={array} ArrayJobId={array} ArrayTaskId=7 ")),
        "{}",
        out.stdout
    );
    assert!(out.stdout.contains(&format!("/slurm-{array}_7.out ")), "{}", out.stdout);
    // The limit is the array's and has its own field.
    let limited = slotd.wrap(&["-H", "-a", "0-9%2"], "true");
    let out = slotd.line(&format!("scontrol -o show job {limited}_7")).ok();
    assert!(out.stdout.contains(" ArrayTaskId=7 ArrayTaskThrottle=2 "), "{}", out.stdout);
    slotd.cmd("scancel", &[limited.to_string()]).ok();
    assert!(slotd.line("squeue --json").ok().stdout.len() < 10_000);
}

#[test]
fn empty_list_matches_nothing() {
    let (slotd, jobs) = queue();
    let list = |args: &[&str]| squeue(&slotd, &[&["-h", "-o", "%i"], args].concat()).stdout;
    for option in ["-j", "-u", "-p", "-t", "-n", "-A", "-q", "-R", "-L", "-w", "-s"] {
        for value in ["", ","] {
            assert_eq!(list(&[option, value]), "", "{option} {value:?}");
            assert_eq!(list(&["--me", option, value]), "", "{option} {value:?}");
        }
    }
    assert_eq!(list(&["--jobs="]), "");
    // Without a value, `-j` is not an empty list, and selects all jobs.
    assert_eq!(list(&["-j"]).lines().count(), jobs.len());
    assert_eq!(list(&["--jobs=,", &format!("--jobs={}", jobs[2])]).trim(), jobs[2].to_string());
    assert_eq!(slotd.line("sprio -h -o %i -p ''").ok().stdout, "");
}

#[test]
fn the_requested_shape_of_the_host_is_shown() {
    let slotd = Slotd::start();
    let job = slotd.wrap(
        &["-H", "-B", "1:*:1", "--ntasks-per-core=1", "--ntasks-per-socket=2", "--exclusive=user"],
        "true",
    );
    let other = slotd.wrap(&["-H"], "true");
    let fields = "Sockets:|,Cores:|,Threads:|,SCT:|,NTPerCore:|,NTPerSocket:|,OverSubscribe:|";
    let shown = |job: u32| {
        let out = slotd.cmd("squeue", &["-h", "-j", &job.to_string(), "-O", fields]).ok();
        out.text().to_owned()
    };
    assert_eq!(shown(job), "1|*|1|1:*:1|1|2|USER|");
    assert_eq!(shown(other), "*|*|*|*:*:*|N/A|N/A|OK|");
    let out = slotd.cmd("squeue", &["-h", "-j", &job.to_string(), "-o", "%H %I %J %z %h"]).ok();
    assert_eq!(out.text(), "1 * 1 1:*:1 USER");
}

#[test]
fn the_amounts_per_gpu_are_shown_with_the_job() {
    let slotd = slotd_kit::Setup::default().set("SLOTD_GPU_COUNT", "2").start();
    let job = slotd.wrap(&["-H", "-G1", "--cpus-per-gpu=2", "--mem-per-gpu=100"], "true");
    assert_eq!(slotd.show(job, "CpusPerTres"), "gres:gpu:2");
    assert_eq!(slotd.show(job, "MemPerTres"), "gres:gpu:100");
}

#[test]
fn priority_option_prints_a_row_for_each_partition_by_priority() {
    let slotd = Setup::default().set("SLOTD_CPU_PARTITIONS", "cpu,other").start();
    let running = slotd.endless(&["-c", "4", "-p", "other,cpu"]);
    let both = slotd.wrap(&["-p", "other,cpu"], "true");
    let one = slotd.wrap(&["-p", "other"], "true");
    let array = slotd.wrap(&["-a", "1-3", "-p", "cpu,other"], "true");
    for (job, priority) in [(one, 9), (array, 8), (both, 7)] {
        slotd.line(&format!("scontrol update JobId={job} Priority={priority}")).ok();
    }
    let rows = |options: &str| {
        let mut words = vec!["-h", "-o", "%P %i %t"];
        words.extend(options.split_whitespace());
        let text = squeue(&slotd, &words).stdout;
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let row =
        |partition: &str, job: &dyn Display, state: &str| format!("{partition} {job} {state}");
    let tasks = format!("{array}_[1-3]");
    let of_other = [
        row("other", &one, "PD"),
        row("other", &tasks, "PD"),
        row("other", &both, "PD"),
        row("other", &running, "R"),
    ];
    let of_cpu = [row("cpu", &tasks, "PD"), row("cpu", &both, "PD")];
    assert_eq!(rows("-P"), [&of_cpu[..], &of_other].concat());
    assert_eq!(rows("--priority -p other"), of_other);
    let in_order =
        [format!("cpu {both} PD"), format!("other {both} PD"), format!("other {one} PD")];
    assert_eq!(rows(&format!("-P -S i -j {both},{one}")), in_order);
    assert_eq!(rows("-P -r").len(), 10);
    assert_eq!(rows(&format!("-j {both}")), [row("other,cpu", &both, "PD")]);
}
