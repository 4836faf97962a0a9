//! Scenarios for the manager, with their steps written in TOML.

use super::*;
use crate::language::{Form, parse};
use slotd_model::Tres;

pub(super) fn cpus(count: u32) -> Allocation {
    let tres = Tres { cpus: count, mem_mb: 1000, ..Tres::ZERO };
    Allocation { tres, cpu_ids: (0..count).collect(), ..Allocation::default() }
}

pub(super) fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

struct Scene {
    core: Core,
    now: Duration,
}

impl Scene {
    fn new(count: u32, toml: &str) -> Scene {
        let policy = Policy { grace: secs(30), ..Policy::default() };
        Scene::with(Core::new(cpus(count), policy, None), toml)
    }

    fn with(mut core: Core, toml: &str) -> Scene {
        core.on_numbers(0..1000);
        let defs =
            parse(Form::Toml, "scene", toml, &|_| Err("no files here".into()), &mut 0).unwrap();
        core.add(defs).unwrap();
        Scene { core, now: secs(0) }
    }

    /// Returns the names of the steps that start now.
    fn starts(&mut self) -> Vec<String> {
        self.core.on_due(self.now);
        self.core.decide(self.now);
        let effects = std::mem::take(&mut self.core.effects);
        let name = |effect: &Effect| match effect {
            Effect::Launch { step, .. } => Some(self.core.entry(*step)?.name.to_string()),
            Effect::Signal { .. } | Effect::Ended { .. } | Effect::OutOfTime => None,
        };
        effects.iter().filter_map(name).collect()
    }

    fn signals(&mut self) -> Vec<(u32, i32)> {
        self.core.on_due(self.now);
        let signal = |effect: Effect| match effect {
            Effect::Signal { number, signal } => Some((number, signal)),
            Effect::Launch { .. } | Effect::Ended { .. } | Effect::OutOfTime => None,
        };
        std::mem::take(&mut self.core.effects).into_iter().filter_map(signal).collect()
    }

    fn end(&mut self, name: &str, status: i32) -> End {
        let step = self.core.graph.find(name).unwrap();
        let Some(Phase::Running(number)) = self.core.entry(step).map(|entry| entry.phase) else {
            panic!("{name} is not running")
        };
        self.core.on_ended(number, ExitCode::status(status), self.now).unwrap().state
    }

    fn row(&self, name: &str) -> (String, String) {
        let row = self.core.row(self.core.graph.find(name).unwrap(), self.now).unwrap();
        (row.state, row.reason)
    }
}

#[test]
fn suspended_time_does_not_count_towards_step_limits() {
    let text = "[[step]]\nname='a'\ncommand='x'\ntime='0:10'\nsignal='USR1@4'\n[[step]]\nname='b'\ncommand='x'\nafter='a'\ntime='0:10'";
    let mut scene = Scene::new(1, text);
    scene.core.on_suspended(secs(100));
    assert_eq!(scene.starts(), ["a"]);
    scene.now = secs(5);
    scene.core.on_suspended(secs(107));
    scene.now = secs(12);
    assert_eq!(scene.signals(), [], "it has run for only 5 s");
    scene.now = secs(13);
    assert_eq!(scene.signals(), [(0, 10)]);
    scene.core.on_suspended(secs(108));
    scene.now = secs(17);
    assert_eq!(scene.signals(), []);
    scene.now = secs(18);
    assert_eq!(scene.signals(), [(0, 15)]);
    assert_eq!(scene.end("a", 0), End::Timeout);
}

#[test]
fn patterns_wait_for_all_members_to_end_as_required() {
    let mut scene = Scene::new(
        4,
        r#"
        step = [
            { name = "a-{n}", foreach = { n = "1-2" }, command = "x" },
            { name = "good", command = "x", after = "a-*" },
            { name = "whatever", command = "x", after = "afterany:a-*" },
            { name = "bad", command = "x", after = "afternotok:a-2" },
            { name = "after-good", command = "x", after = "good" },
        ]"#,
    );
    assert_eq!(scene.starts(), ["a-1", "a-2"]);
    assert_eq!(scene.row("good"), ("PENDING".into(), "Dependency: afterok:a-* (2 left)".into()));
    assert_eq!(scene.end("a-1", 0), End::Completed);
    assert_eq!(scene.starts(), Vec::<String>::new());
    assert_eq!(scene.end("a-2", 3), End::Failed);
    assert_eq!(scene.starts(), ["whatever", "bad"]);
    assert_eq!([scene.row("good").0, scene.row("after-good").0], ["SKIPPED", "SKIPPED"]);
    scene.end("whatever", 0);
    scene.end("bad", 0);
    assert!(scene.core.is_over(scene.now));
    assert_eq!(scene.core.worst(), ExitCode::status(3));
}

#[test]
fn retry_delay_doubles() {
    let mut scene = Scene::new(
        1,
        r#"step = [{ name = "a", command = "x", retry = { times = 2, delay = 10 } }]"#,
    );
    assert_eq!(scene.starts(), ["a"]);
    scene.end("a", 1);
    assert_eq!((scene.starts(), scene.core.next_due()), (vec![], Some(secs(10))));
    assert!(!scene.core.is_over(scene.now));
    scene.now = secs(10);
    assert_eq!(scene.starts(), ["a"]);
    scene.end("a", 1);
    assert_eq!(scene.core.next_due(), Some(secs(30)));
    scene.now = secs(30);
    assert_eq!(scene.starts(), ["a"]);
    scene.end("a", 1);
    assert!(scene.core.is_over(scene.now) && scene.core.counts().failed == 1);
}

#[test]
fn cancelled_launch_has_no_exit_code() {
    let mut scene = Scene::new(1, r#"step = [{ name = "a", command = "x" }]"#);
    scene.starts();
    scene.core.drain();
    scene.core.cancel_launch(0, scene.now);
    assert_eq!((scene.row("a").0.as_str(), scene.core.counts().waiting()), ("PENDING", 1));
    assert_eq!((scene.core.entry(0).unwrap().attempts, scene.core.worst()), (0, ExitCode::OK));
}

#[test]
fn arguments_too_long_for_the_kernel_are_refused() {
    let policy = Policy { longest_word: Some(100), ..Policy::default() };
    let mut core = Core::new(cpus(1), policy, None);
    let mut last = 0;
    let mut add = |text: &str| {
        let defs =
            parse(Form::Json, "scene", text, &|_| Err("no files here".into()), &mut last).unwrap();
        core.add(defs).map_err(|refused| (refused.line, refused.text))
    };
    let word = |count: usize| "x".repeat(count);
    // A line without shell syntax is split into words.
    let short = [word(99), format!("{} {}", word(99), word(99)), format!("{};", word(98))];
    for command in short {
        add(&serde_json::json!({"command": command}).to_string()).unwrap();
        add(&serde_json::json!({"command": ["a", command.split(' ').next()]}).to_string()).unwrap();
    }
    let long = [
        serde_json::json!(word(100)),
        serde_json::json!(["a", word(100)]),
        serde_json::json!(format!("{};", word(99))),
    ];
    for command in long {
        let text = format!("\n{}", serde_json::json!({"name": "b", "command": command}));
        assert_eq!(
            add(&text),
            Err((2, "step \"b\": an argument of 100 bytes is too long".to_owned()))
        );
    }
    let many = serde_json::json!({"name": "b", "command": vec![word(99); MOST_BYTES / 100 + 1]})
        .to_string();
    let bytes = (MOST_BYTES / 100 + 1) * 100;
    assert_eq!(
        add(&many),
        Err((1, format!("step \"b\": a command line of {bytes} bytes is too long")))
    );
    let variable = |count: usize| {
        serde_json::json!({"name": "b", "command": "a", "env": {"A": word(count)}}).to_string()
    };
    assert_eq!(
        add(&variable(98)),
        Err((1, "step \"b\": a variable (env) of 100 bytes is too long".to_owned()))
    );
    add(&variable(97)).unwrap();
}

#[test]
fn on_failure_skips_continues_or_stops() {
    let text = |on_failure: &str| {
        format!(
            "[[step]]\nname='a'\ncommand='x'\non_failure='{on_failure}'\n[[step]]\nname='b'\ncommand='x'\nafter='a'\n\
             [[step]]\nname='c'\ncommand='x'"
        )
    };
    for (on_failure, starts) in [("skip", vec!["c"]), ("continue", vec!["b"]), ("stop", vec![])] {
        let mut scene = Scene::new(1, &text(on_failure));
        assert_eq!(scene.starts(), ["a"]);
        scene.end("a", 1);
        assert_eq!(scene.starts(), starts, "{on_failure}");
        assert_eq!(scene.core.is_over(scene.now), on_failure == "stop");
    }
}

#[test]
fn step_at_its_limit_gets_sigterm_then_sigkill() {
    let mut scene = Scene::new(
        1,
        r#"step = [{ name = "a", command = "x", time = "0:20", signal = "USR1@5" }]"#,
    );
    scene.starts();
    for (at, signals) in
        [(14, vec![]), (15, vec![(0, 10)]), (20, vec![(0, 15)]), (49, vec![]), (50, vec![(0, 9)])]
    {
        scene.now = secs(at);
        assert_eq!(scene.signals(), signals, "after {at} s");
    }
    assert_eq!(scene.end("a", 0), End::Timeout);
    assert_eq!(scene.core.counts().failed, 1);
}

#[test]
fn step_that_cannot_finish_before_the_job_does_not_start() {
    let core = Core::new(cpus(1), Policy::default(), Some(secs(100)));
    let mut scene = Scene::with(
        core,
        r#"step = [{ name = "long", command = "x", time = 2, priority = 9 }, { name = "short", command = "x", time = 1 }]"#,
    );
    assert_eq!(scene.starts(), ["short"]);
    assert_eq!(scene.row("long").1, "JobEnd: cannot finish before the job's time limit");
    scene.end("short", 0);
    assert!(scene.core.is_over(scene.now) && scene.core.counts().waiting() == 1);
}

#[test]
fn steps_are_terminated_before_the_job_ends() {
    let policy = Policy { grace: secs(30), ..Policy::default() };
    let core = Core::new(cpus(1), policy, Some(secs(100)));
    let mut scene =
        Scene::with(core, r#"step = [{ name = "a", command = "x", signal = "USR1@10" }]"#);
    scene.core.on_job_end_moved(Some(secs(200)));
    scene.starts();
    for (at, signals) in [(99, vec![]), (190, vec![(0, 10)]), (198, vec![]), (199, vec![(0, 15)])] {
        scene.now = secs(at);
        assert_eq!(scene.signals(), signals, "after {at} s");
    }
    let end = scene.core.on_ended(0, ExitCode::signal(15), scene.now).unwrap();
    assert!(end.is_interrupted && scene.core.is_over(scene.now));
}

#[test]
fn late_job_end_timer_keeps_the_grace_period() {
    let policy = Policy { grace: secs(30), ..Policy::default() };
    let core = Core::new(cpus(1), policy, Some(secs(100)));
    let mut scene = Scene::with(core, r#"step = [{ name = "a", command = "x" }]"#);
    scene.starts();
    // The process was stalled, so the signal and the timer are both pending when it wakes.
    scene.now = secs(101);
    scene.core.stop(scene.now);
    scene.core.on_due(scene.now);
    assert!(scene.core.effects.iter().any(|effect| matches!(effect, Effect::OutOfTime)));
    assert_eq!(scene.signals(), [(0, 15)]);
    scene.now = secs(131);
    assert_eq!(scene.signals(), [(0, 9)]);
}

#[test]
fn step_stopped_with_the_manager_is_left_for_the_next() {
    let mut scene =
        Scene::new(2, r#"step = [{ name = "a", command = "x" }, { name = "b", command = "x" }]"#);
    assert_eq!(scene.starts(), ["a", "b"]);
    scene.core.stop(scene.now);
    assert_eq!(scene.signals(), [(0, 15), (1, 15)]);
    let end = scene.core.on_ended(0, ExitCode::signal(15), scene.now).unwrap();
    assert_eq!((end.state, end.is_interrupted), (End::Cancelled, true));
    // It had finished when the signal arrived.
    let end = scene.core.on_ended(1, ExitCode::OK, scene.now).unwrap();
    assert_eq!((end.state, end.is_interrupted), (End::Completed, false));
    assert!(scene.core.is_over(scene.now));
    assert_eq!(scene.core.worst(), ExitCode::signal(15), "the exit code matches the step's record");
    assert_eq!((scene.core.counts().ok, scene.core.counts().waiting()), (1, 1));
}

#[test]
fn a_cancelled_step_names_the_user_who_cancelled_it() {
    let text = r#"step = [{ name = "a-{n}", command = "x", foreach = { n = "0-3" } }]"#;
    let mut scene = Scene::new(4, text);
    assert_eq!(scene.starts().len(), 4);
    scene.core.signal(0, None, Some(7), scene.now);
    scene.core.signal(1, Some(9), Some(7), scene.now);
    scene.core.signal(2, Some(10), Some(7), scene.now);
    scene.core.cancel(&[3], scene.now);
    let ends = [(0, 15), (1, 9), (2, 10), (3, 15)].map(|(number, signal)| {
        let end = scene.core.on_ended(number, ExitCode::signal(signal), scene.now).unwrap();
        (end.state, end.cancelled_by)
    });
    let named = (End::Cancelled, Some(7));
    assert_eq!(ends, [named, named, (End::Failed, None), (End::Cancelled, None)]);
}

#[test]
fn held_steps_wait_and_top_steps_go_first() {
    let mut scene = Scene::new(
        1,
        r#"step = [{ name = "a", command = "x" }, { name = "b", command = "x" }, { name = "c", command = "x" }]"#,
    );
    assert_eq!((scene.core.hold(&[0]), scene.core.top(&[2])), (1, 1));
    assert_eq!(scene.starts(), ["c"]);
    assert_eq!([scene.row("a").1, scene.row("b").1], ["JobHeldUser", "Resources"]);
    scene.end("c", 0);
    assert_eq!(scene.starts(), ["b"]);
    scene.end("b", 0);
    assert!(!scene.core.is_over(scene.now), "the held step may be released");
    assert_eq!(scene.core.release(&[0]), 1);
    assert_eq!(scene.starts(), ["a"]);
    assert_eq!(scene.core.cancel(&[0], scene.now), 1);
    assert_eq!(scene.signals(), [(2, 15)]);
}

#[test]
fn errors_name_line_key_value_and_fix() {
    let fault = |text: &str| {
        let mut core = Core::new(cpus(2), Policy::default(), None);
        let read = |file: &str| match file {
            "runs.csv" => Ok("lr,fold\n0.1,1\n0.2\n".to_owned()),
            _ => Err("No such file or directory".into()),
        };
        match parse(Form::Toml, "f.toml", text, &read, &mut 0) {
            Err(fault) => format!("{fault}; {}", fault.hint.clone().unwrap_or_default()),
            Ok(defs) => {
                let refused = core.add(defs).unwrap_err();
                assert_eq!(core.counts().all, 0, "no step was added");
                format!(
                    "line {}: {}; {}",
                    refused.line,
                    refused.text,
                    refused.hint.unwrap_or_default()
                )
            }
        }
    };
    let two = |a: &str, b: &str| {
        format!(
            "[[step]]\nname = 'a'\ncommand = 'x'\nafter = '{a}'\n\n[[step]]\nname = 'b'\ncommand = 'x'\nafter = '{b}'"
        )
    };
    for (text, expected) in [
        (
            "[[step]]\ncommand = 'x'\ncpu = 2",
            "f.toml: line 3: unknown key \"cpu\"; did you mean cpus?",
        ),
        (
            "[[step]]\nname = 'a'",
            "f.toml: line 1: the step has no command; add command = \"…\" or command = [\"…\", \"…\"]",
        ),
        (
            "[[step]]\ncommand = 'x'\n\nmem = '4X'",
            "f.toml: line 4: mem = \"4X\" is not a valid amount of memory; use megabytes, or a suffix: 512M, 8G",
        ),
        (
            "[[step]]\ncommand = 'x'\ncpus = 3",
            "line 1: step \"x-1\" asks for 3 CPUs; the job has 2 CPUs; request less, or submit a larger job (sbatch -c, --mem, --gpus)",
        ),
        (
            &two("b", "a"),
            "line 1: dependency cycle: a after b after a; remove one of these dependencies",
        ),
        (&two("*", "a"), "line 1: dependency cycle: a after a; remove one of these dependencies"),
        (
            &two("bb", ""),
            "f.toml: line 9: after = \"\" names no step; give a step name, or a pattern such as fit-*",
        ),
        (
            "[[step]]\nname='prepare'\ncommand='x'\n[[step]]\nname='b'\ncommand='x'\nafter='prepaer'",
            "line 4: step \"b\": after = \"prepaer\": no step has this name; did you mean prepare?",
        ),
        (
            "[[step]]\nname='a'\ncommand='x'\n[[step]]\nname='a'\ncommand='x'",
            "line 4: duplicate step name \"a\"; rename one of the steps",
        ),
        (
            "[[step]]\nname='a'\ncommand='x'\nforeach={ n = '1-3' }",
            "f.toml: line 2: name = \"a\": every step of the foreach would have this name; include a foreach name in braces",
        ),
        (
            "[[step]]\ncommand='x'\nforeach={ n = { lines = 'no' } }",
            "f.toml: line 3: foreach: n: no: No such file or directory; give a readable file",
        ),
        (
            "[[step]]\ncommand='x'\nretry = -1",
            "f.toml: line 3: retry = -1 is not a valid count: use 0 or more; ",
        ),
    ] {
        assert_eq!(fault(text), expected);
    }
    assert!(
        fault("[[step]]\ncommand='x'\nforeach={ r = { csv = 'runs.csv' } }")
            .contains("runs.csv: CSV error")
    );
}

#[test]
fn foreach_expands_to_the_product_of_its_values() {
    let text = r#"
        [defaults]
        env = { A = "{lr}" }
        [[step]]
        name = "fit-{lr}-{fold}"
        foreach = { lr = [0.1, "b"], fold = "1-2" }
        command = ["fit", "{lr}", "{fold}", "{print $1}"]
        stdout = "{fold}-%s"
    "#;
    let defs = parse(Form::Toml, "f", text, &|_| Err("".into()), &mut 0).unwrap();
    let names: Vec<&str> = defs.iter().map(|def| &*def.name).collect();
    assert_eq!(names, ["fit-0.1-1", "fit-b-1", "fit-0.1-2", "fit-b-2"]);
    assert_eq!(defs[3].command.argv(), ["fit", "b", "2", "{print $1}"]);
    assert_eq!(defs[3].settings.stdout.as_deref(), Some("2-%s"));
    assert_eq!(*defs[0].settings.env, [("A".into(), "0.1".into())]);
    let read = |_: &str| Ok("lr, fold\n0.1, 1\n0.2, 7\n".to_owned());
    let text = r#"{"name": "r{row}", "command": "fit {row.lr} {row.fold}", "foreach": {"row": {"csv": "runs.csv"}}}"#;
    let defs = parse(Form::Json, "f", text, &read, &mut 0).unwrap();
    assert_eq!(defs[1].command.argv(), ["fit", "0.2", "7"]);
    let lines = parse(Form::Lines, "f", "# all\n\ngzip a\n/bin/gzip b", &read, &mut 0).unwrap();
    assert_eq!(lines.iter().map(|def| &*def.name).collect::<Vec<_>>(), ["gzip-3", "gzip-4"]);
}

#[test]
fn moved_step_gets_its_warning_and_keeps_its_retries() {
    let policy = Policy {
        grace: secs(30),
        warning: Some(Warning { signal: 12, before_secs: 20 }),
        ..Policy::default()
    };
    let mut scene = Scene::with(
        Core::new(cpus(2), policy, None),
        "step = [{ name = 'own', command = 'x', signal = 'USR1@5' }, { name = 'job', command = 'x' }]",
    );
    assert_eq!(scene.starts(), ["own", "job"]);
    let out =
        |cpus: &[u32]| NodeParts { cpus: cpus.iter().copied().collect(), ..NodeParts::default() };
    scene.core.on_parts_out(out(&[0, 1]), scene.now);
    assert_eq!(scene.signals(), [(0, 10), (1, 12)]);
    // Repeating the list, or sending a shorter one, does not bring back steps that were asked to
    // move.
    scene.core.on_parts_out(out(&[0]), scene.now);
    scene.now = secs(5);
    assert_eq!(scene.signals(), [(0, 15)]);
    scene.now = secs(20);
    assert_eq!(scene.signals(), [(1, 15)]);
    scene.now = secs(35);
    assert_eq!(scene.signals(), [(0, 9)]);
    assert_eq!(scene.end("own", 9), End::NodeFail);
    assert_eq!(scene.end("job", 0), End::Completed, "it finished its work");
    assert_eq!(scene.starts(), ["own"], "on the other CPU");
    let alloc = |scene: &Scene| {
        scene.core.running().map(|(_, attempt)| attempt.alloc.cpu_ids.clone()).next()
    };
    assert_eq!(
        (alloc(&scene), scene.core.entry(0).map(|entry| entry.attempts)),
        (Some(vec![1]), Some(1))
    );
    scene.core.on_parts_out(out(&[1]), scene.now);
    scene.core.cancel(&[0], scene.now);
    assert_eq!(scene.end("own", 1), End::Cancelled, "a user's cancel overrides the move");
    assert!(scene.core.is_over(scene.now));
}

#[test]
fn moved_step_without_a_signal_gets_sigterm() {
    let mut scene = Scene::new(1, "step = [{ name = 'a', command = 'x' }]");
    scene.starts();
    let out = NodeParts { cpus: [0].into(), ..NodeParts::default() };
    scene.core.on_parts_out(out, scene.now);
    assert_eq!(scene.signals(), [(0, 15)]);
    assert_eq!(scene.end("a", 1), End::NodeFail);
    assert!(scene.starts().is_empty() && !scene.core.is_over(scene.now));
    scene.core.on_parts_out(NodeParts::default(), scene.now);
    assert_eq!(scene.starts(), ["a"]);
}

#[test]
fn step_larger_than_a_shrunken_job_waits_until_it_grows() {
    let mut scene = Scene::new(
        3,
        "step = [{ name = 'wide', command = 'x', cpus = 3 }, { name = 'one', command = 'x' }]",
    );
    scene.core.on_resources(cpus(3), Tres { cpus: 1, ..Tres::ZERO });
    assert_eq!(
        scene.core.too_large().map(|(count, first)| (count, first.name.to_string())),
        Some((1, "wide".into()))
    );
    assert!(scene.core.given_back().is_some());
    assert_eq!(scene.row("wide").1, "Resources: asks for 3 CPUs; the job has 2 CPUs");
    scene.core.on_resources(cpus(3), Tres::ZERO);
    assert!(scene.core.too_large().is_none());
    assert_eq!(scene.starts(), ["wide"]);
}
