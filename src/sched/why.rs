//! Everything that keeps a pending job from starting: the reasons that the plan follows, each with
//! its figures.
//!
//! The first reason is the one that squeue shows. `words` turns them into text.

use super::choice::Choice;
use super::core::Core;
use super::line::backfill::{Running, latest_start, waits_for};
use super::line::queue::QueueKey;
use super::line::run_times::ExpectedEnd;
use super::records::Record;
use super::records::{Status, Waits};
use super::resources::capacity::{Capacity, CpuSharing, Want};
use super::resources::limits::{Load, QosLimit, Reached, index_of};
use super::types::Cx;
use slotd_model::dependency::DependencyTerm;
use slotd_model::gpu::GpuShare;
use slotd_model::job::Hold;
use slotd_model::license::{self, LicenseHolder, LicenseShortage};
use slotd_model::qos::{self, Limited};
use slotd_model::reservation::Reservation;
use slotd_model::tres::Allocation;
use slotd_model::view::JobView;
use slotd_model::why::{
    Awaited, Blocker, Holder, QosShortage, ReservationBlock, ReservationBlocks, Shortage, Standing,
    Until, What,
};
use slotd_model::{Job, JobState, Reason, Timestamp, Tres};

impl Core {
    /// Adds to the view of a pending job everything that keeps it from starting. The cost grows
    /// with the number of running jobs.
    pub fn add_blockers(&self, view: &mut JobView, now: Timestamp) {
        if let Some(record) = self.records.get(view.id) {
            view.blockers = self.blockers(record, now);
        }
    }

    /// Returns everything that keeps a record from starting, beginning with [`Core::reason`], or a
    /// job that was suspended for another one from continuing.
    pub(super) fn blockers(&self, record: &Record, now: Timestamp) -> Vec<Blocker> {
        if record.job.run.state != JobState::Pending {
            let lent = self.lent_cpus(&record.job, now).map(What::Shortage);
            let in_words = |what| self.resources.in_words(record, Reason::Resources, what, now);
            return lent.map(in_words).into_iter().collect();
        }
        let anywhere = self
            .records
            .gates_anywhere(record, now)
            .map(|reason| (reason, self.anywhere(reason, record, now)));
        let mut found: Vec<(Reason, What)> = anywhere.collect();
        let is_in_line = found.is_empty();
        let choices = Choice::all(&record.job, self.resources.config());
        let closed: Vec<(Reason, What)> =
            choices.flat_map(|choice| self.closed(&choice, now)).collect();
        let node = self
            .resources
            .node()
            .start_trouble()
            .map(|trouble| (Reason::ReqNodeNotAvail, What::Node { since: trouble.since }));
        match self.waits_in(record, now) {
            None => found.extend(closed.into_iter().chain(node)),
            Some((choice, reason)) => {
                found.extend(node);
                // If one partition would let it start now, the others do not matter.
                if let Some(blocker) = self.in_line(&choice, reason, is_in_line, now) {
                    found.push(blocker);
                    found.extend(closed);
                }
            }
        }
        found
            .into_iter()
            .map(|(reason, what)| self.resources.in_words(record, reason, what, now))
            .collect()
    }

    /// Reports jobs that can never start, once for each job and reason.
    pub(super) fn notify_never(&mut self, cx: &mut Cx) {
        for id in self.notifications.take_suspects() {
            let Some(record) = self.records.get(id) else { continue };
            let reason = match record.job.run.state {
                JobState::Pending => self.gate(record, cx.now),
                _ => None,
            };
            let is_new = |reason: &Reason| self.notifications.is_new_never(&record.job, *reason);
            let Some(reason) = reason.filter(is_new) else { continue };
            let mut sentences = self.blockers(record, cx.now).into_iter();
            let sentence = sentences.find(|blocker| blocker.reason == reason);
            let why = sentence.map_or_else(|| reason.to_string(), |blocker| blocker.text);
            self.notifications.notify_never(&record.job, reason, &why, cx.now);
        }
        self.notifications.emit(&self.records, cx);
    }

    /// Describes the shortage of the first blocked job of its line: `waits for 4 CPUs; job 12 holds
    /// 6 CPUs until 14:05 by its time limit`. `None` for a job with another reason.
    pub(super) fn waits_in_words(
        &self,
        record: &Record,
        reason: Reason,
        now: Timestamp,
    ) -> Option<String> {
        let (Reason::Resources | Reason::Exclusive) = reason else { return None };
        let (choice, _) = self.waits_in(record, now)?;
        self.resources.words(now).comment(&self.shortage(&choice, None, now))
    }

    /// Adds to the view of a job with reason Priority which job it waits behind, and for which
    /// resources. The cost grows with the number of running jobs, so this is for queries about a
    /// single job.
    pub fn add_job_ahead(&self, view: &mut JobView, now: Timestamp) {
        if view.run.reason == Reason::Priority && view.run.system_comment.is_none() {
            view.run.system_comment =
                self.records.get(view.id).and_then(|record| self.behind_in_words(record, now));
        }
    }

    fn behind_in_words(&self, record: &Record, now: Timestamp) -> Option<String> {
        let (choice, _) = self.waits_in(record, now)?;
        let first = self.waits_behind(&choice)?;
        self.resources.words(now).comment(&self.shortage(&choice, Some(first), now))
    }

    /// Returns the figures of a reason that does not depend on a partition.
    fn anywhere(&self, reason: Reason, record: &Record, now: Timestamp) -> What {
        let job = &record.job;
        match reason {
            Reason::BeginTime => What::Begin { at: job.begin().unwrap_or(now) },
            Reason::JobArrayTaskLimit => {
                let group = self.records.array_of(job);
                let (limit, running) =
                    group.map_or((0, 0), |group| (group.limit.unwrap_or(0), group.active));
                What::ArrayLimit { limit, running }
            }
            Reason::Dependency | Reason::DependencyNeverSatisfied => {
                let waits = record.waits.as_deref();
                let on = waits.map(|waits| self.awaited(job, waits, now)).unwrap_or_default();
                What::Dependency { any: waits.is_some_and(|waits| waits.any), on }
            }
            _ => What::Hold { by_admin: job.hold == Hold::Admin },
        }
    }

    /// Returns each condition of a dependency.
    fn awaited(&self, job: &Job, waits: &Waits, now: Timestamp) -> Vec<Awaited> {
        let one = |(term, status): &(DependencyTerm, Status)| {
            let standing = match (term, status) {
                (DependencyTerm::Singleton, _) if self.records.is_singleton_free(job) => {
                    Standing::Met
                }
                (DependencyTerm::On { .. }, _) if waits.is_for_corr(term) => {
                    let hopeless = waits.corr.as_ref().map_or(0, |corr| corr.failed.len());
                    if hopeless >= job.pending_tasks() { Standing::Never } else { Standing::Open }
                }
                (DependencyTerm::Singleton, _) | (_, Status::Open) => Standing::Open,
                (_, Status::Met) => Standing::Met,
                (_, Status::MetAt(at)) if *at <= now => Standing::Met,
                (_, Status::MetAt(at)) => Standing::MetAt(*at),
                (_, Status::Failed) => Standing::Never,
            };
            let other = match term {
                DependencyTerm::On { job, .. } => Some(job.job),
                DependencyTerm::Singleton => None,
            };
            let group = other.and_then(|id| self.records.array(id));
            let target = other.filter(|_| group.is_none()).and_then(|id| self.job(id));
            let until = target
                .filter(|target| target.run.state.is_active())
                .map(|target| self.until(target, now));
            Awaited {
                term: term.to_string(),
                standing,
                state: target.map(|target| target.run.state),
                until,
                tasks: group.map(|group| (group.ended.len(), group.total)),
                jobs: if other.is_none() { self.records.before_singleton(job) } else { Vec::new() },
            }
        };
        waits.terms.iter().map(one).collect()
    }

    /// Returns what keeps a job from starting in a partition, regardless of free resources.
    fn closed(&self, choice: &Choice, now: Timestamp) -> Vec<(Reason, What)> {
        let mut reasons: Vec<Reason> = self.resources.gates_in(choice, now).collect();
        reasons.dedup();
        if choice.partition.is_none() {
            // Without a partition, the other reasons do not matter.
            reasons.truncate(1);
        }
        reasons
            .into_iter()
            .filter_map(|reason| Some((reason, self.closed_by(reason, choice, now)?)))
            .collect()
    }

    fn closed_by(&self, reason: Reason, choice: &Choice, now: Timestamp) -> Option<What> {
        let partition = choice.name().to_owned();
        let (want, host) = (choice.want(), self.resources.host());
        Some(match reason {
            Reason::PartitionTimeLimit => What::TimeLimit {
                partition,
                asked_secs: choice.limit_secs,
                most_secs: choice.partition.and_then(|partition| partition.max_time_secs),
            },
            reason if reason.is_limit() => {
                return self.limit(self.resources.ledger().whole(), choice, now);
            }
            Reason::QosMaxWallDurationPerJobLimit => What::QosTimeLimit {
                qos: qos::of(&choice.job.request).to_owned(),
                asked_secs: choice.limit_secs,
                most_secs: choice.qos?.max_wall_secs?,
            },
            Reason::BadConstraints | Reason::ReqNodeNotAvail => What::TooLarge {
                partition,
                needs: want.tres,
                most: self.resources.ledger().whole().free_for(&want, host),
            },
            Reason::Reservation => self.own_reservation(choice, now),
            Reason::Resources if self.is_above_reservation(choice) => {
                self.own_reservation(choice, now)
            }
            Reason::Resources => What::Elsewhere { partition },
            _ => What::Partition {
                partition,
                state: choice.partition.map(|partition| partition.state),
                opens: self.resources.opens_in(choice, now),
            },
        })
    }

    /// Returns whether the job needs more than its reservation has.
    fn is_above_reservation(&self, choice: &Choice) -> bool {
        let want = choice.want();
        let whole = self.resources.ledger().whole();
        let reached = whole.limit_reached(&want.place, &want.tres, self.resources.host());
        matches!(reached, Some(Reached::Reservation { .. }))
    }

    fn limit(&self, capacity: &Capacity, choice: &Choice, now: Timestamp) -> Option<What> {
        let want = choice.want();
        let no_qos = || What::NoQos { qos: qos::of(&choice.job.request).to_owned() };
        let describe = |reached: Reached| match reached {
            Reached::Limit { limit, used: Load { jobs, tres }, .. } => {
                What::Limit { limit: limit.to_string(), jobs, cpus: tres.cpus }
            }
            Reached::Qos { at, limit, used } => {
                self.qos_shortage(at, limit, &used, choice, now).map_or_else(no_qos, What::Qos)
            }
            Reached::NoQos => no_qos(),
            Reached::License(at) => What::License(self.license_shortage(at, choice, now)),
            Reached::Reservation { .. } => self.own_reservation(choice, now),
        };
        let own =
            capacity.limit_reached(&want.place, &want.tres, self.resources.host()).map(describe);
        own.or_else(|| self.limit_of_expanded(choice.job.id, &want.tres, describe))
    }

    /// Returns how the job's own reservation keeps it from starting.
    fn own_reservation(&self, choice: &Choice, now: Timestamp) -> What {
        let own = choice.reservation.flatten();
        let how = match own {
            Some(own) if own.is_open(now) => ReservationBlocks::Full,
            Some(_) => ReservationBlocks::NotBegun,
            None => ReservationBlocks::Gone,
        };
        let named = || choice.job.request.reservation.clone().unwrap_or_default();
        let gone = || Reservation { name: named(), ..Reservation::default() };
        What::Reservation(block(&own.cloned().unwrap_or_else(gone), how))
    }

    /// Returns how a reservation of others keeps a job from starting, or its own one.
    fn in_reservation(&self, choice: &Choice, now: Timestamp) -> Option<What> {
        let want = choice.want();
        let capacity = self.resources.ledger().capacity();
        let reached = capacity.limit_reached(&want.place, &want.tres, self.resources.host());
        if let Some(Reached::Reservation { .. }) = reached {
            return Some(self.own_reservation(choice, now));
        }
        let others =
            self.reserved_node(choice, now).or_else(|| self.reserved_parts(choice, now))?;
        Some(What::Reservation(block(others, ReservationBlocks::OfOthers)))
    }

    /// Returns the figures of a limit of a QOS, by its index, and the jobs that have to end before
    /// the job is within the limit.
    fn qos_shortage(
        &self,
        at: usize,
        limit: QosLimit,
        used: &Load,
        choice: &Choice,
        now: Timestamp,
    ) -> Option<QosShortage> {
        let qos = self.resources.config().qos.get(at)?;
        let (want, ledger) = (choice.want(), self.resources.ledger());
        let resource = limit.resource();
        let most = limit.most(qos)?;
        let needs = limit.of(&Load { jobs: 1, tres: want.tres });
        let mut running = self.line.running(&self.records, ledger, now);
        running.sort_by_key(Running::turn);
        let mut missing = limit.of(used).saturating_add(needs).saturating_sub(most);
        running.retain(|running| {
            let holds = limit.of(&Load { jobs: 1, tres: running.part.alloc.tres });
            let is_own = running.part.place.limits.is_of_qos(at) && holds > 0 && missing > 0;
            missing = missing.saturating_sub(if is_own { holds } else { 0 });
            is_own
        });
        let kinds = resource.map_or(Tres::ZERO, Limited::one);
        let holders = running.iter().map(|running| self.holder(running, &kinds)).collect();
        let (limit, used) = (limit.name().to_owned(), limit.of(used));
        Some(QosShortage { qos: qos.name.clone(), limit, resource, most, used, needs, holders })
    }

    /// Returns the figures of a license that a job lacks, by its index, and the jobs that have to
    /// end before it is free.
    fn license_shortage(
        &self,
        at: Option<usize>,
        choice: &Choice,
        now: Timestamp,
    ) -> LicenseShortage {
        let known = at.and_then(|at| Some((at, self.resources.licenses().nth(at)?)));
        let Some((at, license)) = known else { return self.gone_license(choice.job) };
        let count = |place: &CpuSharing| place.limits.count_of(at);
        let needs = count(&choice.want().place);
        let ledger = self.resources.ledger();
        let mut running = self.line.running(&self.records, ledger, now);
        running.sort_by_key(Running::turn);
        let mut missing = license.used.saturating_add(needs).saturating_sub(license.total);
        running.retain(|running| {
            let (holds, was_missing) = (count(&running.part.place), missing > 0);
            missing = missing.saturating_sub(holds);
            holds > 0 && was_missing
        });
        let holder = |running: &Running| {
            let Holder { id, job, until, .. } = self.holder(running, &Tres::ZERO);
            LicenseHolder { id, job, holds: count(&running.part.place), until }
        };
        LicenseShortage {
            needs,
            total: Some(license.total),
            free: license.free(),
            holders: running.iter().map(holder).collect(),
            license: license.name,
        }
    }

    /// Returns the figures of the first license of a job that no longer exists.
    fn gone_license(&self, job: &Job) -> LicenseShortage {
        let text = job.request.licenses.as_deref().unwrap_or_default();
        let config = self.resources.config();
        let mut asked = license::parse(text).unwrap_or_default().into_iter();
        let gone = asked.find(|(name, _)| index_of(name, &config.licenses).is_none());
        let (name, needs) = gone.unwrap_or_default();
        LicenseShortage {
            license: name.to_owned(),
            needs,
            total: None,
            free: 0,
            holders: Vec::new(),
        }
    }

    /// Returns the reason why a job waits in an open partition. A job that is not in line yet waits
    /// behind no other job.
    fn in_line(
        &self,
        choice: &Choice,
        reason: Reason,
        is_in_line: bool,
        now: Timestamp,
    ) -> Option<(Reason, What)> {
        match reason {
            Reason::None => None,
            reason if reason.is_limit() => {
                Some((reason, self.limit(self.resources.ledger().capacity(), choice, now)?))
            }
            Reason::ReservedForMaintenance => Some((reason, self.in_reservation(choice, now)?)),
            Reason::Resources if self.is_kept_by_reservation(choice) => {
                Some((reason, self.in_reservation(choice, now)?))
            }
            Reason::Priority if !is_in_line => {
                let shortage = self.shortage(choice, None, now);
                (shortage.lacks != Tres::ZERO)
                    .then_some((Reason::Resources, What::Shortage(shortage)))
            }
            _ => {
                let first =
                    (reason == Reason::Priority).then(|| self.waits_behind(choice)).flatten();
                Some((reason, What::Shortage(self.shortage(choice, first, now))))
            }
        }
    }

    /// Returns whether enough is free, so that only a reservation keeps the job from starting.
    fn is_kept_by_reservation(&self, choice: &Choice) -> bool {
        let want = choice.want();
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let reached = capacity.limit_reached(&want.place, &want.tres, host);
        matches!(reached, Some(Reached::Reservation { .. })) || capacity.fits(&want, host)
    }

    /// Returns the job that a job with reason Priority waits behind.
    pub(super) fn waits_behind(&self, choice: &Choice) -> Option<QueueKey> {
        let is_other = |key: &QueueKey| key.id != choice.job.id;
        self.first_in_line(choice)
            .filter(is_other)
            .or_else(|| self.line.queue().first().filter(is_other))
    }

    /// Returns the resources that a job lacks in a partition, and the jobs that hold them.
    pub(super) fn shortage(
        &self,
        choice: &Choice,
        behind: Option<QueueKey>,
        now: Timestamp,
    ) -> Shortage {
        let want = choice.want();
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let lacks =
            if capacity.fits(&want, host) { Tres::ZERO } else { capacity.lacks(&want, host) };
        let (holders, gap_secs) = if lacks == Tres::ZERO {
            (Vec::new(), behind.and_then(|first| self.gap_before(first, now)))
        } else {
            (
                waits_for(
                    &want,
                    capacity,
                    self.line.running(&self.records, self.resources.ledger(), now),
                    host,
                ),
                None,
            )
        };
        Shortage {
            partition: choice.name().to_owned(),
            needs: want.tres,
            free: capacity.free_for(&want, host),
            holders: holders.iter().map(|holder| self.holder(holder, &lacks)).collect(),
            lacks,
            lacks_cpus: capacity.taken_of_named(&want).collect(),
            behind: behind
                .map(|first| self.job(first.id).map_or_else(|| first.id.to_string(), Job::label)),
            gap_secs,
        }
    }

    /// Returns the seconds until the latest start of the first blocked job.
    fn gap_before(&self, first: QueueKey, now: Timestamp) -> Option<u64> {
        let job = self.job(first.id)?;
        let choice =
            Choice::all(job, self.resources.config()).find(|choice| choice.at == first.choice)?;
        let (want, capacity, host): (Want, _, _) =
            (choice.want(), self.resources.ledger().capacity(), self.resources.host());
        let at = latest_start(
            &want,
            capacity,
            self.line.running(&self.records, self.resources.ledger(), now),
            host,
        )?;
        Some(at.since(now).as_secs()).filter(|gap| *gap > 0)
    }

    pub(super) fn holder(&self, Running { id, end, part, .. }: &Running, lacks: &Tres) -> Holder {
        let job = self.job(*id);
        let label = job.map_or_else(|| id.to_string(), Job::label);
        Holder { id: *id, job: label, holds: of_kinds(&part.alloc, lacks), until: until(job, *end) }
    }

    fn until(&self, job: &Job, now: Timestamp) -> Until {
        until(Some(job), self.line.expected_end(job, now))
    }
}

fn block(reservation: &Reservation, how: ReservationBlocks) -> ReservationBlock {
    let Reservation { name, users, accounts, start, end, .. } = reservation.clone();
    ReservationBlock { reservation: name, how, users, accounts, start, end }
}

fn until(job: Option<&Job>, end: ExpectedEnd) -> Until {
    let state = job.map_or(JobState::Running, |job| job.run.state);
    let preempted = job.and_then(|job| job.run.preempted.as_ref()).and_then(|by| by.grace_end());
    match (state, end) {
        (JobState::Completing, _) => Until::Ending,
        (JobState::Suspended, _) => Until::Suspended,
        (_, ExpectedEnd::ByLimit(at)) if preempted == Some(at) => Until::Preempted(at),
        (_, ExpectedEnd::Unknown) => Until::Unknown,
        (_, ExpectedEnd::ByLimit(at)) => Until::ByLimit(at),
        (_, ExpectedEnd::AsEarlier(at)) => Until::AsEarlier(at),
    }
}

/// Returns how much of the lacking resources an allocation holds: of GPUs, what it holds of them,
/// as whole ones or as shares.
fn of_kinds(alloc: &Allocation, lacks: &Tres) -> Tres {
    let gpus = match alloc.gpu_share {
        _ if lacks.without_gpus() == *lacks => Tres::ZERO,
        // An exclusive job holds more of them than it needs.
        GpuShare::Whole => GpuShare::Whole.of(alloc.gpu_ids.len() as u32),
        GpuShare::MemMb(_) | GpuShare::Shards(_) => alloc.tres,
    };
    Tres {
        cpus: if lacks.cpus > 0 { alloc.tres.cpus } else { 0 },
        mem_mb: if lacks.mem_mb > 0 { alloc.tres.mem_mb } else { 0 },
        ..gpus
    }
}
