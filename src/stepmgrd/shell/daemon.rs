//! Messages from the daemon.

use super::{LinkEvent, Shell};
use slotd_model::node::NodeParts;
use slotd_model::resize::{ManagersPart, PartChange};
use slotd_model::tres::Usage;
use slotd_model::{Refusal, counted};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_stepmgr::api::{Event, Owed};
use slotd_stepmgr::core::Halt;
use slotd_sys::{proc, system};
use std::time::Duration;

/// A timer that fires this much too late is very late.
const LATE: Duration = Duration::from_millis(500);

/// Whether timers are very late, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// No timer is known to be late.
    None,
    /// The daemon was asked whether the job was suspended.
    Asked,
    /// The daemon has answered. Any remaining delay is due to a slow host.
    Explained,
}

/// Step numbers to request once the first ones are used up.
const MORE_NUMBERS: u32 = 10_000;

impl Shell {
    pub(super) fn read_daemon(&mut self, now: Duration) {
        for event in self.link.receive(&self.identity) {
            match event {
                LinkEvent::Disconnected => {
                    self.records.on_lost(now);
                    self.asked_for_numbers = false;
                    self.lateness = Lateness::None;
                }
                LinkEvent::Reconnected => self.resend_running(now),
                LinkEvent::Answer(answer) => self.on_answer(*answer, now),
            }
        }
    }

    /// Resends the records of running steps. After a restart, the daemon knows only stored records.
    fn resend_running(&mut self, now: Duration) {
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
            Answer::SignalStep { step: Some(number), signal, by, ticket } => {
                let runs = self.core.attempt(number).is_some();
                self.core.signal(number, signal, by, now);
                if let Some(ticket) = ticket {
                    self.link.send(&Request::StepSignalled { ticket, runs });
                }
            }
            Answer::SignalStep { step: None, signal, by, .. } => {
                let numbers: Vec<u32> = self.core.running().map(|(number, _)| number).collect();
                numbers.into_iter().for_each(|number| self.core.signal(number, signal, by, now));
            }
            Answer::MeasureStep { ticket, step } => {
                let pids = self.live.get(&step).map(|live| live.pids.clone()).unwrap_or_default();
                let (usage, pids) = measure(&pids);
                self.link.send(&Request::StepMeasured { ticket, usage, pids });
            }
            Answer::Ended { view } => {
                self.progress
                    .print(&format!("error: job {} has ended: terminating its steps", view.id));
                self.core.stop(now);
                self.link.give_up();
            }
            Answer::Refused(Refusal::ShuttingDown) => self.records.on_lost(now),
            Answer::Refused(why) => {
                // The job has ended or has another manager. Nobody needs the records any more.
                self.progress.print(&format!("error: the daemon rejected this manager: {why}"));
                self.core.stop(now);
                self.link.give_up();
            }
            _ => {}
        }
    }

    /// Updates the manager's share of the job. `why` is `None` after a reconnect.
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
            self.api.broadcast(None, &Event::Resources { cpus, mem_mb, gpus, owed, why });
            self.report_too_large();
        }
    }

    /// Reports steps that wait for resources that the job no longer has.
    fn report_too_large(&mut self) {
        let words = self.core.too_large().map(|(count, first)| {
            let lack = self.core.resources().too_little_for(&first.settings.ask);
            let verb = if count == 1 { "needs" } else { "need" };
            let steps = counted(count, "step");
            format!(
                "{steps} {verb} a larger job: resize it (sjobmgr resize), or cancel steps (sjobmgr \
                 cancel): step {:?} {lack}",
                first.name
            )
        });
        // Repeat the message only if it changed: the job shrinks in several steps.
        if words != self.reported_too_large {
            words.iter().for_each(|words| self.progress.print(words));
            self.reported_too_large = words;
        }
    }

    /// Gives idle resources back if the job has to shrink.
    pub(super) fn give_back(&mut self) {
        if let Some(given_back) = self.core.given_back() {
            let (job, client) = (self.identity.job, self.identity.client);
            self.link.send(&Request::GiveBack { job, client, given_back });
        }
    }

    /// Updates the CPUs and GPUs that are out of use. Repeated lists are ignored.
    fn on_parts_out(&mut self, parts: NodeParts, why: String, now: Duration) {
        if parts == *self.core.resources().out() {
            return;
        }
        let (cpus, gpus) =
            (parts.cpus.iter().copied().collect(), parts.gpus.iter().copied().collect());
        if parts.is_empty() {
            self.progress.note("all resources of the job are usable again")
        } else {
            self.progress.note(&format!("{parts} out of use: moving their steps ({why})"))
        }
        self.core.on_parts_out(parts, now);
        self.api.broadcast(None, &Event::Out { cpus, gpus, why });
    }

    /// Fires due timers. If one is very late, this process may have been suspended with its job, so
    /// it first asks the daemon for how long.
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

    /// Returns false if the daemon is down.
    fn ask_daemon(&mut self, numbers: u32) -> bool {
        let (job, client, within) = (self.identity.job, self.identity.client, self.identity.within);
        self.link.send(&Request::ManageSteps { job, client, within, numbers })
    }

    /// Requests step numbers if steps wait only for those.
    pub(super) fn ask_for_numbers(&mut self, now: Duration) {
        if !self.asked_for_numbers && self.core.wants_numbers(now) {
            self.asked_for_numbers = self.ask_daemon(MORE_NUMBERS);
        }
    }
}

/// Measures these processes and all their descendants.
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
