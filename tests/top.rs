//! `slotd top` on a terminal: what it shows of real jobs, and what its keys do to them. The terminal is tmux's, where there
//! is one.

use slotd_kit::tmux::Tmux;
use slotd_kit::{Setup, Slotd, proc};

#[test]
fn a_session_with_real_jobs() {
    let slotd = Slotd::start();
    let first =
        slotd.wrap(&["-J", "first", "-c", "4", "-t", "10"], "echo it begins; echo and warns >&2; exec sleep 1000");
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
        &mut std::fs::File::options().append(true).open(slotd.path(&format!("slurm-{first}.out"))).unwrap(),
        b"one line more\n",
    )
    .unwrap();
    top.shows("one line more");
    top.press(&["Escape"]);
    top.shows("RUNNING");
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
    assert!(!screen.contains("-icanon") && !screen.contains("-echo "), "the terminal is as it was:\n{screen}");
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
