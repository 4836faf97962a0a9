//! A daemon dies or its response is lost while a client is waiting. The request must be carried out
//! once, and the client must continue.

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use slotd_kit::wire::connect;
use slotd_kit::{Slotd, proc, until};
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// A proxy between the clients and the daemon, on the daemon's socket.
struct Proxy {
    listener: UnixListener,
    socket: PathBuf,
    aside: PathBuf,
}

impl Proxy {
    fn start(slotd: &Slotd) -> Proxy {
        let socket = slotd.root.join("run/slotd.sock");
        let aside = slotd.root.join("run/aside.sock");
        fs::rename(&socket, &aside).unwrap();
        let dir = File::open(slotd.root.join("run")).unwrap();
        let listener =
            UnixListener::bind(format!("/proc/self/fd/{}/slotd.sock", dir.as_raw_fd())).unwrap();
        Proxy { listener, socket, aside }
    }

    fn accept(&self) -> UnixStream {
        self.listener.accept().unwrap().0
    }

    /// Connects to the daemon.
    fn daemon(&self) -> UnixStream {
        let dir = File::open(self.aside.parent().unwrap()).unwrap();
        UnixStream::connect(format!("/proc/self/fd/{}/aside.sock", dir.as_raw_fd())).unwrap()
    }

    /// Removes the socket, so that nothing listens there.
    fn remove(self) {
        fs::remove_file(&self.socket).unwrap();
    }

    /// Moves the daemon's socket back. New clients then reach the daemon, so call this before
    /// cutting a connection.
    fn restore(self) {
        fs::rename(&self.aside, &self.socket).unwrap();
        drop(self.listener);
    }
}

/// A frame with its descriptors, as received.
struct Frame(Vec<u8>, Vec<OwnedFd>);

impl Frame {
    fn receive(from: &UnixStream) -> Frame {
        let (mut bytes, mut fds) = (Vec::new(), Vec::new());
        while Self::length(&bytes).is_none_or(|length| bytes.len() < length) {
            let want = Self::length(&bytes).unwrap_or(16) - bytes.len();
            let mut chunk = vec![0; want];
            let mut space = nix::cmsg_space!([RawFd; 16]);
            let mut parts = [IoSliceMut::new(&mut chunk)];
            let got = recvmsg::<()>(
                from.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::MSG_CMSG_CLOEXEC,
            )
            .unwrap();
            for message in got.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(list) = message {
                    // SAFETY: the kernel has just made these descriptors for us.
                    fds.extend(list.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                }
            }
            let count = got.bytes;
            assert!(count > 0, "the connection ended within a frame");
            bytes.extend_from_slice(&chunk[..count]);
        }
        Frame(bytes, fds)
    }

    fn length(bytes: &[u8]) -> Option<usize> {
        let part = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        (bytes.len() >= 16).then(|| 16 + part(8) + part(12))
    }

    fn send(&self, to: &UnixStream) {
        let fds: Vec<RawFd> = self.1.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let with = if fds.is_empty() { &[][..] } else { &rights[..] };
        let sent =
            sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(&self.0)], with, MsgFlags::empty(), None)
                .unwrap();
        (&*to).write_all(&self.0[sent..]).unwrap();
    }

    fn names(&self, request: &str) -> bool {
        self.0.windows(request.len()).any(|part| part == request.as_bytes())
    }
}

#[test]
fn a_submission_with_a_lost_response_is_queued_once() {
    let slotd = Slotd::start();
    let proxy = Proxy::start(&slotd);
    // The daemon takes a shortcut only from the process itself.
    let mut sbatch = slotd.command("slotd");
    sbatch.args(["sbatch", "-H", "--wrap", "true"]);
    let sbatch = slotd.spawn(sbatch);
    let client = proxy.accept();
    let request = Frame::receive(&client);
    let daemon = proxy.daemon();
    request.send(&daemon);
    assert!(Frame::receive(&daemon).names("Submitted"));
    proxy.restore();
    drop((client, daemon));
    let out = sbatch.end().ok();
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    assert!(out.stderr.contains("sbatch: the daemon stopped before it answered"), "{}", out.stderr);
    assert_eq!(slotd.all_records().len(), 1);
}

#[test]
fn completions_do_not_wait_for_a_daemon_that_hangs() {
    let slotd = Slotd::start();
    slotd.wrap(&["-H"], "true");
    let words = ["complete", "bash", "--", "", "scancel "];
    assert_eq!(slotd.cmd("slotd", &words).ok().stdout, "1\n");
    proc::signal(slotd.daemon_pid(), libc::SIGSTOP);
    let out = slotd.cmd("slotd", &words);
    proc::signal(slotd.daemon_pid(), libc::SIGCONT);
    assert_eq!(out.stdout, "");
}

#[test]
fn a_submission_that_loses_its_response_twice_is_queued_once() {
    let mut slotd = Slotd::start();
    let mut proxy = Some(Proxy::start(&slotd));
    let mut sbatch = slotd.command("slotd");
    sbatch.args(["sbatch", "-a", "0-3", "--wrap", "true"]);
    let sbatch = slotd.spawn(sbatch);
    for is_last in [false, true] {
        let current = proxy.take().expect("a proxy for this round");
        let client = current.accept();
        let request = Frame::receive(&client);
        let daemon = current.daemon();
        request.send(&daemon);
        assert!(Frame::receive(&daemon).names("Submitted"));
        // The client must not connect to the next daemon before the proxy is in place.
        sbatch.signal(libc::SIGSTOP);
        slotd.kill9();
        current.remove();
        slotd.start_daemon();
        if !is_last {
            proxy = Some(Proxy::start(&slotd));
        }
        drop(client);
        sbatch.signal(libc::SIGCONT);
    }
    slotd.wait_array(1, 4);
    let out = sbatch.end().ok();
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    assert_eq!(slotd.all_records().len(), 4);
}

#[test]
fn a_lost_submission_is_sent_again() {
    let slotd = Slotd::start();
    let proxy = Proxy::start(&slotd);
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "echo it ran; exit 5"]);
    let srun = slotd.spawn(srun);
    let client = proxy.accept();
    assert!(Frame::receive(&client).names("Submit"));
    proxy.restore();
    drop(client);
    let out = srun.end().fails(5);
    assert_eq!(out.stdout, "it ran\n");
    assert_eq!(slotd.all_records().len(), 1);
}

/// Starts `srun` in an allocation, and forwards its messages up to its request for a step.
fn step_up_to_launch(
    slotd: &Slotd,
    proxy: &Proxy,
    job: u32,
    script: &str,
) -> (slotd_kit::Running, UnixStream, Frame) {
    let mut srun = slotd.command("srun");
    srun.args(["--jobid", &job.to_string(), "sh", "-c", script]);
    let srun = slotd.spawn(srun);
    let client = proxy.accept();
    let daemon = proxy.daemon();
    Frame::receive(&client).send(&daemon);
    Frame::receive(&daemon).send(&client);
    let launch = Frame::receive(&client);
    assert!(launch.names("LaunchStep"));
    (srun, client, launch)
}

fn allocation(slotd: &Slotd) -> u32 {
    let out = slotd.cmd("salloc", &["--no-shell"]).ok();
    out.stdout.split_whitespace().last().and_then(|id| id.parse().ok()).expect("an allocation")
}

#[test]
fn a_lost_step_request_is_sent_again() {
    let slotd = Slotd::start();
    let job = allocation(&slotd);
    let proxy = Proxy::start(&slotd);
    let (srun, client, launch) = step_up_to_launch(&slotd, &proxy, job, "echo x >>log; exit 7");
    proxy.restore();
    drop((client, launch));
    srun.end().fails(7);
    assert_eq!(slotd.read("log"), "x\n");
    assert_eq!(slotd.job(job).steps().len(), 1);
}

#[test]
fn a_client_finds_a_step_whose_start_it_missed() {
    let slotd = Slotd::start();
    let job = allocation(&slotd);
    let proxy = Proxy::start(&slotd);
    let script = format!("echo x >>log; {}; exit 7", slotd.gate("end"));
    let (srun, client, launch) = step_up_to_launch(&slotd, &proxy, job, &script);
    let daemon = proxy.daemon();
    launch.send(&daemon);
    drop(launch);
    slotd.wait_text("log", "x");
    proxy.restore();
    drop((client, daemon));
    slotd.open("end");
    srun.end().fails(7);
    assert_eq!(slotd.read("log"), "x\n");
    assert_eq!(slotd.job(job).steps().len(), 1);
}

#[test]
fn a_client_gets_the_exit_code_of_a_step_whose_end_it_missed() {
    let slotd = Slotd::start();
    let job = allocation(&slotd);
    let proxy = Proxy::start(&slotd);
    let (srun, client, launch) = step_up_to_launch(&slotd, &proxy, job, "echo x >>log; exit 7");
    let daemon = proxy.daemon();
    launch.send(&daemon);
    drop(launch);
    while !Frame::receive(&daemon).names("StepEnded") {}
    proxy.restore();
    drop((client, daemon));
    srun.end().fails(7);
    assert_eq!(slotd.read("log"), "x\n");
}

#[test]
fn a_pending_step_stays_pending_after_a_restart() {
    let mut slotd = Slotd::start();
    let job = allocation(&slotd).to_string();
    let first = format!("echo first >>log; {}", slotd.gate("end"));
    let step = |script: &str| {
        let mut srun = slotd.command("srun");
        srun.args(["--jobid", &job, "sh", "-c", script]);
        slotd.spawn(srun)
    };
    let holder = step(&first);
    slotd.wait_text("log", "first");
    let mut waiter = step("echo second >>log; exit 3");
    waiter.wait_stderr("step creation temporarily disabled");
    slotd.crash();
    slotd.open("end");
    holder.end().ok();
    waiter.end().fails(3);
    assert_eq!(slotd.read("log"), "first\nsecond\n");
}

#[test]
fn a_step_in_a_job_waits_for_the_daemon_to_return() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&["-o", "out"], "go", "srun sh -c 'echo in the step'; echo $?");
    slotd.kill9();
    slotd.open("go");
    slotd.wait_text("out", "the daemon is down, waiting for it");
    slotd.start_daemon();
    assert_eq!(slotd.wait_end(job).state(), "COMPLETED");
    let out = slotd.read("out");
    assert!(out.ends_with("in the step\n0\n"), "{out}");
}

#[test]
fn a_recorded_step_that_was_not_launched_is_launched_once() {
    let mut slotd = Slotd::start();
    let job = allocation(&slotd);
    let is_launcher = |pid: &i32| {
        fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"slotd-launcher\n")
    };
    let launcher = until(|| slotd.processes().into_iter().find(is_launcher)).expect("the launcher");
    proc::signal(launcher, libc::SIGSTOP);
    let mut srun = slotd.command("srun");
    srun.args(["--jobid", &job.to_string(), "sh", "-c", "echo x >>log; exit 9"]);
    let srun = slotd.spawn(srun);
    slotd.wait("the step's record", || (slotd.job(job).steps().len() == 1).then_some(()));
    slotd.kill9();
    proc::signal(launcher, libc::SIGKILL);
    slotd.start_daemon();
    srun.end().fails(9);
    assert_eq!(slotd.read("log"), "x\n");
    assert_eq!(slotd.job(job).steps().len(), 1, "a step that never ran leaves no record");
}

/// Waits until the first job's client has been notified that its step runs: then it accepts
/// attachments.
fn wait_until_attachable(slotd: &Slotd) {
    slotd.wait("the client's own socket", || {
        slotd.job_dir(1).join("0.attach").exists().then_some(())
    });
}

#[test]
fn an_interrupt_is_delivered_without_a_daemon() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args([
        "-l",
        "sh",
        "-c",
        "trap 'echo interrupted; exit 4' INT; echo ready >ready; while :; do sleep 0.05; done",
    ]);
    let srun = slotd.spawn(srun);
    slotd.wait_text("ready", "ready");
    wait_until_attachable(&slotd);
    slotd.kill9();
    srun.signal(libc::SIGINT);
    slotd.start_daemon();
    let out = srun.end().fails(4);
    assert_eq!(out.stdout, "0: interrupted\n");
}

#[test]
fn two_interrupts_end_srun_without_a_daemon() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["-l", "sh", "-c", "trap '' INT; echo $$ >pid; exec sleep 1000"]);
    let mut srun = slotd.spawn(srun);
    let pid: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    wait_until_attachable(&slotd);
    slotd.kill9();
    // The kernel merges two simultaneous signals into one.
    slotd.wait("the end of srun", || {
        srun.signal(libc::SIGINT);
        (!srun.is_running()).then_some(())
    });
    let out = srun.end().fails(137);
    assert!(out.stderr.contains("forcing job termination"), "{}", out.stderr);
    slotd.wait("the end of the command", || (!proc::is_alive(pid)).then_some(()));
    slotd.start_daemon();
    slotd.wait_end(1);
    // New clients are still served.
    drop(connect(&slotd.root).unwrap());
}

#[test]
fn srun_ends_with_its_command_without_a_daemon() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args([
        "-l",
        "sh",
        "-c",
        &format!("echo begun; echo >ready; {}; exit 7", slotd.gate("end")),
    ]);
    let srun = slotd.spawn(srun);
    slotd.wait_text("ready", "\n");
    wait_until_attachable(&slotd);
    slotd.kill9();
    slotd.open("end");
    let out = srun.end().fails(7);
    assert_eq!(out.stdout, "0: begun\n");
    slotd.start_daemon();
    let job = slotd.wait_end(1);
    assert_eq!(
        (job.state().as_str(), job.exit().as_str()),
        ("FAILED", "7:0"),
        "the next daemon records how it ended"
    );
}

#[test]
fn signals_end_an_allocation_without_a_daemon() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129), (libc::SIGINT, 130)] {
        let mut slotd = Slotd::start();
        let mut salloc = slotd.command("salloc");
        salloc.args(["sh", "-c", "echo >ready; exec sleep 1000"]);
        let salloc = slotd.spawn(salloc);
        slotd.wait_text("ready", "\n");
        slotd.kill9();
        salloc.signal(signal);
        salloc.end().fails(code);
        slotd.start_daemon();
        assert_eq!(slotd.wait_end(1).state(), "FAILED");
    }
}

#[test]
fn a_signal_ends_an_allocation_of_a_stopped_daemon() {
    let slotd = Slotd::start();
    let mut salloc = slotd.command("salloc");
    salloc.args(["sh", "-c", &format!("echo $$ >ready; {}", slotd.gate("end"))]);
    let mut salloc = slotd.spawn(salloc);
    let command: i32 = slotd.wait_text("ready", "\n").trim().parse().unwrap();
    let daemon = slotd.daemon_pid();
    proc::signal(daemon, libc::SIGSTOP);
    slotd.open("end");
    slotd.wait("the end of the command", || (!proc::is_alive(command)).then_some(()));
    slotd.wait("the end of salloc", || {
        salloc.signal(libc::SIGTERM);
        (!salloc.is_running()).then_some(())
    });
    proc::signal(daemon, libc::SIGCONT);
    slotd.wait_end(1);
}

/// Starts a client with an allocation that waits for another job's CPUs.
fn waiting(slotd: &Slotd, line: &str) -> slotd_kit::Running {
    let words: Vec<&str> = line.split(' ').collect();
    let mut client = slotd.command(words[0]);
    client.args(&words[1..]);
    let mut client = slotd.spawn(client);
    client.wait_stderr("queued and waiting for resources");
    client
}

#[test]
fn the_next_daemon_cancels_jobs_of_interrupted_clients() {
    for line in ["srun -c 4 true", "salloc -c 4 true", "salloc -c 4 --no-shell"] {
        let mut slotd = Slotd::start();
        slotd.endless(&["-c", "4"]);
        let client = waiting(&slotd, line);
        slotd.kill9();
        client.signal(libc::SIGTERM);
        let out = client.end().fails(1);
        let wanted = "the daemon is down: job 2 stays in the queue until the daemon is back, and is then cancelled\n";
        assert!(
            out.stderr.contains(wanted) && !out.stderr.contains("revoked"),
            "{line}: {}",
            out.stderr
        );
        slotd.start_daemon();
        slotd.wait_state(2, "CANCELLED");
    }
}

#[test]
fn an_allocation_without_a_shell_needs_its_client_until_granted() {
    let mut slotd = Slotd::start();
    let first = slotd.endless(&["-c", "4"]);
    let killed = waiting(&slotd, "salloc -c 4 --no-shell");
    killed.signal(libc::SIGKILL);
    killed.end().fails(137);
    slotd.wait_state(2, "CANCELLED");
    let client = waiting(&slotd, "salloc -c 4 --no-shell");
    slotd.crash();
    slotd.cancel(first);
    client.end().ok();
    // The allocation stays without a client, also under the next daemon.
    slotd.line("srun --jobid 3 true").ok();
    slotd.crash();
    slotd.line("srun --jobid 3 true").ok();
    assert_eq!(slotd.state(3), "RUNNING");
}

#[test]
fn a_hanging_daemon_is_reported_by_all_clients() {
    let slotd = Slotd::start();
    proc::signal(slotd.daemon_pid(), proc::STOP);
    // Each of them waits for ten seconds, so run them in parallel.
    let start = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = slotd.command(words[0]);
        command.args(&words[1..]);
        slotd.spawn(command)
    };
    let mut waits = start("squeue -h");
    let mut submits = start("sbatch -H --wrap true");
    let [status, doctor, ping] =
        ["slotd daemon status", "slotd doctor", "scontrol ping"].map(start);
    let hangs = format!("(process {}) does not answer", slotd.daemon_pid());
    let status = status.end().fails(4);
    assert!(status.text().contains(&hangs), "{}", status.text());
    let doctor = doctor.end().fails(1).stdout;
    assert!(
        doctor.contains(&hangs) && doctor.contains("fix: if this persists: kill -9"),
        "{doctor}"
    );
    let ping = ping.end().fails(1);
    assert!(ping.stdout.contains(" is DOWN"), "{}", ping.stdout);
    waits.wait_stderr(&format!(
        "slotd: warning: the daemon at {} has not answered for 10 s; waiting for it",
        slotd.root.join("run/slotd.sock").display()
    ));
    submits.wait_stderr("has not answered for 10 s; waiting for it");
    proc::signal(slotd.daemon_pid(), proc::CONT);
    waits.end().ok();
    let submitted = submits.end().ok();
    assert_eq!(submitted.stdout, "Submitted batch job 1\n");
    assert_eq!(submitted.stderr.matches("has not answered").count(), 1, "{}", submitted.stderr);
    assert_eq!(slotd.all_records().len(), 1);
}

#[test]
fn a_restart_with_invalid_settings_does_not_stop_the_daemon() {
    let slotd = Slotd::start();
    let daemon = slotd.daemon_pid();
    let config = slotd.base.join("home/.config/slotd");
    std::fs::create_dir_all(&config).unwrap();
    for (name, text, fault) in [
        ("slotd.toml", "cpus = 1\npartitions = 2\n", "slotd.toml:2: "),
        ("slotd.toml", "cpus = -9999\n", "slotd.toml:1: cpus = -9999: "),
        ("slotd.env", "SLOTD_KILL_WAIT=soon\n", "SLOTD_KILL_WAIT"),
    ] {
        std::fs::write(config.join(name), text).unwrap();
        let refused = slotd.line("slotd daemon restart").fails(1).stderr;
        assert!(refused.contains(fault), "{refused}");
        assert!(refused.contains("the running daemon was not stopped"), "{refused}");
        assert!(proc::is_alive(daemon));
        std::fs::remove_file(config.join(name)).unwrap();
    }
    slotd.line("squeue").ok();
}
