//! `slotd submit`: many jobs in one call.

use serde_json::{Value, json};
use slotd_kit::wal::Written;
use slotd_kit::{Out, Slotd};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

fn submit(slotd: &Slotd, options: &[&str], lines: &str) -> Out {
    let mut command = slotd.command("slotd");
    command.arg("submit").args(options);
    slotd.feed(command, lines)
}

/// Parses the result of each line.
fn answers(out: &Out) -> Vec<Value> {
    out.lines().iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_line_gives_a_job_or_an_error() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\n#SBATCH -c 2\necho $0 $1 $SLURM_CPUS_PER_TASK\n";
    let lines = [
        json!({ "wrap": "echo one", "name": "first" }).to_string(),
        "{".to_owned(),
        String::new(),
        json!({ "script": script, "args": ["a word"], "options": ["-o", "out.%j"] }).to_string(),
        json!({ "wrap": "true", "options": ["-p", "nosuch"] }).to_string(),
        json!({ "wrap": "true", "options": ["--nosuch"] }).to_string(),
        json!({ "wrap": "true", "script": script }).to_string(),
        json!({ "wrap": "true", "colour": "blue" }).to_string(),
        json!({ "script": "echo no first line" }).to_string(),
        // The last line has no newline.
        json!({ "wrap": "exit 3" }).to_string(),
    ];
    let out = submit(&slotd, &["-J", "all"], &lines.join("\n")).fails(1);
    let results = answers(&out);
    let numbers: Vec<u64> = results.iter().filter_map(|answer| answer["line"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 8, 9, 10], "in order, without blank lines");
    let job = |line: u64| {
        results
            .iter()
            .find(|result| result["line"] == line)
            .and_then(|result| result["job"].as_u64())
    };
    let error = |line: u64| {
        let result = results.iter().find(|result| result["line"] == line).expect("a result");
        result["error"].as_str().unwrap_or_default().to_owned()
    };
    let [first, second, last] = [1, 4, 10].map(|line| job(line).expect("a job") as u32);
    for (line, text) in [
        (2, "invalid job: EOF while parsing an object at column 1"),
        (5, "invalid partition specified: nosuch"),
        (6, "unrecognized option '--nosuch'"),
        (7, "a job has either a script or a wrap, not both"),
        (8, "unknown field `colour`"),
        (9, "This does not look like a batch script."),
    ] {
        assert!(error(line).contains(text), "{line}: {}", error(line));
    }
    for (job, state) in [(first, "COMPLETED"), (second, "COMPLETED"), (last, "FAILED")] {
        slotd.wait_state(job, state);
    }
    assert_eq!(
        (slotd.show(first, "JobName"), slotd.show(last, "JobName")),
        ("first".to_owned(), "all".to_owned())
    );
    assert_eq!(slotd.output(first), "one\n");
    let stored = slotd.job_dir(second).join("script.sh");
    assert_eq!(slotd.read(&format!("out.{second}")), format!("{} a word 2\n", stored.display()));
    assert_eq!(std::fs::read_to_string(stored).unwrap(), script);
    let line = slotd.sacct(first, "SubmitLine");
    assert_eq!(line, "sbatch -J all --wrap 'echo one'");
}

#[test]
fn each_line_is_answered_before_the_next_one() {
    let slotd = Slotd::start();
    let mut command = slotd.command("slotd");
    command.arg("submit").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tool = command.spawn().unwrap();
    let (mut lines, answers) = (tool.stdin.take().unwrap(), tool.stdout.take().unwrap());
    let mut answers = BufReader::new(answers).lines();
    for number in 1..=3 {
        writeln!(lines, "{}", json!({ "wrap": "true", "options": ["-H"] })).unwrap();
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer, json!({ "line": number, "job": number }));
    }
    drop(lines);
    assert!(tool.wait().unwrap().success() && answers.next().is_none());
}

#[test]
fn the_first_step_of_an_allocation_takes_no_commit_of_its_own() {
    let slotd = Slotd::start();
    slotd.line("srun true").ok();
    let database = slotd.root.join("lib/state.db");
    let before = Written::of(&database);
    slotd.line("srun true").ok();
    slotd.wait_end(2);
    let written = Written::of(&database) - before;
    // The start of the job and its step, the end of the step, and the end of the job.
    assert!(written.commits <= 3, "{written:?}");
}

#[test]
fn many_jobs_take_few_commits() {
    const JOBS: usize = 600;
    let slotd = Slotd::start();
    slotd.wrap(&["-H"], "true");
    let database = slotd.root.join("lib/state.db");
    let before = Written::of(&database);
    let lines: Vec<String> =
        (0..JOBS).map(|i| json!({ "wrap": format!("true {i}") }).to_string()).collect();
    let out = submit(&slotd, &["-H"], &lines.join("\n")).ok();
    let written = Written::of(&database) - before;
    assert_eq!(answers(&out).iter().filter(|answer| answer["job"].is_u64()).count(), JOBS);
    assert!(written.commits <= JOBS / 10, "{written:?}");
    // Adjacent records share pages.
    assert!(written.pages <= JOBS * 2, "{written:?}");
}

#[test]
fn invalid_options_are_refused_before_reading_lines() {
    let slotd = Slotd::start();
    for (options, text) in
        [(["-W"], "--wait and --test-only are for single jobs"), (["--nosuch"], "--nosuch")]
    {
        let out = submit(&slotd, &options, "{\"wrap\": \"true\"}\n").fails(if text == "--nosuch" {
            255
        } else {
            1
        });
        assert!(out.stderr.contains(text) && out.stdout.is_empty(), "{}{}", out.stdout, out.stderr);
    }
    assert_eq!(slotd.all_records().len(), 0);
}

#[test]
fn a_line_with_too_many_options_is_refused_alone() {
    let slotd = Slotd::start();
    let many = |word: &'static str| vec![word; 200_000];
    let directives = format!("#!/bin/sh\n{}true\n", "#SBATCH -H\n".repeat(200_000));
    let lines = [
        json!({ "wrap": "true", "options": many("-v") }).to_string(),
        json!({ "wrap": "true", "options": many("--comment=x") }).to_string(),
        json!({ "script": directives }).to_string(),
        json!({ "wrap": "true", "options": vec!["-v"; 1000] }).to_string(),
    ];
    let results = answers(&submit(&slotd, &["-H"], &lines.join("\n")).fails(1));
    for answer in &results[..3] {
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(
            error.starts_with("the job has 200000 options, but the maximum is 1000"),
            "{answer}"
        );
    }
    assert_eq!(results[3], json!({ "line": 4, "job": 1 }));
}

#[test]
fn options_that_only_print_text_are_refused() {
    let slotd = Slotd::start();
    for option in ["--help", "-h", "--usage", "--version", "-V"] {
        let line = json!({ "wrap": "true", "options": ["-H", option] }).to_string();
        let results = answers(&submit(&slotd, &[], &line).fails(1));
        let error = results[0]["error"].as_str().unwrap_or_default();
        assert!(
            error.starts_with("--help, --usage and --version submit no job"),
            "{option}: {results:?}"
        );
        let line = json!({ "wrap": "true" }).to_string();
        let out = submit(&slotd, &["--", option], &line).fails(1);
        assert!(
            out.stdout.is_empty() && out.stderr.contains("submit no job"),
            "{option}: {}{}",
            out.stdout,
            out.stderr
        );
    }
    assert_eq!(slotd.all_records().len(), 0);
}

#[test]
fn a_zero_byte_in_an_option_or_an_argument_is_refused() {
    let slotd = Slotd::start();
    for line in [
        json!({ "wrap": "true", "options": ["-J", "a\0b"] }),
        json!({ "script": "#!/bin/sh\ntrue\n", "args": ["a\0b"] }),
    ] {
        let results = answers(&submit(&slotd, &[], &line.to_string()).fails(1));
        let error = results[0]["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("\"a\\0b\" contains a null byte"), "{results:?}");
    }
    assert_eq!(slotd.all_records().len(), 0);
}
