//! --cpu-bind. CPU numbers depend on the machine, so the tests use the CPUs that it has.

use slotd_kit::{Setup, Slotd};

/// Returns the CPUs that this test may use.
fn own_cpus() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim()
        .split(',')
        .flat_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse::<usize>().unwrap()..=last.parse().unwrap()
        })
        .collect()
}

const ASK: [&str; 3] =
    ["sh", "-c", "echo $SLURM_PROCID $(grep Cpus_allowed_list /proc/self/status | cut -f2)"];

fn bound(slotd: &Slotd, args: &[&str]) -> Vec<String> {
    let out = slotd.cmd("srun", &[args, &ASK].concat()).ok();
    let mut lines: Vec<String> = out.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn job_sees_its_own_cpus_even_with_none() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    let first = own_cpus()[0];
    for args in [&[][..], &["--cpu-bind", "none"], &["--cpu-bind=no"]] {
        assert_eq!(bound(&slotd, args), [format!("0 {first}")], "{args:?}");
    }
    let seen = "nproc; grep Cpus_allowed_list /proc/self/status | cut -f2";
    let batch = slotd.ran(&[], seen);
    assert_eq!(batch.lines().collect::<Vec<_>>(), ["1", &first.to_string()]);
    let salloc = slotd.cmd("salloc", &["-Q", "sh", "-c", seen]).ok();
    assert_eq!(salloc.lines(), ["1", &first.to_string()]);
}

#[test]
fn two_single_cpu_jobs_get_different_cpus() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    if own_cpus().len() < 2 {
        return;
    }
    let begin = |name: &str| {
        slotd.begun(&["-o", name], &format!("{name}.go"), &ASK[2].replace("$SLURM_PROCID ", ""))
    };
    let jobs = [begin("a"), begin("b")];
    for name in ["a.go", "b.go"] {
        slotd.open(name);
    }
    jobs.iter().for_each(|job| drop(slotd.wait_state(*job, "COMPLETED")));
    let cpus = ["a", "b"].map(|name| slotd.read(name).lines().last().unwrap().to_owned());
    assert_ne!(cpus[0], cpus[1]);
    assert!(cpus.iter().all(|cpu| cpu.parse::<u32>().is_ok()), "one CPU each: {cpus:?}");
}

#[test]
fn nothing_is_bound_if_more_cpus_are_configured_than_exist() {
    let slotd = Setup::default().set("SLOTD_CPUS", 9000).start();
    let most = (own_cpus().len() + 1).to_string();
    assert_eq!(bound(&slotd, &["-c", &most]), [format!("0 {}", list(&own_cpus()))]);
}

/// Formats a contiguous range of CPUs as the kernel does.
fn list(cpus: &[usize]) -> String {
    match cpus {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    }
}

#[test]
fn map_selects_the_cpu_of_each_task() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    let cpus = own_cpus();
    let (first, last) = (cpus[0], *cpus.last().unwrap());
    assert_eq!(
        bound(&slotd, &["--cpu-bind", &format!("map_cpu:{first},{last}")]),
        [format!("0 {first}")]
    );
    if cpus.len() > 1 {
        let expected = [format!("0 {last}"), format!("1 {first}")];
        assert_eq!(
            bound(
                &slotd,
                &["--exclusive", "-n", "2", "--cpu-bind", &format!("map_cpu:{last},{first}")]
            ),
            expected
        );
        // A step binds within its job.
        let job =
            slotd.script(&["-n1"], &format!("#!/bin/sh\nsrun --cpu-bind=map_cpu:{last} true\n"));
        slotd.wait_state(job, "FAILED");
        let want = format!(
            "CPU binding outside of job step allocation: CPU {last}; allocated CPUs are: {first}"
        );
        let outside = slotd.output(job);
        assert!(outside.contains(&want), "{outside}");
    }
}

#[test]
fn job_that_names_a_cpu_gets_it_or_waits_for_it() {
    let mut slotd = Setup::default().unset("SLOTD_CPUS").start();
    let cpus = own_cpus();
    let last = *cpus.last().unwrap();
    let map = format!("--cpu-bind=map_cpu:{last}");
    assert_eq!(bound(&slotd, &[&map]), [format!("0 {last}")], "although others are free too");
    let mask =
        format!("--cpu-bind=mask_cpu:{:x}", cpus.iter().fold(0u128, |mask, cpu| mask | 1 << cpu));
    assert_eq!(
        bound(&slotd, &[&mask]),
        [format!("0 {}", list(&cpus))],
        "the job gets as many CPUs as it names"
    );
    let all = format!("-c{}", cpus.len());
    let holder = slotd.begun(&[&all], "go", ":");
    let waits = slotd.cmd("srun", &["--no-wait", &map, "-o", "out", "sh", "-c", ASK[2]]).ok();
    let waits: u32 = waits.stdout.trim().rsplit(' ').next().unwrap().parse().unwrap();
    slotd.wait_reason(waits, "Resources");
    let why = slotd.cmd("slotd", &["why", &waits.to_string()]).ok();
    assert!(why.stdout.contains(&format!("including CPU {last} (--cpu-bind)")), "{}", why.stdout);
    // The same holds for the queue restored from the database.
    slotd.kill9();
    slotd.start_daemon();
    slotd.wait_reason(waits, "Resources");
    slotd.open("go");
    slotd.wait_state(holder, "COMPLETED");
    slotd.wait_state(waits, "COMPLETED");
    assert_eq!(slotd.read("out"), format!("0 {last}\n"));
}

#[test]
fn environment_of_tasks_has_their_cpu_masks() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    let cpus = own_cpus();
    let digits = cpus.last().unwrap() / 4 + 1;
    let mask = |cpu: usize| format!("0x{:0>digits$X}", 1u128 << cpu);
    let show = "env | grep ^SLURM_CPU_BIND | sort";
    let want = |all: &str, list: &str, kind: &str| {
        let bind = format!("SLURM_CPU_BIND={all}\nSLURM_CPU_BIND_LIST={list}\n");
        format!("{bind}SLURM_CPU_BIND_TYPE={kind}\nSLURM_CPU_BIND_VERBOSE=quiet\n")
    };
    let first = mask(cpus[0]);
    let of_first = want(&format!("quiet,mask_cpu:{first}"), &first, "mask_cpu:");
    for option in ["-n1", "--cpu-bind=cores"] {
        assert_eq!(
            slotd.cmd("srun", &[option, "sh", "-c", show]).ok().stdout,
            of_first,
            "{option}"
        );
    }
    let map = format!("map_cpu:{}", cpus[0]);
    let out = slotd.cmd("srun", &["--cpu-bind", &map, "sh", "-c", show]).ok();
    assert_eq!(out.stdout, want(&format!("quiet,{map}"), &cpus[0].to_string(), "map_cpu:"));
    // Neither a batch script nor a job submitted by a step has a binding.
    let nested = format!("sbatch -W -n1 -o inner --wrap '{show}; echo end'");
    let job = slotd.script(&["-n1"], &format!("#!/bin/sh\n{show}\nsrun sh -c \"{nested}\"\n"));
    if cpus.len() > 1 {
        slotd.wait_state(job, "COMPLETED");
        assert_eq!(slotd.read("inner"), "end\n");
        assert!(!slotd.output(job).contains("SLURM_CPU_BIND"), "{}", slotd.output(job));
        let list = [mask(cpus[0]), mask(cpus[1])].join(",");
        let out = slotd.cmd("srun", &["-n2", "sh", "-c", "echo $SLURM_CPU_BIND"]).ok();
        assert_eq!(out.stdout, format!("quiet,mask_cpu:{list}\n").repeat(2));
    }
}

#[test]
fn cores_gives_each_task_its_own_cpu() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    let cpus = own_cpus();
    if cpus.len() < 2 {
        return;
    }
    let lines = bound(&slotd, &["-n", "2", "--cpu-bind", "cores"]);
    let of = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(lines.len(), 2);
    assert_ne!(of(&lines[0]), of(&lines[1]), "{lines:?}");
}

#[test]
fn malformed_binding_is_refused() {
    let slotd = Slotd::start();
    for bind in ["nonsense", "map_cpu:", "map_cpu:x", "mask_cpu:zz"] {
        let out = slotd.cmd("srun", &["--cpu-bind", bind, "true"]);
        assert_ne!(out.code, 0, "{bind}");
        assert!(out.stderr.starts_with("srun: error: "), "{bind}: {}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

#[test]
fn nonexistent_cpu_is_reported() {
    let slotd = Setup::default().set("SLOTD_CPUS", 9000).start();
    let out = slotd.cmd("srun", &["--cpu-bind", "map_cpu:8999", "true"]);
    let there = list(&own_cpus());
    let want = format!(
        "srun: error: CPU 8999 requested by --cpu-bind, CPUs {there} on this host\n\
         srun: error: Unable to allocate resources: Unable to satisfy cpu bind request\n"
    );
    assert_eq!((out.stderr.as_str(), out.code), (&*want, 1));
    assert!(slotd.all_records().is_empty());
    // CPUs that the job has but the machine lacks are reported once for all affected tasks.
    let out = slotd.cmd(
        "salloc",
        &["-Q", "--exclusive", "srun", "-n", "3", "--cpu-bind", "map_cpu:8999,8999,8998", "true"],
    );
    let count = |text: &str| out.stderr.matches(text).count();
    assert_eq!(
        (count("could not bind to CPUs 8999"), count("could not bind to CPUs 8998")),
        (1, 1),
        "{}",
        out.stderr
    );
    assert!(out.stderr.contains("; could not bind"), "{}", out.stderr);
}
