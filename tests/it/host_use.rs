//! The resource use of the host over time, recorded while jobs run.

use serde_json::Value;
use slotd_kit::{Setup, Slotd};
use std::fs;

fn report(slotd: &Slotd, args: &[&str]) -> Value {
    let text = slotd.cmd("slotd", &[&["report", "--host", "--json"], args].concat()).ok().stdout;
    serde_json::from_str(&text).expect("JSON")
}

fn spans(slotd: &Slotd) -> Vec<Value> {
    report(slotd, &[])["spans"].as_array().expect("a list").clone()
}

fn number(span: &Value, key: &str) -> u64 {
    span[key].as_u64().unwrap_or_else(|| panic!("{key} is missing: {span}"))
}

/// Returns the total duration of all spans in milliseconds, and their CPU time in microseconds.
fn sums(spans: &[Value]) -> (u64, u64) {
    spans
        .iter()
        .fold((0, 0), |(ms, us), span| (ms + number(span, "ms"), us + number(span, "cpu_us")))
}

#[test]
fn the_use_of_the_host_is_recorded_during_jobs_and_survives_a_crash() {
    let mut slotd = Slotd::start();
    assert_eq!(spans(&slotd), [] as [Value; 0], "no samples are taken while no job runs");
    let empty = slotd.cmd("slotd", &["report", "--host"]).ok().stdout;
    assert!(
        empty.lines().count() == 1 && empty.contains(": jobs ran for 0.00 of 24.00 hours, "),
        "{empty}"
    );
    let job = slotd.begun(&[], "go", "true");
    slotd.cmd("srun", &["helper", "burn", "300"]).ok();
    // The report includes samples that are not written yet.
    slotd.wait("a span", || (sums(&spans(&slotd)).1 >= 300_000).then_some(()));
    let now = spans(&slotd);
    let last = now.last().expect("a span");
    assert!(number(last, "mem_max") > 1 << 20 && number(last, "cpus") > 0, "{last}");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let file = slotd.root.join("lib/host_use.jsonl");
    slotd.wait("the file", || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n')));
    // The unwritten span grows with each sample, so wait for two equal readings.
    let (kept, used) = slotd.wait("the end of the last span", || {
        let seen = sums(&spans(&slotd));
        (sums(&spans(&slotd)) == seen).then_some(seen)
    });
    assert!(kept > 0 && used >= 300_000, "{kept} {used}");

    slotd.kill9();
    // A crash may leave an incomplete line.
    fs::write(&file, fs::read_to_string(&file).unwrap() + "{\"from\":17").unwrap();
    slotd.start_daemon();
    assert_eq!(sums(&spans(&slotd)), (kept, used));
    // No job ran in between, so there is a gap.
    let between = "the next span";
    slotd.wrap(&["-W"], "true");
    let all = slotd.wait(between, || Some(spans(&slotd)).filter(|all| sums(all).0 > kept));
    let length: u64 = all.iter().map(|span| number(span, "to_ms") - number(span, "from_ms")).sum();
    let whole = number(all.last().unwrap(), "to_ms") - number(&all[0], "from_ms");
    assert!(sums(&all).0 < whole && length <= whole, "{all:#?}");
}

#[test]
fn the_use_of_the_host_is_plotted_as_text_html_and_svg() {
    let slotd = Slotd::start();
    let _job = slotd.begun(&[], "go", "true");
    slotd.wait("a span", || (sums(&spans(&slotd)).0 >= 10).then_some(()));
    let text = slotd.cmd("slotd", &["report", "--host", "-S", "now-1minute"]).ok().stdout;
    for title in [": jobs ran for 0.0", "\nCPUs in use: ", "\nMemory in use: ", "\nLoad: "] {
        assert!(text.contains(title), "{title}: {text}");
    }
    assert!(
        text.lines().any(|line| line.trim_end().ends_with('#') && line.starts_with(' ')),
        "bars after a gap: {text}"
    );
    slotd.cmd("slotd", &["report", "--host", "--html", "host.html", "--svg", "host.svg"]).ok();
    let (page, picture) = (slotd.read("host.html"), slotd.read("host.svg"));
    for text in [&page, &picture] {
        assert!(
            text.contains("<svg") && text.contains("CPUs in use: ") && text.contains("<rect"),
            "{text}"
        );
        assert!(
            !text.contains("src=") && !text.contains("<script"),
            "the page loads no resources and runs no scripts: {text}"
        );
    }
    let report = report(&slotd, &["-S", "now-1hour"]);
    assert_eq!(report["to"].as_i64().unwrap() - report["from"].as_i64().unwrap(), 3600);
    let refused = slotd.cmd("slotd", &["report", "--host", "-n", "train"]).fails(2);
    assert!(refused.stderr.contains("--host") && refused.stdout.is_empty(), "{refused:?}");
}

#[test]
fn gpu_use_is_recorded_while_jobs_have_gpus() {
    let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\ncase \"$*\" in *-L*|*compute-apps*) ;; *) cat \"$0.gpus\";; esac\n",
    );
    let line = "0, NVIDIA H200, GPU-0, 40000, 30000, 60, Disabled\n1, NVIDIA H200, GPU-1, 40000, 40000, 0, Disabled\n";
    fs::write(slotd.base.join("bin/nvidia-smi.gpus"), line).unwrap();
    slotd.start_daemon();
    slotd.begun(&[], "go", "true");
    slotd.wait("a span", || (sums(&spans(&slotd)).0 > 0).then_some(()));
    assert!(
        spans(&slotd).iter().all(|span| span["gpus"] == Value::Array(Vec::new())),
        "no job has a GPU"
    );
    slotd.begun(&["-G1"], "go", "true");
    let gpus = slotd.wait("a sample", || {
        spans(&slotd).last()?["gpus"].as_array().filter(|gpus| !gpus.is_empty()).cloned()
    });
    let of = |i: usize| {
        (gpus[i]["id"].as_u64(), gpus[i]["busy_percent"].as_f64(), gpus[i]["mem_max"].as_u64())
    };
    assert_eq!(of(0), (Some(0), Some(60.0), Some(10_000 << 20)));
    assert_eq!(of(1), (Some(1), Some(0.0), Some(0)));
    let text = slotd.cmd("slotd", &["report", "--host"]).ok().stdout;
    assert!(
        text.contains("\nGPU 0: 60% busy, peak 60%\n")
            && text.contains("\nMemory of GPU 0: 9.8G of 39G, "),
        "{text}"
    );
}
