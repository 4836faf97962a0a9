//! Whether a submission is accepted, and its resulting partition, CPUs, memory and GPUs.
//!
//! `parse` interprets option values; this module checks them against the host. Requests that can
//! never run are refused at once, in Slurm's words and with the offending value.

use super::lengths;
use super::line::queue::shown_priority;
use super::resources::Resources;
use super::resources::capacity::{CpuSharing, Want};
use super::resources::gpu_pool::is_model;
use super::resources::limits::{LimitSet, Reached, index_of};
use super::sizes::{check_shape, check_size, size};
use super::types::{Config, Submission};
use slotd_model::license::{self, LicenseFault};
use slotd_model::partition::PartitionState;
use slotd_model::qos;
use slotd_model::request::{GpuRequest, JobKind};
use slotd_model::{Job, JobRequest, Partition, Refusal, Tres};
use std::collections::BTreeSet;

/// The result of an accepted submission.
pub(crate) struct Admitted {
    /// The accepting partitions, as in [`Job::partition`].
    pub partition: String,
    /// The size of the job in the first of these partitions.
    pub tres: Tres,
    /// The time limit, if it is the same in all of them.
    pub limit_secs: Option<u64>,
    /// The priority as users see it.
    pub priority: u32,
}

impl Config {
    pub(crate) fn admit(&self, s: &Submission) -> Result<Admitted, Refusal> {
        lengths::check(s)?;
        let request = &s.request;
        if request.nodes.is_some_and(|nodes| nodes.min > 1 || nodes.max == 0) {
            return Err(Refusal::NodeCount);
        }
        self.check_hosts(request)?;
        self.check_reservation(request)?;
        self.check_qos(request)?;
        self.check_licenses(request)?;
        check_shape(request, &self.host.topology)?;
        if let Some(wanted) = &request.constraint {
            self.host.check_features(wanted)?;
        }
        if let Some(wanted) = &request.prefer {
            self.host.check_preference(wanted)?;
        }
        self.check_gpu_model(&request.gpu)?;
        if let Some(array) = &request.array {
            let last = array.tasks.last().unwrap_or(u32::MAX);
            if last >= self.max_array_size || request.kind != JobKind::Batch {
                let max = self.max_array_size - 1;
                return Err(Refusal::ArrayTooLarge { array: array.clone(), last, max });
            }
        }
        self.admit_to(&self.partitions_for(request)?, request, |partition| {
            if let PartitionState::Drain | PartitionState::Inactive = partition.state {
                let (name, state) = (partition.name.clone(), partition.state);
                return Err(Refusal::PartitionNotAvailable { name, state });
            }
            let tres = size(request, partition, self);
            check_size(request, &tres, partition, self).map(|()| tres)
        })
    }

    /// Returns the partitions that accept a job with this request, or the refusal of the first one.
    pub(crate) fn admit_to(
        &self,
        partitions: &[&Partition],
        request: &JobRequest,
        takes: impl Fn(&Partition) -> Result<Tres, Refusal>,
    ) -> Result<Admitted, Refusal> {
        let (mut names, mut sizes, mut limits, mut refusals) =
            (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
        for partition in partitions {
            match takes(partition) {
                Ok(_) if names.contains(&partition.name.as_str()) => {}
                Ok(tres) => {
                    names.push(&partition.name);
                    sizes.push(tres);
                    limits.insert(self.limit_for(request, partition));
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        let Some(tres) = sizes.first().copied() else {
            return Err(refusals.into_iter().next().unwrap_or_else(|| self.unknown_partition("")));
        };
        let limit_secs = limits.first().copied().flatten().filter(|_| limits.len() == 1);
        let priority = shown_priority(request, self.qos_of(request));
        Ok(Admitted { partition: names.join(","), tres, limit_secs, priority })
    }

    pub fn check_hosts(&self, request: &JobRequest) -> Result<(), Refusal> {
        let is_this = |name: &String| *name == self.host.name || name == "localhost";
        if let Some(other) = request.nodelist.names().iter().find(|name| !is_this(name)) {
            return Err(Refusal::UnknownNode(other.clone()));
        }
        match request
            .exclude
            .names()
            .iter()
            .find(|name| !is_this(name))
            .or(request.exclude.names().first())
        {
            Some(this) if is_this(this) => Err(Refusal::NodeExcluded(this.clone())),
            Some(other) => Err(Refusal::UnknownNode(other.clone())),
            None => Ok(()),
        }
    }

    /// Returns the partitions that a job may use, in the order in which it names them.
    pub(crate) fn partitions_for(&self, request: &JobRequest) -> Result<Vec<&Partition>, Refusal> {
        match &request.partition {
            None => {
                let default = self.partitions.iter().find(|partition| partition.is_default);
                Ok(default.or(self.partitions.first()).into_iter().collect())
            }
            Some(names) => names.split(',').map(|name| self.partition(name)).collect(),
        }
    }

    /// Returns the existing partitions among those of a job.
    pub(crate) fn partitions_of(&self, job: &Job) -> Vec<&Partition> {
        job.partitions().filter_map(|name| self.partition(name).ok()).collect()
    }

    fn partition(&self, name: &str) -> Result<&Partition, Refusal> {
        self.partitions
            .iter()
            .find(|partition| partition.name == name)
            .ok_or_else(|| self.unknown_partition(name))
    }

    /// Fails if no GPU of the host is of the requested model. A GPU of unknown model matches any.
    pub(crate) fn check_gpu_model(&self, gpu: &GpuRequest) -> Result<(), Refusal> {
        let host = &self.host;
        match &gpu.model {
            Some(model)
                if !host.gpus.is_empty() && !host.gpus.iter().any(|gpu| is_model(gpu, model)) =>
            {
                let mut known: Vec<String> = host.gpu_models().map(str::to_owned).collect();
                known.sort_unstable();
                known.dedup();
                Err(Refusal::UnknownGpuModel { model: model.clone(), known })
            }
            _ => Ok(()),
        }
    }

    /// Fails if the requested QOS does not exist.
    pub(crate) fn check_qos(&self, request: &JobRequest) -> Result<(), Refusal> {
        if self.qos_index(request).is_some() {
            return Ok(());
        }
        let known = self.qos.iter().map(|qos| qos.name.clone()).collect();
        Err(Refusal::UnknownQos { name: qos::of(request).to_owned(), known })
    }

    /// Fails if the host does not have the requested licenses.
    pub(crate) fn check_licenses(&self, request: &JobRequest) -> Result<(), Refusal> {
        let Some(text) = &request.licenses else { return Ok(()) };
        let wrong = |fault| Err(Refusal::InvalidLicenses(fault));
        let Some(asked) = license::parse(text) else {
            return wrong(LicenseFault::Malformed(text.clone()));
        };
        for (name, asked) in asked {
            let name = name.to_owned();
            let Some(at) = index_of(&name, &self.licenses) else {
                let known = self.licenses.iter().map(|license| license.name.clone()).collect();
                return wrong(LicenseFault::Unknown { name, known });
            };
            let there = self.licenses[at].count;
            if asked > there {
                return wrong(LicenseFault::TooMany { name, asked, there });
            }
        }
        Ok(())
    }

    pub(crate) fn unknown_partition(&self, name: &str) -> Refusal {
        let known = self.partitions.iter().map(|partition| partition.name.clone()).collect();
        let lacks_gpus = self.all_partitions.iter().any(|hidden| hidden.name == name);
        Refusal::UnknownPartition { name: name.to_owned(), known, lacks_gpus }
    }
}

impl Resources {
    /// Fails if the QOS of a job denies what could never start: a job that exceeds a limit on its
    /// own, in each of its partitions.
    ///
    /// `limit_in` returns its time limit in a partition.
    pub(crate) fn check_qos_limits(
        &self,
        request: &JobRequest,
        partitions: &str,
        limit_in: impl Fn(&Partition) -> Option<u64>,
    ) -> Result<(), Refusal> {
        let config = self.config();
        let Some(qos) = config.qos_of(request).filter(|qos| qos.denies_on_limit) else {
            return Ok(());
        };
        let mut first = None;
        for partition in partitions.split(',').filter_map(|name| config.partition(name).ok()) {
            let place = CpuSharing::of(request, &partition.name, config);
            let tres = size(request, partition, config);
            let reached = self.ledger().undrained().limit_reached(&place, &tres, self.host());
            let limit = reached.filter(Reached::is_of_job).map(|reached| reached.reason());
            let limit = limit.or_else(|| qos.time_limit_blocker(limit_in(partition)));
            match limit {
                Some(limit) => first = first.or(Some(limit)),
                None => return Ok(()),
            }
        }
        first.map_or(Ok(()), |limit| Err(Refusal::QosLimit(limit.name().to_owned())))
    }

    /// Returns the partitions that accept an existing job, with a changed request or as it is.
    ///
    /// # Errors
    /// Fails if none of them has enough resources.
    pub(crate) fn readmit(
        &self,
        request: &JobRequest,
        partitions: &[&Partition],
    ) -> Result<Admitted, Refusal> {
        self.config().admit_to(partitions, request, |partition| {
            let tres = size(request, partition, self.config());
            let place = CpuSharing::of(request, &partition.name, self.config());
            let want = Want::sized(
                request,
                tres,
                CpuSharing { exclusive: false, limits: LimitSet::default(), ..place },
            );
            let fits = self.ledger().undrained().fits(&want, self.host());
            let cause = || check_size(request, &tres, partition, self.config()).err();
            if fits { Ok(tres) } else { Err(Refusal::ConfigNotAvailable(cause().map(Box::new))) }
        })
    }
}
