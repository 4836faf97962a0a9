//! Trackable resources as text: `cpu=1,mem=100M,node=1,billing=1,gres/gpu=2`.

use crate::model::Tres;
use crate::render::size::{Units, mib};

/// In Slurm's order of TRES numbers, as scontrol and squeue print it. Billing is the number of
/// CPUs, as where Slurm has no weights.
pub fn scontrol(t: &Tres, units: Units) -> String {
    let mut text = format!("cpu={},mem={},node=1,billing={}", t.cpus, mib(t.mem_mb, units), t.cpus);
    push_gpus(&mut text, t, units);
    text
}

/// In alphabetical order, as sacct prints a job's.
pub fn sacct_job(t: &Tres, units: Units) -> String {
    format!("billing={},{}", t.cpus, sacct_step(t, units))
}

/// In alphabetical order, as sacct prints a step's.
pub fn sacct_step(t: &Tres, units: Units) -> String {
    let mut text = format!("cpu={}", t.cpus);
    push_gpus(&mut text, t, units);
    if t.mem_mb > 0 {
        text.push_str(&format!(",mem={}", mib(t.mem_mb, units)));
    }
    text.push_str(",node=1");
    text
}

/// The whole host or what is taken of it (`CfgTRES`, `AllocTRES` of a node), without the node.
/// Empty for nothing.
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

/// GPUs and parts of them as `--gres` spells them: `gpu:2`, `gpumem:10G`, `shard:2`. `None` where
/// there are none.
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
