//! Users submit, cancel, hold, requeue and wait while processes are killed, the disk fills up and
//! the clock is set. In the end, every guarantee must hold.
//!
//! `cargo test --test torture` runs for 20 seconds, or for `SLOTD_TORTURE_SECONDS`.
//! `SLOTD_TORTURE_SEED=N` repeats the choices of seed N, though with different timing. The small
//! disk needs a mount: as root, or in a user namespace (`unshare -rm`). If mounting is not
//! permitted, the disk is never filled, and the run prints a note.

#[path = "torture/adversary.rs"]
mod adversary;
#[path = "torture/clients.rs"]
mod clients;
#[path = "torture/events.rs"]
mod events;
#[path = "torture/judge.rs"]
mod judge;
#[path = "torture/model.rs"]
mod model;
#[path = "torture/settle.rs"]
mod settle;
#[path = "torture/world.rs"]
mod world;

use clients::User;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use world::World;

/// The default duration in seconds.
const SECONDS: u64 = 20;

/// The number of concurrent users.
const USERS: u64 = 6;

/// Set in the environment of the program inside its own mount namespace.
const INSIDE: &str = "SLOTD_TORTURE_INSIDE";

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() {
        enter_mount_namespace();
    }
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
    };
    let seconds = number("SLOTD_TORTURE_SECONDS").unwrap_or(SECONDS);
    let seed = number("SLOTD_TORTURE_SEED").unwrap_or_else(|| fastrand::u64(1..1_000_000));
    println!("torture: seed {seed}, {seconds} s");
    let world = World::prepare(seconds);
    if !world.has_disk {
        println!("torture: mounting is not permitted: the disk is never filled");
    }
    let begun = Instant::now();
    play(&world, seed, Duration::from_secs(seconds));
    let verdict = settle::verdict(&world);
    let kept = (!verdict.violations.is_empty()).then(|| settle::save(&world, seed));
    world.stop_all();
    world.unmount();
    for violation in &verdict.violations {
        println!("violation: {violation}");
    }
    if let Some(kept) = kept {
        println!(
            "torture: seed {seed}; the root directory and the logs are kept in {}",
            kept.display()
        );
    }
    let rows = [
        ("seconds", begun.elapsed().as_secs()),
        ("seed", seed),
        ("submissions", verdict.submissions),
    ];
    let counts = world.counts.all();
    let sums = [("jobs checked", verdict.jobs), ("violations", verdict.violations.len() as u64)];
    for (what, count) in rows.into_iter().chain(counts).chain(sums) {
        println!("{what:<40} {count:>9}");
    }
    println!("{} passed, {} failed", verdict.jobs.saturating_sub(verdict.failed), verdict.failed);
    if verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program again in its own mount namespace, if that is permitted.
fn enter_mount_namespace() {
    for flags in ["-m", "-rm"] {
        let can = Command::new("unshare")
            .args([flags, "true"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if can.is_ok_and(|status| status.success()) {
            let program = std::env::current_exe().expect("this program has a path");
            let error = Command::new("unshare").arg(flags).arg(program).env(INSIDE, "1").exec();
            panic!("unshare {flags}: {error}");
        }
    }
}

/// Runs users and faults for this time, then only the users until the queue is empty.
fn play(world: &World, seed: u64, time: Duration) {
    world.start_daemon(&mut world.daemon.lock().unwrap());
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| adversary::keep_daemon(world, || is_done.load(Ordering::Relaxed)));
        let adversaries = [
            scope.spawn(|| adversary::kill_and_stop(world, seed)),
            scope.spawn(|| adversary::change_world(world, !seed)),
        ];
        let users: Vec<_> = (1..=USERS)
            .map(|user| {
                scope.spawn(move || {
                    User::new(world, seed.wrapping_mul(1000).wrapping_add(user)).live()
                })
            })
            .collect();
        thread::sleep(time);
        world.over.store(true, Ordering::Relaxed);
        for adversary in adversaries {
            adversary.join().expect("the adversary does not panic");
        }
        settle::settle(world, || users.iter().all(thread::ScopedJoinHandle::is_finished));
        is_done.store(true, Ordering::Relaxed);
    });
}
