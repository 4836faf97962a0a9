//! `scontrol update`: changing jobs.

use slotd_kit::{Setup, Slotd};

#[track_caller]
fn update(slotd: &Slotd, job: u32, change: &str) {
    slotd.cmd("scontrol", &["update", "job", &job.to_string(), change]).ok();
}

#[test]
fn pending_job_accepts_all_keys_of_the_book() {
    let slotd = Setup::default().set("SLOTD_CPU_PARTITIONS", "cpu,other").start();
    let job = slotd.wrap(&["--begin=now+1hour"], "true");
    let field = |key: &str| slotd.job(job).0["request"][key].clone();
    update(&slotd, job, "JobName=renamed");
    assert_eq!(field("name"), "renamed");
    update(&slotd, job, "Name=again");
    assert_eq!(field("name"), "again");
    update(&slotd, job, "Partition=other");
    assert_eq!(slotd.job(job).partition(), "other");
    update(&slotd, job, "TimeLimit=02:00:00");
    assert_eq!(field("time_limit_secs"), 7200);
    update(&slotd, job, "Time=10");
    assert_eq!(field("time_limit_secs"), 600);
    update(&slotd, job, "Priority=77");
    assert_eq!(slotd.job(job).0["priority"], 77);
}

fn parsed(document: &str) -> serde_json::Value {
    serde_json::from_str(document).unwrap()
}

#[test]
fn fields_without_effect_are_stored_and_shown_like_in_slurm() {
    let mut slotd = Setup::default().set("SLOTD_FEATURES", "big,fast").start();
    let job = slotd.wrap(&["-H", "--comment=mine", "--prefer=big"], "true");
    let shown = |slotd: &Slotd| {
        let all = slotd.line(&format!("scontrol show job {job}")).ok().stdout;
        let keys = ["Prefer=", "AdminComment=", "Comment=mine", "ReqNodeList=", "OverSubscribe="];
        all.lines()
            .filter(|line| keys.iter().any(|key| line.contains(key)))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let host = slotd.line("sinfo -h -o %n").ok().text().to_owned();
    for change in [
        "AdminComment=hello there",
        "Contiguous=yes",
        "Prefer=fast",
        &format!("ReqNodeList={host}"),
    ] {
        update(&slotd, job, change);
    }
    let all = [
        format!("   ReqNodeList={host} ExcNodeList=(null)"),
        "   Prefer=fast".to_owned(),
        "   OverSubscribe=OK Contiguous=1 Licenses=(null) Network=(null)".to_owned(),
        "   AdminComment=hello there ".to_owned(),
        "   Comment=mine ".to_owned(),
    ];
    assert_eq!(shown(&slotd), all);
    slotd.kill9();
    slotd.start_daemon();
    assert_eq!(shown(&slotd), all);
    let fields =
        slotd.line("squeue -h -O Prefer:.6,Contiguous:.3,AdminComment:.14,ReqNodes:.200").ok();
    assert_eq!(
        fields.text().split_whitespace().collect::<Vec<_>>(),
        ["fast", "1", "hello", "there", &host]
    );
    let json = parsed(&slotd.line("squeue --json").ok().stdout);
    let members = ["prefer", "contiguous", "admin_comment", "required_nodes"]
        .map(|key| json["jobs"][0][key].to_string());
    assert_eq!(members, ["\"fast\"", "true", "\"hello there\"", &format!("{host:?}")]);
    let sacct = slotd.line(&format!("sacct -nXP -j {job} -o AdminComment")).ok();
    assert_eq!(sacct.text(), "hello there");
    let json = parsed(&slotd.line(&format!("sacct --json -j {job}")).ok().stdout);
    assert_eq!(json["jobs"][0]["comment"]["administrator"], "hello there");
    for change in ["AdminComment=", "Contiguous=0", "Prefer=", "ReqNodeList="] {
        update(&slotd, job, change);
    }
    let none = ["   ReqNodeList=(null) ExcNodeList=(null)", &all[2].replace("=1", "=0"), &all[4]];
    assert_eq!(shown(&slotd), none);
    for (change, why) in [
        ("Contiguous=maybe", "Invalid Contiguous value: maybe\nRequest aborted\n"),
        ("Prefer=tape", "Invalid preferred feature specification for job"),
    ] {
        let out = slotd.cmd("scontrol", &["update", &format!("JobId={job}"), change]);
        assert!(out.code == 1 && out.stderr.contains(why), "{change}: {} {}", out.code, out.stderr);
    }
    let sbatch = slotd.cmd("sbatch", &["--prefer=a&(b", "--wrap", "true"]);
    let want = "sbatch: error: Batch job submission failed: Invalid preferred feature specification: a&(b\n";
    assert!(sbatch.code == 1 && sbatch.stderr.starts_with(want), "{}", sbatch.stderr);
    let sbatch = slotd.line("sbatch --prefer=tape --wrap true");
    let want =
        "sbatch: error: Batch job submission failed: Invalid preferred feature specification\n";
    assert!(sbatch.code == 1 && sbatch.stderr.contains(want), "{}", sbatch.stderr);
    for (command, what) in
        [("srun", "Unable to allocate resources"), ("salloc", "Job submit/allocate failed")]
    {
        let out = slotd.line(&format!("{command} --prefer=tape true"));
        let want = format!("{command}: error: {what}: Invalid preferred feature specification\n");
        assert!(out.code == 1 && out.stderr.contains(&want), "{}", out.stderr);
    }
    assert_eq!(slotd.ran(&["--prefer=big|fast"], "echo ran"), "ran\n");
}

#[test]
fn slurms_form_is_accepted() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    slotd.cmd("scontrol", &["update", &format!("JobId={job}"), "JobName=x", "TimeLimit=5"]).ok();
    let record = slotd.job(job);
    assert_eq!(
        (&record.0["request"]["name"], &record.0["request"]["time_limit_secs"]),
        (&"x".into(), &300.into())
    );
}

#[test]
fn running_job_accepts_only_the_keys_that_slurm_accepts() {
    let slotd = Setup::default().set("SLOTD_CPU_PARTITIONS", "cpu,other").start();
    let job = slotd.endless(&[]);
    for (change, key, value) in [
        ("JobName=renamed", "JobName", "renamed"),
        ("Priority=7", "Priority", "7"),
        ("Nice=5", "Nice", "5"),
        ("TimeMin=1", "TimeMin", "00:01:00"),
        ("TimeLimit=20", "TimeLimit", "00:20:00"),
        ("Comment=x", "Comment", "x"),
        ("Requeue=1", "Requeue", "1"),
        ("MailType=fail,end", "MailType", "END,FAIL"),
        ("MailUser=a@b", "MailUser", "a@b"),
    ] {
        update(&slotd, job, change);
        assert_eq!(
            (slotd.show(job, key).as_str(), slotd.state(job).as_str()),
            (value, "RUNNING"),
            "{change}"
        );
    }
    assert_eq!(slotd.line("squeue -h -n renamed -o %j").ok().text(), "renamed");
    assert_eq!(slotd.line(&format!("sacct -nXP -j {job} -o jobname")).ok().text(), "renamed");
    for (change, key, value) in [
        ("DelayBoot=1", "DelayBoot", "00:01:00"),
        ("Switches=1@0:30", "Switches", "1@00:00:30"),
        ("Network=sn", "Network", "sn"),
    ] {
        update(&slotd, job, change);
        assert_eq!(slotd.show(job, key), value, "{change}");
    }
    for key in ["ReqNodeList=localhost", "AdminComment=x"] {
        update(&slotd, job, key);
    }
    for change in [
        "Partition=other",
        "StdOut=/dev/null",
        "StdErr=/dev/null",
        "StdIn=/dev/zero",
        "WorkDir=/tmp",
        "MinTmpDiskNode=1G",
        "MinCPUsNode=2",
        "Priority=0",
        "Dependency=singleton",
        "Shared=yes",
        "StartTime=now+1hour",
        "Account=physics",
        "WCKey=w",
    ] {
        let out = slotd.cmd("scontrol", &["update", "job", &job.to_string(), change]);
        assert_ne!(out.code, 0, "{change}");
        assert_ne!(out.stderr, "", "{change}");
    }
    let out = slotd.cmd("scontrol", &["update", &format!("JobId={job}"), "TimeLimit=-100"]);
    assert!(
        out.fails(1)
            .stderr
            .starts_with("TimeLimit decrement larger than current time limit (100 > 20"),
    );
    assert_eq!(slotd.show(job, "TimeLimit"), "00:20:00");
    update(&slotd, job, "TimeLimit=0:01");
    slotd.wait_state(job, "TIMEOUT");
    let out = slotd.cmd("scontrol", &["update", "job", &job.to_string(), "TimeLimit=10"]);
    assert_ne!(out.code, 0);
}

#[test]
fn longer_limit_keeps_a_job_running() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "10"], &format!("echo ready; {}", slotd.gate("go")));
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    let start = slotd.job(job).start() / 1_000_000;
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
    // From here, the limit is six seconds away, however long the job took to start.
    let limit = (now() - start) / 1_000_000 + 6;
    slotd.limit(job, limit as u64);
    update(&slotd, job, "TimeLimit=10");
    slotd_kit::until(|| (now() > start + limit * 1_000_000 + 500_000).then_some(())).unwrap();
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn higher_priority_moves_a_job_ahead() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let first = slotd.wrap(&["-c", "4"], "echo first >> order");
    let second = slotd.wrap(&["-c", "4"], "echo second >> order");
    update(&slotd, second, "Priority=4294967293");
    slotd.cancel(running);
    slotd.wait_state(first, "COMPLETED");
    slotd.wait_state(second, "COMPLETED");
    assert_eq!(slotd.read("order"), "second\nfirst\n");
}

#[test]
fn new_priority_is_shown_as_given_and_later_nice_lowers_it() {
    let slotd = Slotd::start();
    slotd.endless(&["-c", "4"]);
    let job = slotd.wrap(&["-c", "4", "--nice=5"], "true");
    let shown = || (slotd.show(job, "Priority"), slotd.show(job, "Nice"));
    update(&slotd, job, "Priority=77");
    assert_eq!(shown(), ("77".to_owned(), "0".to_owned()));
    update(&slotd, job, "Nice=7");
    assert_eq!(shown(), ("70".to_owned(), "7".to_owned()));
}

#[test]
fn changed_dependency_applies() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    let second = slotd.wrap(&["-d", &format!("afterok:{first}")], "true");
    slotd.wait_reason(second, "Dependency");
    update(&slotd, second, "Dependency=");
    slotd.wait_state(second, "COMPLETED");
}

#[test]
fn throttle_of_an_array_can_be_changed() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "1-4%1", "--mem", "1"], "exec sleep 1000");
    let running = || slotd.records(job).iter().filter(|r| r.state() == "RUNNING").count();
    slotd.wait("one task", || (running() == 1).then_some(()));
    update(&slotd, job, "ArrayTaskThrottle=3");
    slotd.wait("three tasks", || (running() == 3).then_some(()));
}

#[test]
fn invalid_update_is_refused_and_changes_nothing() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H", "-J", "kept"], "true");
    let before = slotd.job(job).0;
    for change in [
        "Nonsense=1",
        "TimeLimit=never",
        "Partition=nopart",
        "Priority=abc",
        "JobName",
        "Dependency=foo:1",
        "NumCPUs=99",
    ] {
        let out = slotd.cmd("scontrol", &["update", "job", &job.to_string(), change]);
        assert_ne!(out.code, 0, "{change}");
        assert_ne!(out.stderr, "", "{change}");
    }
    assert_eq!(slotd.job(job).0, before);
    slotd.cmd("scontrol", &["update", "job", "999999", "JobName=x"]).fails(1);
}

#[test]
fn changes_survive_a_daemon_crash() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    update(&slotd, job, "JobName=kept");
    update(&slotd, job, "TimeLimit=7");
    slotd.crash();
    let record = slotd.job(job);
    assert_eq!(
        (&record.0["request"]["name"], &record.0["request"]["time_limit_secs"]),
        (&"kept".into(), &420.into())
    );
}

#[test]
fn size_and_comment_of_a_pending_job_can_be_changed() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    update(&slotd, job, "NumCPUs=3");
    update(&slotd, job, "MinMemoryNode=2G");
    update(&slotd, job, "Comment=hello");
    let record = slotd.job(job);
    assert_eq!(record.tres(), (3, 2048, 0));
    assert_eq!(record.0["request"]["comment"], "hello");
    update(&slotd, job, "StartTime=now+1hour");
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    slotd.wait_reason(job, "BeginTime");
}

#[test]
fn show_job_shows_all_keys_of_update() {
    let setup = Slotd::setup().set("SLOTD_GPU_COUNT", 4).toml("[[qos]]\nname = \"high\"\n");
    let slotd = setup.start();
    // It stays pending until its begin time, whatever else is changed.
    let job = slotd.wrap(&["--begin=now+1hour", "-n", "2"], "true");
    let other = slotd.endless(&["-c", "2"]);
    let shown = |key: &str| {
        let out = slotd.line(&format!("scontrol -o show job {job}")).ok();
        let find = |word: &&str| word.split_once('=').is_some_and(|(k, _)| k == key);
        out.text()
            .split(' ')
            .find(find)
            .map_or("", |word| word.split_once('=').unwrap().1)
            .to_owned()
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
        ("MinCPUsNode=3", "NumCPUs", "3"),
        ("MinCPUsNode=0", "NumCPUs", "2"),
        ("MinCPUsNode=2", "MinCPUsNode", "2"),
        ("Partition=gpu", "Partition", "gpu"),
        ("Priority=77", "Priority", "77"),
        ("Nice=5", "Nice", "5"),
        ("Comment=new", "Comment", "new"),
        ("Comment=", "Comment", ""),
        ("Extra=x", "Extra", "x"),
        ("Account=lab", "Account", "lab"),
        ("Account=", "Account", "(null)"),
        ("QOS=high", "QOS", "high"),
        ("WCKey=key", "WCKey", "key"),
        ("Licenses=", "Licenses", "(null)"),
        ("MailType=END", "MailType", "END"),
        ("MailUser=a@b", "MailUser", "a@b"),
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
        ("NumNodes=1-2", "NumNodes", "1-2"),
        ("NumNodes=1", "NumNodes", "1-1"),
    ] {
        slotd.cmd("scontrol", &["update", &format!("JobId={job}"), change]).ok();
        assert_eq!(shown(key), value, "{change}");
    }
    for (change, text) in [
        (
            "Partition=nopart",
            format!(
                "invalid partition specified: nopart\nInvalid partition name specified for job {job}\n  \
                 hint: partitions: cpu, gpu\n"
            ),
        ),
        (
            "NumCPUs=99",
            format!("Requested partition configuration not available now for job {job}\n"),
        ),
        ("UserID=root", "No changes specified\n".to_owned()),
    ] {
        slotd.expect(&format!("scontrol update JobId={job} {change}"), 1, "", &text);
    }
    slotd.expect(
        "scontrol update JobId=999999 TimeLimit=5",
        1,
        "",
        "Invalid job id specified for job 999999\n",
    );
    let out = slotd.cmd("scontrol", &["update", &format!("JobId={job}"), "Nonsense=1"]).fails(1);
    let text = "Update of this parameter is not supported: Nonsense=1\nRequest aborted\n  hint: keys: JobId, ";
    assert!(out.stderr.starts_with(text), "{}", out.stderr);
    slotd.expect("scontrol update", 1, "", "too few arguments for update keyword\n");
}

#[test]
fn priority_does_not_start_a_held_job() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H"], "true");
    let at = format!("scontrol update JobId={held} Priority=");
    for value in ["-1", "4294967294", "4294967295"] {
        let error = slotd.line(&format!("{at}{value}")).fails(1).stderr;
        assert!(error.starts_with(&format!("Invalid Priority value: {value}\n")), "{error}");
    }
    slotd.line(&format!("{at}5")).fails(1);
    assert_eq!(
        (slotd.state(held), slotd.job(held).reason()),
        ("PENDING".to_owned(), "JobHeldUser".to_owned())
    );
    slotd.line(&format!("scontrol release {held}")).ok();
    slotd.wait_state(held, "COMPLETED");
}

#[test]
fn the_end_of_a_running_job_can_be_set() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-t", "60"]);
    slotd.wait_state(job, "RUNNING");
    let start = slotd.job(job).start() / 1_000_000;
    for secs in [600, 5401] {
        update(&slotd, job, &format!("EndTime=uts{}", start + secs));
        let end = slotd.sh(&format!("date -d $(squeue -h -j {job} -o %e) +%s")).ok();
        assert_eq!(end.text(), (start + secs).to_string());
    }
    assert_eq!(slotd.show(job, "TimeLimit"), "01:30:01");
    for end in ["16:00", "tomorrow", "now+2hours", "2050-01-01T00:00"] {
        update(&slotd, job, &format!("EndTime={end}"));
    }
    assert_eq!(slotd.show(job, "EndTime"), "2050-01-01T00:00:00");

    let change = |job: &str, end: &str, stderr: &str| {
        slotd.expect(&format!("scontrol update JobId={job} EndTime={end}"), 1, "", stderr);
    };
    let past = slotd.line(&format!("scontrol update JobId={job} EndTime=2020-01-01")).fails(1);
    assert!(past.stderr.starts_with("the new end time is "), "{past:?}");
    let text = format!("to end a job now, use scancel\nInvalid time specified for job {job}\n");
    assert!(past.stderr.ends_with(&text), "{past:?}");
    let wrong = slotd.line(&format!("scontrol update JobId={job} EndTime=+10")).fails(1);
    assert!(wrong.stderr.starts_with("Invalid EndTime specification: +10\n"), "{wrong:?}");
    let pending = slotd.wrap(&["--hold"], "true");
    change(&pending.to_string(), "now+60", &format!("Job is not running for job {pending}\n"));

    update(&slotd, job, "EndTime=now");
    slotd.wait_state(job, "TIMEOUT");
    change(&job.to_string(), "now+60", &format!("Job has already finished for job {job}\n"));
}

#[test]
fn the_end_of_an_array_is_that_of_its_running_tasks() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-a", "1-2%1", "-t", "60"], "exec sleep 1000");
    slotd.wait("its first task", || {
        slotd.records(array).iter().any(|task| task.state() == "RUNNING").then_some(())
    });
    update(&slotd, array, "EndTime=now+2hours");
    let limits = slotd.line(&format!("squeue -h -r -j {array} -o %K=%l -S K")).ok();
    assert_eq!(limits.lines()[1], "2=1:00:00");
    assert!(limits.lines()[0].starts_with("1=2:00:0"), "{limits:?}");
    let task = format!("{array}_2");
    let line = format!("scontrol update JobId={task} EndTime=now+2hours");
    slotd.expect(&line, 1, "", &format!("Job is not running for job {task}\n"));
}
