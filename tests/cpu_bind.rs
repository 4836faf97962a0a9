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

const ASK: [&str; 3] = ["sh", "-c", "echo $SLURM_PROCID $(grep Cpus_allowed_list /proc/self/status | cut -f2)"];

fn bound(slotd: &Slotd, args: &[&str]) -> Vec<String> {
    let out = slotd.cmd("srun", &[args, &ASK].concat()).ok();
    let mut lines: Vec<String> = out.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn all() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn none_leaves_every_cpu() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    assert_eq!(bound(&slotd, &["--cpu-bind", "none"]), [format!("0 {}", all())]);
    assert_eq!(bound(&slotd, &["--cpu-bind=no"]), [format!("0 {}", all())]);
}

#[test]
fn a_map_names_the_cpu_of_each_task() {
    let slotd = Setup::default().unset("SLOTD_CPUS").start();
    let cpus = own_cpus();
    let (first, last) = (cpus[0], *cpus.last().unwrap());
    let map = format!("map_cpu:{last},{first}");
    assert_eq!(bound(&slotd, &["--cpu-bind", &map]), [format!("0 {last}")]);
    if cpus.len() > 1 {
        let expected = [format!("0 {last}"), format!("1 {first}")];
        assert_eq!(bound(&slotd, &["-n", "2", "--cpu-bind", &map]), expected);
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
    assert!(out.stderr.contains("8999"), "{}", out.stderr);
    // Once for all tasks that it befalls.
    let out = slotd.cmd("srun", &["-n", "3", "--cpu-bind", "map_cpu:8999,8999,8998", "true"]);
    let count = |text: &str| out.stderr.matches(text).count();
    assert_eq!((count("could not bind to CPUs 8999"), count("could not bind to CPUs 8998")), (1, 1), "{}", out.stderr);
    assert!(out.stderr.contains("; could not bind"), "{}", out.stderr);
}
