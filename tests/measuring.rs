//! What jobs are told to have used is what they have used.

use slotd_kit::Setup;
use slotd_kit::loads::{LOADS, start, told};

#[test]
fn memory_and_cpu_time_are_told_as_they_were() {
    let slotd = Setup::default().set("SLOTD_CPUS", 64).start();
    let jobs = LOADS.map(|load| (start(&slotd, &load), load));
    let mut wrong = Vec::new();
    for (job, load) in jobs {
        let (mb, secs) = told(&slotd, job);
        // The programs themselves are a few MB, and a busy machine looks late.
        if load.rss_mb.is_some_and(|truth| mb < truth * 0.87 || mb > truth * 1.05 + 12.0) {
            wrong.push(format!("{}: {mb} MB", load.name));
        }
        if load.cpu_secs.is_some_and(|truth| secs < truth * 0.87 || secs > truth * 1.05 + 0.3) {
            wrong.push(format!("{}: {secs} s", load.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
