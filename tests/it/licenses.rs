//! Licenses of `slotd.toml`: requested with `-L`, counted by the daemon, and shown as in Slurm.

use slotd_kit::{Setup, Slotd, proc};
use std::fs;

const LICENSES: &str =
    "[[license]]\nname = \"matlab\"\ncount = 3\n[[license]]\nname = \"foo\"\ncount = 1\n";

/// Starts a daemon with 4 CPUs, three licenses of matlab, and one of foo.
fn licensed() -> Slotd {
    let mut slotd = Setup::default().prepare();
    let file = slotd.base.join("slotd.toml");
    fs::write(&file, LICENSES).unwrap();
    slotd.reset_var("SLOTD_CONFIG", file.display());
    slotd.start_daemon();
    slotd
}

fn reconfigure(slotd: &Slotd, text: &str) {
    fs::write(slotd.base.join("slotd.toml"), text).unwrap();
    slotd.line("scontrol reconfigure").ok();
}

/// Returns the numbers of a license in use and free.
fn usage(slotd: &Slotd, name: &str) -> (u32, u32) {
    let shown = slotd.line(&format!("scontrol show licenses {name} -o")).ok().stdout;
    let number = |key: &str| {
        let word = shown.split_whitespace().find_map(|word| word.strip_prefix(key));
        word.unwrap_or_else(|| panic!("no {key} in {shown:?}")).parse().unwrap()
    };
    (number("Used="), number("Free="))
}

#[test]
fn jobs_wait_for_licenses_that_others_hold() {
    let slotd = licensed();
    let first = slotd.endless(&["-L", "matlab:2,foo"]);
    let second = slotd.script(&["-o", "/dev/null"], "#!/bin/sh\n#SBATCH -L matlab:2\ntrue\n");
    let third = slotd.endless(&["--licenses=matlab"]);
    let other = slotd.endless(&[]);
    slotd.wait_reason(second, "Licenses");
    slotd.expect(
        "squeue -h -S i -o %i|%T|%W|%r",
        0,
        &format!(
            "{first}|RUNNING|matlab:2,foo|None\n{second}|PENDING|matlab:2|Licenses\n\
             {third}|RUNNING|matlab|None\n{other}|RUNNING|(null)|None\n"
        ),
        "",
    );
    slotd.expect("squeue -h -L foo -O licenses:14", 0, "matlab:2,foo  \n", "");
    slotd.expect("squeue -h -L nosuch", 0, "", "");
    assert_eq!(slotd.line("squeue -h -L matlab -o %i").ok().lines().len(), 3);
    assert_eq!(slotd.show(first, "Licenses"), "matlab:2,foo");
    slotd.expect(
        "scontrol show licenses",
        0,
        "LicenseName=foo\n    Total=1 Used=1 Free=0 Reserved=0 Remote=no\n\
         LicenseName=matlab\n    Total=3 Used=3 Free=0 Reserved=0 Remote=no\n",
        "",
    );
    slotd.expect(
        "scontrol show lic foo -o",
        0,
        "LicenseName=foo Total=1 Used=1 Free=0 Reserved=0 Remote=no\n",
        "",
    );
    slotd.expect("scontrol show licenses nosuch", 0, "", "");
    let shown = slotd.line("scontrol show config").ok().stdout;
    let licenses = shown.lines().find(|line| line.starts_with("Licenses "));
    assert!(licenses.is_some_and(|line| line.ends_with("= foo:1,matlab:3")), "{licenses:?}");
    let document = slotd.line("scontrol show licenses foo --json").ok().stdout;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["licenses"][0]["LicenseName"], "foo");
    assert_eq!(document["licenses"][0]["Used"], 1);
    let why = slotd.line(&format!("slotd why {second}")).ok().stdout;
    let told = format!(
        "Licenses: it needs 2 of license matlab, of which 0 are free; job {first} holds 2 and has no time limit"
    );
    assert!(why.contains(&told), "{why}");
    slotd.cancel(first);
    slotd.wait_end(second);
    slotd.cancel(third);
    slotd.wait_end(third);
    assert_eq!((usage(&slotd, "matlab"), usage(&slotd, "foo")), ((0, 3), (0, 1)));
}

#[test]
fn requests_that_cannot_be_met_are_refused_by_every_command() {
    let slotd = licensed();
    let why = "Invalid license specification";
    for (command, failure) in [
        ("sbatch -L matlab:4 --wrap true", "sbatch: error: Batch job submission failed"),
        ("srun -L matlab:4 true", "srun: error: Unable to allocate resources"),
        ("salloc -L matlab:4 true", "salloc: error: Job submit/allocate failed"),
    ] {
        let name = command.split(' ').next().unwrap();
        let detail = format!("{name}: error: 4 of license matlab requested, 3 are configured\n");
        slotd.expect(command, 1, "", &format!("{detail}{failure}: {why}\n"));
    }
    let error = slotd.line("sbatch -L matlba --wrap true").fails(1).stderr;
    assert!(error.ends_with("  hint: did you mean matlab?\n"), "{error}");
    for refused in ["matlab:x", "matlab:-1", "matlab=", "MATLAB", "nosuch:0"] {
        let error = slotd.cmd("sbatch", &["-L", refused, "--wrap", "true"]).fails(1).stderr;
        assert!(error.contains(&format!("submission failed: {why}\n")), "{refused}: {error}");
    }
    for taken in ["matlab:0", "matlab:", "", "matlab:1,matlab:2", "matlab:1;foo:1"] {
        let id = slotd.wrap(&["-L", taken], "true");
        slotd.wait_end(id);
    }
    let taken = slotd.endless(&["-L", "foo"]);
    for command in ["srun --immediate=1 -L foo true", "salloc --immediate=1 -L foo true"] {
        let name = command.split(' ').next().unwrap();
        let problem = "Unable to allocate resources: Job dependency problem";
        slotd.expect(command, 1, "", &format!("{name}: error: {problem}\n"));
    }
    let trial = || slotd.line("sbatch --test-only -L foo -t 1 --wrap true").ok().stderr;
    assert!(trial().contains(" to start at an unknown time "), "{}", trial());
    slotd.limit(taken, 3600);
    let end = slotd.show(taken, "EndTime");
    assert!(trial().contains(&format!(" to start at {end} ")), "{end}: {}", trial());
}

#[test]
fn licenses_of_a_running_job_can_be_exchanged() {
    let slotd = licensed();
    let running = slotd.endless(&["-L", "matlab:3"]);
    let waiting = slotd.wrap(&["-L", "matlab:2"], "exec sleep 1000");
    slotd.wait_reason(waiting, "Licenses");
    slotd.expect(&format!("scontrol update JobId={running} Licenses=matlab:1"), 0, "", "");
    slotd.wait_state(waiting, "RUNNING");
    assert_eq!(
        (usage(&slotd, "matlab"), slotd.show(running, "Licenses")),
        ((3, 0), "matlab:1".to_owned())
    );
    for (licenses, detail) in [
        ("matlab:2", "1 more of license matlab requested, 0 are free"),
        ("matlab:4", "4 of license matlab requested, 3 are configured"),
        ("nosuch", "no such license: nosuch"),
    ] {
        let change = format!("scontrol update JobId={running} Licenses={licenses}");
        let error = slotd.line(&change).fails(1).stderr;
        let general = format!("Invalid license specification for job {running}");
        assert!(error.contains(detail) && error.contains(&general), "{error}");
    }
    slotd.expect(&format!("scontrol update JobId={running} Licenses="), 0, "", "");
    assert_eq!(
        (usage(&slotd, "matlab"), slotd.show(running, "Licenses")),
        ((2, 1), "(null)".to_owned())
    );
    let pending = slotd.wrap(&["-L", "matlab:3"], "true");
    slotd.wait_reason(pending, "Licenses");
    slotd.expect(&format!("scontrol update JobId={pending} Licenses=foo:1"), 0, "", "");
    slotd.wait_end(pending);
}

#[test]
fn the_next_daemon_knows_who_holds_licenses() {
    let mut slotd = licensed();
    let suspended = slotd.begun(&["-L", "matlab:2"], "never", "true");
    let running = slotd.begun(&["-L", "foo"], "gate", "true");
    slotd.line(&format!("scontrol suspend {suspended}")).ok();
    slotd.line(&format!("scontrol update JobId={running} Licenses=foo,matlab")).ok();
    let waiting = slotd.wrap(&["-L", "matlab"], "true");
    slotd.wait_reason(waiting, "Licenses");
    slotd.kill9();
    slotd.start_daemon();
    assert_eq!((usage(&slotd, "matlab"), usage(&slotd, "foo")), ((3, 0), (1, 0)));
    slotd.wait_reason(waiting, "Licenses");
    // The job ends while no daemon is running.
    let watcher = slotd.watcher_of(running);
    slotd.kill9();
    slotd.open("gate");
    slotd.wait("the watcher to end", || (!proc::is_alive(watcher)).then_some(()));
    slotd.start_daemon();
    slotd.wait_end(waiting);
    assert_eq!((usage(&slotd, "matlab"), usage(&slotd, "foo")), ((2, 1), (0, 1)));
}

#[test]
fn a_lowered_count_takes_nothing_from_running_jobs() {
    let slotd = licensed();
    let running = slotd.endless(&["-L", "matlab:3", "--requeue"]);
    reconfigure(&slotd, "[[license]]\nname = \"matlab\"\ncount = 1\n");
    slotd.expect(
        "scontrol show licenses",
        0,
        "LicenseName=matlab\n    Total=1 Used=3 Free=0 Reserved=0 Remote=no\n",
        "",
    );
    let waiting = slotd.wrap(&["-L", "matlab"], "true");
    slotd.wait_reason(waiting, "Licenses");
    slotd.line(&format!("scontrol requeue {running}")).ok();
    slotd.wait_end(waiting);
    slotd.wait_reason(running, "Licenses");
    let why = slotd.line(&format!("slotd why {running}")).ok().stdout;
    let told = "Licenses: it needs 3 of license matlab, but there is 1 in total";
    assert!(why.contains(told), "{why}");
    reconfigure(&slotd, LICENSES);
    slotd.wait_state(running, "RUNNING");
    assert_eq!(usage(&slotd, "matlab"), (3, 0));
    // An invalid file changes nothing.
    fs::write(slotd.base.join("slotd.toml"), "[[license]]\nname = \"matlab\"\n").unwrap();
    let error = slotd.line("scontrol reconfigure").fails(1).stderr;
    assert!(error.contains("slotd.toml:1: license matlab needs a count"), "{error}");
    assert_eq!(usage(&slotd, "matlab"), (3, 0));
}
