//! The faults: processes die and stall, the disk fills up, the clock is set.

use crate::world::{World, now};
use fastrand::Rng;
use slotd_kit::proc;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Pauses between two faults of a kind, in milliseconds.
const PROCESS_PAUSE: Range<u64> = 30..500;
const WORLD_PAUSE: Range<u64> = 200..2500;

/// Durations of a stall and of a full disk, in milliseconds.
const STALL: Range<u64> = 20..800;
const FULL: Range<u64> = 50..1500;

/// The largest step of the wall clock in either direction, in seconds.
const CLOCK_STEP: i64 = 7200;

/// A word in the command line of every step in a job.
const STEP: &str = "role=step";

/// The interval at which the harness checks the daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn pause(rng: &mut Rng, ms: Range<u64>) {
    thread::sleep(Duration::from_millis(rng.u64(ms)));
}

/// Restarts the daemon if it exits by itself, as a service manager does. It may only exit by itself
/// if it cannot write to the disk.
pub fn keep_daemon(world: &World, is_done: impl Fn() -> bool) {
    while !is_done() {
        {
            let mut daemon = world.daemon.lock().unwrap();
            let ended = daemon
                .as_mut()
                .and_then(|child| child.try_wait().expect("the process is a child of this one"));
            if let Some(status) = ended {
                world.counts.add("exits of the daemon by itself");
                if world.full.lock().unwrap().is_none_or(|full| now() > full + 1000) {
                    world.report(format!("the daemon exited with {status} by itself"));
                }
                thread::sleep(POLL_INTERVAL * 5);
                world.start_daemon(&mut daemon);
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Kills and stops processes.
pub fn kill_and_stop(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_over() {
        pause(&mut rng, PROCESS_PAUSE);
        match rng.u32(..100) {
            0..28 => kill_daemon(world, &mut rng),
            28..38 => kill_launcher(world, &mut rng),
            38..54 => kill_watcher(world, &mut rng),
            54..64 => kill_client_of_step(world, &mut rng),
            64..72 => {
                if world.kill_client(|count| rng.usize(..count)) {
                    world.counts.add("kills of clients");
                }
            }
            72..86 => stop_daemon(world, &mut rng),
            _ => stop_watcher(world, &mut rng),
        }
    }
}

/// Kills the daemon with SIGKILL, and starts a new one at once or later.
fn kill_daemon(world: &World, rng: &mut Rng) {
    let mut daemon = world.daemon.lock().unwrap();
    let Some(mut child) = daemon.take() else { return };
    child.kill().expect("the process is a child of this one");
    child.wait().expect("the process is a child of this one");
    world.counts.add("kills of the daemon");
    if rng.bool() {
        world.hinder(|| pause(rng, STALL));
    }
    world.start_daemon(&mut daemon);
}

fn kill_launcher(world: &World, rng: &mut Rng) {
    let launchers = named(world, "slotd-launcher");
    if let Some(pid) = rng.choice(launchers) {
        proc::signal(pid, proc::KILL);
        world.counts.add("kills of the launcher");
    }
}

/// Returns the processes of this run with this name.
fn named(world: &World, name: &str) -> Vec<i32> {
    let all = proc::of_directory(&world.slotd.base);
    all.into_iter().filter(|pid| proc::name(*pid) == name).collect()
}

/// Returns the job of a watcher, from its open job directory.
fn job_of(pid: i32) -> Option<u32> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().find_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let (_, job) = target.to_str()?.split_once("/lib/jobs/")?;
        job.split('/').next()?.split(' ').next()?.parse().ok()
    })
}

/// Kills a watcher and records its job. A watcher without a job yet can be killed without
/// consequences.
fn kill_watcher(world: &World, rng: &mut Rng) {
    let mut watchers = named(world, "slotd-step");
    if rng.bool() && watchers.iter().any(|pid| watches_step(*pid)) {
        // They are rare compared with the watchers of jobs.
        watchers.retain(|pid| watches_step(*pid));
    }
    let Some(pid) = rng.choice(watchers) else { return };
    proc::signal(pid, proc::STOP);
    // Wait until it has stopped, so that its current system call is complete.
    slotd_kit::until_within(Duration::from_millis(200), || {
        (proc::state(pid) == Some('T')).then_some(())
    });
    match job_of(pid) {
        Some(job) if watches_step(pid) => {
            world.steps_killed.lock().unwrap().insert(job);
            world.counts.add("kills of watchers of steps");
        }
        Some(job) => {
            world.watchers_killed.lock().unwrap().insert(job);
            world.counts.add("kills of watchers");
        }
        None => world.counts.add("kills of watchers without a job"),
    }
    proc::signal(pid, proc::KILL);
}

/// Whether the process watches a step started by a job's script.
fn watches_step(watcher: i32) -> bool {
    proc::children(watcher).into_iter().any(|task| proc::cmdline(task).contains(STEP))
}

/// Kills an srun that was started by a job's script.
fn kill_client_of_step(world: &World, rng: &mut Rng) {
    let clients: Vec<i32> =
        named(world, "srun").into_iter().filter(|pid| proc::cmdline(*pid).contains(STEP)).collect();
    let Some(pid) = rng.choice(clients) else { return };
    proc::signal(pid, proc::STOP);
    let job = proc::variable(pid, "SLURM_JOB_ID").and_then(|job| job.parse().ok());
    if let Some(job) = job {
        world.steps_killed.lock().unwrap().insert(job);
        world.counts.add("kills of clients of steps");
        proc::signal(pid, proc::KILL);
    } else {
        proc::signal(pid, proc::CONT);
    }
}

fn stop_daemon(world: &World, rng: &mut Rng) {
    let daemon = world.daemon.lock().unwrap();
    let Some(pid) = daemon.as_ref().map(|child| child.id() as i32) else { return };
    stall(world, pid, rng);
    world.counts.add("stops of the daemon");
}

fn stop_watcher(world: &World, rng: &mut Rng) {
    let watchers = named(world, "slotd-step");
    let Some(pid) = rng.choice(watchers) else { return };
    stall(world, pid, rng);
    world.counts.add("stops of watchers");
}

fn stall(world: &World, pid: i32, rng: &mut Rng) {
    world.hinder(|| {
        proc::signal(pid, proc::STOP);
        pause(rng, STALL);
        proc::signal(pid, proc::CONT);
    });
}

/// Sets the clock and fills the disk.
pub fn change_world(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_over() {
        pause(&mut rng, WORLD_PAUSE);
        match rng.u32(..10) {
            0..3 => {
                world.set_clock(rng.i64(-CLOCK_STEP..CLOCK_STEP));
                world.counts.add("clock steps");
            }
            3 => world.set_clock(0),
            inodes if world.has_disk => fill(world, inodes >= 8, &mut rng),
            _ => {}
        }
    }
    world.set_clock(0);
}

fn fill(world: &World, inodes: bool, rng: &mut Rng) {
    *world.full.lock().unwrap() = Some(u64::MAX - 1000);
    world.hinder(|| {
        if world.fill(inodes) {
            world.counts.add(if inodes {
                "phases without free inodes"
            } else {
                "phases of a full disk"
            });
            pause(rng, FULL);
        }
        world.restore_size();
    });
    *world.full.lock().unwrap() = Some(now());
}
