//! Properties that must hold for any graph and any sequence of events.

use super::tests::{cpus, secs};
use super::*;
use crate::def::{After, Ask, Retry, Wanted};
use proptest::prelude::*;

/// CPUs, priority, retries, and dependencies: an earlier step and how it has to end.
type PlannedStep = (u32, i64, u32, Vec<(usize, Wanted)>);

#[derive(Debug, Clone)]
struct Plan {
    steps: Vec<PlannedStep>,
    /// Exit codes and which running step ends next, used in turn.
    dice: Vec<(i32, usize)>,
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let wanted =
        prop_oneof![3 => Just(Wanted::Ok), 1 => Just(Wanted::Any), 1 => Just(Wanted::NotOk)];
    let step = (1u32..=3, 0i64..3, 0u32..2, prop::collection::vec((0usize..30, wanted), 0..3));
    let dice = prop::collection::vec((prop_oneof![3 => Just(0), 1 => Just(1)], 0usize..8), 1..40);
    (prop::collection::vec(step, 1..30), dice).prop_map(|(steps, dice)| Plan { steps, dice })
}

fn def(at: usize, step: &PlannedStep) -> StepDef {
    let (cpus, priority, times, after) = step;
    let settings = Settings {
        ask: Ask { cpus: *cpus, mem_mb: None, gpus: 0 },
        priority: *priority,
        retry: Retry { times: *times, delay_secs: 1 },
        ..Settings::default()
    };
    let earlier = after.iter().filter(|(other, _)| *other < at);
    let after = earlier
        .map(|(other, wanted)| After { wanted: *wanted, name: format!("s{other}").into() })
        .collect();
    let (name, command) = (format!("s{at}").into(), Command::Shell("x".into()));
    StepDef { name, command, settings: Arc::new(settings), after, line: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn steps_respect_dependencies_retries_and_resources(plan in any_plan()) {
        let mut core = Core::new(cpus(4), Policy::default(), None);
        core.on_numbers(0..10_000);
        let defs: Vec<StepDef> = plan.steps.iter().enumerate().map(|(at, step)| def(at, step)).collect();
        core.add(defs.clone()).unwrap();
        let mut now = secs(0);
        let mut live: Vec<(u32, u32, Allocation)> = Vec::new();
        let mut starts = vec![0u32; defs.len()];
        let mut outcomes: Vec<Option<StepOutcome>> = vec![None; defs.len()];
        let mut dice = plan.dice.iter().cycle();
        for _ in 0..1000 {
            core.on_due(now);
            core.decide(now);
            for effect in std::mem::take(&mut core.effects) {
                match effect {
                    Effect::Launch { step, number, alloc } => {
                        starts[step as usize] += 1;
                        for after in &defs[step as usize].after {
                            let other: usize = after.name[1..].parse().unwrap();
                            let outcome = outcomes[other].expect("the dependency has ended");
                            let is_met = match after.wanted {
                                Wanted::Ok => outcome == StepOutcome::Ok,
                                Wanted::Any => true,
                                Wanted::NotOk => outcome != StepOutcome::Ok,
                            };
                            prop_assert!(is_met, "step {step} started after {other} ended {outcome:?}");
                        }
                        live.push((step, number, alloc));
                    }
                    Effect::Ended { step, outcome } => {
                        prop_assert_eq!(outcomes[step as usize].replace(outcome), None, "each step ends once");
                    }
                    Effect::Signal { .. } | Effect::OutOfTime => {}
                }
            }
            let mut used: Vec<u32> = live.iter().flat_map(|(_, _, alloc)| alloc.cpu_ids.clone()).collect();
            used.sort_unstable();
            let held = used.len();
            used.dedup();
            prop_assert!(held == used.len() && held <= 4, "CPUs allocated twice, or more than the job has: {:?}", used);
            if core.is_over(now) {
                break;
            }
            let (status, turn) = dice.next().copied().unwrap_or_default();
            if live.is_empty() {
                now = core.next_due().expect("nothing runs and nothing is due, but is_over is false");
            } else {
                let (_, number, _) = live.remove(turn % live.len());
                core.on_ended(number, ExitCode::status(status), now);
            }
        }
        prop_assert!(core.is_over(now) && live.is_empty());
        for (at, def) in defs.iter().enumerate() {
            let outcome = outcomes[at].expect("each step ends");
            let most = def.settings.retry.times + 1;
            let is_right = match outcome {
                StepOutcome::Skipped => starts[at] == 0,
                StepOutcome::Failed => starts[at] == most,
                StepOutcome::Ok | StepOutcome::Cancelled => (1..=most).contains(&starts[at]),
            };
            prop_assert!(is_right, "step {at} ended {outcome:?} after {} starts", starts[at]);
        }
        prop_assert_eq!(core.counts().ended() as usize, defs.len());
    }
}
