//! `slotd why`: why a job is pending, its time limit, and why it ended.

use serde_json::Value;
use slotd_kit::Slotd;

fn why(slotd: &Slotd, job: impl std::fmt::Display) -> String {
    slotd.line(&format!("slotd why {job}")).ok().stdout
}

#[test]
fn a_pending_job_is_explained_with_figures_and_suggestions() {
    let slotd = Slotd::start();
    let holder = slotd.endless(&["-c", "3", "-t", "60"]);
    let wide = slotd.wrap(&["-c", "4", "-J", "wide"], "true");
    let held = slotd.wrap(&["-H", "-c", "2", "-d", &format!("afterok:{holder}")], "true");
    slotd.wait_reason(wide, "Resources");
    let printed = why(&slotd, wide);
    let words = format!(
        "  Resources: waits for 4 CPUs, of which 1 CPU is free; job {holder} holds 3 CPUs until "
    );
    assert!(
        printed.starts_with(&format!("Job {wide} (wide) is PENDING, submitted at ")),
        "{printed}"
    );
    assert!(printed.contains(&words), "{printed}");
    assert!(
        printed.contains(&format!("    to change that: scontrol update JobId={wide} NumCPUs=1\n")),
        "{printed}"
    );
    assert!(printed.contains("  It is expected to start at "), "{printed}");
    let printed = why(&slotd, held);
    let of = |line: &str| {
        assert!(
            printed.lines().any(|row| row.trim_start().starts_with(line)),
            "no {line} in {printed}"
        )
    };
    of("JobHeldUser: held by its user");
    of(&format!("to change that: scontrol release {held}"));
    of(&format!("Dependency: it waits for afterok:{holder} (it runs until "));
    of("Resources: waits for 2 CPUs, of which 1 CPU is free");
    // The suggested command works.
    slotd.line(&format!("scontrol update JobId={wide} NumCPUs=1")).ok();
    slotd.wait_end(wide);
    assert!(why(&slotd, holder).contains("its time limit is 1:00:00."), "{}", why(&slotd, holder));
}

#[test]
fn the_reasons_of_a_pending_job_are_available_as_json() {
    let slotd = Slotd::start();
    let holder = slotd.endless(&["-c", "4"]);
    let job = slotd.wrap(&["-c", "2", "-a", "1-5"], "true");
    slotd.wait_reason(job, "Resources");
    let printed = slotd.line(&format!("slotd why --json {job}")).ok().stdout;
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let jobs = printed["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1, "{printed}");
    assert_eq!((&jobs[0]["state"], &jobs[0]["reason"]), (&"PENDING".into(), &"Resources".into()));
    let blocker = &jobs[0]["blockers"][0];
    assert_eq!(blocker["reason"], "Resources");
    let shortage = &blocker["what"]["shortage"];
    assert_eq!((&shortage["needs"]["cpus"], &shortage["free"]["cpus"]), (&2.into(), &0.into()));
    assert_eq!(
        (&shortage["holders"][0]["id"], &shortage["holders"][0]["until"]),
        (&holder.into(), &"unknown".into())
    );
}

#[test]
fn an_ended_job_is_explained_with_its_cause_and_last_lines() {
    let slotd = Slotd::start();
    let ends = |args: &[&str], script: &str| {
        let job = slotd.wrap(args, script);
        slotd.wait_end(job);
        why(&slotd, job)
    };
    let failed = ends(&["-e", "err.txt"], "for i in $(seq 20); do echo line $i >&2; done; exit 3");
    assert!(failed.contains("is FAILED. It ended at "), "{failed}");
    assert!(failed.contains("  Its script ended with exit code 3.\n"), "{failed}");
    assert!(failed.contains("err.txt:\n    line 11\n    line 12\n"), "{failed}");
    assert!(failed.ends_with("    line 20\n") && !failed.contains("line 10\n"), "{failed}");
    let killed = ends(&[], "kill -SEGV $$");
    assert!(
        killed.contains("Its script was killed by signal 11 (Segmentation fault)."),
        "{killed}"
    );
    assert!(killed.contains("  SIGSEGV: it accessed invalid memory: "), "{killed}");
    for (code, cause) in [
        (126, "  Exit code 126: usually the command is not a program"),
        (127, "  Exit code 127: usually the command was not found"),
        (139, "  Exit code 139 is 128 + 11: usually a command was killed by SIGSEGV: it "),
        (137, "  Exit code 137 is 128 + 9: usually a command was killed by SIGKILL: "),
    ] {
        let failed = ends(&[], &format!("exit {code}"));
        assert!(failed.contains(cause), "{failed}");
    }
    let greedy = ends(&["--mem=1M"], "helper eat 50");
    let excess = " of memory but had only 1.00 MB: memory limits are not enforced on this host; `slotd install --cgroup-base auto`";
    assert!(greedy.contains("is COMPLETED.") && greedy.contains(excess), "{greedy}");
    let well = ends(&[], "echo fine");
    assert!(well.contains("is COMPLETED.") && !well.contains("fine"), "{well}");
    let missing = ends(&["-o", "/proc/none/out"], "true");
    assert!(
        missing.contains("It could not be launched.") && missing.contains("Details: "),
        "{missing}"
    );
    let never = slotd.wrap(&["-H"], "true");
    slotd.line(&format!("scancel {never}")).ok();
    let never = why(&slotd, never);
    assert!(never.contains("and never ran.") && never.contains(" cancelled it."), "{never}");
    let array = slotd.wrap(&["-a", "1-4"], "test $SLURM_ARRAY_TASK_ID = 2");
    slotd.wait_array(array, 4);
    let tasks = why(&slotd, array);
    let lines: Vec<&str> = tasks.lines().filter(|line| line.contains("So did")).collect();
    assert_eq!(lines.len(), 1, "{tasks}");
    assert!(lines[0].ends_with("[3-4]."), "{tasks}");
    slotd.expect(
        "slotd why 999",
        1,
        "",
        "slotd: error: there is no job 999\n  hint: `sacct` lists all jobs\n",
    );
    slotd.expect("slotd why 1x", 2, "", "slotd: error: Invalid job id 1x\n");
}
