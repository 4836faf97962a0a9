//! Jobs that are suspended for others: nothing that goes through slotd wakes or shrinks them.

use super::*;
use slotd_kit::Running;

/// Runs a program with srun on both CPUs. Returns srun, the job and the process.
fn stepped(slotd: &Slotd, script: &str) -> (Running, u32, i32) {
    let mut srun = slotd.command("srun");
    let script = format!("echo $SLURM_JOB_ID $$ >begun; {script}");
    srun.args(["-c", "2", "sh", "-c", &script]);
    let srun = slotd.spawn(srun);
    let begun = slotd.wait_text("begun", "\n");
    let (job, pid) = begun.trim().split_once(' ').expect("two numbers");
    (srun, job.parse().expect("a job"), pid.parse().expect("a process"))
}

fn wait_pending(slotd: &Slotd, pid: i32, signal: i32) {
    let is_it = || proc::is_pending(pid, signal).then_some(());
    slotd.wait(&format!("signal {signal} to be pending for process {pid}"), is_it);
}

#[test]
fn no_signal_through_slotd_wakes_a_suspended_job() {
    let slotd = with(LENDING);
    let (srun, victim, pid) = stepped(&slotd, "exec sleep 1000");
    let urgent = high(&slotd);
    slotd.wait_state(victim, "SUSPENDED");
    wait_process(&slotd, pid, 'T');
    for who in ["", "--full ", "--batch "] {
        slotd.line(&format!("scancel {who}-s CONT {victim}")).ok();
    }
    slotd.line(&format!("scancel -s CONT {victim}.0")).ok();
    // The signals arrive in their order.
    slotd.line(&format!("scancel -s USR1 {victim}.0")).ok();
    wait_pending(&slotd, pid, libc::SIGUSR1);
    assert_eq!(proc::state(pid), Some('T'));
    // srun forwards what it receives.
    srun.signal(libc::SIGCONT);
    let is_read = || (!proc::is_pending(srun.pid(), libc::SIGCONT)).then_some(());
    slotd.wait("srun to read the signal", is_read);
    srun.signal(libc::SIGUSR2);
    wait_pending(&slotd, pid, libc::SIGUSR2);
    assert_eq!((slotd.state(victim), proc::state(pid)), ("SUSPENDED".to_owned(), Some('T')));
    slotd.cancel(urgent);
    assert_eq!(srun.end().code, 128 + libc::SIGUSR1);
}

#[test]
fn a_job_suspended_by_its_user_is_not_woken_by_a_signal() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "echo $$ >begun; exec sleep 1000");
    let pid: i32 = slotd.wait_text("begun", "\n").trim().parse().expect("a process");
    slotd.line(&format!("scontrol suspend {job}")).ok();
    wait_process(&slotd, pid, 'T');
    for signal in ["CONT", "USR1"] {
        slotd.line(&format!("scancel -s {signal} {job}")).ok();
    }
    wait_pending(&slotd, pid, libc::SIGUSR1);
    assert_eq!((slotd.state(job), proc::state(pid)), ("SUSPENDED".to_owned(), Some('T')));
}

#[test]
fn a_cancelled_step_of_a_suspended_job_is_killed_at_once() {
    // Nobody waits for this to pass.
    let slotd =
        Slotd::setup().set("SLOTD_CPUS", 2).set("SLOTD_KILL_WAIT", 3600).toml(LENDING).start();
    let script = "trap 'echo TERM >caught' TERM; echo >ready; while :; do sleep 0.1; done";
    let (srun, victim, pid) = stepped(&slotd, script);
    slotd.wait_text("ready", "\n");
    let urgent = high(&slotd);
    slotd.wait_state(victim, "SUSPENDED");
    slotd.line(&format!("scancel {victim}.0")).ok();
    slotd.wait("the process to die", || (!proc::is_alive(pid)).then_some(()));
    slotd.wait_end(victim);
    assert!(!slotd.exists("caught"));
    assert_ne!(srun.end().code, 0);
    assert_eq!(slotd.sacct(victim, "ExitCode"), "0:9");
    assert_eq!(slotd.state(urgent), "RUNNING");
}

#[test]
fn the_size_of_a_suspended_job_is_fixed() {
    let slotd = with(LENDING);
    let (victim, _) = sleeper(&slotd, &[]);
    let urgent = slotd.endless(&["-p", "high"]);
    slotd.wait_state(victim, "SUSPENDED");
    let why = slotd.line(&format!("slotd why {victim}")).ok().stdout;
    assert!(why.contains("waits for 2 CPUs, of which 1 CPU is free"), "{why}");
    assert!(!why.contains("scontrol"), "{why}");
    let refused =
        format!("Job is current suspended, requested operation disabled for job {victim}\n");
    slotd.expect(&format!("scontrol update JobId={victim} NumCPUs=1"), 1, "", &refused);
    slotd.cancel(urgent);
    slotd.wait_state(victim, "RUNNING");
    assert_eq!(slotd.show(victim, "NumCPUs"), "2");
}

#[test]
fn a_held_job_waits_once_it_is_requeued() {
    let slotd = with(LENDING);
    let (victim, pid) = sleeper(&slotd, &[]);
    let urgent = high(&slotd);
    slotd.wait_state(victim, "SUSPENDED");
    wait_process(&slotd, pid, 'T');
    slotd.line(&format!("scontrol hold {victim}")).ok();
    assert_eq!((slotd.state(victim), proc::state(pid)), ("SUSPENDED".to_owned(), Some('T')));
    slotd.cancel(urgent);
    slotd.wait_state(victim, "RUNNING");
    wait_process(&slotd, pid, 'S');
    slotd.line(&format!("scontrol requeue {victim}")).ok();
    slotd.wait_reason(victim, "JobHeldUser");
    slotd.line(&format!("scontrol release {victim}")).ok();
    slotd.wait_state(victim, "RUNNING");
}
