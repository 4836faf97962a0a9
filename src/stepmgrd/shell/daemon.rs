//! What the daemon says to the manager.

use super::{Heard, Shell};
use crate::model::Refusal;
use crate::model::node::NodeParts;
use crate::model::resize::{ManagersPart, PartChange};
use crate::model::tres::Usage;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::stepmgr::api::{Event, Owed};
use crate::stepmgr::core::Halt;
use crate::sys::{proc, system};
use std::time::Duration;

/// What is carried out so much later than it is due is very late.
const LATE: Duration = Duration::from_millis(500);

/// Why something is very late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// Nothing is, as far as is known.
    None,
    /// The daemon is asked.
    Asked,
    /// It has said all that it knows: the host is slow.
    Explained,
}

/// More numbers, when those are used up.
const MORE_NUMBERS: u32 = 10_000;

impl Shell {
    pub(super) fn hear_daemon(&mut self, now: Duration) {
        for heard in self.link.hear(&self.identity) {
            match heard {
                Heard::Gone => {
                    self.records.on_lost(now);
                    self.asked_for_numbers = false;
                    self.lateness = Lateness::None;
                }
                Heard::Back => self.tell_running_again(now),
                Heard::Answer(answer) => self.on_answer(*answer, now),
            }
        }
    }

    /// The daemon that is back has what the last one had written down.
    fn tell_running_again(&mut self, now: Duration) {
        for live in self.live.values() {
            self.records.put(live.record.clone(), now);
        }
    }

    fn on_answer(&mut self, answer: Answer, now: Duration) {
        match answer {
            Answer::Recorded => self.records.on_recorded(&mut self.journal),
            Answer::Managed(job) => {
                if job.numbers.1 > 0 {
                    self.numbers = job.numbers;
                    self.asked_for_numbers = false;
                    self.core
                        .on_numbers(job.numbers.0..job.numbers.0.saturating_add(job.numbers.1));
                }
                self.on_part(job.part, None);
                self.on_parts_out(job.out, String::new(), now);
                if self.lateness == Lateness::Asked {
                    self.lateness = Lateness::Explained;
                }
            }
            Answer::PartsOut { parts, why } => self.on_parts_out(parts, why, now),
            Answer::ManagerChanged { part, why } => self.on_part(*part, Some(why)),
            Answer::SignalStep { step: Some(number), signal, ticket } => {
                let runs = self.core.attempt(number).is_some();
                self.core.signal(number, signal, now);
                if let Some(ticket) = ticket {
                    self.link.send(&Request::StepSignalled { ticket, runs });
                }
            }
            Answer::SignalStep { step: None, signal, .. } => {
                let numbers: Vec<u32> = self.core.running().map(|(number, _)| number).collect();
                numbers.into_iter().for_each(|number| self.core.signal(number, signal, now));
            }
            Answer::MeasureStep { ticket, step } => {
                let pids = self.live.get(&step).map(|live| live.pids.clone()).unwrap_or_default();
                let (usage, pids) = measure(&pids);
                self.link.send(&Request::StepMeasured { ticket, usage, pids });
            }
            Answer::Ended { view } => {
                self.progress.say(&format!("error: job {} is over: its steps are ended", view.id));
                self.core.stop(now);
                self.link.give_up();
            }
            Answer::Refused(Refusal::ShuttingDown) => self.records.on_lost(now),
            Answer::Refused(why) => {
                // The job is over, or another manager has it: nobody waits for the records any
                // more.
                self.progress.say(&format!("error: the daemon does not know this manager: {why}"));
                self.core.stop(now);
                self.link.give_up();
            }
            _ => {}
        }
    }

    /// The manager has this of its job. Without a `why` it has heard nothing for a while.
    fn on_part(&mut self, part: ManagersPart, why: Option<PartChange>) {
        let ManagersPart { alloc, owed, whole, end_us, suspended_us } = part;
        self.core.on_suspended(Duration::from_micros(suspended_us));
        self.core.on_job_end_moved(end_us.map(Duration::from_micros));
        self.launches.set_whole(whole);
        let resources = self.core.resources();
        let is_news = alloc != *resources.whole() || owed != *resources.owed();
        let (cpus, mem_mb, gpus) = (alloc.tres.cpus, alloc.tres.mem_mb, alloc.gpu_ids.len() as u32);
        self.core.on_resources(alloc, owed);
        if is_news {
            let why = why.map(|why| why.to_string()).unwrap_or_default();
            let owed = Owed { cpus: owed.cpus, mem_mb: owed.mem_mb, gpus: owed.gpus };
            self.api.tell_all(None, &Event::Resources { cpus, mem_mb, gpus, owed, why });
            self.tell_too_large();
        }
    }

    /// Some steps wait now for what the job had and has no more.
    fn tell_too_large(&mut self) {
        let words = self.core.too_large().map(|(count, first)| {
            let lack = self.core.resources().too_little_for(&first.settings.ask);
            format!(
                "{count} steps wait until the job is larger again (sjobmgr resize), or they are cancelled (sjobmgr \
                 cancel): step {:?} {lack}",
                first.name
            )
        });
        // The job shrinks in several steps.
        if words != self.told_too_large {
            words.iter().for_each(|words| self.progress.say(words));
            self.told_too_large = words;
        }
    }

    /// What no step uses goes back, if the job is to have less.
    pub(super) fn give_back(&mut self) {
        if let Some(given_back) = self.core.given_back() {
            let (job, client) = (self.identity.job, self.identity.client);
            self.link.send(&Request::GiveBack { job, client, given_back });
        }
    }

    /// What was told before is no news.
    fn on_parts_out(&mut self, parts: NodeParts, why: String, now: Duration) {
        if parts == *self.core.resources().out() {
            return;
        }
        let (cpus, gpus) =
            (parts.cpus.iter().copied().collect(), parts.gpus.iter().copied().collect());
        if parts.is_empty() {
            self.progress.note("all that the job has may be used again")
        } else {
            self.progress.note(&format!("{parts} out of use: steps on it are moved ({why})"))
        }
        self.core.on_parts_out(parts, now);
        self.api.tell_all(None, &Event::Out { cpus, gpus, why });
    }

    /// What is due is carried out, but for what is very late: then this process may have stood
    /// still with its job, and the daemon says first for how long.
    pub(super) fn carry_out_due(&mut self, now: Duration) {
        let is_late = self.core.next_due().is_some_and(|due| due + LATE <= now)
            && self.core.halt() != Halt::Stop;
        if !is_late {
            self.lateness = Lateness::None;
        } else if self.lateness == Lateness::None && self.ask_daemon(0) {
            self.lateness = Lateness::Asked;
        }
        if self.lateness != Lateness::Asked {
            self.core.on_due(now);
        }
    }

    /// False: it is away.
    fn ask_daemon(&mut self, numbers: u32) -> bool {
        let (job, client, within) = (self.identity.job, self.identity.client, self.identity.within);
        self.link.send(&Request::ManageSteps { job, client, within, numbers })
    }

    /// Steps wait for nothing but a number.
    pub(super) fn ask_for_numbers(&mut self, now: Duration) {
        if !self.asked_for_numbers && self.core.wants_numbers(now) {
            self.asked_for_numbers = self.ask_daemon(MORE_NUMBERS);
        }
    }
}

/// What these processes and those below them use now.
fn measure(tasks: &[i32]) -> (Usage, Vec<i32>) {
    let pids: Vec<i32> =
        tasks.iter().flat_map(|pid| [vec![*pid], proc::descendants(*pid)].concat()).collect();
    let mut usage = Usage::default();
    for stat in pids.iter().filter_map(|pid| proc::stat(*pid)) {
        let used = stat.used.plus(stat.by_children);
        usage.max_rss_kb += stat.rss_pages * (system::page_bytes() / 1024);
        usage.user_us += used.user_us;
        usage.system_us += used.system_us;
    }
    (usage, pids)
}
