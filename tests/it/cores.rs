//! The CPU placement of jobs and steps, on simulated hosts with a directory in the layout of sysfs,
//! and on this host.

use slotd_kit::{Setup, Slotd};

/// Starts a daemon on a simulated host with this many sockets, cores per socket and threads per
/// core, numbered as on most machines: the first threads of all cores come first. Each socket is a
/// NUMA node.
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
        let siblings: Vec<String> =
            (0..threads).map(|thread| (cpu % all + thread * all).to_string()).collect();
        put(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings.join(","));
        put(format!("cpu/cpu{cpu}/topology/physical_package_id"), (cpu % all / cores).to_string());
    }
    slotd.reset_var("SLOTD_TEST_SYSFS", slotd.base.join("sysfs").display());
    slotd.start_daemon();
    slotd
}

/// Returns the CPUs of a running job from `scontrol -d show job`.
fn cpus(slotd: &Slotd, id: u32) -> String {
    slotd.wait_state(id, "RUNNING");
    let shown = slotd.cmd("scontrol", &["-d", "show", "job", &id.to_string()]).ok().stdout;
    let found = shown.split_whitespace().find_map(|word| word.strip_prefix("CPU_IDs="));
    found.unwrap_or_else(|| panic!("no CPU_IDs in {shown}")).to_owned()
}

#[test]
fn jobs_do_not_share_cores_and_stay_in_one_socket_if_possible() {
    let slotd = on_host(2, 4, 2);
    let node = slotd.cmd("scontrol", &["show", "node"]).ok().stdout;
    for field in ["CPUTot=16", "Sockets=2", "CoresPerSocket=4", "ThreadsPerCore=2"] {
        assert!(node.split_whitespace().any(|word| word == field), "{field} in {node}");
    }
    let one = |n: &str| slotd.endless(&["-c", n, "--mem=1"]);
    let first = one("1");
    assert_eq!(cpus(&slotd, first), "0");
    assert_eq!(cpus(&slotd, one("1")), "1", "a separate core next to the first job's");
    assert_eq!(cpus(&slotd, one("6")), "4-6,12-14", "all in one socket");
    assert_eq!(cpus(&slotd, one("4")), "2-3,10-11");
    assert_eq!(cpus(&slotd, one("2")), "7,15");
    assert_eq!(cpus(&slotd, one("1")), "8", "no core is free");
    slotd.cancel(first);
    slotd.wait_end(first);
    assert_eq!(cpus(&slotd, one("1")), "0");
}

#[test]
fn a_job_with_one_thread_per_core_gets_whole_cores() {
    let slotd = on_host(1, 4, 2);
    for args in [
        &["--hint=nomultithread"][..],
        &["--threads-per-core=1"],
        &["--ntasks-per-core=1"],
        &["-B", "1:4:1"],
    ] {
        let job = slotd.endless(&[args, &["-n", "2", "--mem=1"]].concat());
        assert_eq!(cpus(&slotd, job), "0-1,4-5", "{args:?}");
        slotd.cancel(job);
        slotd.wait_end(job);
    }
    for (args, what) in [
        ("--threads-per-core=3", "3 threads per core requested, 2 there"),
        ("--sockets-per-node=2", "2 sockets requested, 1 there"),
        ("--cores-per-socket=5", "5 cores per socket requested, 4 there"),
        ("-B2", "2 sockets requested, 1 there"),
    ] {
        let out = slotd.cmd("sbatch", &[args, "--wrap", "true"]).fails(1);
        assert!(
            out.stderr.contains(what)
                && out.stderr.contains("Requested node configuration is not available"),
            "{out:?}"
        );
    }
    let out = slotd.cmd("sbatch", &["-n2", "--ntasks-per-socket=1", "--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("2 sockets requested, 1 there"), "{out:?}");
}

#[test]
fn layout_options_are_in_the_environment_of_jobs_and_steps() {
    let slotd = Slotd::start();
    let print = "env | grep -E 'SLURM_(DIST|HINT|MEM_BIND|THREADS_PER|NTASKS_PER)' | sort";
    let printed = |args: &[&str]| {
        slotd.ran(&[args, &["-n2"]].concat(), &format!("{print}; srun -n1 sh -c \"{print}\""))
    };
    // srun sets SLURM_DISTRIBUTION for each step.
    let both = |job: &[&str], step: &[&str]| {
        job.iter().chain(step).map(|line| format!("{line}\n")).collect::<String>()
    };
    let twice = |lines: &[&str]| both(lines, lines);
    let with_distribution =
        |lines: &[&str]| both(lines, &[&["SLURM_DISTRIBUTION=cyclic"], lines].concat());
    assert_eq!(printed(&["-m", "cyclic:block"]), twice(&["SLURM_DISTRIBUTION=cyclic:block"]));
    assert_eq!(
        printed(&["-m", "plane=2"]),
        twice(&["SLURM_DISTRIBUTION=plane", "SLURM_DIST_PLANESIZE=2"])
    );
    let hint = ["SLURM_HINT=nomultithread", "SLURM_THREADS_PER_CORE=1"];
    assert_eq!(printed(&["--hint=nomultithread"]), with_distribution(&hint));
    assert_eq!(
        printed(&["--ntasks-per-socket=2"]),
        with_distribution(&["SLURM_NTASKS_PER_SOCKET=2"])
    );
    let none = [
        "SLURM_MEM_BIND=quiet,none",
        "SLURM_MEM_BIND_LIST=",
        "SLURM_MEM_BIND_TYPE=none",
        "SLURM_MEM_BIND_VERBOSE=quiet",
    ];
    assert_eq!(printed(&["--mem-bind=none"]), with_distribution(&none));
}

#[test]
fn memory_is_bound_to_numa_nodes_or_the_step_fails() {
    let slotd = Slotd::start();
    let nodes = "grep -E '^[0-9a-f]+ (bind|prefer)' /proc/self/numa_maps | head -1 | cut -d' ' -f2";
    let bound = |mode: &str| slotd.cmd("srun", &["--mem-bind", mode, "sh", "-c", nodes]);
    let out = bound("map_mem:0");
    // Containers may forbid memory policies, and a kernel may be built without NUMA.
    let refused = ["Operation not permitted", "Function not implemented"];
    if refused.iter().any(|why| out.stderr.contains(why)) {
        eprintln!("not tested: {}", out.stderr);
        return;
    }
    if std::path::Path::new("/proc/self/numa_maps").exists() {
        assert_eq!(out.ok().text(), "bind:0");
        assert_eq!(bound("prefer,map_mem:0").ok().text(), "prefer:0");
        assert_eq!(bound("none").ok().text(), "");
    }
    let out = bound("map_mem:900");
    assert!(
        out.code != 0 && out.stderr.contains("could not bind memory to NUMA nodes 900"),
        "{out:?}"
    );
    let out = slotd.cmd("srun", &["--mem-bind", "verbose,map_mem:0", "true"]).ok();
    assert!(
        out.stderr.contains("mem-bind=MAP - ") && out.stderr.contains(": mask 0x1 set"),
        "{out:?}"
    );
}
