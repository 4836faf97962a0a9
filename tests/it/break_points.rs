//! Kills the responsible process once, with SIGKILL, at each step between the submission and the
//! end of a job. The promised job must exist, run once, and leave nothing behind.

use serde_json::json;
use slotd_kit::{Record, Running, Slotd, until};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The possible damage of a crash at a break point.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// Nothing: the job runs once and its exit code is recorded.
    Nothing,
    /// The watcher died: its tasks are killed, and their exit code is lost.
    TheEnd,
}

/// Each break point, the occurrence at which the process dies, and the possible damage. The store
/// commits a submission, a start and an end. On a busy machine the first two may be one commit, and
/// the third occurrence is never reached. Only the launch of a new batch job is prepared, and only
/// if its watcher is ready before the commit is.
const POINTS: [(&str, u32, Cost); 22] = [
    ("commit begins", 1, Cost::Nothing),
    ("commit begins", 2, Cost::Nothing),
    ("commit begins", 3, Cost::Nothing),
    ("commit done", 1, Cost::Nothing),
    ("commit done", 2, Cost::Nothing),
    ("commit done", 3, Cost::Nothing),
    ("commit known", 1, Cost::Nothing),
    ("commit known", 2, Cost::Nothing),
    ("commit known", 3, Cost::Nothing),
    ("submission promised", 1, Cost::Nothing),
    ("launch begins", 1, Cost::Nothing),
    ("launch sent", 1, Cost::Nothing),
    ("launcher told", 1, Cost::Nothing),
    ("watcher begins", 1, Cost::Nothing),
    ("launch prepared", 1, Cost::Nothing),
    ("launch read", 1, Cost::Nothing),
    ("step claimed", 1, Cost::TheEnd),
    ("tasks started", 1, Cost::TheEnd),
    ("step over", 1, Cost::TheEnd),
    ("end recorded", 1, Cost::Nothing),
    ("end told", 1, Cost::Nothing),
    ("end heard", 1, Cost::Nothing),
];

/// Waits until the client and the job have ended. If the daemon dies, it is restarted without the
/// break point. If it survives, it is stopped and restarted at the end, because its break point may
/// be in the commit of an end that it has already announced.
fn wait_out(slotd: &mut Slotd, client: &mut Running) {
    let mut died = false;
    let ended = until(|| {
        if !slotd.daemon_is_running() {
            restart(slotd);
            died = true;
        }
        let is_over = |slotd: &Slotd| {
            let answer = slotd.ask(&json!({ "Accounting": { "jobs": [{ "job": 1 }] } })).ok()?;
            Record::of(answer["Jobs"]["jobs"].as_array()?.first()?).is_over().then_some(())
        };
        is_over(slotd).filter(|()| !client.is_running())
    });
    assert!(ended.is_some(), "the client or the job did not end: {}", slotd.dump());
    if !died {
        if slotd.daemon_is_running() {
            slotd.stop();
        }
        restart(slotd);
    }
}

fn restart(slotd: &mut Slotd) {
    slotd.reset_var("SLOTD_TEST_BREAK", "");
    slotd.start_daemon();
}

/// Starts a daemon that dies at this occurrence of the break point, and creates the file `broken`
/// just before.
fn breaking(point: &str, count: u32) -> Slotd {
    let mut slotd = Slotd::setup().prepare();
    let mark = slotd.path("broken");
    slotd.reset_var("SLOTD_TEST_BREAK", format!("{point}:{count}:{}", mark.display()));
    slotd.start_daemon();
    slotd
}

/// Asserts that exactly one job exists, that it has ended, and that its resources are free and its
/// processes dead.
fn check(slotd: &Slotd, what: &str, cost: Cost) {
    let may_be_missed = what.ends_with("time 3") || what.contains("launch prepared");
    assert!(slotd.exists("broken") || may_be_missed, "{what}: the break point was not reached");
    let records = slotd.all_records();
    assert_eq!(records.len(), 1, "{what}: {}", slotd.dump());
    let exit = records[0].exit();
    let ran = slotd.read("log").lines().count();
    match cost {
        Cost::Nothing => assert_eq!((exit.as_str(), ran), ("3:0", 1), "{what}: {}", slotd.dump()),
        Cost::TheEnd => assert!(
            ran <= 1 && ["0:9", "3:0"].contains(&exit.as_str()),
            "{what}: {exit}, ran {ran} times"
        ),
    }
    assert_eq!(slotd.cmd("sinfo", &["-h", "-o", "%C"]).ok().text(), "0/4/0/4", "{what}");
    slotd.wait(what, || {
        slotd
            .processes()
            .iter()
            .all(|pid| !slotd_kit::proc::cmdline(*pid).contains("sleep"))
            .then_some(())
    });
}

const SCRIPT: &str = "echo once >>log; exit 3";

#[test]
fn a_batch_job_runs_once_despite_any_crash() {
    for (point, count, cost) in POINTS {
        let what = format!("{point}, time {count}");
        let mut slotd = breaking(point, count);
        slotd.write("log", "");
        let mut sbatch = slotd.command("sbatch");
        sbatch.args(["-W", "-o", "/dev/null", "--wrap", SCRIPT]);
        let mut client = slotd.spawn(sbatch);
        wait_out(&mut slotd, &mut client);
        let out = client.end();
        assert!(out.stdout.contains("Submitted batch job 1"), "{what}: {out:?}");
        check(&slotd, &what, cost);
    }
}

/// Without `-W`, the shortcut of sbatch submits the job. The program that then repeats the submission
/// may see another boot than the daemon, as in a container without `/proc`.
#[test]
fn a_plain_batch_job_runs_once_despite_any_crash() {
    for (point, count, cost) in POINTS {
        let what = format!("plain: {point}, time {count}");
        let mut slotd = breaking(point, count);
        slotd.write("log", "");
        let mut sbatch = slotd.command("sbatch");
        sbatch.args(["-o", "/dev/null", "--wrap", SCRIPT]);
        sbatch.env("SLOTD_TEST_BOOT", "7@1795000000");
        let mut client = slotd.spawn(sbatch);
        wait_out(&mut slotd, &mut client);
        assert_eq!(client.end().ok().stdout, "Submitted batch job 1\n", "{what}");
        check(&slotd, &what, cost);
    }
}

#[test]
fn an_srun_job_runs_once_despite_any_crash() {
    // The end of the allocation is a separate commit.
    for (point, count, cost) in POINTS.into_iter().filter(|(point, ..)| *point != "end heard") {
        let what = format!("srun: {point}, time {count}");
        let mut slotd = breaking(point, count);
        slotd.write("log", "");
        let mut srun = slotd.command("srun");
        srun.args(["sh", "-c", SCRIPT]);
        let mut client = slotd.spawn(srun);
        wait_out(&mut slotd, &mut client);
        let out = client.end();
        if cost == Cost::Nothing {
            assert_eq!(out.code, 3, "{what}: {out:?}");
        }
        check(&slotd, &what, cost);
    }
}

/// Collects the break points in a directory of the source.
fn points_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            points_in(&path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let names = text
                .split("break_point::reach(\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_break_point_in_the_source_is_tested() {
    let mut found = BTreeSet::new();
    points_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let tried: BTreeSet<String> = POINTS.iter().map(|(point, ..)| (*point).to_owned()).collect();
    assert_eq!(found, tried);
}
