//! From a decision to a launch: paths with their patterns filled in, the environment, the tasks and their CPUs.
//!
//! Pure but for the local time zone of [`local_iso`].

use crate::actors::messages::LaunchStep;
use crate::exec::environment::{self, JobFacts, StepFacts};
use crate::exec::launch_spec::{LaunchSpec, OwnEnd, Sink, Source, TaskSpec};
use crate::model::binding::{CpuBind, GpuBind};
use crate::model::change::LaunchTexts;
use crate::model::partition::Host;
use crate::model::request::{GpuRequest, JobKind, OpenMode};
use crate::model::step_request::StepKind;
use crate::model::tres::Allocation;
use crate::model::view::JobView;
use crate::model::{ArrayRole, Job, JobId, JobRequest, StepId, StepKey, Timestamp};
use crate::protocol::request::Stream;
use crate::spec::filename::{FilenameVars, NO_VAL, expand};
use crate::sys::paths::Paths;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The instant as local time, `2026-11-20T23:14:49`.
pub fn local_iso(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.as_secs())
        .map(|t| t.to_zoned(crate::sys::zone::local()).strftime("%Y-%m-%dT%H:%M:%S").to_string())
        .unwrap_or_else(|_| at.as_secs().to_string())
}

/// Local time against UTC at this instant, seconds.
fn utc_offset_secs(at: Timestamp) -> i32 {
    let zone = crate::sys::zone::local();
    jiff::Timestamp::from_second(at.as_secs()).map_or(0, |t| zone.to_offset(t).seconds())
}

fn vars(id: JobId, role: &ArrayRole, request: &JobRequest, host: &str, step: StepId, task: u32) -> FilenameVars {
    let array_task = match role {
        ArrayRole::None => Some(NO_VAL),
        ArrayRole::Task { task, .. } => Some(*task),
        ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => tasks.single(),
    };
    FilenameVars {
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

/// The output pattern of a batch job (sbatch man page, `--output`).
fn output_pattern(request: &JobRequest) -> &str {
    request.std_out.as_deref().unwrap_or(if request.array.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" })
}

fn absolute(dir: &str, path: &str) -> String {
    Path::new(dir).join(path).to_string_lossy().into_owned()
}

/// Puts the paths of a batch job's streams into a view; where the task is not known yet, its tokens stay.
pub fn fill_paths(view: &mut JobView, host: &str) {
    let request = view.request.clone();
    if request.kind == JobKind::Allocation {
        return;
    }
    let vars = vars(view.id, &view.role, &request, host, StepId::Batch, 0);
    let path = |pattern: &str| absolute(&request.work_dir, &expand(pattern, &vars));
    let or = |pattern: &Option<String>, otherwise: &str| pattern.as_deref().map_or_else(|| otherwise.to_owned(), path);
    view.std_out = path(output_pattern(&request));
    view.std_err = or(&request.std_err, &view.std_out);
    view.std_in = or(&request.std_in, "/dev/null");
}

fn facts<'a>(job: &'a Job, alloc: &'a Allocation, host: &'a Host, root: &'a str) -> JobFacts<'a> {
    JobFacts {
        id: job.id,
        role: &job.role,
        request: &job.request,
        partition: &job.partition,
        alloc,
        start: job.run.start.unwrap_or_default(),
        restarts: job.run.restarts,
        node: &host.name,
        cluster: crate::CLUSTER,
        root,
    }
}

/// The launch of a batch script, or of the command of `srun --no-wait`.
pub fn batch_launch(job: &Job, host: &Host, paths: &Paths, texts: LaunchTexts, ranks: bool) -> LaunchSpec {
    let request = &job.request;
    let alloc = job.run.alloc.clone().unwrap_or_default();
    let root = paths.root().to_string_lossy().into_owned();
    let is_run = request.kind == JobKind::Run;
    let ntasks = if ranks || is_run { request.task_count().max(1) } else { 1 };
    // A requeued job adds to what its earlier run wrote, as in Slurm.
    let append = request.open_mode == Some(OpenMode::Append) || (request.open_mode.is_none() && job.run.restarts > 0);
    let file = |pattern: &str, task: u32| {
        let name = expand(pattern, &vars(job.id, &job.role, request, &host.name, StepId::Batch, task));
        PathBuf::from(absolute(&request.work_dir, &name))
    };
    let bind = &request.cpu_bind;
    let tasks = (0..ntasks)
        .map(|rank| TaskSpec {
            rank,
            stdin: request.std_in.as_deref().map_or(Source::Null, |p| Source::File(file(p, rank))),
            stdout: Sink::File { path: file(output_pattern(request), rank), append },
            stderr: match request.std_err.as_deref() {
                None => Sink::SameAsStdout,
                Some(pattern) => Sink::File { path: file(pattern, rank), append },
            },
            env: environment::task_environment(
                rank,
                task_gpus(&GpuBind::Auto, &request.gpu, &alloc, rank, ntasks).as_deref(),
            ),
            cpus: bind.cpus_of(&alloc.cpu_ids, &host.cores, rank, ntasks, request.cpus_per_task.unwrap_or(1)),
            argv: None,
            report_binding: None,
        })
        .collect();
    LaunchSpec {
        step: StepKey { job: job.id, step: StepId::Batch },
        run: job.run.restarts,
        job_dir: paths.job_dir(job.id),
        script: (!is_run).then_some(texts.script),
        unset_env: environment::stale_variables(&texts.env),
        env: texts.env,
        default_env: vec![tmpdir()],
        set_env: environment::batch_environment(&facts(job, &alloc, host, &root), ntasks),
        argv: request.args.clone(),
        work_dir: PathBuf::from(&request.work_dir),
        umask: request.umask,
        rlimits: request.rlimits.clone(),
        tasks,
        write_runner: true,
        ..LaunchSpec::default()
    }
}

/// What Slurm sets too where the user has none.
fn tmpdir() -> (String, String) {
    ("TMPDIR".to_owned(), "/tmp".to_owned())
}

/// The launch of a step. `kill_wait` is the time between SIGTERM and SIGKILL where its watcher ends it by itself.
///
/// # Errors
/// The request does not fit together: fewer streams or commands than tasks.
pub fn step_launch(m: &LaunchStep, paths: &Paths, kill_wait: Duration) -> Result<LaunchSpec, String> {
    let launch = &m.launch;
    let (job, request) = (&m.job, &launch.request);
    let tasks =
        StepTasks { m, ntasks: request.tasks(&job.request), cpus_per_task: request.cpus_per_task(&job.request) };
    tasks.check()?;
    let whole = job.run.alloc.clone().unwrap_or_default();
    // What the caller's environment says of the job's GPUs is not true of a step without any.
    let hides_gpus = request.kind == StepKind::Numbered && m.alloc.gpu_ids.is_empty() && !whole.gpu_ids.is_empty();
    let is_interactive = request.kind == StepKind::Interactive;
    let ends_itself = request.kill_on_bad_exit || request.time_limit_secs.is_some();
    let own_end = OwnEnd {
        grace_ms: u64::try_from(kill_wait.as_millis()).unwrap_or(u64::MAX),
        node: m.host.name.clone(),
        utc_offset_secs: utc_offset_secs(job.run.start.unwrap_or_default()),
    };
    Ok(LaunchSpec {
        step: m.step,
        run: job.run.restarts,
        job_dir: paths.job_dir(job.id),
        env: m.env.clone(),
        default_env: if is_interactive { Vec::new() } else { vec![tmpdir()] },
        set_env: tasks.environment(&whole, &paths.root().to_string_lossy()),
        unset_env: if hides_gpus { environment::gpus_of_a_job() } else { Vec::new() },
        argv: launch.argv[0].clone(),
        work_dir: PathBuf::from(&launch.work_dir),
        umask: launch.umask,
        rlimits: launch.rlimits.clone(),
        tasks: (0..tasks.ntasks).map(|rank| tasks.task(rank)).collect(),
        pty: launch.pty,
        kill_on_bad_exit: request.kill_on_bad_exit,
        time_limit_secs: request.time_limit_secs,
        own_end: if ends_itself { own_end } else { OwnEnd::default() },
        tie_fd: launch.tie,
        ..LaunchSpec::default()
    })
}

/// A step with the number of its tasks worked out.
struct StepTasks<'a> {
    m: &'a LaunchStep,
    ntasks: u32,
    cpus_per_task: Option<u32>,
}

impl StepTasks<'_> {
    /// Whether the request fits together.
    fn check(&self) -> Result<(), String> {
        let (launch, ntasks) = (&self.m.launch, self.ntasks);
        if launch.streams.len() != ntasks as usize {
            return Err(format!("{ntasks} tasks, but streams for {}", launch.streams.len()));
        }
        if launch.argv.is_empty() || launch.argv.iter().any(Vec::is_empty) {
            return Err("there is no command to run".to_owned());
        }
        if launch.argv.len() != 1 && launch.argv.len() != ntasks as usize {
            return Err(format!("{ntasks} tasks, but commands for {}", launch.argv.len()));
        }
        Ok(())
    }

    /// What all tasks get. `whole`: the allocation of the job.
    fn environment(&self, whole: &Allocation, root: &str) -> Vec<(String, String)> {
        let launch = &self.m.launch;
        let facts = facts(&self.m.job, whole, &self.m.host, root);
        if launch.request.kind == StepKind::Interactive {
            return environment::allocation_environment(&facts);
        }
        let step_facts = StepFacts {
            id: self.m.step.step,
            ntasks: self.ntasks,
            cpus_per_task: self.cpus_per_task,
            alloc: &self.m.alloc,
            exact: launch.request.exact,
            umask: launch.umask,
            label: launch.label,
        };
        environment::step_environment(&facts, &step_facts)
    }

    fn task(&self, rank: u32) -> TaskSpec {
        let StepTasks { m, ntasks, cpus_per_task } = *self;
        let (job, host, launch) = (&m.job, &m.host, &m.launch);
        let request = &launch.request;
        let streams = &launch.streams[rank as usize];
        let path = |pattern: &str| {
            let name = expand(pattern, &vars(job.id, &job.role, &job.request, &host.name, m.step.step, rank));
            PathBuf::from(absolute(&launch.work_dir, &name))
        };
        let sink = |stream: &Stream| match stream {
            Stream::Null => Sink::Null,
            Stream::Fd(at) => Sink::Fd(*at),
            Stream::File { path: pattern, append } => Sink::File { path: path(pattern), append: *append },
            Stream::SameAsStdout => Sink::SameAsStdout,
        };
        let gpus = task_gpus(&request.gpu_bind, &request.gpu, &m.alloc, rank, ntasks);
        TaskSpec {
            rank,
            stdin: match &streams.stdin {
                Stream::Fd(at) => Source::Fd(*at),
                Stream::File { path: pattern, .. } => Source::File(path(pattern)),
                Stream::Null | Stream::SameAsStdout => Source::Null,
            },
            stdout: sink(&streams.stdout),
            stderr: sink(&streams.stderr),
            env: environment::task_environment(rank, gpus.as_deref()),
            cpus: request.cpu_bind.cpus_of(&m.alloc.cpu_ids, &host.cores, rank, ntasks, cpus_per_task.unwrap_or(1)),
            argv: (launch.argv.len() > 1).then(|| launch.argv[rank as usize].clone()),
            report_binding: request.report_cpu_bind.then(|| {
                let (units, kind) = reported(&request.cpu_bind);
                format!("cpu-bind{units}={kind} - {}, task {rank:2} {rank:2}", host.name)
            }),
        }
    }
}

/// The GPUs of one task where it does not see all of the step's (`--gpus-per-task`, `--gpu-bind`).
fn task_gpus(bind: &GpuBind, ask: &GpuRequest, alloc: &Allocation, rank: u32, ntasks: u32) -> Option<Vec<u32>> {
    bind.gpus_of(ask.per_task.filter(|_| ntasks > 1), &alloc.gpu_ids, rank)
}

/// Slurm's words for a binding in the report of `--cpu-bind=verbose`.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tres;

    #[test]
    fn each_task_has_its_own_gpus_where_they_were_asked_for_by_task() {
        let ask = GpuRequest { per_task: Some(2), ..GpuRequest::default() };
        let alloc = Allocation { tres: Tres::ZERO, cpu_ids: vec![], gpu_ids: vec![1, 3, 5, 7] };
        assert_eq!(task_gpus(&GpuBind::Auto, &ask, &alloc, 1, 2), Some(vec![5, 7]));
        assert_eq!(task_gpus(&GpuBind::Auto, &GpuRequest::default(), &alloc, 1, 2), None);
        assert_eq!(task_gpus(&GpuBind::Single(1), &GpuRequest::default(), &alloc, 1, 2), Some(vec![3]));
    }
}
