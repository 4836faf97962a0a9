//! scancel: cancelling and signalling jobs and steps.

use slotd_kit::{Setup, Slotd, proc};

#[test]
fn pending_job_is_cancelled_immediately() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    slotd.cancel(job);
    let ended = slotd.job(job);
    assert_eq!(
        (ended.state().as_str(), ended.reason().as_str(), ended.exit().as_str()),
        ("CANCELLED", "CancelledByUser", "0:0")
    );
}

#[test]
fn running_job_is_terminated() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    slotd.cancel(job);
    let ended = slotd.wait_state(job, "CANCELLED");
    assert_eq!(ended.reason(), "CancelledByUser");
    let output = slotd.output(job);
    assert!(
        output.starts_with(&format!("slurmstepd: error: *** JOB {job} ON "))
            && output.ends_with(" ***\n"),
        "{output}"
    );
}

#[test]
fn stubborn_job_is_completing_and_then_killed() {
    let stays = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    // First a grace period that outlasts the test, then a short one.
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let job = slotd.wrap(&[], stays);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cancel(job);
    slotd.wait_state(job, "COMPLETING");
    slotd.wait_text(&format!("slurm-{job}.out"), "asked\n");
    assert_eq!(slotd.state(job), "COMPLETING");
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], stays);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
}

#[test]
fn job_that_exits_in_its_grace_period_is_cancelled() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let job =
        slotd.wrap(&[], "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    assert!(slotd.output(job).ends_with("saved\n"));
}

/// Returns the command of a step that logs each SIGTERM and SIGHUP and takes a while to save its
/// state.
fn saves(slotd: &Slotd) -> String {
    let handler = format!("echo TERM >>log; {}; echo saved >>log; exit 0", slotd.gate("may-save"));
    slotd.write(
        "step.sh",
        format!("trap '{handler}' TERM\ntrap 'echo HUP >>log' HUP\necho ready >>log\nwhile :; do sleep 0.02; done\n"),
    );
    "srun bash step.sh".to_owned()
}

#[test]
fn step_of_cancelled_job_gets_one_sigterm_and_the_grace_period() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let job = slotd.wrap(&[], &saves(&slotd));
    slotd.wait_text("log", "ready");
    slotd.cancel(job);
    slotd.wait_text("log", "TERM");
    // The script ends before its step.
    slotd.wait("the end of the script", || slotd.log().contains("leftover process").then_some(()));
    slotd.open("may-save");
    slotd.wait_state(job, "CANCELLED");
    assert_eq!(slotd.read("log"), "ready\nTERM\nsaved\n");
}

#[test]
fn step_left_behind_by_a_script_gets_the_same_grace_period() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let job = slotd.wrap(
        &[],
        &format!("{} & until grep -q ready log; do sleep 0.02; done; exit 3", saves(&slotd)),
    );
    slotd.wait_text("log", "TERM");
    slotd.open("may-save");
    assert_eq!(slotd.wait_end(job).exit(), "3:0");
    assert_eq!(slotd.read("log"), "ready\nTERM\nsaved\n");
    assert_eq!(slotd.steps(job, "State"), "FAILED\nFAILED\nCOMPLETED");
}

#[test]
fn step_whose_srun_is_killed_gets_the_same_grace_period() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let job = slotd.wrap(
        &[],
        &format!(
            "{} & srun=$!; until grep -q ready log; do sleep 0.02; done; kill -9 $srun; {}",
            saves(&slotd),
            slotd.gate("over")
        ),
    );
    slotd.wait_text("log", "TERM");
    slotd.open("may-save");
    slotd.wait_text("log", "saved");
    slotd.open("over");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("log"), "ready\nTERM\nsaved\n");
}

#[test]
fn cancelled_job_leaves_no_processes() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "setsid sleep 1000 & helper ignore 15 & nohup sleep 1000 & wait");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    let left = |pid: &i32| {
        ["sleep 1000", "helper"].iter().any(|name| proc::cmdline(*pid).starts_with(name))
    };
    assert!(!slotd.processes().iter().any(left));
}

#[test]
fn background_processes_end_with_their_script() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "setsid sleep 1000 & exit 0");
    slotd.wait_end(job);
    slotd.wait("the end of its processes", || {
        (!slotd.processes().iter().any(|pid| proc::cmdline(*pid).starts_with("sleep 1000")))
            .then_some(())
    });
}

#[test]
fn unknown_or_ended_jobs_are_silently_ignored() {
    let slotd = Slotd::start();
    let done = slotd.wrap(&[], "true");
    slotd.wait_state(done, "COMPLETED");
    for id in [done.to_string(), "999999".to_owned()] {
        let out = slotd.cmd("scancel", &[&id]).ok();
        assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    }
    let out = slotd.cmd("scancel", &["-v", "999999"]);
    assert!(
        out.stderr.contains("Kill job error on job id 999999: Invalid job id specified"),
        "{}",
        out.stderr
    );
    assert_eq!(slotd.state(done), "COMPLETED");
}

#[test]
fn malformed_id_is_an_error() {
    let slotd = Slotd::start();
    for id in ["abc", "12x", "0"] {
        let out = slotd.cmd("scancel", &[id]).fails(1);
        assert_eq!(out.stderr, format!("scancel: error: Invalid job id {id}\n"));
    }
    let out = slotd.cmd::<&str>("scancel", &[]).fails(1);
    assert_eq!(out.stderr, "scancel: error: No job identification provided\n");
}

#[test]
fn several_jobs_can_be_named() {
    let slotd = Slotd::start();
    let jobs: Vec<u32> = (0..3).map(|_| slotd.wrap(&["-H"], "true")).collect();
    slotd
        .cmd("scancel", &[format!("{},{}", jobs[0], jobs[1]), "999999".into(), jobs[2].to_string()])
        .ok();
    for job in jobs {
        assert_eq!(slotd.state(job), "CANCELLED");
    }
}

#[test]
fn unknown_or_ended_jobs_are_errors_with_filters_and_batch() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let ended = slotd.wrap(&[], "true");
    slotd.wait_state(ended, "COMPLETED");
    for (args, stderr, code) in [
        (vec!["-b", "999"], "999: Invalid job id specified", 1),
        (vec!["-t", "R", "999"], "999: Invalid job id specified", 1),
        (vec!["-n", "held", "2"], "2: Invalid job id specified", 1),
        (vec!["-s", "USR1", "-n", "held", "999"], "999: Invalid job id specified", 1),
        (vec!["-p", "cpu", "-Q", "999"], "", 1),
        (vec!["-f", "999"], "", 0),
        (vec!["-t", "R", "1"], "", 0),
        (vec!["-n", "held", "999", "1"], "999: Invalid job id specified", 1),
    ] {
        let out = slotd.cmd("scancel", &args);
        let error = match stderr {
            "" => String::new(),
            _ => format!("scancel: error: Kill job error on job id {stderr}\n"),
        };
        assert_eq!((out.stderr.as_str(), out.code), (error.as_str(), code), "{args:?}");
    }
    assert_eq!(slotd.state(held), "CANCELLED", "the job that was found");
}

#[test]
fn jobs_can_be_selected_by_filters() {
    let slotd = Setup::default().set("SLOTD_CPU_PARTITIONS", "cpu,other").start();
    let named = slotd.wrap(&["-H", "-J", "grp"], "true");
    let other = slotd.wrap(&["-H", "-p", "other"], "true");
    let running = slotd.endless(&[]);
    let pending = slotd.wrap(&["-H"], "true");
    slotd.cmd("scancel", &["-n", "grp"]).ok();
    assert_eq!(slotd.state(named), "CANCELLED");
    assert_eq!(slotd.state(other), "PENDING");
    slotd.cmd("scancel", &["-p", "other"]).ok();
    assert_eq!(slotd.state(other), "CANCELLED");
    slotd.cmd("scancel", &["-t", "PENDING", "--me"]).ok();
    assert_eq!(slotd.state(pending), "CANCELLED");
    assert_eq!(slotd.state(running), "RUNNING");
    slotd.cmd("scancel", &["--me"]).ok();
    slotd.wait_state(running, "CANCELLED");
    let out = slotd.cmd("scancel", &["-t", "bogus"]).fails(1);
    assert!(out.stderr.contains("bogus"), "{}", out.stderr);
    let out = slotd.cmd("scancel", &["-u", "nosuchuser"]).fails(1);
    assert_eq!(out.stderr, "scancel: error: Invalid user name: nosuchuser\n");
}

#[test]
fn signal_reaches_a_job_without_steps() {
    let slotd = Slotd::start();
    let job = slotd
        .wrap(&[], "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cmd("scancel", &["-s", "USR1", &job.to_string()]).ok();
    assert_eq!(slotd.wait_state(job, "FAILED").exit(), "9:0");
    assert!(slotd.output(job).contains("caught\n"));
}

#[test]
fn fatal_signal_is_shown_in_the_exit_code() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    // The book's example.
    slotd.cmd("scancel", &["--signal", "TERM", &job.to_string()]).ok();
    assert_eq!(slotd.wait_end(job).exit(), "0:15");
}

#[test]
fn signal_can_be_sent_only_to_the_batch_shell() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nsh -c 'trap \"echo child\" USR1; echo > inner; while :; do sleep 0.05; done' &\n\
                  trap 'echo shell; kill $!; exit 0' USR1\nuntil [ -e inner ]; do sleep 0.02; done\necho ready\nwait\n";
    let job = slotd.script(&[], script);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cmd("scancel", &["-b", "-s", "USR1", &job.to_string()]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "ready\nshell\n");
}

#[test]
fn signal_goes_to_the_steps_and_not_to_the_batch_shell() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\ntrap 'echo shell' USR1\n\
                  srun sh -c 'trap \"echo step; exit 4\" USR1; echo > inner; while :; do sleep 0.05; done' 2>/dev/null\necho rc=$?\n";
    let job = slotd.script(&[], script);
    slotd.wait_text("inner", "");
    slotd.cmd("scancel", &["-s", "USR1", &job.to_string()]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "step\nrc=4\n");
}

#[test]
fn single_step_can_be_cancelled() {
    let slotd = Slotd::start();
    let job = slotd
        .script(&[], "#!/bin/sh\nsrun sh -c 'echo > inner; exec sleep 1000' 2> err\necho rc=$?\n");
    slotd.wait_text("inner", "");
    slotd.cmd("scancel", &[format!("{job}.0")]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "rc=143\n");
    let err = slotd.read("err");
    assert!(err.contains(&format!("*** STEP {job}.0 ON ")), "{err}");
}

#[test]
fn single_step_can_be_signalled() {
    let slotd = Slotd::start();
    let job = slotd.script(
        &[],
        "#!/bin/sh\nsrun sh -c 'trap \"exit 6\" USR2; echo > inner; while :; do sleep 0.05; done' 2>/dev/null\necho rc=$?\n",
    );
    slotd.wait_text("inner", "");
    slotd.cmd("scancel", &["--signal", "USR2", &format!("{job}.0")]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "rc=6\n");
}

#[test]
fn unknown_signal_is_refused() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let out = slotd.cmd("scancel", &["-s", "FOO", &job.to_string()]).fails(1);
    assert!(out.stderr.contains("FOO"), "{}", out.stderr);
    let out = slotd.cmd("scancel", &["-s", "USR1", "999999"]).fails(1);
    assert_eq!(
        out.stderr,
        "scancel: error: Kill job error on job id 999999: Invalid job id specified\n"
    );
    let over = slotd.wrap(&["-H"], "true");
    slotd.cancel(over);
    let out = slotd.cmd("scancel", &["-s", "USR1", &over.to_string()]).fails(1);
    assert_eq!(
        out.stderr,
        format!("scancel: error: Kill job error on job id {over}: Invalid job id specified\n")
    );
    assert_eq!(slotd.state(job), "RUNNING");
}

#[test]
fn stubborn_jobs_are_cancelled_in_parallel() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let jobs = [0, 1, 2, 3]
        .map(|i| slotd.wrap(&["--mem", "1", "-o", &format!("log{i}")], "exec helper ignore 15"));
    for i in 0..jobs.len() {
        slotd.wait_text(&format!("log{i}"), "ready");
    }
    slotd.cmd("scancel", &["--me"]).ok();
    // If they were cancelled one after the other, the second would wait for the long grace period
    // of the first.
    let all_at_once = || jobs.iter().all(|job| slotd.state(*job) == "COMPLETING").then_some(());
    slotd.wait("all jobs to be completing", all_at_once);
    slotd.cmd("scancel", &["--me", "-s", "KILL"]).ok();
    for job in jobs {
        slotd.wait_state(job, "CANCELLED");
    }
}

#[test]
fn cancelling_twice_has_no_further_effect() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "exec helper ignore 15");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cancel(job);
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    assert_eq!(slotd.output(job).matches("CANCELLED AT").count(), 1);
}

#[test]
fn interactive_cancel_requires_a_yes() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&["-H", "-J", "grp"], "true");
    let second = slotd.wrap(&["-H", "-J", "grp"], "true");
    let other = slotd.wrap(&["-H", "-J", "other"], "true");
    let asks = |args: &[&str], answers: &str| {
        let mut command = slotd.command("scancel");
        command.args(args);
        slotd.feed(command, answers)
    };
    let question =
        |id: u32, name: &str| format!("Cancel job_id={id} name={name} partition=cpu [y/n]? ");
    // No answer means no, even if only a filter selects the jobs.
    let out = asks(&["-i", "-n", "grp"], "").ok();
    assert_eq!(out.stdout, question(first, "grp") + &question(second, "grp"));
    assert_eq!((slotd.state(first), slotd.state(second)), ("PENDING".into(), "PENDING".into()));
    asks(&["-i", "-n", "grp"], "n\ny\n").ok();
    assert_eq!((slotd.state(first), slotd.state(second)), ("PENDING".into(), "CANCELLED".into()));
    let out = asks(&["-i", &other.to_string()], "y\n").ok();
    assert_eq!(out.stdout, question(other, "other"));
    assert_eq!(slotd.state(other), "CANCELLED");
    // No question is asked about an ended job.
    let out = asks(&["-i", &other.to_string()], "y\n").fails(1);
    let error =
        format!("scancel: error: Kill job error on job id {other}: Invalid job id specified\n");
    assert_eq!((out.stdout, out.stderr), (String::new(), error));
}

#[test]
fn verbose_scancel_reports_filters_without_matches() {
    let slotd = Slotd::start();
    let out = slotd.cmd("scancel", &["--name=grp", "-p", "cpu", "-v"]).ok();
    let error = "scancel: error: No active jobs match ALL job filters, including: job_name=grp partition=cpu \n";
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", error));
    assert_eq!(slotd.cmd("scancel", &["--name=grp"]).ok().stderr, "");
}

#[test]
fn the_name_of_a_job_is_not_a_list() {
    let slotd = Slotd::start();
    let named = |name: &str| slotd.wrap(&["-H", "-J", name], "true");
    let [both, first, second] = ["a,b", "a", "b"].map(named);
    slotd.cmd("scancel", &["-n", "a,b"]).ok();
    let states = [both, first, second].map(|id| slotd.state(id));
    assert_eq!(states, ["CANCELLED", "PENDING", "PENDING"]);
}

#[test]
fn empty_filter_cancels_nothing() {
    let slotd = Slotd::start();
    let jobs = [slotd.endless(&[]), slotd.wrap(&["-H"], "true")];
    let (me, first) = (slotd.sh("id -un").ok().text().to_owned(), jobs[0].to_string());
    for filter in ["-n", "-p", "-A", "-q", "-R", "-w", "--wckey"] {
        for value in ["", ","] {
            slotd.cmd("scancel", &[filter, value]).ok();
            slotd.cmd("scancel", &["-u", &me, filter, value]).ok();
            slotd.cmd("scancel", &["--me", filter, value, &first]).ok();
            slotd.cmd("scancel", &["-s", "KILL", filter, value, &first]).ok();
        }
    }
    let out = slotd.cmd("scancel", &["-v", "-u", &me, "-n", ""]).ok();
    let said = format!(
        "scancel: error: No active jobs match ALL job filters, including: job_name= user_name={me} \n"
    );
    assert_eq!(out.stderr, said);
    for (words, said) in [
        (&["-u", ""][..], "scancel: error: Invalid user name: \n"),
        (&["--me", "-u", ","], "scancel: error: Invalid user name: \n"),
        (&[""], "scancel: error: Invalid job id \n"),
        (&[","], "scancel: error: Invalid job id ,\n"),
        (&["-t", ""], "Invalid job state specified: \n"),
    ] {
        let out = slotd.cmd("scancel", words).fails(1);
        assert!(out.stderr.starts_with(said), "{words:?}: {}", out.stderr);
    }
    assert_eq!(
        (slotd.state(jobs[0]), slotd.state(jobs[1])),
        ("RUNNING".to_owned(), "PENDING".to_owned())
    );
}

const TRAP: &str = "trap 'echo caught' USR1; echo ready; while [ ! -e go ]; do sleep 0.03; done";

#[test]
fn signal_reaches_the_steps_or_without_steps_the_whole_job() {
    let slotd = Slotd::start();
    let trap = slotd.wrap(&["-o", "trap"], &format!("{TRAP}; echo end"));
    slotd.wait_text("trap", "ready");
    slotd.cmd("scancel", &["-s", "USR1", &trap.to_string()]).ok();
    slotd.wait_text("trap", "caught");
    slotd.open("go");
    slotd.wait_state(trap, "COMPLETED");
    // A process without a handler is killed by the signal, which the exit code shows.
    let plain = slotd.endless(&[]);
    slotd.cmd("scancel", &[&plain.to_string(), "--signal", "SIGUSR1"]).ok();
    assert_eq!(slotd.wait_state(plain, "FAILED").exit(), "0:10");
    let steps =
        slotd.wrap(&["-o", "steps"], "srun sh -c 'echo ready; exec sleep 1000'; echo code $?");
    slotd.wait_text("steps", "ready");
    slotd.cmd("scancel", &["-s", "USR1", &steps.to_string()]).ok();
    slotd.wait_state(steps, "COMPLETED");
    assert!(slotd.read("steps").ends_with("code 138\n"), "{}", slotd.read("steps"));
}

#[test]
fn stubborn_job_is_completing_and_does_not_delay_others() {
    let slotd = Slotd::setup().set("SLOTD_KILL_WAIT", 600).start();
    let stubborn = slotd.wrap(&["-o", "log"], "exec helper ignore 15");
    let said = slotd.wait_text("log", "\n");
    slotd.cancel(stubborn);
    slotd.wait("COMPLETING", || (slotd.state(stubborn) == "COMPLETING").then_some(()));
    // During its long grace period, other jobs run.
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    let pid = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(proc::is_alive(pid));
    slotd.cmd("scancel", &["-s", "KILL", &stubborn.to_string()]).ok();
    slotd.wait_state(stubborn, "CANCELLED");
}

#[test]
fn terminal_states_do_not_change() {
    let slotd = Slotd::start();
    let ended = [slotd.wrap(&[], "true"), slotd.wrap(&[], "exit 1"), slotd.endless(&[])];
    slotd.cancel(ended[2]);
    let states = ended.map(|id| slotd.wait_end(id).state());
    assert_eq!(states, ["COMPLETED", "FAILED", "CANCELLED"]);
    for id in ended {
        drop(slotd.cmd("scancel", &[id.to_string()]));
        drop(slotd.cmd("scontrol", &["hold", &id.to_string()]));
    }
    assert_eq!(ended.map(|id| slotd.state(id)), states);
}

#[test]
fn unknown_step_is_reported_by_scancel() {
    let slotd = Slotd::start();
    let out = slotd.cmd("scancel", &["7.3"]).fails(1);
    assert_eq!(
        out.stderr,
        "scancel: error: Kill job error on job step id 7.3: Invalid job id specified\n"
    );
}

#[test]
fn filter_cancels_only_matching_array_tasks() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "0-1"], "exec sleep 1000");
    // The held task gets a record of its own. The running one keeps the ID of the array.
    slotd.cmd("scontrol", &["release", &format!("{array}_1")]).ok();
    let task =
        |task: u64| slotd.records(array).into_iter().find(|record| record.task() == Some(task));
    slotd.wait("its start", || task(1).filter(|record| record.state() == "RUNNING"));
    slotd.cmd("scancel", &["-t", "RUNNING", "--me"]).ok();
    slotd.wait("its end", || task(1).filter(|record| record.state() == "CANCELLED"));
    let live = slotd.cmd("squeue", &["-h", "-r", "-o", "%i %T"]).ok().stdout;
    assert_eq!(live, format!("{array}_0 PENDING\n"));
    slotd.cmd("scancel", &["-t", "PENDING", &array.to_string()]).ok();
    assert_eq!(slotd.cmd("squeue", &["-h"]).ok().stdout, "");
}
