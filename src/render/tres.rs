//! Trackable resources as text: `cpu=1,mem=100M,node=1,billing=1,gres/gpu=2`.

use crate::size::{Units, mib};
use slotd_model::Tres;

/// Formats the resources in the order of Slurm's TRES numbers, as scontrol and squeue do. Billing
/// is the number of CPUs, as in Slurm without billing weights.
pub fn scontrol(t: &Tres, units: Units) -> String {
    let mut text = format!("cpu={},mem={},node=1,billing={}", t.cpus, mib(t.mem_mb, units), t.cpus);
    push_gpus(&mut text, t, units);
    text
}

/// Formats the resources of a job in alphabetical order, as sacct does.
pub(crate) fn sacct_job(t: &Tres, units: Units) -> String {
    format!("billing={},{}", t.cpus, sacct_step(t, units))
}

/// Formats the resources of a step in alphabetical order, as sacct does.
pub(crate) fn sacct_step(t: &Tres, units: Units) -> String {
    let mut text = format!("cpu={}", t.cpus);
    push_gpus(&mut text, t, units);
    if t.mem_mb > 0 {
        text.push_str(&format!(",mem={}", mib(t.mem_mb, units)));
    }
    text.push_str(",node=1");
    text
}

/// Formats the resources of the host or its allocated part (`CfgTRES`, `AllocTRES`), without the
/// node itself. Empty for nothing.
pub fn node(t: &Tres, billing: bool, units: Units) -> String {
    if *t == Tres::ZERO {
        return String::new();
    }
    let mut text = format!("cpu={},mem={}", t.cpus, mib(t.mem_mb, units));
    if billing {
        text.push_str(&format!(",billing={}", t.cpus));
    }
    push_gpus(&mut text, t, units);
    text
}

/// Formats GPUs and parts of GPUs as `--gres` spells them: `gpu:2`, `gpumem:10G`, `shard:2`.
/// Returns `None` without any.
pub fn gres(t: &Tres, units: Units) -> Option<String> {
    let parts = [
        (t.gpus > 0).then(|| format!("gpu:{}", t.gpus)),
        (t.gpu_mem_mb > 0).then(|| format!("gpumem:{}", mib(t.gpu_mem_mb, units))),
        (t.shards > 0).then(|| format!("shard:{}", t.shards)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

fn push_gpus(text: &mut String, t: &Tres, units: Units) {
    if t.gpus > 0 {
        text.push_str(&format!(",gres/gpu={}", t.gpus));
    }
    if t.gpu_mem_mb > 0 {
        text.push_str(&format!(",gres/gpumem={}", mib(t.gpu_mem_mb, units)));
    }
    if t.shards > 0 {
        text.push_str(&format!(",gres/shard={}", t.shards));
    }
}
