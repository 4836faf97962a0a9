//! `slotd retry`, `drain`, `resume`, `sweep` and `edit`, and the questions and progress that
//! commands show in a terminal.

use serde_json::json;
use slotd_kit::tmux::Tmux;
use slotd_kit::{Setup, Slotd};
use std::collections::BTreeSet;
use std::fs;

/// Parses the job IDs from lines such as sbatch prints.
fn submitted(text: &str) -> Vec<u32> {
    let number =
        |line: &str| line.strip_prefix("Submitted batch job ").and_then(|id| id.parse().ok());
    text.lines()
        .map(|line| number(line).unwrap_or_else(|| panic!("no job number in {text:?}")))
        .collect()
}

#[test]
fn a_job_is_submitted_again_with_its_script_environment_and_options() {
    let slotd = Slotd::start();
    let script = slotd.write(
        "fit.sh",
        "#!/bin/sh\n#SBATCH -o fit-%j.out\necho \"$0 $1 $COLOUR $SLURM_JOB_NAME\"\ntest -e data\n",
    );
    let mut command = slotd.command("sbatch");
    command
        .args(["--parsable", "-c", "2", "-J", "fit it", "fit.sh", "an argument"])
        .env("COLOUR", "red");
    let job: u32 = slotd.run(command).ok().text().parse().unwrap();
    slotd.wait_state(job, "FAILED");
    fs::remove_file(script).unwrap();
    slotd.open("data");
    let new = submitted(&slotd.line(&format!("slotd retry {job}")).ok().stdout)[0];
    let record = slotd.wait_state(new, "COMPLETED");
    assert_eq!(
        (record.tres().0, slotd.read(&format!("fit-{new}.out")).lines().count()),
        (2, 1),
        "{}",
        slotd.dump()
    );
    let printed = slotd.read(&format!("fit-{new}.out"));
    assert!(printed.ends_with(" an argument red fit it\n"), "{printed}");
    // A job can be submitted again even if it succeeded.
    let again = slotd.line(&format!("slotd retry --parsable {new}")).ok();
    slotd.wait_state(again.text().parse().unwrap(), "COMPLETED");
}

#[test]
fn only_the_failed_tasks_of_an_array_run_again() {
    let slotd = Slotd::start();
    let script =
        "echo $SLURM_ARRAY_TASK_ID >> ran; test -e fixed || test $((SLURM_ARRAY_TASK_ID % 2)) = 0";
    let job = slotd.wrap(&["-a", "0-4%3", "-o", "/dev/null"], script);
    slotd.wait_array(job, 5);
    slotd.open("fixed");
    fs::remove_file(slotd.path("ran")).unwrap();
    let new = submitted(&slotd.line(&format!("slotd retry {job}")).ok().stdout)[0];
    let tasks: Vec<_> =
        slotd.wait_array(new, 2).iter().map(|record| (record.task(), record.state())).collect();
    assert_eq!(tasks, [1, 3].map(|task| (Some(task), "COMPLETED".to_owned())));
    let one = submitted(&slotd.cmd("slotd", &["retry", &format!("{job}_[3-4]")]).ok().stdout)[0];
    assert_eq!(slotd.wait_array(one, 1)[0].task(), Some(3));
    let all = submitted(&slotd.line(&format!("slotd retry --all {job}")).ok().stdout)[0];
    slotd.wait_array(all, 5);
    let mut ran: Vec<String> = slotd.read("ran").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran.join(" "), "0 1 1 2 3 3 3 4");
    let none = format!(
        "slotd: error: no task of job {all} has failed\n  hint: use --all to resubmit completed tasks\n"
    );
    slotd.expect(&format!("slotd retry {all}"), 1, "", &none);
}

#[test]
fn forgotten_tasks_of_an_array_still_count_while_others_run() {
    let slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    let script = "test $SLURM_ARRAY_TASK_ID = 3 && { until [ -e go ]; do sleep 0.02; done; }; \
                  test $SLURM_ARRAY_TASK_ID != 1";
    let job = slotd.wrap(&["-a", "1-3", "-o", "/dev/null"], script);
    slotd.wait("two tasks to be forgotten", || {
        let answer = slotd.ask(&json!({"Diagnostics": {"reset": false}})).expect("an answer");
        let ran = slotd.cmd("sacct", &["-X", "-n", "-P", "-o", "State"]).ok().stdout;
        (ran == "FAILED\nCOMPLETED\nRUNNING\n" && answer["Diagnostics"]["in_memory"] == 1)
            .then_some(())
    });
    let shown = slotd.cmd("squeue", &["-h", "-t", "all", "-o", "%K %t", "-j", &job.to_string()]);
    let shown: BTreeSet<String> = shown.ok().stdout.lines().map(str::to_owned).collect();
    assert_eq!(shown, ["1 F", "2 CD", "3 R"].map(str::to_owned).into());
    let new = submitted(&slotd.line(&format!("slotd retry {job}")).ok().stdout)[0];
    assert_eq!(slotd.wait_array(new, 1)[0].task(), Some(1));
    let part = slotd.line(&format!("slotd retry --parsable {job}_[1,3]")).ok();
    assert_eq!(slotd.wait_array(part.text().parse().unwrap(), 1)[0].task(), Some(1));
    slotd.open("go");
    let waited = slotd.cmd("slotd", &["wait", &job.to_string()]);
    assert_eq!(waited.code, 1, "a task has failed: {}", waited.text());
}

#[test]
fn with_dependents_also_resubmits_the_dependents_of_a_job() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&["-H", "-o", "/dev/null"], "test -e fixed");
    let after = |kill: &str, on: u32| {
        let (kill, on) = (format!("--kill-on-invalid-dep={kill}"), format!("afterok:{on}"));
        slotd.wrap(&[&kill, "-d", &on, "-o", "/dev/null"], "true")
    };
    let second = after("yes", first);
    let third = after("yes", second);
    let waiting = after("no", first);
    let cleanup = slotd.wrap(&["-d", &format!("afternotok:{first}"), "-o", "/dev/null"], "true");
    slotd.line(&format!("scontrol release {first}")).ok();
    for (job, state) in
        [(first, "FAILED"), (second, "CANCELLED"), (third, "CANCELLED"), (cleanup, "COMPLETED")]
    {
        slotd.wait_state(job, state);
    }
    slotd.wait_reason(waiting, "DependencyNeverSatisfied");
    let why = format!(
        "slotd: error: job {third} never ran because its dependency failed (afterok:{second}), and could not run now\n  \
         hint: slotd retry --with-dependents {second}\n"
    );
    slotd.expect(&format!("slotd retry {third}"), 1, "", &why);
    let why = format!(
        "slotd: error: job {waiting} is PENDING: only ended jobs can be resubmitted\n  hint: its dependency can never be \
         satisfied: slotd retry --with-dependents {first}\n"
    );
    slotd.expect(&format!("slotd retry {waiting}"), 1, "", &why);
    slotd.open("fixed");
    let out = slotd.line(&format!("slotd retry --with-dependents {first}")).ok();
    let new = submitted(&out.stdout);
    assert_eq!(new.len(), 3, "{out:?}");
    assert_eq!(out.stderr, format!("slotd: job {waiting} now depends on afterok:{}\n", new[0]));
    for job in new.iter().chain([&waiting]) {
        slotd.wait_state(*job, "COMPLETED");
    }
    let starts: Vec<i64> = new.iter().map(|job| slotd.job(*job).start()).collect();
    assert!(starts.is_sorted(), "{starts:?}");
    assert_eq!(slotd.all_records().len(), 8, "the cleanup job ran once");
}

#[test]
fn a_refused_retry_explains_why() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let running = format!(
        "slotd: error: job {job} is RUNNING: only ended jobs can be resubmitted\n  hint: `slotd wait` waits until it \
         ends; `scontrol requeue` stops it and runs it again\n"
    );
    slotd.expect(&format!("slotd retry {job}"), 1, "", &running);
    slotd.expect(
        "slotd retry 99",
        1,
        "",
        "slotd: error: there is no job 99\n  hint: `sacct` lists all jobs\n",
    );
    slotd.line("slotd retry x").fails(2);
    assert!(slotd.line(&format!("slotd retry {job}.batch")).fails(1).stderr.contains("is a step"));
    slotd.cmd("srun", &["true"]).ok();
    let srun = job + 1;
    let printed = slotd.line(&format!("slotd retry {srun}")).fails(1).stderr;
    assert!(
        printed.starts_with(&format!(
            "slotd: error: job {srun} was an allocation of salloc or srun, which has no script"
        )),
        "{printed}"
    );
}

#[test]
fn the_host_and_parts_of_it_can_be_drained_and_resumed() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let reasons = || slotd.line("sinfo -h -R -o %E").ok().stdout;
    let drained = "drained the host: a new fan\nrunning jobs continue; no job starts until `slotd resume`\nout of use: the \
                   whole host (a new fan)\n";
    slotd.expect("slotd drain a new fan", 0, drained, "");
    assert_eq!(reasons(), "a new fan\n");
    let held = slotd.wrap(&[], "true");
    slotd.wait_reason(held, "ReqNodeNotAvail");
    slotd.expect("slotd resume", 0, "resumed the host\nnothing is out of use\n", "");
    slotd.wait_state(held, "COMPLETED");
    let drained = "drained CPU 2-3, GPU 1: dust\nout of use: CPU 2-3, GPU 1 (dust)\n";
    slotd.expect("slotd drain gpu:1 cpu:2-3 dust", 0, drained, "");
    assert_eq!(reasons(), "CPU 2-3, GPU 1: dust\n");
    slotd.expect(
        "slotd resume gpu:1 cpu:2",
        0,
        "resumed CPU 2, GPU 1\nout of use: CPU 3 (dust)\n",
        "",
    );
    slotd.expect("slotd resume", 0, "resumed the host\nout of use: CPU 3 (dust)\n", "");
    assert_eq!(reasons(), "CPU 3: dust\n");
    slotd.line("slotd resume cpu:3").ok();
    assert_eq!(reasons(), "none\n");
    slotd.line("slotd drain").ok();
    assert!(reasons().starts_with("drained by "));
    let empty = "slotd: error: the reason is empty\n  hint: `slotd drain` without arguments takes the host out of use\n";
    assert_eq!(slotd.cmd("slotd", &["drain", ""]).fails(2).stderr, empty);
    let wrong = "slotd: error: not a part of the node: now\n  hint: `slotd resume` for the whole host, gpu:0,2 for \
                 GPUs, cpu:4-7 for CPUs\n";
    slotd.expect("slotd resume now", 2, "", wrong);
    assert!(slotd.line("slotd drain gpu:9 x").fails(1).stderr.contains("this host has no GPU 9"));
}

#[test]
fn a_misspelled_part_does_not_drain_the_host() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let host = slotd_kit::host();
    let by_name = format!("{host} dust");
    for words in [
        "CPUs=0-1",
        "cpus:0-1 dust",
        "CPU:1",
        "GPUs=1",
        "gpu 1",
        "0-1",
        "Gres=gpu:0",
        "see cpu=1",
        &by_name,
    ] {
        let printed = slotd.line(&format!("slotd drain {words}")).fails(2).stderr;
        assert!(
            printed.starts_with("slotd: error: a part of the node, or a reason? "),
            "{words}: {printed}"
        );
        assert_eq!(slotd.line("sinfo -h -R -o %E").ok().text(), "none", "{words}");
    }
    slotd.cmd("slotd", &["drain", "see CPUs=0-1"]).ok();
    assert_eq!(slotd.line("sinfo -h -R -o %E").ok().text(), "see CPUs=0-1");
    slotd.line("slotd resume").ok();
    // Slurm's own command accepts the same as before and prints nothing.
    let node = format!("NodeName={host}");
    let out = slotd.cmd("scontrol", &["update", &node, "State=DRAIN", "Reason=new fan"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    assert_eq!(slotd.line("sinfo -h -R -o %E").ok().text(), "new fan");
    slotd.expect(&format!("scontrol update nodename={host} state=resume"), 0, "", "");
    slotd.line(&format!("scontrol update NodeName={host} CPUs=0-1 State=DRAIN Reason=dust")).ok();
    assert_eq!(slotd.line("sinfo -h -R -o %E").ok().text(), "CPU 0-1: dust");
}

#[test]
fn the_refusal_of_a_node_that_is_down_explains_what_to_do_instead() {
    let slotd = Slotd::start();
    let node = slotd.line("sinfo -h -N -o %N").ok().text().to_owned();
    let (again, cancelled) = (slotd.endless(&[]), slotd.endless(&[]));
    let down = slotd.line(&format!("scontrol update NodeName={node} State=DOWN Reason=fan"));
    let stderr = down.fails(1).stderr;
    for advice in ["State=DRAIN", "scontrol requeue", "scancel --me --state=RUNNING"] {
        assert!(stderr.contains(advice), "{stderr}");
    }
    slotd.line(&format!("scontrol update NodeName={node} State=DRAIN Reason=fan")).ok();
    slotd.line(&format!("scontrol requeue {again}")).ok();
    slotd.wait_state(again, "PENDING");
    slotd.line("scancel --me --state=RUNNING").ok();
    slotd.wait_state(cancelled, "CANCELLED");
    slotd.line(&format!("scontrol update NodeName={node} State=RESUME")).ok();
    slotd.wait_state(again, "RUNNING");
}

#[test]
fn each_task_of_a_sweep_has_its_own_parameters() {
    let mut slotd = Slotd::start();
    slotd.write("runs.csv", "name, lr\n\"a, b\",0.1\nc,0.2\n");
    let script = "#!/bin/sh\n#SBATCH -o /dev/null\n\
                  echo \"$SLURM_ARRAY_TASK_ID|$name|$lr|$fold|$1|$(env | grep -c SLOTD_ARRAY_TASK_)\" >> ran\n\
                  test \"$fold\" = 1 || test -e fixed\n";
    slotd.write("fit.sh", script);
    let sweep = [
        "sweep",
        "--csv",
        "runs.csv",
        "--param",
        "fold=1-2",
        "--at-once",
        "2",
        "-c",
        "1",
        "fit.sh",
        "word",
    ];
    let dry = slotd.cmd("slotd", &[&["sweep", "--dry-run"], &sweep[1..]].concat()).ok();
    let want = "0 name='a, b' lr=0.1 fold=1\n1 name='a, b' lr=0.1 fold=2\n2 name=c lr=0.2 fold=1\n3 name=c lr=0.2 fold=2\n";
    assert_eq!(dry.stdout, want);
    let out = slotd.cmd("slotd", &sweep).ok();
    assert_eq!(out.stderr, "slotd: 4 tasks, each with its own name, lr, fold\n");
    let job = submitted(&out.stdout)[0];
    let ends: Vec<String> = slotd.wait_array(job, 4).iter().map(|record| record.state()).collect();
    assert_eq!(ends, ["COMPLETED", "FAILED", "COMPLETED", "FAILED"]);
    let ran = |slotd: &Slotd| {
        let mut ran: Vec<String> = slotd.read("ran").lines().map(str::to_owned).collect();
        ran.sort();
        fs::remove_file(slotd.path("ran")).unwrap();
        ran
    };
    assert_eq!(
        ran(&slotd),
        ["0|a, b|0.1|1|word|0", "1|a, b|0.1|2|word|0", "2|c|0.2|1|word|0", "3|c|0.2|2|word|0"]
    );
    // The parameters are set at each start of the task, also under the next daemon.
    slotd.crash();
    // The last end may not have been written before the daemon was killed. Then the next daemon
    // reads it.
    slotd.wait_array(job, 4);
    slotd.open("fixed");
    let new = submitted(&slotd.line(&format!("slotd retry {job}")).ok().stdout)[0];
    slotd.wait_array(new, 2);
    assert_eq!(ran(&slotd), ["1|a, b|0.1|2|word|0", "3|c|0.2|2|word|0"]);
    slotd.cmd("scontrol", &["requeue", &format!("{job}_2")]).ok();
    slotd.wait("the task to run again", || slotd.exists("ran").then_some(()));
    slotd.wait_array(job, 4);
    assert_eq!(ran(&slotd), ["2|c|0.2|1|word|0"]);
}

#[test]
fn an_invalid_sweep_is_refused() {
    let slotd = Slotd::start();
    slotd.write("fit.sh", "#!/bin/sh\ntrue\n");
    for (line, why) in [
        ("slotd sweep fit.sh", "no parameters specified"),
        ("slotd sweep --param a=1,2", "no script specified"),
        ("slotd sweep --param a=1,2 -a 0-7 fit.sh", "omit --array"),
        ("slotd sweep --param PATH=/a,/b fit.sh", "the name PATH is reserved"),
        ("slotd sweep --param a=1,2 -W fit.sh", "`slotd wait` waits for all tasks"),
        ("slotd sweep --param a=1,2 --at-once 0 fit.sh", "0 is not in 1.."),
    ] {
        let printed = slotd.line(line).fails(2).stderr;
        assert!(printed.contains(why), "{line}: {printed}");
    }
    slotd.line("slotd sweep --csv none.csv fit.sh").fails(1);
    assert_eq!(slotd.all_records().len(), 0);
}

/// Runs `slotd edit` with an editor that applies these sed commands.
fn edit(slotd: &Slotd, job: &str, sed: &[&str]) -> slotd_kit::Out {
    let mut command = slotd.command("slotd");
    let commands: Vec<String> = sed.iter().map(|one| format!("-e '{one}'")).collect();
    let editor =
        if sed.is_empty() { "true".to_owned() } else { format!("sed -i {}", commands.join(" ")) };
    command.args(["edit", job]).env("EDITOR", editor).env("TMPDIR", slotd.base.join("home"));
    slotd.run(command)
}

#[test]
fn an_editor_changes_the_options_and_script_of_a_pending_job() {
    let mut slotd = Slotd::start();
    let script = "#!/bin/sh\n#SBATCH --comment=\"it's \\\"me\\\"\"\necho old\n";
    let number = slotd.script(&["-H", "-t", "10", "-o", "old.out", "--mem", "100"], script);
    let job = number.to_string();
    let same = edit(&slotd, &job, &[]).ok();
    assert_eq!(same.stdout, format!("job {job} is unchanged\n"));
    let all = [
        "s/^#SBATCH --time=.*/#SBATCH --time=2:00:00/",
        "s/old/new/",
        "s/--mem=100M/--mem=200M -c 2/",
    ];
    let done = edit(&slotd, &job, &all).ok();
    assert_eq!((done.stdout, done.stderr), (format!("changed job {job}\n"), String::new()));
    // The change survives a restart.
    slotd.crash();
    assert_eq!(slotd.show(number, "TimeLimit"), "02:00:00");
    assert_eq!(slotd.show(number, "Comment"), "it's\\040\"me\"");
    assert_eq!(slotd.job(number).tres(), (2, 200, 0));
    let stored = slotd.line(&format!("scontrol write batch_script {job} -")).ok();
    assert!(stored.stdout.ends_with("\necho new\n"), "{}", stored.stdout);
    slotd.line(&format!("scontrol release {job}")).ok();
    slotd.wait_state(number, "COMPLETED");
    assert_eq!(slotd.read("new.out"), "new\n");
    let printed = edit(&slotd, &job, &[]).fails(1).stderr;
    assert!(
        printed.contains(&format!("job {job} is COMPLETED: only pending jobs can be edited")),
        "{printed}"
    );
    assert_eq!(
        fs::read_dir(slotd.base.join("home")).unwrap().count(),
        0,
        "no edited text is left behind"
    );
}

#[test]
fn an_edit_is_all_or_nothing() {
    let slotd = Slotd::start();
    let number = slotd.script(&["-H", "-t", "10"], "#!/bin/sh\n#SBATCH -n 1\necho old\n");
    let job = number.to_string();
    for (sed, why) in [
        (&["s/--time=.*/--time=20 -p none/", "s/echo old/echo new/"][..], "was not changed: "),
        (
            &["2i#SBATCH -c 64"],
            ": CPU count per node can not be satisfied: 64 CPUs requested, 4 on this host\n",
        ),
        (&["2i#SBATCH --mem=900G"], " MB on this host\n"),
        (&["s/--time=.*/--time=soon/"], "soon"),
        (&["s/--time=.*/--tim=20/"], "tim"),
        (&["s/--time=.*/--signal=USR1/"], "--signal of a pending job cannot be changed"),
        (&["s/^# ---- the.*//"], "which separates the options from the script, is missing"),
        (
            &["s/--time=.*/--time=20/", "s/SBATCH -n 1/SBATCH -n 2/"],
            "change the options above the line",
        ),
        (&["2aexport A=1"], "not an option: export A=1"),
        (&["s/^#!.*//", "s/^echo old//"], "script"),
    ] {
        let out = edit(&slotd, &job, sed).fails(1);
        let kept =
            out.stderr.lines().find_map(|line| line.strip_prefix("slotd: your text is kept in "));
        assert!(kept.is_some_and(|path| fs::metadata(path).is_ok()), "{sed:?}: {out:?}");
        assert!(out.stderr.contains(why), "{sed:?}: {out:?}");
        assert_eq!(
            (slotd.show(number, "TimeLimit"), slotd.job(number).tres().0),
            ("00:10:00".into(), 1),
            "{sed:?}"
        );
    }
    let mut command = slotd.command("slotd");
    command.args(["edit", &job]).env("VISUAL", "exit 3;").env("EDITOR", "true");
    command.env("TMPDIR", slotd.base.join("home"));
    let out = slotd.run(command).fails(1);
    assert!(
        out.stderr.contains("the editor (exit 3;) failed, exit status: 3: nothing was changed"),
        "{out:?}"
    );
    slotd.line(&format!("scontrol release {job}")).ok();
    slotd.wait_state(number, "COMPLETED");
    assert_eq!(slotd.output(number), "old\n");
}

#[test]
fn an_edited_text_that_is_not_a_regular_file_is_refused() {
    let slotd = Slotd::start();
    let number = slotd.script(&["-H"], "#!/bin/sh\necho old\n");
    for (editor, why) in [
        ("rm \"$1\"; mkfifo \"$1\"; true", "it is not a regular file"),
        ("rm \"$1\"; mkdir \"$1\"; true", "it is not a regular file"),
        ("cp \"$1\" elsewhere; ln -sf \"$PWD/elsewhere\" \"$1\"; true", "symbolic links"),
        ("ln -sf /dev/zero \"$1\"; true", "symbolic links"),
        ("truncate -s 1T \"$1\"; true", "it is larger than 8 MB"),
        ("rm \"$1\"; true", "No such file"),
    ] {
        let mut command = slotd.command("slotd");
        command.args(["edit", &number.to_string()]);
        command.env("EDITOR", editor).env("TMPDIR", slotd.base.join("home"));
        let printed = slotd.run(command).fails(1).stderr;
        assert!(printed.contains("cannot read the edited text /"), "{editor}: {printed}");
        assert!(printed.contains(&format!("job-{number}.sh: ")), "{editor}: {printed}");
        assert!(printed.contains(why), "{editor}: {printed}");
    }
    slotd.line(&format!("scontrol release {number}")).ok();
    slotd.wait_state(number, "COMPLETED");
    assert_eq!(slotd.output(number), "old\n");
}

#[test]
fn the_script_of_an_array_is_edited_for_all_its_tasks() {
    let slotd = Slotd::start();
    let number = slotd.wrap(&["-H", "-a", "0-2%1", "-o", "%a.out"], "echo old");
    let job = number.to_string();
    let one = edit(&slotd, &format!("{job}_1"), &["s/echo old/echo new/"]).fails(1);
    assert!(one.stderr.contains("All tasks of an array share one script"), "{one:?}");
    edit(&slotd, &job, &["s/echo old/echo new $SLURM_ARRAY_TASK_ID/", "s/%1/%2/"]).ok();
    edit(&slotd, &format!("{job}_1"), &["s/--comment=.*//", "1a#SBATCH --comment=apart"]).ok();
    slotd.line(&format!("scontrol release {job}")).ok();
    slotd.wait_array(number, 3);
    let printed: Vec<String> = (0..3).map(|task| slotd.read(&format!("{task}.out"))).collect();
    assert_eq!(printed, ["new 0\n", "new 1\n", "new 2\n"]);
    let begun = slotd.wrap(&["-a", "0-1%1", "-o", "/dev/null"], "exec sleep 1000");
    slotd.wait("the first task", || {
        slotd.records(begun).iter().any(|record| record.state() == "RUNNING").then_some(())
    });
    let late = edit(&slotd, &begun.to_string(), &["s/1000/1/"]).fails(1);
    assert!(late.stderr.contains("before its first task starts"), "{late:?}");
    edit(&slotd, &begun.to_string(), &["s/%1/%2/"]).ok();
    slotd.wait("both tasks", || {
        (slotd.records(begun).iter().filter(|record| record.state() == "RUNNING").count() == 2)
            .then_some(())
    });
}

#[test]
fn progress_is_shown_only_in_a_terminal() {
    let slotd = Slotd::start();
    let quiet = slotd.cmd("sbatch", &["-W", "--wrap", "exit 3"]).fails(3);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("Submitted batch job 1\n", ""));
    let job = format!("{}; exit 3", slotd.gate("go"));
    slotd.write(
        "wait.sh",
        format!("sbatch -W -o /dev/null --wrap \"{job}\"; echo code $?; exec sleep 1000\n"),
    );
    let Some(terminal) = Tmux::start(&slotd, "exec sh wait.sh") else { return };
    terminal.shows("0/1 done, 1 running");
    slotd.open("go");
    let screen = terminal.shows("code 3");
    assert!(
        screen.contains("Submitted batch job 2") && screen.contains("1/1 done, 1 failed"),
        "{screen}"
    );
}

#[test]
fn ctrl_c_asks_what_to_do_with_a_followed_job() {
    let slotd = Slotd::start();
    slotd.write(
        "job.sh",
        format!("echo begun $1; {}; echo more $1; exec sleep 1000\n", slotd.gate("go")),
    );
    let run = |which: u32| format!("slotd run -- sh job.sh {which}; echo code $?\n");
    slotd.write("run.sh", format!("trap : INT\n{}{}exec sleep 1000\n", run(1), run(2)));
    let Some(terminal) = Tmux::start(&slotd, "exec sh run.sh") else { return };
    terminal.shows("begun 1");
    terminal.press(&["C-c"]);
    terminal.shows("leave job 1 running (l), cancel it (c), or continue watching (Enter)?");
    terminal.press(&["Enter"]);
    slotd.open("go");
    terminal.shows("more 1");
    terminal.press(&["C-c"]);
    slotd.wait("the second question", || {
        (terminal.screen().matches("leave job 1").count() == 2).then_some(())
    });
    assert_eq!(slotd.state(1), "RUNNING");
    terminal.press(&["l", "Enter"]);
    terminal.shows("job 1 continues; `slotd log -f 1` shows its output again");
    terminal.shows("code 130");
    terminal.shows("begun 2");
    assert_eq!(slotd.state(1), "RUNNING");
    terminal.press(&["C-c"]);
    terminal.shows("leave job 2");
    terminal.press(&["C-c"]);
    terminal.shows("cancelling job 2");
    slotd.wait_state(2, "CANCELLED");
}

#[test]
fn an_invalid_edit_can_be_continued() {
    let slotd = Slotd::start();
    let number = slotd.wrap(&["-H", "-t", "10"], "true");
    let good = "sed -i 's/--time=.*/--time=20/' \"$1\"";
    let bad = "sed -i 's/--time=.*/--time=soon/' \"$1\"";
    slotd.program(
        "editor",
        &format!("#!/bin/sh\nif [ -e once ]; then {good}; else touch once; {bad}; fi\n"),
    );
    let edit = "EDITOR=./editor slotd edit 1; echo code $?";
    slotd.write(
        "edit.sh",
        format!("export TMPDIR=$PWD\n{edit}\nrm once\n{edit}\nexec sleep 1000\n"),
    );
    let Some(terminal) = Tmux::start(&slotd, "exec sh edit.sh") else { return };
    terminal.shows("edit job 1 again (Enter) or leave it unchanged (q)?");
    assert_eq!(slotd.show(number, "TimeLimit"), "00:10:00");
    terminal.press(&["Enter"]);
    terminal.shows("code 0");
    assert_eq!(slotd.show(number, "TimeLimit"), "00:20:00");
    slotd.wait("the second question", || {
        (terminal.screen().matches("edit job 1 again").count() == 2).then_some(())
    });
    terminal.press(&["q", "Enter"]);
    let screen = terminal.shows("code 1");
    assert!(
        screen.contains("changed job 1") && screen.contains("your text is kept in"),
        "{screen}"
    );
    assert_eq!(slotd.show(number, "TimeLimit"), "00:20:00");
}
