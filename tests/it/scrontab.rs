//! `scrontab`: jobs that recur.

use slotd_kit::tmux::Tmux;
use slotd_kit::{Out, Setup, Slotd, until};
use std::fs::{self, File};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Installs a crontab from standard input.
fn feed(slotd: &Slotd, text: impl Into<Vec<u8>>) -> Out {
    let mut scrontab = slotd.command("scrontab");
    scrontab.arg("-");
    slotd.feed(scrontab, text)
}

/// Returns an entry that appends a line to a file of the test.
fn entry(slotd: &Slotd, options: &str, time: &str, command: &str) -> String {
    let dir = slotd.work().display().to_string();
    format!("#SCRON -D {dir} -o /dev/null {options}\n{time} {command}\n")
}

fn listing(slotd: &Slotd) -> String {
    slotd.line("scrontab -l").ok().stdout
}

/// Returns the IDs of all pending and running jobs.
fn live(slotd: &Slotd) -> Vec<u32> {
    let ids = slotd.line("squeue -h -o %i").ok().stdout;
    let mut ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Lets this many seconds pass while no daemon runs.
fn sleep_through(slotd: &mut Slotd, secs: i64) {
    slotd.kill9();
    slotd.set_clock(secs);
    slotd.start_daemon();
}

#[test]
fn the_file_is_kept_and_each_entry_is_a_job() {
    let slotd = Slotd::start();
    slotd.expect("scrontab -r", 0, "", "");
    let none = slotd.line("scrontab -l").fails(1);
    assert!(none.stdout.starts_with("no crontab for ") && none.stderr.is_empty(), "{none:?}");
    let text = "# mine\n\
        #SCRON -t 1\n\
        #SCRON -J tick -o tick.out\n\
        * 5 * * * date; env\n\
        \n\
        X=hello  world\n\
        #SCRON --job-name=nightly\n\
        0 5 * * mon echo $X ${X}\n\
        @daily /bin/true arg";
    slotd.write("file", text);
    slotd.expect("scrontab file", 0, "", "");
    slotd.expect("scrontab -l", 0, text, "");
    let rows = slotd.line("squeue -h -o %i|%j|%T|%r|%l|%o").ok().stdout;
    assert_eq!(
        rows,
        "1|tick|PENDING|BeginTime|1:00|date; env\n\
         2|nightly|PENDING|BeginTime|UNLIMITED|echo hello  world ${X}\n\
         3|/bin/true|PENDING|BeginTime|UNLIMITED|/bin/true arg\n"
    );
    let starts = slotd.line("squeue -h -o %S").ok().stdout;
    let hours: Vec<&str> = starts.lines().filter_map(|start| start.split('T').nth(1)).collect();
    assert_eq!(hours, ["05:00:00", "05:00:00", "00:00:00"]);
    for (job, spec) in [(1, "* 5 * * *"), (2, "0 5 * * 1"), (3, "0 0 * * *")] {
        let shown = slotd.line(&format!("scontrol show job {job}")).ok().stdout;
        let line = format!(" Deadline=N/A\n   CronJob=Yes CrontabSpec=\"{spec}\"\n");
        assert!(shown.contains(&line), "{shown}");
    }
    let shown = slotd.line("scontrol show job 2").ok().stdout;
    assert!(shown.contains("\n   Command=echo hello  world ${X}\n"), "{shown}");
    assert_eq!(
        slotd.line("scontrol write batch_script 2 -").ok().stdout,
        "#!/bin/sh\n\
         # This job was submitted through scrontab\n\
         #SCRON --job-name=nightly\n\
         # crontab time request was: '0 5 * * mon'\n\
         echo hello  world ${X}\n"
    );
    // Another one takes its place.
    assert_eq!(feed(&slotd, "@hourly true\n").ok().stderr, "");
    assert_eq!((live(&slotd), listing(&slotd).as_str()), (vec![4], "@hourly true\n"));
    slotd.expect("scrontab -r", 0, "", "");
    assert_eq!(live(&slotd), [0; 0]);
    slotd.line("scrontab -l").fails(1);
}

#[test]
fn an_entry_runs_when_its_minute_begins_and_waits_for_the_next_one() {
    // In this time zone, a minute begins in five seconds.
    let ahead = (55 + 60 - now() % 60) % 60;
    let slotd = Setup::default().set("TZ", format!("RUN-0:00:{ahead:02}")).start();
    let script = "env > env; echo $SLURM_RESTART_COUNT $SLURM_JOB_ID $PWD >> ran; exit 3";
    let mut scrontab = slotd.command("scrontab");
    scrontab.arg("-").env("FOO", "bar").env("SBATCH_TIMELIMIT", "5");
    slotd.feed(scrontab, entry(&slotd, "", "* * * * *", script)).ok();
    assert_eq!(slotd.queued(1).reason(), "BeginTime");
    let ended =
        slotd.wait("the first run", || Some(slotd.queued(1)).filter(|job| job.restarts() == 1));
    assert_eq!((ended.state().as_str(), ended.reason().as_str()), ("PENDING", "BeginTime"));
    assert_eq!(slotd.read("ran"), format!("1 {}\n", slotd.work().display()));
    let env = slotd.read("env");
    assert!(env.contains("SLURM_GET_USER_ENV=1\n") && !env.contains("FOO="), "{env}");
    assert!(!env.contains("SBATCH_TIMELIMIT"), "{env}");
    let rows = slotd.line("sacct -nPXD -j 1 -o State,ExitCode,Submit,Eligible,Start").ok().stdout;
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split('|').collect()).collect();
    assert_eq!(
        (rows[0][..2].to_vec(), rows[1][..2].to_vec()),
        (vec!["REQUEUED", "3:0"], vec!["PENDING", "0:0"])
    );
    // The second run was submitted when the first one ended.
    assert!(rows[0][2] < rows[0][4] && rows[0][4] <= rows[1][2], "{rows:?}");
    assert_eq!(rows[1][4], "Unknown");
}

#[test]
fn times_missed_while_nothing_ran_run_once() {
    let mut slotd = Slotd::start();
    // The tests begin between 13:00 and 14:00.
    let text = entry(&slotd, "", "0 */6 * * *", "echo $SLURM_RESTART_COUNT. >> ran")
        + &entry(&slotd, "", "@daily", "echo day >> days");
    feed(&slotd, text.clone()).ok();
    for (day, runs) in [(1, ".\n"), (2, ".\n1.\n"), (3, ".\n1.\n2.\n")] {
        sleep_through(&mut slotd, day * DAY);
        slotd.wait("the run", || (slotd.queued(1).restarts() == day as u64).then_some(()));
        slotd.wait("the daily run", || (slotd.queued(2).restarts() == day as u64).then_some(()));
        assert_eq!(slotd.read("ran"), runs);
        assert_eq!(slotd.read("days").lines().count() as i64, day);
        assert_eq!((live(&slotd), listing(&slotd)), (vec![1, 2], text.clone()));
    }
    // The clock goes back: the times come again.
    let begin = |slotd: &Slotd| slotd.line("squeue -h -j 2 -o %S").ok().stdout;
    let late = begin(&slotd);
    sleep_through(&mut slotd, 0);
    assert!(begin(&slotd) < late, "{late}");
    assert_eq!(live(&slotd), [1, 2]);
}

#[test]
fn a_run_that_a_power_failure_ended_recurs() {
    let boot = |at: u64| format!("1@{at}");
    let mut slotd = Setup::default().set("SLOTD_TEST_BOOT", boot(now() - 1000)).start();
    let gate = slotd.gate("never");
    feed(&slotd, entry(&slotd, "", "* * * * *", &format!("echo run >> ran; {gate}"))).ok();
    sleep_through(&mut slotd, 60);
    slotd.wait_text("ran", "run");
    slotd.power_off();
    slotd.set_clock(3600);
    slotd.boot(2, now() as i64 + 3590);
    // Its times since then were missed.
    slotd.wait("the second run", || (slotd.read("ran").lines().count() == 2).then_some(()));
    assert_eq!(slotd.queued(1).restarts(), 1);
    let runs = slotd.line("sacct -nPXDj 1 -o State,ExitCode").ok().stdout;
    assert_eq!(runs, "REQUEUED|0:1\nRUNNING|0:0\n");
    assert_eq!(live(&slotd), [1]);
}

#[test]
fn a_crash_during_the_installation_leaves_one_whole_crontab() {
    let (old, new) = ("@daily old\n", "@hourly new\n@hourly newer\n@daily newest\n");
    for (point, is_new) in [("commit begins", false), ("commit done", true), ("commit known", true)]
    {
        let mut slotd = Slotd::start();
        feed(&slotd, old).ok();
        slotd.stop();
        let mark = slotd.path("broken");
        slotd.reset_var("SLOTD_TEST_BREAK", format!("{point}:1:{}", mark.display()));
        slotd.start_daemon();
        assert_ne!(feed(&slotd, new).code, 0, "{point}");
        let died = until(|| (!slotd.daemon_is_running()).then_some(()));
        assert!(died.is_some(), "{point}: the break point was not reached");
        slotd.reset_var("SLOTD_TEST_BREAK", "");
        slotd.start_daemon();
        let found = (listing(&slotd), live(&slotd).len());
        let expected = if is_new { (new, 3) } else { (old, 1) };
        assert_eq!((found.0.as_str(), found.1), expected, "{point}: {}", slotd.dump());
    }
}

#[test]
fn a_crontab_with_an_error_is_refused_as_a_whole() {
    let slotd = Slotd::start();
    feed(&slotd, "@daily kept\n").ok();
    let broken = "scrontab: error: something is broken\n";
    let option =
        |word: &str| format!("scrontab: error: Invalid option found in #SCRON line: {word}\n");
    for (line, told) in [
        ("bad line", broken.to_owned()),
        ("61 * * * * true", broken.to_owned()),
        ("* * * * *", broken.to_owned()),
        ("0 0 31 2 * true", broken.to_owned()),
        ("* * * true", format!("scrontab: error: bad month specification\n{broken}")),
        ("0 0 * foo * true", format!("scrontab: error: bad month specification\n{broken}")),
        ("@reboot true", format!("scrontab: error: invalid @ line\n{broken}")),
        ("#SCRON --nosuch\n@daily true", option("--nosuch")),
        ("#SCRON -a 1-3\n@daily true", option("-a")),
    ] {
        let out = feed(&slotd, format!("@hourly fine\n{line}\n")).fails(1);
        let expected = format!("{told}There are errors in your crontab.\n");
        assert!(out.stderr.starts_with(&expected), "{line}: {}", out.stderr);
    }
    let out = feed(&slotd, "#SCRON -p nosuch\n@daily true\n").fails(1);
    let expected = "There was an issue with the job submission on lines 1-2\n\
        The error code return was: Invalid partition name specified\n\
        The error message was: invalid partition specified: nosuch\n";
    assert!(out.stderr.starts_with(expected), "{}", out.stderr);
    assert_eq!((live(&slotd), listing(&slotd).as_str()), (vec![1], "@daily kept\n"));
}

#[test]
fn anything_but_a_readable_text_is_refused() {
    let slotd = Slotd::start();
    feed(&slotd, "@daily kept\n").ok();
    slotd.expect("scrontab nosuch", 1, "", "scrontab: fatal: failed to open nosuch\n");
    fs::create_dir(slotd.path("dir")).unwrap();
    File::create(slotd.path("huge")).unwrap().set_len(1 << 40).unwrap();
    slotd.write("latin1", b"@daily caf\xe9\n");
    slotd.write("null", b"@daily a\0b\n");
    slotd.write("dos", "@daily a\r\n");
    for (file, why) in [
        ("dir", "failed to read dir: Is a directory"),
        ("huge", "failed to read huge: it is larger than 1 MB"),
        ("/dev/zero", "failed to read /dev/zero: it is larger than 1 MB"),
        ("latin1", "not valid UTF-8"),
        ("null", "NULL character"),
        ("dos", "DOS line breaks"),
    ] {
        let out = slotd.cmd("scrontab", &[file]).fails(1);
        assert!(out.stderr.contains(why), "{file}: {}", out.stderr);
    }
    for line in ["scrontab", "scrontab -l -r", "scrontab -l file", "scrontab a b", "scrontab -x"] {
        slotd.line(line).fails(1);
    }
    assert_eq!((live(&slotd), listing(&slotd).as_str()), (vec![1], "@daily kept\n"));
    // A pipe is a file, too.
    let piped = slotd.sh("scrontab <(echo @hourly piped)");
    let piped =
        if piped.code == 0 { piped } else { slotd.sh("echo @hourly piped | scrontab /dev/stdin") };
    piped.ok();
    assert_eq!(listing(&slotd), "@hourly piped\n");
    // It may be empty.
    feed(&slotd, "").ok();
    slotd.expect("scrontab -l", 0, "", "");
    assert_eq!(live(&slotd), [0; 0]);
}

#[test]
fn only_your_own_crontab_is_yours() {
    let slotd = Slotd::start();
    let own = slotd.sh("id -un").ok().stdout.trim().to_owned();
    slotd.line(&format!("scrontab -u {own} -r")).ok();
    let unknown = "scrontab: fatal: Could not find user nosuch\n";
    slotd.expect("scrontab -u nosuch -l", 1, "", unknown);
    let other = "scrontab: fatal: slurm_request_crontab failed: Invalid user id\n";
    slotd.expect("scrontab -u 4000000000 -l", 1, "", other);
}

#[test]
fn a_cancelled_entry_is_disabled_in_the_listing() {
    let mut slotd = Slotd::start();
    let gate = slotd.gate("never");
    let running = entry(&slotd, "", "* * * * *", &format!("echo run >> ran; {gate}"));
    feed(&slotd, format!("{running}#SCRON -t 1\n@hourly true\n@daily kept\n")).ok();
    sleep_through(&mut slotd, 60);
    slotd.wait_text("ran", "run");
    slotd.expect("scancel --cron 2", 0, "", "");
    slotd.expect("scancel 1", 0, "", "");
    slotd.wait_state(1, "CANCELLED");
    let disabled: String = running.lines().map(|line| format!("#DISABLED: {line}\n")).collect();
    let text = format!("{disabled}#DISABLED: #SCRON -t 1\n#DISABLED: @hourly true\n@daily kept\n");
    assert_eq!(listing(&slotd), text);
    slotd.crash();
    assert_eq!((listing(&slotd), live(&slotd)), (text.clone(), vec![3]));
    feed(&slotd, text.clone()).ok();
    assert_eq!((listing(&slotd), live(&slotd)), (text, vec![4]));
}

#[test]
fn a_replaced_entry_finishes_its_run() {
    let mut slotd = Slotd::start();
    let script = format!("echo begun >> ran; {}; echo over >> ran", slotd.gate("go"));
    feed(&slotd, entry(&slotd, "", "* * * * *", &script)).ok();
    sleep_through(&mut slotd, 60);
    slotd.wait_text("ran", "begun");
    slotd.line("scrontab -r").ok();
    assert_eq!(live(&slotd), [1]);
    slotd.open("go");
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.read("ran"), "begun\nover\n");
}

#[test]
fn scontrol_does_not_change_an_entry() {
    let slotd = Slotd::start();
    feed(&slotd, "@daily true\n").ok();
    let refused = "Cannot modify scrontab jobs through scontrol for job 1\n";
    for line in [
        "scontrol hold 1",
        "scontrol release 1",
        "scontrol update JobId=1 TimeLimit=5",
        "scontrol update JobId=1 StartTime=now",
        "scontrol requeue 1",
        "scontrol requeuehold 1",
    ] {
        let out = slotd.line(line).fails(1);
        assert!(out.stderr.starts_with(refused) && out.stdout.is_empty(), "{line}: {out:?}");
    }
    assert_eq!(slotd.queued(1).reason(), "BeginTime");
}

/// Returns what is left of edited texts.
fn drafts(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("scrontab"));
    names
}

#[test]
fn the_crontab_is_edited_in_a_terminal_only() {
    let slotd = Slotd::start();
    slotd.expect("scrontab -e", 1, "", "scrontab: fatal: Standard input is not a TTY\n");
    feed(&slotd, "@daily kept\n").ok();
    let tmp = slotd.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let edit = |editor: &str| {
        slotd.program(
            "editor",
            &format!("#!/bin/sh\nstat -c %a \"$1\" \"${{1%/*}}\" > modes\n{editor}\n"),
        );
        let run = format!(
            "TMPDIR={tmp} VISUAL=$PWD/editor EDITOR=false scrontab -e\n\
             echo $? > code; sleep 1000",
            tmp = tmp.display()
        );
        slotd.write("edit.sh", run);
        let _ = fs::remove_file(slotd.path("code"));
        Tmux::start(&slotd, "exec sh edit.sh")
    };
    let code = |slotd: &Slotd| {
        let is_over = || slotd.exists("code").then(|| slotd.read("code"));
        slotd.wait("the end of scrontab", || is_over().filter(|code| !code.is_empty()))
    };
    fn changes_nothing(slotd: &Slotd, tmp: &Path, what: &str) {
        assert_eq!((listing(slotd).as_str(), live(slotd)), ("@daily kept\n", vec![1]), "{what}");
        assert_eq!(drafts(tmp), Vec::<String>::new(), "{what}");
    }
    let spoilt = [
        ("exit 0", "0\n"),
        ("echo @hourly new > \"$1\"; exit 3", "1\n"),
        ("echo @hourly new > \"$1\"; kill -9 $$", "1\n"),
        ("rm \"$1\"", "1\n"),
        ("rm \"$1\"; mkfifo \"$1\"", "1\n"),
        ("rm \"$1\"; ln -s /etc/passwd \"$1\"", "1\n"),
        ("truncate -s 1T \"$1\"", "1\n"),
    ];
    for (editor, expected) in spoilt {
        let Some(_terminal) = edit(editor) else { return };
        assert_eq!(code(&slotd), expected, "{editor}");
        assert_eq!(slotd.read("modes"), "600\n700\n", "{editor}");
        changes_nothing(&slotd, &tmp, editor);
    }
    // The bad line is marked in the second edit, which corrects it.
    let mending = "grep -q BAD \"$1\" && cp \"$1\" seen && echo @hourly mended > \"$1\" && exit 0\n\
        echo bad line >> \"$1\"";
    let Some(terminal) = edit(mending) else { return };
    terminal.shows("Do you want to retry the edit? (y/n)");
    terminal.press(&["y", "Enter"]);
    assert_eq!(code(&slotd), "0\n");
    assert_eq!(slotd.read("seen"), "@daily kept\n#BAD: bad line\n");
    assert_eq!((listing(&slotd).as_str(), live(&slotd)), ("@hourly mended\n", vec![2]));
    assert_eq!(drafts(&tmp), Vec::<String>::new());
    drop(terminal);
    let Some(terminal) = edit("echo bad line >> \"$1\"") else { return };
    terminal.shows("Do you want to retry the edit? (y/n)");
    terminal.press(&["n", "Enter"]);
    assert_eq!(code(&slotd), "1\n");
    assert_eq!(listing(&slotd), "@hourly mended\n");
    assert_eq!(drafts(&tmp), Vec::<String>::new());
}
