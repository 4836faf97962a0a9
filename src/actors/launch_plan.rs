//! Builds launches from decisions: expanded paths, the environment, the tasks and their CPUs.
//!
//! Pure except for the local time zone, which [`local_iso`] reads.

use crate::actors::messages::LaunchStep;
use slotd_exec::LaunchError;
use slotd_exec::environment::{self, Environment};
use slotd_exec::launch_spec::{JobText, LaunchSpec, MemoryNodes, OwnEnd, TaskSpec};
use slotd_model::binding::{Bound, CpuBind, GpuBind};
use slotd_model::change::LaunchTexts;
use slotd_model::partition::Host;
use slotd_model::placement::MemNodes;
use slotd_model::request::{GpuRequest, JobKind, OpenMode};
use slotd_model::step_request::StepKind;
use slotd_model::tres::Allocation;
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, Job, JobId, JobRequest, StepId, StepKey, Timestamp};
use slotd_parse::filename::{FilenameVars, NO_VAL, expand};
use slotd_protocol::request::{StepLaunch, Stream};
use slotd_sched::{Layout, LayoutAsk, Outside};
use slotd_sys::paths::Paths;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Formats an instant in local time: `2026-11-20T23:14:49`.
pub fn local_iso(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.as_secs())
        .map(|t| t.to_zoned(slotd_sys::zone::local()).strftime("%Y-%m-%dT%H:%M:%S").to_string())
        .unwrap_or_else(|_| at.as_secs().to_string())
}

/// Returns the offset of local time from UTC at this instant, in seconds.
fn utc_offset_secs(at: Timestamp) -> i32 {
    let zone = slotd_sys::zone::local();
    jiff::Timestamp::from_second(at.as_secs()).map_or(0, |t| zone.to_offset(t).seconds())
}

fn vars(
    id: JobId,
    role: &ArrayRole,
    request: &JobRequest,
    host: &str,
    step: StepId,
    task: u32,
) -> FilenameVars {
    let array_task = match role {
        ArrayRole::None => Some(NO_VAL),
        ArrayRole::Task { task, .. } => Some(*task),
        ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => tasks.single(),
    };
    FilenameVars {
        step_name: None,
        job_id: id.0,
        array_job: role.array_job(id).unwrap_or(id).0,
        array_task,
        name: request.name.clone(),
        user: request.user.clone(),
        host: host.to_owned(),
        node_id: 0,
        step: step.to_string(),
        task,
    }
}

/// Returns the output pattern of a batch job (sbatch man page, `--output`).
fn output_pattern(request: &JobRequest) -> &str {
    request.std_out.as_deref().unwrap_or(if request.array.is_some() {
        "slurm-%A_%a.out"
    } else {
        "slurm-%j.out"
    })
}

fn absolute(dir: &str, path: &str) -> String {
    Path::new(dir).join(path).to_string_lossy().into_owned()
}

/// Sets the paths of a batch job's streams in a view. Array task patterns stay unexpanded until the
/// task is known.
pub fn fill_paths(view: &mut JobView, host: &str) {
    let request = view.request.clone();
    if request.kind == JobKind::Allocation {
        return;
    }
    let vars = vars(view.id, &view.role, &request, host, StepId::Batch, 0);
    let path = |dir: &str, pattern: &str| absolute(dir, &expand(pattern, &vars));
    let outputs = request.output_dir();
    view.std_out = path(outputs, output_pattern(&request));
    view.std_err = request
        .std_err
        .as_deref()
        .map_or_else(|| view.std_out.clone(), |error| path(outputs, error));
    view.std_in = request
        .std_in
        .as_deref()
        .map_or("/dev/null".to_owned(), |input| path(&request.work_dir, input));
}

/// Returns the patterns of the files that the job may write its output to: absolute paths in which
/// `*` stands for the array task.
pub fn output_patterns(id: JobId, request: &JobRequest, host: &str) -> Vec<String> {
    if request.kind == JobKind::Allocation {
        return Vec::new();
    }
    let role = match &request.array {
        Some(array) => ArrayRole::Rest { tasks: array.tasks.clone(), limit: array.limit },
        None => ArrayRole::None,
    };
    let vars = FilenameVars {
        // `%a` stands for several tasks, so it is not expanded, even if the array has only one.
        array_task: request.array.is_none().then_some(NO_VAL),
        ..vars(id, &role, request, host, StepId::Batch, 0)
    };
    let error = request.std_err.as_deref();
    let named = [Some(output_pattern(request)), error].into_iter().flatten();
    let expanded = named.map(|pattern| expand(&for_any_task(pattern), &vars));
    expanded.map(|path| absolute(request.output_dir(), &path)).collect()
}

/// Replaces `%a` and `%b`, with or without a width, by `*`.
fn for_any_task(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, token)) = rest.split_once('%') {
        out.push_str(before);
        let letter = token.trim_start_matches(|c: char| c.is_ascii_digit());
        match letter.strip_prefix(['a', 'b']) {
            Some(after) => {
                out.push('*');
                rest = after;
            }
            None => {
                // `%%` is one token.
                let length = usize::from(token.starts_with('%'));
                out.push('%');
                out.push_str(&token[..length]);
                rest = &token[length..];
            }
        }
    }
    out + rest
}

/// Builds the launch of a batch script, or of the command of `srun --no-wait`.
pub fn batch_launch(
    job: &Job,
    host: &Host,
    paths: &Paths,
    texts: LaunchTexts,
    ranks: bool,
) -> LaunchSpec {
    let request = &job.request;
    let alloc = job.run.alloc.clone().unwrap_or_default();
    let is_run = request.kind == JobKind::Run;
    let ntasks = if ranks || is_run { request.task_count().max(1) } else { 1 };
    // A requeued job appends to the output of its earlier run, as in Slurm.
    let append = request.open_mode == Some(OpenMode::Append)
        || (request.open_mode.is_none() && job.run.restarts > 0);
    let ask = LayoutAsk {
        bind: &request.cpu_bind,
        placement: &request.placement,
        ntasks,
        per_task: request.cpus_per_task.unwrap_or(1),
    };
    let laid =
        slotd_sched::layout(ask, &alloc.cpu_ids, &alloc.cpu_ids, &host.topology).map_err(outside);
    let broken = laid.as_ref().err().map(LaunchError::to_string);
    let layout = laid.unwrap_or_default();
    let file = |dir: &str, pattern: &str, rank: u32, append: bool| {
        let name =
            expand(pattern, &vars(job.id, &job.role, request, &host.name, StepId::Batch, rank));
        Stream::File { path: absolute(dir, &name).into(), append }
    };
    let output = |pattern: &str, rank: u32| file(request.output_dir(), pattern, rank, append);
    // A script that runs once is no task: it sees all GPUs.
    let gpu_bind = request.gpu_bind.as_ref().filter(|_| ntasks > 1 || is_run);
    let gpu_bind = gpu_bind.cloned().unwrap_or_default();
    let task = |rank| {
        let gpus = task_gpus(&gpu_bind, &request.gpu, &alloc, rank, ntasks);
        TaskSpec {
            rank,
            stdin: request
                .std_in
                .as_deref()
                .map_or(Stream::Null, |input| file(&request.work_dir, input, rank, false)),
            stdout: output(output_pattern(request), rank),
            stderr: request
                .std_err
                .as_deref()
                .map_or(Stream::SameAsStdout, |pattern| output(pattern, rank)),
            env: environment::task_environment(rank, gpus.as_deref(), host),
            cpus: layout.tasks.get(rank as usize).cloned().unwrap_or_default(),
            must_bind: layout.is_asked,
            memory: None,
            argv: None,
            report_binding: None,
        }
    };
    let env = environment::of_array_task(texts.env, &job.role);
    let mut set_env = Environment::of(job, host, &paths.root().to_string_lossy()).batch(ntasks);
    if is_run {
        set_env.extend(bound_variables(&request.cpu_bind, false, &layout, host));
    }
    let stale = environment::stale_variables(&env);
    LaunchSpec {
        step: StepKey { job: job.id, step: StepId::Batch },
        run: job.run.restarts,
        job_dir: paths.job_dir(job.id),
        script: (!is_run).then_some(texts.script),
        env: environment::merge(&env, &stale, &[tmpdir()], &set_env),
        argv: job.args().to_vec(),
        work_dir: PathBuf::from(&request.work_dir),
        umask: request.umask,
        rlimits: request.rlimits.clone(),
        tasks: (0..ntasks).map(task).collect(),
        job: JobText::of(job),
        broken,
        first_line: job.run.rerun_in_words().map(|words| format!("slotd: the first {words}")),
        write_runner: true,
        ..LaunchSpec::default()
    }
}

/// Returns the default `TMPDIR`. Slurm also sets it if the user has not.
fn tmpdir() -> (String, String) {
    ("TMPDIR".to_owned(), "/tmp".to_owned())
}

/// Builds the launch of a step. `kill_wait` is the time between SIGTERM and SIGKILL when the
/// watcher ends the step on its own.
///
/// # Errors
/// Fails if the request is inconsistent: fewer streams or commands than tasks.
pub fn step_launch(
    m: &LaunchStep,
    paths: &Paths,
    kill_wait: Duration,
) -> Result<LaunchSpec, LaunchError> {
    let LaunchStep { job, host, launch, alloc, .. } = m;
    let request = &launch.request;
    let ntasks = request.tasks(&job.request);
    check(launch, ntasks)?;
    let root = paths.root().to_string_lossy();
    let environment = Environment::of(job, host, &root);
    let (default_env, set_env) = match request.kind {
        StepKind::Interactive => (Vec::new(), environment.interactive()),
        StepKind::Numbered => (vec![tmpdir()], environment.step(m.step.step, launch, alloc)),
    };
    let layout = step_layout(m, ntasks)?;
    let mut set_env = set_env;
    if request.kind == StepKind::Numbered {
        set_env.extend(bound_variables(&request.cpu_bind, request.report_cpu_bind, &layout, host));
    }
    // The caller's environment describes the job's GPUs. A step without GPUs must not see them.
    let job_has_gpus = job.run.alloc.as_ref().is_some_and(|whole| !whole.gpu_ids.is_empty());
    let hides_gpus = request.kind == StepKind::Numbered && alloc.gpu_ids.is_empty() && job_has_gpus;
    let there = m.alloc.gpu_ids.len();
    if let Some(asked) = m.launch.request.gpu_bind.outside(there, ntasks) {
        return Err(LaunchError::GpuOutside { asked, there });
    }
    Ok(LaunchSpec {
        step: m.step,
        run: job.run.restarts,
        job_dir: paths.job_dir(job.id),
        env: environment::merge(
            &m.env,
            &environment::stale_in_step(hides_gpus),
            &default_env,
            &set_env,
        ),
        argv: launch.argv[0].clone(),
        work_dir: PathBuf::from(&launch.work_dir),
        umask: launch.umask,
        rlimits: launch.rlimits.clone(),
        tasks: (0..ntasks).map(|rank| step_task(m, rank, ntasks, &layout)).collect(),
        pty: launch.pty,
        kill_on_bad_exit: request.kill_on_bad_exit,
        time_limit_secs: request.time_limit_secs,
        mpi: request.mpi,
        own_end: own_end(job, host, kill_wait),
        client_fd: launch.client_line,
        // The first launch of a job stores its record. In a batch job, the script was the first.
        job: if is_first_of_allocation(m) { JobText::of(job) } else { None },
        ..LaunchSpec::default()
    })
}

fn is_first_of_allocation(m: &LaunchStep) -> bool {
    m.job.request.kind == JobKind::Allocation
        && matches!(m.step.step, StepId::Interactive | StepId::Num(0))
}

fn check(launch: &StepLaunch, tasks: u32) -> Result<(), LaunchError> {
    let count = |what, given| Err(LaunchError::TaskCount { tasks, what, given });
    if launch.streams.len() != tasks as usize {
        return count("streams", launch.streams.len());
    }
    if launch.argv.is_empty() || launch.argv.iter().any(Vec::is_empty) {
        return Err(LaunchError::NoCommand);
    }
    if launch.argv.len() != 1 && launch.argv.len() != tasks as usize {
        return count("commands", launch.argv.len());
    }
    Ok(())
}

/// Computes the CPU layout. A step without exclusive CPUs may use those of the whole job, unless it
/// requests a binding.
fn step_layout(m: &LaunchStep, ntasks: u32) -> Result<Layout, LaunchError> {
    let LaunchStep { job, host, launch, alloc, .. } = m;
    let request = &launch.request;
    let job_cpus = job.run.alloc.as_ref().map_or(&[][..], |whole| &whole.cpu_ids);
    let is_free = matches!(request.cpu_bind, CpuBind::Auto | CpuBind::None)
        && (!request.exact || request.is_shared());
    let own = if is_free { job_cpus } else { &alloc.cpu_ids };
    let ask = LayoutAsk {
        bind: &request.cpu_bind,
        placement: &request.placement,
        ntasks,
        per_task: request.cpus_per_task(&job.request).unwrap_or(1),
    };
    // A map may name any CPU of the job, unless the step has exclusive CPUs.
    let all = if request.exact && !request.is_shared() { &alloc.cpu_ids } else { job_cpus };
    slotd_sched::layout(ask, own, all, &host.topology).map_err(outside)
}

/// Returns the NUMA nodes that a task on these CPUs allocates its memory from, if it is bound to
/// any.
fn memory_nodes(m: &LaunchStep, rank: u32, cpus: &[u32]) -> Option<MemoryNodes> {
    let (host, request) = (&m.host, &m.launch.request);
    let bind = request.placement.mem_bind.as_ref()?;
    let kind = match bind.nodes {
        MemNodes::None => "NONE",
        MemNodes::Local => "LOC",
        MemNodes::Rank => "RANK",
        MemNodes::Map(_) => "MAP",
        MemNodes::Mask(_) => "MASK",
    };
    let nodes = slotd_sched::memory_of(bind, rank, cpus, &host.topology);
    let report =
        bind.reports.then(|| format!("mem-bind={kind} - {}, task {rank:2} {rank:2}", host.name));
    (!nodes.is_empty()).then_some(MemoryNodes { nodes, prefers: bind.prefers, report })
}

/// Returns the variables that describe the binding to the tasks.
fn bound_variables(
    bind: &CpuBind,
    reports: bool,
    layout: &Layout,
    host: &Host,
) -> environment::Variables {
    let bound = Bound { tasks: &layout.tasks, host: &host.cpu_ids };
    bind.variables(reports, &bound)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn outside(outside: Outside) -> LaunchError {
    let there = outside.there.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    LaunchError::CpusOutside { what: outside.what, asked: outside.asked, there }
}

fn step_task(m: &LaunchStep, rank: u32, ntasks: u32, layout: &Layout) -> TaskSpec {
    let LaunchStep { job, host, launch, alloc, .. } = m;
    let request = &launch.request;
    let streams = &launch.streams[rank as usize];
    let at_task = |stream: &Stream| match stream {
        Stream::File { path, append } => {
            let vars = vars(job.id, &job.role, &job.request, &host.name, m.step.step, rank);
            let name = expand(&path.to_string_lossy(), &vars);
            Stream::File { path: absolute(&launch.work_dir, &name).into(), append: *append }
        }
        other => other.clone(),
    };
    let cpus = layout.tasks.get(rank as usize).cloned().unwrap_or_default();
    let gpus = task_gpus(&request.gpu_bind, &request.gpu, alloc, rank, ntasks);
    TaskSpec {
        rank,
        stdin: at_task(&streams.stdin),
        stdout: at_task(&streams.stdout),
        stderr: at_task(&streams.stderr),
        env: environment::task_environment(rank, gpus.as_deref(), host),
        memory: memory_nodes(m, rank, &cpus),
        cpus,
        must_bind: layout.is_asked,
        argv: (launch.argv.len() > 1).then(|| launch.argv[rank as usize].clone()),
        report_binding: request.report_cpu_bind.then(|| {
            let (units, kind) = reported(&request.cpu_bind);
            format!("cpu-bind{units}={kind} - {}, task {rank:2} {rank:2}", host.name)
        }),
    }
}

fn own_end(job: &Job, host: &Host, kill_wait: Duration) -> OwnEnd {
    OwnEnd {
        grace_ms: u64::try_from(kill_wait.as_millis()).unwrap_or(u64::MAX),
        node: host.name.clone(),
        utc_offset_secs: utc_offset_secs(job.run.start.unwrap_or_default()),
    }
}

/// Returns the GPUs of one task, or `None` if it sees all GPUs of the step (`--gpus-per-task`,
/// `--gpu-bind`).
fn task_gpus(
    bind: &GpuBind,
    ask: &GpuRequest,
    alloc: &Allocation,
    rank: u32,
    ntasks: u32,
) -> Option<Vec<u32>> {
    bind.gpus_of(ask.per_task.filter(|_| ntasks > 1), &alloc.gpu_ids, rank)
}

/// Returns Slurm's names for a binding in the report of `--cpu-bind=verbose`.
fn reported(bind: &CpuBind) -> (&'static str, &'static str) {
    match bind {
        CpuBind::Auto => ("", "MASK"),
        CpuBind::None => ("", "NONE"),
        CpuBind::Threads => ("-threads", "MASK"),
        CpuBind::Cores => ("-cores", "MASK"),
        CpuBind::Sockets => ("-sockets", "MASK"),
        CpuBind::Ldoms => ("-ldoms", "MASK"),
        CpuBind::Rank => ("", "RANK"),
        CpuBind::RankLdom => ("", "LDRANK"),
        CpuBind::MapCpu(_) => ("", "MAP "),
        CpuBind::MaskCpu(_) => ("", "MASK"),
        CpuBind::MapLdom(_) => ("", "LDMAP"),
        CpuBind::MaskLdom(_) => ("", "LDMASK"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_per_task_gives_each_task_its_own_gpus() {
        let ask = GpuRequest { per_task: Some(2), ..GpuRequest::default() };
        let alloc = Allocation { gpu_ids: vec![1, 3, 5, 7], ..Allocation::default() };
        assert_eq!(task_gpus(&GpuBind::Auto, &ask, &alloc, 1, 2), Some(vec![5, 7]));
        assert_eq!(task_gpus(&GpuBind::Auto, &GpuRequest::default(), &alloc, 1, 2), None);
        assert_eq!(
            task_gpus(&GpuBind::Single(1), &GpuRequest::default(), &alloc, 1, 2),
            Some(vec![3])
        );
    }
}
