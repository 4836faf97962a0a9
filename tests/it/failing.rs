//! Jobs on CPUs and GPUs that are taken out of use: the step manager moves its steps, and a job
//! without a manager gets the signal that it requested.

use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn update(slotd: &Slotd, words: &[&str]) {
    slotd.cmd("scontrol", &[&["update", "NodeName=localhost"], words].concat()).ok();
}

/// Returns the events of a step manager from now on.
fn watch(slotd: &Slotd, job: u32) -> impl Iterator<Item = String> + use<> {
    let path = slotd.job_dir(job).join("sjobmgr.sock");
    let mut socket = slotd.wait("a manager", || UnixStream::connect(&path).ok());
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(b"{\"request\":\"watch\"}\n{\"request\":\"status\"}\n").unwrap();
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    // The subscription is active once the second request has been answered.
    assert!(lines.any(|line| line.contains("\"event\":\"status\"")));
    lines
}

/// Returns a line `JobName|State` for each numbered step of a job.
fn steps(slotd: &Slotd, job: u32) -> Vec<String> {
    let out =
        slotd.cmd("sacct", &["-nP", "-j", &job.to_string(), "-o", "JobID,JobName,State"]).ok();
    let numbered =
        |line: &&str| line.split(['.', '|']).nth(1).is_some_and(|id| id.parse::<u32>().is_ok());
    out.lines()
        .into_iter()
        .filter(numbered)
        .map(|line| line.split_once('|').unwrap().1.to_owned())
        .collect()
}

#[test]
fn a_gpu_out_of_use_is_replaced_as_soon_as_another_is_free() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let gate = slotd.gate("go");
    slotd.write(
        "steps.toml",
        format!("step = [{{ name = 'fit', gpus = 1, command = \"echo on $CUDA_VISIBLE_DEVICES >> ran; {gate}\" }}]"),
    );
    let job = slotd.wrap(&["-G1", "--mem=1"], "sjobmgr run steps.toml; echo code $?");
    slotd.wait_text("ran", "on 0");
    let other = slotd.wrap(&["-G1", "--mem=1"], &slotd.gate("leave"));
    slotd.wait_state(other, "RUNNING");
    let mut events = watch(&slotd, job);
    update(&slotd, &["State=DRAIN", "Reason=dust", "Gres=gpu:0"]);
    // The step is ended and waits, because no other GPU is free.
    assert!(events.any(|line| line.contains("\"event\":\"ended\"")));
    assert_eq!(slotd.read("ran"), "on 0\n");
    let status = slotd.cmd("sjobmgr", &["status", "--jobid", &job.to_string()]).ok().stdout;
    assert!(status.contains(" GPUs=0 "), "{status}");
    slotd.open("leave");
    slotd.wait_text("ran", "on 1");
    let resources = events.find(|line| line.contains("\"event\":\"resources\"")).unwrap();
    assert!(
        resources.contains("\"gpus\":1")
            && resources.contains("resources that are out of use were replaced"),
        "{resources}"
    );
    assert!(
        slotd
            .cmd("scontrol", &["show", "job", "-d", &job.to_string()])
            .ok()
            .stdout
            .contains("(IDX:1)")
    );
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job).lines().last(), Some("code 0"), "{}", slotd.output(job));
}

#[test]
fn a_step_on_a_drained_gpu_moves_even_if_the_daemon_is_killed() {
    let mut slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let saves = "trap 'echo saved $CUDA_VISIBLE_DEVICES >> ran; exit 3' USR1; echo on $CUDA_VISIBLE_DEVICES >> ran";
    let gate = slotd.gate("go");
    slotd.write(
        "steps.toml",
        format!("step = [{{ name = 'fit', gpus = 1, signal = 'USR1@600', command = \"{saves}; {gate}\" }}]"),
    );
    let job = slotd.wrap(&["-c2", "-G2"], "sjobmgr run steps.toml; echo code $?");
    slotd.wait_text("ran", "on 0");
    let mut events = watch(&slotd, job);
    update(&slotd, &["State=DRAIN", "Reason=dust", "Gres=gpu:0"]);
    slotd.kill9();
    slotd.start_daemon();
    slotd.wait_text("ran", "on 1");
    assert_eq!(slotd.read("ran"), "on 0\nsaved 0\non 1\n");
    assert!(
        events
            .any(|line| line.starts_with("{\"event\":\"out\",\"cpus\":[],\"gpus\":[0],\"why\":\""))
    );
    let ended = events.find(|line| line.contains("\"event\":\"ended\"")).unwrap();
    assert!(
        ended.contains("\"state\":\"NODE_FAIL\"") && ended.contains("\"exit_code\":3"),
        "{ended}"
    );
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job).lines().last(), Some("code 0"), "{}", slotd.output(job));
    assert_eq!(steps(&slotd, job), ["fit|NODE_FAIL", "fit|COMPLETED"]);
    let both = slotd.wrap(&["-G2"], "echo $CUDA_VISIBLE_DEVICES");
    slotd.wait_reason(both, "ReqNodeNotAvail");
    update(&slotd, &["State=RESUME", "Gres=gpu:0"]);
    slotd.wait_state(both, "COMPLETED");
    assert_eq!(slotd.output(both), "0,1\n");
}

#[test]
fn steps_on_a_drained_cpu_wait_until_it_is_resumed() {
    let slotd = Setup::default().set("SLOTD_CPUS", 2).start();
    slotd.write(
        "steps.toml",
        format!(
            "step = [{{ name = 'wide', cpus = 2, command = \"echo on >> ran; {}\" }}]",
            slotd.gate("go")
        ),
    );
    let job = slotd.wrap(&["-c2"], "sjobmgr run steps.toml; echo code $?");
    slotd.wait_text("ran", "on");
    update(&slotd, &["State=DRAIN", "Reason=hot", "CPUs=0"]);
    let row = || slotd.cmd("sjobmgr", &["list", "--jobid", &job.to_string()]).ok().stdout;
    slotd.wait("a step that waits", || {
        (row().contains("PENDING") && row().contains("Resources")).then_some(())
    });
    slotd.open("go");
    update(&slotd, &["State=RESUME", "CPUs=0"]);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("ran"), "on\non\n");
    assert_eq!(steps(&slotd, job), ["wide|NODE_FAIL", "wide|COMPLETED"]);
}

#[test]
fn a_job_on_a_drained_gpu_gets_only_the_signal_that_it_requested() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 3).start();
    let script = |name: &str| {
        format!(
            "trap 'echo signalled >> {name}.signalled' USR1; touch {name}.ready; {}",
            slotd.gate("go")
        )
    };
    let asks = slotd.wrap(&["-G1", "--signal=USR1@10", "-t60"], &script("asks"));
    slotd.wait_text("asks.ready", "");
    let not = slotd.wrap(&["-G1"], &script("not"));
    slotd.wait_text("not.ready", "");
    let healthy = slotd.wrap(&["-G1", "--signal=USR1@10", "-t60"], &script("healthy"));
    slotd.wait_text("healthy.ready", "");
    update(&slotd, &["State=DRAIN", "Reason=dust", "Gres=gpu:0-1"]);
    slotd.wait_text("asks.signalled", "signalled\n");
    // Draining the same GPU again sends no second signal, and later jobs on it get none.
    update(&slotd, &["State=DRAIN", "Reason=dirt", "Gres=gpu:0-1"]);
    slotd.open("go");
    for job in [asks, not, healthy] {
        slotd.wait_state(job, "COMPLETED");
    }
    assert_eq!(slotd.read("asks.signalled"), "signalled\n");
    assert!(!slotd.exists("not.signalled") && !slotd.exists("healthy.signalled"));
}

#[test]
fn a_step_on_a_lost_gpu_continues_on_another() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\ncase \"$*\" in *query-gpu*) cat \"$0.gpus\";; esac\n",
    );
    let gpus_file = slotd.base.join("bin/nvidia-smi.gpus");
    let gpus = ["0, T4, GPU-a, 1, 1, 0, Disabled\n", "1, T4, GPU-b, 1, 1, 0, Disabled\n"];
    fs::write(&gpus_file, gpus.concat()).unwrap();
    slotd.start_daemon();
    let fit = format!("echo on $CUDA_VISIBLE_DEVICES >> ran; {}", slotd.gate("go"));
    slotd.write(
        "steps.toml",
        format!(
            "step = [{{ name = 'fit', gpus = 1, stdout = 'fit.out', command = \"echo $CUDA_VISIBLE_DEVICES; {fit}\" }}]"
        ),
    );
    let job = slotd.wrap(&["-c2", "-G2"], "sjobmgr run steps.toml; echo code $?");
    slotd.wait_text("ran", "on 0");
    fs::write(gpus_file.with_extension("new"), gpus[1]).unwrap();
    fs::rename(gpus_file.with_extension("new"), &gpus_file).unwrap();
    proc::signal(slotd.daemon_pid(), proc::HUP);
    slotd.wait_text("ran", "on 1");
    assert_eq!(reasons(&slotd), ["GPU 0 (GPU-a): no lo"]);
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job).lines().last(), Some("code 0"), "{}", slotd.output(job));
    assert_eq!(steps(&slotd, job), ["fit|NODE_FAIL", "fit|COMPLETED"]);
    assert_eq!(slotd.read("ran"), "on 0\non 1\n");
    assert_eq!(
        slotd.read("fit.out"),
        "0\n1\n",
        "the second run appends to the output of the first"
    );
}

/// Sets the CPUs and the memory of the simulated machine.
fn machine_has(slotd: &Slotd, cpus: &str, mem_mb: u64) {
    let put = |name: &str, text: String| {
        let path = slotd.base.join("sysfs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Replace the file atomically, because the daemon may read it at any moment.
        fs::write(path.with_extension("new"), text).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    put("cpu/online", format!("{cpus}\n"));
    put("meminfo", format!("MemTotal: {} kB\n", mem_mb * 1024));
}

/// Returns the reasons of `sinfo -R`, which have 20 columns.
fn reasons(slotd: &Slotd) -> Vec<String> {
    let rows = slotd.cmd("sinfo", &["-hR"]).ok();
    rows.lines().into_iter().map(|row| row[..20].trim_end().to_owned()).collect()
}

#[test]
fn lost_cpus_and_memory_are_not_allocated_until_they_return() {
    let mut slotd = Setup::default().unset("SLOTD_CPUS").unset("SLOTD_MEMORY_MB").prepare();
    let file = slotd.base.join("slotd.toml");
    fs::write(
        &file,
        "[[partition]]\nname = \"all\"\n[[partition]]\nname = \"last\"\ncpus = \"3\"\n",
    )
    .unwrap();
    slotd.reset_var("SLOTD_CONFIG", file.display());
    machine_has(&slotd, "0-3", 4000);
    slotd.reset_var("SLOTD_TEST_SYSFS", slotd.base.join("sysfs").display());
    slotd.start_daemon();
    let script =
        format!("trap 'echo signalled >> signalled' USR1; touch ready; {}", slotd.gate("go"));
    let continues = slotd.wrap(&["-plast", "--mem=100", "--signal=USR1@10", "-t60"], &script);
    slotd.wait_text("ready", "");
    machine_has(&slotd, "0-2", 3000);
    slotd.cmd("scontrol", &["reconfigure"]).ok();
    assert_eq!(reasons(&slotd), ["CPU 3: offline", "1000 MB of memory: m"]);
    slotd.wait_text("signalled", "signalled\n");
    let node = slotd.cmd("scontrol", &["show", "node"]).ok().stdout;
    assert!(node.contains("CPUTot=3 ") && node.contains("RealMemory=3000 "), "{node}");
    slotd.cmd("sbatch", &["-pall", "-c4", "--wrap", "true"]).fails(1);
    slotd.cmd("sbatch", &["-pall", "--mem=3500", "--wrap", "true"]).fails(1);
    assert_eq!(slotd.state(continues), "RUNNING");
    machine_has(&slotd, "0-3", 4000);
    proc::signal(slotd.daemon_pid(), proc::HUP);
    slotd.wait("all of the host", || reasons(&slotd).is_empty().then_some(()));
    slotd.open("go");
    slotd.wait_state(continues, "COMPLETED");
    slotd.ran(&["-pall", "-c4", "--mem=3500"], "true");
}
