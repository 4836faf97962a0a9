//! The daemon and its commands use only directories that belong to the user and that nobody else
//! can write to.

use slotd_kit::{Out, Setup, Slotd, users};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

/// Starts a daemon and asserts that it refuses to start.
fn refused(slotd: &Slotd) -> Out {
    slotd.run(slotd.daemon_command()).fails(1)
}

#[test]
fn a_root_that_others_can_write_is_refused() {
    let slotd = Setup::default().prepare();
    fs::set_permissions(&slotd.root, Permissions::from_mode(0o775)).unwrap();
    let out = refused(&slotd);
    assert!(out.stderr.contains("root: others can write to it (mode 0775)"), "{}", out.stderr);
    let out = slotd.line("slotd daemon start").fails(1);
    let expected = format!("slotd: error: {}: others can write to it ", slotd.root.display());
    assert!(out.stderr.starts_with(&expected), "{}", out.stderr);
    fs::set_permissions(&slotd.root, Permissions::from_mode(0o755)).unwrap();
    let mut slotd = slotd;
    slotd.start_daemon();
}

#[test]
fn a_daemon_in_the_foreground_may_use_the_files_that_it_creates() {
    let slotd = Setup::default().prepare();
    let mut daemon = slotd.shell();
    daemon.args(["-c", "umask 0777; exec slotd daemon"]);
    let daemon = slotd.spawn(daemon);
    slotd.wait("the daemon", || (slotd.line("sinfo").code == 0).then_some(()));
    // The modes keep no root out.
    for (name, mode) in
        [("run", 0o700), ("lib", 0o700), ("lib/jobs", 0o700), ("lib/state.db", 0o600)]
    {
        let found = fs::metadata(slotd.root.join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
    assert_eq!(slotd.ran(&[], "echo runs"), "runs\n");
    slotd.line("slotd daemon stop").ok();
    daemon.end().ok();
}

#[test]
fn links_instead_of_the_daemon_s_own_files_are_refused() {
    let slotd = Setup::default().prepare();
    let elsewhere = slotd.base.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, slotd.root.join("run")).unwrap();
    let out = refused(&slotd);
    assert!(out.stderr.contains("root/run: it is a link"), "{}", out.stderr);
    fs::remove_file(slotd.root.join("run")).unwrap();
    fs::create_dir(slotd.root.join("run")).unwrap();
    symlink(elsewhere.join("lock"), slotd.root.join("run/slotd.lock")).unwrap();
    refused(&slotd);
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "nothing was created in the target of the links"
    );
}

#[test]
fn a_link_instead_of_a_job_s_directory_is_not_followed() {
    let slotd = Slotd::start();
    let elsewhere = slotd.base.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, slotd.job_dir(1)).unwrap();
    let job = slotd.wrap(&[], "true");
    assert_eq!(job, 1);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn an_output_file_may_be_a_link() {
    let slotd = Slotd::start();
    fs::write(slotd.path("real"), "").unwrap();
    symlink(slotd.path("real"), slotd.path("out")).unwrap();
    let job = slotd.wrap(&["-o", "out"], "echo through");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("real"), "through\n");
}

#[test]
fn oversized_texts_are_refused_and_others_are_served() {
    let slotd = Slotd::start();
    let name = "x".repeat(10_000);
    let out = slotd.cmd("sbatch", &["-J", &name, "--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("name of 10000 bytes, 1024 at most"), "{}", out.stderr);
    assert!(out.stderr.contains("parameter too long"), "{}", out.stderr);
    for (megabytes, why) in
        [(10, "script of 10485"), (20, "is longer than the"), (100, "larger than 64 MB")]
    {
        let mut script = "#!/bin/sh\ntrue\n".to_owned();
        script.push_str(&"#".repeat(megabytes << 20));
        slotd.write("job.sh", &script);
        let out = slotd.cmd("sbatch", &["job.sh"]).fails(1);
        assert!(out.stderr.contains(why), "{}", out.stderr);
    }
    // An environment that is too large to start any program can only come from a file.
    let text: Vec<u8> =
        (0..100).flat_map(|n| format!("V{n}={}\0", "v".repeat(100 << 10)).into_bytes()).collect();
    fs::write(slotd.path("env"), text).unwrap();
    let out = slotd.cmd("sbatch", &["--export-file", "env", "--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("environment of 10"), "{}", out.stderr);
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn root_sends_no_script_and_no_environment_to_another_users_daemon() {
    let mut slotd = Setup::default().prepare();
    let Some(user) = users::nobody() else { return };
    slotd.write("job.sh", "#!/bin/sh\necho \"$SECRET\"\n");
    slotd.start_daemon_as(&user);
    let wanted = format!(
        "belongs to user {0}: no script or environment was sent to it\n  hint: use --uid={0} or SLOTD_UID={0} to submit",
        user.name
    );
    let submissions: [(&str, &[&str]); 7] = [
        ("sbatch", &["job.sh"]),
        ("sbatch", &["--wrap", "true"]),
        ("sbatch", &["--test-only", "job.sh"]),
        ("srun", &["true"]),
        ("salloc", &["true"]),
        ("slotd", &["run", "--", "true"]),
        ("slotd", &["sweep", "--param", "a=1,2", "job.sh"]),
    ];
    for (command, words) in submissions {
        let out = slotd.cmd(command, words);
        assert_ne!(out.code, 0, "{command} {words:?}");
        assert!(out.stderr.contains(&wanted), "{command} {words:?}: {}", out.stderr);
    }
    let mut many = slotd.command("slotd");
    many.arg("submit");
    let out = slotd.feed(many, "{\"wrap\": \"true\"}\n");
    assert!(out.code != 0 && out.stderr.contains(&wanted), "{}", out.stderr);
    assert_eq!(slotd.cmd("squeue", &["-h", "-t", "all"]).ok().stdout, "", "nothing was submitted");
    // A copy of a work tree would be created where the user could place a link.
    slotd.sh("git init -q tree && echo text >tree/file").ok();
    for words in ["", "--uid=nobody"] {
        let out = slotd.sh(&format!("cd tree && sbatch {words} --snapshot --wrap true")).fails(1);
        assert!(
            out.stderr.contains("/lib/snapshots, but the daemon there runs as user nobody"),
            "{}",
            out.stderr
        );
    }
    assert!(!slotd.root.join("lib/snapshots").exists());
    // With --uid, root submits as that user.
    let uid = format!("--uid={}", user.name);
    let job = slotd
        .cmd(
            "sbatch",
            &[
                "--parsable",
                "-o",
                "out",
                &uid,
                "--wrap",
                "id -u; echo sleep 1000 | sjobmgr run -Q -",
            ],
        )
        .ok();
    let job: u32 = job.text().parse().unwrap();
    slotd.wait_text("out", &user.uid.to_string());
    assert_eq!(slotd.job(job).0["request"]["uid"], user.uid);
    let mut by_setting = slotd.command("sbatch");
    by_setting.env("SLOTD_UID", user.uid.to_string()).args(["--parsable", "-H", "--wrap", "true"]);
    let second = slotd.run(by_setting).ok();
    assert!(slotd.cmd("sbatch", &["--uid=1", "--wrap", "true"]).fails(1).stderr.contains(&wanted));
    // Jobs of one call are checked individually.
    let jobs = format!("{{\"wrap\":\"true\",\"options\":[\"{uid}\"]}}\n{{\"wrap\":\"secret\"}}\n");
    slotd.write("both.jsonl", jobs);
    let out = slotd.sh("slotd submit <both.jsonl");
    assert!(
        out.code != 0
            && format!("{}{}", out.stdout, out.stderr).contains("no script or environment"),
        "{out:?}"
    );
    assert_eq!(slotd.cmd("squeue", &["-h", "-t", "all", "-o", "%i"]).ok().lines().len(), 2);
    slotd.expect(
        "sbatch --uid=nosuchuser --wrap x",
        255,
        "",
        "sbatch: error: Invalid --uid specification\n",
    );
    let words = ["--uid=0", "--wrap", "true"];
    let other_user = slotd.cmd_as(&user, "sbatch", &words).fails(255);
    assert_eq!(other_user.stderr, "sbatch: error: --uid only permitted by root user\n");
    // A step in a running job is also a command with an environment.
    let step = slotd.cmd("srun", &["--overlap", "--jobid", &job.to_string(), "true"]);
    assert!(step.code != 0 && step.stderr.contains(&wanted), "{}", step.stderr);
    slotd.cmd("srun", &["--overlap", &uid, "--jobid", &job.to_string(), "true"]).ok();
    // The user's step manager also gets no commands and no files of root.
    let within = format!("SLURM_JOB_ID={job}");
    slotd.wait("the manager", || {
        (slotd.sh(&format!("sjobmgr status --jobid {job}")).code == 0).then_some(())
    });
    let sent = slotd.sh(&format!("{within} sjobmgr submit -- echo secret")).fails(1);
    assert!(
        sent.stderr.contains("runs as user nobody: the command was not sent to it"),
        "{}",
        sent.stderr
    );
    slotd.write("steps", "id -u >ran\n");
    let ran = slotd.sh(&format!("{within} sjobmgr run steps")).fails(1);
    assert!(ran.stderr.contains(&format!("it belongs to user {}", user.uid)), "{}", ran.stderr);
    assert!(!slotd.exists("ran"));
    // Root can view and control the queue.
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i"]).ok().lines().len(), 2);
    slotd.cmd("scontrol", &["update", &format!("JobId={}", second.text()), "JobName=renamed"]).ok();
    slotd.cmd("scancel", &[second.text(), &job.to_string()]).ok();
    slotd.wait_state(job, "CANCELLED");
}

#[test]
fn doctor_does_not_suggest_that_root_take_over_a_user_s_directory() {
    let slotd = Setup::default().prepare();
    let Some(user) = users::nobody() else { return };
    users::give(&slotd.root, &user);
    let doctor = slotd.cmd("slotd", &["doctor"]).fails(1).stdout;
    let owned = format!("belongs to user {}, ", user.uid);
    let fix = format!("fix: run this as user {0} (sudo -u {0} slotd doctor)", user.name);
    assert!(doctor.contains(&owned) && doctor.contains(&fix), "{doctor}");
    assert!(!doctor.contains("chown") && !doctor.contains("chmod"), "{doctor}");
    // For root's own directory, doctor suggests chmod.
    let slotd = Setup::default().prepare();
    fs::set_permissions(&slotd.root, Permissions::from_mode(0o777)).unwrap();
    let doctor = slotd.cmd("slotd", &["doctor"]).fails(1).stdout;
    assert!(doctor.contains(&format!("fix: chmod 700 {}\n", slotd.root.display())), "{doctor}");
}

#[test]
fn root_stops_no_process_that_another_user_chose() {
    let mut slotd = Setup::default().prepare();
    let Some(user) = users::nobody() else { return };
    let mut other = Slotd::start();
    slotd.start_daemon_as(&user);
    let why = format!("it belongs to user {}, not to user 0", user.uid);
    let lock = slotd.root.join("run/slotd.lock");
    fs::rename(&lock, slotd.path("lock")).unwrap();
    symlink(other.root.join("run/slotd.lock"), &lock).unwrap();
    for is_link in [true, false] {
        for action in ["stop", "restart"] {
            let out = slotd.cmd("slotd", &["daemon", action]).fails(1);
            assert!(out.stderr.contains(&why), "{action}: {}", out.stderr);
            assert!(other.daemon_is_running() && slotd.daemon_is_running(), "{action}");
        }
        if is_link {
            fs::remove_file(&lock).unwrap();
            fs::rename(slotd.path("lock"), &lock).unwrap();
        }
    }
    // A process that is not the daemon is not found through the link either.
    fs::remove_file(&lock).unwrap();
    symlink(other.root.join("run/slotd.lock"), &lock).unwrap();
    let status = slotd.cmd("slotd", &["daemon", "status"]);
    assert!(!status.stdout.contains(&other.daemon_pid().to_string()), "{}", status.stdout);
}

#[test]
fn run_as_another_user_names_the_inaccessible_directory() {
    let mut slotd = Setup::default().prepare();
    let Some(user) = users::nobody() else { return };
    slotd.start_daemon_as(&user);
    let closed = slotd.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let run = |dir: &std::path::Path, words: &[&str]| {
        let mut run = slotd.command("slotd");
        run.env("SLOTD_UID", &user.name).arg("run").args(words).current_dir(dir);
        slotd.run(run)
    };
    let out = run(&closed, &["--", "true"]);
    let hint = format!(
        "  hint: it runs as user {0}: use -D with a directory that {0} can enter and write to\n",
        user.name
    );
    let wanted = format!(
        "slotd: error: job 1 could not be started: could not enter the working directory {}: Permission denied\n{hint}",
        closed.display()
    );
    assert_ne!(out.code, 0);
    assert!(out.stderr.ends_with(&wanted), "{}", out.stderr);
    // A directory that can be entered but not written to.
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    let out = run(&closed, &["--", "true"]);
    assert!(
        out.code != 0
            && out.stderr.contains("could not open stdout file ")
            && out.stderr.ends_with(&hint),
        "{out:?}"
    );
    let work = slotd.work();
    let out = run(&closed, &["-D", work.to_str().unwrap(), "--", "pwd"]).ok();
    assert_eq!(out.text(), work.to_str().unwrap());
}
