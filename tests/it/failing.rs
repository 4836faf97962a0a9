//! What becomes of jobs on parts of the host that go out of use: the manager of a job's steps moves
//! them, and a job without one gets the signal that it asked for.

use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn update(slotd: &Slotd, words: &[&str]) {
    slotd.cmd("scontrol", &[&["update", "NodeName=localhost"], words].concat()).ok();
}

/// The events of a manager from now on.
fn watch(slotd: &Slotd, job: u32) -> impl Iterator<Item = String> + use<> {
    let path = slotd.job_dir(job).join("sjobmgr.sock");
    let mut socket = slotd.wait("a manager", || UnixStream::connect(&path).ok());
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(b"{\"request\":\"watch\"}\n{\"request\":\"status\"}\n").unwrap();
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    // It is watched when the second request is answered.
    assert!(lines.any(|line| line.contains("\"event\":\"status\"")));
    lines
}

/// Lines `JobName|State` of the numbered steps of a job.
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
fn a_gpu_out_of_use_is_replaced_by_another_as_soon_as_there_is_one() {
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
    // The step is ended, and there is no other GPU for it yet.
    assert!(events.any(|line| line.contains("\"event\":\"ended\"")));
    assert_eq!(slotd.read("ran"), "on 0\n");
    let status = slotd.cmd("sjobmgr", &["status", "--jobid", &job.to_string()]).ok().stdout;
    assert!(status.contains(" GPUs=0 "), "{status}");
    slotd.open("leave");
    slotd.wait_text("ran", "on 1");
    let news = events.find(|line| line.contains("\"event\":\"resources\"")).unwrap();
    assert!(
        news.contains("\"gpus\":1") && news.contains("what is out of use was replaced"),
        "{news}"
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
fn a_step_on_a_drained_gpu_saves_its_state_and_goes_on_with_another_also_over_a_kill_of_the_daemon()
{
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
fn steps_that_have_nowhere_to_go_wait_until_their_cpu_is_resumed() {
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
fn a_job_without_a_manager_on_a_drained_gpu_gets_the_signal_that_it_asked_for_and_another_none() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 3).start();
    let script = |name: &str| {
        format!("trap 'echo told >> {name}.told' USR1; touch {name}.ready; {}", slotd.gate("go"))
    };
    let asks = slotd.wrap(&["-G1", "--signal=USR1@10", "-t60"], &script("asks"));
    slotd.wait_text("asks.ready", "");
    let not = slotd.wrap(&["-G1"], &script("not"));
    slotd.wait_text("not.ready", "");
    let healthy = slotd.wrap(&["-G1", "--signal=USR1@10", "-t60"], &script("healthy"));
    slotd.wait_text("healthy.ready", "");
    update(&slotd, &["State=DRAIN", "Reason=dust", "Gres=gpu:0-1"]);
    slotd.wait_text("asks.told", "told\n");
    // What has been told once is not told again, and whoever gets the GPU later has nothing to do
    // with it.
    update(&slotd, &["State=DRAIN", "Reason=dirt", "Gres=gpu:0-1"]);
    slotd.open("go");
    for job in [asks, not, healthy] {
        slotd.wait_state(job, "COMPLETED");
    }
    assert_eq!(slotd.read("asks.told"), "told\n");
    assert!(!slotd.exists("not.told") && !slotd.exists("healthy.told"));
}

#[test]
fn a_step_on_a_gpu_that_vanishes_goes_on_with_another() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\ncase \"$*\" in *query-gpu*) cat \"$0.gpus\";; esac\n",
    );
    let told = slotd.base.join("bin/nvidia-smi.gpus");
    let gpus = ["0, T4, GPU-a, 1, 1, 0, Disabled\n", "1, T4, GPU-b, 1, 1, 0, Disabled\n"];
    fs::write(&told, gpus.concat()).unwrap();
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
    fs::write(told.with_extension("new"), gpus[1]).unwrap();
    fs::rename(told.with_extension("new"), &told).unwrap();
    proc::signal(slotd.daemon_pid(), proc::HUP);
    slotd.wait_text("ran", "on 1");
    assert_eq!(reasons(&slotd), ["GPU 0 (GPU-a): not f"]);
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job).lines().last(), Some("code 0"), "{}", slotd.output(job));
    assert_eq!(steps(&slotd, job), ["fit|NODE_FAIL", "fit|COMPLETED"]);
    assert_eq!(slotd.read("ran"), "on 0\non 1\n");
    assert_eq!(
        slotd.read("fit.out"),
        "0\n1\n",
        "it does not overwrite what it wrote before it was moved"
    );
}

/// The machine has these CPUs and so much memory from now on.
fn machine_has(slotd: &Slotd, cpus: &str, mem_mb: u64) {
    let put = |name: &str, text: String| {
        let path = slotd.base.join("sysfs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // It may be read at any moment.
        fs::write(path.with_extension("new"), text).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    put("cpu/online", format!("{cpus}\n"));
    put("meminfo", format!("MemTotal: {} kB\n", mem_mb * 1024));
}

/// What `sinfo -R` tells, in 20 columns.
fn reasons(slotd: &Slotd) -> Vec<String> {
    let rows = slotd.cmd("sinfo", &["-hR"]).ok();
    rows.lines().into_iter().map(|row| row[..20].trim_end().to_owned()).collect()
}

#[test]
fn a_cpu_and_memory_that_are_gone_are_given_to_nobody_until_they_are_back() {
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
    let script = format!("trap 'echo told >> told' USR1; touch ready; {}", slotd.gate("go"));
    let goes_on = slotd.wrap(&["-plast", "--mem=100", "--signal=USR1@10", "-t60"], &script);
    slotd.wait_text("ready", "");
    machine_has(&slotd, "0-2", 3000);
    slotd.cmd("scontrol", &["reconfigure"]).ok();
    assert_eq!(reasons(&slotd), ["CPU 3: offline", "1000 MB of memory: g"]);
    slotd.wait_text("told", "told\n");
    let node = slotd.cmd("scontrol", &["show", "node"]).ok().stdout;
    assert!(node.contains("CPUTot=3 ") && node.contains("RealMemory=3000 "), "{node}");
    slotd.cmd("sbatch", &["-pall", "-c4", "--wrap", "true"]).fails(1);
    slotd.cmd("sbatch", &["-pall", "--mem=3500", "--wrap", "true"]).fails(1);
    assert_eq!(slotd.state(goes_on), "RUNNING");
    machine_has(&slotd, "0-3", 4000);
    proc::signal(slotd.daemon_pid(), proc::HUP);
    slotd.wait("all of the host", || reasons(&slotd).is_empty().then_some(()));
    slotd.open("go");
    slotd.wait_state(goes_on, "COMPLETED");
    slotd.ran(&["-pall", "-c4", "--mem=3500"], "true");
}
