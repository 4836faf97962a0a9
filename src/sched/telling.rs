//! What people are told of the queue: ends of jobs, arrays, chains and of the whole queue, and jobs that can never start.
//!
//! It is all found out where a state changes, and what is counted meanwhile is kept in the database with the change that
//! was counted, so that a restart neither forgets nor tells twice. Nothing is counted that nobody wants to know.
//!
//! A chain is what dependencies link: two jobs at least, whatever their kind of dependency, but not by `singleton`. A job that
//! has ended belongs to it as long as it is in memory, so that a quick first job is not missed.

use super::core::Core;
use super::types::{Cx, Effect};
use crate::model::change::Change;
use crate::model::dependency::DependencyTerm;
use crate::model::mail::{MailKind, MailTypes};
use crate::model::memo::{MemoBody, MemoKey, Tally};
use crate::model::notice::{Channel, Event, Notice};
use crate::model::{Job, JobId, JobState, Reason, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The jobs of a chain that are in memory, by their submissions.
#[derive(Debug, Clone, Default)]
struct Chain {
    live: BTreeSet<JobId>,
    over: BTreeSet<JobId>,
}

/// What is counted, and what was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Telling {
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
    pub is_quiet: bool,
}

impl Telling {
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

/// How many jobs or array tasks a record stands for.
fn weight(job: &Job) -> u64 {
    job.compact_tasks().map_or(1, |tasks| tasks.len() as u64)
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

/// Whether a job that waits for this reason never starts unless somebody does something. What its owner has ordered (a hold,
/// a partition or node that is down) is not meant.
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

impl Core {
    /// The mails that the job asks for, where mail can be sent.
    pub(super) fn mails(&self, job: &Job) -> Option<MailTypes> {
        let text = job.request.mail_type.as_deref().filter(|_| self.config.audience.mail)?;
        Some(MailTypes::of(text))
    }

    /// A record has just come to another state than `from`.
    pub(super) fn note_for_people(&mut self, id: JobId, from: JobState, now: Timestamp) {
        if self.config.audience.is_empty() {
            return;
        }
        let Some(job) = self.jobs.get(&id).map(|record| &record.job) else { return };
        let (to, end, types) = (job.run.state, job.run.end, self.mails(job));
        if to.is_terminal() && !self.telling.is_quiet {
            self.tell_end(id, types.as_ref(), now);
        } else if from == JobState::Pending && to == JobState::Running {
            self.tell_begin(id, types.as_ref(), now);
        }
        if from == JobState::Suspended && types.is_some() {
            self.arm(id, now);
        }
        if !to.is_active() && self.telling.limits.remove(&id).is_some() {
            self.telling.dirty.insert(MemoKey::Limit(id));
        }
        if to.is_terminal() && self.telling.never.remove(&id).is_some() {
            self.telling.dirty.insert(MemoKey::Never(id));
        }
        if to.is_terminal() != from.is_terminal() {
            self.count(id, from, end, now);
        }
    }

    /// The submission that a record is of.
    fn submission(&self, id: JobId) -> JobId {
        self.job(id).and_then(Job::array_job_id).unwrap_or(id)
    }

    fn groups_of(&self, job: &Job) -> Vec<MemoKey> {
        let audience = &self.config.audience;
        let own = job.array_job_id().unwrap_or(job.id);
        let is_mailed = || self.mails(job).is_some_and(|types| is_mailed_as_array(job, &types));
        let array = job.array_job_id().filter(|_| audience.wants(Event::Array) || is_mailed());
        let chain = self.telling.chain_of.get(&own).copied();
        let queue = audience.wants(Event::Queue).then_some(MemoKey::Queue);
        array
            .map(MemoKey::Array)
            .into_iter()
            .chain(chain.map(MemoKey::Chain))
            .chain(queue)
            .collect()
    }

    /// A record has ended, or is back after its end (`ended`).
    fn count(&mut self, id: JobId, from: JobState, ended: Option<Timestamp>, now: Timestamp) {
        let own = self.submission(id);
        let is_live = self.is_live(own);
        let Some(record) = self.jobs.get(&id) else { return };
        let (job, groups) = (&record.job, self.groups_of(&record.job));
        if let Some(chain) =
            self.telling.chain_of.get(&own).and_then(|root| self.telling.chains.get_mut(root))
        {
            let (to, of) = if is_live {
                (&mut chain.live, &mut chain.over)
            } else {
                (&mut chain.over, &mut chain.live)
            };
            of.remove(&own);
            to.insert(own);
        }
        if self.telling.is_quiet {
            self.telling.touched.extend(groups);
            return self.telling.leave_chain(own);
        }
        for key in groups {
            let tally = self.telling.tally(key, now);
            match job.run.state {
                JobState::Pending => {
                    tally.requeued = true;
                    if ended.is_some_and(|ended| ended >= tally.since) {
                        tally.counts.take_back(from, weight(job));
                    }
                }
                state => {
                    tally.counts.add(state, weight(job));
                    tally.note_code(job.run.exit);
                    tally.start = [tally.start, job.run.start].into_iter().flatten().min();
                    tally.take_in(own, &job.request.name);
                }
            }
        }
    }

    fn is_live(&self, submission: JobId) -> bool {
        match self.arrays.get(&submission) {
            Some(group) => group.live > 0,
            None => self.job(submission).is_some_and(|job| !job.run.state.is_terminal()),
        }
    }

    /// Gives a notice to those who want to know of its event.
    fn tell(&mut self, about: Option<JobId>, notice: Notice) {
        let audience = self.config.audience;
        for (events, channel) in
            [(audience.command, Channel::Command), (audience.url, Channel::Url)]
        {
            if events.has(notice.event) {
                self.telling.out.push((about, Box::new(Notice { channel, ..notice.clone() })));
            }
        }
    }

    fn mail(&mut self, about: JobId, kind: MailKind, notice: Notice) {
        self.telling
            .out
            .push((Some(about), Box::new(Notice { channel: Channel::Mail(kind), ..notice })));
    }

    fn tell_end(&mut self, id: JobId, types: Option<&MailTypes>, now: Timestamp) {
        let Some(job) = self.job(id) else { return };
        let notice = Notice::of_end(job, now);
        let state = job.run.state;
        let is_hopeless =
            state == JobState::Cancelled && job.run.reason == Reason::DependencyNeverSatisfied;
        let was_told = self
            .telling
            .never
            .get(&id)
            .is_some_and(|told| told.contains(&Reason::DependencyNeverSatisfied));
        let is_at_limit = state == JobState::Timeout && self.telling.limits.get(&id) != Some(&100);
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

    fn tell_begin(&mut self, id: JobId, types: Option<&MailTypes>, now: Timestamp) {
        let (Some(types), Some(job)) = (types, self.job(id)) else { return };
        let mut notice = Notice::of(job, Event::Job, now);
        let Some(array) = job.array_job_id().filter(|_| is_mailed_as_array(job, types)) else {
            if types.begin {
                self.mail(id, MailKind::Begin, notice);
            }
            return;
        };
        // The first of all.
        let tally = self.telling.tally(MemoKey::Array(array), now);
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
    pub(super) fn tell_requeue(&mut self, id: JobId, now: Timestamp) {
        let Some(job) = self.job(id) else { return };
        let Some(types) = self.mails(job).filter(|types| !self.telling.is_quiet && types.requeue)
        else {
            return;
        };
        if !is_mailed_as_array(job, &types) {
            let notice = Notice::of(job, Event::Job, now);
            self.mail(id, MailKind::Requeue, notice);
        }
    }

    /// When a mail about its time limit is due.
    pub(super) fn limit_mail_due(&self, job: &Job) -> Option<Timestamp> {
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
        let told = self.telling.limits.get(&job.id).copied().unwrap_or(0);
        // That all of it is over the job's runner says.
        self.mails(job)?.limit_after(told).filter(|percent| *percent < 100)
    }

    /// The clock has gone on for a running job: tells how much of its time limit is over. Of several parts that are over
    /// only the greatest is told.
    pub(super) fn tell_limit_by_clock(&mut self, id: JobId, now: Timestamp) {
        let mut due = None;
        while let Some(job) = self.job(id)
            && let Some(percent) = self.next_limit_mail(job)
            && self.limit_mail_due(job).is_some_and(|at| at <= now)
        {
            self.telling.limits.insert(id, percent);
            due = Some(percent);
        }
        if let Some(percent) = due {
            self.tell_limit_percent(id, percent, now);
        }
    }

    pub(super) fn tell_limit_reached(&mut self, id: JobId, now: Timestamp) {
        if self
            .job(id)
            .and_then(|job| self.mails(job))
            .is_some_and(|types| types.limit_after(99).is_some())
        {
            self.tell_limit_percent(id, 100, now);
        }
    }

    fn tell_limit_percent(&mut self, id: JobId, percent: u8, now: Timestamp) {
        let Some(job) = self.job(id) else { return };
        let notice = Notice::of(job, Event::Job, now);
        self.telling.limits.insert(id, percent);
        self.telling.dirty.insert(MemoKey::Limit(id));
        self.mail(id, MailKind::TimeLimit(percent), notice);
    }

    /// A pending record that has no place in the queue: the next round looks whether it can ever have one.
    pub(super) fn suspect(&mut self, id: JobId) {
        if self.config.audience.is_empty() {
            return;
        }
        let minds = |job: &Job| {
            self.config.audience.wants(Event::Never)
                || self.mails(job).is_some_and(|types| types.invalid_depend)
        };
        if self.job(id).is_some_and(|job| job.run.state == JobState::Pending && minds(job)) {
            self.telling.suspects.insert(id);
        }
    }

    /// Tells of jobs that wait for what can never be: once for each job and reason.
    pub(super) fn tell_never(&mut self, cx: &mut Cx) {
        for id in std::mem::take(&mut self.telling.suspects) {
            let Some(record) =
                self.jobs.get(&id).filter(|record| record.job.run.state == JobState::Pending)
            else {
                continue;
            };
            let job = &record.job;
            let Some(reason) = self.gate(record, cx.now).filter(|reason| is_for_ever(job, *reason))
            else {
                continue;
            };
            if self.telling.never.get(&id).is_some_and(|told| told.contains(&reason)) {
                continue;
            }
            let sentence =
                self.blockers(record, cx.now).into_iter().find(|blocker| blocker.reason == reason);
            let why = sentence.map_or_else(|| reason.to_string(), |blocker| blocker.text);
            let mut notice = Notice { reason, ..Notice::of(job, Event::Never, cx.now) };
            notice.text = format!("job {} ({}) can never start: {why}", notice.job_id, notice.name);
            let is_mailed = reason == Reason::DependencyNeverSatisfied
                && self.mails(job).is_some_and(|types| types.invalid_depend);
            self.telling.never.entry(id).or_default().push(reason);
            self.telling.dirty.insert(MemoKey::Never(id));
            if is_mailed {
                self.mail(id, MailKind::InvalidDepend, notice.clone());
            }
            self.tell(Some(id), notice);
        }
        self.say(cx);
    }

    /// A job with a dependency belongs together with those that it depends on.
    pub(super) fn link(&mut self, id: JobId, now: Timestamp) {
        if !self.config.audience.wants(Event::Chain) {
            return;
        }
        let (own, Some(job)) = (self.submission(id), self.job(id)) else { return };
        let known =
            |target: JobId| self.jobs.contains_key(&target) || self.arrays.contains_key(&target);
        let targets: Vec<JobId> = job
            .request
            .dependency
            .terms
            .iter()
            .filter_map(|term| match term {
                DependencyTerm::On { job, .. } if known(job.job) => Some(self.submission(job.job)),
                DependencyTerm::On { .. } | DependencyTerm::Singleton => None,
            })
            .collect();
        for target in targets.into_iter().filter(|target| *target != own) {
            let (a, b) = (self.chain_with(target, now), self.chain_with(own, now));
            self.unite(a, b, now);
        }
    }

    /// The chain that a submission is in, or a new one.
    fn chain_with(&mut self, member: JobId, now: Timestamp) -> JobId {
        if let Some(root) = self.telling.chain_of.get(&member) {
            return *root;
        }
        let plain = [member];
        let records: Vec<JobId> = match self.arrays.get(&member) {
            Some(group) => group.records.iter().copied().collect(),
            None => plain.to_vec(),
        };
        let mut tally = Tally::since(now);
        for job in records.iter().filter_map(|id| self.jobs.get(id)).map(|record| &record.job) {
            tally.take_in(member, &job.request.name);
            if job.run.state.is_terminal() {
                tally.counts.add(job.run.state, weight(job));
                tally.note_code(job.run.exit);
                // It may be requeued: then it is taken back.
                tally.since = tally.since.min(job.run.end.unwrap_or(now));
            }
        }
        let is_live = self.is_live(member);
        let chain = self.telling.chains.entry(member).or_default();
        if is_live {
            chain.live.insert(member)
        } else {
            chain.over.insert(member)
        };
        self.telling.chain_of.insert(member, member);
        self.telling.tallies.insert(MemoKey::Chain(member), tally);
        self.telling.dirty.extend([MemoKey::Chain(member), MemoKey::Link(member)]);
        member
    }

    /// Two chains become one; the members of the smaller one go to the other.
    fn unite(&mut self, a: JobId, b: JobId, now: Timestamp) {
        let telling = &mut self.telling;
        if a == b {
            return;
        }
        let size = |root: &JobId| {
            telling.chains.get(root).map_or(0, |chain| chain.live.len() + chain.over.len())
        };
        let (to, from) = if size(&a) >= size(&b) { (a, b) } else { (b, a) };
        let gone = telling.chains.remove(&from).unwrap_or_default();
        for member in gone.live.iter().chain(&gone.over) {
            telling.chain_of.insert(*member, to);
            telling.dirty.insert(MemoKey::Link(*member));
        }
        let chain = telling.chains.entry(to).or_default();
        chain.live.extend(gone.live);
        chain.over.extend(gone.over);
        telling.dirty.insert(MemoKey::Chain(from));
        telling.touched.insert(MemoKey::Chain(to));
        let tally = telling.tallies.remove(&MemoKey::Chain(from)).unwrap_or_default();
        telling.tally(MemoKey::Chain(to), now).merge(tally);
    }

    /// A record has left the memory: nobody can depend on it any more.
    pub(super) fn forget_for_people(&mut self, id: JobId, submission: JobId) {
        self.telling.suspects.remove(&id);
        if !self.arrays.contains_key(&submission) {
            self.telling.leave_chain(submission);
        }
    }

    /// Hands on what has come of the changes so far.
    pub(super) fn say(&mut self, cx: &mut Cx) {
        for key in std::mem::take(&mut self.telling.touched) {
            self.tell_if_over(key, cx.now);
        }
        for key in std::mem::take(&mut self.telling.dirty) {
            cx.out.changes.push(match self.telling.memo(key) {
                Some(body) => Change::PutMemo { key, body },
                None => Change::DropMemo { key },
            });
        }
        let out = std::mem::take(&mut self.telling.out);
        cx.out.effects.extend(out.into_iter().map(|(job, notice)| Effect::Tell { job, notice }));
    }

    fn tell_if_over(&mut self, key: MemoKey, now: Timestamp) {
        let is_over = match key {
            MemoKey::Array(array) => self.arrays.get(&array).is_none_or(|group| group.live == 0),
            MemoKey::Chain(root) => {
                self.telling.chains.get(&root).is_none_or(|chain| chain.live.is_empty())
            }
            MemoKey::Queue => self.names.values().all(|names| names.is_empty()),
            MemoKey::Link(_) | MemoKey::Never(_) | MemoKey::Limit(_) => false,
        };
        if !is_over {
            return;
        }
        let Some(tally) = self.telling.tallies.remove(&key) else { return };
        self.telling.dirty.insert(key);
        let has_any = tally.counts.total() > 0;
        match key {
            MemoKey::Array(array) => self.tell_array_end(array, tally, now),
            MemoKey::Chain(root) => {
                let chain = self.telling.chains.remove(&root).unwrap_or_default();
                for member in chain.live.into_iter().chain(chain.over) {
                    self.telling.chain_of.remove(&member);
                    self.telling.dirty.insert(MemoKey::Link(member));
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

    fn tell_array_end(&mut self, array: JobId, tally: Tally, now: Timestamp) {
        let records = self.arrays.get(&array).map(|group| &group.records);
        let Some(job) = records.and_then(|ids| ids.iter().find_map(|id| self.job(*id))) else {
            return;
        };
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
        let telling = &self.telling;
        if !telling.dirty.is_empty() || !telling.out.is_empty() || !telling.touched.is_empty() {
            return Err(format!(
                "not said: {:?} {:?} {:?}",
                telling.dirty, telling.out, telling.touched
            ));
        }
        let links = telling.chain_of.keys().copied().map(MemoKey::Link);
        let never = telling.never.keys().copied().map(MemoKey::Never);
        let limits = telling.limits.keys().copied().map(MemoKey::Limit);
        let keys = telling.tallies.keys().copied().chain(links).chain(never).chain(limits);
        Ok(keys.filter_map(|key| Some((key, telling.memo(key)?))).collect())
    }

    /// Who is in which chain is known both ways, and a chain has somebody who is not over.
    #[cfg(test)]
    pub(super) fn check_chains(&self) -> Result<(), String> {
        let telling = &self.telling;
        let members = telling.chains.iter().flat_map(|(root, chain)| {
            let live = chain.live.iter().map(|member| (*root, *member, true));
            live.chain(chain.over.iter().map(|member| (*root, *member, false)))
        });
        let mut count = 0;
        for (root, member, is_live) in members {
            count += 1;
            if telling.chain_of.get(&member) != Some(&root) || self.is_live(member) != is_live {
                return Err(format!("job {member} is in chain {root}, live: {is_live}"));
            }
        }
        let over = telling.chains.iter().find(|(_, chain)| chain.live.is_empty());
        match over {
            Some((root, _)) => Err(format!("chain {root} is over, and not told")),
            None if count != telling.chain_of.len() => {
                Err("somebody is in a chain that is not there".to_owned())
            }
            None => Ok(()),
        }
    }

    /// Takes over what an earlier daemon has counted and told. To be called once, after the recovery.
    pub fn recall_memos(&mut self, memos: Vec<(MemoKey, MemoBody)>, now: Timestamp) {
        let audience = self.config.audience;
        for (key, body) in memos {
            // What is not taken over is dropped from the store, or kept anew.
            self.telling.dirty.insert(key);
            let is_live = |id: JobId| self.job(id).is_some_and(|job| !job.run.state.is_terminal());
            match (key, body) {
                (MemoKey::Queue, MemoBody::Tally(tally)) if audience.wants(Event::Queue) => {
                    self.telling.tallies.insert(key, *tally);
                }
                (MemoKey::Array(array), MemoBody::Tally(tally)) if self.is_live(array) => {
                    self.telling.tallies.insert(key, *tally);
                }
                (MemoKey::Chain(_), MemoBody::Tally(tally)) if audience.wants(Event::Chain) => {
                    self.telling.tallies.insert(key, *tally);
                }
                (MemoKey::Link(job), MemoBody::Link(root)) if audience.wants(Event::Chain) => {
                    let (is_live, is_known) = (
                        self.is_live(job),
                        self.jobs.contains_key(&job) || self.arrays.contains_key(&job),
                    );
                    if is_known {
                        self.telling.chain_of.insert(job, root);
                        let chain = self.telling.chains.entry(root).or_default();
                        if is_live {
                            chain.live.insert(job)
                        } else {
                            chain.over.insert(job)
                        };
                    }
                }
                (MemoKey::Never(job), MemoBody::Reasons(told)) if is_live(job) => {
                    self.telling.never.insert(job, told);
                }
                (MemoKey::Limit(job), MemoBody::Percent(told)) if is_live(job) => {
                    self.telling.limits.insert(job, told);
                }
                _ => {}
            }
        }
        self.telling.touched.extend(self.telling.tallies.keys().copied());
        let is_linked =
            |job: &&Job| job.run.state == JobState::Pending && !job.request.dependency.is_empty();
        let linked: Vec<JobId> = self.jobs().filter(is_linked).map(|job| job.id).collect();
        linked.into_iter().for_each(|id| self.link(id, now));
    }
}
