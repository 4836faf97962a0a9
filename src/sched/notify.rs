//! What people are told of the queue: ends of jobs, arrays, chains and of the whole queue, and jobs
//! that can never start.
//!
//! It is all found out where a state changes, and what is counted meanwhile is kept in the database
//! with the change that was counted, so that a restart neither forgets nor tells twice. Nothing is
//! counted that nobody wants to know.
//!
//! A chain is what dependencies link: two jobs at least, whatever their kind of dependency, but not
//! by `singleton`. A job that has ended belongs to it as long as it is in memory, so that a quick
//! first job is not missed.

use super::records::Records;
use super::types::{Cx, Effect};
use crate::model::change::Change;
use crate::model::dependency::DependencyTerm;
use crate::model::mail::{MailKind, MailTypes};
use crate::model::memo::{MemoBody, MemoKey, Tally};
use crate::model::notice::{Audience, Channel, Event, Notice};
use crate::model::{End, Job, JobId, JobState, Reason, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The jobs of a chain that are in memory, by their submissions.
#[derive(Debug, Clone, Default)]
struct Chain {
    live: BTreeSet<JobId>,
    over: BTreeSet<JobId>,
}

/// What is counted, and what was told.
#[derive(Debug, Clone, Default)]
pub struct Notifications {
    audience: Audience,
    tallies: BTreeMap<MemoKey, Tally>,
    chains: HashMap<JobId, Chain>,
    chain_of: HashMap<JobId, JobId>,
    never: HashMap<JobId, Vec<Reason>>,
    limits: HashMap<JobId, u8>,
    /// Pending jobs that have to be looked at: they may wait for what can never be.
    suspects: BTreeSet<JobId>,
    /// Groups of which one has changed: they may be over.
    touched: BTreeSet<MemoKey>,
    /// What is to be kept anew.
    dirty: BTreeSet<MemoKey>,
    out: Vec<(Option<JobId>, Box<Notice>)>,
    /// What happens now is to be told to nobody.
    is_quiet: bool,
}

impl Notifications {
    pub fn new(audience: Audience) -> Self {
        Notifications { audience, ..Notifications::default() }
    }

    pub fn set_audience(&mut self, audience: Audience) {
        self.audience = audience;
    }

    /// What happens while it is quiet is told to nobody.
    pub fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    fn tally(&mut self, key: MemoKey, now: Timestamp) -> &mut Tally {
        self.dirty.insert(key);
        self.touched.insert(key);
        self.tallies.entry(key).or_insert_with(|| Tally::since(now))
    }

    /// What is to be kept of it now.
    fn memo(&self, key: MemoKey) -> Option<MemoBody> {
        match key {
            MemoKey::Array(_) | MemoKey::Chain(_) | MemoKey::Queue => {
                self.tallies.get(&key).map(|tally| MemoBody::Tally(Box::new(tally.clone())))
            }
            MemoKey::Link(job) => self.chain_of.get(&job).copied().map(MemoBody::Link),
            MemoKey::Never(job) => self.never.get(&job).cloned().map(MemoBody::Reasons),
            MemoKey::Limit(job) => self.limits.get(&job).copied().map(MemoBody::Percent),
        }
    }

    fn leave_chain(&mut self, member: JobId) {
        if let Some(root) = self.chain_of.remove(&member) {
            self.dirty.insert(MemoKey::Link(member));
            if let Some(chain) = self.chains.get_mut(&root) {
                chain.live.remove(&member);
                chain.over.remove(&member);
            }
        }
    }
}

/// Its own mails are those of its array.
fn is_mailed_as_array(job: &Job, types: &MailTypes) -> bool {
    job.array_job_id().is_some() && !types.array_tasks
}

/// What a mail about an end is: FAIL for who asked for it and did not get END, as in Slurm.
fn kind_of_end(types: &MailTypes, has_failed: bool) -> Option<MailKind> {
    match (has_failed, types.fail, types.end) {
        (true, true, _) => Some(MailKind::Fail),
        (_, _, true) => Some(MailKind::End),
        (_, _, false) => None,
    }
}

/// Whether a job that waits for this reason never starts unless somebody does something. What its
/// owner has ordered (a hold, a partition or node that is down) is not meant.
fn is_for_ever(job: &Job, reason: Reason) -> bool {
    match reason {
        Reason::DependencyNeverSatisfied
        | Reason::BadConstraints
        | Reason::PartitionConfig
        | Reason::PartitionTimeLimit
        | Reason::AssocMaxJobsLimit
        | Reason::AssocGrpCpuLimit => true,
        // slotd itself does that, after launches that came to nothing.
        Reason::JobHeldAdmin => job.run.system_comment.is_some(),
        _ => false,
    }
}

impl Notifications {
    /// The mails that the job asks for, where mail can be sent.
    pub fn mails(&self, job: &Job) -> Option<MailTypes> {
        let text = job.request.mail_type.as_deref().filter(|_| self.audience.mail)?;
        Some(MailTypes::of(text))
    }

    /// A record has just come to another state than `from`.
    pub fn note(&mut self, records: &Records, job: &Job, from: JobState, now: Timestamp) {
        if self.audience.is_empty() {
            return;
        }
        let (id, to, types) = (job.id, job.run.state, self.mails(job));
        if to.is_terminal() && !self.is_quiet {
            self.tell_end(job, types.as_ref(), now);
        } else if from == JobState::Pending && to == JobState::Running {
            self.tell_begin(job, types.as_ref(), now);
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

    fn groups_of(&self, job: &Job) -> Vec<MemoKey> {
        let audience = &self.audience;
        let own = job.array_job_id().unwrap_or(job.id);
        let is_mailed = || self.mails(job).is_some_and(|types| is_mailed_as_array(job, &types));
        let array = job.array_job_id().filter(|_| audience.wants(Event::Array) || is_mailed());
        let chain = self.chain_of.get(&own).copied();
        let queue = audience.wants(Event::Queue).then_some(MemoKey::Queue);
        array
            .map(MemoKey::Array)
            .into_iter()
            .chain(chain.map(MemoKey::Chain))
            .chain(queue)
            .collect()
    }

    /// A record has ended, or is back after its end.
    fn count(&mut self, records: &Records, job: &Job, from: JobState, now: Timestamp) {
        let own = job.array_job_id().unwrap_or(job.id);
        let (is_live, groups) = (records.is_live(own), self.groups_of(job));
        if let Some(chain) = self.chain_of.get(&own).and_then(|root| self.chains.get_mut(root)) {
            let (to, of) = if is_live {
                (&mut chain.live, &mut chain.over)
            } else {
                (&mut chain.over, &mut chain.live)
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
                tally.take_in(own, &job.request.name);
            } else if let Some(end) = from.end() {
                tally.requeued = true;
                if job.run.end.is_some_and(|ended| ended >= tally.since) {
                    tally.counts.take_back(end, job.weight() as u64);
                }
            }
        }
    }

    /// Gives a notice to those who want to know of its event.
    fn tell(&mut self, about: Option<JobId>, notice: Notice) {
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

    fn tell_end(&mut self, job: &Job, types: Option<&MailTypes>, now: Timestamp) {
        let notice = Notice::of_end(job, now);
        let (id, state) = (job.id, job.run.state);
        let is_hopeless = state == JobState::Ended(End::Cancelled)
            && job.run.reason == Reason::DependencyNeverSatisfied;
        let was_told = self
            .never
            .get(&id)
            .is_some_and(|told| told.contains(&Reason::DependencyNeverSatisfied));
        let is_at_limit =
            state == JobState::Ended(End::Timeout) && self.limits.get(&id) != Some(&100);
        let as_array = types.is_some_and(|types| is_mailed_as_array(job, types));
        if let Some(types) = types {
            if is_hopeless && types.invalid_depend && !was_told {
                self.mail(id, MailKind::InvalidDepend, notice.clone());
            }
            if is_at_limit && types.limit_after(99).is_some() {
                self.mail(id, MailKind::TimeLimit(100), notice.clone());
            }
            if let Some(kind) = kind_of_end(types, state.is_failure()).filter(|_| !as_array) {
                self.mail(id, kind, notice.clone());
            }
        }
        self.tell(Some(id), notice);
    }

    fn tell_begin(&mut self, job: &Job, types: Option<&MailTypes>, now: Timestamp) {
        let (Some(types), id) = (types, job.id) else { return };
        let mut notice = Notice::of(job, Event::Job, now);
        let Some(array) = job.array_job_id().filter(|_| is_mailed_as_array(job, types)) else {
            if types.begin {
                self.mail(id, MailKind::Begin, notice);
            }
            return;
        };
        // The first of all.
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

    /// A job that ran goes back to the queue.
    pub fn tell_requeue(&mut self, job: &Job, now: Timestamp) {
        let Some(types) = self.mails(job).filter(|types| !self.is_quiet && types.requeue) else {
            return;
        };
        if !is_mailed_as_array(job, &types) {
            self.mail(job.id, MailKind::Requeue, Notice::of(job, Event::Job, now));
        }
    }

    /// When a mail about its time limit is due.
    pub fn limit_mail_due(&self, job: &Job) -> Option<Timestamp> {
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
        let told = self.limits.get(&job.id).copied().unwrap_or(0);
        // That all of it is over the job's runner says.
        self.mails(job)?.limit_after(told).filter(|percent| *percent < 100)
    }

    /// The clock has gone on for a running job: tells how much of its time limit is over. Of
    /// several parts that are over only the greatest is told.
    pub fn tell_limit_by_clock(&mut self, job: &Job, now: Timestamp) {
        let mut due = None;
        while let Some(percent) = self.next_limit_mail(job)
            && self.limit_mail_due(job).is_some_and(|at| at <= now)
        {
            self.limits.insert(job.id, percent);
            due = Some(percent);
        }
        if let Some(percent) = due {
            self.tell_limit_percent(job, percent, now);
        }
    }

    pub fn tell_limit_reached(&mut self, job: &Job, now: Timestamp) {
        if self.mails(job).is_some_and(|types| types.limit_after(99).is_some()) {
            self.tell_limit_percent(job, 100, now);
        }
    }

    fn tell_limit_percent(&mut self, job: &Job, percent: u8, now: Timestamp) {
        self.limits.insert(job.id, percent);
        self.dirty.insert(MemoKey::Limit(job.id));
        self.mail(job.id, MailKind::TimeLimit(percent), Notice::of(job, Event::Job, now));
    }

    /// A record has no place in the queue: if it is pending, the next round looks whether it can
    /// ever have one.
    pub fn suspect(&mut self, job: &Job) {
        if self.audience.is_empty() || job.run.state != JobState::Pending {
            return;
        }
        if self.audience.wants(Event::Never)
            || self.mails(job).is_some_and(|types| types.invalid_depend)
        {
            self.suspects.insert(job.id);
        }
    }

    /// The pending records that were suspected since the last time.
    pub fn take_suspects(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.suspects)
    }

    /// Whether nobody was told yet that a job waits for this, which can never be.
    pub fn is_new_never(&self, job: &Job, reason: Reason) -> bool {
        let was_told = self.never.get(&job.id).is_some_and(|told| told.contains(&reason));
        is_for_ever(job, reason) && !was_told
    }

    /// Tells that a job waits for what can never be.
    pub fn tell_never(&mut self, job: &Job, reason: Reason, why: &str, now: Timestamp) {
        let mut notice = Notice { reason, ..Notice::of(job, Event::Never, now) };
        notice.text = format!("job {} ({}) can never start: {why}", notice.job_id, notice.name);
        let is_mailed = reason == Reason::DependencyNeverSatisfied
            && self.mails(job).is_some_and(|types| types.invalid_depend);
        self.never.entry(job.id).or_default().push(reason);
        self.dirty.insert(MemoKey::Never(job.id));
        if is_mailed {
            self.mail(job.id, MailKind::InvalidDepend, notice.clone());
        }
        self.tell(Some(job.id), notice);
    }

    /// A job with a dependency belongs together with those that it depends on.
    pub fn link(&mut self, records: &Records, id: JobId, now: Timestamp) {
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

    /// The chain that a submission is in, or a new one.
    fn chain_with(&mut self, records: &Records, member: JobId, now: Timestamp) -> JobId {
        if let Some(root) = self.chain_of.get(&member) {
            return *root;
        }
        let mut tally = Tally::since(now);
        for job in records.of_submission(member).filter_map(|id| records.job(id)) {
            tally.take_in(member, &job.request.name);
            if let Some(end) = job.run.state.end() {
                tally.counts.add(end, job.weight() as u64);
                tally.note_code(job.run.exit);
                // It may be requeued: then it is taken back.
                tally.since = tally.since.min(job.run.end.unwrap_or(now));
            }
        }
        let is_live = records.is_live(member);
        let chain = self.chains.entry(member).or_default();
        if is_live {
            chain.live.insert(member)
        } else {
            chain.over.insert(member)
        };
        self.chain_of.insert(member, member);
        self.tallies.insert(MemoKey::Chain(member), tally);
        self.dirty.extend([MemoKey::Chain(member), MemoKey::Link(member)]);
        member
    }

    /// Two chains become one; the members of the smaller one go to the other.
    fn unite(&mut self, a: JobId, b: JobId, now: Timestamp) {
        if a == b {
            return;
        }
        let size = |root: &JobId| {
            self.chains.get(root).map_or(0, |chain| chain.live.len() + chain.over.len())
        };
        let (to, from) = if size(&a) >= size(&b) { (a, b) } else { (b, a) };
        let gone = self.chains.remove(&from).unwrap_or_default();
        for member in gone.live.iter().chain(&gone.over) {
            self.chain_of.insert(*member, to);
            self.dirty.insert(MemoKey::Link(*member));
        }
        let chain = self.chains.entry(to).or_default();
        chain.live.extend(gone.live);
        chain.over.extend(gone.over);
        self.dirty.insert(MemoKey::Chain(from));
        self.touched.insert(MemoKey::Chain(to));
        let tally = self.tallies.remove(&MemoKey::Chain(from)).unwrap_or_default();
        self.tally(MemoKey::Chain(to), now).merge(tally);
    }

    /// A record has left the memory: nobody can depend on it any more.
    pub fn forget(&mut self, records: &Records, id: JobId, submission: JobId) {
        self.suspects.remove(&id);
        if records.array(submission).is_none() {
            self.leave_chain(submission);
        }
    }

    /// Hands on what has come of the changes so far.
    pub fn say(&mut self, records: &Records, cx: &mut Cx) {
        for key in std::mem::take(&mut self.touched) {
            self.tell_if_over(records, key, cx.now);
        }
        for key in std::mem::take(&mut self.dirty) {
            cx.out.changes.push(match self.memo(key) {
                Some(body) => Change::PutMemo { key, body },
                None => Change::DropMemo { key },
            });
        }
        let out = std::mem::take(&mut self.out);
        cx.out.effects.extend(out.into_iter().map(|(job, notice)| Effect::Tell { job, notice }));
    }

    fn tell_if_over(&mut self, records: &Records, key: MemoKey, now: Timestamp) {
        let is_over = match key {
            MemoKey::Array(array) => records.array(array).is_none_or(|group| group.live == 0),
            MemoKey::Chain(root) => {
                self.chains.get(&root).is_none_or(|chain| chain.live.is_empty())
            }
            MemoKey::Queue => records.are_all_over(),
            MemoKey::Link(_) | MemoKey::Never(_) | MemoKey::Limit(_) => false,
        };
        if !is_over {
            return;
        }
        let Some(tally) = self.tallies.remove(&key) else { return };
        self.dirty.insert(key);
        let has_any = tally.counts.total() > 0;
        match key {
            MemoKey::Array(array) => self.tell_array_end(records, array, tally, now),
            MemoKey::Chain(root) => {
                let chain = self.chains.remove(&root).unwrap_or_default();
                for member in chain.live.into_iter().chain(chain.over) {
                    self.chain_of.remove(&member);
                    self.dirty.insert(MemoKey::Link(member));
                }
                if has_any {
                    self.tell(None, Notice::of_several(Event::Chain, tally, now));
                }
            }
            MemoKey::Queue if has_any => {
                self.tell(None, Notice::of_several(Event::Queue, tally, now))
            }
            MemoKey::Queue | MemoKey::Link(_) | MemoKey::Never(_) | MemoKey::Limit(_) => {}
        }
    }

    fn tell_array_end(&mut self, records: &Records, array: JobId, tally: Tally, now: Timestamp) {
        let mut tasks = records.of_submission(array);
        let Some(job) = tasks.find_map(|id| records.job(id)) else { return };
        let (types, has_failed) = (self.mails(job), tally.counts.failed() > 0);
        let kind = types
            .filter(|types| !types.array_tasks)
            .and_then(|types| kind_of_end(&types, has_failed));
        let notice = Notice::of_array(job, array, tally, now);
        if let Some(kind) = kind {
            self.mail(array, kind, notice.clone());
        }
        self.tell(Some(array), notice);
    }

    /// What is kept of all this, if nothing waits to be said.
    #[cfg(test)]
    pub fn memos(&self) -> Result<BTreeMap<MemoKey, MemoBody>, String> {
        if !self.dirty.is_empty() || !self.out.is_empty() || !self.touched.is_empty() {
            return Err(format!("not said: {:?} {:?} {:?}", self.dirty, self.out, self.touched));
        }
        let links = self.chain_of.keys().copied().map(MemoKey::Link);
        let never = self.never.keys().copied().map(MemoKey::Never);
        let limits = self.limits.keys().copied().map(MemoKey::Limit);
        let keys = self.tallies.keys().copied().chain(links).chain(never).chain(limits);
        Ok(keys.filter_map(|key| Some((key, self.memo(key)?))).collect())
    }

    /// Who is in which chain is known both ways, and a chain has somebody who is not over.
    #[cfg(test)]
    pub fn check_chains(&self, records: &Records) -> Result<(), String> {
        let members = self.chains.iter().flat_map(|(root, chain)| {
            let live = chain.live.iter().map(|member| (*root, *member, true));
            live.chain(chain.over.iter().map(|member| (*root, *member, false)))
        });
        let mut count = 0;
        for (root, member, is_live) in members {
            count += 1;
            if self.chain_of.get(&member) != Some(&root) || records.is_live(member) != is_live {
                return Err(format!("job {member} is in chain {root}, live: {is_live}"));
            }
        }
        let over = self.chains.iter().find(|(_, chain)| chain.live.is_empty());
        match over {
            Some((root, _)) => Err(format!("chain {root} is over, and not told")),
            None if count != self.chain_of.len() => {
                Err("somebody is in a chain that is not there".to_owned())
            }
            None => Ok(()),
        }
    }

    /// Takes over what an earlier daemon has counted and told. To be called once, after the
    /// recovery.
    pub fn recall(&mut self, records: &Records, memos: Vec<(MemoKey, MemoBody)>, now: Timestamp) {
        let audience = self.audience;
        for (key, body) in memos {
            // What is not taken over is dropped from the store, or kept anew.
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
                            chain.over.insert(job)
                        };
                    }
                }
                (MemoKey::Never(job), MemoBody::Reasons(told)) if is_live(job) => {
                    self.never.insert(job, told);
                }
                (MemoKey::Limit(job), MemoBody::Percent(told)) if is_live(job) => {
                    self.limits.insert(job, told);
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
