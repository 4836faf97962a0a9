//! Converts the options that sbatch, srun and salloc share: from `JobOpts` to `JobRequest`.
//!
//! This module checks everything that does not depend on the host. The daemon checks whether the
//! host has the requested resources and whether a partition or job exists.

use crate::args::choices::{Choice, Choices, Source};
use crate::args::error::{CliError, Mark};
use crate::args::options::JobOpts;
use crate::args::origin::{Account, Origin};
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::placement::{Distribution, Placement, Spread};
use slotd_model::request::{GpuRequest, JobKind, MemRequest, Sharing};
use slotd_model::{JobRequest, Timestamp};
use slotd_parse::SpecError;
use slotd_parse::error::shown;
use slotd_parse::gres::GpuAsk;
use std::ffi::{OsStr, OsString};

/// The options that request GPUs.
const SPELLINGS_OF_GPUS: [&str; 5] =
    ["gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"];

/// The shared options of a command line, and the context for interpreting them.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    pub job: &'a JobOpts,
    pub choices: &'a Choices,
    pub origin: &'a Origin,
}

/// Formats a command line for `SubmitLine`, quoted so that it can be pasted into a shell.
pub fn submit_line(argv: &[impl AsRef<OsStr>]) -> String {
    // Process arguments never contain a zero byte.
    let quoted = |word: &_| {
        let word = AsRef::<OsStr>::as_ref(word).to_string_lossy();
        shlex::try_quote(&word).map(String::from).unwrap_or_else(|_| word.to_string())
    };
    argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the submitter's `SLOTD_BATCH_TASKS`: how this job treats several tasks.
///
/// # Errors
/// Fails for any other word.
pub fn own_batch_tasks(origin: &Origin) -> Result<Option<BatchTasks>, CliError> {
    let word = origin.nonempty("SLOTD_BATCH_TASKS");
    let unknown = |word: &str| {
        let text =
            format!("invalid SLOTD_BATCH_TASKS `{}`: expected auto, ranks or once", shown(word));
        CliError::error(1, text)
    };
    word.map(|word| BatchTasks::named(word).ok_or_else(|| unknown(word))).transpose()
}

/// Returns the last component of a command's path, the default name of a job.
pub fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

impl Submission<'_> {
    /// Returns a job request of this kind. `default_name` is used unless the options set a name,
    /// which may be empty.
    ///
    /// # Errors
    /// Fails with Slurm's text for the first value that is invalid or conflicts with another one.
    pub fn request(
        &self,
        kind: JobKind,
        default_name: &str,
        argv: &[OsString],
    ) -> Result<JobRequest, CliError> {
        let Submission { job, choices, origin } = *self;
        if job.quiet && job.common.verbose > 0 {
            return Err(CliError::error(1, "don't specify both --verbose (-v) and --quiet (-Q)"));
        }
        let Account { user, uid, group, gid } = self.identity()?;
        let moment = |name: &'static str, value: &Option<String>| {
            choices.read(name, value.as_ref(), |text| {
                slotd_parse::begin::parse_for(text, &format!("--{name}"), origin.now, &origin.tz)
            })
        };
        let (begin, deadline) = (moment("begin", &job.begin)?, moment("deadline", &job.deadline)?);
        self.check_deadline(begin, deadline)?;
        let mut request = JobRequest {
            kind,
            name: job.job_name.clone().unwrap_or_else(|| default_name.to_owned()),
            user,
            uid,
            group,
            gid,
            partition: self.partition()?,
            mem: self.mem()?,
            gpu: self.gpu()?,
            sharing: self.sharing(),
            begin,
            deadline,
            nice: self.nice()?,
            work_dir: self.work_dir(),
            submit_dir: origin.absolute(""),
            placement: self.placement()?,
            submit_line: submit_line(argv),
            submit_host: origin.host.clone(),
            umask: Some(*origin.umask),
            ..JobRequest::default()
        };
        job.write(&mut request);
        self.per_task_resources(&mut request);
        self.tasks_per_gpu(&mut request)?;
        Ok(request)
    }

    /// Returns the absolute working directory of the job.
    pub fn work_dir(&self) -> String {
        self.origin.absolute(self.job.chdir.as_deref().unwrap_or(""))
    }

    /// Returns the memory option with the highest precedence. An option on the command line
    /// replaces a different one in the script.
    ///
    /// # Errors
    /// Fails if one source has two of the three options.
    pub fn mem(&self) -> Result<MemRequest, CliError> {
        let Submission { job, choices, .. } = *self;
        let all =
            [("mem", job.mem), ("mem-per-cpu", job.mem_per_cpu), ("mem-per-gpu", job.mem_per_gpu)];
        let layer = |name: &str| choices.of(name).map(|choice| choice.source.layer());
        let top = all.iter().filter_map(|(name, _)| layer(name)).max();
        let mut counting =
            all.into_iter().filter(|(name, _)| layer(name).is_some() && layer(name) == top);
        let Some((name, value)) = counting.next() else {
            return Ok(MemRequest::Default);
        };
        if counting.next().is_some() {
            return Err(CliError::fatal(
                1,
                "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
            ));
        }
        let mb = value.unwrap_or_default();
        Ok(match name {
            "mem" => MemRequest::PerNode(mb),
            "mem-per-cpu" => MemRequest::PerCpu(mb),
            _ => MemRequest::PerGpu(mb),
        })
    }

    /// Returns the options that request GPUs for this command: those on the command line, or else
    /// those from variables that the user set. Variables that slotd set only describe the
    /// surrounding job.
    pub fn own_gpus(&self) -> Vec<&'static str> {
        let said = |is_it: &dyn Fn(&str) -> bool| -> Vec<&'static str> {
            SPELLINGS_OF_GPUS.into_iter().filter(|name| is_it(name)).collect()
        };
        let on_line = said(&|name| self.choices.on_command_line(name));
        if on_line.is_empty() { said(&|name| self.is_users_variable(name)) } else { on_line }
    }

    /// Returns whether the option comes from a variable that the user set inside a job. A number
    /// that equals the job's GPUs is assumed to be slotd's own.
    fn is_users_variable(&self, name: &str) -> bool {
        let Some(Choice { given, source: Source::Environment(variable) }) = self.choices.of(name)
        else {
            return false;
        };
        if self.origin.nonempty("SLURM_JOB_ID").is_none() {
            return false;
        }
        if !["SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"].contains(variable) {
            return true;
        }
        let of_job = self.origin.nonempty("SLURM_JOB_GPUS").map(|ids| ids.split(',').count());
        let asked = given
            .value
            .as_deref()
            .and_then(|text| slotd_parse::gres::parse_gpus(text).ok())
            .map(|ask| ask.count);
        let is_per_task = *variable == "SLURM_GPUS_PER_TASK";
        !is_per_task
            && of_job
                .is_some_and(|gpus| asked.is_some_and(|asked| usize::try_from(asked) != Ok(gpus)))
    }

    /// Returns the GPU request, from all spellings.
    ///
    /// # Errors
    /// Fails for a resource that is not a GPU and for two models.
    pub fn gpu(&self) -> Result<GpuRequest, CliError> {
        let Submission { job, choices, .. } = *self;
        let own = self.own_gpus();
        let counts = |name: &str| {
            own.is_empty() || own.contains(&name) || !choices.is_from_environment(name)
        };
        let asked = |name: &str, ask: &Option<GpuAsk>| ask.clone().filter(|_| counts(name));
        let total = asked("gpus", &job.gpus);
        let per_task = asked("gpus-per-task", &job.gpus_per_task);
        let per_socket = asked("gpus-per-socket", &job.gpus_per_socket);
        // Two spellings of the same request: the one with the higher precedence wins.
        let spellings: Vec<&str> =
            ["gres", "gpus-per-node"].into_iter().filter(|name| counts(name)).collect();
        let per_node = match choices.last_of(&spellings) {
            // `none` requests zero GPUs, even if the partition or the job would provide some.
            Some("gres") => match job.gres.clone() {
                Some(None) => Some(GpuAsk { model: None, count: 0 }),
                other => other.flatten().and_then(|ask| ask.gpus),
            },
            _ => asked("gpus-per-node", &job.gpus_per_node),
        };
        let asks = [&total, &per_node, &per_task, &per_socket];
        let mut models = asks.iter().filter_map(|ask| ask.as_ref()?.model.clone());
        let model = models.next();
        if let Some(other) = models.find(|other| Some(other) != model.as_ref()) {
            let error = SpecError::value(format!(
                "Invalid generic resource (gres) specification: more than one GPU model ({other})"
            ));
            return Err(choices.refuse("gpus", &error));
        }
        let shared = job.gres.clone().flatten().filter(|_| counts("gres")).unwrap_or_default();
        if shared.shards.is_some() && asks.iter().any(|ask| ask.is_some()) {
            let error = SpecError::value(
                "Invalid generic resource (gres) specification: both GPUs and shards",
            );
            return Err(choices.refuse("gres", &error.with_hint(slotd_parse::gres::NOT_BOTH)));
        }
        let count = |ask: &Option<GpuAsk>| ask.as_ref().map(|ask| ask.count);
        Ok(GpuRequest {
            total: count(&total),
            per_node: count(&per_node),
            per_task: count(&per_task),
            per_socket: count(&per_socket),
            model,
            cpus_per_gpu: job.cpus_per_gpu,
            mem_mb: shared.mem_mb,
            shards: shared.shards,
        })
    }

    /// Returns the placement of the tasks.
    ///
    /// # Errors
    /// Fails for `--distribution=plane` without a size.
    fn placement(&self) -> Result<Placement, CliError> {
        let Submission { job, choices, origin } = *self;
        let mut distribution = job.distribution;
        if let Some(Distribution { nodes: Spread::Plane(size @ None), .. }) = &mut distribution {
            // A job passes the keyword and the size to its steps in two variables.
            *size = origin
                .nonempty("SLURM_DIST_PLANESIZE")
                .and_then(|text| text.parse().ok())
                .filter(|size| *size > 0);
            if size.is_none() {
                let mut error = choices.refuse(
                    "distribution",
                    &SpecError::usage("Invalid --distribution specification: plane"),
                );
                error.lines.insert(
                    0,
                    (Mark::Error, "Invalid plane size or size not specified".to_owned()),
                );
                return Err(error);
            }
        }
        let host = job.extra_node_info.unwrap_or_default();
        Ok(Placement {
            distribution,
            hint: job.hint,
            threads_per_core: job.threads_per_core.or(host.threads),
            ntasks_per_core: job.ntasks_per_core,
            ntasks_per_socket: job.ntasks_per_socket,
            sockets_per_node: job.sockets_per_node.or(host.sockets),
            cores_per_socket: job.cores_per_socket.or(host.cores),
            mem_bind: job.mem_bind.clone(),
        })
    }

    /// Applies `--tres-per-task`, but the options that it duplicates take precedence.
    fn per_task_resources(&self, request: &mut JobRequest) {
        let Some(each) = self.job.tres_per_task.clone().flatten() else { return };
        request.cpus_per_task = request.cpus_per_task.or(each.cpus);
        if let Some(ask) = each.gpus {
            request.gpu.per_task.get_or_insert(ask.count);
            request.gpu.model = request.gpu.model.take().or(ask.model);
        }
    }

    /// Refuses options that distribute GPUs without setting their number. Slurm checks this for new
    /// jobs.
    ///
    /// # Errors
    /// Fails for `--gpus-per-task` without tasks or `--gpus`, and for `--mem-per-gpu` without GPUs.
    pub fn check_gpus(&self, request: &JobRequest) -> Result<(), CliError> {
        let gpu = &request.gpu;
        let has_tasks = request.ntasks.is_some() || request.ntasks_per_node.is_some();
        let is_per_task = self.job.gpus_per_task.as_ref().is_some_and(|ask| ask.count > 0);
        let fault = if is_per_task && gpu.total.is_none() && !has_tasks {
            "Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not allowed."
                .to_owned()
        } else if let MemRequest::PerGpu(mb) = request.mem
            && *gpu == (GpuRequest { cpus_per_gpu: gpu.cpus_per_gpu, ..GpuRequest::default() })
        {
            format!("Requested mem_per_tres=gres:gpu:{mb} but did not request any GPU.")
        } else {
            return Ok(());
        };
        Err(CliError::error(1, fault)
            .and(Mark::Error, "Invalid generic resource (gres) specification"))
    }

    /// Applies `--ntasks-per-gpu`: it computes the tasks from the GPUs or the GPUs from the tasks
    /// (sbatch man page).
    fn tasks_per_gpu(&self, request: &mut JobRequest) -> Result<(), CliError> {
        let Some(each) = self.job.ntasks_per_gpu else { return Ok(()) };
        match (request.gpu.total.or(request.gpu.per_node), request.ntasks) {
            (Some(gpus), None) => request.ntasks = Some(gpus.saturating_mul(each).max(1)),
            (None, Some(tasks)) => request.gpu.total = Some(tasks.div_ceil(each)),
            (Some(_), Some(_)) => {}
            (None, None) => {
                let text = format!(
                    "--ntasks-per-gpu={each} needs either a GPU specification (--gpus) or --ntasks"
                );
                return Err(CliError::fatal(1, text));
            }
        }
        Ok(())
    }

    fn partition(&self) -> Result<Option<String>, CliError> {
        match self.job.partition.as_deref() {
            Some("") => {
                let refusal = SpecError::submission("Invalid partition name specified");
                let mut error = self.choices.refuse("partition", &refusal);
                error
                    .lines
                    .insert(0, (Mark::Error, "invalid partition specified: (null)".to_owned()));
                Err(error)
            }
            other => Ok(other.map(str::to_owned)),
        }
    }

    fn sharing(&self) -> Sharing {
        let otherwise =
            if self.job.oversubscribe { Sharing::Oversubscribe } else { Sharing::Default };
        self.job.exclusive.unwrap_or(otherwise)
    }

    /// Returns the nice value. Only root may use a negative one.
    fn nice(&self) -> Result<i64, CliError> {
        match self.job.nice {
            Some(nice) if nice < 0 && self.origin.uid != 0 => Err(self
                .choices
                .refuse("nice", &SpecError::submission(format!("Invalid --nice value: {nice}")))),
            nice => Ok(nice.unwrap_or(0)),
        }
    }

    /// Refuses a deadline that no job can meet.
    fn check_deadline(
        &self,
        begin: Option<Timestamp>,
        deadline: Option<Timestamp>,
    ) -> Result<(), CliError> {
        let (now, Some(deadline)) = (self.origin.now, deadline) else { return Ok(()) };
        let given = shown(self.job.deadline.as_deref().unwrap_or_default());
        if deadline.as_secs() < now.as_secs() {
            let error = SpecError::submission(
                "Requested time limit is invalid (missing or exceeds some limit)",
            );
            return Err(self
                .choices
                .refuse("deadline", &error.with_hint(format!("--deadline {given} has passed"))));
        }
        if begin.is_some_and(|begin| deadline < begin) {
            let error = SpecError::value("Incompatible begin and deadline time specification");
            let hint = format!("--deadline {given} is before --begin");
            return Err(self.choices.refuse("deadline", &error.with_hint(hint)));
        }
        Ok(())
    }

    /// Returns the owner of the job. `--uid` and `--gid` must name the caller, but root may name
    /// another user, whose daemon then receives the job.
    fn identity(&self) -> Result<Account, CliError> {
        let Submission { job, choices, origin } = *self;
        let is = |asked: &str, name: &str, id: u32| asked == name || asked.parse() == Ok(id);
        let account =
            match job.uid.as_deref().filter(|asked| !is(asked, &origin.user, origin.uid)) {
                None => Account {
                    user: origin.user.to_string(),
                    uid: origin.uid,
                    group: origin.group.to_string(),
                    gid: origin.gid,
                },
                Some(_) if origin.uid != 0 => {
                    return Err(choices
                        .refuse("uid", &SpecError::usage("--uid only permitted by root user")));
                }
                Some(asked) => (origin.account)(asked).ok_or_else(|| {
                    choices.refuse("uid", &SpecError::usage("Invalid --uid specification"))
                })?,
            };
        if job.gid.as_deref().is_some_and(|asked| !is(asked, &account.group, account.gid)) {
            return Err(
                choices.refuse("gid", &SpecError::usage("--gid only permitted by root user"))
            );
        }
        Ok(account)
    }
}

/// Returns the file pattern of a stream. As in Slurm, `none` means `/dev/null`.
pub fn stream(value: &Option<String>) -> Option<String> {
    let path = |path: String| {
        if path.eq_ignore_ascii_case("none") { "/dev/null".to_owned() } else { path }
    };
    given(value).map(path)
}

/// Returns the value if it is not empty.
pub fn given(value: &Option<String>) -> Option<String> {
    value.clone().filter(|value| !value.is_empty())
}
