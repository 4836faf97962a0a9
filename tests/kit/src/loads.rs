//! Loads with known memory and CPU usage, and slotd's measurements of them.

use crate::Slotd;

/// A job with known resource usage.
pub struct Load {
    pub name: &'static str,
    /// The batch script.
    pub command: &'static str,
    /// The peak memory in MB, without that of the programs themselves.
    pub rss_mb: Option<f64>,
    /// Whether it uses noticeable CPU time.
    pub is_busy: bool,
}

/// Loads that are hard to measure by sampling.
pub const LOADS: [Load; 9] = [
    Load {
        name: "one process of 200 MB",
        command: "helper eat 200",
        rss_mb: Some(200.0),
        is_busy: false,
    },
    Load {
        name: "five of 30 MB for 0.6 s",
        command: "helper own 5 30 600",
        rss_mb: Some(150.0),
        is_busy: false,
    },
    Load {
        name: "100 MB shared by five",
        command: "helper shared 5 100 600",
        rss_mb: Some(100.0),
        is_busy: false,
    },
    Load {
        name: "a peak of 0.2 s",
        command: "helper peak 150 200",
        rss_mb: Some(150.0),
        is_busy: true,
    },
    Load {
        name: "two growing slowly",
        command: "helper grow 60 2500",
        rss_mb: Some(120.0),
        is_busy: false,
    },
    Load {
        name: "a mapped file",
        command: "helper map 120 400",
        rss_mb: Some(120.0),
        is_busy: false,
    },
    Load {
        name: "a file read once",
        command: "helper read 300 400",
        rss_mb: Some(0.0),
        is_busy: false,
    },
    Load {
        name: "a child nobody waits for",
        command: "helper unwaited 1",
        rss_mb: None,
        is_busy: true,
    },
    Load {
        name: "forty short children",
        command: "helper short 40 25",
        rss_mb: None,
        is_busy: true,
    },
];

/// Submits the load as a job.
pub fn start(slotd: &Slotd, load: &Load) -> u32 {
    slotd.wrap(&[], &format!("exec {}", load.command))
}

/// The measurements of `sacct` for a finished load, and its actual CPU time.
#[derive(Clone, Copy)]
pub struct Told {
    pub mb: f64,
    /// CPU time in seconds, as measured.
    pub secs: f64,
    /// CPU time in seconds, as the kernel reported it to the processes.
    pub true_secs: f64,
}

impl Told {
    /// Whether the measured CPU time is within five percent of the actual one, plus two of the
    /// kernel's 10 ms ticks.
    pub fn has_true_time(&self) -> bool {
        (self.secs - self.true_secs).abs() <= self.true_secs * 0.05 + 0.02
    }
}

pub fn told(slotd: &Slotd, job: u32) -> Told {
    slotd.wait_state(job, "COMPLETED");
    let step = format!("{job}.batch");
    let told =
        slotd.cmd("sacct", &["-nP", "--noconvert", "-o", "MaxRSS,TotalCPU", "-j", &step]).ok();
    let (rss, cpu) = told.text().split_once('|').expect("two fields");
    let kb: f64 = rss.trim_end_matches('K').parse().expect("a number");
    let secs =
        cpu.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().expect("a number"));
    let output = slotd.output(job);
    let lines = output.lines().filter_map(|line| line.strip_prefix("cpu_us ")?.parse::<f64>().ok());
    Told { mb: kb / 1024.0, secs, true_secs: lines.sum::<f64>() / 1e6 }
}

/// Returns the column headings for [`row`].
pub fn heads(title: &str) -> String {
    format!(
        "{title:26} {:>10} {:>10} {:>8}   {:>8} {:>8} {:>8}",
        "MB", "measured", "error", "CPU s", "measured", "error"
    )
}

/// Returns a row with measured and actual values. The error is omitted for loads with little CPU
/// time.
pub fn row(load: &Load, told: Told) -> String {
    let error = |truth: f64, told: f64| format!("{:+.1} %", (told - truth) / truth * 100.0);
    let rss = load.rss_mb.map_or("-".to_owned(), |mb| format!("{mb:.2}"));
    let of_rss = load.rss_mb.filter(|mb| *mb > 0.0).map_or("-".to_owned(), |mb| error(mb, told.mb));
    let of_cpu = if load.is_busy { error(told.true_secs, told.secs) } else { "-".to_owned() };
    format!(
        "{:26} {rss:>10} {:>10.2} {of_rss:>8}   {:>8.2} {:>8.2} {of_cpu:>8}",
        load.name, told.mb, told.true_secs, told.secs
    )
}
