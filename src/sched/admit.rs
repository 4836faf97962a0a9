//! Whether a submission is taken, and what it comes to: partition, CPUs, memory, GPUs.
//!
//! What the text of an option means is the business of `spec`; here it meets the host. What can never run is refused at
//! once, in Slurm's words and with the offending value.

use super::cards::is_model;
use super::core::{Core, Record};
use super::forecast::Trial;
use super::limits::LimitSet;
use super::queue::shown_priority;
use super::room::{Seating, Want};
use super::types::{Config, Cx, Estimate, Submission};
use crate::model::change::{Change, Texts};
use crate::model::gpu::{Gpu, GpuShare};
use crate::model::job::Hold;
use crate::model::partition::{Host, PartitionState};
use crate::model::placement::Placement;
use crate::model::refusal::Place;
use crate::model::request::{GpuRequest, JobKind, MemRequest};
use crate::model::topology::Topology;
use crate::model::{ArrayRole, Job, JobId, JobRequest, Partition, Refusal, Timestamp, Tres};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a job reserves while it runs, worked out from its request: `ntasks * cpus-per-task`
/// CPUs (with `--overcommit` those of one task), at least `--mincpus` and `--cpus-per-gpu` for each GPU; memory as asked, 512 MB by default; GPUs as asked,
/// 1 by default in a GPU partition.
pub fn size(request: &JobRequest, partition: &Partition, config: &Config) -> Tres {
    let tasks = request.task_count();
    let gpu = &request.gpu;
    let gpus = gpu.count(tasks).unwrap_or(u32::from(partition.is_gpu));
    let side_by_side = if request.overcommit { 1 } else { tasks };
    let asked = side_by_side.saturating_mul(request.cpus_per_task.unwrap_or(1));
    let for_gpus = gpu.cpus_per_gpu.unwrap_or(0).saturating_mul(gpus);
    let least = asked.max(request.mincpus.unwrap_or(0)).max(for_gpus).max(1);
    let cpus = in_whole_cores(least, side_by_side, &request.placement, &config.host.topology);
    let all_mb = partition.capacity(&config.host).mem_mb;
    let mem_mb = match request.mem {
        // A partition with less than the default has to do with what it has.
        MemRequest::Default => {
            let own = partition.def_mem_per_cpu_mb.map(|mb| mb.saturating_mul(u64::from(cpus)));
            own.unwrap_or(config.default_mem_mb).min(all_mb)
        }
        MemRequest::PerNode(0) | MemRequest::PerCpu(0) => all_mb,
        MemRequest::PerNode(mb) => mb,
        MemRequest::PerCpu(mb) => mb.saturating_mul(u64::from(cpus)),
        MemRequest::PerGpu(mb) => mb.saturating_mul(u64::from(gpus)),
    };
    Tres { cpus, mem_mb, ..gpu.share().of(gpus) }
}

/// How many CPUs it takes to have so many where only some threads of each core are used, or few tasks may share one:
/// the others stay empty.
pub(super) fn in_whole_cores(cpus: u32, tasks: u32, placement: &Placement, host: &Topology) -> u32 {
    let for_tasks = placement.ntasks_per_core.map(|most| tasks.div_ceil(most.max(1)));
    if placement.threads().is_none() && for_tasks.is_none() {
        return cpus;
    }
    let all = host.threads_per_core();
    let for_threads = placement.threads().map(|used| cpus.div_ceil(used.clamp(1, all)));
    let cores = for_threads.into_iter().chain(for_tasks).max();
    cores.map_or(cpus, |cores| cores.saturating_mul(all)).max(cpus)
}

/// Refuses what no socket or core of the host has.
fn check_shape(request: &JobRequest, host: &Topology) -> Result<(), Refusal> {
    let Placement {
        sockets_per_node, cores_per_socket, threads_per_core, ntasks_per_socket, ..
    } = request.placement;
    let for_tasks = ntasks_per_socket.map(|most| request.task_count().div_ceil(most.max(1)));
    for (what, asked, there) in [
        ("sockets", sockets_per_node.max(for_tasks), host.sockets()),
        ("cores a socket", cores_per_socket, host.cores_per_socket()),
        ("threads a core", threads_per_core, host.threads_per_core()),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked > there) {
            return Err(Refusal::HostShape { what: what.to_owned(), asked, there });
        }
    }
    Ok(())
}

/// Refuses more tasks than a step may have: each is a process that the launch makes.
pub(super) fn check_tasks(asked: u32, max: u32) -> Result<(), Refusal> {
    if asked > max { Err(Refusal::TooManyTasks { asked, max }) } else { Ok(()) }
}

/// Refuses what the partition does not have, even when nobody else is in it.
pub(super) fn check_size(
    request: &JobRequest,
    tres: &Tres,
    partition: &Partition,
    config: &Config,
) -> Result<(), Refusal> {
    let there = partition.capacity(&config.host);
    let host = Partition::default().capacity(&config.host);
    if tres.cpus > there.cpus {
        let place = place(partition, there.cpus < host.cpus);
        return Err(Refusal::TooManyCpus { asked: tres.cpus, there: there.cpus, place });
    }
    check_tasks(request.task_count(), config.max_tasks)?;
    if tres.mem_mb > there.mem_mb {
        let place = place(partition, there.mem_mb < host.mem_mb);
        return Err(Refusal::TooMuchMemory { asked: tres.mem_mb, there: there.mem_mb, place });
    }
    check_gpus(request, tres, partition, &config.host)
}

/// Where there is less than was asked for: in the partition if it has less of it than the host.
fn place(partition: &Partition, has_less: bool) -> Place {
    if has_less { Place::Partition(partition.name.clone()) } else { Place::Host }
}

/// Refuses more GPUs than there are, and more of one than there is of any.
fn check_gpus(
    request: &JobRequest,
    tres: &Tres,
    partition: &Partition,
    host: &Host,
) -> Result<(), Refusal> {
    let (share, model) = (request.gpu.share(), request.gpu.model.as_deref());
    let of_model = |gpu: &&Gpu| model.is_none_or(|model| is_model(gpu, model));
    let sizes = partition.gpus_of(host).filter(of_model).map(|gpu| match share {
        GpuShare::Whole => (0, 0),
        GpuShare::MemMb(mb) => (mb, gpu.mem_mb),
        GpuShare::Shards(shards) => (u64::from(shards), u64::from(host.gpu_shards)),
    });
    let sizes: Vec<(u64, u64)> = sizes.collect();
    let most = partition.capacity(host).gpus;
    let there = (sizes.iter().filter(|(asked, there)| asked <= there).count() as u32).min(most);
    let asked = share.gpus_in(tres);
    if asked <= there {
        return Ok(());
    }
    match sizes.into_iter().map(|(_, there)| there).max() {
        Some(most) if there == 0 && share != GpuShare::Whole => {
            Err(Refusal::TooMuchOfGpu { share, most })
        }
        _ => {
            let place = place(partition, (most as usize) < host.gpus.len());
            Err(Refusal::TooManyGpus {
                asked,
                there,
                place,
                model: request.gpu.model.clone(),
                host: most,
            })
        }
    }
}

/// Where a job may go.
pub(super) struct Admitted {
    /// As in [`Job::partition`].
    pub partition: String,
    /// What it takes in the first of them.
    pub tres: Tres,
    /// Its time limit, as far as it is the same in all of them.
    pub limit_secs: Option<u64>,
}

impl Core {
    /// Takes a job into the queue: checked against the host, with its defaults filled in. Its number is durable once
    /// the changes are committed.
    pub fn submit(&mut self, mut s: Submission, cx: &mut Cx) -> Result<JobId, Refusal> {
        let known = super::depend::Known::new(&s.ended);
        self.prepare_expansion(&mut s.request)?;
        let admitted = self.admit(&s)?;
        self.learn(&known);
        self.check_dependency(&s.request.dependency, &known)?;
        let id = self.allot_id();
        let texts = match s.request.kind {
            JobKind::Batch | JobKind::Run => Texts::New(s.texts),
            JobKind::Allocation => Texts::None,
        };
        let job = new_job(id, s.request, admitted, s.client, cx.now, |request| {
            self.requests.share(request)
        });
        self.add_record(job, None);
        self.set_waits(id, &known);
        self.link(id, cx.now);
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        if let Some(job) = self.stored(id) {
            cx.out.changes.push(Change::Insert { job, texts });
        }
        self.drop_if_hopeless(id, cx);
        self.drop_if_late(id, cx);
        self.settle(cx);
        Ok(id)
    }

    /// What `submit` would say, and what to ask for when the job would start (`sbatch --test-only`). No job comes of it.
    pub fn trial(&mut self, mut s: Submission, now: Timestamp) -> Result<Trial, Refusal> {
        let known = super::depend::Known::new(&s.ended);
        self.prepare_expansion(&mut s.request)?;
        let admitted = self.admit(&s)?;
        self.learn(&known);
        self.check_dependency(&s.request.dependency, &known)?;
        let (id, cpus, partition) =
            (JobId(self.next_id), admitted.tres.cpus, admitted.partition.clone());
        let job = new_job(id, s.request, admitted, s.client, now, Arc::new);
        let waits = self.waits_of(&job, &known).map(Box::new);
        let forecast =
            self.forecast_with(&Record { job, waits, places: Box::default(), start_order: 0 }, now);
        Ok(Trial { estimate: Estimate { id, start: None, cpus, partition }, forecast })
    }

    fn admit(&self, s: &Submission) -> Result<Admitted, Refusal> {
        super::lengths::check(s)?;
        let request = &s.request;
        if request.nodes.is_some_and(|nodes| nodes.min > 1 || nodes.max == 0) {
            return Err(Refusal::NodeCount);
        }
        self.check_hosts(request)?;
        check_absent(request)?;
        check_shape(request, &self.config.host.topology)?;
        if let Some(wanted) = &request.constraint {
            self.config.host.check_features(wanted)?;
        }
        self.check_gpu_model(&request.gpu)?;
        if let Some(array) = &request.array {
            let last = array.tasks.last().unwrap_or(u32::MAX);
            if last >= self.config.max_array_size || request.kind != JobKind::Batch {
                let max = self.config.max_array_size - 1;
                return Err(Refusal::ArrayTooLarge { array: array.clone(), last, max });
            }
        }
        self.admit_to(&self.partitions_for(request)?, request, |partition| {
            if let PartitionState::Drain | PartitionState::Inactive = partition.state {
                let (name, state) = (partition.name.clone(), partition.state);
                return Err(Refusal::PartitionNotAvailable { name, state });
            }
            let tres = size(request, partition, &self.config);
            check_size(request, &tres, partition, &self.config).map(|()| tres)
        })
    }

    /// Those of the partitions that take a job with this request, or why the first does not.
    pub(super) fn admit_to(
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
                    limits.insert(partition.limit_for(request.time_limit_secs));
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        let Some(tres) = sizes.first().copied() else {
            return Err(refusals.into_iter().next().unwrap_or_else(|| self.unknown_partition("")));
        };
        let limit_secs = limits.first().copied().flatten().filter(|_| limits.len() == 1);
        Ok(Admitted { partition: names.join(","), tres, limit_secs })
    }

    fn check_hosts(&self, request: &JobRequest) -> Result<(), Refusal> {
        let is_this = |name: &String| *name == self.config.host.name || name == "localhost";
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

    /// The partitions that a job may go to, in the order it named them.
    pub(super) fn partitions_for(&self, request: &JobRequest) -> Result<Vec<&Partition>, Refusal> {
        match &request.partition {
            None => {
                let default = self.config.partitions.iter().find(|partition| partition.is_default);
                Ok(default.or(self.config.partitions.first()).into_iter().collect())
            }
            Some(names) => names.split(',').map(|name| self.partition(name)).collect(),
        }
    }

    /// Those of a job that are there.
    pub(super) fn partitions_of(&self, job: &Job) -> Vec<&Partition> {
        job.partitions().filter_map(|name| self.partition(name).ok()).collect()
    }

    fn partition(&self, name: &str) -> Result<&Partition, Refusal> {
        self.config
            .partitions
            .iter()
            .find(|partition| partition.name == name)
            .ok_or_else(|| self.unknown_partition(name))
    }

    /// Refuses a model that no GPU of the host is of. Of a GPU that is only counted nothing is known, so that it passes.
    pub(super) fn check_gpu_model(&self, gpu: &GpuRequest) -> Result<(), Refusal> {
        let host = &self.config.host;
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

    pub(super) fn unknown_partition(&self, name: &str) -> Refusal {
        let known = self.config.partitions.iter().map(|partition| partition.name.clone()).collect();
        Refusal::UnknownPartition { name: name.to_owned(), known }
    }

    /// The partitions that take a job that is known, with another request or as it is.
    ///
    /// # Errors
    /// None of them has that much.
    pub(super) fn readmit(
        &self,
        request: &JobRequest,
        partitions: &[&Partition],
    ) -> Result<Admitted, Refusal> {
        self.admit_to(partitions, request, |partition| {
            let tres = size(request, partition, &self.config);
            let place = Seating::of(request, &partition.name, &self.config);
            let want = Want::sized(
                request,
                tres,
                Seating { exclusive: false, limits: LimitSet::default(), ..place },
            );
            let fits = self.ledger.undrained().fits(&want, &self.config.host);
            if fits { Ok(tres) } else { Err(Refusal::ConfigNotAvailable) }
        })
    }
}

/// What Slurm knows by name and one host has none of: whoever asks for it would wait for something that never comes.
fn check_absent(request: &JobRequest) -> Result<(), Refusal> {
    if let Some(name) = &request.reservation {
        return Err(Refusal::UnknownReservation(name.clone()));
    }
    request.licenses.as_ref().map_or(Ok(()), |name| Err(Refusal::UnknownLicense(name.clone())))
}

fn new_job(
    id: JobId,
    mut request: JobRequest,
    admitted: Admitted,
    client: Option<crate::model::job::Client>,
    now: Timestamp,
    share: impl FnOnce(JobRequest) -> Arc<JobRequest>,
) -> Job {
    let role = match &request.array {
        Some(array) => ArrayRole::Rest { tasks: array.tasks.clone(), limit: array.limit },
        None => ArrayRole::None,
    };
    request.time_limit_secs = admitted.limit_secs;
    // In Slurm a priority of 0 means held.
    let is_held = request.hold || request.priority == Some(0);
    Job {
        id,
        role,
        partition: admitted.partition,
        tres: admitted.tres,
        priority: shown_priority(&request),
        hold: if is_held { Hold::User } else { Hold::No },
        submit: now,
        client,
        next_step: u32::from(request.kind == JobKind::Run),
        request: share(request),
        ..Job::default()
    }
}
