//! The size of a job in a partition (CPUs, memory, GPUs), and whether the empty partition has that
//! much.

use super::resources::gpu_pool::is_model;
use super::types::Config;
use slotd_model::gpu::{Gpu, GpuShare};
use slotd_model::partition::Host;
use slotd_model::placement::Placement;
use slotd_model::refusal::Place;
use slotd_model::request::MemRequest;
use slotd_model::topology::Topology;
use slotd_model::{JobRequest, JobState, Partition, Refusal, Tres};
use std::collections::BTreeSet;

/// Returns the resources that a job holds while it runs, computed from its request. CPUs: `ntasks *
/// cpus-per-task` (with `--overcommit` those of one task), at least `--mincpus` and
/// `--cpus-per-gpu` for each GPU, and at least the named CPUs. Memory: as requested, 512 MB by
/// default. GPUs: as requested, 1 by default in a GPU partition.
pub(crate) fn size(request: &JobRequest, partition: &Partition, config: &Config) -> Tres {
    let tasks = request.task_count();
    let gpu = &request.gpu;
    let gpus = gpu.count(tasks).unwrap_or(u32::from(partition.is_gpu));
    let side_by_side = if request.overcommit { 1 } else { tasks };
    let asked = side_by_side.saturating_mul(request.cpus_per_task.unwrap_or(1));
    let for_gpus = gpu.cpus_per_gpu.unwrap_or(0).saturating_mul(gpus);
    let named = u32::try_from(request.named_cpus.len()).unwrap_or(u32::MAX);
    let least = asked.max(request.mincpus.unwrap_or(0)).max(for_gpus).max(named).max(1);
    let cpus = in_whole_cores(least, side_by_side, &request.placement, &config.host.topology);
    let all_mb = partition.capacity(&config.host).mem_mb;
    let mem_mb = match request.mem {
        MemRequest::None if request.dependency.expands().is_some() => 0,
        // A partition with less than the default provides all its memory.
        MemRequest::Default | MemRequest::None => {
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

/// Returns the CPUs to allocate for `cpus` usable ones when only some threads of each core are
/// used, or few tasks may share a core: the other threads stay idle.
pub(crate) fn in_whole_cores(cpus: u32, tasks: u32, placement: &Placement, host: &Topology) -> u32 {
    let for_tasks = placement.ntasks_per_core.map(|most| tasks.div_ceil(most.max(1)));
    if placement.threads().is_none() && for_tasks.is_none() {
        return cpus;
    }
    let all = host.threads_per_core();
    let for_threads = placement.threads().map(|used| cpus.div_ceil(used.clamp(1, all)));
    let cores = for_threads.into_iter().chain(for_tasks).max();
    cores.map_or(cpus, |cores| cores.saturating_mul(all)).max(cpus)
}

/// Fails if no socket or core of the host has the requested shape.
pub(crate) fn check_shape(request: &JobRequest, host: &Topology) -> Result<(), Refusal> {
    let Placement {
        sockets_per_node, cores_per_socket, threads_per_core, ntasks_per_socket, ..
    } = request.placement;
    let for_tasks = ntasks_per_socket.map(|most| request.task_count().div_ceil(most.max(1)));
    for (what, asked, there) in [
        ("sockets", sockets_per_node.max(for_tasks), host.sockets()),
        ("cores per socket", cores_per_socket, host.cores_per_socket()),
        ("threads per core", threads_per_core, host.threads_per_core()),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked > there) {
            return Err(Refusal::HostShape { what: what.to_owned(), asked, there });
        }
    }
    Ok(())
}

/// Fails for more tasks than a step may have: each is a process that the launch creates.
pub(crate) fn check_tasks(asked: u32, max: u32) -> Result<(), Refusal> {
    if asked > max { Err(Refusal::TooManyTasks { asked, max }) } else { Ok(()) }
}

/// Fails if even the empty partition does not have this much.
pub(crate) fn check_size(
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
    check_named_cpus(request, partition, &config.host)?;
    check_tasks(request.task_count(), config.max_tasks)?;
    if tres.mem_mb > there.mem_mb {
        let place = place(partition, there.mem_mb < host.mem_mb);
        return Err(Refusal::TooMuchMemory { asked: tres.mem_mb, there: there.mem_mb, place });
    }
    check_gpus(request, tres, partition, &config.host)
}

/// Fails if the job names CPUs that are not in the partition, or that exist only as numbers on this
/// machine, since no task could be bound to them.
fn check_named_cpus(
    request: &JobRequest,
    partition: &Partition,
    host: &Host,
) -> Result<(), Refusal> {
    let is_real = |cpu: &&u32| host.topology.places().is_empty() || host.topology.has_all(&[**cpu]);
    let there: BTreeSet<u32> = partition.cpus_of(host).filter(is_real).copied().collect();
    let Some(asked) = request.named_cpus.iter().find(|cpu| !there.contains(cpu)) else {
        return Ok(());
    };
    let is_hosts = host.cpu_ids.iter().filter(is_real).any(|cpu| cpu == asked);
    Err(Refusal::NoSuchCpu { asked: *asked, place: place(partition, is_hosts), there })
}

/// Returns the place to report as too small: the partition if it has less than the host.
fn place(partition: &Partition, has_less: bool) -> Place {
    if has_less { Place::Partition(partition.name.clone()) } else { Place::Host }
}

/// Fails for more GPUs than there are, and for a larger share than any GPU has.
fn check_gpus(
    request: &JobRequest,
    tres: &Tres,
    partition: &Partition,
    host: &Host,
) -> Result<(), Refusal> {
    // The job waits until the GPUs are known.
    if host.detects_gpus {
        return Ok(());
    }
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

/// Returns whether a job in this state may change its size.
pub(crate) fn may_resize(state: JobState) -> bool {
    matches!(state, JobState::Running | JobState::Suspended)
}
