//! What goes wrong on a machine: processes die and stall, the disk is full, the clock is set.

use crate::world::{World, now};
use fastrand::Rng;
use slotd_kit::proc;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// Between two faults of a kind, milliseconds.
const PROCESS_PAUSE: Range<u64> = 30..500;
const WORLD_PAUSE: Range<u64> = 200..2500;

/// How long something stalls, and how long a disk is full, milliseconds.
const STALL: Range<u64> = 20..800;
const FULL: Range<u64> = 50..1500;

/// The most that the wall clock is set forth or back, seconds.
const CLOCK_STEP: i64 = 7200;

/// A word of the command of every step in a job.
const STEP: &str = "role=step";

/// How often the harness looks after the daemon.
const LOOK: Duration = Duration::from_millis(20);

fn rest(rng: &mut Rng, ms: Range<u64>) {
    thread::sleep(Duration::from_millis(rng.u64(ms)));
}

/// Starts the daemon again when it has ended by itself, as a service manager does. It may do that
/// only where it can write nothing.
pub fn keep_daemon(world: &World, is_done: impl Fn() -> bool) {
    while !is_done() {
        {
            let mut daemon = world.daemon.lock().unwrap();
            let ended =
                daemon.as_mut().and_then(|child| child.try_wait().expect("a child of ours"));
            if let Some(status) = ended {
                world.counts.add("daemons that ended by themselves");
                if world.full.lock().unwrap().is_none_or(|full| now() > full + 1000) {
                    world.report(format!("the daemon ended with {status} and nobody told it to"));
                }
                thread::sleep(LOOK * 5);
                world.start_daemon(&mut daemon);
            }
        }
        thread::sleep(LOOK);
    }
}

/// Kills and stops processes.
pub fn kill_and_stop(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_over() {
        rest(&mut rng, PROCESS_PAUSE);
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

/// `kill -9`, and a new daemon at once or later.
fn kill_daemon(world: &World, rng: &mut Rng) {
    let mut daemon = world.daemon.lock().unwrap();
    let Some(mut child) = daemon.take() else { return };
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    world.counts.add("kills of the daemon");
    if rng.bool() {
        world.hinder(|| rest(rng, STALL));
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

/// Processes of this run with this name.
fn named(world: &World, name: &str) -> Vec<i32> {
    let all = proc::of_directory(&world.slotd.base);
    all.into_iter().filter(|pid| proc::name(*pid) == name).collect()
}

/// The job of a watcher that has opened the directory of its job.
fn job_of(pid: i32) -> Option<u32> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().find_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let (_, job) = target.to_str()?.split_once("/lib/jobs/")?;
        job.split('/').next()?.split(' ').next()?.parse().ok()
    })
}

/// A watcher that does not know its job yet costs nothing; of any other it is written down whose it
/// was.
fn kill_watcher(world: &World, rng: &mut Rng) {
    let mut watchers = named(world, "slotd-step");
    if rng.bool() && watchers.iter().any(|pid| watches_step(*pid)) {
        // They are few beside those of jobs.
        watchers.retain(|pid| watches_step(*pid));
    }
    let Some(pid) = rng.choice(watchers) else { return };
    proc::signal(pid, proc::STOP);
    // What it does in this moment, it has done when it is stopped.
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
        None => world.counts.add("kills of watchers that had not begun"),
    }
    proc::signal(pid, proc::KILL);
}

/// Whether what it watches is a step that the script of a job has started.
fn watches_step(watcher: i32) -> bool {
    proc::children(watcher).into_iter().any(|task| proc::cmdline(task).contains(STEP))
}

/// `kill -9` to an srun that the script of a job has started.
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
        rest(rng, STALL);
        proc::signal(pid, proc::CONT);
    });
}

/// Sets the clock, and fills the disk.
pub fn change_world(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_over() {
        rest(&mut rng, WORLD_PAUSE);
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
                "phases without an inode"
            } else {
                "phases of a full disk"
            });
            rest(rng, FULL);
        }
        world.empty();
    });
    *world.full.lock().unwrap() = Some(now());
}
