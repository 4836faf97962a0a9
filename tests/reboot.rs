//! The machine goes down: by a reboot, or by a loss of power in which the kernel loses what was not synced. What ran then
//! does not run any more, and it does not run twice.

use slotd_kit::{Setup, Slotd};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A daemon of boot 1, which was a while ago.
fn first_boot() -> Slotd {
    Setup::default().set("SLOTD_TEST_BOOT", format!("1@{}", now() - 1000)).start()
}

/// The machine starts again an hour later, as boot 2.
fn boot_an_hour_later(slotd: &mut Slotd) {
    slotd.set_clock(3600);
    slotd.boot(2, now() + 3590);
}

/// State, reason and exit code.
fn told(slotd: &Slotd, job: u32) -> (String, String, String) {
    let job = slotd.job(job);
    (job.state(), job.reason(), job.exit())
}

fn three(state: &str, reason: &str, exit: &str) -> (String, String, String) {
    (state.to_owned(), reason.to_owned(), exit.to_owned())
}

#[test]
fn what_ran_at_a_reboot_is_node_fail_and_what_waited_goes_on() {
    let mut slotd = first_boot();
    let job = slotd.endless(&[]);
    slotd.line("salloc --no-shell").ok();
    let mut srun = slotd.spawn({
        let mut srun = slotd.command("srun");
        srun.args(["sleep", "1000"]);
        srun
    });
    let foreground = slotd.wait("srun's job", || slotd.all_records().last().filter(|r| r.id() == job + 2).cloned());
    slotd.wait_state(foreground.id(), "RUNNING");
    slotd.wait("srun's step", || slotd.job_dir(foreground.id()).join("0.0.sock").exists().then_some(()));
    let waiting = slotd.wrap(&["-c", "4"], "echo $SLURM_JOB_ID >> ran");
    let held = slotd.wrap(&["-H"], "true");
    slotd.wait_reason(waiting, "Resources");
    slotd.power_off();
    slotd.wait("the client, which goes down with the machine", || (!srun.is_running()).then_some(()));
    boot_an_hour_later(&mut slotd);

    for id in [job, job + 1, foreground.id()] {
        // At the first request: nobody sees it run under the new boot.
        assert_eq!(told(&slotd, id), three("NODE_FAIL", "NodeDown", "0:1"), "job {id}");
        let elapsed = slotd.sacct(id, "ElapsedRaw").trim().parse::<i64>().unwrap();
        assert!(elapsed < 600, "{elapsed} s: the hour in which the machine was off does not count");
        let sockets = fs::read_dir(slotd.job_dir(id)).into_iter().flatten().flatten();
        assert_eq!(sockets.filter(|entry| entry.file_type().unwrap().is_socket()).count(), 0);
    }
    assert_eq!(
        slotd.steps(foreground.id(), "JobID,State").lines().last(),
        Some(&*format!("{}.0|NODE_FAIL", foreground.id()))
    );
    slotd.wait_state(waiting, "COMPLETED");
    assert_eq!(slotd.read("ran"), format!("{waiting}\n"));
    assert_eq!(slotd.state(held), "PENDING");
}

#[test]
fn a_job_that_asked_for_it_runs_again_after_a_reboot_and_no_other() {
    let mut slotd = first_boot();
    let count = |name: &str| format!("echo run >> {name}; {}", slotd.gate("never"));
    let asked = slotd.wrap(&["--requeue"], &count("asked"));
    let other = slotd.wrap(&[], &count("other"));
    slotd.wait_text("asked", "run");
    slotd.wait_text("other", "run");
    slotd.power_off();
    boot_an_hour_later(&mut slotd);
    slotd.wait("its second run", || (slotd.read("asked").lines().count() == 2).then_some(()));
    assert_eq!(slotd.job(asked).restarts(), 1);
    assert_eq!(told(&slotd, other), three("NODE_FAIL", "NodeDown", "0:1"));
    slotd.power_off();
    slotd.boot(3, now() + 3595);
    assert_eq!(told(&slotd, asked), three("NODE_FAIL", "NodeDown", "0:1"));
    assert_eq!((slotd.read("asked"), slotd.read("other")), ("run\nrun\n".to_owned(), "run\n".to_owned()));
    let runs = slotd.line(&format!("sacct -nPXDj {asked} -o State")).ok().stdout;
    assert_eq!(runs, "NODE_FAIL\nNODE_FAIL\n");
}

#[test]
fn an_end_that_the_disk_has_kept_is_true_and_one_that_it_has_lost_is_node_fail() {
    let mut slotd = first_boot();
    let jobs: Vec<u32> = (0..4).map(|_| slotd.begun(&[], "go", "echo end >> ends; exit 3")).collect();
    slotd.kill9();
    slotd.open("go");
    let record = |slotd: &Slotd, job: u32| slotd.job_dir(job).join("exit_status");
    slotd.wait("the records", || jobs.iter().all(|job| record(&slotd, *job).exists()).then_some(()));
    slotd.power_off();
    // What the disk may have of a file that nobody synced: nothing, no bytes, zeros, a part.
    let whole = fs::read(record(&slotd, jobs[0])).unwrap();
    fs::write(record(&slotd, jobs[1]), "").unwrap();
    fs::write(record(&slotd, jobs[2]), vec![0; whole.len()]).unwrap();
    fs::write(record(&slotd, jobs[3]), &whole[..whole.len() / 2]).unwrap();
    boot_an_hour_later(&mut slotd);
    assert_eq!(told(&slotd, jobs[0]), three("FAILED", "NonZeroExitCode", "3:0"));
    for job in &jobs[1..] {
        assert_eq!(told(&slotd, *job), three("NODE_FAIL", "NodeDown", "0:1"), "job {job}\n{}", slotd.log());
    }
    // Nothing of them runs again.
    let after = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(after, "COMPLETED");
    assert_eq!(slotd.read("ends").lines().count(), jobs.len());
}
