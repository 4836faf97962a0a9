//! A daemon that dies, or whose answer gets lost, while a client is in the middle of something:
//! what was asked for happens once, and the client goes on.

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use slotd_kit::wire::connect;
use slotd_kit::{Slotd, proc, until};
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// Stands between the clients and the daemon, on the daemon's socket.
struct Between {
    listener: UnixListener,
    socket: PathBuf,
    aside: PathBuf,
}

impl Between {
    fn take_over(slotd: &Slotd) -> Between {
        let socket = slotd.root.join("run/slotd.sock");
        let aside = slotd.root.join("run/aside.sock");
        fs::rename(&socket, &aside).unwrap();
        let dir = File::open(slotd.root.join("run")).unwrap();
        let listener =
            UnixListener::bind(format!("/proc/self/fd/{}/slotd.sock", dir.as_raw_fd())).unwrap();
        Between { listener, socket, aside }
    }

    fn accept(&self) -> UnixStream {
        self.listener.accept().unwrap().0
    }

    /// The daemon itself.
    fn daemon(&self) -> UnixStream {
        let dir = File::open(self.aside.parent().unwrap()).unwrap();
        UnixStream::connect(format!("/proc/self/fd/{}/aside.sock", dir.as_raw_fd())).unwrap()
    }

    /// Nobody listens any more.
    fn vanish(self) {
        fs::remove_file(&self.socket).unwrap();
    }

    /// The daemon is back at its place: whoever asks next asks it, which is why this comes before a
    /// connection is cut.
    fn give_back(self) {
        fs::rename(&self.aside, &self.socket).unwrap();
        drop(self.listener);
    }
}

/// One frame with its descriptors, as it came.
struct Whole(Vec<u8>, Vec<OwnedFd>);

impl Whole {
    fn receive(from: &UnixStream) -> Whole {
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
        Whole(bytes, fds)
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
fn a_submission_whose_answer_is_lost_is_in_the_queue_once() {
    let slotd = Slotd::start();
    let between = Between::take_over(&slotd);
    let mut sbatch = slotd.command("sbatch");
    sbatch.args(["-H", "--wrap", "true"]);
    let sbatch = slotd.spawn(sbatch);
    let client = between.accept();
    let request = Whole::receive(&client);
    let daemon = between.daemon();
    request.send(&daemon);
    assert!(Whole::receive(&daemon).names("Submitted"));
    between.give_back();
    drop((client, daemon));
    let out = sbatch.end().ok();
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    assert!(
        out.stderr.contains("sbatch: the daemon went away before it answered"),
        "{}",
        out.stderr
    );
    assert_eq!(slotd.all_records().len(), 1);
}

#[test]
fn a_submission_whose_answer_is_lost_with_two_daemons_is_in_the_queue_once() {
    let mut slotd = Slotd::start();
    let mut between = Some(Between::take_over(&slotd));
    let mut sbatch = slotd.command("sbatch");
    sbatch.args(["-a", "0-3", "--wrap", "true"]);
    let sbatch = slotd.spawn(sbatch);
    for is_last in [false, true] {
        let here = between.take().expect("it was set for this round");
        let client = here.accept();
        let request = Whole::receive(&client);
        let daemon = here.daemon();
        request.send(&daemon);
        assert!(Whole::receive(&daemon).names("Submitted"));
        // It does not see the next daemon before this test stands in front of it.
        sbatch.signal(libc::SIGSTOP);
        slotd.kill9();
        here.vanish();
        slotd.start_daemon();
        if !is_last {
            between = Some(Between::take_over(&slotd));
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
fn a_submission_that_is_lost_on_its_way_is_made_again() {
    let slotd = Slotd::start();
    let between = Between::take_over(&slotd);
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "echo it ran; exit 5"]);
    let srun = slotd.spawn(srun);
    let client = between.accept();
    assert!(Whole::receive(&client).names("Submit"));
    between.give_back();
    drop(client);
    let out = srun.end().fails(5);
    assert_eq!(out.stdout, "it ran\n");
    assert_eq!(slotd.all_records().len(), 1);
}

/// An allocation that stays, and `srun` in it up to its request for a step.
fn step_up_to_its_launch(
    slotd: &Slotd,
    between: &Between,
    job: u32,
    script: &str,
) -> (slotd_kit::Running, UnixStream, Whole) {
    let mut srun = slotd.command("srun");
    srun.args(["--jobid", &job.to_string(), "sh", "-c", script]);
    let srun = slotd.spawn(srun);
    let client = between.accept();
    let daemon = between.daemon();
    Whole::receive(&client).send(&daemon);
    Whole::receive(&daemon).send(&client);
    let launch = Whole::receive(&client);
    assert!(launch.names("LaunchStep"));
    (srun, client, launch)
}

fn allocation(slotd: &Slotd) -> u32 {
    let out = slotd.cmd("salloc", &["--no-shell"]).ok();
    out.stdout.split_whitespace().last().and_then(|id| id.parse().ok()).expect("an allocation")
}

#[test]
fn a_step_that_is_lost_on_its_way_is_asked_for_again() {
    let slotd = Slotd::start();
    let job = allocation(&slotd);
    let between = Between::take_over(&slotd);
    let (srun, client, launch) =
        step_up_to_its_launch(&slotd, &between, job, "echo x >>log; exit 7");
    between.give_back();
    drop((client, launch));
    srun.end().fails(7);
    assert_eq!(slotd.read("log"), "x\n");
    assert_eq!(slotd.job(job).steps().len(), 1);
}

#[test]
fn a_step_that_runs_unknown_to_its_client_is_found_again() {
    let slotd = Slotd::start();
    let job = allocation(&slotd);
    let between = Between::take_over(&slotd);
    let script = format!("echo x >>log; {}; exit 7", slotd.gate("end"));
    let (srun, client, launch) = step_up_to_its_launch(&slotd, &between, job, &script);
    let daemon = between.daemon();
    launch.send(&daemon);
    drop(launch);
    slotd.wait_text("log", "x");
    between.give_back();
    drop((client, daemon));
    slotd.open("end");
    srun.end().fails(7);
    assert_eq!(slotd.read("log"), "x\n");
    assert_eq!(slotd.job(job).steps().len(), 1);
}

#[test]
fn a_step_that_ended_unknown_to_its_client_gives_its_exit_code() {
    let slotd = Slotd::start();
    let job = allocation(&slotd);
    let between = Between::take_over(&slotd);
    let (srun, client, launch) =
        step_up_to_its_launch(&slotd, &between, job, "echo x >>log; exit 7");
    let daemon = between.daemon();
    launch.send(&daemon);
    drop(launch);
    while !Whole::receive(&daemon).names("StepEnded") {}
    between.give_back();
    drop((client, daemon));
    srun.end().fails(7);
    assert_eq!(slotd.read("log"), "x\n");
}

#[test]
fn a_step_that_waits_goes_on_waiting_at_the_next_daemon() {
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
fn a_step_in_a_job_waits_for_a_daemon_that_is_away() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&["-o", "out"], "go", "srun sh -c 'echo in the step'; echo $?");
    slotd.kill9();
    slotd.open("go");
    slotd.wait_text("out", "the daemon is away, waiting for it");
    slotd.start_daemon();
    assert_eq!(slotd.wait_end(job).state(), "COMPLETED");
    let out = slotd.read("out");
    assert!(out.ends_with("in the step\n0\n"), "{out}");
}

#[test]
fn a_step_that_was_decided_on_and_never_launched_is_launched_once() {
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
    assert_eq!(slotd.job(job).steps().len(), 1, "what never ran leaves no record");
}

/// The first job's client has heard that its step runs: it lets others join.
fn wait_until_known(slotd: &Slotd) {
    slotd.wait("the client's own socket", || {
        slotd.job_dir(1).join("0.attach").exists().then_some(())
    });
}

#[test]
fn an_interrupt_that_comes_while_the_daemon_is_away_is_not_lost() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args([
        "-l",
        "sh",
        "-c",
        "trap 'echo heard; exit 4' INT; echo ready >ready; while :; do sleep 0.05; done",
    ]);
    let srun = slotd.spawn(srun);
    slotd.wait_text("ready", "ready");
    wait_until_known(&slotd);
    slotd.kill9();
    srun.signal(libc::SIGINT);
    slotd.start_daemon();
    let out = srun.end().fails(4);
    assert_eq!(out.stdout, "0: heard\n");
}

#[test]
fn two_interrupts_end_a_run_that_has_lost_its_daemon() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["-l", "sh", "-c", "trap '' INT; echo $$ >pid; exec sleep 1000"]);
    let mut srun = slotd.spawn(srun);
    let pid: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    wait_until_known(&slotd);
    slotd.kill9();
    // Two that come at once are one to the kernel.
    slotd.wait("the end of srun", || {
        srun.signal(libc::SIGINT);
        (!srun.is_running()).then_some(())
    });
    let out = srun.end().fails(137);
    assert!(out.stderr.contains("forcing job termination"), "{}", out.stderr);
    slotd.wait("the end of the command", || (!proc::is_alive(pid)).then_some(()));
    slotd.start_daemon();
    slotd.wait_end(1);
    // The connection of a fresh client is served as ever.
    drop(connect(&slotd.root).unwrap());
}

#[test]
fn a_run_ends_with_its_command_though_no_daemon_comes_back() {
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
    wait_until_known(&slotd);
    slotd.kill9();
    slotd.open("end");
    let out = srun.end().fails(7);
    assert_eq!(out.stdout, "0: begun\n");
    slotd.start_daemon();
    let job = slotd.wait_end(1);
    assert_eq!(
        (job.state().as_str(), job.exit().as_str()),
        ("FAILED", "7:0"),
        "the next daemon knows how it ended"
    );
}

#[test]
fn signals_end_an_allocation_that_has_lost_its_daemon() {
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
fn a_signal_ends_an_allocation_that_a_daemon_which_stands_still_does_not_take_back() {
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

/// A client of an allocation that waits for another job's CPUs.
fn waiting(slotd: &Slotd, line: &str) -> slotd_kit::Running {
    let words: Vec<&str> = line.split(' ').collect();
    let mut client = slotd.command(words[0]);
    client.args(&words[1..]);
    let mut client = slotd.spawn(client);
    client.wait_stderr("queued and waiting for resources");
    client
}

#[test]
fn a_client_that_gives_up_without_a_daemon_is_withdrawn_by_the_next() {
    for line in ["srun -c 4 true", "salloc -c 4 true", "salloc -c 4 --no-shell"] {
        let mut slotd = Slotd::start();
        slotd.endless(&["-c", "4"]);
        let client = waiting(&slotd, line);
        slotd.kill9();
        client.signal(libc::SIGTERM);
        let out = client.end().fails(1);
        let said = "the daemon is away: job 2 stays in the queue until it is back, and is cancelled then\n";
        assert!(
            out.stderr.contains(said) && !out.stderr.contains("revoked"),
            "{line}: {}",
            out.stderr
        );
        slotd.start_daemon();
        slotd.wait_state(2, "CANCELLED");
    }
}

#[test]
fn an_allocation_without_a_shell_needs_its_client_until_it_is_granted() {
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
    // It is left to itself, by this daemon and by the next.
    slotd.line("srun --jobid 3 true").ok();
    slotd.crash();
    slotd.line("srun --jobid 3 true").ok();
    assert_eq!(slotd.state(3), "RUNNING");
}

#[test]
fn a_daemon_that_hangs_is_reported_by_doctor_and_status_and_to_whoever_waits() {
    let slotd = Slotd::start();
    proc::signal(slotd.daemon_pid(), proc::STOP);
    // Each of them waits for ten seconds, all of them together.
    let start = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = slotd.command(words[0]);
        command.args(&words[1..]);
        slotd.spawn(command)
    };
    let mut waits = start("squeue -h");
    let [status, doctor, ping] =
        ["slotd daemon status", "slotd doctor", "scontrol ping"].map(start);
    let hangs = format!("(process {}) does not answer", slotd.daemon_pid());
    let status = status.end().fails(4);
    assert!(status.text().contains(&hangs), "{}", status.text());
    let doctor = doctor.end().fails(1).stdout;
    assert!(
        doctor.contains(&hangs) && doctor.contains("mend: if it stays so: kill -9"),
        "{doctor}"
    );
    let ping = ping.end().fails(1);
    assert!(ping.stdout.contains(" is DOWN"), "{}", ping.stdout);
    waits.wait_stderr(&format!(
        "slotd: warning: the daemon at {} has not answered for 10 s; waiting for it",
        slotd.root.join("run/slotd.sock").display()
    ));
    proc::signal(slotd.daemon_pid(), proc::CONT);
    waits.end().ok();
}
