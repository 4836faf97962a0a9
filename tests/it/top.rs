//! `slotd top` on a terminal, with real jobs and keys. Uses tmux if it is installed.

use slotd_kit::tmux::Tmux;
use slotd_kit::{Setup, Slotd, proc};

#[test]
fn a_session_with_real_jobs() {
    let slotd = Slotd::start();
    let first = slotd.wrap(
        &["-J", "first", "-c", "4", "-t", "10"],
        "echo it begins; echo and warns >&2; exec sleep 1000",
    );
    slotd.wait_text(&format!("slurm-{first}.out"), "and warns");
    let Some(top) = Tmux::start(&slotd, "exec slotd top") else { return };
    top.shows("R 1 running  PD 0 pending");
    top.shows("4/4 alloc");
    let second = slotd.wrap(&["-J", "second"], "exec sleep 1000");
    top.shows("R 1 running  PD 1 pending");
    // The reason for waiting, as a sentence.
    top.press(&["Tab", "j"]);
    top.shows(&format!("job {first} holds 4 CPUs"));
    top.press(&["h"]);
    slotd.wait_reason(second, "JobHeldUser");
    top.shows("held by you");
    top.press(&["r"]);
    slotd.wait_reason(second, "Resources");
    top.shows(&format!("released: {second}"));
    // The page of the job, with its output as it is written.
    top.press(&["Tab", "Tab", "Enter"]);
    top.shows("it begins");
    slotd.write("more", "");
    std::io::Write::write_all(
        &mut std::fs::File::options()
            .append(true)
            .open(slotd.path(&format!("slurm-{first}.out")))
            .unwrap(),
        b"one line more\n",
    )
    .unwrap();
    top.shows("one line more");
    // The title of the page contains the state of its job, but only the lists contain this text.
    top.press(&["Escape"]);
    top.shows("PENDING");
    top.press(&["c"]);
    top.shows(&format!("Cancel job {first}? (y/n)"));
    top.press(&["n"]);
    top.hides("(y/n)");
    assert_eq!(slotd.state(first), "RUNNING");
    top.press(&["c", "y"]);
    slotd.wait_state(first, "CANCELLED");
    slotd.wait_state(second, "RUNNING");
    top.shows("R 1 running  PD 0 pending");
    top.shows("cancelled after");
    // Another window size, and a filter.
    top.run(&["resize-window", "-x", "80", "-y", "24"]);
    top.press(&["/", "n", "o", "n", "e", "Enter"]);
    top.shows("R 0  PD 0  ");
    top.shows("/none   Esc clear");
    top.press(&["q"]);
    let exited = slotd_kit::until(|| (!top.run(&["has-session"]).status.success()).then_some(()));
    assert!(exited.is_some(), "slotd top did not exit:\n{}", top.screen());
}

#[test]
fn an_idle_screen_causes_no_wakeups() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let Some(top) = Tmux::start(&slotd, "exec slotd top") else { return };
    top.shows("held by you");
    let pids = [top.pid(), slotd.daemon_pid()];
    let mut before = pids.map(proc::wakeups);
    // On busy machines there are occasional late wakeups, so wait for one quiet second.
    let quiet = slotd_kit::until(|| {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = pids.map(proc::wakeups);
        let woken = now != before;
        before = now;
        (!woken).then_some(())
    });
    assert!(quiet.is_some(), "something woke up in every second");
    slotd.cancel(held);
    top.shows("cancelled before its start");
}

#[test]
fn top_reconnects_to_a_new_daemon_and_restores_the_terminal() {
    let mut slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let script = "slotd top; echo exited $?; stty -a; exec sleep 1000";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    top.shows("held by you");
    slotd.kill9();
    top.shows("daemon unreachable");
    slotd.start_daemon();
    top.hides("daemon unreachable");
    slotd.cancel(held);
    top.shows("cancelled before its start");
    proc::signal(pid_of_top(&slotd), proc::TERM);
    let screen = top.shows("exited 143");
    let screen = if screen.contains("icanon") { screen } else { top.shows("icanon") };
    assert!(
        !screen.contains("-icanon") && !screen.contains("-echo "),
        "the terminal was not restored:\n{screen}"
    );
}

/// Waits until a program uses the whole terminal, or no longer uses it.
#[track_caller]
fn wait_fullscreen(top: &Tmux, wanted: bool) {
    // The terminal processes escape sequences one by one, so wait for all flags together.
    let flags = || {
        top.run(&["display-message", "-p", "#{alternate_on}#{cursor_flag}#{mouse_any_flag}"]).stdout
    };
    let expected: &[u8] = if wanted { b"101" } else { b"010" };
    let same = slotd_kit::until(|| (flags().trim_ascii() == expected).then_some(()));
    assert!(same.is_some(), "{:?}:\n{}", String::from_utf8_lossy(&flags()), top.screen());
}

#[test]
fn every_signal_restores_the_terminal() {
    let slotd = Slotd::start();
    // With a key press in between, so that each run is visible.
    let script = "while :; do slotd top; echo exited $?; stty -a; read key; done";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    for (signal, code) in [(proc::TERM, 143), (proc::HUP, 129), (proc::INT, 130), (proc::QUIT, 131)]
    {
        top.shows("PENDING");
        wait_fullscreen(&top, true);
        proc::signal(pid_of_top(&slotd), signal);
        top.shows(&format!("exited {code}"));
        let screen = top.shows("iexten ");
        assert!(
            !screen.contains("-icanon") && !screen.contains("-echo "),
            "the terminal was not restored:\n{screen}"
        );
        wait_fullscreen(&top, false);
        top.press(&["Enter"]);
    }
}

#[test]
fn a_crash_restores_the_terminal() {
    let slotd = Slotd::start();
    let script = "SLOTD_TEST_BREAK=\"screen drawn:2:$PWD/broken\" slotd top 2> errors; echo exited $?; stty -a; exec sleep 1000";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    top.shows("exited 134");
    slotd.wait_text("errors", "break point: screen drawn");
    let screen = top.shows("iexten ");
    assert!(
        !screen.contains("-icanon") && !screen.contains("-echo "),
        "the terminal was not restored:\n{screen}"
    );
    wait_fullscreen(&top, false);
}

#[test]
fn top_can_be_suspended_and_resumed_by_its_shell() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let Some(top) = Tmux::start(&slotd, "exec env PS1='ready> ' bash --norc --noprofile -i") else {
        return;
    };
    top.shows("ready>");
    top.press(&["slotd top", "Enter"]);
    for stop in [None, Some(proc::TSTP), Some(proc::STOP)] {
        top.shows("held by you");
        wait_fullscreen(&top, true);
        match stop {
            None => top.press(&["C-z"]),
            Some(signal) => proc::signal(pid_of_top(&slotd), signal),
        }
        top.shows("Stopped");
        if stop != Some(proc::STOP) {
            wait_fullscreen(&top, false);
        }
        top.press(&["clear", "Enter"]);
        top.hides("held by you");
        top.press(&["fg", "Enter"]);
    }
    top.shows("held by you");
    wait_fullscreen(&top, true);
    // Keys still work.
    top.press(&["?"]);
    top.shows("q or Esc to return");
    top.press(&["q", "q"]);
    wait_fullscreen(&top, false);
    slotd.cancel(held);
}

#[test]
fn ended_jobs_can_be_resubmitted_and_pending_ones_edited() {
    let slotd = Slotd::start();
    let failed = slotd.wrap(&["-J", "failed"], "exit 3");
    slotd.wait_state(failed, "FAILED");
    let held = slotd.wrap(&["-H", "-J", "held", "-t", "10"], "true");
    slotd.program(
        "editor",
        "#!/bin/sh\nif [ -e stop ]; then exit 4; fi\nsed -i s/--time=.*/--time=20/ \"$1\"\n",
    );
    let Some(top) = Tmux::start(&slotd, "EDITOR=./editor TMPDIR=$PWD exec slotd top") else {
        return;
    };
    top.shows("ENDED 1");
    // Ended jobs cannot be edited.
    top.press(&["Tab", "Tab", "e"]);
    top.shows(&format!("job {failed} is not pending"));
    top.press(&["BTab", "e"]);
    let screen = top.shows("Press Enter to return to slotd top");
    assert!(screen.contains(&format!("changed job {held}")), "{screen}");
    assert_eq!(slotd.show(held, "TimeLimit"), "00:20:00");
    wait_fullscreen(&top, false);
    top.press(&["Enter"]);
    top.shows("held by you");
    wait_fullscreen(&top, true);
    // The error of a failing editor stays visible.
    slotd.write("stop", "");
    top.press(&["e"]);
    top.shows("the editor (./editor) failed, exit status: 4: nothing was changed");
    top.press(&["Enter"]);
    top.shows("held by you");
    top.press(&["Tab", "a"]);
    top.shows(&format!("Submit job {failed} again? (y/n)"));
    top.press(&["y"]);
    top.shows(&format!("Submitted batch job {}", held + 1));
    slotd.wait_state(held + 1, "FAILED");
    top.shows("ENDED 2");
    // For several jobs there is a confirmation.
    top.press(&["*", "a"]);
    top.shows("Submit 2 jobs again? (y/n)");
    top.press(&["y"]);
    top.shows("ENDED 4");
    assert_eq!(slotd.state(held + 3), "FAILED");
    // Pending jobs cannot be submitted again. Wait between the keys, because a key directly after
    // Esc would be a different key.
    top.press(&["Escape"]);
    top.hides("*F ");
    top.press(&["BTab", "a", "y"]);
    top.shows(&format!("job {held} is PENDING"));
}

#[test]
fn keys_work_while_a_terabyte_is_searched() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-o", "long.out"], "echo it begins; exec sleep 1000");
    slotd.wait_text("long.out", "it begins");
    // The file is sparse: only its ends are on disk.
    let file = std::fs::File::options().write(true).open(slotd.path("long.out")).unwrap();
    let end = 1 << 40;
    std::os::unix::fs::FileExt::write_all_at(&file, b"\nit ends\n", end).unwrap();
    let Some(top) = Tmux::start(&slotd, "exec slotd top") else { return };
    top.shows("R 1 running");
    top.press(&["Enter"]);
    top.shows("it ends");
    let read = proc_read(pid_of_top(&slotd));
    assert!(read < 64 << 20, "{read} bytes were read");
    top.press(&["g"]);
    top.shows("it begins");
    top.press(&["/", "nowhere", "Enter"]);
    top.shows("searching for nowhere: 0%");
    top.press(&["z"]);
    top.hides("details");
    top.press(&["G"]);
    top.shows("it ends");
    top.press(&["Escape"]);
    top.shows("the search was stopped");
    top.press(&["/", "it begins", "Enter", "N"]);
    top.shows("searching for it begins");
    top.press(&["Escape"]);
    top.shows("the search was stopped");
    // The whole page, then the lists.
    top.press(&["q"]);
    top.shows("details");
    top.press(&["q"]);
    top.shows("PENDING");
    slotd.cancel(job);
}

/// Returns the number of bytes that a process has read so far.
fn proc_read(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

fn pid_of_top(slotd: &Slotd) -> i32 {
    let is_top = |pid: &i32| proc::cmdline(*pid).starts_with("slotd top");
    proc::of_directory(&slotd.base).into_iter().find(is_top).expect("a running slotd top")
}

#[test]
fn top_exits_with_its_terminal() {
    let slotd = Slotd::start();
    // SIGHUP is ignored, so it is not notified when the terminal is closed.
    let Some(top) = Tmux::start(&slotd, "trap '' HUP; exec slotd top") else { return };
    top.shows("RUNNING");
    let pid = pid_of_top(&slotd);
    top.run(&["kill-server"]);
    assert!(slotd_kit::until(|| (!proc::is_alive(pid)).then_some(())).is_some(), "it did not exit");
}

#[test]
fn top_without_a_terminal_is_an_error() {
    let slotd = Setup::default().prepare();
    let out = slotd.line("slotd top").fails(1);
    assert!(out.stderr.contains("slotd top needs a terminal"), "{out:?}");
}

/// Returns the contents of a terminal with everything replaced that differs between runs: times,
/// sizes, usage figures and bars.
fn masked(slotd: &Slotd, user: &str, screen: &str) -> String {
    let base = slotd.base.to_str().unwrap();
    let word = |word: &str| {
        let (has_digit, first) =
            (word.contains(|c: char| c.is_ascii_digit()), word.chars().next().unwrap_or(' '));
        let end = word.trim_end_matches([',', '.']).chars().last().unwrap_or(' ');
        match word {
            _ if word == user || user.len() > 8 && *word == user[..8] => "USER".to_owned(),
            _ if word.starts_with("UserId=") || word.starts_with("GroupId=") => "ID".to_owned(),
            _ if has_digit && word.contains(':') && !word.contains("after") => {
                let at = word.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
                format!("{}TIME", &word[..at])
            }
            _ if first.is_ascii_digit() && "KMG%".contains(end) => "SIZE".to_owned(),
            _ if word.trim_end_matches(',').parse::<f64>().is_ok() && word.contains('.') => {
                "FIGURE".to_owned()
            }
            _ if has_digit && word.contains('.') => "FIGURE".to_owned(),
            _ if first.is_ascii_digit() && "smhd".contains(end) => "TIME".to_owned(),
            _ => word.chars().filter(|c| !"▁▂▃▄▅▆▇━┅─".contains(*c)).collect(),
        }
    };
    let line = |line: &str| {
        // The length of paths and the usage of short jobs differ between runs.
        let line = match line {
            _ if line.starts_with("stdout ") && line.contains("|stderr ") => "stdout|stderr",
            _ if line.starts_with("stdout ") => "stdout",
            _ => line,
        };
        let words = line.split_whitespace().map(word).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    // The usage of a short job may not have been sampled, and its lines displace further details.
    let further = ["   Priority=", "   JobState=", "   Requeue=", "CPUs in use:", "Memory: "];
    let screen = screen.replace(&slotd_kit::host(), "HOST").replace(base, "BASE");
    screen
        .lines()
        .filter(|line| !further.iter().any(|name| line.starts_with(name)))
        .map(line)
        .collect()
}

/// Waits until the terminal shows the recorded contents. If `UPDATE_EXPECT` is set, records the
/// contents after a few seconds.
#[track_caller]
fn wait_recorded(slotd: &Slotd, top: &Tmux, name: &str) {
    let file = format!("{}/tests/recorded/top/session-{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    let patience = match std::env::var_os("UPDATE_EXPECT") {
        Some(_) => std::time::Duration::from_secs(5),
        None => slotd_kit::PATIENCE,
    };
    let user = slotd.line("squeue -h -t all -j 1 -o %u").ok().stdout;
    let mut last = String::new();
    slotd_kit::until_within(patience, || {
        last = masked(slotd, user.trim(), &top.screen());
        (last == wanted).then_some(())
    });
    assert!(!last.is_empty() && !last.contains("exited "), "slotd top exited:\n{last}");
    expect_test::expect_file![file].assert_eq(&last);
}

#[test]
fn each_list_and_page_of_a_mixed_queue() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", "2").start();
    let broken = slotd.wrap(
        &["-J", "broken", "-o", "broken.out", "-t", "10"],
        "echo it cannot be done >&2; exit 3",
    );
    slotd.wait_state(broken, "FAILED");
    let train = slotd.wrap(
        &[
            "-J",
            "train",
            "-c",
            "2",
            "--gpus=1",
            "--mem=2G",
            "-t",
            "3:00:00",
            "-o",
            "train.out",
            "-e",
            "train.err",
        ],
        "echo epoch 1; printf ' 10%%\\r 50%%\\n'; echo careful >&2; exec sleep 1000",
    );
    slotd.wait_state(train, "RUNNING");
    slotd.wait_text("train.err", "careful");
    let tasks = "case $SLURM_ARRAY_TASK_ID in 0|2) exit 0;; 1) exit 1;; esac; exec sleep 1000";
    slotd.wrap(
        &["-J", "sweep", "-a", "0-9", "-t", "2:00:00", "--mem=100M", "-o", "/dev/null"],
        tasks,
    );
    let running = || slotd.line("squeue -h -r -t R -S i -o %K").ok().stdout;
    slotd.wait("two tasks that keep running", || {
        (running().split_whitespace().collect::<Vec<_>>() == ["N/A", "3", "4"]).then_some(())
    });
    let wide = slotd.wrap(&["-J", "wide", "-c", "4", "-t", "10"], "true");
    slotd.wrap(&["-J", "\u{5f8c}\u{51e6}\u{7406}", "-d", &format!("afterok:{wide}")], "true");
    slotd.wrap(&["-J", "e\u{301}t\u{200b}e", "-H"], "true");
    let Some(top) = Tmux::start(&slotd, "slotd top; echo exited $?; exec sleep 1000") else {
        return;
    };
    wait_recorded(&slotd, &top, "lists");
    // The reason for waiting, as a sentence, and the expanded array.
    top.press(&["Tab", "j"]);
    wait_recorded(&slotd, &top, "waiting");
    top.press(&["BTab", "j", "Enter"]);
    wait_recorded(&slotd, &top, "array");
    top.press(&["k", "Enter"]);
    wait_recorded(&slotd, &top, "page");
    top.press(&["z"]);
    wait_recorded(&slotd, &top, "output");
    top.press(&["q", "q"]);
    top.run(&["resize-window", "-x", "80", "-y", "24"]);
    wait_recorded(&slotd, &top, "80x24");
    top.press(&["Tab", "Tab", "G", "Enter"]);
    wait_recorded(&slotd, &top, "ended");
}

#[test]
fn no_color_disables_colors() {
    let slotd = Slotd::start();
    slotd.wrap(&["-J", "held", "-H"], "true");
    let failed = slotd.wrap(&["-J", "failed"], "exit 3");
    slotd.wait_state(failed, "FAILED");
    // The codes of text colors: 30 to 37, 90 to 97, and 38 with parameters.
    let is_coloured = |top: &Tmux| {
        let text =
            String::from_utf8_lossy(&top.run(&["capture-pane", "-p", "-e"]).stdout).into_owned();
        text.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m')).any(|(codes, _)| {
            let is_colour = |code: &str| matches!(code.as_bytes(), [b'3' | b'9', b'0'..=b'8']);
            codes.split(';').any(is_colour)
        })
    };
    let script = "NO_COLOR=1 slotd top; echo the next; read key; NO_COLOR= exec slotd top";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    top.shows("exit 3 after");
    assert!(!is_coloured(&top), "{}", top.screen());
    top.press(&["q"]);
    top.shows("the next");
    top.press(&["Enter"]);
    top.shows("exit 3 after");
    assert!(is_coloured(&top), "{}", top.screen());
}
