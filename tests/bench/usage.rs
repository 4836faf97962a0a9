//! The memory and CPU time of jobs according to `sacct`, compared with the actual values: `cargo
//! bench --bench usage`. With a delegated cgroup in `SLOTD_TEST_CGROUP`, also as measured there.

use slotd_kit::loads::{LOADS, heads, row, start, told};
use slotd_kit::{Setup, Slotd};

fn main() {
    table("without a cgroup", &Slotd::start());
    if let Ok(base) = std::env::var("SLOTD_TEST_CGROUP") {
        table("with a cgroup", &Setup::default().set("SLOTD_CGROUP_BASE", base).start());
    }
}

fn table(title: &str, slotd: &Slotd) {
    println!("{}", heads(title));
    for load in &LOADS {
        println!("{}", row(load, told(slotd, start(slotd, load))));
    }
}
