//! Commands that programs expect but that have little to do on one host: sacctmgr, sshare, sbcast
//! and others; also JSON in newer versions of Slurm's format, and the findings of `slotd doctor`.

use serde_json::{Value, json};
use slotd_kit::Slotd;

#[test]
fn sacctmgr_and_sshare_print_the_lists_of_a_single_user() {
    let slotd = Slotd::start();
    let header = "      User   Def Acct     Admin \n---------- ---------- --------- \n";
    slotd.expect("sacctmgr show user lab", 0, header, "");
    for (line, printed) in [
        ("sacctmgr -n -s list user lab format=account%256", ""),
        ("sacctmgr -n -P show cluster format=cluster,controlhost", "slotd|127.0.0.1\n"),
        ("sacctmgr -nP list runaway", "Runaway Jobs: No runaway jobs found on cluster slotd\n"),
        ("sacctmgr -nP list qos format=name", "normal\n"),
        ("sacctmgr -nP show qos high format=name", ""),
        ("sacctmgr -np show assoc user=lab format=account,user", ""),
        ("sacctmgr -nP show tres format=type,id", "cpu|1\nmem|2\nenergy|3\nnode|4\nbilling|5\n"),
        ("sshare -U --format Account%256 --noheader", ""),
        ("sshare -P", "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare\n"),
    ] {
        slotd.expect(line, 0, printed, "");
    }
    let out = slotd.line("sacctmgr -i add user lab account=x").fails(1);
    assert!(out.stderr.contains("nothing can be changed here"), "{}", out.stderr);
}

#[test]
fn sbcast_copies_a_file_for_a_running_job() {
    let slotd = Slotd::start();
    slotd.program("tool", "#!/bin/sh\necho old\n");
    let job = slotd.endless(&[]).to_string();
    slotd.wait_state(job.parse().expect("a number"), "RUNNING");
    let node = slotd.line("scontrol show hostnames").stdout;
    let node = if node.is_empty() {
        slotd.line("sinfo -h -N -o %N").text().lines().next().unwrap_or_default().to_owned()
    } else {
        node
    };
    slotd.expect(&format!("sbcast -j {job} tool copy"), 0, "", "");
    assert_eq!(slotd.sh("./copy").ok().text(), "old");
    let out = slotd.line(&format!("sbcast -j {job} tool copy")).fails(17);
    assert!(
        out.stderr.starts_with(&format!("sbcast: error: REQUEST_FILE_BCAST({node}): File exists")),
        "{}",
        out.stderr
    );
    slotd.program("tool", "#!/bin/sh\necho new\n");
    slotd.expect(&format!("sbcast -fp -j {job} tool copy"), 0, "", "");
    assert_eq!(slotd.sh("./copy; ls | grep -c copy").ok().text(), "new\n1");
    slotd.sh("chmod 6755 tool; mkfifo pipe").ok();
    slotd.expect(&format!("sbcast -p -j {job} tool private"), 0, "", "");
    assert_eq!(
        slotd.sh("stat -c %a private").ok().text(),
        "755",
        "setuid and setgid bits are not copied"
    );
    for (line, code, message) in [
        (format!("sbcast -j {job} pipe x"), 255, "Can't open `pipe`: it is not a regular file"),
        ("sbcast tool x".to_owned(), 1, "Need a job id to run this command."),
        ("sbcast tool".to_owned(), 1, "Need two file names, have 1 names"),
        (format!("sbcast -j {job} tool d/"), 1, "Target filename cannot be a directory."),
        (format!("sbcast -j {job} tool d/x"), 2, "No such file or directory"),
        (
            format!("sbcast -j {job} nothing x"),
            255,
            "Can't open `nothing`: No such file or directory",
        ),
        (
            "sbcast -j 999999 tool x".to_owned(),
            255,
            "Slurm job 999999 lookup error: Invalid job id specified",
        ),
    ] {
        let out = slotd.line(&line).fails(code);
        assert!(out.stderr.contains(message), "{line}: {}", out.stderr);
    }
}

#[test]
fn unneeded_commands_name_an_alternative() {
    let slotd = Slotd::start();
    for line in ["strigger --set --jobid=1 --fini -p x", "sgather a b"] {
        let out = slotd.line(line).fails(1);
        assert!(out.stderr.contains("use instead: "), "{line}: {}", out.stderr);
        assert_eq!(out.stdout, "", "{line}");
    }
    slotd.expect("strigger --get", 0, "", "");
    slotd.expect("sinfo -T", 0, "No reservations in the system\n", "");
    let report = slotd.line("sreport -P cluster utilization").ok().stdout;
    assert!(
        report.ends_with("\nCluster|Allocated|Down|PLND Down|Idle|Planned|Reported\n"),
        "{report}"
    );
    assert!(slotd.line("strigger --version").ok().stdout.starts_with("slurm-wlm 22.05.8"));
}

#[test]
fn json_can_have_a_newer_format() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-t", "10"]);
    slotd.wait_state(job, "RUNNING");
    let read = |line: &str| -> Value {
        serde_json::from_str(&slotd.line(line).ok().stdout).expect("JSON")
    };
    let ten = json!({ "set": true, "infinite": false, "number": 10 });
    for line in [
        format!("squeue --json=v0.0.40 -j {job}"),
        format!("scontrol show job {job} --json=v0.0.40"),
    ] {
        let data = read(&line);
        assert_eq!(data["jobs"][0]["time_limit"], ten, "{line}");
        assert_eq!(data["jobs"][0]["job_state"], json!(["RUNNING"]), "{line}");
        assert_eq!(data["meta"]["plugin"]["data_parser"], "data_parser/v0.0.40", "{line}");
    }
    let data = read(&format!("sacct --json=v0.0.40 -j {job}"));
    assert_eq!(
        (&data["jobs"][0]["time"]["limit"], &data["jobs"][0]["state"]["current"]),
        (&ten, &json!(["RUNNING"]))
    );
    assert_eq!(read("sinfo --json=v0.0.40")["nodes"][0]["state"], json!(["MIXED"]));
    assert_eq!(read("squeue --json")["jobs"][0]["time_limit"], 10);
    let out = slotd.line("squeue --json=v9").fails(1);
    assert!(out.stderr.contains("v0.0.40"), "{}", out.stderr);
}

#[test]
fn frequencies_profiles_and_distributions_are_in_the_environment() {
    let slotd = Slotd::start();
    let print = "env | grep -E '^SLURM_(CPU_FREQ_REQ|PROFILE|DISTRIBUTION)=' | sort";
    let asked = ["--cpu-freq=low-high:ondemand", "--profile=task,energy"];
    let both = "SLURM_CPU_FREQ_REQ=Low-High:OnDemand\nSLURM_PROFILE=Energy,Task\n";
    assert_eq!(slotd.ran(&asked, print), both);
    assert_eq!(slotd.ran(&[], print), "");
    let step = |tasks| format!("srun -n{tasks} sh -c \"test $SLURM_PROCID != 0 || {print}\"");
    let in_step =
        |options: &[&str], tasks| slotd.ran(options, &step(tasks).replace("$SLURM", "\\$SLURM"));
    assert_eq!(in_step(&["-n2"], 2), "SLURM_DISTRIBUTION=block\n");
    assert_eq!(in_step(&["-n2"], 1), "SLURM_DISTRIBUTION=cyclic\n");
    let mut line = slotd.command("salloc");
    line.args(asked).args(["sh", "-c", print]);
    assert_eq!(
        slotd.run(line).ok().stdout.lines().skip(1).collect::<Vec<_>>().join("\n") + "\n",
        both
    );
    let out = slotd.line("sbatch --profile=foo --wrap true").fails(255);
    assert!(out.stderr.contains("invalid --profile=foo option"), "{}", out.stderr);
}

#[test]
fn doctor_suggests_a_fix_for_each_problem() {
    let mut slotd = Slotd::start();
    let home = slotd.sh("echo $HOME").text().to_owned();
    let bin = slotd.sh("dirname $(command -v sbatch)").text().to_owned();
    let doctor = |slotd: &Slotd| slotd.line("slotd doctor");
    let found = doctor(&slotd).fails(1);
    assert!(
        found.stdout.contains("PROBLEM  a login shell") && found.stdout.contains("--link-dir"),
        "{}",
        found.stdout
    );
    std::fs::create_dir_all(&home).expect("a home");
    std::fs::write(format!("{home}/.profile"), format!("PATH={bin}:$PATH\n")).expect("a profile");
    let well = doctor(&slotd).ok();
    assert!(!well.stdout.contains("PROBLEM") && well.stdout.contains("answers"), "{}", well.stdout);
    let config = format!("{home}/.config/slotd");
    std::fs::create_dir_all(&config).expect("a directory");
    let settings =
        "SLOTD_CPU=4\nSLOTD_ROOT=/elsewhere\nSLOTD_CGROUP_BASE=/dev/null\nSLOTD_LOG=loud\n";
    std::fs::write(format!("{config}/slotd.env"), settings).expect("settings");
    let node = slotd.line("sinfo -h -N -o %N").text().lines().next().unwrap_or_default().to_owned();
    slotd.line(&format!("scontrol update NodeName={node} State=DRAIN Reason=cleaning")).ok();
    let found = doctor(&slotd).fails(1).stdout;
    for what in [
        "SLOTD_CPU in ",
        "sets /elsewhere",
        "SLOTD_CGROUP_BASE /dev/null: not a cgroup",
        "SLOTD_LOG",
        "the node accepts no jobs: cleaning",
    ] {
        assert!(
            found.lines().any(|line| line.starts_with("PROBLEM  ") && line.contains(what)),
            "{what}: {found}"
        );
    }
    std::fs::remove_file(format!("{config}/slotd.env")).expect("the settings");
    let site = format!("{config}/slotd.toml");
    std::fs::write(&site, "[[partition]]\nname = \"a\"\nmax_tim = 1\n").expect("a file");
    let found = doctor(&slotd).fails(1).stdout;
    let expected = format!(
        "PROBLEM  {site}:3: unknown key max_tim in a partition: did you mean max_time?\n    fix: "
    );
    assert!(found.contains(&expected), "{found}");
    slotd.stop();
    let found = doctor(&slotd).fails(1).stdout;
    assert!(
        found.contains("no daemon is running") && found.contains("fix: slotd daemon start"),
        "{found}"
    );
}

#[test]
fn scontrol_pidinfo_and_errnumstr() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "10"], "echo $$ > pid; echo ready; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    let printed = slotd.line(&format!("scontrol pidinfo {}", slotd.read("pid").trim())).ok().stdout;
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with(&format!("Slurm JobId={job} ends at ")), "{printed}");
    let left = lines[1]
        .strip_prefix("Job remaining time is ")
        .and_then(|rest| rest.strip_suffix(" seconds"));
    assert!(
        left.is_some_and(|secs| (1..=600).contains(&secs.parse::<u32>().unwrap())),
        "{printed}"
    );
    slotd.expect("scontrol pidinfo 1", 1, "", "Failed to locate job for requested pid\n");
    slotd.expect("scontrol pidinfo", 1, "", "missing argument for keyword:pidinfo\n");
    slotd.expect("scontrol errnumstr 2017", 0, "Invalid job id specified\n", "");
    slotd.expect(
        "scontrol errnumstr x",
        1,
        "",
        "numeric arguments required for keyword:errnumstr\n",
    );
    slotd.expect("scontrol completing", 0, "", "");
}
