//! What jobs are told to have used is what they have used.

use slotd_kit::Setup;
use slotd_kit::loads::{LOADS, heads, row, start, told};

#[test]
fn memory_and_cpu_time_are_told_as_they_were() {
    let slotd = Setup::default().set("SLOTD_CPUS", 64).start();
    let jobs = LOADS.map(|load| (start(&slotd, &load), load));
    let mut wrong = Vec::new();
    println!("{}", heads("without a cgroup"));
    for (job, load) in jobs {
        let told = told(&slotd, job);
        println!("{}", row(&load, told));
        // The programs themselves are a few MB, and a busy machine looks late: what nobody waits
        // for is known as of then.
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
