//! Builds the launcher's orders for a step that is about to start, and its record.

use slotd_exec::environment::{Environment, task_environment};
use slotd_exec::launch_spec::{LaunchSpec, TaskSpec};
use slotd_exec::step_launcher::{Launch, Order};
use slotd_model::request::{GpuRequest, MemRequest};
use slotd_model::tres::Allocation;
use slotd_model::{ArrayRole, Step, StepId, StepKey, StepRequest, Timestamp};
use slotd_parse::filename::{self, FilenameVars};
use slotd_protocol::answer::ManagedJob;
use slotd_protocol::request::{StepLaunch, Stream};
use slotd_stepmgr::core::Entry;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The environment variable with the path of the manager's socket.
pub const SOCKET_VARIABLE: &str = "SLURM_JOBMGR_SOCKET";

/// The part of a launch that rarely changes. It is sent to the launcher once, as a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shape {
    ntasks: u32,
    cpus: u32,
    mem_mb: u64,
    gpu_ids: Vec<u32>,
}

/// Builds the launches of one job.
pub struct Launches {
    job: ManagedJob,
    root: String,
    socket: PathBuf,
    /// The manager's working directory.
    work_dir: PathBuf,
    umask: u32,
    patterns: HashMap<Shape, usize>,
    /// The number of patterns sent, including those for earlier sizes of the job.
    patterns_sent: usize,
    /// The first launch to open each output file, by a hash of the path. Later launches append,
    /// whether they are of another step or a retry.
    written: HashMap<u64, u32>,
    /// The manager resumes an earlier one, so existing files are appended to.
    appends: bool,
}

impl Launches {
    /// Prepares the launches of a job. With `appends`, existing output files are never overwritten.
    pub fn new(
        job: ManagedJob,
        root: String,
        socket: PathBuf,
        work_dir: PathBuf,
        umask: u32,
        appends: bool,
    ) -> Launches {
        Launches {
            job,
            root,
            socket,
            work_dir,
            umask,
            patterns: HashMap::new(),
            patterns_sent: 0,
            written: HashMap::new(),
            appends,
        }
    }

    /// Sets the allocation of the whole job. Steps inherit it in their environment, so patterns are
    /// rebuilt.
    pub fn set_whole(&mut self, whole: Allocation) {
        let known = &mut self.job.view.job.run.alloc;
        if known.as_deref() != Some(&whole) {
            *known = Some(whole.into());
            self.patterns.clear();
        }
    }

    /// Returns the orders that start a step. The first may be a new pattern.
    pub fn orders(&mut self, entry: &Entry, number: u32, alloc: &Allocation) -> Vec<Order> {
        let settings = &entry.settings;
        let shape = Shape {
            ntasks: settings.ntasks,
            cpus: alloc.tres.cpus,
            mem_mb: alloc.tres.mem_mb,
            gpu_ids: alloc.gpu_ids.clone(),
        };
        let mut orders = Vec::with_capacity(2);
        let pattern = match self.patterns.get(&shape) {
            Some(known) => *known,
            None => {
                let next = self.patterns_sent;
                orders.push(self.pattern(&shape, alloc));
                self.patterns_sent += 1;
                self.patterns.insert(shape, next);
                next
            }
        };
        let work_dir = settings
            .dir
            .as_ref()
            .map_or_else(|| self.work_dir.clone(), |dir| self.work_dir.join(&**dir));
        let tasks = (0..settings.ntasks)
            .map(|rank| self.task(entry, number, rank, &work_dir, alloc))
            .collect();
        orders.push(Order::Launch(Box::new(Launch {
            number,
            pattern,
            mem_mb: settings.ask.mem_mb,
            argv: entry.command.argv(),
            work_dir,
            tasks,
        })));
        orders
    }

    /// Builds the pattern of a shape: Slurm's variables except for the step number.
    fn pattern(&self, shape: &Shape, alloc: &Allocation) -> Order {
        let job = &self.job.view.job;
        let per_task = shape.cpus / shape.ntasks.max(1);
        let launch = StepLaunch {
            job: job.id,
            uid: job.request.uid,
            request: StepRequest {
                ntasks: Some(shape.ntasks),
                cpus_per_task: Some(per_task),
                mem: MemRequest::PerNode(shape.mem_mb),
                gpu: GpuRequest {
                    total: Some(shape.gpu_ids.len() as u32),
                    ..GpuRequest::default()
                },
                exact: true,
                ..StepRequest::default()
            },
            umask: Some(self.umask),
            ..StepLaunch::default()
        };
        let mut set_env =
            Environment::of(job, &self.job.host, &self.root).step(StepId::Num(0), &launch, alloc);
        set_env.retain(|(name, _)| name != "SLURM_STEP_ID" && name != "SLURM_STEPID");
        set_env.push((SOCKET_VARIABLE.to_owned(), self.socket.to_string_lossy().into_owned()));
        let spec = LaunchSpec {
            step: StepKey { job: job.id, step: StepId::Num(0) },
            umask: Some(self.umask),
            ..LaunchSpec::default()
        };
        Order::Pattern { spec: Box::new(spec), set_env }
    }

    fn task(
        &mut self,
        entry: &Entry,
        number: u32,
        rank: u32,
        dir: &Path,
        alloc: &Allocation,
    ) -> TaskSpec {
        let settings = &entry.settings;
        let mut env = task_environment(
            rank,
            (!self.job.host.gpus.is_empty()).then_some(&alloc.gpu_ids),
            &self.job.host,
        );
        env.extend(
            ["SLURM_STEP_ID", "SLURM_STEPID"].map(|name| (name.to_owned(), number.to_string())),
        );
        env.extend(settings.env.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        let vars = self.vars(entry, number, rank);
        let mut file = |pattern: &str, is_output: bool| {
            let path = dir.join(filename::expand(pattern, &vars));
            let first =
                if is_output { *self.written.entry(hash(&path)).or_insert(number) } else { number };
            Stream::File { path, append: self.appends || first != number }
        };
        let stdin = settings.stdin.as_ref().map_or(Stream::Null, |pattern| file(pattern, false));
        let stdout = settings.stdout.as_ref().map_or(Stream::Fd(0), |pattern| file(pattern, true));
        let stderr = match (&settings.stderr, &settings.stdout) {
            (Some(pattern), _) => file(pattern, true),
            (None, Some(_)) => Stream::SameAsStdout,
            (None, None) => Stream::Fd(1),
        };
        TaskSpec {
            rank,
            stdin,
            stdout,
            stderr,
            env,
            cpus: alloc.cpu_ids.clone(),
            ..TaskSpec::default()
        }
    }

    fn vars(&self, entry: &Entry, number: u32, rank: u32) -> FilenameVars {
        let job = &self.job.view.job;
        FilenameVars {
            job_id: job.id.0,
            array_job: job.array_job_id().unwrap_or(job.id).0,
            array_task: Some(match job.role {
                ArrayRole::Task { task, .. } => task,
                ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => {
                    filename::NO_VAL
                }
            }),
            name: job.request.name.clone(),
            user: job.request.user.clone(),
            host: self.job.host.name.clone(),
            node_id: 0,
            step: number.to_string(),
            step_name: Some(entry.name.to_string()),
            task: rank,
        }
    }
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Returns the record of a step that is starting.
pub fn record(entry: &Entry, number: u32, alloc: Allocation, now: Timestamp) -> Step {
    Step {
        name: entry.name.to_string(),
        ntasks: entry.settings.ntasks,
        alloc,
        submit_line: entry.command.text(),
        managed: true,
        ..Step::started(StepId::Num(number), now)
    }
}
