//! What sacct tells of the memory and the CPU time of jobs, beside the truth: `cargo bench --bench usage`. With a delegated
//! cgroup, `SLOTD_TEST_CGROUP`, also as measured there.

use slotd_kit::loads::{LOADS, start, told};
use slotd_kit::{Setup, Slotd};

fn main() {
    table("without a cgroup", &Slotd::start());
    if let Ok(base) = std::env::var("SLOTD_TEST_CGROUP") {
        table("with a cgroup", &Setup::default().set("SLOTD_CGROUP_BASE", base).start());
    }
}

fn table(title: &str, slotd: &Slotd) {
    println!("{title:26} {:>10} {:>10} {:>8}   {:>8} {:>8} {:>8}", "MB", "told", "error", "CPU s", "told", "error");
    for load in &LOADS {
        let (mb, secs) = told(slotd, start(slotd, load));
        let truth = |truth: Option<f64>| truth.map_or("-".to_owned(), |truth| format!("{truth:.2}"));
        let error = |truth: Option<f64>, told: f64| match truth {
            Some(truth) if truth > 0.0 => format!("{:+.1} %", (told - truth) / truth * 100.0),
            _ => "-".to_owned(),
        };
        println!(
            "{:26} {:>10} {mb:>10.2} {:>8}   {:>8} {secs:>8.2} {:>8}",
            load.name,
            truth(load.rss_mb),
            error(load.rss_mb, mb),
            truth(load.cpu_secs),
            error(load.cpu_secs, secs),
        );
    }
}
