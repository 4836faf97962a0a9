//! Processes beside the queue that use CPUs: pretended ones on pretended CPUs, and a real one on
//! those of this host.

use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::process::{Child, Command};

/// A daemon with four CPUs, of which others use what [`tell`] says.
fn host(setup: Setup) -> Slotd {
    let mut slotd = setup.prepare();
    tell(&slotd, "");
    slotd.reset_var("SLOTD_TEST_CPU_USE", slotd.base.join("cpu_use").display());
    slotd.start_daemon();
    slotd
}

/// From now on this is how much of each CPU others use, per cent. It may be read at any moment.
fn tell(slotd: &Slotd, text: &str) {
    let file = slotd.base.join("cpu_use");
    fs::write(file.with_extension("new"), text).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

fn avoiding() -> Setup {
    Setup::default().set("SLOTD_CPU_FOREIGN", "avoid")
}

fn node(slotd: &Slotd) -> String {
    slotd.cmd("scontrol", &["show", "node"]).ok().stdout
}

/// A process that the queue knows nothing of, and that uses all that it can get of a CPU.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn cpus_that_others_use_are_not_sold_until_they_are_left() {
    let slotd = host(avoiding());
    tell(&slotd, "0 70\n1 40\n2 90\n3 10\n");
    let wide = slotd.wrap(&["-c3"], "true");
    slotd.wait_reason(wide, "Resources");
    let words =
        "processes that are no job's use 2.10 CPUs, so that 2 CPUs of the host's 4 are taken";
    assert_eq!(slotd.system_comment(wide), words);
    assert!(node(&slotd).contains("CPUForeignLoad=2.10 CPUForeign=2\n"), "{}", node(&slotd));
    // It keeps nobody else from starting, who gets what is left.
    let narrow = slotd.endless(&["-c2"]);
    slotd.wait_state(narrow, "RUNNING");
    let shown = slotd.cmd("scontrol", &["-d", "show", "job", &narrow.to_string()]).ok().stdout;
    assert!(shown.contains("CPU_IDs=1,3 "), "the busiest are left alone: {shown}");
    slotd.cancel(narrow);
    tell(&slotd, "0 30\n");
    slotd.wait_state(wide, "COMPLETED");
    assert!(node(&slotd).contains("CPUForeignLoad=0.30 CPUForeign=0\n"), "{}", node(&slotd));
}

#[test]
fn where_it_is_not_set_so_others_do_not_count() {
    let slotd = host(Setup::default());
    tell(&slotd, "0 100\n1 100\n2 100\n3 100\n");
    slotd.wait_state(slotd.wrap(&["-c4"], "true"), "COMPLETED");
    assert!(!node(&slotd).contains("CPUForeign"), "{}", node(&slotd));
}

#[test]
fn a_busy_loop_beside_the_queue_takes_a_seat() {
    let slotd = avoiding().set("SLOTD_CPUS", "100%").start();
    let there: u32 = slotd.line("sinfo -h -o %c").ok().text().parse().unwrap();
    let loops: Vec<Busy> = (0..there)
        .map(|_| Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()))
        .collect();
    let job = slotd.wrap(&["-c", &there.to_string()], "true");
    slotd.wait_reason(job, "Resources");
    let words = slotd.system_comment(job);
    assert!(words.starts_with("processes that are no job's use "), "{words}");
    assert!(loops.iter().all(|busy| proc::is_alive(busy.0.id().cast_signed())));
}
