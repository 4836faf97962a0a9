//! Tests for each directive in the book's section "#SBATCH Support" and each rank in "Precedence".

use slotd_kit::{Slotd, until};

/// Submits a held job whose script has this directive, and returns what squeue shows of it.
#[track_caller]
fn shown(slotd: &Slotd, directive: &str, format: &str) -> String {
    let id = slotd.script(&["--hold"], &format!("#!/bin/sh\n#SBATCH {directive}\ntrue\n"));
    slotd.cmd("squeue", &["-h", "-j", &id.to_string(), "-o", format]).ok().text().to_owned()
}

#[test]
fn directive_job_name() {
    let slotd = Slotd::start();
    for directive in [
        "-J abc",
        "-Jabc",
        "--job-name abc",
        "--job-name=abc",
        "--job-name='abc'",
        "  --job-name   abc  ",
    ] {
        assert_eq!(shown(&slotd, directive, "%j"), "abc", "{directive}");
    }
}

#[test]
fn directive_partition() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    for directive in ["-p gpu", "--partition gpu", "--partition=gpu"] {
        assert_eq!(shown(&slotd, directive, "%P"), "gpu", "{directive}");
    }
}

#[test]
fn directive_cpus_per_task() {
    let slotd = Slotd::start();
    for directive in ["-c 2", "-c2", "--cpus-per-task 2", "--cpus-per-task=2"] {
        assert_eq!(shown(&slotd, directive, "%C"), "2", "{directive}");
    }
}

#[test]
fn directive_ntasks() {
    let slotd = Slotd::start();
    for directive in ["-n 3", "-n3", "--ntasks 3", "--ntasks=3"] {
        assert_eq!(shown(&slotd, directive, "%C"), "3", "{directive}");
    }
}

#[test]
fn directive_mem() {
    let slotd = Slotd::start();
    for directive in ["--mem 1G", "--mem=1G", "--mem=1024M"] {
        assert_eq!(shown(&slotd, directive, "%m"), "1G", "{directive}");
    }
}

#[test]
fn directive_time() {
    let slotd = Slotd::start();
    for directive in ["-t 00:05:00", "-t 5", "--time 5", "--time=5"] {
        assert_eq!(shown(&slotd, directive, "%l"), "5:00", "{directive}");
    }
}

#[test]
fn directive_gpus() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 2).start();
    for directive in ["-G 2", "-G2", "--gpus 2", "--gpus=2"] {
        let id = slotd.script(&["--hold"], &format!("#!/bin/sh\n#SBATCH {directive}\ntrue\n"));
        assert_eq!(slotd.job(id).tres().2, 2, "{directive}");
    }
}

#[test]
fn directive_output() {
    let slotd = Slotd::start();
    for directive in ["-o out.%j", "--output out.%j", "--output=out.%j", "--output=\"out.%j\""] {
        let id = slotd.script(&[], &format!("#!/bin/sh\n#SBATCH {directive}\necho out\n"));
        slotd.wait_state(id, "COMPLETED");
        assert_eq!(slotd.read(&format!("out.{id}")), "out\n", "{directive}");
    }
}

#[test]
fn directive_error() {
    let slotd = Slotd::start();
    for directive in ["-e err.%j", "--error err.%j", "--error=err.%j"] {
        let id = slotd.script(&[], &format!("#!/bin/sh\n#SBATCH {directive}\necho err >&2\n"));
        slotd.wait_state(id, "COMPLETED");
        assert_eq!(slotd.read(&format!("err.{id}")), "err\n", "{directive}");
    }
}

#[test]
fn directive_chdir() {
    let slotd = Slotd::start();
    std::fs::create_dir(slotd.path("there")).unwrap();
    for directive in ["-D there", "--chdir there", "--chdir=there"] {
        let wanted = slotd.path("there").display().to_string();
        assert_eq!(shown(&slotd, directive, "%Z"), wanted, "{directive}");
    }
}

#[test]
fn directive_constraint() {
    let slotd = Slotd::setup().set("SLOTD_FEATURES", "avx").start();
    for directive in ["--constraint avx", "--constraint=avx", "-C avx"] {
        assert_eq!(shown(&slotd, directive, "%f"), "avx", "{directive}");
    }
}

#[test]
fn directive_begin() {
    let slotd = Slotd::start();
    for directive in ["--begin now+1hour", "--begin=2090-01-02T03:04:05"] {
        let id = slotd.script(&[], &format!("#!/bin/sh\n#SBATCH {directive}\ntrue\n"));
        slotd.wait_reason(id, "BeginTime");
    }
}

#[test]
fn directive_exclusive() {
    let slotd = Slotd::start();
    let id = slotd.script(&["--hold"], "#!/bin/sh\n#SBATCH --exclusive\ntrue\n");
    assert_eq!(slotd.show(id, "OverSubscribe"), "NO");
}

#[test]
fn directive_requeue() {
    let slotd = Slotd::start();
    let id = slotd.script(&[], "#!/bin/sh\n#SBATCH --requeue\nexit 1\n");
    assert_eq!(slotd.wait_state(id, "FAILED").restarts(), 1);
}

#[test]
fn directive_dependency() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    for directive in ["-d", "--dependency"] {
        let id =
            slotd.script(&[], &format!("#!/bin/sh\n#SBATCH {directive} afterany:{first}\ntrue\n"));
        slotd.wait_reason(id, "Dependency");
    }
}

#[test]
fn directive_array() {
    let slotd = Slotd::start();
    for directive in ["-a 1-3%2", "-a1-3%2", "--array 1-3%2", "--array=1-3%2"] {
        assert_eq!(shown(&slotd, directive, "%K"), "1-3%2", "{directive}");
    }
}

// Directives in Slurm's forms

#[test]
fn directives_accept_slurms_forms() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    let script = "#!/usr/bin/env bash\n\
                  \n\
                  # a comment\n\
                  #SBATCH\t--job-name=\"a name\" # and a comment behind\n\
                  #SBATCH      -N1     --comment 'two words'\n\
                  #SBATCH --exclusive=          \n\
                  ##SBATCH --nosuch\n\
                  \n\
                  #SBATCH-c2 -p gpu\n\
                  true\n\
                  #SBATCH --nosuch\n";
    let id = slotd.script(&["--hold"], script);
    let seen = slotd.cmd("squeue", &["-h", "-j", &id.to_string(), "-o", "%j|%k|%C|%P"]).ok();
    assert_eq!(seen.text(), "a name|two words|2|gpu");
}

#[test]
fn invalid_directive_is_an_error_with_its_line() {
    let slotd = Slotd::start();
    for (directive, code, said) in [
        ("--nosuch=1", 255, "sbatch: error: line 4: unrecognized option '--nosuch=1'"),
        ("-t 1h", 255, "sbatch: error: line 4: Invalid --time specification: 1h"),
        ("-n none", 1, "sbatch: error: line 4: Invalid numeric value \"none\" for --ntasks."),
        ("nosuch", 255, "sbatch: error: line 4: Invalid directive found in batch script: nosuch"),
        ("--job-name='a", 1, "sbatch: error: line 4:"),
    ] {
        slotd.write("job.sh", format!("#!/bin/sh\n\n# c\n#SBATCH {directive}\ntrue\n"));
        let out = slotd.cmd("sbatch", &["job.sh"]);
        assert!(
            out.code != 0 && out.stderr.starts_with(said),
            "{directive}: {} {}",
            out.code,
            out.stderr
        );
        assert!(code == out.code, "{directive}: {}", out.code);
    }
    assert!(slotd.all_records().is_empty());
}

// Precedence

const NAMED: &str = "#!/bin/sh\n#SBATCH -J directive\n#SBATCH -t 5\ntrue\n";

#[track_caller]
fn name_and_limit(slotd: &Slotd, vars: &[(&str, &str)], args: &[&str], script: &str) -> String {
    slotd.write("job.sh", script);
    let mut command = slotd.command("sbatch");
    command.envs(vars.iter().copied()).args(["--parsable", "--hold"]).args(args).arg("job.sh");
    let id = slotd.run(command).ok().text().to_owned();
    slotd.cmd("squeue", &["-h", "-j", &id, "-o", "%j %l"]).ok().text().to_owned()
}

#[test]
fn precedence_1_command_line_options() {
    let slotd = Slotd::start();
    let vars = [("SBATCH_JOB_NAME", "variable"), ("SBATCH_TIMELIMIT", "7")];
    assert_eq!(name_and_limit(&slotd, &vars, &["-J", "line", "-t", "9"], NAMED), "line 9:00");
}

#[test]
fn precedence_2_sbatch_environment_variables() {
    let slotd = Slotd::start();
    let vars = [("SBATCH_JOB_NAME", "variable"), ("SBATCH_TIMELIMIT", "7")];
    assert_eq!(name_and_limit(&slotd, &vars, &[], NAMED), "variable 7:00");
    assert_eq!(name_and_limit(&slotd, &vars[..1], &[], NAMED), "variable 5:00");
}

#[test]
fn precedence_3_sbatch_directives() {
    let slotd = Slotd::start();
    assert_eq!(name_and_limit(&slotd, &[], &[], NAMED), "directive 5:00");
}

#[test]
fn precedence_4_built_in_defaults() {
    let slotd = Slotd::start();
    assert_eq!(name_and_limit(&slotd, &[], &[], "#!/bin/sh\ntrue\n"), "job.sh UNLIMITED");
}

#[test]
fn each_variable_sets_its_option() {
    let setup = Slotd::setup().set("SLOTD_GPU_COUNT", 2).set("SLOTD_FEATURES", "avx");
    let slotd = setup.toml("[[qos]]\nname = \"q\"\n").start();
    for (variable, value, option) in [
        ("SBATCH_ACCOUNT", "a", "account"),
        ("SBATCH_ARRAY_INX", "1-2", "array"),
        ("SBATCH_CLUSTERS", "slotd", "clusters"),
        ("SBATCH_CONSTRAINT", "avx", "constraint"),
        ("SBATCH_CPUS_PER_GPU", "1", "cpus-per-gpu"),
        ("SBATCH_CPUS_PER_TASK", "2", "cpus-per-task"),
        ("SBATCH_DEBUG", "1", "verbose"),
        ("SBATCH_DELAY_BOOT", "1", "delay-boot"),
        ("SBATCH_DISTRIBUTION", "block", "distribution"),
        ("SBATCH_ERROR", "e", "error"),
        ("SBATCH_EXCLUSIVE", "user", "exclusive"),
        ("SBATCH_EXPORT", "ALL", "export"),
        ("SBATCH_GPUS", "1", "gpus"),
        ("SBATCH_GPUS_PER_NODE", "1", "gpus-per-node"),
        ("SBATCH_GPUS_PER_TASK", "0", "gpus-per-task"),
        ("SBATCH_GRES", "gpu:1", "gres"),
        ("SBATCH_HINT", "nomultithread", "hint"),
        ("SBATCH_INPUT", "/dev/null", "input"),
        ("SBATCH_JOB_NAME", "n", "job-name"),
        ("SBATCH_MEM_PER_CPU", "10", "mem-per-cpu"),
        ("SBATCH_MEM_PER_NODE", "10", "mem"),
        ("SBATCH_NO_REQUEUE", "1", "no-requeue"),
        ("SBATCH_OPEN_MODE", "append", "open-mode"),
        ("SBATCH_OUTPUT", "o", "output"),
        ("SBATCH_PARTITION", "gpu", "partition"),
        ("SBATCH_QOS", "q", "qos"),
        ("SBATCH_REQUEUE", "1", "requeue"),
        ("SBATCH_SIGNAL", "USR1@10", "signal"),
        ("SBATCH_TIMELIMIT", "5", "time"),
        ("SBATCH_WAIT", "1", "wait"),
        ("SBATCH_WCKEY", "k", "wckey"),
        // The book mentions `SBATCH_*` without a list. These are slotd's own.
        ("SBATCH_ARRAY", "1-2", "array"),
        ("SBATCH_BEGIN", "now+1hour", "begin"),
        ("SBATCH_CHDIR", "/tmp", "chdir"),
        ("SBATCH_DEPENDENCY", "singleton", "dependency"),
        ("SBATCH_MEM", "10", "mem"),
        ("SBATCH_NTASKS", "2", "ntasks"),
        ("SBATCH_TIME", "5", "time"),
    ] {
        let mut command = slotd.command("sbatch");
        command.env(variable, value).args(["-v", "--test-only", "--wrap", "true"]);
        let out = slotd.run(command).ok();
        let line =
            out.stderr.lines().find(|line| line.starts_with(&format!("sbatch: {option:<20}: ")));
        let line = line.unwrap_or_else(|| panic!("{variable}: no {option} in {}", out.stderr));
        let is_flag = ["no-requeue", "requeue", "wait"].contains(&option);
        let told = line.trim_end_matches(" (without effect on one host)");
        let is_told = told.ends_with(&format!(": {value}")) || is_flag || option == "verbose";
        assert!(is_told, "{variable}={value}: {line}");
    }
}

// The example

#[test]
fn example_batch_script() {
    let slotd = Slotd::start();
    let script = "#!/usr/bin/env bash\n\
                  #SBATCH -J script-demo\n\
                  #SBATCH -p cpu\n\
                  #SBATCH -c 2\n\
                  #SBATCH --mem 1G\n\
                  #SBATCH -t 00:05:00\n\
                  #SBATCH -o logs/%j.out\n\
                  \n\
                  echo \"hello from script mode\"\n\
                  echo \"job=$SLURM_JOB_ID cpus=$SLURM_CPUS_PER_TASK\"\n";
    slotd.program("script-demo.sh", script);
    let out = slotd.sh("sbatch ./script-demo.sh").ok();
    assert_eq!(out.text(), "Submitted batch job 1");
    slotd.wait_state(1, "COMPLETED");
    // The job runs with the requested name, partition, CPU count, memory and output path.
    assert_eq!(
        slotd.sacct(1, "JobName,Partition,AllocCPUS,ReqMem,Timelimit"),
        "script-demo|cpu|2|1G|00:05:00"
    );
    // The output contains the echoed lines of the script's body.
    let seen = until(|| Some(slotd.read("logs/1.out")));
    assert_eq!(seen.unwrap(), "hello from script mode\njob=1 cpus=2\n");
}
