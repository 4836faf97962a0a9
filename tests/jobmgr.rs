//! `sjobmgr`: many steps in one job, in order and side by side, each with its record; and what survives a kill.

use serde_json::Value;
use slotd_kit::{Slotd, proc};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines `JobName|State|ExitCode` of the numbered steps of a job.
fn steps(slotd: &Slotd, job: u32) -> Vec<Vec<String>> {
    let args = ["-nP", "-j", &job.to_string(), "-o", "JobID,JobName,State,ExitCode"];
    let out = slotd.cmd("sacct", &args).ok();
    let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    let is_numbered = |step: &Vec<String>| step[0].split('.').nth(1).is_some_and(|id| id.parse::<u32>().is_ok());
    out.lines().into_iter().map(words).filter(is_numbered).collect()
}

fn status(slotd: &Slotd, job: u32) -> Option<Value> {
    let out = slotd.cmd("sjobmgr", &["status", "--json", "--jobid", &job.to_string()]);
    (out.code == 0).then(|| serde_json::from_str(&out.stdout).unwrap())
}

/// A job that runs `sjobmgr run ARGS` and prints its exit code.
fn manage(slotd: &Slotd, args: &str) -> u32 {
    slotd.wrap(&["-c", "2"], &format!("sjobmgr run {args}; echo code $?"))
}

/// The last line of its output.
fn code(slotd: &Slotd, job: u32) -> String {
    slotd.wait_end(job);
    slotd.output(job).lines().last().unwrap_or_default().to_owned()
}

/// The manager of a job, once it answers.
fn manager(slotd: &Slotd, job: u32) -> i32 {
    let pid = slotd.wait("a manager", || status(slotd, job)?.get("pid")?.as_i64());
    i32::try_from(pid).unwrap()
}

#[test]
fn a_graph_gives_what_plain_shell_gives_and_each_step_has_its_record() {
    let slotd = Slotd::start();
    let text = r#"
        [defaults]
        time = "10:00"
        [[step]]
        name = "prepare"
        command = "seq 64 > numbers"
        [[step]]
        name = "square-{n}"
        foreach = { n = "1-64" }
        command = ["sh", "-c", "test {n} != 7 -o -e again || { touch again; exit 3; }; echo $(({n} * {n}))"]
        after = ["prepare"]
        retry = { times = 1, delay = 0 }
        stdout = "part-%s.out"
        [[step]]
        name = "reduce"
        command = "cat part-*.out | sort -n > all"
        after = ["square-*"]
        priority = 10
    "#;
    slotd.write("graph.toml", text);
    let job = manage(&slotd, "graph.toml");
    assert_eq!(code(&slotd, job), "code 0");
    let expected: String = (1..=64).fold(String::new(), |mut text, n| {
        writeln!(text, "{}", n * n).unwrap();
        text
    });
    assert_eq!(slotd.read("all"), expected);
    let steps = steps(&slotd, job);
    assert_eq!(steps.len(), 67, "66 steps, one of them twice: {steps:?}");
    let ends: Vec<&[String]> = steps.iter().filter(|step| step[1] == "square-7").map(|step| &step[2..]).collect();
    assert_eq!(ends, [["FAILED", "3:0"], ["COMPLETED", "0:0"]]);
    assert_eq!((steps[0][1].as_str(), steps[66][1].as_str()), ("prepare", "reduce"));
    // The numbers that were not used are given again.
    let next = slotd.wrap(&["-c", "2"], "sjobmgr run -Q - < /dev/null; srun -n1 sh -c 'echo $SLURM_STEP_ID'");
    slotd.wait_state(next, "COMPLETED");
    assert_eq!(slotd.output(next), "0\n");
}

#[test]
fn a_running_step_is_a_step_of_its_job() {
    let slotd = Slotd::start();
    slotd.write("steps", format!("{}\nsleep 1000\n", slotd.gate("go")));
    let script = format!("sjobmgr run steps; echo code $?; {}", slotd.gate("over"));
    let job = slotd.wrap(&["-c", "2"], &script);
    let numbers = |states: &str| slotd.cmd("squeue", &["-hs", "-j", states, "-o", "%i %j"]).ok().stdout;
    slotd.wait("two steps", || numbers(&job.to_string()).contains(&format!("{job}.1 sleep-2")).then_some(()));
    let shown = slotd.cmd("scontrol", &["show", "step", &format!("{job}.1")]).ok().stdout;
    assert!(shown.contains("State=RUNNING") && shown.contains("Name=sleep-2") && shown.contains("CPUs=1"), "{shown}");
    let rss = || slotd.cmd("sstat", &["-nP", "-j", &format!("{job}.1"), "-o", "MaxRSS"]).ok().text().to_owned();
    slotd.wait("its memory", || rss().strip_suffix('K')?.parse::<u64>().ok().filter(|kb| *kb > 0));
    // A step that wants something for itself waits until the manager is gone; one that shares does not.
    let mut srun = slotd.spawn({
        let mut command = slotd.command("srun");
        command.args([&format!("--jobid={job}"), "-n1", "echo", "mine"]);
        command
    });
    srun.wait_stderr("step creation temporarily disabled");
    let shares = slotd.cmd("srun", &[&format!("--jobid={job}"), "-n1", "--overlap", "echo", "ours"]).ok();
    assert_eq!(shares.stdout, "ours\n");
    slotd.cmd("scancel", &[format!("{job}.1")]).ok();
    slotd.open("go");
    assert_eq!(srun.end().ok().stdout, "mine\n");
    slotd.open("over");
    slotd.wait_end(job);
    let of =
        |name: &str| steps(&slotd, job).into_iter().find(|step| step[1].starts_with(name)).map(|s| s[2..].to_vec());
    assert_eq!(of("sleep-2").unwrap(), ["CANCELLED", "0:15"]);
    assert_eq!(of("until-1").unwrap(), ["COMPLETED", "0:0"]);
    assert_eq!(slotd.output(job).lines().last(), Some("code 1"));
}

#[test]
fn kills_of_the_daemon_and_the_manager_lose_no_step_and_run_none_twice() {
    let mut slotd = Slotd::start();
    // Layers: each step waits for all of the layer before, and notes that it has run.
    let mut text = String::from("[defaults]\nretry = { times = 20, delay = 0 }\n");
    for layer in 0..6 {
        let after = if layer > 0 { format!("after = \"l{}-*\"\n", layer - 1) } else { String::new() };
        writeln!(
            text,
            "[[step]]\nname = \"l{layer}-{{n}}\"\nforeach = {{ n = \"1-20\" }}\n{after}\
             command = \"sleep 0.02; echo l{layer}-{{n}} >> ran\""
        )
        .unwrap();
    }
    slotd.write("layers.toml", text);
    let job = slotd.wrap(&["-c", "2"], "until sjobmgr run -Q --resume layers.toml; do echo again; done");
    let mut killed = 0;
    for round in 0..4 {
        let enough = 15 * (round + 1);
        slotd.wait("progress", || {
            let ran = std::fs::read_to_string(slotd.path("ran")).unwrap_or_default();
            (ran.lines().count() >= enough).then_some(())
        });
        if round % 2 == 0 {
            slotd.kill9();
            slotd.start_daemon();
        } else if let Some(pid) = status(&slotd, job).and_then(|status| status.get("pid")?.as_i64()) {
            proc::signal(i32::try_from(pid).unwrap(), proc::KILL);
            killed += 1;
        }
    }
    slotd.wait_state(job, "COMPLETED");
    let again = slotd.output(job).lines().filter(|line| *line == "again").count();
    assert_eq!(again, killed, "{}", slotd.output(job));
    let mut runs: BTreeMap<String, u32> = BTreeMap::new();
    for name in slotd.read("ran").lines() {
        *runs.entry(name.to_owned()).or_default() += 1;
    }
    let mut recorded: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for step in steps(&slotd, job) {
        let counts = recorded.entry(step[1].clone()).or_default();
        match (step[2].as_str(), step[3].as_str()) {
            ("COMPLETED", "0:0") => counts.0 += 1,
            ("FAILED", "0:9") => counts.1 += 1,
            other => panic!("{step:?}: {other:?}"),
        }
    }
    assert_eq!((runs.len(), recorded.len()), (120, 120));
    for (name, count) in runs {
        let (ended, lost) = recorded[&name];
        assert_eq!(ended, 1, "{name}");
        assert!(count >= 1 && count <= 1 + lost, "{name} ran {count} times, and was killed {lost} times");
    }
}

#[test]
fn another_job_goes_on_where_the_last_one_ended() {
    let slotd = Slotd::start();
    let text = format!(
        r#"
        step = [
            {{ name = "done", command = "echo done >> ran" }},
            {{ name = "bad", command = "echo bad >> ran; exit 4", on_failure = "continue" }},
            {{ name = "gated", command = "echo gated >> ran; {}", after = ["done", "bad"] }},
            {{ name = "last", command = "echo last >> ran", after = "gated" }},
        ]"#,
        slotd.gate("go")
    );
    slotd.write("f.toml", text);
    let first = slotd.wrap(&["-c", "2"], "exec sjobmgr run f.toml");
    slotd.wait_text("ran", "gated");
    slotd.cancel(first);
    slotd.wait_end(first);
    slotd.open("go");
    let second = manage(&slotd, "--resume f.toml");
    assert_eq!(code(&slotd, second), "code 4");
    assert_eq!(slotd.read("ran").lines().collect::<Vec<_>>()[2..], ["gated", "gated", "last"]);
    assert_eq!(steps(&slotd, second).len(), 2);
    let third = manage(&slotd, "--resume-failed f.toml");
    assert_eq!(code(&slotd, third), "code 4");
    assert_eq!(slotd.read("ran").lines().last(), Some("bad"));
    assert_eq!(steps(&slotd, third).len(), 1);
}

#[test]
fn what_makes_no_sense_is_told_and_nothing_starts() {
    let slotd = Slotd::start();
    slotd.write("cycle.toml", "step=[{name='a',command='touch ran',after='b'},{name='b',command='x',after='a'}]");
    slotd.write("key.toml", "[[step]]\nname = 'a'\ncommand = 'touch ran'\n[[step]]\ncomand = 'x'\n");
    slotd.write("large.jsonl", "{\"name\":\"a\",\"command\":\"touch ran\"}\n{\"command\":\"x\",\"cpus\":3}\n");
    for (file, said) in [
        ("cycle.toml", "cycle.toml: line 1: the steps wait for each other: a after b after a"),
        ("key.toml", "key.toml: line 5: unknown key \"comand\"\n  hint: did you mean command?"),
        ("large.jsonl", "large.jsonl: line 2: step \"x-2\" asks for 3 CPUs and 0 GPUs; the job has 2 CPUs"),
        ("none.toml", "could not read"),
    ] {
        let job = manage(&slotd, file);
        assert_eq!(code(&slotd, job), "code 1");
        assert!(slotd.output(job).contains(said), "{}", slotd.output(job));
        assert!(steps(&slotd, job).is_empty() && !slotd.exists("ran"));
    }
    slotd.write("steps", "no-such-program-here\ntrue\n/etc\n");
    let job = manage(&slotd, "steps");
    assert_eq!(code(&slotd, job), "code 13");
    let ends: Vec<Vec<String>> = steps(&slotd, job).into_iter().map(|step| step[2..].to_vec()).collect();
    assert_eq!(ends, [["FAILED", "2:0"], ["COMPLETED", "0:0"], ["FAILED", "13:0"]]);
    let out = slotd.output(job);
    assert!(out.contains("slurmstepd: error: execve(): no-such-program-here: No such file or directory"), "{out}");
}

#[test]
fn outside_of_a_job_one_is_submitted() {
    let slotd = Slotd::start();
    slotd.write("steps", "echo one $SLURM_CPUS_ON_NODE\n");
    let out = slotd.cmd("sjobmgr", &["run", "-c", "2", "-Q", "steps"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    assert_eq!(out.stderr, "sjobmgr: this is not within a job: a job is submitted that runs the steps\n");
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.output(1), "one 1\n");
    assert_eq!(slotd.job(1).tres().0, 2);
    let refused = slotd.cmd("sjobmgr", &["list"]).fails(1);
    assert!(refused.stderr.starts_with("sjobmgr: error: this is not within a job\n"), "{refused:?}");
}

#[test]
fn a_step_that_kills_its_manager_leaves_nothing_behind() {
    let slotd = Slotd::start();
    slotd.write("steps", "echo $$ > pid; exec sleep 1000\n");
    let job = slotd.wrap(&["-c", "2"], "sjobmgr run steps; echo code $?; sjobmgr run --resume steps; echo code $?");
    let pid: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    proc::signal(manager(&slotd, job), proc::KILL);
    slotd.wait_state(job, "COMPLETED");
    assert!(!proc::is_alive(pid), "the step ends with its manager");
    let out = slotd.output(job);
    assert!(out.contains("the manager was killed by signal 9, and 1 running steps with it"), "{out}");
    let codes: Vec<&str> = out.lines().filter(|line| line.starts_with("code")).collect();
    assert_eq!(codes, ["code 137", "code 137"], "it ran once, and asked for no retry");
    assert_eq!(steps(&slotd, job), [[format!("{job}.0"), "echo-1".into(), "FAILED".into(), "0:9".into()]]);
}

#[test]
fn steps_are_handed_in_listed_held_and_moved_while_the_manager_runs() {
    let slotd = Slotd::start();
    // The first step submits others, from within. They wait for the second CPU, which the third has until the gate opens.
    slotd.write(
        "driver",
        "sjobmgr submit -J held -n1 -- sh -c 'echo held $SLURM_STEP_ID >> ran'\n\
         sjobmgr submit -J a -- sh -c 'echo a >> ran'\n\
         sjobmgr submit -J b --priority -1 -d 'afterany:a' -- sh -c 'echo b >> ran'\n\
         sjobmgr submit -J late -- sh -c 'echo late >> ran'\n\
         sjobmgr hold held; sjobmgr top late; sjobmgr list > list\n\
         touch listed; sjobmgr wait a b late; echo waited $? >> ran; sjobmgr release held\n\
         sjobmgr submit -W -J bad -- sh -c 'exit 7'; echo bad $? >> ran\n",
    );
    let gate = slotd.gate("listed");
    let steps = format!(
        "step = [{{ name = 'driver', command = 'sh driver', cpus = 0 }}, {{ name = 'gate', command = \"{gate}\", cpus = 2 }}]"
    );
    slotd.write("steps.toml", steps);
    let job = manage(&slotd, "steps.toml");
    assert_eq!(code(&slotd, job), "code 7");
    let list = slotd.read("list");
    let of = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(of("gate ").contains("RUNNING"), "{list}");
    assert!(of("held ").ends_with("JobHeldUser"), "{list}");
    assert!(of("late ").ends_with("Resources") && of("b ").ends_with("Dependency: afterany:a"), "{list}");
    let ran = slotd.read("ran");
    let at =
        |text: &str| ran.lines().position(|line| line.starts_with(text)).unwrap_or_else(|| panic!("no {text}: {ran}"));
    assert!(at("late") < at("b") && at("a") < at("b") && at("waited 0") < at("held"), "{ran}");
    assert!(ran.contains("bad 7\n"), "{ran}");
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    let slotd = Slotd::start();
    slotd.write("steps.toml", format!("step = [{{ name = 'gate', command = \"{}\" }}]", slotd.gate("go")));
    let job = manage(&slotd, "-Q steps.toml");
    manager(&slotd, job);
    let path = slotd.job_dir(job).join("sjobmgr.sock");
    let mut deaf = UnixStream::connect(&path).unwrap();
    // Each asks for the list of many steps, and reads none of it.
    let many: String =
        (0..2000).map(|n| format!("{{\"name\":\"m{n}\",\"command\":\"true\",\"after\":\"gate\"}}\n")).collect();
    deaf.write_all(many.as_bytes()).unwrap();
    // It is let go while it still asks.
    let _ = deaf.write_all("{\"request\":\"list\"}\n".repeat(200).as_bytes());
    slotd.wait("all steps", || (status(&slotd, job)?.get("steps")?.as_u64() == Some(2001)).then_some(()));
    slotd.cmd("sjobmgr", &["cancel", "m*", "--jobid", &job.to_string()]).ok();
    slotd.open("go");
    assert_eq!(code(&slotd, job), "code 1");
    assert_eq!(steps(&slotd, job).len(), 1);
}

#[test]
fn what_the_daemon_was_not_told_it_reads_when_the_job_ends() {
    let mut slotd = Slotd::start();
    slotd.write("steps", format!("{}\nexit 5\n", slotd.gate("go")));
    let job = slotd.wrap(&["-c", "2"], &format!("sjobmgr run steps; echo > left; {}", slotd.gate("over")));
    manager(&slotd, job);
    slotd.kill9();
    slotd.open("go");
    slotd.wait_text("left", "\n");
    slotd.start_daemon();
    slotd.open("over");
    slotd.wait_end(job);
    let ends: Vec<Vec<String>> = steps(&slotd, job).into_iter().map(|step| step[2..].to_vec()).collect();
    assert_eq!(ends, [["COMPLETED", "0:0"], ["FAILED", "5:0"]]);
    let said = slotd.output(job);
    assert!(said.contains("the daemon is away: it reads the records of"), "{said}");
}
