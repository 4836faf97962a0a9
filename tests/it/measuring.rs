//! The reported resource use of jobs is accurate.

use slotd_kit::Setup;
use slotd_kit::loads::{LOADS, heads, row, start, told};

#[test]
fn reported_memory_and_cpu_time_are_accurate() {
    let slotd = Setup::default().set("SLOTD_CPUS", 64).start();
    let jobs = LOADS.map(|load| (start(&slotd, &load), load));
    let mut wrong = Vec::new();
    println!("{}", heads("without a cgroup"));
    for (job, load) in jobs {
        let told = told(&slotd, job);
        println!("{}", row(&load, told));
        // The programs themselves use a few MB. On a busy machine samples are late, and processes
        // that nobody waits for are counted only up to the last sample.
        let is_late = |truth: f64| told.mb < truth * 0.87 || told.mb > truth * 1.05 + 12.0;
        let is_unwaited =
            load.command.starts_with("helper unwaited") && told.secs >= told.true_secs * 0.87;
        if load.rss_mb.is_some_and(is_late) || load.is_busy && !is_unwaited && !told.has_true_time()
        {
            wrong.push(row(&load, told));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
