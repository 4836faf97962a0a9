//! Loads whose use of memory and CPU time is known, and what slotd tells of them.

use crate::Slotd;

/// A job of known use.
pub struct Load {
    pub name: &'static str,
    /// The script.
    pub command: &'static str,
    /// The most memory at a time, MB; what the programs themselves need comes on top.
    pub rss_mb: Option<f64>,
    /// CPU time, seconds; the start of the programs comes on top.
    pub cpu_secs: Option<f64>,
}

/// What each load tries to hide from who looks now and then.
pub const LOADS: [Load; 9] = [
    Load { name: "one process of 200 MB", command: "helper eat 200", rss_mb: Some(200.0), cpu_secs: None },
    Load { name: "five of 30 MB for 0.6 s", command: "helper own 5 30 600", rss_mb: Some(150.0), cpu_secs: None },
    Load { name: "100 MB that five share", command: "helper shared 5 100 600", rss_mb: Some(100.0), cpu_secs: None },
    Load { name: "a peak of 0.2 s", command: "helper peak 150 200", rss_mb: Some(150.0), cpu_secs: Some(0.93) },
    Load { name: "two that grow slowly", command: "helper grow 60 2500", rss_mb: Some(120.0), cpu_secs: None },
    Load { name: "a file that is mapped", command: "helper map 120 400", rss_mb: Some(120.0), cpu_secs: None },
    Load { name: "a file that is read", command: "helper read 300 400", rss_mb: Some(0.0), cpu_secs: None },
    Load { name: "a child nobody waits for", command: "helper unwaited 1", rss_mb: None, cpu_secs: Some(1.0) },
    Load { name: "forty short children", command: "helper short 40 25", rss_mb: None, cpu_secs: Some(1.0) },
];

/// Starts the load.
pub fn start(slotd: &Slotd, load: &Load) -> u32 {
    slotd.wrap(&[], &format!("exec {}", load.command))
}

/// The memory in MB and the CPU time in seconds that sacct tells of a load, when it has ended.
pub fn told(slotd: &Slotd, job: u32) -> (f64, f64) {
    slotd.wait_state(job, "COMPLETED");
    let step = format!("{job}.batch");
    let told = slotd.cmd("sacct", &["-nP", "--noconvert", "-o", "MaxRSS,TotalCPU", "-j", &step]).ok();
    let (rss, cpu) = told.text().split_once('|').expect("two fields");
    let kb: f64 = rss.trim_end_matches('K').parse().expect("a number");
    let secs = cpu.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().expect("a number"));
    (kb / 1024.0, secs)
}

/// The heads of the columns of [`row`].
pub fn heads(title: &str) -> String {
    format!("{title:26} {:>10} {:>10} {:>8}   {:>8} {:>8} {:>8}", "MB", "told", "error", "CPU s", "told", "error")
}

/// What is told of a load, beside the truth.
pub fn row(load: &Load, (mb, secs): (f64, f64)) -> String {
    let truth = |truth: Option<f64>| truth.map_or("-".to_owned(), |truth| format!("{truth:.2}"));
    let error = |truth: Option<f64>, told: f64| match truth {
        Some(truth) if truth > 0.0 => format!("{:+.1} %", (told - truth) / truth * 100.0),
        _ => "-".to_owned(),
    };
    format!(
        "{:26} {:>10} {mb:>10.2} {:>8}   {:>8} {secs:>8.2} {:>8}",
        load.name,
        truth(load.rss_mb),
        error(load.rss_mb, mb),
        truth(load.cpu_secs),
        error(load.cpu_secs, secs),
    )
}
