//! `sjobmgr`: many steps in one job, in order and in parallel, with a record for each, even if
//! processes are killed.

use serde_json::Value;
use slotd_kit::disk::{SmallDisk, limit_files};
use slotd_kit::{Slotd, proc, until_within};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Returns the fields JobID, JobName, State and ExitCode of each numbered step of a job.
fn steps(slotd: &Slotd, job: u32) -> Vec<Vec<String>> {
    let args = ["-nP", "-j", &job.to_string(), "-o", "JobID,JobName,State,ExitCode"];
    let out = slotd.cmd("sacct", &args).ok();
    let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    let is_numbered =
        |step: &Vec<String>| step[0].split('.').nth(1).is_some_and(|id| id.parse::<u32>().is_ok());
    out.lines().into_iter().map(words).filter(is_numbered).collect()
}

fn status(slotd: &Slotd, job: u32) -> Option<Value> {
    let out = slotd.cmd("sjobmgr", &["status", "--json", "--jobid", &job.to_string()]);
    (out.code == 0).then(|| serde_json::from_str(&out.stdout).unwrap())
}

/// Submits a job that runs `sjobmgr run ARGS` and prints its exit code.
fn manage(slotd: &Slotd, args: &str) -> u32 {
    slotd.wrap(&["-c", "2"], &format!("sjobmgr run {args}; echo code $?"))
}

/// Waits for the end of the job and returns the last line of its output.
fn code(slotd: &Slotd, job: u32) -> String {
    slotd.wait_end(job);
    slotd.output(job).lines().last().unwrap_or_default().to_owned()
}

/// Waits until the manager of a job responds, and returns its process ID.
fn manager(slotd: &Slotd, job: u32) -> i32 {
    let pid = slotd.wait("a manager", || status(slotd, job)?.get("pid")?.as_i64());
    i32::try_from(pid).unwrap()
}

#[test]
fn a_graph_of_steps_runs_in_order_with_a_record_for_each_step() {
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
    assert_eq!(steps.len(), 67, "66 steps, and one of them twice: {steps:?}");
    let ends: Vec<&[String]> =
        steps.iter().filter(|step| step[1] == "square-7").map(|step| &step[2..]).collect();
    assert_eq!(ends, [["FAILED", "3:0"], ["COMPLETED", "0:0"]]);
    assert_eq!((steps[0][1].as_str(), steps[66][1].as_str()), ("prepare", "reduce"));
    // Reserved step numbers that were not used are used by the next step.
    let next = slotd
        .wrap(&["-c", "2"], "sjobmgr run -Q - < /dev/null; srun -n1 sh -c 'echo $SLURM_STEP_ID'");
    slotd.wait_state(next, "COMPLETED");
    assert_eq!(slotd.output(next), "0\n");
}

#[test]
fn steps_that_the_daemon_has_no_record_of_yet_can_be_signalled() {
    let slotd = Slotd::start();
    let own = "$SLURM_JOB_ID.$SLURM_STEP_ID";
    let cancels = format!("scancel {own} 2>> refused; exec sleep 1000");
    let signals = format!(
        "trap 'echo signalled >> signalled; exit 0' USR1; scancel -s USR1 {own} 2>> refused; sleep 1000 & wait"
    );
    let lines: String =
        (0..8).map(|n| format!("{}\n", if n % 2 == 0 { &cancels } else { &signals })).collect();
    slotd.write("steps", format!("{lines}{}\n", slotd.gate("go")));
    let job = manage(&slotd, "-Q steps");
    slotd.wait("eight ends", || {
        (status(&slotd, job)?.get("running")?.as_u64() == Some(1)).then_some(())
    });
    // Step numbers that do not exist, one of them in the manager's range.
    for number in [500, 1_000_000] {
        let refused = slotd.cmd("scancel", &[format!("{job}.{number}")]).fails(1);
        assert!(refused.stderr.contains("Invalid job id specified"), "{refused:?}");
    }
    slotd.open("go");
    assert_eq!(code(&slotd, job), "code 143", "{}", slotd.output(job));
    // The file may also contain the shell's message about the signal, which the command gets as
    // well.
    assert!(!slotd.read("refused").contains("error"), "{}", slotd.read("refused"));
    assert_eq!(slotd.read("signalled"), "signalled\n".repeat(4));
    let mut ends: Vec<String> = steps(&slotd, job).iter().map(|step| step[2..].join(" ")).collect();
    ends.sort();
    let cancelled = format!("CANCELLED by {} 0:15", nix::unistd::getuid());
    assert_eq!(ends, [vec![cancelled.as_str(); 4], vec!["COMPLETED 0:0"; 5]].concat());
}

#[test]
fn the_outcome_of_steps_is_available_after_their_manager_ended() {
    let slotd = Slotd::start();
    let text = r#"
        step = [
            { name = "well", command = "true" },
            { name = "bad-{n}", foreach = { n = "1-2" }, command = "exit {n}" },
            { name = "hopeless", command = "true", after = "bad-1" },
            { name = "stops", command = "exit 1", after = ["afterany:bad-*", "well"], on_failure = "stop" },
            { name = "late", command = "true", after = "afterany:stops" },
        ]"#;
    slotd.write("steps.toml", text);
    let script = "sjobmgr run -Q steps.toml; echo run $?
        sjobmgr list bad-2
        for names in well 'bad-*' hopeless late nosuch ''; do sjobmgr wait $names; echo $names $?; done";
    let job = slotd.wrap(&["-c", "2"], script);
    slotd.wait_state(job, "COMPLETED");
    let note = format!("sjobmgr: the manager of job {job} has ended: showing its journal");
    let left =
        "(\"late\"): their manager has ended\n  hint: run them with sjobmgr run --resume FILE";
    let expected = format!(
        "sjobmgr: 1 step was not run: run them with sjobmgr run --resume FILE\nrun 2\n{note}\n\
         NAME  STATE         STEP PRIORITY TRIES REASON\nbad-2 {:<9} {:>8} {:>8} {:>5}\n\
         well 0\nbad-* 2\nhopeless 1\n\
         sjobmgr: error: 1 of 1 step has not run {left}\nlate 1\n\
         sjobmgr: error: the manager of job {job} has ended, and its journal has no step \"nosuch\"\n  \
         hint: sjobmgr list shows the names\nnosuch 1\n\
         sjobmgr: error: 1 of 6 steps has not run {left}\n2\n",
        "FAILED", "", "", 1
    );
    assert_eq!(slotd.output(job), expected);
    // The journal is also available after the end of the job.
    let out = slotd.cmd("sjobmgr", &["list", "--json", &format!("--jobid={job}")]).ok();
    assert_eq!(out.stderr, format!("{note}\n"));
    let rows: Vec<Value> = serde_json::from_str(&out.stdout).unwrap();
    let mut rows: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["state"].as_str().unwrap()))
        .collect();
    rows.sort_unstable();
    let states = ["FAILED", "FAILED", "SKIPPED", "PENDING", "FAILED", "COMPLETED"];
    let names = ["bad-1", "bad-2", "hopeless", "late", "stops", "well"];
    assert_eq!(rows, names.into_iter().zip(states).collect::<Vec<_>>());
    let none = slotd.cmd("sjobmgr", &["wait", "--jobid=77"]).fails(1);
    assert!(none.stderr.starts_with("sjobmgr: error: no manager is running in job 77"), "{none:?}");
    assert!(!slotd.job_dir(77).exists());
}

#[test]
fn any_shell_command_can_be_a_step() {
    let slotd = Slotd::start();
    slotd.write(
        "lines",
        "A=0,1 B=2 grep SigIgn /proc/self/status > ignored\n: nothing?\n(true)\n? || true\n*[x || yes | head -1\n",
    );
    let job = manage(&slotd, "-Q lines");
    assert_eq!(code(&slotd, job), "code 0", "{}", slotd.output(job));
    assert_eq!(slotd.read("ignored"), "SigIgn:\t0000000000000000\n");
    let names: Vec<String> = steps(&slotd, job).into_iter().map(|step| step[1].clone()).collect();
    assert_eq!(names, ["grep-1", "sh-2", "true-3", "sh-4", "x-5"]);
}

#[test]
fn a_running_step_is_a_step_of_its_job() {
    let slotd = Slotd::start();
    slotd.write("steps", format!("{}\nsleep 1000\n", slotd.gate("go")));
    let script = format!("sjobmgr run steps; echo code $?; {}", slotd.gate("over"));
    let job = slotd.wrap(&["-c", "2"], &script);
    let numbers =
        |states: &str| slotd.cmd("squeue", &["-hs", "-j", states, "-o", "%i %j"]).ok().stdout;
    slotd.wait("two steps", || {
        numbers(&job.to_string()).contains(&format!("{job}.1 sleep-2")).then_some(())
    });
    let shown = slotd.cmd("scontrol", &["show", "step", &format!("{job}.1")]).ok().stdout;
    assert!(
        shown.contains("State=RUNNING")
            && shown.contains("Name=sleep-2")
            && shown.contains("CPUs=1"),
        "{shown}"
    );
    let rss = || {
        slotd
            .cmd("sstat", &["-nP", "-j", &format!("{job}.1"), "-o", "MaxRSS"])
            .ok()
            .text()
            .to_owned()
    };
    slotd.wait("its memory", || rss().strip_suffix('K')?.parse::<u64>().ok().filter(|kb| *kb > 0));
    // A step that needs CPUs of its own waits until the manager has ended. A step that overlaps
    // does not wait.
    let mut srun = slotd.spawn({
        let mut command = slotd.command("srun");
        command.args([&format!("--jobid={job}"), "-n1", "echo", "mine"]);
        command
    });
    srun.wait_stderr("step creation temporarily disabled");
    let shares =
        slotd.cmd("srun", &[&format!("--jobid={job}"), "-n1", "--overlap", "echo", "ours"]).ok();
    assert_eq!(shares.stdout, "ours\n");
    slotd.cmd("scancel", &[format!("{job}.1")]).ok();
    slotd.open("go");
    assert_eq!(srun.end().ok().stdout, "mine\n");
    slotd.open("over");
    slotd.wait_end(job);
    let of = |name: &str| {
        steps(&slotd, job)
            .into_iter()
            .find(|step| step[1].starts_with(name))
            .map(|s| s[2..].to_vec())
    };
    let cancelled = format!("CANCELLED by {}", nix::unistd::getuid());
    assert_eq!(of("sleep-2").unwrap(), [cancelled.as_str(), "0:15"]);
    assert_eq!(of("until-1").unwrap(), ["COMPLETED", "0:0"]);
    // The exit code is the same as srun's for a cancelled step.
    assert_eq!(slotd.output(job).lines().last(), Some("code 143"));
}

/// The number of steps in a layer.
const LAYER: u32 = 40;

/// Counts the occurrences of each line.
fn counts(text: &str) -> BTreeMap<String, u32> {
    text.lines().fold(BTreeMap::new(), |mut counts, name| {
        *counts.entry(name.to_owned()).or_default() += 1;
        counts
    })
}

/// Returns step definitions in layers. Each step waits for all steps of the previous layer and
/// records that it has run. Steps of even layers are retried if they fail, and the last step of
/// each odd layer fails.
fn layers(count: u32, size: u32) -> String {
    (0..count).fold(String::new(), |mut text, layer| {
        let after = if layer > 0 { format!("after = \"afterany:l{}-*\"\n", layer - 1) } else { String::new() };
        let times = if layer % 2 == 0 { 50 } else { 0 };
        writeln!(
            text,
            "[[step]]\nname = \"l{layer}-{{n}}\"\nforeach = {{ n = \"1-{size}\" }}\n{after}\
             retry = {{ times = {times}, delay = 0 }}\ncommand = \"echo l{layer}-{{n}} >> ran; exit $(({layer} % 2 * ({{n}} / {size}))) \""
        )
        .unwrap();
        text
    })
}

/// The process to kill.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Daemon,
    Manager,
    /// The parent of the manager, which starts the steps.
    Launcher,
}

/// `SLOTD_TEST_STEPS` sets the number of steps. `SLOTD_TEST_SEED=N` repeats the random choices of
/// another run.
#[test]
fn kills_lose_no_step_and_run_none_twice() {
    use Victim::{Daemon, Launcher, Manager};
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = u32::try_from(number("SLOTD_TEST_STEPS").unwrap_or(600)).unwrap() / LAYER * LAYER;
    let seed = number("SLOTD_TEST_SEED").unwrap_or_else(|| fastrand::u64(1..1_000_000));
    println!("SLOTD_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut slotd = Slotd::start();
    slotd.write("layers.toml", layers(count / LAYER, LAYER));
    let kills = 7;
    // The job starts managers one after the other until the last kill. A manager without remaining
    // steps does nothing.
    let run = "sjobmgr run -Q --resume layers.toml";
    let job = slotd.wrap(&["-c", "2"], &format!("until [ -e enough ]; do {run}; done; {run}"));
    // Each kill loses at most two runs, possibly before they have done anything.
    let latest = count as usize - 2 * kills;
    let mut moments: Vec<usize> = (0..kills).map(|_| random.usize(1..=latest)).collect();
    moments.sort_unstable();
    for moment in moments {
        let progress = || {
            let ran = std::fs::read_to_string(slotd.path("ran")).unwrap_or_default();
            (ran.lines().count() >= moment).then_some(())
        };
        assert!(
            until_within(Duration::from_secs(600), progress).is_some(),
            "{}",
            slotd.output(job)
        );
        let choices: [&[Victim]; 5] =
            [&[Daemon], &[Manager], &[Launcher], &[Daemon, Manager], &[Daemon, Launcher]];
        let victims = random.choice(choices).unwrap();
        println!("at {moment} of {count}: {victims:?}");
        for victim in victims {
            match victim {
                Daemon => slotd.kill9(),
                Manager => managers_pid(&slotd, job)
                    .into_iter()
                    .for_each(|pid| proc::signal(pid, proc::KILL)),
                Launcher => launchers_pid(&slotd, job)
                    .into_iter()
                    .for_each(|pid| proc::signal(pid, proc::KILL)),
            }
        }
        if matches!(victims, [Daemon, ..]) {
            slotd.start_daemon();
        }
    }
    slotd.write("enough", "");
    let is_over = || slotd.job(job).is_over().then_some(());
    assert!(until_within(Duration::from_secs(600), is_over).is_some(), "{}", slotd.output(job));
    check_layers(&slotd, job, count, kills);
}

/// Returns the process that starts the manager's steps.
fn launchers_pid(slotd: &Slotd, job: u32) -> Option<i32> {
    proc::parent(managers_pid(slotd, job)?)
        .filter(|pid| proc::cmdline(*pid).contains("sjobmgr run"))
}

/// Returns the process of the manager. Works without a daemon.
fn managers_pid(slotd: &Slotd, job: u32) -> Option<i32> {
    let status = status(slotd, job)?;
    i32::try_from(status.get("pid")?.as_i64()?).ok()
}

/// Asserts that all steps have ended, that each run has a record, and that no step ran again after
/// it had ended.
fn check_layers(slotd: &Slotd, job: u32, count: u32, kills: usize) {
    let runs = counts(&slotd.read("ran"));
    let mut recorded: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for step in steps(slotd, job) {
        recorded.entry(step[1].clone()).or_default().push(format!("{} {}", step[2], step[3]));
    }
    assert_eq!(recorded.len(), count as usize, "{}", slotd.output(job));
    let mut lost_unrun = 0;
    let mut lost_all = 0;
    for (name, ends) in recorded {
        let (layer, n) = name[1..].split_once('-').unwrap();
        let (layer, n): (u32, u32) = (layer.parse().unwrap(), n.parse().unwrap());
        let lost = ends.iter().filter(|end| *end == "FAILED 0:9").count();
        let own = if layer % 2 == 1 && n == LAYER { "FAILED 1:0" } else { "COMPLETED 0:0" };
        let ended = ends.len() - lost;
        assert!(ends.iter().all(|end| end == own || end == "FAILED 0:9"), "{name}: {ends:?}");
        let is_right = if layer % 2 == 0 { ended == 1 } else { ends.len() == 1 };
        assert!(is_right, "{name}: {ends:?}");
        let ran = runs.get(&name).copied().unwrap_or(0) as usize;
        assert!(ran >= ended && ran <= ends.len(), "{name} ran {ran} times: {ends:?}");
        lost_unrun += usize::from(ran == 0);
        lost_all += lost;
    }
    println!(
        "{count} steps, {lost_all} runs lost to a kill, {lost_unrun} of them before the step did anything"
    );
    // Each kill loses at most two runs, since the job has two CPUs.
    assert!(lost_unrun <= lost_all && lost_all <= 2 * kills, "{lost_unrun} of {lost_all}");
}

#[test]
fn another_job_resumes_where_the_last_one_ended() {
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
fn invalid_step_files_are_refused_and_start_nothing() {
    let slotd = Slotd::start();
    slotd.write(
        "cycle.toml",
        "step=[{name='a',command='touch ran',after='b'},{name='b',command='x',after='a'}]",
    );
    slotd
        .write("key.toml", "[[step]]\nname = 'a'\ncommand = 'touch ran'\n[[step]]\ncomand = 'x'\n");
    slotd.write(
        "large.jsonl",
        "{\"name\":\"a\",\"command\":\"touch ran\"}\n{\"command\":\"x\",\"cpus\":3}\n",
    );
    for (file, wanted) in [
        ("cycle.toml", "cycle.toml: line 1: dependency cycle: a after b after a"),
        ("key.toml", "key.toml: line 5: unknown key \"comand\"\n  hint: did you mean command?"),
        ("large.jsonl", "large.jsonl: line 2: step \"x-2\" asks for 3 CPUs; the job has 2 CPUs"),
        ("none.toml", "could not read"),
    ] {
        let job = manage(&slotd, file);
        assert_eq!(code(&slotd, job), "code 1");
        assert!(slotd.output(job).contains(wanted), "{}", slotd.output(job));
        assert!(steps(&slotd, job).is_empty() && !slotd.exists("ran"));
        // Outside of a job, nothing is submitted either.
        let before = slotd.all_records().len();
        let refused = slotd.cmd("sjobmgr", &["run", "-c", "2", file]).fails(1);
        assert!(
            refused.stderr.starts_with("sjobmgr: error: ") && refused.stderr.contains(wanted),
            "{refused:?}"
        );
        assert_eq!(slotd.all_records().len(), before);
    }
    slotd.write("steps", "no-such-program-here\ntrue\n/etc\n");
    let job = manage(&slotd, "steps");
    assert_eq!(code(&slotd, job), "code 13");
    let ends: Vec<Vec<String>> =
        steps(&slotd, job).into_iter().map(|step| step[2..].to_vec()).collect();
    assert_eq!(ends, [["FAILED", "2:0"], ["COMPLETED", "0:0"], ["FAILED", "13:0"]]);
    let out = slotd.output(job);
    assert!(
        out.contains(
            "slurmstepd: error: execve(): no-such-program-here: No such file or directory"
        ),
        "{out}"
    );
}

#[test]
fn steps_are_read_from_a_shell_pipe_but_not_from_a_fifo() {
    let slotd = Slotd::start();
    slotd.sh("mkfifo steps.fifo").ok();
    let script = "#!/bin/bash\nsjobmgr run -Q <(echo 'echo piped'); sjobmgr run -Q steps.fifo; \
                  echo code $?\n";
    let job = slotd.script(&[], script);
    slotd.wait_end(job);
    let output = slotd.output(job);
    assert!(output.contains("piped\n") && output.ends_with("code 1\n"), "{output}");
    assert!(output.contains("steps.fifo: it is a FIFO: "), "{output}");
}

#[test]
fn run_submits_a_job_if_it_is_outside_of_one() {
    let slotd = Slotd::start();
    slotd.write("steps", "echo one $SLURM_CPUS_ON_NODE\n");
    let out = slotd.cmd("sjobmgr", &["run", "-c", "2", "-Q", "steps"]).ok();
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    assert_eq!(out.stderr, "sjobmgr: not inside a job: submitting a job that runs the steps\n");
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.output(1), "one 1\n");
    assert_eq!(slotd.job(1).tres().0, 2);
    let refused = slotd.cmd("sjobmgr", &["list"]).fails(1);
    assert!(refused.stderr.starts_with("sjobmgr: error: not inside a job\n"), "{refused:?}");
    // `/dev/stdin` works if it is a file, because a file has another name. A pipe has none.
    slotd.sh("sjobmgr run -Q /dev/stdin < steps").ok();
    slotd.wait_state(2, "COMPLETED");
    assert_eq!(slotd.output(2), "one 1\n");
    let refused = slotd.sh("cat steps | sjobmgr run /dev/stdin").fails(1);
    let wanted = "sjobmgr: error: /dev/stdin is not a regular file: the submitted job could not read it\n  \
                hint: write the steps to a file, or run sjobmgr inside a job: sbatch, salloc\n";
    assert_eq!(refused.stderr, wanted);
    slotd.write("steps", "# nothing yet\n\n");
    let refused = slotd.cmd("sjobmgr", &["run", "steps"]).fails(1);
    assert_eq!(refused.stderr, "sjobmgr: error: steps contains no steps: no job was submitted\n");
    slotd.write("steps", format!("true\necho '{}'\n", "x".repeat(200_000)));
    let refused = slotd.cmd("sjobmgr", &["run", "steps"]).fails(1);
    let wanted =
        "sjobmgr: error: steps: line 2: step \"echo-2\": an argument of 200007 bytes is too long";
    assert!(refused.stderr.starts_with(wanted), "{}", &refused.stderr[..200]);
    slotd.write("steps", b"true\necho \xff\n");
    let refused = slotd.cmd("sjobmgr", &["run", "steps"]).fails(1);
    assert!(refused.stderr.ends_with("steps: not valid UTF-8\n"), "{refused:?}");
    assert_eq!(slotd.all_records().len(), 2);
}

#[test]
fn generated_step_names_are_unique_and_shell_brackets_are_kept() {
    let slotd = Slotd::start();
    slotd.write("more", "{ echo again; } >> ran\n[ -e ran ] && echo there >> ran\n");
    slotd.write("steps", "{ echo x; } >> ran\n\nsjobmgr run more && sjobmgr submit -- true && sjobmgr run - < more\n");
    let job = manage(&slotd, "-Q steps");
    assert_eq!(code(&slotd, job), "code 0", "{}", slotd.output(job));
    let mut names: Vec<String> =
        steps(&slotd, job).into_iter().map(|step| step[1].clone()).collect();
    names.sort();
    assert_eq!(names, ["sh-1", "sh-4", "sh-5", "sh-7", "sh-8", "sjobmgr-3", "true-6"]);
    let refused = slotd.sh("sjobmgr run --resume - < more").fails(1);
    assert!(
        refused.stderr.starts_with("sjobmgr: error: cannot resume from standard input\n"),
        "{refused:?}"
    );
    let piped = manage(&slotd, "-Q -j 0 - < more");
    assert_eq!(code(&slotd, piped), "code 0", "{}", slotd.output(piped));
    assert_eq!(
        counts(&slotd.read("ran")),
        [("again", 3), ("there", 3), ("x", 1)].map(|(line, n)| (line.to_owned(), n)).into()
    );
}

#[test]
fn a_step_that_runs_again_appends_to_its_output() {
    let slotd = Slotd::start();
    let text = r#"
        [[step]]
        name = "a"
        command = "echo a $SLURM_STEP_ID; [ -e once ] || { touch once; exit 1; }"
        stdout = "%s.out"
        retry = { times = 1, delay = 0 }
        [[step]]
        name = "b"
        command = "echo b; [ -e fixed ]"
        stdout = "%s.out"
        stderr = "both"
        after = "a"
    "#;
    slotd.write("steps.toml", text);
    slotd.write("b.out", "of another run\n");
    let script =
        "sjobmgr run steps.toml; touch fixed; sjobmgr run --resume-failed steps.toml; echo code $?";
    let job = slotd.wrap(&[], script);
    assert_eq!(code(&slotd, job), "code 0");
    assert_eq!(slotd.read("a.out"), "a 0\na 1\n", "a retry");
    assert_eq!(
        slotd.read("b.out"),
        "b\nb\n",
        "the second manager appends, and the first one truncated the file"
    );
}

#[test]
fn a_killed_manager_leaves_no_step_behind() {
    let slotd = Slotd::start();
    slotd.write("steps", "echo $$ > pid; exec sleep 1000\n");
    let job = slotd.wrap(
        &["-c", "2"],
        "sjobmgr run steps; echo code $?; sjobmgr run --resume steps; echo code $?",
    );
    let pid: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    proc::signal(manager(&slotd, job), proc::KILL);
    slotd.wait_state(job, "COMPLETED");
    assert!(!proc::is_alive(pid), "the step outlived its manager");
    let out = slotd.output(job);
    assert!(
        out.contains("the manager was killed by signal 9, and 1 running steps with it"),
        "{out}"
    );
    let codes: Vec<&str> = out.lines().filter(|line| line.starts_with("code")).collect();
    assert_eq!(codes, ["code 137", "code 137"], "the step ran once, because it has no retry");
    assert_eq!(
        steps(&slotd, job),
        [[format!("{job}.0"), "echo-1".into(), "FAILED".into(), "0:9".into()]]
    );
}

#[test]
fn a_step_that_kills_its_launcher_ends_the_manager_with_a_message() {
    let slotd = Slotd::start();
    let text = r#"
        [[step]]
        name = "a"
        command = "sleep 1000 & echo $! > up; wait"
        [[step]]
        name = "killer"
        command = "until [ -s up ]; do sleep 0.02; done; [ -e killed ] || { touch killed; kill -9 $PPID; exec sleep 1000; }; echo killer >> ran"
        retry = { times = 1, delay = 0 }
        [[step]]
        name = "b"
        command = "while kill -0 $(cat up); do sleep 0.02; done; echo b >> ran"
        after = "killer"
    "#;
    slotd.write("steps.toml", text);
    let script =
        "sjobmgr run steps.toml; echo code $?; sjobmgr run --resume steps.toml; echo code $?";
    let job = slotd.wrap(&["-c", "2"], script);
    // The first step has no retry.
    assert_eq!(code(&slotd, job), "code 137");
    let out = slotd.output(job);
    assert!(
        out.contains("the process that starts the steps was killed, and 2 running steps with it"),
        "{out}"
    );
    assert_eq!(out.lines().filter(|line| *line == "code 137").count(), 2, "{out}");
    assert_eq!(slotd.read("ran"), "killer\nb\n");
    let mut ends: Vec<Vec<String>> =
        steps(&slotd, job).into_iter().map(|step| step[1..].to_vec()).collect();
    ends.sort();
    let killed = ["a", "killer"].map(|name| [name, "FAILED", "0:9"]);
    let well = ["b", "killer"].map(|name| [name, "COMPLETED", "0:0"]);
    assert_eq!(ends, [killed[0], well[0], well[1], killed[1]]);
}

#[test]
fn one_of_two_concurrent_managers_runs_the_steps_of_both() {
    let slotd = Slotd::start();
    for (name, other) in [("one", "two"), ("two", "one")] {
        let command = format!("touch {name}.up; {}", slotd.gate(&format!("{other}.up")));
        slotd.write(name, serde_json::json!({"name": name, "command": command}).to_string());
    }
    let job = slotd.wrap(
        &["-c", "2"],
        "sjobmgr run one & sjobmgr run two; echo code $?; wait $!; echo code $?",
    );
    assert_eq!(code(&slotd, job), "code 0");
    let out = slotd.output(job);
    let count = |text: &str| out.lines().filter(|line| line.contains(text)).count();
    assert_eq!(
        (count("code 0"), count("a manager is already running in this job")),
        (2, 1),
        "{out}"
    );
}

#[test]
fn steps_can_be_submitted_listed_held_and_moved_while_the_manager_runs() {
    let slotd = Slotd::start();
    // The first step submits others. They wait for the two CPUs, which the gate has until it opens.
    // The steps whose order is tested use both CPUs, so they run one at a time.
    slotd.write(
        "driver",
        "sjobmgr submit -J held -n1 -- sh -c 'echo held $SLURM_STEP_ID >> ran'\n\
         sjobmgr submit -J a -c2 -- sh -c 'echo a >> ran'\n\
         sjobmgr submit -J b --priority -1 -d 'afterany:a' -- sh -c 'echo b >> ran'\n\
         sjobmgr submit -J late -c2 -- sh -c 'echo late >> ran'\n\
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
    let of = |name: &str| {
        list.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned()
    };
    assert!(of("gate ").contains("RUNNING"), "{list}");
    assert!(of("held ").ends_with("JobHeldUser"), "{list}");
    assert!(
        of("late ").ends_with("Resources") && of("b ").ends_with("Dependency: afterany:a"),
        "{list}"
    );
    let ran = slotd.read("ran");
    let at = |text: &str| {
        ran.lines()
            .position(|line| line.starts_with(text))
            .unwrap_or_else(|| panic!("no {text}: {ran}"))
    };
    assert!(at("late") < at("a") && at("a") < at("b") && at("waited 0") < at("held"), "{ran}");
    assert!(ran.contains("bad 7\n"), "{ran}");
}

#[test]
fn a_client_that_does_not_read_does_not_block_the_manager() {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    let slotd = Slotd::start();
    slotd.write(
        "steps.toml",
        format!("step = [{{ name = 'gate', command = \"{}\" }}]", slotd.gate("go")),
    );
    let job = manage(&slotd, "-Q steps.toml");
    manager(&slotd, job);
    let path = slotd.job_dir(job).join("sjobmgr.sock");
    let mut silent = UnixStream::connect(&path).unwrap();
    // Requests the list of many steps repeatedly without reading any response.
    let many: String = (0..2000)
        .map(|n| format!("{{\"name\":\"m{n}\",\"command\":\"true\",\"after\":\"gate\"}}\n"))
        .collect();
    silent.write_all(many.as_bytes()).unwrap();
    // The manager disconnects the client before all requests are written.
    let _ = silent.write_all("{\"request\":\"list\"}\n".repeat(200).as_bytes());
    slotd.wait("all steps", || {
        (status(&slotd, job)?.get("steps")?.as_u64() == Some(2001)).then_some(())
    });
    slotd.cmd("sjobmgr", &["cancel", "m*", "--jobid", &job.to_string()]).ok();
    slotd.open("go");
    assert_eq!(code(&slotd, job), "code 1");
    assert_eq!(steps(&slotd, job).len(), 1);
}

#[test]
fn the_daemon_reads_missed_records_when_the_job_ends() {
    let mut slotd = Slotd::start();
    slotd.write("steps", format!("{}\nexit 5\n", slotd.gate("go")));
    let job = slotd
        .wrap(&["-c", "2"], &format!("sjobmgr run steps; echo > left; {}", slotd.gate("over")));
    manager(&slotd, job);
    slotd.kill9();
    slotd.open("go");
    slotd.wait_text("left", "\n");
    slotd.start_daemon();
    slotd.open("over");
    slotd.wait_end(job);
    let ends: Vec<Vec<String>> =
        steps(&slotd, job).into_iter().map(|step| step[2..].to_vec()).collect();
    assert_eq!(ends, [["COMPLETED", "0:0"], ["FAILED", "5:0"]]);
    let printed = slotd.output(job);
    assert!(printed.contains("the daemon is down: it will read the records of"), "{printed}");
}

#[test]
fn a_full_disk_starts_no_steps_and_loses_no_recorded_end() {
    let slotd = Slotd::start();
    let step = |name: &str, gate: &str, after: &str| {
        let gate = slotd.gate(gate);
        format!(
            "{{ name = '{name}', command = \"echo {name} >> ran; {gate}\", retry = 3, after = [{after}] }}"
        )
    };
    let text =
        [step("a", "first", ""), step("b", "second", ""), step("c", "first", "'a'")].join(",\n");
    slotd.write("steps.toml", format!("step = [{text}]"));
    let script =
        "sjobmgr run steps.toml; echo code $?; sjobmgr run --resume steps.toml; echo code $?";
    let job = slotd.wrap(&["-c", "2"], script);
    slotd.wait("two steps", || {
        (slotd.exists("ran") && slotd.read("ran").lines().count() == 2).then_some(())
    });
    let pid = manager(&slotd, job);
    limit_files(pid, Some(0));
    slotd.open("first");
    // Its messages cannot be written either.
    slotd.wait("a drain", || {
        (status(&slotd, job)?.get("halted")?.as_bool() == Some(true)).then_some(())
    });
    limit_files(pid, None);
    slotd.open("second");
    assert_eq!(code(&slotd, job), "code 0");
    let out = slotd.output(job);
    assert_eq!(
        out.lines().filter(|line| line.starts_with("code")).collect::<Vec<_>>(),
        ["code 1", "code 0"],
        "{out}"
    );
    assert!(out.contains("1 step was not run"), "{out}");
    assert_eq!(counts(&slotd.read("ran")).into_values().collect::<Vec<_>>(), [1, 1, 1]);
    let ends: Vec<Vec<String>> =
        steps(&slotd, job).into_iter().map(|step| step[1..].to_vec()).collect();
    assert_eq!(ends, ["a", "b", "c"].map(|name| [name, "COMPLETED", "0:0"]));
}

#[test]
fn the_steps_of_a_cancelled_job_may_finish_and_are_recorded() {
    let slotd = Slotd::setup().set("SLOTD_KILL_WAIT", 60).start();
    let handler = "trap 'until [ -e go ]; do sleep 0.02; done; echo saved >> ran; exit 3' TERM; echo up >> up; \
                      while :; do sleep 0.02; done";
    slotd.write("steps", format!("{handler}\nsleep 1000\ntrue\n"));
    for command in ["sjobmgr run steps", "exec sjobmgr run steps"] {
        let job = slotd.wrap(&["-c", "2"], command);
        slotd.wait_text("up", "up");
        slotd.wait("two steps", || {
            (status(&slotd, job)?.get("running")?.as_u64() == Some(2)).then_some(())
        });
        slotd.cancel(job);
        slotd.wait("one step", || {
            (status(&slotd, job)?.get("running")?.as_u64() == Some(1)).then_some(())
        });
        slotd.open("go");
        slotd.wait_state(job, "CANCELLED");
        assert_eq!(slotd.read("ran"), "saved\n");
        let ends: Vec<Vec<String>> =
            steps(&slotd, job).into_iter().map(|step| step[2..].to_vec()).collect();
        assert_eq!(ends, [["CANCELLED", "3:0"], ["CANCELLED", "0:15"]], "{command}");
        for name in ["up", "ran", "go"] {
            std::fs::remove_file(slotd.path(name)).unwrap();
        }
    }
}

#[test]
fn an_interrupt_lets_steps_finish_and_a_second_one_ends_them() {
    let slotd = Slotd::start();
    slotd.write("steps", "sleep 1000\nsleep 1000\nsleep 1000\n");
    // Either process gets the signal, or both do, as with Ctrl-C.
    let to_one = |job: u32| proc::signal(manager(&slotd, job), 2);
    let to_other = |job: u32| proc::signal(launchers_pid(&slotd, job).unwrap(), 2);
    let to_both =
        |job: u32| proc::signal(-proc::parent(launchers_pid(&slotd, job).unwrap()).unwrap(), 2);
    let ways: [&dyn Fn(u32); 3] = [&to_one, &to_other, &to_both];
    for interrupt in ways {
        // The shell ignores the interrupt, so that they handle it.
        let job = slotd.wrap(&["-c", "2"], "trap : INT; sjobmgr run steps; echo code $?");
        slotd.wait("two steps", || {
            (status(&slotd, job)?.get("running")?.as_u64() == Some(2)).then_some(())
        });
        interrupt(job);
        slotd.wait("a drain", || {
            (status(&slotd, job)?.get("halted")?.as_bool() == Some(true)).then_some(())
        });
        assert_eq!(status(&slotd, job).unwrap()["running"], 2);
        interrupt(job);
        // The exit code matches the record.
        assert_eq!(code(&slotd, job), "code 143");
        let ends: Vec<Vec<String>> =
            steps(&slotd, job).into_iter().map(|step| step[2..].to_vec()).collect();
        assert_eq!(ends, [["CANCELLED", "0:15"], ["CANCELLED", "0:15"]]);
    }
}

#[test]
fn a_timed_out_job_is_requeued_while_it_makes_progress() {
    let slotd = Slotd::start();
    // Each step except the first hangs in its first run.
    let text = "[defaults]\ncommand = \"echo {n} >> ran; until [ $(grep -c {n} ran) -gt 1 ]; do sleep 0.02; done\"\n\
                [[step]]\nname = \"s{n}\"\nforeach = { n = \"1-3\" }\n[[step]]\nname = \"s0\"\ncommand = \"true\"\npriority = 1\n";
    slotd.write("steps.toml", text);
    // The manager ends the steps one second before the time limit. By then, one step has ended and
    // the next one has begun, also on a busy machine.
    let out = slotd
        .cmd("sjobmgr", &["run", "-c", "1", "--requeue", "-t", "0:05", "-o", "out", "steps.toml"])
        .ok();
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.read("ran"), "1\n1\n2\n2\n3\n3\n");
    assert_eq!(slotd.show(1, "Restarts"), "3");
}

#[test]
fn the_memory_of_a_step_does_not_include_its_launcher() {
    let slotd = Slotd::start();
    slotd.write("steps", "true\n: && x=$(head -c 60000000 /dev/zero | tr '\\0' x)\n");
    let job = manage(&slotd, "-Q steps");
    assert_eq!(code(&slotd, job), "code 0");
    let printed =
        slotd.cmd("sacct", &["-nP", "-j", &job.to_string(), "-o", "JobName,MaxRSS"]).ok().stdout;
    let kb = |name: &str| {
        let line =
            printed.lines().find(|line| line.starts_with(name)).unwrap().split_once('|').unwrap().1;
        line.trim_end_matches('K').parse().unwrap_or(0u64)
    };
    assert!(kb("true-1") < 5_000 && kb("sh-2") > 50_000, "{printed}");
}

#[test]
fn on_a_full_disk_steps_wait_until_there_is_space() {
    let mut slotd = Slotd::setup().prepare();
    // The database is on another disk.
    let jobs = slotd.root.join("lib/jobs");
    std::fs::create_dir_all(&jobs).unwrap();
    let Some(disk) = SmallDisk::mount(&jobs, 2 << 20) else { return };
    slotd.start_daemon();
    let many: String = (0..400).map(|n| format!("echo {n} >> ran\n")).collect();
    slotd.write("steps", format!("{}\n{many}", slotd.gate("go")));
    let script = format!(
        "sjobmgr run -Q steps; echo code $?; touch full; {}; sjobmgr run -Q --resume steps; echo code $?",
        slotd.gate("room")
    );
    let job = slotd.wrap(&["-c", "1", "-o", &slotd.path("out").display().to_string()], &script);
    manager(&slotd, job);
    let filling = disk.fill();
    slotd.open("go");
    slotd.wait("the end of the first", || slotd.exists("full").then_some(()));
    std::fs::remove_file(filling).unwrap();
    slotd.open("room");
    slotd.wait_state(job, "COMPLETED");
    let out = slotd.read("out");
    assert_eq!(
        out.lines().filter(|line| line.starts_with("code")).collect::<Vec<_>>(),
        ["code 1", "code 0"],
        "{out}"
    );
    assert!(
        out.contains("cannot write the step journal") && out.contains(" not run: run them with"),
        "{out}"
    );
    let ran = counts(&slotd.read("ran"));
    assert!(ran.len() == 400 && ran.values().all(|times| *times == 1), "{ran:?}");
    let ends = steps(&slotd, job);
    assert!(
        ends.len() == 401 && ends.iter().all(|step| step[2..] == ["COMPLETED", "0:0"]),
        "{ends:?}"
    );
}
