//! The host as JSON: its resources, partitions, licenses and reservations.

use super::rows::millis;
use serde::Serialize;
use slotd_model::Timestamp;
use slotd_model::license::LicenseUse;
use slotd_model::reservation::{ReservationView, Share};
use slotd_model::view::{NodeView, PartitionView};
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct Host {
    name: String,
    cpus: Given,
    /// The IDs of all CPUs.
    cpu_ids: Vec<u32>,
    mem_mb: Given,
    gpus: Given,
    gpu_names: BTreeMap<u32, String>,
    /// Zero if unknown.
    gpu_mem_mb: BTreeMap<u32, u64>,
    /// The load average of the last minute.
    load: f64,
    /// CPUs used by processes outside all jobs.
    elsewhere: Option<f64>,
    /// Memory of the machine in use by all processes.
    mem_used_mb: u64,
    /// The memory of the machine, which may differ from what jobs may use.
    machine_mem_mb: u64,
    /// The reason why the node is drained, and the parts that are out of use.
    troubles: Vec<String>,
    partitions: Vec<Partition>,
    /// The features that `--constraint` may name.
    features: Vec<String>,
    licenses: Vec<LicenseUse>,
    reservations: Vec<Reservation>,
    /// The names of the QOS, the default one first.
    qos: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Given {
    all: u64,
    given: u64,
}

#[derive(Debug, Serialize)]
struct Partition {
    name: String,
    state: &'static str,
    is_default: bool,
    running: u64,
    waiting: u64,
    /// The longest time limit, and the limit of a job that requests none.
    max_secs: Option<u64>,
    default_secs: Option<u64>,
    /// Maximum amounts for all its jobs together.
    max_cpus: Option<u32>,
    max_mem_mb: Option<u64>,
    max_gpus: Option<u32>,
    /// The hours in which it starts jobs: `18:00-08:00`.
    hours: Option<String>,
}

/// A reservation in its current or next period. Times are milliseconds since 1970.
#[derive(Debug, Serialize)]
struct Reservation {
    name: String,
    start: i64,
    /// `None`: it never ends.
    end: Option<i64>,
    is_active: bool,
    /// Whether it holds the whole host.
    is_whole: bool,
    /// The reserved amounts, unless it holds the whole host. All are zero if it holds licenses only.
    cpus: u32,
    mem_mb: u64,
    gpus: u32,
    /// The CPUs that it holds now.
    cpu_ids: Vec<u32>,
    licenses: String,
    users: Vec<String>,
    accounts: Vec<String>,
    partition: String,
    flags: Vec<&'static str>,
}

impl Host {
    pub fn of(node: &NodeView) -> Host {
        let host = &node.host;
        let given = |all: u64, given: u64| Given { all, given };
        let drained = node.drained.as_ref().map(|why| format!("drained: {}", why.text));
        let outages = node.outages.iter().map(|outage| outage.with_parts_named().text);
        let elsewhere = node.cpus_elsewhere.and_then(|cpus| cpus.used_centi);
        Host {
            name: host.name.clone(),
            cpus: given(host.cpu_ids.len() as u64, u64::from(node.allocated.cpus)),
            cpu_ids: host.cpu_ids.clone(),
            mem_mb: given(host.mem_mb, node.allocated.mem_mb),
            gpus: given(host.gpus.len() as u64, u64::from(node.allocated.gpus)),
            gpu_names: host
                .gpus
                .iter()
                .map(|gpu| (gpu.id, gpu.model.clone().unwrap_or_default()))
                .collect(),
            gpu_mem_mb: host.gpus.iter().map(|gpu| (gpu.id, gpu.mem_mb)).collect(),
            load: f64::from(node.load_centi) / 100.0,
            elsewhere: elsewhere.map(|centi| f64::from(centi) / 100.0),
            mem_used_mb: node.used_mem_mb(),
            machine_mem_mb: node.machine_mem_mb(),
            troubles: drained.into_iter().chain(outages).collect(),
            partitions: node.partitions.iter().map(Partition::of).collect(),
            features: host.features.clone(),
            licenses: node.licenses.clone(),
            reservations: node
                .reservations
                .iter()
                .map(|view| Reservation::of(view, node.now))
                .collect(),
            qos: node.qos.iter().map(|qos| qos.name.clone()).collect(),
        }
    }
}

impl Partition {
    fn of(view: &PartitionView) -> Partition {
        let of = &view.partition;
        Partition {
            name: of.name.clone(),
            state: of.state.name(),
            is_default: of.is_default,
            running: view.running,
            waiting: view.pending,
            max_secs: of.max_time_secs,
            default_secs: of.default_time_secs,
            max_cpus: of.max_cpus,
            max_mem_mb: of.max_mem_mb,
            max_gpus: of.max_gpus,
            hours: of.allowed_hours.map(|hours| hours.to_string()),
        }
    }
}

impl Reservation {
    fn of(view: &ReservationView, now: Timestamp) -> Reservation {
        let of = &view.reservation;
        let amounts = match of.share {
            Share::Parts(amounts) => amounts.tres(),
            Share::Node | Share::Licenses => slotd_model::Tres::ZERO,
        };
        Reservation {
            name: of.name.clone(),
            start: millis(of.start),
            end: of.end.map(millis),
            is_active: of.is_active(now),
            is_whole: of.share == Share::Node,
            cpus: amounts.cpus,
            mem_mb: amounts.mem_mb,
            gpus: amounts.gpus,
            cpu_ids: view.cpus.clone(),
            licenses: of.licenses.clone().unwrap_or_default(),
            users: of.users.clone(),
            accounts: of.accounts.clone(),
            partition: of.partition.clone().unwrap_or_default(),
            flags: of.flags.iter().map(|flag| flag.name()).collect(),
        }
    }
}
