//! sdiag, sprio and seff: statistics of the daemon, priority factors and job efficiency.

use serde_json::Value;
use slotd_kit::Slotd;

fn statistics(slotd: &Slotd) -> Value {
    let text = slotd.cmd("sdiag", &["--json"]).ok().stdout;
    serde_json::from_str::<Value>(&text).expect("JSON")["statistics"].take()
}

fn rpc(statistics: &Value, name: &str) -> u64 {
    let all = statistics["rpcs_by_message_type"].as_array().expect("a list");
    all.iter()
        .find(|rpc| rpc["message_type"] == name)
        .map_or(0, |rpc| rpc["count"].as_u64().expect("a number"))
}

#[test]
fn sdiag_counts_jobs_cycles_commits_and_requests() {
    let slotd = Slotd::start();
    slotd.wrap(&["-W"], "true");
    slotd.cmd("sbatch", &["-W", "--wrap", "exit 3"]).fails(3);
    let running = slotd.endless(&["-c", "4"]);
    let waiting = slotd.wrap(&["-c", "4"], "true");
    slotd.wrap(&["-H", "-a", "1-3"], "true");
    slotd.cancel(waiting);
    // Ends and commits are counted once they are durable.
    let s = slotd.wait("the last commit is durable", || {
        let s = statistics(&slotd);
        (s["jobs_canceled"] == 1 && s["agent_count"] == 1 && s["dbd_agent_queue_size"] == 0)
            .then_some(s)
    });
    for (key, value) in [
        ("jobs_submitted", 5),
        ("jobs_started", 3),
        ("jobs_completed", 1),
        ("jobs_failed", 1),
        ("jobs_canceled", 1),
        ("jobs_pending", 3),
        ("jobs_running", 1),
        ("agent_count", 1),
    ] {
        assert_eq!(s[key], value, "{key}: {s:#}");
    }
    assert_eq!(rpc(&s, "REQUEST_SUBMIT_BATCH_JOB"), 5);
    assert_eq!(rpc(&s, "REQUEST_KILL_JOB"), 1);
    for key in ["schedule_cycle_total", "server_thread_count"] {
        assert!(s[key].as_u64() > Some(0), "{key}: {s:#}");
    }
    assert!(s["commits"]["count"].as_u64() >= Some(8), "five submissions and three starts: {s:#}");
    assert!(s["commits"]["max"].as_u64() >= s["commits"]["mean"].as_u64(), "{s:#}");

    let text = slotd.cmd::<&str>("sdiag", &[]).ok().stdout;
    for line in
        ["Jobs submitted: 5", "Main schedule statistics (microseconds):", "\tTotal submissions: 5"]
    {
        assert!(text.lines().any(|l| l == line), "{line} is missing:\n{text}");
    }
    assert!(slotd.cmd("sdiag", &["--yaml"]).ok().stdout.contains("jobs_running: 1"));
    slotd.cancel(running);
}

#[test]
fn sdiag_reset_clears_the_counters() {
    let slotd = Slotd::start();
    let waiting = slotd.wrap(&["-H"], "true");
    let before = statistics(&slotd);
    assert_eq!(slotd.cmd("sdiag", &["--reset"]).ok().stdout, "Reset scheduling statistics\n");
    let after = statistics(&slotd);
    assert_eq!((&before["jobs_submitted"], &after["jobs_submitted"]), (&1.into(), &0.into()));
    assert_eq!(
        (&after["jobs_pending"], &after["commits"]["count"]),
        (&1.into(), &0.into()),
        "the queue remains"
    );
    assert_eq!(rpc(&after, "REQUEST_SUBMIT_BATCH_JOB"), 0);
    assert!(after["req_time_start"].as_i64() >= before["req_time_start"].as_i64());
    assert_eq!(after["daemon_start"], before["daemon_start"]);
    slotd.cancel(waiting);
}

#[test]
fn sdiag_counts_backfilled_jobs() {
    let slotd = Slotd::start();
    slotd.endless(&["-c", "2", "-t", "60"]);
    slotd.wrap(&["-c", "4"], "true");
    let small = slotd.endless(&["-c", "1", "-t", "1"]);
    slotd.wait_state(small, "RUNNING");
    let s = statistics(&slotd);
    assert_eq!(
        (&s["bf_backfilled_jobs"], &s["bf_last_backfilled_jobs"]),
        (&1.into(), &1.into()),
        "{s:#}"
    );
    slotd.cmd("sdiag", &["-r"]).ok();
    let s = statistics(&slotd);
    assert_eq!(
        (&s["bf_backfilled_jobs"], &s["bf_last_backfilled_jobs"]),
        (&1.into(), &0.into()),
        "{s:#}"
    );
}

#[test]
fn sprio_shows_pending_jobs_with_their_priority_factors() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let plain = slotd.wrap(&["-c", "4"], "true");
    let nice = slotd.wrap(&["-c", "4", "--priority", "500", "--nice=20"], "true");
    let held = slotd.wrap(&["-c", "4", "--priority", "300", "-H"], "true");
    let own = |args: &[&str]| {
        let out = slotd.cmd("sprio", args).ok().stdout;
        out.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let rows = [
        "JOBID PARTITION PRIORITY SITE NICE".to_owned(),
        format!("{nice} cpu 480 500 20"),
        format!("{plain} cpu 1 1 0"),
        format!("{held} cpu 0 300 0"),
    ];
    assert_eq!(own(&[]), rows);
    assert_eq!(own(&["-h"]), rows[1..]);
    assert_eq!(own(&["-h", "-j", &format!("{plain},{held}"), "-S", "i"]), rows[2..]);
    assert_eq!(own(&["-h", "-p", "nosuch"]), [""; 0]);
    assert_eq!(own(&["-h", "-o", "%i|%N|%u", "-j", &nice.to_string()]).len(), 1);
    assert_eq!(
        own(&["-j", &running.to_string()]),
        ["Unable to find jobs matching user/id(s) specified"]
    );
    assert_eq!(own(&["-w", "-o", "%i %S %A"]), ["JOBID SITE AGE", "Weights 1 0"]);
    assert!(own(&["-l"])[0].ends_with("QOSNAME QOS NICE TRES"));
    slotd.cmd("sprio", &["-o", "%z"]).fails(1);
    slotd.cmd("sprio", &["-u", "no-such-user"]).fails(1);
    let mut command = slotd.command("sprio");
    command.args(["-h", "-j", &plain.to_string()]).env("SPRIO_FORMAT", "<%i>");
    assert_eq!(slotd.run(command).ok().text(), format!("<{plain}>"));

    slotd.cmd("scontrol", &["update", &format!("JobId={plain}"), "Nice=-7"]).ok();
    assert_eq!(own(&["-h", "-j", &plain.to_string()]), [format!("{plain} cpu 8 1 -7")]);
    slotd.cancel(running);
}

#[test]
fn seff_shows_ended_running_and_pending_jobs() {
    let slotd = Slotd::start();
    let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 4";
    let job = slotd.submit(&["-c", "2", "--mem", "100M", "--wrap", burn]);
    slotd.wait_end(job);
    let text = slotd.cmd("seff", &[job.to_string()]).ok().stdout;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} is missing:\n{text}")).to_owned()
    };
    assert_eq!(value("Job ID"), job.to_string());
    assert_eq!(value("State"), "FAILED (exit code 4)");
    assert_eq!((value("Nodes"), value("Cores per node")), ("1".to_owned(), "2".to_owned()));
    let share = |name: &str| {
        value(name).split_once('%').expect("a percentage").0.parse::<f64>().expect("a number")
    };
    // Time spent waiting for a CPU on a busy machine counts too.
    assert!((0.01..=50.5).contains(&share("CPU Efficiency")), "one of two CPUs was busy:\n{text}");
    assert!(
        share("Memory Efficiency") > 0.0 && value("Memory Efficiency").ends_with("% of 100.00 MB"),
        "{text}"
    );
    assert!(!text.contains("WARNING"), "{text}");

    let running = slotd.endless(&["-c", "4"]);
    // The first sample may be taken before the script starts.
    let text = slotd.wait("the memory of the running job", || {
        let text = slotd.cmd("seff", &[running.to_string()]).ok().stdout;
        (!text.contains("Memory Utilized: 0.00 MB")).then_some(text)
    });
    assert!(
        text.ends_with("WARNING: Efficiency statistics may be misleading for RUNNING jobs.\n"),
        "{text}"
    );
    let waiting = slotd.wrap(&["-c", "4"], "true");
    let text = slotd.cmd("seff", &[waiting.to_string()]).ok().stdout;
    assert!(text.ends_with("Efficiency not available for jobs in the PENDING state.\n"), "{text}");
    slotd.cancel(running);
}

#[test]
fn seff_accepts_array_tasks_and_fails_for_unknown_jobs() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-a", "1-2"], "true");
    slotd.wait_array(array, 2);
    let one = slotd.cmd("seff", &[format!("{array}_2")]).ok().stdout;
    assert!(one.contains(&format!("\nArray Job ID: {array}_2\n")), "{one}");
    let all = slotd.cmd("seff", &[array.to_string()]).ok().stdout;
    assert_eq!(all.matches("State: COMPLETED (exit code 0)").count(), 2, "{all}");

    let out = slotd.cmd("seff", &["999"]).fails(2);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", "Job not found.\n"));
    let out = slotd.cmd("seff", &[format!("{array}_1"), "999".to_owned()]).fails(2);
    assert!(out.stdout.contains("COMPLETED"), "the known job is shown: {}", out.stdout);
    slotd.cmd("seff", &["x"]).fails(1);
    let data = slotd.cmd("seff", &["-d", &format!("{array}_1")]).ok().stdout;
    assert!(data.starts_with("Slurm data: JobID="), "{data}");
}

#[test]
fn commands_have_help_and_the_same_version_line() {
    let slotd = Slotd::setup().prepare();
    let version = slotd.cmd("sbatch", &["--version"]).ok().stdout;
    assert!(version.starts_with("slurm"), "{version}");
    for name in ["sdiag", "sprio", "seff", "sstat", "sattach"] {
        assert_eq!(slotd.cmd(name, &["--version"]).ok().stdout, version, "{name}");
        let help = slotd.cmd(name, &["--help"]).ok().stdout;
        assert!(
            help.contains(&format!("\nUsage: {name} ")) && help.contains("--version"),
            "{name}: {help}"
        );
    }
}
