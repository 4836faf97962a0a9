//! Why a job waits for resources, in words: what it lacks, and who has it until when.

use super::backfill::{Running, waits_for};
use super::core::{Core, Record};
use super::plan::ExpectedEnd;
use super::queue::QueueKey;
use super::room::Want;
use crate::model::tres::Allocation;
use crate::model::view::JobView;
use crate::model::{Job, JobState, Reason, Timestamp, Tres};

/// So many jobs are named.
const MOST_NAMED: usize = 3;

impl Core {
    /// What the first blocked job of its line waits for: `waits for 4 CPUs; job 12 holds 6 CPUs until 14:05 by its time
    /// limit`. `None`: it has another reason.
    pub(super) fn waits_in_words(&self, record: &Record, reason: Reason, now: Timestamp) -> Option<String> {
        let (Reason::Resources | Reason::Exclusive) = reason else { return None };
        let (choice, _) = self.waits_in(record, now)?;
        let (lacks, holders) = self.lacks_in_words(&choice.want(), now)?;
        Some(format!("waits for {lacks}; {holders}"))
    }

    /// Adds to the view of one that others go before whom it waits behind, and for what. It costs a look at all that runs:
    /// for a job that is asked for alone.
    pub fn tell_who_is_before(&self, view: &mut JobView, now: Timestamp) {
        if view.run.reason == Reason::Priority && view.run.system_comment.is_none() {
            view.run.system_comment = self.jobs.get(&view.id).and_then(|record| self.behind_in_words(record, now));
        }
    }

    fn behind_in_words(&self, record: &Record, now: Timestamp) -> Option<String> {
        let (choice, _) = self.waits_in(record, now)?;
        let is_other = |key: &QueueKey| key.id != record.job.id;
        let first = self.first_in_line(&choice).filter(is_other).or_else(|| self.queue.first().filter(is_other))?;
        let label = self.job(first.id).map_or_else(|| first.id.to_string(), Job::label);
        if self.ledger.room().fits(&choice.want(), &self.config.host) {
            return Some(format!("there is room for it, and it would delay job {label}, which waits before it"));
        }
        let (lacks, holders) = self.lacks_in_words(&choice.want(), now)?;
        Some(format!("waits behind job {label} for {lacks}; {holders}"))
    }

    /// What a job lacks that does not fit, and who has it until when.
    fn lacks_in_words(&self, want: &Want, now: Timestamp) -> Option<(String, String)> {
        let (room, host) = (self.ledger.room(), &self.config.host);
        let lacks = room.lacks(want, host);
        let holders = waits_for(want, room, self.running_jobs(now), host);
        let (named, others) = holders.split_at(holders.len().min(MOST_NAMED));
        let mut words: Vec<String> = named.iter().map(|holder| self.holder(holder, &lacks, now)).collect();
        if !others.is_empty() {
            words.push(format!("{} more ha{} to end", others.len(), if others.len() == 1 { "s" } else { "ve" }));
        }
        (!named.is_empty()).then(|| (amounts(&lacks), words.join("; ")))
    }

    fn holder(&self, Running { id, end, part, .. }: &Running, lacks: &Tres, now: Timestamp) -> String {
        let held = amounts(&of_kinds(&part.alloc, lacks));
        let job = self.job(*id);
        let tell = |end: &Timestamp| self.config.zone.tell(*end, now).unwrap_or_default();
        let until = match (job.map(|job| job.run.state), end) {
            (Some(JobState::Completing), _) => "and is about to end".to_owned(),
            (Some(JobState::Suspended), _) => "and is suspended".to_owned(),
            (_, ExpectedEnd::Unknown) => "and has no time limit".to_owned(),
            (_, ExpectedEnd::ByLimit(end)) => format!("until {} by its time limit", tell(end)),
            (_, ExpectedEnd::AsEarlier(end)) => {
                format!("until about {} if it takes as long as earlier ones", tell(end))
            }
        };
        let label = job.map_or_else(|| id.to_string(), Job::label);
        format!("job {label} holds {held} {until}")
    }
}

/// What an allocation has of what is lacking; shared GPUs count whole.
fn of_kinds(alloc: &Allocation, lacks: &Tres) -> Tres {
    Tres {
        cpus: if lacks.cpus > 0 { alloc.tres.cpus } else { 0 },
        mem_mb: if lacks.mem_mb > 0 { alloc.tres.mem_mb } else { 0 },
        gpus: if lacks.gpus > 0 { alloc.gpu_ids.len() as u32 } else { 0 },
        ..Tres::ZERO
    }
}

fn amounts(tres: &Tres) -> String {
    let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let words = [
        (tres.cpus > 0).then(|| count(tres.cpus, "CPU")),
        (tres.mem_mb > 0).then(|| format!("{} MB of memory", tres.mem_mb)),
        (tres.gpus > 0).then(|| count(tres.gpus, "GPU")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}
