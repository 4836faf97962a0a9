//! `slotd report`: the allocated and used resources of many jobs.

use serde_json::Value;
use slotd_kit::Slotd;

/// Runs jobs with three names to their end, one of them with a failure, and starts a job that keeps
/// running.
fn history() -> Slotd {
    let slotd = Slotd::start();
    for _ in 0..2 {
        slotd.wrap(
            &["-W", "-J", "fit", "-c", "2", "--mem", "600M", "-t", "60"],
            "helper eat 50; exec helper burn 300",
        );
    }
    slotd.cmd("sbatch", &["-W", "-J", "bad", "--mem", "100M", "--wrap", "exit 3"]).fails(3);
    slotd.wrap(&["-W", "-J", "<b>&\"", "--mem", "100M"], "true");
    slotd.endless(&["-J", "still"]);
    slotd
}

fn report(slotd: &Slotd, args: &[&str]) -> slotd_kit::Out {
    slotd.cmd("slotd", &[&["report"], args].concat())
}

#[test]
fn the_report_groups_ended_jobs_by_name() {
    let slotd = history();
    let out = report(&slotd, &[]).ok();
    assert!(out.stdout.starts_with("4 jobs ran and ended between "), "{}", out.stdout);
    let row = |name: &str| -> Vec<String> {
        let cells =
            |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let found = out.stdout.lines().map(cells).find(|cells| cells.len() > 1 && cells[0] == name);
        found.unwrap_or_else(|| panic!("no {name}: {}", out.stdout))
    };
    assert_eq!(row("fit")[1..3], ["2", "0"]);
    assert_eq!(row("bad")[1..3], ["1", "1"]);
    assert_eq!((row("fit")[5].as_str(), row("fit")[6].as_str()), ("2", "600M"));
    assert!(!out.stdout.contains("still"), "running jobs are not included: {}", out.stdout);
    let advised =
        |line: &&str| line.starts_with("fit: had 600M, used ") && line.contains(": request --mem=");
    assert_eq!(out.stdout.lines().filter(advised).count(), 1, "{}", out.stdout);
    assert!(out.stdout.contains("\nfit: had a limit of 01:00:00, took 00:0"), "{}", out.stdout);

    assert!(!out.stdout.contains("bad: "), "failed jobs are not included: {}", out.stdout);
    assert!(
        out.stdout.contains("\nBased on 3 completed jobs. Excluded: 1 failed\nMemory is sampled: "),
        "{}",
        out.stdout
    );

    let plotted = report(&slotd, &["--plot"]).ok().stdout;
    assert!(
        plotted.contains("\nCPU-hours, used of allocated\n")
            && !out.stdout.contains("used of allocated"),
        "{plotted}"
    );
    let one = report(&slotd, &["--rows", "1"]).ok().stdout;
    assert!(one.contains("\n2 more names not shown; use --rows 3 to show them\n"), "{one}");
}

#[test]
fn the_report_is_available_as_json_html_and_svg() {
    let slotd = history();
    let json: Value =
        serde_json::from_str(&report(&slotd, &["--json", "-n", "fit"]).ok().stdout).expect("JSON");
    let names = json["names"].as_array().expect("a list");
    assert_eq!((names.len(), &names[0]["name"], &names[0]["jobs"]), (1, &"fit".into(), &2.into()));
    let memory = names[0]["memory_used"].as_u64().expect("bytes");
    assert!((50 << 20..200 << 20).contains(&memory), "{memory}");
    assert!(
        names[0]["cpu_hours_used"].as_f64().is_some_and(|hours| hours * 3600.0 >= 0.6),
        "{json}"
    );

    report(&slotd, &["--html", "report.html", "--svg", "report.svg"]).ok();
    let (page, picture) = (slotd.read("report.html"), slotd.read("report.svg"));
    for text in [&page, &picture] {
        assert!(
            text.contains("<svg") && text.contains("&lt;b&gt;&amp;") && !text.contains("<b>"),
            "{text}"
        );
        assert!(
            !text.contains("src=") && !text.contains("<script"),
            "the page loads no resources and runs no scripts: {text}"
        );
    }
    assert!(page.contains(">600M</td>") && page.contains("request --mem="), "{page}");
}

#[test]
fn invalid_times_users_and_files_are_refused() {
    let slotd = Slotd::start();
    assert_eq!(report(&slotd, &["-S", "now-2hours", "-E", "now-1hour"]).ok().lines().len(), 1);
    assert!(report(&slotd, &[]).ok().stdout.starts_with("0 jobs ran and ended between "));
    for (args, words) in [
        (&["-S", "yesterday noon"][..], "Invalid time specification"),
        (&["-S", "now", "-E", "now-1hour"], "requested is after end time"),
        (&["-u", "nobody-of-this-name"], "Invalid user id: nobody-of-this-name"),
        (&["--svg", "no/such/place.svg"], "no/such/place.svg: "),
    ] {
        let out = report(&slotd, args).fails(1);
        assert!(out.stderr.contains(words) && out.stdout.is_empty(), "{args:?}: {out:?}");
    }
    report(&slotd, &["--rows", "many"]).fails(2);
    report(&slotd, &["12"]).fails(2);
}
