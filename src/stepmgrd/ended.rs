//! The state of steps after their manager has ended, read from its journal.

use slotd_exec::step_journal::{self, Entry, Past};
use slotd_model::{End, ExitCode, Outcome, StepId};
use slotd_stepmgr::core::{Row, StepOutcome};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use wildmatch::WildMatch;

const SIGKILL: i32 = 9;

/// The last known state of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub attempts: u32,
    /// Its outcome and exit code; `None` if it has not run or will run again.
    pub end: Option<(StepOutcome, ExitCode)>,
}

impl Known {
    /// Returns the row that `sjobmgr list` prints.
    pub fn row(&self) -> Row {
        let (state, reason) = match self.end {
            Some((outcome, _)) => (outcome.name(), ""),
            None => ("PENDING", "NoManager: run it with sjobmgr run --resume FILE"),
        };
        Row {
            name: self.name.clone(),
            state: state.to_owned(),
            step: None,
            priority: None,
            attempts: self.attempts,
            reason: reason.to_owned(),
        }
    }
}

/// Returns the steps of the managers of the job's last run, each in its last known state, in the
/// order in which they first appeared. Empty if there was no manager.
///
/// # Errors
/// Fails if the journal cannot be read.
pub fn read(job_dir: &Path) -> io::Result<Vec<Known>> {
    let Some(path) = step_journal::last(job_dir) else { return Ok(Vec::new()) };
    Ok(of_entries(&step_journal::read(&path)?))
}

/// Returns the steps that match a name or pattern.
pub fn matching<'a>(steps: &'a [Known], pattern: &str) -> Vec<&'a Known> {
    let wild = WildMatch::new(pattern);
    steps.iter().filter(|step| step.name == pattern || wild.matches(&step.name)).collect()
}

/// Returns the outcome that a manager would report to a client waiting for the step.
fn end_of(end: End, exit: ExitCode) -> (StepOutcome, ExitCode) {
    let not_well = if exit.is_success() { ExitCode::status(1) } else { exit };
    match end.outcome() {
        Outcome::Success => (StepOutcome::Ok, ExitCode::OK),
        Outcome::Cancelled => (StepOutcome::Cancelled, not_well),
        Outcome::Failure => (StepOutcome::Failed, not_well),
    }
}

fn end_of_past(past: &Past) -> Option<(StepOutcome, ExitCode)> {
    match past.last {
        Some((state, exit)) => Some(end_of(state, exit)),
        None => past.lost.then_some((StepOutcome::Failed, ExitCode::signal(SIGKILL))),
    }
}

/// Reads the journal. If a name was run several times, the last run counts.
#[derive(Default)]
struct Reader {
    steps: Vec<Known>,
    places: HashMap<String, usize>,
    /// Indices into `steps` of the running steps, by step number.
    running: BTreeMap<u32, usize>,
    /// Whether a step starts over when the current file runs it again.
    anew: Vec<bool>,
}

impl Reader {
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.places.insert(name.to_owned(), self.steps.len());
        self.steps.push(Known { name: name.to_owned(), attempts: 0, end: None });
        self.anew.push(false);
        self.steps.len() - 1
    }

    fn read(&mut self, entry: &Entry) {
        match entry {
            Entry::Head { resumed: false, .. } => self.anew.fill(true),
            Entry::Head { resumed: true, .. } | Entry::Delivered { .. } => {}
            Entry::Before { name, past } => {
                let place = self.place(name);
                self.anew[place] = false;
                self.steps[place] =
                    Known { name: name.clone(), attempts: past.attempts, end: end_of_past(past) };
            }
            Entry::Start(step) => {
                let place = self.place(&step.name);
                if std::mem::take(&mut self.anew[place]) {
                    self.steps[place].attempts = 0;
                }
                self.steps[place].attempts += 1;
                // The step counts as lost unless an end entry follows.
                self.steps[place].end = Some((StepOutcome::Failed, ExitCode::signal(SIGKILL)));
                if let StepId::Num(number) = step.id {
                    self.running.insert(number, place);
                }
            }
            Entry::End(end) => {
                if let Some(place) = self.running.remove(&end.step) {
                    let step = &mut self.steps[place];
                    step.end = (!end.interrupted).then(|| end_of(end.state, end.exit));
                    step.attempts -= u32::from(end.interrupted);
                }
            }
            Entry::Cancelled { name } => {
                self.set_end(name, Some((StepOutcome::Cancelled, ExitCode::status(1))))
            }
            Entry::Skipped { name } => {
                self.set_end(name, Some((StepOutcome::Skipped, ExitCode::status(1))))
            }
            Entry::Left { name } => self.set_end(name, None),
        }
    }

    fn set_end(&mut self, name: &str, end: Option<(StepOutcome, ExitCode)>) {
        let place = self.place(name);
        if std::mem::take(&mut self.anew[place]) {
            self.steps[place].attempts = 0;
        }
        self.steps[place].end = end;
    }
}

fn of_entries(entries: &[Entry]) -> Vec<Known> {
    let mut reader = Reader::default();
    entries.iter().for_each(|entry| reader.read(entry));
    reader.steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_exec::step_journal::StepEnd;
    use slotd_model::tres::{Allocation, Usage};
    use slotd_model::{JobId, Timestamp, Tres};
    use slotd_stepmgr::def::Command;

    fn head(file: &str, resumed: bool) -> Entry {
        Entry::Head { job: JobId(1), run: 0, file: file.to_owned(), resumed }
    }

    fn start(number: u32, name: &str) -> Entry {
        let text = format!("[[step]]\nname = '{name}'\ncommand = 'x'");
        let tres = Tres { cpus: 1, ..Tres::ZERO };
        let whole = Allocation { tres, ..Allocation::default() };
        let mut core = slotd_stepmgr::core::Core::new(whole, Default::default(), None);
        let read = |_: &str| Err("".into());
        let form = slotd_stepmgr::language::Form::Toml;
        core.add(slotd_stepmgr::language::parse(form, "f", &text, &read, &mut 0).unwrap()).unwrap();
        let entry = core.entry(0).unwrap();
        assert_eq!(entry.command, Command::Shell("x".into()));
        let record =
            crate::stepmgrd::launches::record(entry, number, Allocation::default(), Timestamp(0));
        Entry::Start(Box::new(record))
    }

    fn end(step: u32, state: End, exit: ExitCode, interrupted: bool) -> Entry {
        let (start, end) = (Timestamp(0), Timestamp(1));
        Entry::End(StepEnd {
            step,
            state,
            exit,
            usage: Usage::default(),
            start,
            end,
            interrupted,
            cancelled_by: None,
        })
    }

    fn name(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn journal_yields_the_last_state_of_each_step() {
        let bad = ExitCode::status(3);
        let entries = [
            head("f", false),
            start(0, "well"),
            start(1, "again"),
            end(0, End::Completed, ExitCode::OK, false),
            end(1, End::Failed, bad, false),
            start(2, "again"),
            end(2, End::Timeout, ExitCode::OK, false),
            start(3, "moved"),
            end(3, End::NodeFail, ExitCode::signal(15), true),
            Entry::Cancelled { name: name("never") },
            Entry::Skipped { name: name("hopeless") },
            start(4, "lost"),
            start(5, "stopped"),
            end(5, End::Cancelled, ExitCode::signal(15), false),
            start(6, "backs-off"),
            end(6, End::Failed, bad, false),
            Entry::Left { name: name("moved") },
            Entry::Left { name: name("backs-off") },
            Entry::Left { name: name("waits") },
        ];
        let one = ExitCode::status(1);
        let known = |name: &str, attempts, end| Known { name: name.to_owned(), attempts, end };
        let expected = [
            known("well", 1, Some((StepOutcome::Ok, ExitCode::OK))),
            known("again", 2, Some((StepOutcome::Failed, one))),
            known("moved", 0, None),
            known("never", 0, Some((StepOutcome::Cancelled, one))),
            known("hopeless", 0, Some((StepOutcome::Skipped, one))),
            known("lost", 1, Some((StepOutcome::Failed, ExitCode::signal(9)))),
            known("stopped", 1, Some((StepOutcome::Cancelled, ExitCode::signal(15)))),
            known("backs-off", 1, None),
            known("waits", 0, None),
        ];
        assert_eq!(of_entries(&entries), expected);
        let names = |pattern: &str| -> Vec<String> {
            matching(&expected, pattern).into_iter().map(|step| step.name.clone()).collect()
        };
        assert_eq!(names("w*"), ["well", "waits"]);
        assert_eq!((names("lost"), names("los")), (vec![name("lost")], vec![]));
        // The next manager resumes the file, and then another file reuses one of the names.
        let past =
            Past { command: name("x"), attempts: 1, last: Some((End::Failed, bad)), lost: false };
        let more = [
            head("f", true),
            Entry::Before { name: name("backs-off"), past },
            start(7, "backs-off"),
            end(7, End::Completed, ExitCode::OK, false),
            head("g", false),
            start(8, "again"),
            end(8, End::Completed, ExitCode::OK, false),
        ];
        let all = of_entries(&[&entries[..], &more].concat());
        let of = |wanted: &str| all.iter().find(|step| step.name == wanted).unwrap();
        assert_eq!(*of("backs-off"), known("backs-off", 2, Some((StepOutcome::Ok, ExitCode::OK))));
        assert_eq!(*of("again"), known("again", 1, Some((StepOutcome::Ok, ExitCode::OK))));
        assert_eq!(all.len(), expected.len());
    }
}
