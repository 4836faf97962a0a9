//! Notifications about the queue: ends of jobs, arrays, chains and of the whole queue, and jobs
//! that can never start.
//!
//! All events are detected where a state changes. Counters are stored in the database together with
//! the change that they count, so that a restart neither loses nor repeats a notification. Nothing
//! is counted without a recipient.
//!
//! A chain consists of two or more jobs linked by dependencies of any kind except `singleton`. An
//! ended job belongs to it while it is in memory, so that a quick first job is not missed.

use super::records::Records;
use super::types::{Cx, Effect};
use slotd_model::change::Change;
use slotd_model::dependency::DependencyTerm;
use slotd_model::mail::{MailKind, MailTypes};
use slotd_model::memo::{MemoBody, MemoKey, Tally};
use slotd_model::notice::{Audience, Channel, Event, Notice};
use slotd_model::{End, Job, JobId, JobState, Reason, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The jobs of a chain that are in memory, by submission.
#[derive(Debug, Clone, Default)]
struct Chain {
    live: BTreeSet<JobId>,
    ended: BTreeSet<JobId>,
}

/// The counters, and the notifications already sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notifications {
    audience: Audience,
    tallies: BTreeMap<MemoKey, Tally>,
    chains: HashMap<JobId, Chain>,
    chain_of: HashMap<JobId, JobId>,
    never: HashMap<JobId, Vec<Reason>>,
    limits: HashMap<JobId, u8>,
    /// Pending jobs to check: they may wait for something that can never happen.
    suspects: BTreeSet<JobId>,
    /// Changed groups, which may have ended.
    touched: BTreeSet<MemoKey>,
    /// The memos to store again.
    dirty: BTreeSet<MemoKey>,
    out: Vec<(Option<JobId>, Box<Notice>)>,
    /// Send no notifications for now.
    is_quiet: bool,
}

impl Notifications {
    pub(crate) fn new(audience: Audience) -> Self {
        Notifications { audience, ..Notifications::default() }
    }

    pub(crate) fn set_audience(&mut self, audience: Audience) {
        self.audience = audience;
    }

    /// Turns notifications off or on.
    pub(crate) fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    fn tally(&mut self, key: MemoKey, now: Timestamp) -> &mut Tally {
        self.dirty.insert(key);
        self.touched.insert(key);
        self.tallies.entry(key).or_insert_with(|| Tally::since(now))
    }

    /// Returns the memo to store, or `None` to delete it.
    fn memo(&self, key: MemoKey) -> Option<MemoBody> {
        match key {
            MemoKey::Array(_) | MemoKey::Chain(_) | MemoKey::Queue => {
                self.tallies.get(&key).map(|tally| MemoBody::Tally(Box::new(tally.clone())))
            }
            MemoKey::Link(job) => self.chain_of.get(&job).copied().map(MemoBody::Link),
            MemoKey::Never(job) => self.never.get(&job).cloned().map(MemoBody::Reasons),
            MemoKey::Limit(job) => self.limits.get(&job).copied().map(MemoBody::Percent),
            // Kept by the core itself.
            MemoKey::Reservation(_) | MemoKey::LastReservation => None,
        }
    }

    fn leave_chain(&mut self, member: JobId) {
        if let Some(root) = self.chain_of.remove(&member) {
            self.dirty.insert(MemoKey::Link(member));
            if let Some(chain) = self.chains.get_mut(&root) {
                chain.live.remove(&member);
                chain.ended.remove(&member);
            }
        }
    }
}

/// Returns whether mail about the job is sent for its array as a whole.
fn is_mailed_as_array(job: &Job, types: &MailTypes) -> bool {
    job.array_job_id().is_some() && !types.array_tasks
}

/// Returns the kind of mail about an end: FAIL if requested without END, as in Slurm.
fn kind_of_end(types: &MailTypes, has_failed: bool) -> Option<MailKind> {
    match (has_failed, types.fail, types.end) {
        (true, true, _) => Some(MailKind::Fail),
        (_, _, true) => Some(MailKind::End),
        (_, _, false) => None,
    }
}

/// Returns whether a job with this reason never starts without intervention. Reasons that the owner
/// has ordered (a hold, a partition or node that is down) do not count.
fn is_permanent(job: &Job, reason: Reason) -> bool {
    match reason {
        Reason::DependencyNeverSatisfied
        | Reason::BadConstraints
        | Reason::PartitionConfig
        | Reason::PartitionTimeLimit
        | Reason::QosMaxWallDurationPerJobLimit => true,
        Reason::Licenses => false,
        limit if limit.is_limit() => true,
        // slotd itself holds a job after repeated failed launches.
        Reason::JobHeldAdmin => job.run.system_comment.is_some(),
        _ => false,
    }
}

impl Notifications {
    /// Returns the mail types that the job requests, if mail can be sent.
    pub(crate) fn mail_types(&self, job: &Job) -> Option<MailTypes> {
        let text = job.request.mail_type.as_deref().filter(|_| self.audience.mail)?;
        Some(MailTypes::of(text))
    }

    /// Handles a record whose state has just changed from `from`.
    pub(crate) fn note(&mut self, records: &Records, job: &Job, from: JobState, now: Timestamp) {
        if self.audience.is_empty() {
            return;
        }
        let (id, to, types) = (job.id, job.run.state, self.mail_types(job));
        if to.is_terminal() && !self.is_quiet {
            self.notify_end(job, types.as_ref(), now);
        } else if from == JobState::Pending && to == JobState::Running {
            self.notify_begin(job, types.as_ref(), now);
        }
        if !to.is_active() && self.limits.remove(&id).is_some() {
            self.dirty.insert(MemoKey::Limit(id));
        }
        if to.is_terminal() && self.never.remove(&id).is_some() {
            self.dirty.insert(MemoKey::Never(id));
        }
        if to.is_terminal() != from.is_terminal() {
            self.count(records, job, from, now);
        }
    }

    /// Notifies about the end of a run of a job that recurs. `job` is its record as of then.
    pub(crate) fn notify_end_of_run(&mut self, job: &Job, now: Timestamp) {
        if !self.audience.is_empty() && !self.is_quiet {
            self.notify_end(job, self.mail_types(job).as_ref(), now);
            // The others may have ended before.
            self.touched.extend(self.queue());
        }
    }

    fn queue(&self) -> Option<MemoKey> {
        self.audience.wants(Event::Queue).then_some(MemoKey::Queue)
    }

    fn groups_of(&self, job: &Job) -> Vec<MemoKey> {
        let audience = &self.audience;
        let own = job.array_job_id().unwrap_or(job.id);
        let is_mailed =
            || self.mail_types(job).is_some_and(|types| is_mailed_as_array(job, &types));
        let array = job.array_job_id().filter(|_| audience.wants(Event::Array) || is_mailed());
        let chain = self.chain_of.get(&own).copied();
        array
            .map(MemoKey::Array)
            .into_iter()
            .chain(chain.map(MemoKey::Chain))
            .chain(self.queue())
            .collect()
    }

    /// Counts a record that has ended. Subtracts one that was requeued after its end.
    fn count(&mut self, records: &Records, job: &Job, from: JobState, now: Timestamp) {
        let own = job.array_job_id().unwrap_or(job.id);
        let (is_live, groups) = (records.is_live(own), self.groups_of(job));
        if let Some(chain) = self.chain_of.get(&own).and_then(|root| self.chains.get_mut(root)) {
            let (to, of) = if is_live {
                (&mut chain.live, &mut chain.ended)
            } else {
                (&mut chain.ended, &mut chain.live)
            };
            of.remove(&own);
            to.insert(own);
        }
        if self.is_quiet {
            self.touched.extend(groups);
            return self.leave_chain(own);
        }
        for key in groups {
            let tally = self.tally(key, now);
            if let Some(end) = job.run.state.end() {
                tally.counts.add(end, job.weight() as u64);
                tally.note_code(job.run.exit);
                tally.start = [tally.start, job.run.start].into_iter().flatten().min();
                tally.add_job(own, &job.request.name);
            } else if let Some(end) = from.end() {
                tally.requeued = true;
                if job.run.end.is_some_and(|ended| ended >= tally.since) {
                    tally.counts.take_back(end, job.weight() as u64);
                }
            }
        }
    }

    /// Queues a notice for the channels that subscribe to its event.
    fn notify(&mut self, about: Option<JobId>, notice: Notice) {
        let audience = self.audience;
        for (events, channel) in
            [(audience.command, Channel::Command), (audience.url, Channel::Url)]
        {
            if events.has(notice.event) {
                self.out.push((about, Box::new(Notice { channel, ..notice.clone() })));
            }
        }
    }

    fn mail(&mut self, about: JobId, kind: MailKind, notice: Notice) {
        self.out.push((Some(about), Box::new(Notice { channel: Channel::Mail(kind), ..notice })));
    }

    fn notify_end(&mut self, job: &Job, types: Option<&MailTypes>, now: Timestamp) {
        let notice = Notice::of_end(job, now);
        let (id, state) = (job.id, job.run.state);
        let is_hopeless = state == JobState::Ended(End::Cancelled)
            && job.run.reason == Reason::DependencyNeverSatisfied;
        let was_sent = self
            .never
            .get(&id)
            .is_some_and(|sent| sent.contains(&Reason::DependencyNeverSatisfied));
        let is_at_limit =
            state == JobState::Ended(End::Timeout) && self.limits.get(&id) != Some(&100);
        let as_array = types.is_some_and(|types| is_mailed_as_array(job, types));
        if let Some(types) = types {
            if is_hopeless && types.invalid_depend && !was_sent {
                self.mail(id, MailKind::InvalidDepend, notice.clone());
            }
            if is_at_limit && types.limit_after(99).is_some() {
                self.mail(id, MailKind::TimeLimit(100), notice.clone());
            }
            if let Some(kind) = kind_of_end(types, state.is_failure()).filter(|_| !as_array) {
                self.mail(id, kind, notice.clone());
            }
        }
        self.notify(Some(id), notice);
    }

    fn notify_begin(&mut self, job: &Job, types: Option<&MailTypes>, now: Timestamp) {
        let (Some(types), id) = (types, job.id) else { return };
        let mut notice = Notice::of(job, Event::Job, now);
        let Some(array) = job.array_job_id().filter(|_| is_mailed_as_array(job, types)) else {
            if types.begin {
                self.mail(id, MailKind::Begin, notice);
            }
            return;
        };
        // Only the first task of the array causes an email.
        let tally = self.tally(MemoKey::Array(array), now);
        if tally.start.is_none() {
            tally.start = Some(now);
            notice.tally = Some(Box::new(tally.clone()));
            (notice.job_id, notice.record) = (array.to_string(), array);
            if types.begin {
                self.mail(id, MailKind::Begin, notice);
            }
        }
    }

    /// Handles a job that ran and returns to the queue.
    pub(crate) fn notify_requeue(&mut self, job: &Job, now: Timestamp) {
        let Some(types) = self.mail_types(job).filter(|types| !self.is_quiet && types.requeue)
        else {
            return;
        };
        if !is_mailed_as_array(job, &types) {
            self.mail(job.id, MailKind::Requeue, Notice::of(job, Event::Job, now));
        }
    }

    /// Returns when the next email about the job's time limit is due.
    pub(crate) fn limit_mail_due(&self, job: &Job) -> Option<Timestamp> {
        let percent = self.next_limit_mail(job)?;
        let secs = job.request.time_limit_secs?;
        let us =
            i64::try_from(secs.saturating_mul(u64::from(percent)).saturating_mul(10_000)).ok()?;
        let suspended = i64::try_from(job.run.suspended_us).unwrap_or(0);
        Some(job.run.start?.plus_us(us).plus_us(suspended).plus_us(job.run.stepped_us))
    }

    fn next_limit_mail(&self, job: &Job) -> Option<u8> {
        if job.run.state != JobState::Running {
            return None;
        }
        let sent = self.limits.get(&job.id).copied().unwrap_or(0);
        // The job's runner reports when the whole limit is used up.
        self.mail_types(job)?.limit_after(sent).filter(|percent| *percent < 100)
    }

    /// Sends mail about how much of a running job's time limit has passed. If several percentages
    /// have passed, only the highest is sent.
    pub(crate) fn notify_limit_by_clock(&mut self, job: &Job, now: Timestamp) {
        let mut due = None;
        while let Some(percent) = self.next_limit_mail(job)
            && self.limit_mail_due(job).is_some_and(|at| at <= now)
        {
            self.limits.insert(job.id, percent);
            due = Some(percent);
        }
        if let Some(percent) = due {
            self.notify_limit_percent(job, percent, now);
        }
    }

    pub(crate) fn notify_limit_reached(&mut self, job: &Job, now: Timestamp) {
        if self.mail_types(job).is_some_and(|types| types.limit_after(99).is_some()) {
            self.notify_limit_percent(job, 100, now);
        }
    }

    fn notify_limit_percent(&mut self, job: &Job, percent: u8, now: Timestamp) {
        self.limits.insert(job.id, percent);
        self.dirty.insert(MemoKey::Limit(job.id));
        self.mail(job.id, MailKind::TimeLimit(percent), Notice::of(job, Event::Job, now));
    }

    /// Notes that a record has no place in the queue. If it is pending, the next round checks
    /// whether it can ever have one.
    pub(crate) fn suspect(&mut self, job: &Job) {
        if self.audience.is_empty() || job.run.state != JobState::Pending {
            return;
        }
        if self.audience.wants(Event::Never)
            || self.mail_types(job).is_some_and(|types| types.invalid_depend)
        {
            self.suspects.insert(job.id);
        }
    }

    /// Returns the pending records noted since the last call.
    pub(crate) fn take_suspects(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.suspects)
    }

    /// Returns whether the job can never start for this reason and this has not been reported yet.
    pub(crate) fn is_new_never(&self, job: &Job, reason: Reason) -> bool {
        let was_sent = self.never.get(&job.id).is_some_and(|sent| sent.contains(&reason));
        is_permanent(job, reason) && !was_sent
    }

    /// Reports that a job can never start.
    pub(crate) fn notify_never(&mut self, job: &Job, reason: Reason, why: &str, now: Timestamp) {
        let mut notice = Notice { reason, ..Notice::of(job, Event::Never, now) };
        notice.text = format!("job {} ({}) can never start: {why}", notice.job_id, notice.name);
        let is_mailed = reason == Reason::DependencyNeverSatisfied
            && self.mail_types(job).is_some_and(|types| types.invalid_depend);
        self.never.entry(job.id).or_default().push(reason);
        self.dirty.insert(MemoKey::Never(job.id));
        if is_mailed {
            self.mail(job.id, MailKind::InvalidDepend, notice.clone());
        }
        self.notify(Some(job.id), notice);
    }

    /// Links a job with a dependency to the jobs that it depends on.
    pub(crate) fn link(&mut self, records: &Records, id: JobId, now: Timestamp) {
        if !self.audience.wants(Event::Chain) {
            return;
        }
        let (own, Some(job)) = (records.submission(id), records.job(id)) else { return };
        let known = |target: JobId| records.has(target);
        let targets: Vec<JobId> = job
            .request
            .dependency
            .terms
            .iter()
            .filter_map(|term| match term {
                DependencyTerm::On { job, .. } if known(job.job) => {
                    Some(records.submission(job.job))
                }
                DependencyTerm::On { .. } | DependencyTerm::Singleton => None,
            })
            .collect();
        for target in targets.into_iter().filter(|target| *target != own) {
            let (a, b) =
                (self.chain_with(records, target, now), self.chain_with(records, own, now));
            self.unite(a, b, now);
        }
    }

    /// Returns the chain of a submission, creating it if necessary.
    fn chain_with(&mut self, records: &Records, member: JobId, now: Timestamp) -> JobId {
        if let Some(root) = self.chain_of.get(&member) {
            return *root;
        }
        let mut tally = Tally::since(now);
        for job in records.of_submission(member).filter_map(|id| records.job(id)) {
            tally.add_job(member, &job.request.name);
            if let Some(end) = job.run.state.end() {
                tally.counts.add(end, job.weight() as u64);
                tally.note_code(job.run.exit);
                // If it is requeued, it is subtracted again.
                tally.since = tally.since.min(job.run.end.unwrap_or(now));
            }
        }
        let is_live = records.is_live(member);
        let chain = self.chains.entry(member).or_default();
        if is_live {
            chain.live.insert(member)
        } else {
            chain.ended.insert(member)
        };
        self.chain_of.insert(member, member);
        self.tallies.insert(MemoKey::Chain(member), tally);
        self.dirty.extend([MemoKey::Chain(member), MemoKey::Link(member)]);
        member
    }

    /// Merges two chains; the members of the smaller one move to the other.
    fn unite(&mut self, a: JobId, b: JobId, now: Timestamp) {
        if a == b {
            return;
        }
        let size = |root: &JobId| {
            self.chains.get(root).map_or(0, |chain| chain.live.len() + chain.ended.len())
        };
        let (to, from) = if size(&a) >= size(&b) { (a, b) } else { (b, a) };
        let gone = self.chains.remove(&from).unwrap_or_default();
        for member in gone.live.iter().chain(&gone.ended) {
            self.chain_of.insert(*member, to);
            self.dirty.insert(MemoKey::Link(*member));
        }
        let chain = self.chains.entry(to).or_default();
        chain.live.extend(gone.live);
        chain.ended.extend(gone.ended);
        self.dirty.insert(MemoKey::Chain(from));
        self.touched.insert(MemoKey::Chain(to));
        let tally = self.tallies.remove(&MemoKey::Chain(from)).unwrap_or_default();
        self.tally(MemoKey::Chain(to), now).merge(tally);
    }

    /// Handles a record that has left the memory, so that no job can depend on it any more.
    pub(crate) fn forget(&mut self, records: &Records, id: JobId, submission: JobId) {
        self.suspects.remove(&id);
        if records.array(submission).is_none() {
            self.leave_chain(submission);
        }
    }

    /// Emits the notifications and memos that result from the changes so far.
    pub(crate) fn emit(&mut self, records: &Records, cx: &mut Cx) {
        for key in std::mem::take(&mut self.touched) {
            self.notify_if_ended(records, key, cx.now);
        }
        for key in std::mem::take(&mut self.dirty) {
            cx.out.changes.push(match self.memo(key) {
                Some(body) => Change::PutMemo { key, body },
                None => Change::DropMemo { key },
            });
        }
        let out = std::mem::take(&mut self.out);
        cx.out.effects.extend(out.into_iter().map(|(job, notice)| Effect::Notify { job, notice }));
    }

    fn notify_if_ended(&mut self, records: &Records, key: MemoKey, now: Timestamp) {
        let has_ended = match key {
            MemoKey::Array(array) => records.array(array).is_none_or(|group| group.live == 0),
            MemoKey::Chain(root) => {
                self.chains.get(&root).is_none_or(|chain| chain.live.is_empty())
            }
            MemoKey::Queue => records.is_queue_empty(),
            MemoKey::Link(_)
            | MemoKey::Never(_)
            | MemoKey::Limit(_)
            | MemoKey::Reservation(_)
            | MemoKey::LastReservation => false,
        };
        if !has_ended {
            return;
        }
        let Some(tally) = self.tallies.remove(&key) else { return };
        self.dirty.insert(key);
        let has_any = tally.counts.total() > 0;
        match key {
            MemoKey::Array(array) => self.notify_array_end(records, array, tally, now),
            MemoKey::Chain(root) => {
                let chain = self.chains.remove(&root).unwrap_or_default();
                for member in chain.live.into_iter().chain(chain.ended) {
                    self.chain_of.remove(&member);
                    self.dirty.insert(MemoKey::Link(member));
                }
                if has_any {
                    self.notify(None, Notice::of_several(Event::Chain, tally, now));
                }
            }
            MemoKey::Queue if has_any => {
                self.notify(None, Notice::of_several(Event::Queue, tally, now))
            }
            MemoKey::Queue
            | MemoKey::Link(_)
            | MemoKey::Never(_)
            | MemoKey::Limit(_)
            | MemoKey::Reservation(_)
            | MemoKey::LastReservation => {}
        }
    }

    fn notify_array_end(&mut self, records: &Records, array: JobId, tally: Tally, now: Timestamp) {
        let mut tasks = records.of_submission(array);
        let Some(job) = tasks.find_map(|id| records.job(id)) else { return };
        let (types, has_failed) = (self.mail_types(job), tally.counts.failed() > 0);
        let kind = types
            .filter(|types| !types.array_tasks)
            .and_then(|types| kind_of_end(&types, has_failed));
        let notice = Notice::of_array(job, array, tally, now);
        if let Some(kind) = kind {
            self.mail(array, kind, notice.clone());
        }
        self.notify(Some(array), notice);
    }

    /// Returns all memos. Fails if anything has not been emitted yet.
    #[cfg(test)]
    pub(crate) fn memos(&self) -> Result<BTreeMap<MemoKey, MemoBody>, String> {
        if !self.dirty.is_empty() || !self.out.is_empty() || !self.touched.is_empty() {
            return Err(format!("not emitted: {:?} {:?} {:?}", self.dirty, self.out, self.touched));
        }
        let links = self.chain_of.keys().copied().map(MemoKey::Link);
        let never = self.never.keys().copied().map(MemoKey::Never);
        let limits = self.limits.keys().copied().map(MemoKey::Limit);
        let keys = self.tallies.keys().copied().chain(links).chain(never).chain(limits);
        Ok(keys.filter_map(|key| Some((key, self.memo(key)?))).collect())
    }

    /// Checks that members and chains agree, and that each chain has a live member.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn check_chains(&self, records: &Records) -> Result<(), String> {
        let members = self.chains.iter().flat_map(|(root, chain)| {
            let live = chain.live.iter().map(|member| (*root, *member, true));
            live.chain(chain.ended.iter().map(|member| (*root, *member, false)))
        });
        let mut count = 0;
        for (root, member, is_live) in members {
            count += 1;
            if self.chain_of.get(&member) != Some(&root) || records.is_live(member) != is_live {
                return Err(format!("job {member} is in chain {root}, live: {is_live}"));
            }
        }
        let ended = self.chains.iter().find(|(_, chain)| chain.live.is_empty());
        match ended {
            Some((root, _)) => Err(format!("chain {root} has ended, but was not reported")),
            None if count != self.chain_of.len() => {
                Err("a job is in a chain that does not exist".to_owned())
            }
            None => Ok(()),
        }
    }

    /// Restores the counters and sent notifications of an earlier daemon. Call it once, after the
    /// recovery.
    pub(crate) fn recall(
        &mut self,
        records: &Records,
        memos: Vec<(MemoKey, MemoBody)>,
        now: Timestamp,
    ) {
        let audience = self.audience;
        for (key, body) in memos {
            // Memos that are not restored are deleted from the store, or written again.
            self.dirty.insert(key);
            let is_live =
                |id: JobId| records.job(id).is_some_and(|job| !job.run.state.is_terminal());
            match (key, body) {
                (MemoKey::Queue, MemoBody::Tally(tally)) if audience.wants(Event::Queue) => {
                    self.tallies.insert(key, *tally);
                }
                (MemoKey::Array(array), MemoBody::Tally(tally)) if records.is_live(array) => {
                    self.tallies.insert(key, *tally);
                }
                (MemoKey::Chain(_), MemoBody::Tally(tally)) if audience.wants(Event::Chain) => {
                    self.tallies.insert(key, *tally);
                }
                (MemoKey::Link(job), MemoBody::Link(root)) if audience.wants(Event::Chain) => {
                    let (is_live, is_known) = (records.is_live(job), records.has(job));
                    if is_known {
                        self.chain_of.insert(job, root);
                        let chain = self.chains.entry(root).or_default();
                        if is_live {
                            chain.live.insert(job)
                        } else {
                            chain.ended.insert(job)
                        };
                    }
                }
                (MemoKey::Never(job), MemoBody::Reasons(sent)) if is_live(job) => {
                    self.never.insert(job, sent);
                }
                (MemoKey::Limit(job), MemoBody::Percent(sent)) if is_live(job) => {
                    self.limits.insert(job, sent);
                }
                _ => {}
            }
        }
        self.touched.extend(self.tallies.keys().copied());
        let is_linked =
            |job: &&Job| job.run.state == JobState::Pending && !job.request.dependency.is_empty();
        records.jobs().filter(is_linked).for_each(|job| self.link(records, job.id, now));
    }
}
