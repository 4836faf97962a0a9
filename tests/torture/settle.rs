//! The end of a run: no more faults. Jobs that wait for a user are released or cancelled, the rest
//! end by themselves. Then the final state is checked.

use crate::events::{self, COLUMNS, Row};
use crate::judge::{Facts, judge, singletons};
use crate::model::{How, Touch, What, number_of};
use crate::world::{CPUS, GPUS, World, now};
use slotd_kit::proc;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The longest time until the queue is empty.
const PATIENCE: Duration = Duration::from_secs(300);

/// The interval between two checks of the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The longest wait for a begin time.
const BEGIN: Duration = Duration::from_secs(6);

/// The result of a run.
pub struct Verdict {
    pub submissions: u64,
    pub jobs: u64,
    /// Jobs with a violation, plus violations not tied to a job.
    pub failed: u64,
    pub violations: Vec<String>,
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Waits until the queue is empty and all users have finished. Jobs that would wait forever are
/// released or cancelled.
pub fn settle(world: &World, users_are_done: impl Fn() -> bool) {
    remove_crontab(world);
    delete_reservations(world);
    let begun = Instant::now();
    loop {
        let queue = world.run("squeue", &words("-h -r -o %A|%T|%r|%k"));
        let lines: Vec<&str> = queue.stdout.lines().collect();
        let is_empty = queue.code == Some(0) && lines.is_empty();
        if is_empty && users_are_done() {
            return;
        }
        if begun.elapsed() > PATIENCE {
            world.report(format!(
                "the queue does not become empty: {}{}",
                queue.stdout, queue.stderr
            ));
            for line in &lines {
                world.run("scancel", &[line.split('|').next().unwrap_or_default().to_owned()]);
            }
            return;
        }
        for line in lines {
            unblock(world, line, begun.elapsed() > BEGIN);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Checks that the crontab is as last answered, with one job per entry, then removes it.
fn remove_crontab(world: &World) {
    // The last fault may have ended the daemon, or have filled the disk: then it tries to write again
    // after a second.
    let (begun, is_up) = (Instant::now(), || {
        let node = world.run("sinfo", &words("-h -o %E"));
        node.code == Some(0) && !node.stdout.contains("database")
    });
    while !is_up() && begun.elapsed() < PATIENCE {
        thread::sleep(POLL_INTERVAL);
    }
    let mut crontab = world.crontab.lock().unwrap();
    if let Some(text) = &crontab.text {
        let listed = world.run("scrontab", &words("-l"));
        let is_same = match text.as_str() {
            "" => listed.code == Some(1),
            text => listed.stdout == text,
        };
        if !is_same {
            world.report(format!("the crontab is not {text:?}: {listed:?}"));
        }
        let queue = world.run("squeue", &words("-h -o %k"));
        for number in &crontab.entries {
            let name = format!("t{number}");
            let count = queue.stdout.lines().filter(|line| **line == name).count();
            if count != 1 {
                world.report(format!("the entry {name} has {count} jobs: {queue:?}"));
            }
        }
    }
    let sent = now();
    let removed = world.run("scrontab", &words("-r"));
    let mut jobs = world.jobs();
    for number in std::mem::take(&mut crontab.entries) {
        let acked = (removed.code == Some(0)).then_some(removed.ended);
        let touch = Touch { what: What::Cancel, task: None, sent, acked };
        jobs[number as usize - 1].touches.push(touch);
    }
    drop(jobs);
    if removed.code != Some(0) {
        world.report(format!("scrontab -r: {removed:?}"));
    }
}

/// Checks that the reservations are as last answered, then deletes them.
fn delete_reservations(world: &World) {
    let all = world.reservations.lock().unwrap();
    let shown = world.run("scontrol", &words("show reservation -o"));
    for (name, exists) in &*all {
        let key = format!("ReservationName={name}");
        let is_shown = shown.stdout.split_whitespace().any(|word| word == key);
        if exists.is_some_and(|exists| exists != is_shown) {
            world.report(format!("reservation {name} exists: {exists:?}, but {shown:?}"));
        }
        if is_shown {
            let deleted = world.run("scontrol", &words(&format!("delete reservation {name}")));
            if deleted.code != Some(0) {
                world.report(format!("reservation {name} was not deleted: {deleted:?}"));
            }
        }
    }
}

fn unblock(world: &World, line: &str, is_late: bool) {
    let [job, state, reason, name] = line.split('|').collect::<Vec<_>>()[..] else {
        return world.report(format!("squeue prints {line:?}"));
    };
    let Some(number) = number_of(name) else {
        return world.report(format!("unknown job: {line}"));
    };
    let how = world.jobs()[number as usize - 1].how;
    let (what, command, verb) = match (state, reason) {
        ("PENDING", "JobHeldUser") => (What::Release, "scontrol", Some("release")),
        ("PENDING", "DependencyNeverSatisfied") => (What::Cancel, "scancel", None),
        ("PENDING", "BeginTime") if is_late => (What::Cancel, "scancel", None),
        ("SUSPENDED", _) => (What::Resume, "scontrol", Some("resume")),
        // Its user may have been killed before it could end it.
        ("RUNNING", _) if how == How::AllocBare && is_late => (What::Cancel, "scancel", None),
        _ => return,
    };
    world.jobs()[number as usize - 1].touches.push(Touch {
        what,
        task: None,
        sent: now(),
        acked: None,
    });
    let args: Vec<String> = verb.into_iter().map(str::to_owned).chain([job.to_owned()]).collect();
    world.run(command, &args);
}

/// Checks everything.
pub fn verdict(world: &World) -> Verdict {
    let mut found = Vec::new();
    let log = fs::read_to_string(&world.log).expect("the log");
    let (events, odd) = events::events(&log);
    found.extend(odd.into_iter().map(|line| format!("the log has the line {line:?}")));
    let listed = world
        .run("sacct", &[words("-X -n -P -S 1970-01-01 -o"), vec![COLUMNS.to_owned()]].concat());
    if listed.code != Some(0) {
        found.push(format!("sacct: {listed:?}"));
    }
    let (rows, odd) = events::rows(&listed.stdout);
    found.extend(odd.into_iter().map(|line| format!("sacct prints {line:?}")));
    let jobs = world.jobs().clone();
    let real = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("the clock is after 1970");
    let facts = Facts {
        jobs: &jobs,
        events: &events::by(events, |event| event.number),
        rows: &events::by(rows, |row: &Row| row.name.clone()),
        clock: &world.clock.lock().unwrap().clone(),
        hindered: &world.hindered.lock().unwrap().clone(),
        watchers_killed: &world.watchers_killed.lock().unwrap().clone(),
        steps_killed: &world.steps_killed.lock().unwrap().clone(),
        outputs: world.slotd.path("out"),
        boot_at: real.as_secs() as i64 - (now() / 1000) as i64,
    };
    let (mut checked, mut bad) = (0, found.len() as u64);
    for job in &jobs {
        let (count, wrong) = judge(&facts, job);
        checked += count as u64;
        if !wrong.is_empty() {
            bad += 1;
            found.extend(wrong);
            found.push(format!("  submission {}: {job:?}", job.name()));
            found.extend(
                facts
                    .events
                    .get(&job.number)
                    .into_iter()
                    .flatten()
                    .map(|event| format!("  {event:?}")),
            );
            found.extend(
                facts.rows.get(&job.name()).into_iter().flatten().map(|row| format!("  {row:?}")),
            );
        }
    }
    let mut others = leftovers(world);
    others.extend(singletons(&facts));
    others.append(&mut world.found.lock().unwrap());
    bad += others.len() as u64;
    found.extend(others);
    Verdict { submissions: jobs.len() as u64, jobs: checked, failed: bad, violations: found }
}

/// Returns everything that is not as it was before the first job.
fn leftovers(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let cpus = world.run("sinfo", &words("-h -o %C|%T"));
    let idle = format!("0/{CPUS}/0/{CPUS}|idle");
    if cpus.stdout.lines().any(|line| line != idle) || cpus.stdout.is_empty() {
        found.push(format!("the node is not idle: {cpus:?}"));
    }
    let gpus = world.run("sinfo", &words("-h -p gpu -o GPU_ALLOC,GPUS"));
    let numbers: Vec<u32> =
        gpus.stdout.split('|').filter_map(|word| word.trim().parse().ok()).collect();
    if numbers != [0, GPUS] {
        found.push(format!("not all GPUs are free: {gpus:?}"));
    }
    // Clients, daemons and launchers come and go, so only report processes that stay.
    let left = || {
        let mine = |pid: &i32| {
            proc::parent(*pid).is_some_and(|parent| parent == std::process::id() as i32)
        };
        let all = proc::of_directory(&world.slotd.base);
        let known = |pid: &i32| mine(pid) || proc::name(*pid) == "slotd-launcher";
        let left: Vec<i32> = all.iter().copied().filter(|pid| !known(pid)).collect();
        let launchers = all.iter().filter(|pid| proc::name(**pid) == "slotd-launcher").count();
        (left, launchers)
    };
    slotd_kit::until(|| {
        let (left, launchers) = left();
        (left.is_empty() && launchers <= 1).then_some(())
    });
    let (pids, launchers) = left();
    found.extend(pids.iter().map(|pid| {
        format!("process {pid} was left behind: {} {}", proc::name(*pid), proc::cmdline(*pid))
    }));
    if launchers > 1 {
        found.push(format!("there are {launchers} launchers"));
    }
    files(world, &mut found);
    let check = world.run("slotd", &words("db check"));
    if check.code != Some(0) {
        found.push(format!("slotd db check: {check:?}"));
    }
    let log = world.slotd.log();
    found.extend(
        log.lines()
            .filter(|line| line.contains("panicked"))
            .map(|line| format!("the daemon's log: {line}")),
    );
    found
}

/// Reports files in job directories that should not be kept. If a watcher was killed, its socket
/// stays: it marks the step as started, so that the next daemon does not start it again.
fn files(world: &World, found: &mut Vec<String>) {
    const KEPT: [&str; 4] = ["script.sh", "job.json", "runner.sh", "exit_status"];
    let killed = &*world.watchers_killed.lock().unwrap() | &*world.steps_killed.lock().unwrap();
    for dir in fs::read_dir(world.slotd.root.join("lib/jobs")).into_iter().flatten().flatten() {
        let was_killed = dir
            .file_name()
            .to_str()
            .and_then(|job| job.parse().ok())
            .is_some_and(|job| killed.contains(&job));
        for file in fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_record = KEPT.contains(&name.as_str()) || name.ends_with(".exit");
            if !(is_record || was_killed && name.ends_with(".sock")) {
                found.push(format!("{} was left behind", file.path().display()));
            }
        }
    }
}

/// Copies everything to a permanent directory.
pub fn save(world: &World, seed: u64) -> PathBuf {
    let to = std::env::temp_dir().join(format!("slotd-torture-{seed}"));
    drop(fs::remove_dir_all(&to));
    fs::create_dir_all(&to).expect("a new directory");
    for from in [
        world.slotd.root.clone(),
        world.log.clone(),
        world.slotd.log_path(),
        world.slotd.path("out"),
    ] {
        let done = Command::new("cp").arg("-a").arg(&from).arg(&to).status();
        assert!(done.is_ok_and(|status| status.success()), "{} cannot be copied", from.display());
    }
    to
}
