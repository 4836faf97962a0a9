//! CPU use by processes outside of jobs: simulated on fake CPUs, and real on this host's CPUs.

use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::process::{Child, Command};

/// Starts a daemon with four CPUs. [`set_cpu_use`] sets their use by other processes.
fn host(setup: Setup) -> Slotd {
    let mut slotd = setup.prepare();
    set_cpu_use(&slotd, "");
    slotd.reset_var("SLOTD_TEST_CPU_USE", slotd.base.join("cpu_use").display());
    slotd.start_daemon();
    slotd
}

/// Sets the percentage of each CPU that other processes use. The file is replaced atomically,
/// because the daemon may read it at any moment.
fn set_cpu_use(slotd: &Slotd, text: &str) {
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

/// A busy process outside of the queue.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn cpus_that_others_use_are_allocated_only_once_they_are_free() {
    let slotd = host(avoiding());
    set_cpu_use(&slotd, "0 70\n1 40\n2 90\n3 10\n");
    let wide = slotd.wrap(&["-c3"], "true");
    slotd.wait_reason(wide, "Resources");
    let comment =
        "processes outside jobs use 2.10 CPUs, so 2 CPUs of the host's 4 cannot be allocated";
    assert_eq!(slotd.system_comment(wide), comment);
    assert!(node(&slotd).contains("CPUForeignLoad=2.10 CPUForeign=2\n"), "{}", node(&slotd));
    // Smaller jobs can still start on the other CPUs.
    let narrow = slotd.endless(&["-c2"]);
    slotd.wait_state(narrow, "RUNNING");
    let shown = slotd.cmd("scontrol", &["-d", "show", "job", &narrow.to_string()]).ok().stdout;
    assert!(shown.contains("CPU_IDs=1,3 "), "the busiest CPUs are avoided: {shown}");
    slotd.cancel(narrow);
    set_cpu_use(&slotd, "0 30\n");
    slotd.wait_state(wide, "COMPLETED");
    assert!(node(&slotd).contains("CPUForeignLoad=0.30 CPUForeign=0\n"), "{}", node(&slotd));
}

#[test]
fn use_by_others_is_ignored_by_default() {
    let slotd = host(Setup::default());
    set_cpu_use(&slotd, "0 100\n1 100\n2 100\n3 100\n");
    slotd.wait_state(slotd.wrap(&["-c4"], "true"), "COMPLETED");
    assert!(!node(&slotd).contains("CPUForeign"), "{}", node(&slotd));
}

#[test]
fn a_busy_loop_outside_of_jobs_takes_a_cpu() {
    let slotd = avoiding().set("SLOTD_CPUS", "100%").start();
    let cpus: u32 = slotd.line("sinfo -h -o %c").ok().text().parse().unwrap();
    let loops: Vec<Busy> = (0..cpus)
        .map(|_| Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()))
        .collect();
    let job = slotd.wrap(&["-c", &cpus.to_string()], "true");
    slotd.wait_reason(job, "Resources");
    let comment = slotd.system_comment(job);
    assert!(comment.starts_with("processes outside jobs use "), "{comment}");
    assert!(loops.iter().all(|busy| proc::is_alive(busy.0.id().cast_signed())));
}
