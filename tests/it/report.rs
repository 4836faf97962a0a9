//! `slotd report`: what many jobs used of what they had.

use serde_json::Value;
use slotd_kit::Slotd;

/// Jobs of three names that have ended, one of which failed, and one that runs.
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
fn what_has_ended_is_told_by_name() {
    let slotd = history();
    let told = report(&slotd, &[]).ok();
    assert!(told.stdout.starts_with("4 jobs that ran and ended from "), "{}", told.stdout);
    let row = |name: &str| -> Vec<String> {
        let cells =
            |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let found =
            told.stdout.lines().map(cells).find(|cells| cells.len() > 1 && cells[0] == name);
        found.unwrap_or_else(|| panic!("no {name}: {}", told.stdout))
    };
    assert_eq!(row("fit")[1..3], ["2", "0"]);
    assert_eq!(row("bad")[1..3], ["1", "1"]);
    assert_eq!((row("fit")[5].as_str(), row("fit")[6].as_str()), ("2", "600M"));
    assert!(!told.stdout.contains("still"), "it runs: {}", told.stdout);
    let advised =
        |line: &&str| line.starts_with("fit: had 600M, used ") && line.contains(": ask --mem=");
    assert_eq!(told.stdout.lines().filter(advised).count(), 1, "{}", told.stdout);
    assert!(told.stdout.contains("\nfit: had a limit of 01:00:00, took 00:0"), "{}", told.stdout);

    assert!(!told.stdout.contains("bad: "), "it failed at once: {}", told.stdout);
    assert!(
        told.stdout.contains("\n3 completed jobs count. Left out: 1 failed\nMemory is sampled: "),
        "{}",
        told.stdout
    );

    let plotted = report(&slotd, &["--plot"]).ok().stdout;
    assert!(
        plotted.contains("\nCPU-hours, used and had\n") && !told.stdout.contains("used and had"),
        "{plotted}"
    );
    let one = report(&slotd, &["--rows", "1"]).ok().stdout;
    assert!(one.contains("\n2 more names are not shown: --rows 3 shows them\n"), "{one}");
}

#[test]
fn programs_and_browsers_have_it_as_files() {
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
            "it loads and runs nothing: {text}"
        );
    }
    assert!(page.contains("<td>600M</td>") && page.contains("ask --mem="), "{page}");
}

#[test]
fn times_users_and_places_that_make_no_sense_are_refused() {
    let slotd = Slotd::start();
    assert_eq!(report(&slotd, &["-S", "now-2hours", "-E", "now-1hour"]).ok().lines().len(), 1);
    assert!(report(&slotd, &[]).ok().stdout.starts_with("0 jobs that ran and ended from "));
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
