//! Properties that must hold for every job, whatever happened. They are derived from slotd's
//! promises, not from its code.
//!
//! * Every job ID that was printed is in `sacct`, with all tasks of the array; refused jobs are
//!   not.
//! * Each run of a job begins at most once. An undisturbed job begins once, ends as its script
//!   does, and runs again only if `--requeue` was given.
//! * No CPU, GPU or license is used by two jobs, and no two runs of a job overlap.
//! * A QOS never runs more jobs than it allows.
//! * Reservations exist as last answered. The crontab is the one last installed, and each of its entries has one job.
//! * Two singleton jobs with the same name never overlap.
//! * No job begins after its cancellation was acknowledged, while it is held, before its begin
//!   time, or before its dependency is satisfied.
//! * A foreground command exits with the code of the job that it ran.

use crate::events::{Event, Row};
use crate::model::{After, Answer, Clock, How, Submission, Touch, What};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The longest time that a start may already be in progress when a command that should prevent it
/// is acknowledged, in milliseconds. The time of faults is added.
const ON_ITS_WAY: u64 = 2000;

/// The observations, for judging one job.
pub struct Facts<'a> {
    pub jobs: &'a [Submission],
    pub events: &'a std::collections::BTreeMap<u32, Vec<Event>>,
    pub rows: &'a std::collections::BTreeMap<String, Vec<Row>>,
    pub clock: &'a Clock,
    pub hindered: &'a [(u64, u64)],
    pub watchers_killed: &'a BTreeSet<u32>,
    pub steps_killed: &'a BTreeSet<u32>,
    /// The directory of the output files.
    pub outputs: PathBuf,
    /// The boot time of the machine in seconds since 1970.
    pub boot_at: i64,
}

/// A job or array task with all observations about it.
struct Case<'a> {
    facts: &'a Facts<'a>,
    job: &'a Submission,
    task: Option<u32>,
    events: Vec<&'a Event>,
    rows: Vec<&'a Row>,
    found: Vec<String>,
}

/// Judges a submission. Returns the number of jobs checked and the violations.
pub fn judge(facts: &Facts<'_>, job: &Submission) -> (usize, Vec<String>) {
    let name = job.name();
    let all_events = facts.events.get(&job.number).map_or(&[][..], Vec::as_slice);
    let all_rows = facts.rows.get(&name).map_or(&[][..], Vec::as_slice);
    let tasks: Vec<Option<u32>> =
        job.tasks.map_or_else(|| vec![None], |count| (0..count).map(Some).collect());
    let mut found = Vec::new();
    let ids: BTreeSet<u32> = all_rows
        .iter()
        .map(|row| row.id)
        .chain(all_events.iter().filter_map(|e| e.array))
        .collect();
    if ids.len() > 1 {
        found.push(format!("{name}: one submission became several jobs: {ids:?}"));
    }
    if let Some(id) = job.id().filter(|id| !ids.contains(id)) {
        found.push(format!("{name}: job ID {id} was printed, but sacct does not list it"));
    }
    if job.answer == Answer::Refused && !ids.is_empty() {
        found.push(format!("{name}: it was refused, but exists as job {ids:?}"));
    }
    let count = tasks.len();
    for task in tasks {
        let events = all_events.iter().filter(|event| event.task == task).collect();
        let rows = all_rows.iter().filter(|row| row.task == task).collect();
        let mut case = Case { facts, job, task, events, rows, found: Vec::new() };
        case.all();
        let what = task.map_or_else(|| name.clone(), |task| format!("{name}_{task}"));
        found.extend(case.found.into_iter().map(|why| format!("{what}: {why}")));
    }
    (count, found)
}

impl<'a> Case<'a> {
    fn all(&mut self) {
        self.clashes();
        self.runs();
        self.known();
        self.client();
        if matches!(self.job.how, How::Batch | How::Run | How::Cron) {
            self.waits();
        }
        if matches!(self.job.how, How::Batch | How::Run) {
            self.end();
        }
    }

    fn of(&self, what: &str) -> Vec<&'a Event> {
        self.events.iter().copied().filter(|event| event.what == what).collect()
    }

    fn touches(&self) -> impl Iterator<Item = &'a Touch> {
        let task = self.task;
        self.job.touches(task)
    }

    fn was(&self, what: What) -> bool {
        self.touches().any(|touch| touch.what == what)
    }

    /// Whether the job was undisturbed: nobody cancelled or requeued it, or killed its watcher.
    fn is_free(&self) -> bool {
        let meddled =
            [What::Cancel, What::Requeue, What::KillClient].into_iter().any(|what| self.was(what));
        !meddled && !self.watcher_killed()
    }

    fn clashes(&mut self) {
        let clashes = self.of("clash");
        self.found.extend(
            clashes
                .into_iter()
                .map(|event| format!("another job uses the same resources: {event:?}")),
        );
    }

    /// Each run begins at most once.
    fn runs(&mut self) {
        for begin in ["begin", "step-begin"] {
            let mut seen = BTreeSet::new();
            for event in self.of(begin) {
                if !seen.insert(event.restart) {
                    self.found
                        .push(format!("run {} has a second {begin}: {event:?}", event.restart));
                }
            }
        }
    }

    fn known(&mut self) {
        let printed = self.job.id().is_some();
        match self.rows.len() {
            0 if printed => {
                self.found.push("its job ID was printed, but sacct does not list it".to_owned())
            }
            0 if !self.events.is_empty() => {
                self.found.push("it ran, but sacct does not list it".to_owned())
            }
            0 | 1 => {}
            _ => self.found.push(format!("sacct lists it several times: {:?}", self.rows)),
        }
    }

    /// Checks the exit code of the command that waited for the job.
    fn client(&mut self) {
        let Some((code, stderr)) = self.job.client.as_ref().filter(|_| self.is_free()) else {
            return;
        };
        let ran = self.of("begin").len();
        // Either the exit code of the job, or a refusal.
        let is_right = (*code == self.job.plan.code && ran == 1) || (*code == 1 && ran == 0);
        if !is_right {
            let wanted = self.job.plan.code;
            self.found.push(format!(
                "its command exited with {code}, not {wanted}, after {ran} runs; stderr: {stderr:?}"
            ));
        }
    }

    /// Returns the latest time at which a start in progress at `from` may show up.
    fn slack(&self, from: u64) -> u64 {
        let hindered = self.facts.hindered.iter().filter(|(_, to)| *to >= from);
        let lost: u64 = hindered
            .filter(|(start, _)| *start < from + 20_000)
            .map(|(a, b)| b - (*a).max(from))
            .sum();
        from + ON_ITS_WAY + lost
    }

    /// No job begins while it is cancelled or held, or before its begin time.
    fn waits(&mut self) {
        let begins = self.of("begin");
        let touches: Vec<&Touch> = self.touches().collect();
        for cancel in touches.iter().filter(|touch| touch.what == What::Cancel) {
            let again = touches
                .iter()
                .any(|t| t.what == What::Requeue && t.acked.is_none_or(|at| at > cancel.sent));
            let Some(acked) = cancel.acked.filter(|_| !again) else { continue };
            let latest = self.slack(acked);
            let late = begins.iter().filter(|begin| begin.start > latest);
            self.found.extend(
                late.map(|begin| format!("it began after its cancel: {begin:?}, {cancel:?}")),
            );
        }
        let held = self.job.plan.held.then_some(0);
        let holds =
            touches.iter().filter(|touch| touch.what == What::Hold).filter_map(|touch| touch.acked);
        for from in held.into_iter().chain(holds) {
            // Only pending jobs are held. A hold does not affect a running job. The job begins
            // again when it is requeued.
            let again = touches
                .iter()
                .any(|t| t.what == What::Requeue && t.acked.is_none_or(|at| at > from));
            if from > 0 && again && begins.iter().any(|begin| begin.start < from) {
                continue;
            }
            // A release sent before the hold was acknowledged may have arrived after it.
            let released = touches.iter().filter(|touch| touch.what == What::Release);
            let until = released
                .filter(|t| t.acked.is_none_or(|at| at >= from))
                .map(|t| t.sent)
                .min()
                .unwrap_or(u64::MAX);
            let after = if from == 0 { 0 } else { self.slack(from) };
            let bad = begins
                .iter()
                .filter(|begin| begin.start > after && begin.start < until.saturating_sub(10));
            self.found.extend(bad.map(|begin| {
                format!("it began while it was held from {from} to {until}: {begin:?}")
            }));
        }
        if let Some(at) = self.job.plan.begin {
            for begin in &begins {
                let ahead = self.facts.clock.most_ahead(self.job.sent, begin.start);
                let clock = self.facts.boot_at + (begin.start / 1000) as i64 + ahead;
                if clock + 1 < at {
                    self.found.push(format!(
                        "it began {} s before its begin time: {begin:?}",
                        at - clock
                    ));
                }
            }
        }
        self.depends();
    }

    /// The dependency was satisfied before the job began.
    fn depends(&mut self) {
        let Some((kind, number)) = self.job.plan.after else { return };
        let Some((first, start)) = self.of("begin").first().map(|event| (event.at, event.start))
        else {
            return;
        };
        let before = &self.facts.jobs[number as usize - 1];
        let theirs = self.facts.events.get(&number).map_or(&[][..], Vec::as_slice);
        let rows = self.facts.rows.get(&before.name()).map_or(&[][..], Vec::as_slice);
        let again = u32::from(before.plan.requeue && before.plan.fails());
        let tasks: Vec<Option<u32>> = match (kind, before.tasks, self.task) {
            (_, None, _) => vec![None],
            // Only its counterpart, which may not exist.
            (After::Corr, Some(count), Some(task)) if task < count => vec![Some(task)],
            (After::Corr, Some(_), Some(_)) => {
                return self.found.push("it began without a counterpart".to_owned());
            }
            (_, Some(count), _) => (0..count).map(Some).collect(),
        };
        let quiet = |what: What| matches!(what, What::Hold | What::Release | What::Update);
        let is_free = |task: Option<u32>| {
            let mut raw = theirs.iter().filter(|e| e.task == task).filter_map(|e| e.job);
            let killed = |job: u32| self.facts.watchers_killed.contains(&job);
            before.touches(task).all(|touch| quiet(touch.what))
                && !raw.any(killed)
                && !rows.iter().any(|row| row.task == task && killed(row.raw))
        };
        // Jobs without an `end` event give no order.
        if before.plan.limit.is_some() || matches!(before.how, How::AllocBare | How::AllocCommand) {
            return;
        }
        let free: Vec<Option<u32>> = tasks.iter().copied().filter(|task| is_free(*task)).collect();
        let fits = match kind {
            After::Start | After::Any => true,
            After::Ok | After::Corr => free.is_empty() || !before.plan.fails(),
            After::NotOk => free.len() < tasks.len() || before.plan.fails(),
        };
        let has_ended = |task: &Option<u32>| {
            theirs
                .iter()
                .any(|e| e.task == *task && e.what == "end" && e.restart == again && e.at < first)
        };
        // Both may start at the same moment, and log it in either order.
        let latest = self.slack(start);
        let has_begun =
            |task: &Option<u32>| theirs.iter().any(|e| e.task == *task && e.start <= latest);
        let is_met = match kind {
            After::Start => free.iter().all(has_begun),
            After::Any | After::Ok | After::NotOk | After::Corr => free.iter().all(has_ended),
        };
        if !fits || !is_met {
            self.found.push(format!(
                "it began before its dependency {kind:?} on {} was met",
                before.name()
            ));
        }
    }

    /// The job ended as expected.
    fn end(&mut self) {
        let Some(row) = self.rows.first().copied() else { return };
        let plan = &self.job.plan;
        let (own, exit) = plan.end();
        let is_own = row.state == own && exit.as_ref().is_none_or(|exit| *exit == row.exit);
        let is_free = self.is_free();
        let allowed = match row.state.as_str() {
            // If the daemon dies before the refused srun has released its allocation, the next
            // daemon finds an allocation without a client.
            "CANCELLED" => {
                self.was(What::Cancel)
                    || self.was(What::KillClient)
                    || (self.job.how == How::Run && self.was_refused())
            }
            "FAILED" | "NODE_FAIL" if !is_own => {
                self.watcher_killed()
                    || (self.job.how == How::Run && (!is_free || self.was_refused()))
            }
            _ => is_own,
        };
        if !allowed {
            let touches: Vec<&Touch> = self.touches().collect();
            self.found.push(format!(
                "it is {} {}, expected {own} {exit:?}; {touches:?}",
                row.state, row.exit
            ));
        }
        if row.state == "CANCELLED"
            && !row.started
            && !self.events.is_empty()
            && !self.was(What::Requeue)
        {
            self.found.push("it was cancelled before it started, but ran".to_owned());
        }
        if is_own && plan.limit.is_none() {
            let ends = self.of("end");
            if !ends.iter().any(|end| end.restart == row.restarts) {
                self.found
                    .push(format!("its run {} has no end event: {:?}", row.restarts, self.events));
            }
        }
        if is_free {
            self.free_runs(row);
        }
    }

    /// The step ended as expected, unless its watcher was killed or a full disk kept it from being
    /// stored.
    fn step(&mut self) {
        let Some((_, code)) = self.job.plan.step else { return };
        if self.is_in(self.facts.steps_killed) {
            return;
        }
        let saw: Vec<(u32, String)> =
            self.of("saw").iter().map(|event| (event.restart, event.more.clone())).collect();
        let begun: Vec<u32> = self.of("step-begin").iter().map(|event| event.restart).collect();
        let is_right = |(run, saw): &(u32, String)| match saw.as_str() {
            "full" => !begun.contains(run),
            saw => saw == code.to_string() && begun.contains(run),
        };
        if !saw.iter().all(is_right) {
            self.found.push(format!(
                "its step began in the runs {begun:?} and ended with {saw:?}, not {code}"
            ));
        }
    }

    fn watcher_killed(&self) -> bool {
        self.is_in(self.facts.watchers_killed)
    }

    /// Whether one of its job IDs is in the set.
    fn is_in(&self, jobs: &BTreeSet<u32>) -> bool {
        let raw = self
            .rows
            .iter()
            .map(|row| row.raw)
            .chain(self.events.iter().filter_map(|event| event.job));
        raw.into_iter().any(|job| jobs.contains(&job))
    }

    /// Whether its command was refused and the job did not run.
    fn was_refused(&self) -> bool {
        self.job.client.as_ref().is_some_and(|(code, _)| *code == 1) && self.of("begin").is_empty()
    }

    /// An undisturbed job ran exactly as often as promised.
    fn free_runs(&mut self, row: &Row) {
        let plan = &self.job.plan;
        if self.was_refused() {
            return;
        }
        let again = u32::from(plan.requeue && plan.fails());
        let wanted: Vec<u32> = (0..=again).collect();
        let begun: Vec<u32> = self.of("begin").iter().map(|event| event.restart).collect();
        if begun != wanted || row.restarts != again {
            self.found.push(format!("its runs are {begun:?}, expected {wanted:?}; sacct: {row:?}"));
        }
        self.step();
        if plan.lines > 0 && self.job.tasks.is_none() && self.job.how == How::Batch && again == 0 {
            let text = fs::read_to_string(self.facts.outputs.join(self.job.number.to_string()))
                .unwrap_or_default();
            let lines: String = (0..plan.lines).map(|line| format!("line {line}\n")).collect();
            let notices = text.matches(" CANCELLED AT ").count();
            if notices > 1 {
                self.found.push(format!("its output has {notices} cancellation notices"));
            }
            // The output may also contain messages of srun about steps, and of slotd about time
            // limits.
            let own: String = text
                .split_inclusive('\n')
                .filter(|line| !line.starts_with("srun: ") && !line.starts_with("slurmstepd: "))
                .collect();
            if own != lines {
                self.found.push(format!(
                    "its output has {} of {} lines",
                    own.lines().count(),
                    plan.lines
                ));
            }
        }
    }
}

/// Returns pairs of singleton jobs that ran at the same time.
pub fn singletons(facts: &Facts<'_>) -> Vec<String> {
    // The runs with a known begin and end, in the order in which they began.
    let mut runs: Vec<(usize, usize, u32)> = Vec::new();
    for job in facts.jobs.iter().filter(|job| job.plan.singleton) {
        let events = facts.events.get(&job.number).map_or(&[][..], Vec::as_slice);
        for begin in events.iter().filter(|event| event.what == "begin") {
            let is_end =
                |e: &&Event| e.what == "end" && (e.task, e.restart) == (begin.task, begin.restart);
            runs.extend(events.iter().find(is_end).map(|end| (begin.at, end.at, job.number)));
        }
    }
    runs.sort_unstable();
    let mut found = Vec::new();
    for (at, (_, end, number)) in runs.iter().enumerate() {
        let others = runs[at + 1..]
            .iter()
            .take_while(|(begin, ..)| begin < end)
            .filter(|(.., other)| other != number);
        found.extend(others.map(|(.., other)| {
            format!("singleton t{other} began while singleton t{number} was running")
        }));
    }
    found
}
