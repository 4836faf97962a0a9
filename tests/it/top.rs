//! `slotd top` on a terminal: what it shows of real jobs, and what its keys do to them. The
//! terminal is tmux's, where there is one.

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
    top.shows("1 running  0 waiting");
    top.shows("4/4 given out");
    let second = slotd.wrap(&["-J", "second"], "exec sleep 1000");
    top.shows("1 running  1 waiting");
    // Why it waits, in a sentence.
    top.press(&["Tab", "j"]);
    top.shows(&format!("job {first} holds 4 CPUs"));
    top.press(&["h"]);
    slotd.wait_reason(second, "JobHeldUser");
    top.shows("JobHeldUser");
    top.press(&["r"]);
    slotd.wait_reason(second, "Resources");
    top.shows(&format!("released: {second}"));
    // Its page, with what it writes as it is written.
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
    // The page has the state of its job in its title: only the lists have this.
    top.press(&["Escape"]);
    top.shows("WAITING");
    top.press(&["c"]);
    top.shows(&format!("Cancel job {first}? (y/n)"));
    top.press(&["n"]);
    top.hides("(y/n)");
    assert_eq!(slotd.state(first), "RUNNING");
    top.press(&["c", "y"]);
    slotd.wait_state(first, "CANCELLED");
    slotd.wait_state(second, "RUNNING");
    top.shows("1 running  0 waiting  1 ended");
    top.shows("CANCELLED");
    // Another size, and only what is asked for.
    top.run(&["resize-window", "-x", "80", "-y", "24"]);
    top.press(&["/", "n", "o", "n", "e", "Enter"]);
    top.shows("0 running  0 waiting  0 ended");
    top.press(&["q"]);
    let over = slotd_kit::until(|| (!top.run(&["has-session"]).status.success()).then_some(()));
    assert!(over.is_some(), "it does not end:\n{}", top.screen());
}

#[test]
fn an_idle_screen_wakes_nobody() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let Some(top) = Tmux::start(&slotd, "exec slotd top") else { return };
    top.shows("JobHeldUser");
    let pids = [top.pid(), slotd.daemon_pid()];
    let mut before = pids.map(proc::wakeups);
    // Busy machines bring a late wake-up now and then: some quiet second must come.
    let quiet = slotd_kit::until(|| {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = pids.map(proc::wakeups);
        let woken = now != before;
        before = now;
        (!woken).then_some(())
    });
    assert!(quiet.is_some(), "something woke up in every second of a minute");
    slotd.cancel(held);
    top.shows("CANCELLED");
}

#[test]
fn a_new_daemon_is_followed_and_the_terminal_is_given_back() {
    let mut slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let script = "slotd top; echo over $?; stty -a; exec sleep 1000";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    top.shows("JobHeldUser");
    slotd.kill9();
    top.shows("the daemon is gone");
    slotd.start_daemon();
    top.hides("the daemon is gone");
    slotd.cancel(held);
    top.shows("CANCELLED");
    proc::signal(pid_of_top(&slotd), proc::TERM);
    let screen = top.shows("over 143");
    let screen = if screen.contains("icanon") { screen } else { top.shows("icanon") };
    assert!(
        !screen.contains("-icanon") && !screen.contains("-echo "),
        "the terminal is as it was:\n{screen}"
    );
}

/// Waits until a program has the terminal, or has it no more.
#[track_caller]
fn is_taken(top: &Tmux, wanted: bool) {
    // What is sent to a terminal comes one after the other.
    let flags = || {
        top.run(&["display-message", "-p", "#{alternate_on}#{cursor_flag}#{mouse_any_flag}"]).stdout
    };
    let expected: &[u8] = if wanted { b"101" } else { b"010" };
    let same = slotd_kit::until(|| (flags().trim_ascii() == expected).then_some(()));
    assert!(same.is_some(), "{:?}:\n{}", String::from_utf8_lossy(&flags()), top.screen());
}

#[test]
fn whatever_ends_it_gives_the_terminal_back() {
    let slotd = Slotd::start();
    // With a key between them, so that each is seen.
    let script = "while :; do slotd top; echo over $?; stty -a; read key; done";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    for (signal, code) in [(proc::TERM, 143), (proc::HUP, 129), (proc::INT, 130), (proc::QUIT, 131)]
    {
        top.shows("WAITING");
        is_taken(&top, true);
        proc::signal(pid_of_top(&slotd), signal);
        top.shows(&format!("over {code}"));
        let screen = top.shows("iexten ");
        assert!(
            !screen.contains("-icanon") && !screen.contains("-echo "),
            "the terminal is as it was:\n{screen}"
        );
        is_taken(&top, false);
        top.press(&["Enter"]);
    }
}

#[test]
fn a_fault_of_its_own_gives_the_terminal_back() {
    let slotd = Slotd::start();
    let script = "SLOTD_TEST_BREAK=\"screen drawn:2:$PWD/broken\" slotd top 2> told; echo over $?; stty -a; exec sleep 1000";
    let Some(top) = Tmux::start(&slotd, script) else { return };
    top.shows("over 134");
    slotd.wait_text("told", "break point: screen drawn");
    let screen = top.shows("iexten ");
    assert!(
        !screen.contains("-icanon") && !screen.contains("-echo "),
        "the terminal is as it was:\n{screen}"
    );
    is_taken(&top, false);
}

#[test]
fn it_stops_and_goes_on_with_its_shell() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H", "-J", "held"], "true");
    let Some(top) = Tmux::start(&slotd, "exec env PS1='ready> ' bash --norc --noprofile -i") else {
        return;
    };
    top.shows("ready>");
    top.press(&["slotd top", "Enter"]);
    for stop in [None, Some(proc::TSTP), Some(proc::STOP)] {
        top.shows("JobHeldUser");
        is_taken(&top, true);
        match stop {
            None => top.press(&["C-z"]),
            Some(signal) => proc::signal(pid_of_top(&slotd), signal),
        }
        top.shows("Stopped");
        if stop != Some(proc::STOP) {
            is_taken(&top, false);
        }
        top.press(&["clear", "Enter"]);
        top.hides("JobHeldUser");
        top.press(&["fg", "Enter"]);
    }
    top.shows("JobHeldUser");
    is_taken(&top, true);
    // Keys are heard.
    top.press(&["?"]);
    top.shows("any key goes back");
    top.press(&["?", "q"]);
    is_taken(&top, false);
    slotd.cancel(held);
}

#[test]
fn what_is_over_is_submitted_again_and_what_waits_is_edited() {
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
    top.shows("0 running  1 waiting  1 ended");
    // What is over cannot be edited.
    top.press(&["Tab", "Tab", "e"]);
    top.shows(&format!("job {failed} does not wait"));
    top.press(&["BTab", "e"]);
    let screen = top.shows("Enter goes back to slotd top");
    assert!(screen.contains(&format!("job {held} is changed")), "{screen}");
    assert_eq!(slotd.show(held, "TimeLimit"), "00:20:00");
    is_taken(&top, false);
    top.press(&["Enter"]);
    top.shows("JobHeldUser");
    is_taken(&top, true);
    // What comes of an editor that fails can be read, too.
    slotd.write("stop", "");
    top.press(&["e"]);
    top.shows("the editor (./editor) failed, exit status: 4: nothing was changed");
    top.press(&["Enter"]);
    top.shows("JobHeldUser");
    top.press(&["Tab", "a"]);
    top.shows(&format!("Submitted batch job {}", held + 1));
    slotd.wait_state(held + 1, "FAILED");
    top.shows("0 running  1 waiting  2 ended");
    // Several are asked about.
    top.press(&["*", "a"]);
    top.shows("Submit 2 jobs again? (y/n)");
    top.press(&["y"]);
    top.shows("0 running  1 waiting  4 ended");
    assert_eq!(slotd.state(held + 3), "FAILED");
    // What waits is not over.
    // A key that follows Esc at once is another key.
    top.press(&["Escape"]);
    top.hides(&format!("*{failed} "));
    top.press(&["BTab", "a"]);
    top.shows(&format!("job {held} is PENDING"));
}

#[test]
fn keys_are_heard_while_a_terabyte_is_searched() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-o", "long.out"], "echo it begins; exec sleep 1000");
    slotd.wait_text("long.out", "it begins");
    // The disk has its ends alone.
    let file = std::fs::File::options().write(true).open(slotd.path("long.out")).unwrap();
    let end = 1 << 40;
    std::os::unix::fs::FileExt::write_all_at(&file, b"\nit ends\n", end).unwrap();
    let Some(top) = Tmux::start(&slotd, "exec slotd top") else { return };
    top.shows("1 running");
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
    top.press(&["Escape"]);
    top.shows("WAITING");
    slotd.cancel(job);
}

/// Bytes that a process has read so far.
fn proc_read(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

fn pid_of_top(slotd: &Slotd) -> i32 {
    let is_it = |pid: &i32| proc::cmdline(*pid).starts_with("slotd top");
    proc::of_directory(&slotd.base).into_iter().find(is_it).expect("it runs")
}

#[test]
fn it_ends_with_its_terminal() {
    let slotd = Slotd::start();
    // Nobody tells it that the terminal is closed.
    let Some(top) = Tmux::start(&slotd, "trap '' HUP; exec slotd top") else { return };
    top.shows("RUNNING");
    let pid = pid_of_top(&slotd);
    top.run(&["kill-server"]);
    assert!(slotd_kit::until(|| (!proc::is_alive(pid)).then_some(())).is_some(), "it runs on");
}

#[test]
fn without_a_terminal_it_says_so() {
    let slotd = Setup::default().prepare();
    let out = slotd.line("slotd top").fails(1);
    assert!(out.stderr.contains("slotd top needs a terminal"), "{out:?}");
}

/// What a terminal shows, without what is another each time: times, sizes, figures of use, bars
/// over time.
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
            _ => word.chars().filter(|c| !"▁▂▃▄▅▆▇".contains(*c)).collect(),
        }
    };
    let line = |line: &str| {
        // How long a path is, and what so short a job used, is another each time.
        let line = match line {
            _ if line.starts_with("stdout ") && line.contains("|stderr ") => "stdout|stderr",
            _ if line.starts_with("stdout ") => "stdout",
            _ => line.find(" FAILED ").map_or(line, |at| {
                line[at + 8..].find('3').map_or(line, |to| &line[..at + 9 + to])
            }),
        };
        line.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n"
    };
    // What a short job used over time was measured or not, and takes the place of further details.
    let further = ["   Priority=", "   JobState=", "   Requeue=", "CPUs in use:", "Memory: "];
    let screen = screen.replace(&slotd_kit::host(), "HOST").replace(base, "BASE");
    screen
        .lines()
        .filter(|line| !further.iter().any(|name| line.starts_with(name)))
        .map(line)
        .collect()
}

/// Waits until the terminal shows what was recorded. `UPDATE_EXPECT` in the environment records
/// what it shows after a while.
#[track_caller]
fn is_recorded(slotd: &Slotd, top: &Tmux, name: &str) {
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
    assert!(!last.is_empty() && !last.contains("over "), "it has ended:\n{last}");
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
    slotd.wait("two tasks run that stay", || {
        (running().split_whitespace().collect::<Vec<_>>() == ["N/A", "3", "4"]).then_some(())
    });
    let wide = slotd.wrap(&["-J", "wide", "-c", "4", "-t", "10"], "true");
    slotd.wrap(&["-J", "\u{5f8c}\u{51e6}\u{7406}", "-d", &format!("afterok:{wide}")], "true");
    slotd.wrap(&["-J", "e\u{301}t\u{200b}e", "-H"], "true");
    let Some(top) = Tmux::start(&slotd, "slotd top; echo over $?; exec sleep 1000") else { return };
    is_recorded(&slotd, &top, "lists");
    // Why it waits, in a sentence; its array, open.
    top.press(&["Tab", "j"]);
    is_recorded(&slotd, &top, "waiting");
    top.press(&["BTab", "j", "Enter"]);
    is_recorded(&slotd, &top, "array");
    top.press(&["k", "Enter"]);
    is_recorded(&slotd, &top, "page");
    top.press(&["z"]);
    is_recorded(&slotd, &top, "output");
    top.press(&["Escape"]);
    top.run(&["resize-window", "-x", "80", "-y", "24"]);
    is_recorded(&slotd, &top, "80x24");
    top.press(&["Tab", "Tab", "G", "Enter"]);
    is_recorded(&slotd, &top, "ended");
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    let slotd = Slotd::start();
    slotd.wrap(&["-J", "held", "-H"], "true");
    let failed = slotd.wrap(&["-J", "failed"], "exit 3");
    slotd.wait_state(failed, "FAILED");
    // Of the text: 30 to 37, 90 to 97, and 38 with what follows.
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
    top.shows("FAILED");
    assert!(!is_coloured(&top), "{}", top.screen());
    top.press(&["q"]);
    top.shows("the next");
    top.press(&["Enter"]);
    top.shows("FAILED");
    assert!(is_coloured(&top), "{}", top.screen());
}
