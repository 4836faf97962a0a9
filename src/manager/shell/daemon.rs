//! What the daemon says to the manager.

use super::{Heard, Shell};
use crate::jobmgr::api::Event;
use crate::model::Refusal;
use crate::model::tres::Usage;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::sys::{proc, system};
use std::time::Duration;

/// More numbers, when those are used up.
const MORE_NUMBERS: u32 = 10_000;

impl Shell {
    pub(super) fn hear_daemon(&mut self, now: Duration) {
        for heard in self.link.hear(&self.identity) {
            match heard {
                Heard::Gone => {
                    self.records.on_lost(now);
                    self.asked_for_numbers = false;
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
                    self.core.on_numbers(job.numbers.0..job.numbers.0.saturating_add(job.numbers.1));
                }
                self.core.on_job_end_moved(job.end_us.map(Duration::from_micros));
                self.on_resources(job.alloc);
            }
            Answer::ManagerChanged { alloc, end_us } => {
                self.core.on_job_end_moved(end_us.map(Duration::from_micros));
                self.on_resources(alloc);
            }
            Answer::SignalStep { step: Some(number), signal } => self.core.signal(number, signal, now),
            Answer::SignalStep { step: None, signal } => {
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
                // The job is over, or another manager has it: nobody waits for the records any more.
                self.progress.say(&format!("error: the daemon does not know this manager: {why}"));
                self.core.stop(now);
                self.link.give_up();
            }
            _ => {}
        }
    }

    fn on_resources(&mut self, alloc: crate::model::tres::Allocation) {
        if alloc != *self.core.resources().whole() {
            let (tres, gpus) = (alloc.tres, alloc.gpu_ids.len() as u32);
            self.core.on_resources(alloc);
            self.api.tell_all(None, &Event::Resources { cpus: tres.cpus, mem_mb: tres.mem_mb, gpus });
        }
    }

    /// Steps wait for nothing but a number.
    pub(super) fn ask_for_numbers(&mut self, now: Duration) {
        if !self.asked_for_numbers && self.core.wants_numbers(now) {
            let (job, client, within) = (self.identity.job, self.identity.client, self.identity.within);
            let request = Request::ManageSteps { job, client, within, numbers: MORE_NUMBERS };
            self.asked_for_numbers = self.link.send(&request);
        }
    }
}

/// What these processes and those below them use now.
fn measure(tasks: &[i32]) -> (Usage, Vec<i32>) {
    let pids: Vec<i32> = tasks.iter().flat_map(|pid| [vec![*pid], proc::descendants(*pid)].concat()).collect();
    let mut usage = Usage::default();
    for stat in pids.iter().filter_map(|pid| proc::stat(*pid)) {
        let used = stat.used.plus(stat.by_children);
        usage.max_rss_kb += stat.rss_pages * (system::page_bytes() / 1024);
        usage.user_us += used.user_us;
        usage.system_us += used.system_us;
    }
    (usage, pids)
}
