//! `sinfo --json`, `scontrol show node --json` and `scontrol show partition --json`.

use crate::ctx::VERSION;
use crate::json::document::{document, document_of, epoch, merged};
use crate::sinfo::{self, State};
use crate::{Ctx, tres};
use serde_json::{Value, json};
use slotd_model::Timestamp;
use slotd_model::license::LicenseUse;
use slotd_model::preempt::PreemptMode;
use slotd_model::reservation::{ReservationView, Share};
use slotd_model::view::{NodeView, PartitionView};

/// Returns the document with the settings: `scontrol show config --json`.
pub fn config(pairs: &[(String, String)]) -> Value {
    let members =
        pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    document_of("openapi/v0.0.38", "config", Value::Object(members))
}

/// Returns the document with an empty list, for objects that a single host never has.
pub fn none_of(what: &str) -> Value {
    document("openapi/v0.0.38", what, Vec::new())
}

/// Returns the document with the licenses: `scontrol show licenses --json`.
pub fn licenses<'a>(
    all: impl Iterator<Item = &'a LicenseUse>,
    reserved: impl Fn(&str) -> u32,
) -> Value {
    let one = |license: &LicenseUse| {
        json!({
            "LicenseName": license.name,
            "Total": license.total,
            "Used": license.used,
            "Free": license.free(),
            "Remote": false,
            "Reserved": reserved(&license.name),
        })
    };
    document("openapi/v0.0.38", "licenses", all.map(one).collect())
}

/// Returns the document with the reservations: `scontrol show reservations --json`.
pub fn reservations(n: &NodeView, name: Option<&str>) -> Value {
    let is_meant = |view: &&ReservationView| name.is_none_or(|name| view.reservation.name == *name);
    let one = |ReservationView { reservation: r, .. }: &ReservationView| {
        let has_nodes = r.share != Share::Licenses;
        json!({
            "name": r.name,
            "start_time": r.start.as_secs(),
            "end_time": r.end.map_or(0, |end| end.as_secs()),
            "users": r.users.join(","),
            "accounts": r.accounts.join(","),
            "licenses": r.licenses.clone().unwrap_or_default(),
            "partition": r.partition.clone().unwrap_or_default(),
            "node_list": if has_nodes { n.host.name.as_str() } else { "" },
            "node_count": i32::from(has_nodes),
            "core_count": match r.share {
                Share::Node => n.host.cpu_ids.len() as u32,
                Share::Parts(limit) => limit.cpus.unwrap_or(0),
                Share::Licenses => 0,
            },
            "flags": r.flags.iter().map(|flag| flag.name()).collect::<Vec<_>>(),
        })
    };
    document(
        "openapi/v0.0.38",
        "reservations",
        n.reservations.iter().filter(is_meant).map(one).collect(),
    )
}

/// Returns the document with the one node.
pub fn nodes(n: &NodeView, ctx: &Ctx) -> Value {
    document("openapi/v0.0.38", "nodes", vec![node(n, ctx)])
}

fn node(n: &NodeView, ctx: &Ctx) -> Value {
    merged([system(n, ctx), taken(n, ctx), absent()])
}

fn system(n: &NodeView, ctx: &Ctx) -> Value {
    let h = &n.host;
    let state = State::base(n);
    let why = sinfo::reason(n);
    let why = why.as_ref();
    let features = sinfo::features(n);
    json!({
        "name": h.name, "hostname": h.name, "address": h.name, "architecture": h.arch, "operating_system": h.kernel,
        "slurmd_version": VERSION, "state": state.name(), "state_flags": if State::takes_none(n) { vec!["DRAIN"] } else { Vec::new() },
        "reason": why.map_or("", |why| why.text.as_str()),
        "reason_changed_at": why.map_or(0, |why| why.since.as_secs()),
        "reason_set_by_user": why.map(|why| why.user.as_str()),
        "partitions": n.partitions.iter().map(|p| p.partition.name.as_str()).collect::<Vec<_>>(), "boards": 1,
        "sockets": h.topology.sockets(), "cores": h.topology.cores_per_socket(), "threads": h.topology.threads_per_core(),
        "cpus": h.cpu_ids.len(), "real_memory": h.mem_mb, "gres": sinfo::gres(h, ctx), "features": features,
        "active_features": features, "tres": tres::node(&h.tres(), true, ctx.units),
        "boot_time": epoch(Some(Timestamp::from_secs(h.boot_secs))), "slurmd_start_time": epoch(Some(n.daemon_start)),
        "last_busy": epoch(Some(if state == State::Idle { n.daemon_start } else { n.now })),
    })
}

fn taken(n: &NodeView, ctx: &Ctx) -> Value {
    let cpus = n.host.cpu_ids.len() as u64;
    let taken = if n.exclusive { cpus } else { u64::from(n.allocated.cpus).min(cpus) };
    let used = tres::node(&n.allocated, false, ctx.units);
    let gres_used = if n.host.has_gpus() { sinfo::gres_used(n, ctx) } else { String::new() };
    json!({
        "alloc_cpus": taken, "idle_cpus": (cpus - taken).saturating_sub(n.closed_cpus.into()), "cpu_load": n.load_centi,
        "alloc_memory": n.allocated.mem_mb, "free_memory": n.free_mem_mb, "gres_used": gres_used, "gres_drained": sinfo::gres_drained(n),
        "tres_used": Some(used).filter(|used| !used.is_empty()),
    })
}

/// Returns members without a value on a single host. Programs still expect them.
fn absent() -> Value {
    json!({
        "cpu_binding": 0, "temporary_disk": 0, "tres_weighted": 0.0, "weight": 1, "port": 0,
        "owner": null, "comment": "", "extra": "", "burstbuffer_network_address": "", "mcs_label": "",
        "next_state_after_reboot": "invalid",
        "next_state_after_reboot_flags": [],
    })
}

/// Returns the document with all partitions.
pub fn partitions(n: &NodeView, ctx: &Ctx) -> Value {
    document(
        "openapi/v0.0.38",
        "partitions",
        n.partitions.iter().map(|p| partition(n, p, ctx)).collect(),
    )
}

fn partition(n: &NodeView, p: &PartitionView, ctx: &Ctx) -> Value {
    let flags: &[&str] = if p.partition.is_default { &["default"] } else { &[] };
    let mut capacity = p.partition.capacity(&n.host);
    if !p.partition.is_gpu {
        capacity = capacity.without_gpus();
    }
    let mode = match p.partition.preempt_mode {
        None | Some(PreemptMode::Off) => "disabled",
        Some(PreemptMode::Suspend) => "suspend",
        Some(PreemptMode::Requeue) => "requeue",
        Some(PreemptMode::Cancel) => "cancel",
    };
    let minutes = |secs: Option<u64>| secs.and_then(|secs| i64::try_from(secs / 60).ok());
    // Slurm uses -1 for "no limit" here.
    json!({
        "name": p.partition.name, "state": p.partition.state.name(), "flags": flags, "nodes": n.host.name,
        "total_cpus": p.partition.cpus_of(&n.host).count() as u64, "total_nodes": 1, "nodes_online": 1,
        "tres": tres::scontrol(&capacity, ctx.units), "running_jobs": p.running, "pending_jobs": p.pending,
        "default_time_limit": minutes(p.partition.default_time_secs), "max_time_limit": minutes(p.partition.max_time_secs).unwrap_or(-1), "maximum_nodes_per_job": -1, "maximum_cpus_per_node": p.partition.max_cpus.map_or(-1, i64::from),
        "maximum_memory_per_node": -1, "min nodes per job": 0, "default_memory_per_cpu": p.partition.def_mem_per_cpu_mb,
        "over_time_limit": null, "preemption_mode": [mode], "preemption_grace_time": p.partition.grace_secs,
        "priority_job_factor": 1, "priority_tier": p.partition.tier(), "qos": "", "alternative": "", "billing_weights": "",
        "allowed_accounts": "", "allowed_allocation_nodes": "", "allowed_groups": "", "allowed_qos": "",
        "denied_accounts": "", "denied_qos": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, node as build};
    use slotd_model::Tres;

    #[test]
    fn the_node_has_every_member_of_slurms_document() {
        let document = nodes(&build(2), &ctx());
        let node = &document["nodes"][0];
        for key in "architecture burstbuffer_network_address boards boot_time comment cores cpu_binding cpu_load extra \
            free_memory cpus last_busy features active_features gres gres_drained gres_used mcs_label name \
            next_state_after_reboot address hostname state state_flags next_state_after_reboot_flags operating_system owner \
            partitions port real_memory reason reason_changed_at reason_set_by_user slurmd_start_time sockets threads \
            temporary_disk weight tres slurmd_version alloc_memory alloc_cpus idle_cpus tres_used tres_weighted"
            .split_whitespace()
        {
            assert!(node.get(key).is_some(), "{key}");
        }
        assert_eq!((&node["state"], &node["tres_used"]), (&"idle".into(), &Value::Null));
        assert_eq!((&node["gres"], &node["gres_used"]), (&"gpu:2".into(), &"gpu:0".into()));
        assert_eq!(node["tres"], "cpu=2,mem=24105M,billing=2,gres/gpu=2");
        assert_eq!(document["errors"], Value::Array(Vec::new()));
        assert_eq!(document["meta"]["Slurm"]["release"], VERSION);
    }

    #[test]
    fn a_busy_node_has_its_allocation() {
        let n = NodeView { allocated: Tres { cpus: 1, mem_mb: 100, ..Tres::ZERO }, ..build(0) };
        let node = &nodes(&n, &ctx())["nodes"][0];
        assert_eq!((&node["state"], &node["alloc_cpus"]), (&"mixed".into(), &1.into()));
        assert_eq!((&node["idle_cpus"], &node["tres_used"]), (&1.into(), &"cpu=1,mem=100M".into()));
    }

    #[test]
    fn partitions_are_a_list() {
        let document = partitions(&build(2), &ctx());
        assert_eq!(document["partitions"][0]["name"], "cpu");
        assert_eq!(document["partitions"][0]["flags"][0], "default");
        assert_eq!(
            document["partitions"][1]["tres"],
            "cpu=2,mem=24105M,node=1,billing=2,gres/gpu=2"
        );
    }
}
