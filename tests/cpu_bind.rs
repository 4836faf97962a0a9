//! --cpu-bind. CPU numbers are those of this machine, so that the tests ask for what it has.

use slotd_kit::{Setup, Slotd};

/// The CPUs that this test may use.
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
fn a_job_sees_its_own_cpus_and_none_leaves_it_them() {
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
fn two_jobs_of_one_cpu_each_have_no_cpu_in_common() {
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
fn where_more_cpus_are_counted_than_there_are_nothing_is_bound() {
    let slotd = Setup::default().set("SLOTD_CPUS", 9000).start();
    let most = (own_cpus().len() + 1).to_string();
    assert_eq!(bound(&slotd, &["-c", &most]), [format!("0 {}", list(&own_cpus()))]);
}

/// As the kernel writes it, of CPUs that stand side by side.
fn list(cpus: &[usize]) -> String {
    match cpus {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    }
}

#[test]
fn a_map_names_the_cpu_of_each_task() {
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
        let outside = slotd.cmd("srun", &["--cpu-bind", &format!("map_cpu:{last}"), "true"]);
        let told = format!(
            "CPU binding outside of job step allocation: CPU {last}; allocated CPUs are: {first}"
        );
        assert!(outside.stderr.contains(&told), "{}", outside.stderr);
        assert_ne!(outside.code, 0);
    }
}

#[test]
fn cores_give_each_task_its_own() {
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
fn a_malformed_binding_is_refused() {
    let slotd = Slotd::start();
    for bind in ["nonsense", "map_cpu:", "map_cpu:x", "mask_cpu:zz"] {
        let out = slotd.cmd("srun", &["--cpu-bind", bind, "true"]);
        assert_ne!(out.code, 0, "{bind}");
        assert!(out.stderr.starts_with("srun: error: "), "{bind}: {}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

#[test]
fn a_cpu_that_does_not_exist_is_told() {
    let slotd = Setup::default().set("SLOTD_CPUS", 9000).start();
    let out = slotd.cmd("srun", &["--cpu-bind", "map_cpu:8999", "true"]);
    assert!(out.stderr.contains("CPU 8999; allocated CPUs are: 0"), "{}", out.stderr);
    // One that the job has, but not the machine; once for all tasks that it befalls.
    let out = slotd
        .cmd("srun", &["--exclusive", "-n", "3", "--cpu-bind", "map_cpu:8999,8999,8998", "true"]);
    let count = |text: &str| out.stderr.matches(text).count();
    assert_eq!(
        (count("could not bind to CPUs 8999"), count("could not bind to CPUs 8998")),
        (1, 1),
        "{}",
        out.stderr
    );
    assert!(out.stderr.contains("; could not bind"), "{}", out.stderr);
}
