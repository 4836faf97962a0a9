//! Notifications about the queue: events, channels and recipients.

use crate::mail::MailKind;
use crate::memo::{NamedJob, Tally};
use crate::{End, ExitCode, Job, JobId, JobState, Reason, Timestamp, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// An event that users can be notified of (`SLOTD_NOTIFY_EVENTS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A job or an array task ended.
    #[default]
    Job,
    /// All tasks of an array ended.
    Array,
    /// All jobs linked by dependencies ended.
    Chain,
    /// No job is pending or running any more.
    Queue,
    /// A job waits for something that can never happen.
    Never,
}

impl Event {
    pub const ALL: [Event; 5] =
        [Event::Job, Event::Array, Event::Chain, Event::Queue, Event::Never];

    pub const fn name(self) -> &'static str {
        match self {
            Event::Job => "job",
            Event::Array => "array",
            Event::Chain => "chain",
            Event::Queue => "queue",
            Event::Never => "never",
        }
    }
}

/// A set of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(u8);

impl Events {
    pub const NONE: Events = Events(0);

    #[must_use]
    pub fn with(self, event: Event) -> Events {
        Events(self.0 | 1 << event as u8)
    }

    pub fn has(self, event: Event) -> bool {
        self.0 & (1 << event as u8) != 0
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Event::ALL.into_iter().filter(|event| self.has(*event)).map(Event::name).collect();
        f.write_str(&names.join(","))
    }
}

/// The configured recipients and the events that each of them wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audience {
    /// Events for `SLOTD_NOTIFY_CMD`.
    pub command: Events,
    /// Events for `SLOTD_NOTIFY_URL`.
    pub url: Events,
    /// Whether mail can be sent. Each job requests its own kinds of email.
    pub mail: bool,
}

impl Audience {
    pub fn wants(&self, event: Event) -> bool {
        self.command.has(event) || self.url.has(event)
    }

    pub fn is_empty(&self) -> bool {
        *self == Audience::default()
    }
}

/// The channel that a notification is sent through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    #[default]
    Command,
    Url,
    Mail(MailKind),
}

/// The number of jobs by how they ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts(BTreeMap<End, u64>);

impl Counts {
    pub fn add(&mut self, end: End, count: u64) {
        *self.0.entry(end).or_default() += count;
    }

    /// Subtracts jobs that run again.
    pub fn take_back(&mut self, end: End, count: u64) {
        if let Some(known) = self.0.get_mut(&end) {
            *known = known.saturating_sub(count);
            if *known == 0 {
                self.0.remove(&end);
            }
        }
    }

    pub fn merge(&mut self, other: &Counts) {
        other.iter().for_each(|(end, count)| self.add(end, count));
    }

    pub fn iter(&self) -> impl Iterator<Item = (End, u64)> {
        self.0.iter().map(|(end, count)| (*end, *count))
    }

    pub fn of(&self, end: End) -> u64 {
        self.0.get(&end).copied().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the number of jobs that neither completed nor were cancelled.
    pub fn failed(&self) -> u64 {
        self.iter().filter(|(end, _)| end.is_failure()).map(|(_, count)| count).sum()
    }

    /// Returns one end for all of them: FAILED if any job failed in any way.
    pub fn end(&self) -> End {
        if self.failed() > 0 {
            End::Failed
        } else if self.of(End::Cancelled) > 0 {
            End::Cancelled
        } else {
            End::Completed
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.iter().map(|(end, count)| format!("{count} {end}")).collect();
        f.write_str(&words.join(", "))
    }
}

/// Times, resources and usage of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    pub submit: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// Run time without suspensions.
    pub elapsed_secs: u64,
    pub exit: ExitCode,
    pub tres: Tres,
    pub cpu_us: u64,
    pub max_rss_kb: u64,
    pub time_limit_secs: Option<u64>,
    /// The path of standard error with its patterns filled in. Set only for email about failures.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub std_err: String,
}

impl RunFacts {
    pub fn of(job: &Job, now: Timestamp) -> RunFacts {
        let usage = job.steps.iter().fold(job.run.usage(), |sum, step| sum.merge(step.usage));
        RunFacts {
            submit: job.submit,
            start: job.run.start,
            end: job.run.end,
            elapsed_secs: job.elapsed(now).as_secs(),
            exit: job.run.exit,
            tres: job.run.alloc.as_ref().map_or(job.tres, |alloc| alloc.tres),
            cpu_us: usage.user_us.saturating_add(usage.system_us),
            max_rss_kb: usage.max_rss_kb,
            time_limit_secs: job.request.time_limit_secs,
            std_err: String::new(),
        }
    }
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    #[serde(default, skip_serializing_if = "is_default")]
    pub event: Event,
    #[serde(default, skip_serializing_if = "is_default")]
    pub channel: Channel,
    /// `12`, or `12_3` and `12_[5-6]` for array tasks. For an array: its ID. For a chain: the ID of
    /// its last job. For the queue: empty.
    pub job_id: String,
    pub name: String,
    /// For several jobs: see [`Counts::end`].
    pub state: JobState,
    pub partition: String,
    pub reason: Reason,
    /// `--mail-type` and `--mail-user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail_user: Option<String>,
    /// The user who submitted the job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The whole notification as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// When the event happened.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: Timestamp,
    /// Set for a single job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunFacts>>,
    /// Set for several jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<Box<Tally>>,
    /// The ID of the record, if it differs from the ID that users see. Slurm's emails contain it
    /// too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub record: JobId,
}

impl Notice {
    /// Creates a notification about one job or array task.
    pub fn of(job: &Job, event: Event, now: Timestamp) -> Notice {
        Notice {
            event,
            channel: Channel::Command,
            job_id: job.full_label(),
            name: job.request.name.clone(),
            state: job.run.state,
            partition: job.partition.to_string(),
            reason: job.run.reason,
            mail_type: job.request.mail_type.clone(),
            mail_user: job.request.mail_user.clone(),
            user: job.request.user.clone(),
            text: String::new(),
            at: now,
            run: Some(Box::new(RunFacts::of(job, now))),
            tally: None,
            record: job.id,
        }
    }

    /// Creates a notification about the end of a job.
    pub fn of_end(job: &Job, now: Timestamp) -> Notice {
        let mut notice = Notice::of(job, Event::Job, now);
        let reason = match job.run.reason {
            Reason::None => String::new(),
            reason => format!(" ({reason})"),
        };
        let exit = match job.run.exit {
            ExitCode { status: 0, signal: 0 } => String::new(),
            ExitCode { status, signal: 0 } => format!(", exit code {status}"),
            ExitCode { signal, .. } => format!(", signal {signal}"),
        };
        let (id, name, state) = (&notice.job_id, &notice.name, notice.state);
        notice.text = format!("job {id} ({name}) has ended: {state}{reason}{exit}");
        notice
    }

    /// Creates a notification about the end of an array. `job` is any record of the array.
    pub fn of_array(job: &Job, array: JobId, tally: Tally, now: Timestamp) -> Notice {
        let (total, counts) = (tally.counts.total(), tally.counts.to_string());
        let name = &job.request.name;
        let text = format!("array {array} ({name}) has ended: {}: {counts}", count(total, "task"));
        Notice {
            job_id: array.to_string(),
            state: JobState::Ended(tally.counts.end()),
            reason: Reason::None,
            text,
            run: None,
            tally: Some(Box::new(tally)),
            record: array,
            ..Notice::of(job, Event::Array, now)
        }
    }

    /// Creates a notification about the end of a chain or of everything in the queue.
    pub fn of_several(event: Event, tally: Tally, now: Timestamp) -> Notice {
        let counts = format!("{}: {}", count(tally.counts.total(), "job"), tally.counts);
        let named = |job: &Option<NamedJob>| {
            job.as_ref().map(|job| format!("{} ({})", job.id, job.name)).unwrap_or_default()
        };
        let (first, last) = (named(&tally.first), named(&tally.last));
        let text = match event {
            Event::Chain => format!("the chain of jobs from {first} to {last} has ended: {counts}"),
            Event::Job | Event::Array | Event::Queue | Event::Never => {
                format!("the queue is empty: {counts}")
            }
        };
        let of_chain = tally.last.clone().filter(|_| event == Event::Chain);
        Notice {
            event,
            channel: Channel::Command,
            job_id: of_chain.as_ref().map(|job| job.id.to_string()).unwrap_or_default(),
            name: of_chain.map(|job| job.name).unwrap_or_default(),
            state: JobState::Ended(tally.counts.end()),
            partition: String::new(),
            reason: Reason::None,
            mail_type: None,
            mail_user: None,
            user: String::new(),
            text,
            at: now,
            run: None,
            tally: Some(Box::new(tally)),
            record: JobId::default(),
        }
    }
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_of_older_versions_are_read() {
        let old = r#"{"job_id":"12_3","name":"a","state":"FAILED","partition":"cpu","reason":"NonZeroExitCode"}"#;
        let notice: Notice = serde_json::from_str(old).unwrap();
        assert_eq!(
            (notice.event, notice.channel, notice.job_id.as_str()),
            (Event::Job, Channel::Command, "12_3")
        );
    }

    #[test]
    fn counts_reduce_to_one_end() {
        let mut counts = Counts::default();
        assert_eq!(counts.end(), End::Completed);
        counts.add(End::Completed, 3);
        counts.add(End::Cancelled, 1);
        assert_eq!((counts.end(), counts.failed()), (End::Cancelled, 0));
        counts.add(End::Timeout, 1);
        assert_eq!((counts.end(), counts.failed(), counts.total()), (End::Failed, 1, 5));
        assert_eq!(counts.to_string(), "3 COMPLETED, 1 CANCELLED, 1 TIMEOUT");
        counts.take_back(End::Timeout, 1);
        assert_eq!(counts.to_string(), "3 COMPLETED, 1 CANCELLED");
        assert_eq!(serde_json::to_string(&counts).unwrap(), r#"{"COMPLETED":3,"CANCELLED":1}"#);
    }

    #[test]
    fn event_sets_print_as_names() {
        let events = Events::NONE.with(Event::Never).with(Event::Job);
        assert_eq!(events.to_string(), "job,never");
        assert!(events.has(Event::Job) && !events.has(Event::Queue));
    }
}
