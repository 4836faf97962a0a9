//! `scontrol show node` and `scontrol show partition`.

use crate::ctx::VERSION;
use crate::show::record::Record;
use crate::sinfo::{self, State};
use crate::{Ctx, job::or_null, time, tres};
use slotd_model::node::NodeReason;
use slotd_model::preempt::PreemptMode;
use slotd_model::view::{NodeView, PartitionView};
use slotd_model::{Partition, TaskSet, Timestamp};
use std::collections::BTreeSet;

/// Prints the node. `detail` (`-d`) adds the allocated GPUs.
pub fn node(n: &NodeView, one_line: bool, detail: bool, ctx: &Ctx) -> String {
    let h = &n.host;
    let count = |n: u64| n.to_string();
    let mut r = Record::default();
    r.odd_line(
        "",
        vec![
            ("NodeName", h.name.clone()),
            ("Arch", h.arch.clone()),
            ("CoresPerSocket", h.topology.cores_per_socket().to_string()),
        ],
        " ",
    );
    let cpus = h.cpu_ids.len() as u64;
    let taken = if n.exclusive { cpus } else { u64::from(n.allocated.cpus) };
    r.line(vec![
        ("CPUAlloc", count(taken)),
        ("CPUEfctv", count(u64::from(h.open_cpus()))),
        ("CPUTot", count(cpus)),
        ("CPULoad", sinfo::load(n)),
    ]);
    if let Some(elsewhere) = n.cpus_elsewhere {
        let used = elsewhere.used_centi.map_or_else(|| "N/A".to_owned(), sinfo::centi);
        r.line(vec![("CPUForeignLoad", used), ("CPUForeign", elsewhere.taken.to_string())]);
    }
    let features = sinfo::features(n);
    r.word("AvailableFeatures", features.clone());
    r.word("ActiveFeatures", features);
    r.word("Gres", or_null(Some(&sinfo::gres(h, ctx))));
    if detail {
        r.word("GresDrain", sinfo::gres_drained(n));
        r.word("GresUsed", sinfo::gres_used(n, ctx));
    }
    r.line(vec![
        ("NodeAddr", h.name.clone()),
        ("NodeHostName", h.name.clone()),
        ("Version", VERSION.to_owned()),
    ]);
    r.odd_line("", vec![("OS", h.kernel.clone())], " ");
    r.line(vec![
        ("RealMemory", count(h.mem_mb)),
        ("AllocMem", count(n.allocated.mem_mb)),
        ("FreeMem", count(n.free_mem_mb)),
        ("Sockets", h.topology.sockets().to_string()),
        ("Boards", "1".to_owned()),
    ]);
    r.line(vec![
        ("State", State::complete(n).to_uppercase()),
        ("ThreadsPerCore", h.topology.threads_per_core().to_string()),
        ("TmpDisk", "0".to_owned()),
        ("Weight", "1".to_owned()),
        ("Owner", "N/A".to_owned()),
        ("MCS_label", "N/A".to_owned()),
    ]);
    let names: Vec<&str> = n.partitions.iter().map(|p| p.partition.name.as_str()).collect();
    r.odd_line("", vec![("Partitions", names.join(","))], " ");
    r.line(vec![
        ("BootTime", time::instant(Timestamp::from_secs(h.boot_secs), ctx)),
        ("SlurmdStartTime", time::instant(n.daemon_start, ctx)),
    ]);
    use_of_node(&mut r, n, ctx);
    r.print(one_line, ctx)
}

/// Appends the time of last use, the capacity, the allocation and the power, which is never
/// measured.
fn use_of_node(r: &mut Record, n: &NodeView, ctx: &Ctx) {
    // The daemon does not record when a host became idle, so its own start is shown, although jobs
    // may have run since.
    let busy = if State::base(n) == State::Idle { n.daemon_start } else { n.now };
    r.word("LastBusyTime", time::instant(busy, ctx));
    r.word("CfgTRES", tres::node(&n.host.tres(), true, ctx.units));
    r.word("AllocTRES", tres::node(&n.allocated, false, ctx.units));
    r.word("CapWatts", "n/a");
    r.line(vec![("CurrentWatts", "0".to_owned()), ("AveWatts", "0".to_owned())]);
    r.line(vec![
        ("ExtSensorsJoules", "n/s".to_owned()),
        ("ExtSensorsWatts", "0".to_owned()),
        ("ExtSensorsTemp", "n/s".to_owned()),
    ]);
    let text =
        |why: &NodeReason| format!("{} [{}@{}]", why.text, why.user, time::instant(why.since, ctx));
    let reasons: Vec<String> = sinfo::reasons_of(n).iter().map(text).collect();
    r.word_if("Reason", (!reasons.is_empty()).then(|| reasons.join("; ")));
}

/// Prints all partitions.
pub fn partitions(n: &NodeView, one_line: bool, ctx: &Ctx) -> String {
    n.partitions.iter().map(|p| partition(n, p, one_line, ctx)).collect()
}

/// Prints one partition.
pub fn partition(n: &NodeView, p: &PartitionView, one_line: bool, ctx: &Ctx) -> String {
    let yes = |b: bool| if b { "YES" } else { "NO" }.to_owned();
    let no = || "NO".to_owned();
    let all = || "ALL".to_owned();
    let unlimited = || "UNLIMITED".to_owned();
    let Partition { state, over_subscribe, .. } = p.partition;
    let limit = |secs: Option<u64>, none: &str| {
        secs.map_or_else(|| none.to_owned(), |secs| time::long_limit(Some(secs)))
    };
    let mut r = Record::default();
    r.word("PartitionName", p.partition.name.clone());
    r.line(vec![("AllowGroups", all()), ("AllowAccounts", all()), ("AllowQos", all())]);
    r.line(vec![
        ("AllocNodes", all()),
        ("Default", yes(p.partition.is_default)),
        ("QoS", "N/A".to_owned()),
    ]);
    r.line(vec![
        ("DefaultTime", limit(p.partition.default_time_secs, "NONE")),
        ("DisableRootJobs", no()),
        ("ExclusiveUser", no()),
        ("GraceTime", p.partition.grace_secs.to_string()),
        ("Hidden", no()),
    ]);
    r.line(vec![
        ("MaxNodes", unlimited()),
        ("MaxTime", limit(p.partition.max_time_secs, "UNLIMITED")),
        ("MinNodes", "0".to_owned()),
        ("LLN", no()),
        ("MaxCPUsPerNode", p.partition.max_cpus.map_or_else(unlimited, |cpus| cpus.to_string())),
    ]);
    r.word("Nodes", n.host.name.clone());
    r.line(vec![
        ("PriorityJobFactor", "1".to_owned()),
        ("PriorityTier", p.partition.tier().to_string()),
        ("RootOnly", no()),
        ("ReqResv", no()),
        ("OverSubscribe", over_subscribe.to_string()),
    ]);
    let mode = p.partition.preempt_mode.unwrap_or(PreemptMode::Off);
    r.line(vec![("OverTimeLimit", "NONE".to_owned()), ("PreemptMode", mode.name().to_owned())]);
    r.line(vec![
        ("State", state.name().to_owned()),
        ("TotalCPUs", p.partition.cpus_of(&n.host).count().to_string()),
        ("TotalNodes", "1".to_owned()),
        ("SelectTypeParameters", "NONE".to_owned()),
    ]);
    r.word("JobDefaults", "(null)");
    let def_mem = match p.partition.def_mem_per_cpu_mb {
        Some(mb) => ("DefMemPerCPU", mb.to_string()),
        None => ("DefMemPerNode", DEFAULT_MEM_MB.to_string()),
    };
    r.line(vec![
        def_mem,
        ("MaxMemPerNode", p.partition.max_mem_mb.map_or_else(unlimited, |mb| mb.to_string())),
    ]);
    let mut capacity = p.partition.capacity(&n.host);
    if !p.partition.is_gpu {
        capacity = capacity.without_gpus();
    }
    r.word("TRES", tres::scontrol(&capacity, ctx.units));
    // Settings for which slurm.conf has no keyword.
    let own = |ids: &BTreeSet<u32>| {
        TaskSet::from_sorted(&ids.iter().copied().collect::<Vec<_>>()).to_string()
    };
    let beyond = [
        ("CPUs", p.partition.cpus.as_ref().map(own)),
        ("GPUs", p.partition.gpus.as_ref().map(own)),
        ("AllowedHours", p.partition.allowed_hours.map(|hours| hours.to_string())),
    ];
    let beyond: Vec<_> =
        beyond.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    if !beyond.is_empty() {
        r.line(beyond);
    }
    r.print(one_line, ctx)
}

/// The memory of a job that does not request any.
const DEFAULT_MEM_MB: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, node as build};
    use slotd_model::Tres;

    #[test]
    fn node_with_one_of_two_cpus_taken() {
        let n = NodeView { allocated: Tres { cpus: 1, mem_mb: 100, ..Tres::ZERO }, ..build(0) };
        assert_eq!(
            node(&n, false, false, &ctx()),
            format!(
                "NodeName=vm Arch=x86_64 CoresPerSocket=2 \n\
                 \x20  CPUAlloc=1 CPUEfctv=2 CPUTot=2 CPULoad=2.53\n\
                 \x20  AvailableFeatures=cpu\n\
                 \x20  ActiveFeatures=cpu\n\
                 \x20  Gres=(null)\n\
                 \x20  NodeAddr=vm NodeHostName=vm Version={VERSION}\n\
                 \x20  OS=Linux 6.18.44 \n\
                 \x20  RealMemory=24105 AllocMem=100 FreeMem=22167 Sockets=1 Boards=1\n\
                 \x20  State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n\
                 \x20  Partitions=cpu,gpu \n\
                 \x20  BootTime=2026-11-20T22:21:07 SlurmdStartTime=2026-11-20T23:35:44\n\
                 \x20  LastBusyTime=2026-11-20T23:39:58\n\
                 \x20  CfgTRES=cpu=2,mem=24105M,billing=2\n\
                 \x20  AllocTRES=cpu=1,mem=100M\n\
                 \x20  CapWatts=n/a\n\
                 \x20  CurrentWatts=0 AveWatts=0\n\
                 \x20  ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n\
                 \n"
            )
        );
    }

    #[test]
    fn node_with_gpus_idle_and_in_detail() {
        let text = node(&build(2), false, false, &ctx());
        assert!(text.contains("   Gres=gpu:2\n") && text.contains("   AllocTRES=\n"));
        assert!(text.contains("   CfgTRES=cpu=2,mem=24105M,billing=2,gres/gpu=2\n"));
        let n = NodeView {
            allocated: Tres { cpus: 2, mem_mb: 200, gpus: 2, ..Tres::ZERO },
            ..build(2)
        };
        let text = node(&n, false, true, &ctx());
        assert!(text.contains("   Gres=gpu:2\n   GresDrain=N/A\n   GresUsed=gpu:2\n"));
        assert!(
            text.contains("   AllocTRES=cpu=2,mem=200M,gres/gpu=2\n")
                && text.contains("State=ALLOCATED ")
        );
    }

    #[test]
    fn the_partitions_of_the_host() {
        let text = partitions(&build(2), false, &ctx());
        assert!(text.starts_with(
            "PartitionName=cpu\n\
             \x20  AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n\
             \x20  AllocNodes=ALL Default=YES QoS=N/A\n\
             \x20  DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n\
             \x20  MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n\
             \x20  Nodes=vm\n\
             \x20  PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO\n\
             \x20  OverTimeLimit=NONE PreemptMode=OFF\n\
             \x20  State=UP TotalCPUs=2 TotalNodes=1 SelectTypeParameters=NONE\n\
             \x20  JobDefaults=(null)\n\
             \x20  DefMemPerNode=512 MaxMemPerNode=UNLIMITED\n\
             \x20  TRES=cpu=2,mem=24105M,node=1,billing=2\n\
             \n\
             PartitionName=gpu\n"
        ));
        assert!(text.ends_with("   TRES=cpu=2,mem=24105M,node=1,billing=2,gres/gpu=2\n\n"));
    }

    #[test]
    fn oneliners_have_an_equals_sign_in_every_word() {
        for text in [node(&build(2), true, true, &ctx()), partitions(&build(2), true, &ctx())] {
            assert!(text.split_whitespace().all(|word| word.contains('=')), "{text}");
        }
        assert_eq!(partitions(&build(2), true, &ctx()).lines().count(), 2);
        assert!(node(&build(2), true, false, &ctx()).contains(" OS=Linux\\0406.18.44 "));
    }
}
