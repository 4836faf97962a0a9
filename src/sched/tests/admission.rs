//! What a job gets, and what is refused.

use super::*;

#[test]
fn cpus_are_tasks_times_cpus_per_task_and_memory_is_512_mb_by_default() {
    let mut d = Double::new(8, 4096, 0);
    let id = d.submit(ask().cpus(2).with(|r| {
        r.ntasks = Some(3);
        r.mem = MemRequest::Default;
    }));
    assert_eq!(d.core.job(id).unwrap().tres, Tres { cpus: 6, mem_mb: 512, gpus: 0 });
}

#[test]
fn a_host_with_less_than_the_default_memory_gives_what_it_has() {
    let mut d = Double::new(1, 300, 0);
    let id = d.submit(ask().with(|r| r.mem = MemRequest::Default));
    assert_eq!(d.core.job(id).unwrap().tres.mem_mb, 300);
}

#[test]
fn memory_zero_is_the_whole_host_and_per_cpu_and_per_gpu_multiply() {
    let mut d = Double::new(8, 4096, 4);
    let whole = d.submit(ask().mem(0));
    let per_cpu = d.submit(ask().cpus(4).with(|r| r.mem = MemRequest::PerCpu(100)));
    let per_gpu = d.submit(ask().gpus(2).with(|r| r.mem = MemRequest::PerGpu(1000)));
    let mem = |id| d.core.job(id).unwrap().tres.mem_mb;
    assert_eq!((mem(whole), mem(per_cpu), mem(per_gpu)), (4096, 400, 2000));
}

#[test]
fn a_gpu_partition_gives_one_gpu_unless_told_otherwise() {
    let mut d = Double::new(2, 4096, 2);
    let gpu = |r: &mut JobRequest| r.partition = Some("gpu".to_string());
    let default = d.submit(ask().with(gpu));
    let none = d.submit(ask().gpus(0).with(gpu));
    let elsewhere = d.submit(ask());
    let gpus = |id| d.core.job(id).unwrap().tres.gpus;
    assert_eq!((gpus(default), gpus(none), gpus(elsewhere)), (1, 0, 0));
}

#[test]
fn cpus_per_gpu_and_gpus_per_task_count() {
    let mut d = Double::new(8, 4096, 4);
    let id = d.submit(ask().with(|r| {
        r.ntasks = Some(2);
        r.gpu.per_task = Some(2);
        r.gpu.cpus_per_gpu = Some(2);
    }));
    assert_eq!(d.core.job(id).unwrap().tres, Tres { cpus: 8, mem_mb: 1, gpus: 4 });
}

#[test]
fn what_the_host_has_not_is_refused_with_the_value() {
    let mut d = Double::new(2, 1000, 1);
    assert_eq!(
        refusal(&mut d, ask().cpus(100)),
        [
            "CPU count per node can not be satisfied: 100 CPUs requested, 2 on this host",
            "Batch job submission failed: More processors requested than permitted",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().mem(2000)),
        [
            "Memory specification can not be satisfied: 2000 MB requested, 1000 MB on this host",
            "Batch job submission failed: Requested node configuration is not available",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().gpus(2)),
        [
            "GPU count per node can not be satisfied: 2 GPUs requested, 1 on this host",
            "Batch job submission failed: Requested node configuration is not available",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.partition = Some("nopart".to_string()))),
        ["invalid partition specified: nopart", "Batch job submission failed: Invalid partition name specified",]
    );
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.nodes = Some((2, 2).into()))),
        ["Batch job submission failed: Node count specification invalid"]
    );
    assert_eq!(d.core.next_id(), JobId(1), "a refused job takes no number");
    d.assert_quiet();
    assert!(d.store.is_empty());
}

#[test]
fn of_several_partitions_the_first_that_can_hold_the_job_is_taken() {
    let mut d = Double::new(2, 1000, 0);
    // There is no GPU for the default of the GPU partition.
    let id = d.submit(ask().with(|r| r.partition = Some("gpu,cpu".to_string())));
    assert_eq!(d.core.job(id).unwrap().partition, "cpu");
}

#[test]
fn another_host_or_none_is_refused() {
    let mut d = Double::new(2, 1000, 0);
    let hosts = |names: &[&str]| HostList::new(names.iter().map(ToString::to_string).collect());
    let submission = |nodelist: &[&str], exclude: &[&str]| Submission {
        request: JobRequest { nodelist: hosts(nodelist), exclude: hosts(exclude), ..ask().0 },
        ..Submission::default()
    };
    let mut refused = |s| d.act(|core, cx| core.submit(s, cx)).err();
    assert_eq!(refused(submission(&["other"], &[])), Some(Refusal::UnknownNode("other".into())));
    assert_eq!(refused(submission(&[], &["vm"])), Some(Refusal::NodeExcluded("vm".into())));
    assert_eq!(refused(submission(&["vm"], &["other"])), None);
}

#[test]
fn what_the_host_is_listed_with_can_be_asked_for() {
    let constraint = |name: &str| Constraint::Feature { name: name.to_string(), nodes: 1 };
    let mut d = Double::with(|config| config.host.features = vec!["fast_disk".to_string()]);
    for name in ["fast_disk", "cpu", "gpu", "generic_gpu"] {
        d.submit(ask().with(|r| r.constraint = Some(constraint(name))));
    }
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.constraint = Some(constraint("tape")))),
        ["no such features on this host: tape", "Batch job submission failed: Invalid feature specification"]
    );
    let mut without = Double::new(2, 1000, 0);
    assert_eq!(refusal(&mut without, ask().with(|r| r.constraint = Some(constraint("generic_gpu")))).len(), 2);
}

#[test]
fn a_named_gpu_model_gets_a_gpu_of_that_model() {
    let mut d = Double::new(4, 1000, 0);
    let mut host = d.core.config().host.clone();
    host.gpus = ["nvidia_t4", "nvidia_a100", "nvidia_t4", "nvidia_a100"]
        .iter()
        .zip(0..)
        .map(|(model, id)| partition::Gpu { id, model: Some(model.to_string()) })
        .collect();
    let partitions = d.core.config().partitions.clone();
    d.act(|core, cx| core.set_host(host, partitions, cx.now));
    let id = d.submit(ask().gpus(2).with(|r| r.gpu.model = Some("a100".to_string())));
    let any = d.submit(ask().gpus(1));
    d.plan();
    let gpus = |id| d.core.job(id).unwrap().run.alloc.clone().unwrap().gpu_ids;
    assert_eq!((gpus(id), gpus(any)), (vec![1, 3], vec![0]));
    assert!(d.try_submit(ask().gpus(3).with(|r| r.gpu.model = Some("a100".to_string()))).is_err());
    let known = vec!["nvidia_a100".to_owned(), "nvidia_t4".to_owned()];
    let unknown = Refusal::UnknownGpuModel { model: "a10g".to_owned(), known };
    assert_eq!(d.try_submit(ask().gpus(1).with(|r| r.gpu.model = Some("a10g".to_owned()))), Err(unknown.clone()));
    let gpu = GpuRequest { model: Some("a10g".to_owned()), per_node: Some(1), ..GpuRequest::default() };
    let held = d.submit(ask().held());
    let got = d.act(|core, cx| core.update(&JobRef::job(held), &[Update::Gpus(gpu)], &[], cx));
    assert_eq!(got, Err(unknown));
}
