//! Which CPUs jobs and steps get: on pretended hosts, whose CPUs are in a directory in the shape of sysfs, and on this one.

use slotd_kit::{Setup, Slotd};

/// A daemon on a host with so many sockets, cores in each and threads in each, numbered as most machines do it: first the
/// first threads of all cores. A socket is a NUMA node.
fn on_host(sockets: u32, cores: u32, threads: u32) -> Slotd {
    let mut slotd = Setup::default().unset("SLOTD_CPUS").prepare();
    let all = sockets * cores;
    let put = |path: String, text: String| {
        let path = slotd.base.join("sysfs").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    };
    put("cpu/online".to_owned(), format!("0-{}", all * threads - 1));
    put("node/online".to_owned(), format!("0-{}", sockets - 1));
    for socket in 0..sockets {
        let of_thread = |thread: u32| {
            let first = thread * all + socket * cores;
            format!("{first}-{}", first + cores - 1)
        };
        let cpus: Vec<String> = (0..threads).map(of_thread).collect();
        put(format!("node/node{socket}/cpulist"), cpus.join(","));
    }
    for cpu in 0..all * threads {
        let siblings: Vec<String> = (0..threads).map(|thread| (cpu % all + thread * all).to_string()).collect();
        put(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings.join(","));
        put(format!("cpu/cpu{cpu}/topology/physical_package_id"), (cpu % all / cores).to_string());
    }
    slotd.reset_var("SLOTD_TEST_SYSFS", slotd.base.join("sysfs").display());
    slotd.start_daemon();
    slotd
}

/// The CPUs of a running job, as `scontrol -d show job` tells them.
fn cpus(slotd: &Slotd, id: u32) -> String {
    slotd.wait_state(id, "RUNNING");
    let shown = slotd.cmd("scontrol", &["-d", "show", "job", &id.to_string()]).ok().stdout;
    let found = shown.split_whitespace().find_map(|word| word.strip_prefix("CPU_IDs="));
    found.unwrap_or_else(|| panic!("no CPU_IDs in {shown}")).to_owned()
}

#[test]
fn jobs_share_no_core_while_one_is_free_and_stay_in_one_socket() {
    let slotd = on_host(2, 4, 2);
    let node = slotd.cmd("scontrol", &["show", "node"]).ok().stdout;
    for told in ["CPUTot=16", "Sockets=2", "CoresPerSocket=4", "ThreadsPerCore=2"] {
        assert!(node.split_whitespace().any(|word| word == told), "{told} in {node}");
    }
    let one = |n: &str| slotd.endless(&["-c", n, "--mem=1"]);
    let first = one("1");
    assert_eq!(cpus(&slotd, first), "0");
    assert_eq!(cpus(&slotd, one("1")), "1", "a core of its own, beside the first job");
    assert_eq!(cpus(&slotd, one("6")), "4-6,12-14", "one socket has room for all of it");
    assert_eq!(cpus(&slotd, one("4")), "2-3,10-11");
    assert_eq!(cpus(&slotd, one("2")), "7,15");
    assert_eq!(cpus(&slotd, one("1")), "8", "no core is free any more");
    slotd.cancel(first);
    slotd.wait_end(first);
    assert_eq!(cpus(&slotd, one("1")), "0");
}
