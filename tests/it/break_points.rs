//! At each step between a submission and the end of its job the process that takes it dies, once,
//! by SIGKILL. The job that was promised is there, ran once, and nothing of it is left.

use serde_json::json;
use slotd_kit::{Record, Running, Slotd, until};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What a death there may cost.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// Nothing: it runs once, and its exit code is known.
    Nothing,
    /// The watcher died: its tasks are killed, and how they would have ended is not known.
    TheEnd,
}

/// Each break point, at which time the process dies there, and what it may cost. The store commits
/// a submission, a start and an end; on a busy machine the first two may come together, and nobody
/// comes there a third time.
const POINTS: [(&str, u32, Cost); 21] = [
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
    ("launch read", 1, Cost::Nothing),
    ("step claimed", 1, Cost::TheEnd),
    ("tasks started", 1, Cost::TheEnd),
    ("step over", 1, Cost::TheEnd),
    ("end recorded", 1, Cost::Nothing),
    ("end told", 1, Cost::Nothing),
    ("end heard", 1, Cost::Nothing),
];

/// Waits until the client has ended and the job is over. A daemon that dies meanwhile is started
/// again, without the break point; one that lives is ended then and started again: its break point
/// may be yet to come, in the commit of an end that it has told already.
fn outlive(slotd: &mut Slotd, client: &mut Running) {
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
    assert!(ended.is_some(), "the client or the job does not end: {}", slotd.dump());
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

/// Where and when, and the file that says that it was there.
fn breaking(point: &str, count: u32) -> Slotd {
    let mut slotd = Slotd::setup().prepare();
    let mark = slotd.path("broken");
    slotd.reset_var("SLOTD_TEST_BREAK", format!("{point}:{count}:{}", mark.display()));
    slotd.start_daemon();
    slotd
}

/// What must be true after whatever happened: one job, over, everything given back, nothing left.
fn check(slotd: &Slotd, what: &str, cost: Cost) {
    assert!(slotd.exists("broken") || what.ends_with("time 3"), "{what}: nobody came there");
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
fn a_batch_job_runs_once_whoever_dies_on_its_way() {
    for (point, count, cost) in POINTS {
        let what = format!("{point}, time {count}");
        let mut slotd = breaking(point, count);
        slotd.write("log", "");
        let mut sbatch = slotd.command("sbatch");
        sbatch.args(["-W", "-o", "/dev/null", "--wrap", SCRIPT]);
        let mut client = slotd.spawn(sbatch);
        outlive(&mut slotd, &mut client);
        let said = client.end();
        assert!(said.stdout.contains("Submitted batch job 1"), "{what}: {said:?}");
        check(&slotd, &what, cost);
    }
}

#[test]
fn a_run_with_its_client_runs_once_whoever_dies_on_its_way() {
    // The allocation's end is a commit of its own.
    for (point, count, cost) in POINTS.into_iter().filter(|(point, ..)| *point != "end heard") {
        let what = format!("srun: {point}, time {count}");
        let mut slotd = breaking(point, count);
        slotd.write("log", "");
        let mut srun = slotd.command("srun");
        srun.args(["sh", "-c", SCRIPT]);
        let mut client = slotd.spawn(srun);
        outlive(&mut slotd, &mut client);
        let said = client.end();
        if cost == Cost::Nothing {
            assert_eq!(said.code, 3, "{what}: {said:?}");
        }
        check(&slotd, &what, cost);
    }
}

/// The break points in a folder of the source.
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
fn every_break_point_of_the_source_is_tried() {
    let mut found = BTreeSet::new();
    points_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let tried: BTreeSet<String> = POINTS.iter().map(|(point, ..)| (*point).to_owned()).collect();
    assert_eq!(found, tried);
}
