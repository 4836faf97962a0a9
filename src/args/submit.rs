//! What the shared options of sbatch, srun and salloc mean: from `JobOpts` to `JobRequest`.
//!
//! Checks what can be checked without knowing the host; whether the host has what is asked for, and whether a
//! partition or a job exists, is the daemon's business.

use crate::args::choices::Choices;
use crate::args::error::{CliError, Mark};
use crate::args::options::JobOpts;
use crate::args::origin::Origin;
use crate::model::JobRequest;
use crate::model::batch_tasks::BatchTasks;
use crate::model::request::{GpuRequest, JobKind, MemRequest, OpenMode, Sharing};
use crate::spec::error::shown;
use crate::spec::gres::GpuAsk;
use crate::spec::{self, SpecError};
use std::ffi::OsString;

/// `--nice` without a value.
const DEFAULT_NICE: i64 = 100;
/// The largest nice value (sbatch man page).
const MAX_NICE: i64 = 2_147_483_645;
/// `--priority=TOP`: the highest that is not one of Slurm's special numbers.
const TOP_PRIORITY: u32 = u32::MAX - 2;

/// The options that ask for GPUs.
const SPELLINGS_OF_GPUS: [&str; 5] = ["gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"];

/// What `--mail-type` may name (sbatch man page).
const MAIL_TYPES: [&str; 14] = [
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
    "PURGE",
];

/// The shared options of one command line, with what is needed to read them.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    pub job: &'a JobOpts,
    pub choices: &'a Choices,
    pub origin: &'a Origin,
}

/// `Invalid --time specification: 1h`, exit code 255.
pub fn invalid(option: &str, value: &str) -> SpecError {
    SpecError::usage(format!("Invalid {option} specification: {}", shown(value)))
}

/// The words of a command line, as `SubmitLine` shows them: quoted where a shell needs it, so that it can be pasted.
pub fn submit_line(argv: &[OsString]) -> String {
    // No word holds a zero byte: it came as an argument of a process.
    let quoted = |word: &OsString| {
        let word = word.to_string_lossy();
        shlex::try_quote(&word).map(String::from).unwrap_or_else(|_| word.to_string())
    };
    argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// `SLOTD_BATCH_TASKS` of the submitter: what several tasks mean for this job.
///
/// # Errors
/// It is none of the three words.
pub fn own_batch_tasks(origin: &Origin) -> Result<Option<BatchTasks>, CliError> {
    let word = origin.nonempty("SLOTD_BATCH_TASKS");
    let unknown = |word: &str| {
        let text = format!("invalid SLOTD_BATCH_TASKS `{}`: it is auto, ranks or once", shown(word));
        CliError::error(1, text)
    };
    word.map(|word| BatchTasks::named(word).ok_or_else(|| unknown(word))).transpose()
}

/// `append` or `truncate`; Slurm looks at the first letter.
pub fn open_mode(text: &str) -> Result<OpenMode, SpecError> {
    match text.bytes().next().map(|b| b.to_ascii_lowercase()) {
        Some(b'a') => Ok(OpenMode::Append),
        Some(b't') => Ok(OpenMode::Truncate),
        _ => Err(invalid("--open-mode", text)),
    }
}

/// The last part of a command's path: the default name of a job.
pub fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

impl Submission<'_> {
    /// The request of a job of this kind, which is called `default_name` unless the options name it.
    ///
    /// # Errors
    /// The first value that cannot be read or does not go with another one, in Slurm's words.
    pub fn request(&self, kind: JobKind, default_name: &str, argv: &[OsString]) -> Result<JobRequest, CliError> {
        let Submission { job, choices, origin } = *self;
        self.check_identity()?;
        let count = |name: &'static str, value: &Option<String>| {
            choices.read(name, value.as_ref(), |text| spec::count::parse(text, &format!("--{name}")))
        };
        let limit = |name: &'static str, value: &Option<String>| {
            choices
                .read(name, value.as_ref(), |text| spec::time::parse_limit_for(text, &format!("--{name}")))
                .map(Option::flatten)
        };
        let moment = |name: &'static str, value: &Option<String>| {
            choices.read(name, value.as_ref(), |text| {
                spec::begin::parse_for(text, &format!("--{name}"), origin.now, &origin.tz)
            })
        };
        let hosts = |name: &'static str, value: &Option<String>| {
            choices.read(name, value.as_ref(), spec::hostlist::parse).map(Option::unwrap_or_default)
        };
        let (priority, hold_by_priority) = self.priority()?;
        let mut request = JobRequest {
            kind,
            name: given(&job.job_name).unwrap_or_else(|| default_name.to_owned()),
            user: origin.user.clone(),
            uid: origin.uid,
            group: origin.group.clone(),
            gid: origin.gid,
            partition: self.partition()?,
            ntasks: count("ntasks", &job.ntasks)?,
            ntasks_per_node: count("ntasks-per-node", &job.ntasks_per_node)?,
            cpus_per_task: count("cpus-per-task", &job.cpus_per_task)?,
            nodes: choices.read("nodes", job.nodes.as_ref(), spec::nodes::parse)?,
            overcommit: job.overcommit,
            mincpus: count("mincpus", &job.mincpus)?,
            mem: self.mem()?,
            gpu: self.gpu()?,
            sharing: self.sharing()?,
            time_limit_secs: limit("time", &job.time)?,
            time_min_secs: limit("time-min", &job.time_min)?,
            begin: moment("begin", &job.begin)?,
            deadline: moment("deadline", &job.deadline)?,
            dependency: choices
                .read("dependency", job.dependency.as_ref(), spec::dependency::parse)?
                .unwrap_or_default(),
            hold: job.hold || hold_by_priority,
            priority,
            nice: self.nice()?,
            constraint: choices.read("constraint", given(&job.constraint).as_ref(), spec::constraint::parse)?,
            nodelist: hosts("nodelist", &job.nodelist)?,
            exclude: hosts("exclude", &job.exclude)?,
            work_dir: self.work_dir(),
            submit_dir: origin.absolute(""),
            signal: choices.read("signal", job.signal.as_ref(), spec::signal::parse_warn)?,
            kill_on_invalid_dep: self.yes_or_no("kill-on-invalid-dep", &job.kill_on_invalid_dep)?,
            submit_line: submit_line(argv),
            submit_host: origin.host.clone(),
            umask: Some(origin.umask),
            account: given(&job.account),
            qos: given(&job.qos),
            comment: given(&job.comment),
            wckey: given(&job.wckey),
            reservation: given(&job.reservation),
            licenses: given(&job.licenses),
            mail_type: self.mail_type()?,
            mail_user: given(&job.mail_user),
            ..JobRequest::default()
        };
        self.per_task_resources(&mut request)?;
        self.tasks_per_gpu(&mut request)?;
        Ok(request)
    }

    /// Where the job runs, absolute.
    pub fn work_dir(&self) -> String {
        self.origin.absolute(self.job.chdir.as_deref().unwrap_or(""))
    }

    /// The memory option of the place that counts most: one on the command line replaces another one in the script.
    ///
    /// # Errors
    /// Two of the three in one place (golden A-91).
    pub fn mem(&self) -> Result<MemRequest, CliError> {
        let Submission { job, choices, .. } = *self;
        let all = [("mem", &job.mem), ("mem-per-cpu", &job.mem_per_cpu), ("mem-per-gpu", &job.mem_per_gpu)];
        let layer = |name: &str| choices.of(name).map(|choice| choice.source.layer());
        let top = all.iter().filter_map(|(name, _)| layer(name)).max();
        let mut counting = all.into_iter().filter(|(name, _)| layer(name).is_some() && layer(name) == top);
        let Some((name, value)) = counting.next() else {
            return Ok(MemRequest::Default);
        };
        if counting.next().is_some() {
            return Err(CliError::fatal(1, "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."));
        }
        let option = format!("--{name}");
        let mb = choices.read(name, value.as_ref(), |text| spec::mem::parse_mb_for(text, &option))?.unwrap_or_default();
        Ok(match name {
            "mem" => MemRequest::PerNode(mb),
            "mem-per-cpu" => MemRequest::PerCpu(mb),
            _ => MemRequest::PerGpu(mb),
        })
    }

    /// What is said about GPUs in any spelling.
    ///
    /// # Errors
    /// A resource that is not a GPU, or two models.
    pub fn gpu(&self) -> Result<GpuRequest, CliError> {
        let Submission { job, choices, .. } = *self;
        // Inside a job the environment tells of the job's GPUs: what the command line says counts instead.
        let is_said = SPELLINGS_OF_GPUS.iter().any(|name| choices.on_command_line(name));
        let asked = |name: &str, value: &Option<String>| {
            let counts = !(is_said && choices.from_environment(name));
            choices.read(name, value.as_ref().filter(|_| counts), spec::gres::parse_gpus)
        };
        let total = asked("gpus", &job.gpus)?;
        let per_task = asked("gpus-per-task", &job.gpus_per_task)?;
        let per_socket = asked("gpus-per-socket", &job.gpus_per_socket)?;
        // Two spellings of one thing: the one that counts more.
        let per_node = match choices.last_of(&["gres", "gpus-per-node"]) {
            // `none` asks for none, also where a partition or a job would give some.
            Some("gres") => choices
                .read("gres", job.gres.as_ref(), spec::gres::parse)?
                .map(|ask| ask.unwrap_or(GpuAsk { model: None, count: 0 })),
            _ => asked("gpus-per-node", &job.gpus_per_node)?,
        };
        let asks = [&total, &per_node, &per_task, &per_socket];
        let mut models = asks.iter().filter_map(|ask| ask.as_ref()?.model.clone());
        let model = models.next();
        if let Some(other) = models.find(|other| Some(other) != model.as_ref()) {
            let error = SpecError::value(format!(
                "Invalid generic resource (gres) specification: two models, one of them {other}"
            ));
            return Err(choices.refuse("gpus", &error));
        }
        let count = |ask: &Option<GpuAsk>| ask.as_ref().map(|ask| ask.count);
        Ok(GpuRequest {
            total: count(&total),
            per_node: count(&per_node),
            per_task: count(&per_task),
            per_socket: count(&per_socket),
            model,
            cpus_per_gpu: choices
                .read("cpus-per-gpu", job.cpus_per_gpu.as_ref(), |text| spec::count::parse(text, "--cpus-per-gpu"))?,
        })
    }

    /// `--tres-per-task=cpu:2,gres/gpu:1`: other spellings of `-c` and `--gpus-per-task`, which go first.
    fn per_task_resources(&self, request: &mut JobRequest) -> Result<(), CliError> {
        let Some(text) = given(&self.job.tres_per_task) else {
            return Ok(());
        };
        let bad = || self.choices.refuse("tres-per-task", &invalid("--tres-per-task", &text));
        for item in text.split(',') {
            if let Some(count) = item.strip_prefix("cpu").and_then(|rest| rest.strip_prefix([':', '='])) {
                let cpus = spec::count::parse(count, "--tres-per-task").map_err(|_| bad())?;
                request.cpus_per_task.get_or_insert(cpus);
            } else if let Some(gpu) = item.strip_prefix("gres/") {
                let ask = spec::gres::parse(gpu).map_err(|_| bad())?.ok_or_else(bad)?;
                request.gpu.per_task.get_or_insert(ask.count);
                request.gpu.model = request.gpu.model.take().or(ask.model);
            } else {
                return Err(bad());
            }
        }
        Ok(())
    }

    /// `--ntasks-per-gpu`: with GPUs it gives the tasks, with tasks the GPUs (sbatch man page).
    fn tasks_per_gpu(&self, request: &mut JobRequest) -> Result<(), CliError> {
        let each = self.choices.read("ntasks-per-gpu", self.job.ntasks_per_gpu.as_ref(), |text| {
            spec::count::parse(text, "--ntasks-per-gpu")
        })?;
        let Some(each) = each else {
            return Ok(());
        };
        match (request.gpu.total.or(request.gpu.per_node), request.ntasks) {
            (Some(gpus), None) => request.ntasks = Some(gpus.saturating_mul(each).max(1)),
            (None, Some(tasks)) => request.gpu.total = Some(tasks.div_ceil(each)),
            (Some(_), Some(_)) => {}
            (None, None) => {
                let text = format!("--ntasks-per-gpu={each} needs either a GPU specification (--gpus) or --ntasks");
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
                error.lines.insert(0, (Mark::Error, "invalid partition specified: (null)".to_owned()));
                Err(error)
            }
            other => Ok(other.map(str::to_owned)),
        }
    }

    /// A kind of `--exclusive` that only shuts out other users or labels shuts out nobody on a host with one user.
    fn sharing(&self) -> Result<Sharing, CliError> {
        match &self.job.exclusive {
            None if self.job.oversubscribe => Ok(Sharing::Oversubscribe),
            None => Ok(Sharing::Default),
            Some(kind) => match kind.as_deref().unwrap_or("") {
                "" | "exclusive" | "topo" => Ok(Sharing::Exclusive),
                "user" | "mcs" | "no" => Ok(Sharing::Default),
                other => Err(self.choices.refuse("exclusive", &invalid("--exclusive", other))),
            },
        }
    }

    fn nice(&self) -> Result<i64, CliError> {
        let text = match &self.job.nice {
            None => return Ok(0),
            Some(None) => return Ok(DEFAULT_NICE),
            Some(Some(text)) => text,
        };
        match text.parse::<i64>() {
            Ok(nice) if nice.abs() > MAX_NICE => {
                let range = format!("Invalid --nice value {nice}, must be between -{MAX_NICE} and {MAX_NICE}");
                Err(self.choices.refuse("nice", &SpecError::usage(range)))
            }
            // Only root may step forward (golden A-104).
            Ok(nice) if nice < 0 && self.origin.uid != 0 => {
                Err(self.choices.refuse("nice", &SpecError::submission(format!("Invalid --nice value: {nice}"))))
            }
            Ok(nice) => Ok(nice),
            Err(_) => Err(self.choices.refuse("nice", &invalid("--nice", text))),
        }
    }

    /// The priority, and whether the job is held by it: 0 is a hold.
    fn priority(&self) -> Result<(Option<u32>, bool), CliError> {
        let read = self.choices.read("priority", self.job.priority.as_ref(), |text| {
            if text.eq_ignore_ascii_case("top") {
                return Ok(TOP_PRIORITY);
            }
            match text.parse::<u64>() {
                Ok(priority) => Ok(u32::try_from(priority).unwrap_or(u32::MAX).min(TOP_PRIORITY)),
                Err(_) => Err(invalid("--priority", text)),
            }
        })?;
        Ok(match read {
            Some(0) => (None, true),
            other => (other, false),
        })
    }

    fn mail_type(&self) -> Result<Option<String>, CliError> {
        let Some(text) = given(&self.job.mail_type) else {
            return Ok(None);
        };
        let known = |word: &str| MAIL_TYPES.iter().any(|kind| kind.eq_ignore_ascii_case(word));
        if text.split(',').all(known) {
            Ok(Some(text))
        } else {
            Err(self.choices.refuse("mail-type", &invalid("--mail-type", &text)))
        }
    }

    fn yes_or_no(&self, name: &str, value: &Option<String>) -> Result<bool, CliError> {
        let read = self.choices.read(name, value.as_ref(), |text| match text.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(invalid(&format!("--{name}"), text)),
        })?;
        Ok(read.unwrap_or(false))
    }

    /// `--uid` and `--gid` may name oneself; anyone else is for Slurm's root (golden A-105).
    fn check_identity(&self) -> Result<(), CliError> {
        let Submission { job, choices, origin } = *self;
        let is = |asked: &str, name: &str, id: u32| asked == name || asked.parse() == Ok(id);
        if job.uid.as_deref().is_some_and(|asked| !is(asked, &origin.user, origin.uid)) {
            return Err(choices.refuse("uid", &SpecError::usage("--uid only permitted by root user")));
        }
        if job.gid.as_deref().is_some_and(|asked| !is(asked, &origin.group, origin.gid)) {
            return Err(choices.refuse("gid", &SpecError::usage("--gid only permitted by root user")));
        }
        Ok(())
    }
}

/// The value, if it says something.
pub fn given(value: &Option<String>) -> Option<String> {
    value.clone().filter(|value| !value.is_empty())
}
