//! Sizes of accepted jobs, and refused submissions.

use super::*;
use slotd_model::change::LaunchTexts;
use slotd_model::refusal::Place;

#[test]
fn unknown_cpu_numbers_are_refused() {
    let mut d = Double::with(|config| {
        // The host counts five CPUs, but only four are real.
        config.host.cpu_ids = vec![0, 1, 2, 3, 4];
        config.partitions[1].cpus = Some([2, 3].into());
    });
    let named = |d: &mut Double, partition: &str, cpus: &[u32]| {
        d.try_submit(
            ask().gpus(0).on_cpus(cpus).with(|request| request.partition = Some(partition.into())),
        )
    };
    let refused = |asked, there: &[u32], place| {
        Err(Refusal::NoSuchCpu { asked, there: there.iter().copied().collect(), place })
    };
    assert_eq!(named(&mut d, "cpu", &[0, 9]), refused(9, &[0, 1, 2, 3], Place::Host));
    assert_eq!(
        named(&mut d, "cpu", &[4]),
        refused(4, &[0, 1, 2, 3], Place::Host),
        "no task could be bound to it"
    );
    assert_eq!(named(&mut d, "gpu", &[1, 2]), refused(1, &[2, 3], Place::Partition("gpu".into())));
    let taken = named(&mut d, "gpu", &[2, 3]).unwrap();
    assert_eq!(d.core.job(taken).unwrap().tres.cpus, 2, "a job gets as many CPUs as it names");
    assert_eq!(
        named(&mut d, "cpu", &[9]).unwrap_err().lines("It failed"),
        [
            "CPU 9 requested by --cpu-bind, CPUs 0-3 on this host",
            "It failed: Unable to satisfy cpu bind request"
        ]
    );
}

#[test]
fn cpus_are_tasks_times_cpus_per_task_and_memory_is_512_mb_by_default() {
    let mut d = Double::new(8, 4096, 0);
    let id = d.submit(ask().cpus(2).with(|r| {
        r.ntasks = Some(3);
        r.mem = MemRequest::Default;
    }));
    assert_eq!(d.core.job(id).unwrap().tres, Tres { cpus: 6, mem_mb: 512, ..Tres::ZERO });
}

#[test]
fn the_default_memory_is_capped_by_the_host() {
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
fn a_gpu_partition_allocates_one_gpu_by_default() {
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
    assert_eq!(d.core.job(id).unwrap().tres, Tres { cpus: 8, mem_mb: 1, gpus: 4, ..Tres::ZERO });
}

#[test]
fn requests_beyond_the_host_are_refused_with_the_value() {
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
        [
            "invalid partition specified: nopart",
            "Batch job submission failed: Invalid partition name specified",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.nodes = Some((2, 2).into()))),
        ["Batch job submission failed: Node count specification invalid"]
    );
    assert_eq!(d.core.next_id(), JobId(1), "a refused job uses up no ID");
    d.assert_quiet();
    assert!(d.store.jobs.is_empty());
}

#[test]
fn the_first_partition_that_fits_is_used() {
    let mut d = Double::new(2, 1000, 0);
    // The default of the GPU partition needs a GPU, and the host has none.
    let id = d.submit(ask().with(|r| r.partition = Some("gpu,cpu".to_string())));
    assert_eq!(d.core.job(id).unwrap().partition, "cpu");
}

#[test]
fn unknown_and_excluded_hosts_are_refused() {
    let mut d = Double::new(2, 1000, 0);
    let hosts = |names: &[&str]| HostList::new(names.iter().map(ToString::to_string).collect());
    let submission = |nodelist: &[&str], exclude: &[&str]| Submission {
        request: JobRequest { nodelist: hosts(nodelist), exclude: hosts(exclude), ..ask().0 },
        ..Submission::default()
    };
    let mut refused = |s| d.act(|core, cx| core.submit(s, cx)).err();
    assert_eq!(refused(submission(&["other"], &[])), Some(Refusal::UnknownNode("other".into())));
    assert_eq!(refused(submission(&[], &["vm"])), Some(Refusal::NodeExcluded("vm".into())));
    assert_eq!(
        refused(submission(&["vm"], &["other"])),
        Some(Refusal::UnknownNode("other".into()))
    );
    assert_eq!(refused(submission(&["vm"], &[])), None);
}

#[test]
fn features_of_the_host_can_be_requested() {
    let constraint = |name: &str| Constraint::Feature { name: name.to_string(), nodes: 1 };
    let mut d = Double::with(|config| config.host.features = vec!["fast_disk".to_string()]);
    for name in ["fast_disk", "cpu", "gpu", "generic_gpu"] {
        d.submit(ask().with(|r| r.constraint = Some(Box::new(constraint(name)))));
    }
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.constraint = Some(Box::new(constraint("tape"))))),
        [
            "no such features on this host: tape",
            "Batch job submission failed: Invalid feature specification"
        ]
    );
    let mut without = Double::new(2, 1000, 0);
    assert_eq!(
        refusal(
            &mut without,
            ask().with(|r| r.constraint = Some(Box::new(constraint("generic_gpu"))))
        )
        .len(),
        2
    );
}

#[test]
fn a_named_gpu_model_gets_a_gpu_of_that_model() {
    let mut d = Double::new(4, 1000, 0);
    let mut host = d.core.config().host.clone();
    host.gpus = ["nvidia_t4", "nvidia_a100", "nvidia_t4", "nvidia_a100"]
        .iter()
        .zip(0..)
        .map(|(model, id)| gpu::Gpu { id, model: Some(model.to_string()), ..gpu::Gpu::default() })
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
    assert_eq!(
        d.try_submit(ask().gpus(1).with(|r| r.gpu.model = Some("a10g".to_owned()))),
        Err(unknown.clone())
    );
    let gpu =
        GpuRequest { model: Some("a10g".to_owned()), per_node: Some(1), ..GpuRequest::default() };
    let held = d.submit(ask().held());
    let got = d.act(|core, cx| core.update(&JobRef::job(held), &[Update::Gpus(gpu)], &[], cx));
    assert_eq!(got, Err(unknown));
}

#[test]
fn a_preference_needs_known_features_and_need_not_be_met() {
    let mut d = Double::with(|config| config.host.features = vec!["big".to_owned()]);
    let feature = |name: &str, nodes| Constraint::Feature { name: name.to_owned(), nodes };
    let both = Box::new(Constraint::Any(vec![feature("big", 1), feature("cpu", 2)]));
    let job = d.submit(ask().with(|r| r.prefer = Some(both.clone())));
    d.submit(ask().held().with(|r| r.prefer = Some(Box::new(feature("big", 2)))));
    d.plan();
    assert_eq!(d.state(job), JobState::Running);
    let unknown = Box::new(Constraint::Any(vec![feature("big", 1), feature("tape", 1)]));
    let refusal = d.try_submit(ask().with(|r| r.prefer = Some(unknown.clone()))).unwrap_err();
    assert_eq!(
        refusal.lines("It failed"),
        [
            "no such features on this host: big|tape",
            "It failed: Invalid preferred feature specification"
        ]
    );
    let held = d.submit(ask().held());
    let mut update = |id, wanted| {
        d.act(|core, cx| core.update(&JobRef::job(id), &[Update::Prefer(Some(wanted))], &[], cx))
            .map(drop)
    };
    assert_eq!(update(held, unknown), Err(refusal));
    assert_eq!((update(held, both.clone()), update(job, both)), (Ok(()), Err(Refusal::NotPending)));
}

#[test]
fn too_many_tasks_are_refused_in_jobs_updates_and_steps() {
    let mut d = Double::new(2, 4096, 0);
    let tasks = |n| move |r: &mut JobRequest| (r.ntasks, r.overcommit) = (Some(n), true);
    let most = i32::MAX as u32;
    let detail =
        |n| format!("{n} tasks requested, 512 at most on a node (SLOTD_MAX_TASKS_PER_NODE)");
    let text = "Task count specification invalid";
    assert_eq!(
        refusal(&mut d, ask().with(tasks(most))),
        [detail(most), format!("Batch job submission failed: {text}")]
    );
    assert_eq!(refusal(&mut d, ask().allocation().with(tasks(513)))[0], detail(513));
    let per_node = |r: &mut JobRequest| (r.ntasks_per_node, r.overcommit) = (Some(u32::MAX), true);
    assert_eq!(refusal(&mut d, ask().with(per_node))[0], detail(u32::MAX));
    let held = d.submit(ask().held().with(tasks(512)));
    let update =
        d.act(|core, cx| core.update(&JobRef::job(held), &[Update::NumTasks(513)], &[], cx));
    assert_eq!(update, Err(Refusal::TooManyTasks { asked: 513, max: 512 }));
    let job = d.submit(ask().allocation());
    d.plan();
    let step = StepRequest { ntasks: Some(most), overcommit: true, ..StepRequest::default() };
    let asked = d.act(|core, cx| core.create_step(job, step, StepAsker::default(), cx));
    assert_eq!(asked, Err(Refusal::TooManyTasks { asked: most, max: 512 }));
}

#[test]
fn a_job_that_exceeds_a_newer_task_limit_is_not_launched() {
    let mut d = Double::new(2, 4096, 0);
    let id = d.submit(ask().with(|r| (r.ntasks, r.overcommit) = (Some(512), true)));
    let config = Config { max_tasks: 511, ..d.core.config().clone() };
    d.core = Core::recover(
        config,
        d.store.jobs.values().cloned().collect(),
        Vec::new(),
        JobId(2),
        d.now,
    );
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::BadConstraints));
}

#[test]
fn texts_longer_than_slurm_accepts_are_refused_with_their_length() {
    let mut d = Double::new(1, 1000, 0);
    let refused = |d: &mut Double, ask: Ask| match d.try_submit(ask) {
        Err(Refusal::TooLong { what, len, max }) => (what, len, max),
        other => panic!("{other:?}"),
    };
    let long = |len: usize| "x".repeat(len);
    d.submit(ask().with(|r| r.name = long(1024)));
    assert_eq!(
        refused(&mut d, ask().with(|r| r.name = long(1025))),
        ("name".to_owned(), 1025, 1024)
    );
    assert_eq!(
        refused(&mut d, ask().with(|r| r.comment = Some(long(10_000)))),
        ("comment".to_owned(), 10_000, 1024)
    );
    assert_eq!(
        refused(&mut d, ask().with(|r| r.std_out = Some(long(4097)))),
        ("std_out".to_owned(), 4097, 4096)
    );
    let features =
        Box::new(slotd_parse::constraint::parse("cpu&".repeat(300).trim_end_matches('&')).unwrap());
    assert_eq!(
        refused(&mut d, ask().with(|r| r.constraint = Some(features.clone()))),
        ("constraint".to_owned(), 1199, 1024)
    );
    assert_eq!(
        refused(&mut d, ask().with(|r| r.prefer = Some(features))),
        ("prefer".to_owned(), 1199, 1024)
    );
    let term =
        || DependencyTerm::On { kind: AfterAny, job: JobRef::job(JobId(1)), delay_minutes: 0 };
    let after = |count| {
        ask().dependency(Dependency {
            terms: std::iter::repeat_with(term).take(count).collect(),
            any: false,
        })
    };
    let (what, _, max) = refused(&mut d, after(30_000));
    assert_eq!((what.as_str(), max), ("dependency", 256 << 10));
    d.submit(after(20_000));
    let texts = |script: usize, env: usize| LaunchTexts {
        script: vec![b'x'; script],
        env: vec![b'x'; env],
    };
    let mut with = |texts| {
        let submission = Submission { texts, request: ask().0, ..Submission::default() };
        d.act(|core, cx| core.submit(submission, cx))
    };
    with(texts(4 << 20, 8 << 20)).unwrap();
    assert!(matches!(with(texts((4 << 20) + 1, 0)), Err(Refusal::TooLong { .. })));
    assert!(matches!(with(texts(0, (8 << 20) + 1)), Err(Refusal::TooLong { .. })));
}
