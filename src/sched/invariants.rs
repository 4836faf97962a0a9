//! Invariants of the state, which the tests check after each step.

use super::choice::Choice;
use super::core::Core;
use super::line::queue::Place;
use super::line::run_times::ExpectedEnd;
use super::recurrence;
use super::resources::capacity::Part;
use super::resources::gpu_pool::GpuPool;
use slotd_model::license::{self, LicenseUse};
use slotd_model::qos::Limited;
use slotd_model::reservation::{Flag, Reservation, Share};
use slotd_model::tres::Allocation;
use slotd_model::{Job, JobId, JobState, Reason, Timestamp, Tres};
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl Core {
    /// Fails with the first violation.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_capacity()?;
        self.check_limits()?;
        self.check_licenses()?;
        self.check_qos()?;
        self.check_queue()?;
        self.records.check()?;
        self.notifications.check_chains(&self.records)?;
        self.check_blockers()
    }

    /// Checks that no job of others started in a reservation, and that all of them leave it what it
    /// has. Reservations that may overlap with others or with running jobs are left out.
    pub fn check_reservations(&self, now: Timestamp) -> Result<(), String> {
        let overlaps = [Flag::Maint, Flag::Overlap, Flag::IgnoreJobs, Flag::Flex];
        let is_strict = |one: &&Reservation| !overlaps.iter().any(|flag| one.has(*flag));
        let all = &self.resources.config().reservations;
        all.iter()
            .filter(is_strict)
            .filter(|one| one.is_active(now))
            .try_for_each(|one| self.check_reservation_kept(one))
    }

    /// Checks that a job that starts will not run into a reservation of others: it ends before the
    /// next period, or leaves enough beside all jobs that do not.
    pub fn check_started(&self, id: JobId, now: Timestamp) -> Result<(), String> {
        let (config, ledger) = (self.resources.config(), self.resources.ledger());
        let Some(job) = self.job(id) else { return Ok(()) };
        let own = config.reservation_of(&job.request);
        let running = self.line.running(&self.records, ledger, now);
        for reservation in &config.reservations {
            let Some(next) = recurrence::from(reservation, now, &config.zone) else { continue };
            let is_open = |part: &Part| {
                let own = part.place.limits.reservation();
                own == Some(next.number)
                    || config
                        .reservations
                        .iter()
                        .any(|one| Some(one.number) == own && one.passes(&next))
            };
            let at = next.start.max(now);
            let ends = |end: &ExpectedEnd| matches!(end, ExpectedEnd::ByLimit(end) if *end <= at);
            let there = running.iter().filter(|one| !ends(&one.end) && !is_open(&one.part));
            let there: Vec<_> = there.collect();
            if there.iter().all(|one| one.id != id) {
                continue;
            }
            let cpus: BTreeSet<u32> =
                there.iter().flat_map(|one| one.part.alloc.cpu_ids.iter().copied()).collect();
            let host = self.resources.host().tres();
            let left = match next.share {
                Share::Node => 0,
                Share::Parts(limit) => host.cpus.saturating_sub(limit.cpus.unwrap_or(0)),
                Share::Licenses => host.cpus,
            };
            if cpus.len() as u32 > left {
                let own = own.map_or("none", |own| &own.name);
                return Err(format!("job {id} of {own} starts and runs into {next:?}: {cpus:?}"));
            }
        }
        Ok(())
    }

    fn check_reservation_kept(&self, reservation: &Reservation) -> Result<(), String> {
        let config = self.resources.config();
        let passes = |job: &Job| {
            let own = config.reservation_of(&job.request);
            own.is_some_and(|own| own.number == reservation.number || own.passes(reservation))
        };
        let others = self.records.active_jobs().filter(|job| {
            job.run.state == JobState::Running
                && job.run.start.is_some_and(|start| start > reservation.start)
                && !passes(job)
        });
        let (mut cpus, mut gpus) = (BTreeSet::<u32>::new(), BTreeSet::<u32>::new());
        let mut mem_mb = 0;
        let mut licenses: BTreeMap<&str, u32> = BTreeMap::new();
        for job in others {
            if reservation.share == Share::Node {
                return Err(format!("job {} runs in {}", job.id, reservation.name));
            }
            let alloc = job.run.alloc.as_ref().ok_or("a running job has an allocation")?;
            // Jobs may share CPUs.
            cpus.extend(&alloc.cpu_ids);
            gpus.extend(&alloc.gpu_ids);
            mem_mb += alloc.tres.mem_mb;
            let held = job.request.licenses.as_deref().and_then(license::parse);
            for (name, count) in held.into_iter().flatten() {
                *licenses.entry(name).or_default() += count;
            }
        }
        let own = match reservation.share {
            Share::Parts(limit) => limit.tres(),
            Share::Node | Share::Licenses => Tres::ZERO,
        };
        let host = self.resources.host().tres();
        let kept = reservation.licenses.as_deref().and_then(license::parse).unwrap_or_default();
        let lacks_license = kept.iter().any(|(name, count)| {
            let all = config.licenses.iter().find(|known| known.name == *name);
            let held = licenses.get(name).copied().unwrap_or(0);
            held > 0 && all.is_some_and(|all| held + count > all.count)
        });
        let is_crowded = own.cpus > 0 && cpus.len() as u32 + own.cpus > host.cpus
            || own.gpus > 0 && gpus.len() as u32 + own.gpus > host.gpus
            || own.mem_mb > 0 && mem_mb + own.mem_mb > host.mem_mb;
        if is_crowded || lacks_license {
            let name = &reservation.name;
            return Err(format!("CPUs {cpus:?}, GPUs {gpus:?}, {mem_mb} MB beside {name}"));
        }
        Ok(())
    }

    /// Checks that the list of blockers begins with the job's reason.
    fn check_blockers(&self) -> Result<(), String> {
        let now = self
            .jobs()
            .filter_map(|job| job.run.start.max(Some(job.submit)))
            .max()
            .unwrap_or_default();
        // A long queue has many equal jobs.
        let pending =
            self.records.all().filter(|record| record.job.run.state == JobState::Pending).take(16);
        for record in pending {
            let (reason, all) = (self.reason_of(record, now), self.blockers(record, now));
            let first = all.first().map_or(Reason::None, |first| first.reason);
            if first != reason || all.iter().any(|blocker| blocker.text.is_empty()) {
                return Err(format!(
                    "job {} waits for {reason}, but its blockers are {all:?}",
                    record.job.id
                ));
            }
        }
        Ok(())
    }

    /// Checks that the host is not over capacity, that no CPU has more jobs than each of them
    /// allows and no GPU is allocated twice, that no partition exceeds its bounds, and that the
    /// ledger agrees with the jobs.
    fn check_capacity(&self) -> Result<(), String> {
        let (mut total, mut gone) = (Tres::ZERO, 0);
        let mut cpus = BTreeMap::new();
        let mut gpus = GpuPool::of(self.resources.host());
        let is_there = |id: u32| self.resources.host().gpus.iter().any(|gpu| gpu.id == id);
        let mut used: HashMap<usize, (Tres, BTreeSet<u32>)> = HashMap::new();
        for job in self.jobs() {
            if !job.run.state.is_active() {
                continue;
            }
            let Some(alloc) = &job.run.alloc else {
                return Err(format!("job {} runs without an allocation", job.id));
            };
            self.check_shrinking(job, alloc)?;
            check_named(job, alloc)?;
            if job.tres.minus(&alloc.tres) != Tres::ZERO {
                return Err(format!(
                    "job {} has {:?}, but requested {:?}",
                    job.id, alloc.tres, job.tres
                ));
            }
            let gpu_count = alloc.gpu_share.gpus_in(&alloc.tres);
            if alloc.gpu_ids.len() as u32 != gpu_count
                || alloc.cpu_ids.len() as u32 != alloc.tres.cpus
            {
                return Err(format!(
                    "job {} has an allocation whose numbers do not add up: {alloc:?}",
                    job.id
                ));
            }
            let Some(held) = self.resources.ledger().held(job.id) else {
                return Err(format!("job {} holds nothing", job.id));
            };
            for cpu in &alloc.cpu_ids {
                let users: &mut Vec<u32> = cpus.entry(*cpu).or_default();
                if job.run.lends_cpus().is_some() {
                    continue;
                }
                users.push(held.place.jobs_per_cpu);
                if users.len() > users.iter().copied().min().unwrap_or(0) as usize {
                    return Err(format!(
                        "CPU {cpu} is allocated to more jobs than may share it, among them job {}",
                        job.id
                    ));
                }
            }
            let partition =
                held.place.partition.map(|at| (at, &self.resources.config().partitions[at]));
            if let Some((at, partition)) = partition {
                let is_own = |own: &Option<BTreeSet<u32>>, ids: &[u32]| {
                    own.as_ref().is_none_or(|own| ids.iter().all(|id| own.contains(id)))
                };
                if !is_own(&partition.cpus, &alloc.cpu_ids)
                    || !is_own(&partition.gpus, &alloc.gpu_ids)
                {
                    return Err(format!("job {} has {alloc:?} in {partition:?}", job.id));
                }
                let (sum, own) = used.entry(at).or_default();
                *sum = sum.plus(&alloc.tres);
                own.extend(alloc.cpu_ids.iter().filter(|_| job.run.lends_cpus().is_none()));
                // CPUs that its jobs share count once.
                let used = Tres { cpus: own.len() as u32, ..*sum };
                if used.minus(&partition.bounds()) != Tres::ZERO {
                    return Err(format!("jobs have {used:?} of {partition:?}"));
                }
            }
            // A GPU that no longer exists still belongs to the job.
            let there: Vec<u32> =
                alloc.gpu_ids.iter().copied().filter(|id| is_there(*id)).collect();
            if !gpus.have(&there, alloc.gpu_share) {
                return Err(format!(
                    "job {} has a share of the GPUs {:?} that other jobs have",
                    job.id, alloc.gpu_ids
                ));
            }
            gpus.take(&alloc.gpu_ids, alloc.gpu_share);
            gone += (alloc.gpu_ids.len() - there.len()) as u32;
            total = total.plus(&alloc.tres);
        }
        if total != self.resources.ledger().used() {
            return Err(format!(
                "jobs hold {total:?}, but the ledger has {:?}",
                self.resources.ledger().used()
            ));
        }
        if !self.resources.ledger().capacity().counts_empty_cpus() {
            return Err("a partition has a wrong count of unused CPUs".to_owned());
        }
        // Shared CPUs count for each job.
        let there =
            Tres { cpus: cpus.len() as u32, gpus: total.gpus.saturating_sub(gone), ..total };
        if there.minus(&self.resources.host().tres()) != Tres::ZERO {
            return Err(format!("jobs hold {total:?} of {:?}", self.resources.host().tres()));
        }
        Ok(())
    }

    /// Checks that a shrinking job holds nothing that none of its steps uses.
    fn check_shrinking(&self, job: &Job, alloc: &Allocation) -> Result<(), String> {
        let owed = self.records.owed(job.id);
        let live = job.steps.iter().filter(|step| !step.state.is_terminal() && !step.overlap);
        let used: u32 = live.map(|step| step.alloc.tres.cpus).sum();
        if job.run.shrinks != (owed != Tres::ZERO) {
            return Err(format!(
                "job {} owes {owed:?}, but has shrinks={}",
                job.id, job.run.shrinks
            ));
        }
        if !self.is_shared_out(job.id) && owed.cpus > 0 && used < alloc.tres.cpus {
            return Err(format!(
                "job {} owes {owed:?} of {alloc:?}, but uses only {used} CPUs",
                job.id
            ));
        }
        Ok(())
    }

    /// Checks that no limit of the owner is exceeded.
    fn check_limits(&self) -> Result<(), String> {
        for limit in &self.resources.config().limits {
            let own = self.jobs().filter(|job| job.run.state.is_active());
            let own =
                own.filter(|job| limit.is_of(job.request.account.as_deref(), &job.request.name));
            let cpus: Vec<u32> =
                own.filter_map(|job| Some(job.run.alloc.as_ref()?.tres.cpus)).collect();
            let is_over = limit.jobs.is_some_and(|most| cpus.len() > most as usize)
                || limit.cpus.is_some_and(|most| cpus.iter().sum::<u32>() > most);
            if is_over {
                return Err(format!("jobs with {cpus:?} CPUs run under the limit {limit}"));
            }
        }
        Ok(())
    }

    /// Checks that the ledger agrees with the licenses that running jobs request.
    fn check_licenses(&self) -> Result<(), String> {
        let mut held: BTreeMap<&str, u32> = BTreeMap::new();
        let active = self.jobs().filter(|job| job.run.state.is_active());
        for text in active.filter_map(|job| job.request.licenses.as_deref()) {
            for (name, count) in license::parse(text).into_iter().flatten() {
                *held.entry(name).or_default() += count;
            }
        }
        for LicenseUse { name, used, .. } in self.resources.licenses() {
            let held = held.get(name.as_str()).copied().unwrap_or(0);
            if held != used {
                return Err(format!("jobs hold {held} of {name}, but the ledger has {used}"));
            }
        }
        Ok(())
    }

    /// Checks that the ledger agrees with the running jobs of each QOS.
    fn check_qos(&self) -> Result<(), String> {
        for (qos, used) in self.resources.ledger().capacity().qos() {
            if !qos.affects_starts() {
                continue;
            }
            let own = self.jobs().filter(|job| {
                job.run.state.is_active() && slotd_model::qos::of(&job.request) == qos.name
            });
            let held: Vec<Tres> =
                own.filter_map(|job| Some(job.run.alloc.as_ref()?.tres)).collect();
            let sum = held.iter().fold(Tres::ZERO, |sum, tres| sum.plus(tres));
            if (held.len(), sum) != (used.jobs as usize, used.tres) {
                return Err(format!(
                    "{} jobs hold {sum:?} of {qos}, but it has {used:?}",
                    held.len()
                ));
            }
        }
        Ok(())
    }

    /// Returns the licenses and the limits of QOS that jobs exceed, and by how much. Only the owner
    /// may cause that, by lowering an amount.
    pub fn exceeded(&self) -> BTreeMap<String, u64> {
        let licenses = self.resources.licenses().map(|LicenseUse { name, used, total }| {
            (format!("license {name}"), u64::from(used.saturating_sub(total)))
        });
        let qos = self.resources.ledger().capacity().qos().flat_map(|(qos, used)| {
            let over = move |what: &str, used: u64, most: Option<u64>| {
                let over = used.saturating_sub(most.unwrap_or(u64::MAX));
                (format!("{what} of {}", qos.name), over)
            };
            let of_tres = Limited::ALL.into_iter().flat_map(move |what| {
                [("user", qos.max_tres), ("group", qos.grp_tres)].map(|(who, limit)| {
                    over(&format!("{who} {what:?}"), what.of(&used.tres), limit.on(what))
                })
            });
            of_tres.chain([over("jobs", used.jobs.into(), qos.max_jobs.map(u64::from))])
        });
        licenses.chain(qos).filter(|(_, over)| *over > 0).collect()
    }

    /// Checks that the queue holds exactly the places of the pending records.
    fn check_queue(&self) -> Result<(), String> {
        let keyed = self.records.all().map(|record| record.places.len()).sum::<usize>();
        if keyed != self.line.queue().len() {
            return Err(format!(
                "the records have {keyed} places in the queue, which has {}",
                self.line.queue().len()
            ));
        }
        for key in self.line.queue().iter() {
            let Some(record) = self.records.get(key.id) else {
                return Err(format!("job {} is in the queue, but not in memory", key.id));
            };
            if record.job.run.state != JobState::Pending
                || record.places.iter().all(|place| place.key != key)
            {
                return Err(format!(
                    "job {} is {}, but in the queue",
                    key.id, record.job.run.state
                ));
            }
        }
        for record in self.records.all() {
            let is_true = |place: &Place| {
                let mut choices = Choice::all(&record.job, self.resources.config());
                choices.any(|choice| self.line.place_of(&choice, &self.records) == *place)
            };
            if !record.places.iter().all(is_true) {
                return Err(format!("job {} has a wrong place in the queue", record.job.id));
            }
        }
        self.line.queue().check(self.records.all().flat_map(|record| &record.places))
    }
}

/// Checks that a job has the CPUs that it named.
fn check_named(job: &Job, alloc: &Allocation) -> Result<(), String> {
    match job.request.named_cpus.iter().find(|cpu| !alloc.cpu_ids.contains(cpu)) {
        Some(cpu) => Err(format!("job {} has {alloc:?}, but not CPU {cpu}", job.id)),
        None => Ok(()),
    }
}
