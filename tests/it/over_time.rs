//! The resource use of jobs over time, as it is reported while they run and after their end.

use serde_json::Value;
use slotd_kit::Slotd;

/// Returns the spans of all steps that match.
fn spans(slotd: &Slotd, step: &str) -> Vec<Value> {
    let text = slotd.cmd("sstat", &["--series", "--json", "-j", step]).ok().stdout;
    let mut output: Value = serde_json::from_str(&text).expect("JSON");
    let steps = output["steps"].as_array_mut().expect("a list");
    steps.iter_mut().flat_map(|step| step["spans"].as_array().expect("a list").clone()).collect()
}

fn number(span: &Value, key: &str) -> u64 {
    span[key].as_u64().unwrap_or_else(|| panic!("{key} is missing: {span}"))
}

const MB: u64 = 1 << 20;

#[test]
fn the_series_shows_memory_rising_in_steps() {
    let mut slotd = Slotd::start();
    let hold = |n: u32| {
        format!(
            "helper hold 30 > held.{n} & pids=\"$pids $!\"; {}\n",
            slotd.gate(&format!("go.{n}"))
        )
    };
    let script = format!("#!/bin/sh\n{}{}{}kill $pids\nwait\nexit 0\n", hold(1), hold(2), hold(3));
    let job = slotd.script(&[], &script);
    let batch = format!("{job}.batch");
    for n in 1..=3 {
        slotd.wait_text(&format!("held.{n}"), "held");
        let last = slotd.wait("the memory of all processes", || {
            let last = number(spans(&slotd, &batch).last()?, "mem_max");
            (last >= 30 * MB * n).then_some(last)
        });
        assert!(last < 30 * MB * (n + 1), "{last} bytes of {n}");
        // The memory stays the same for longer than the spans that are merged into one.
        let length = || spans(&slotd, &batch).iter().map(|span| number(span, "ms")).sum::<u64>();
        let least = length() + 500;
        slotd.wait("more spans", || (length() >= least).then_some(()));
        if n == 2 {
            // The watcher measures it, not the daemon.
            slotd.kill9();
            slotd.start_daemon();
        }
        if n < 3 {
            slotd.open(&format!("go.{n}"));
        }
    }
    let seen = spans(&slotd, &batch);
    let first = |least: u64| {
        seen.iter()
            .position(|span| number(span, "mem_max") >= least)
            .expect("a span with this much memory")
    };
    assert!(first(30 * MB) < first(60 * MB) && first(60 * MB) < first(90 * MB), "{seen:#?}");
    slotd.open("go.3");
    slotd.wait_state(job, "COMPLETED");

    let kept = spans(&slotd, &job.to_string());
    assert!((3..=120).contains(&kept.len()), "{kept:#?}");
    let most = kept.iter().map(|span| number(span, "mem_max")).max().expect("spans");
    assert!((90 * MB..120 * MB).contains(&most), "{most}");
    let mut at = number(&kept[0], "start_ms");
    for span in &kept {
        assert_eq!(number(span, "start_ms"), at, "there are gaps: {kept:#?}");
        at += number(span, "ms");
    }
    let lines = slotd.cmd("sstat", &["-n", "-P", "--series", "-j", &batch]).ok();
    assert_eq!(lines.stderr, "");
    assert_eq!(lines.lines().len(), kept.len());
    assert!(
        lines
            .lines()
            .iter()
            .all(|line| line.starts_with(&format!("{batch}|")) && line.split('|').count() == 8)
    );
    // Programs parse the plain output of seff, so it must stay the same.
    let plain = slotd.cmd("seff", &[job.to_string()]).ok().stdout;
    let plotted = slotd.cmd("seff", &["--plot".to_owned(), job.to_string()]).ok().stdout;
    let plots = plotted.strip_prefix(&plain).unwrap_or_else(|| panic!("{plotted}"));
    assert!(plots.starts_with("CPUs in use: ") && plots.contains("\nMemory: peak "), "{plots}");
    assert!(plots.contains('#') && !plain.contains('#'), "{plots}");
}

#[test]
fn each_step_has_its_own_series_with_all_its_cpu_time() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun helper burn 700\nsrun helper burn 300\n");
    slotd.wait_state(job, "COMPLETED");
    let used = |step: u32| -> u64 {
        spans(&slotd, &format!("{job}.{step}")).iter().map(|span| number(span, "cpu_us")).sum()
    };
    assert!(used(0) >= 700_000, "{}", used(0));
    assert!((300_000..used(0)).contains(&used(1)), "{} and {}", used(0), used(1));
}

#[test]
fn series_of_other_runs_and_jobs_are_not_mixed_in() {
    let slotd = Slotd::start();
    let script =
        format!("#!/bin/sh\n[ -e once ] || srun helper burn 400\n: > once\n{}\n", slotd.gate("go"));
    let job = slotd.script(&["--requeue"], &script);
    slotd.wait("its first run", || slotd.exists("once").then_some(()));
    assert!(!spans(&slotd, &format!("{job}.0")).is_empty());
    slotd.cmd("scontrol", &["requeue", &job.to_string()]).ok();
    slotd.wait("its second run", || (slotd.job(job).restarts() == 1).then_some(()));
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let none = slotd.cmd("sstat", &["--series", "-n", "-j", &format!("{job}.0")]).ok();
    let why = format!(
        "sstat: error: no usage over time recorded for {job}.0: it has not started or ended immediately\n"
    );
    assert_eq!((none.stdout.as_str(), none.stderr), ("", why));
    slotd.cmd("sstat", &["--json", "-j", &job.to_string()]).fails(1);
    let held = slotd.wrap(&["-H"], "true");
    for unknown in [held, 999] {
        let none = slotd.cmd("sstat", &["--series", "-n", "-j", &unknown.to_string()]).ok();
        assert!(
            none.stdout.is_empty() && none.stderr.contains(&format!("recorded for {unknown}: ")),
            "{}",
            none.stderr
        );
    }
}
