//! `sinfo --json`, `scontrol show node --json` and `scontrol show partition --json`.

use crate::model::Timestamp;
use crate::model::view::{NodeView, PartitionView};
use crate::render::ctx::VERSION;
use crate::render::json::document::{document, document_of, epoch, object};
use crate::render::sinfo::{self, State};
use crate::render::{Ctx, tres};
use serde_json::Value;

/// The document with the settings: `scontrol show config --json`.
pub fn config(pairs: &[(String, String)]) -> Value {
    let members = pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    document_of("openapi/v0.0.38", "config", Value::Object(members))
}

/// The document with an empty list of what one host never has any of.
pub fn none_of(what: &str) -> Value {
    document("openapi/v0.0.38", what, Vec::new())
}

/// The document with the one node.
pub fn nodes(n: &NodeView, ctx: &Ctx) -> Value {
    document("openapi/v0.0.38", "nodes", vec![node(n, ctx)])
}

fn node(n: &NodeView, ctx: &Ctx) -> Value {
    let h = &n.host;
    let text = || Value::from("");
    let cpus = h.cpu_ids.len() as u64;
    let taken = if n.exclusive { cpus } else { u64::from(n.allocated.cpus).min(cpus) };
    let features = sinfo::features(n);
    let partitions = n.partitions.iter().map(|p| Value::from(p.partition.name.as_str())).collect();
    let state = State::of(n);
    let used = tres::node(&n.allocated, false, ctx.units);
    let gres_used = if h.gpus.is_empty() { String::new() } else { format!("gpu:{}", n.allocated.gpus) };
    object([
        ("name", h.name.as_str().into()),
        ("hostname", h.name.as_str().into()),
        ("address", h.name.as_str().into()),
        ("architecture", h.arch.as_str().into()),
        ("operating_system", h.kernel.as_str().into()),
        ("slurmd_version", VERSION.into()),
        ("state", state.name().into()),
        ("state_flags", Value::Array(Vec::new())),
        ("partitions", Value::Array(partitions)),
        ("boards", 1.into()),
        ("sockets", h.sockets.into()),
        ("cores", h.cores_per_socket.into()),
        ("threads", h.threads_per_core.into()),
        ("cpus", cpus.into()),
        ("alloc_cpus", taken.into()),
        ("idle_cpus", (cpus - taken).into()),
        ("cpu_load", n.load_centi.into()),
        ("cpu_binding", 0.into()),
        ("real_memory", h.mem_mb.into()),
        ("alloc_memory", n.allocated.mem_mb.into()),
        ("free_memory", n.free_mem_mb.into()),
        ("temporary_disk", 0.into()),
        ("gres", sinfo::gres(h).into()),
        ("gres_used", gres_used.into()),
        ("gres_drained", "N/A".into()),
        ("features", features.as_str().into()),
        ("active_features", features.as_str().into()),
        ("tres", tres::node(&h.tres(), true, ctx.units).into()),
        ("tres_used", if used.is_empty() { Value::Null } else { used.into() }),
        ("tres_weighted", 0.0.into()),
        ("boot_time", epoch(Some(Timestamp::from_secs(h.boot_secs)))),
        ("slurmd_start_time", epoch(Some(n.daemon_start))),
        ("last_busy", epoch(Some(if state == State::Idle { n.daemon_start } else { n.now }))),
        ("weight", 1.into()),
        ("port", 0.into()),
        ("owner", Value::Null),
        ("comment", text()),
        ("extra", text()),
        ("burstbuffer_network_address", text()),
        ("mcs_label", text()),
        ("reason", text()),
        ("reason_changed_at", 0.into()),
        ("reason_set_by_user", Value::Null),
        ("next_state_after_reboot", "invalid".into()),
        ("next_state_after_reboot_flags", Value::Array(Vec::new())),
    ])
}

/// The document with all partitions.
pub fn partitions(n: &NodeView, ctx: &Ctx) -> Value {
    document("openapi/v0.0.38", "partitions", n.partitions.iter().map(|p| partition(n, p, ctx)).collect())
}

fn partition(n: &NodeView, p: &PartitionView, ctx: &Ctx) -> Value {
    let text = || Value::from("");
    let flags = if p.partition.is_default { vec![Value::from("default")] } else { Vec::new() };
    let mut capacity = n.host.tres();
    if !p.partition.is_gpu {
        capacity.gpus = 0;
    }
    object([
        ("name", p.partition.name.as_str().into()),
        ("state", "UP".into()),
        ("flags", Value::Array(flags)),
        ("nodes", n.host.name.as_str().into()),
        ("total_cpus", (n.host.cpu_ids.len() as u64).into()),
        ("total_nodes", 1.into()),
        ("nodes_online", 1.into()),
        ("tres", tres::scontrol(&capacity, ctx.units).into()),
        ("running_jobs", p.running.into()),
        ("pending_jobs", p.pending.into()),
        ("default_time_limit", Value::Null),
        // -1 is Slurm's "no limit" here.
        ("max_time_limit", (-1).into()),
        ("maximum_nodes_per_job", (-1).into()),
        ("maximum_cpus_per_node", (-1).into()),
        ("maximum_memory_per_node", (-1).into()),
        ("min nodes per job", 0.into()),
        ("default_memory_per_cpu", Value::Null),
        ("over_time_limit", Value::Null),
        ("preemption_mode", Value::Array(vec!["disabled".into()])),
        ("preemption_grace_time", 0.into()),
        ("priority_job_factor", 1.into()),
        ("priority_tier", 1.into()),
        ("qos", text()),
        ("alternative", text()),
        ("billing_weights", text()),
        ("allowed_accounts", text()),
        ("allowed_allocation_nodes", text()),
        ("allowed_groups", text()),
        ("allowed_qos", text()),
        ("denied_accounts", text()),
        ("denied_qos", text()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tres;
    use crate::render::fixture::{ctx, node as build};

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
    fn a_busy_node_tells_what_is_taken() {
        let n = NodeView { allocated: Tres { cpus: 1, mem_mb: 100, gpus: 0 }, ..build(0) };
        let node = &nodes(&n, &ctx())["nodes"][0];
        assert_eq!((&node["state"], &node["alloc_cpus"]), (&"mixed".into(), &1.into()));
        assert_eq!((&node["idle_cpus"], &node["tres_used"]), (&1.into(), &"cpu=1,mem=100M".into()));
    }

    #[test]
    fn partitions_are_a_list() {
        let document = partitions(&build(2), &ctx());
        assert_eq!(document["partitions"][0]["name"], "cpu");
        assert_eq!(document["partitions"][0]["flags"][0], "default");
        assert_eq!(document["partitions"][1]["tres"], "cpu=2,mem=24105M,node=1,billing=2,gres/gpu=2");
    }
}
