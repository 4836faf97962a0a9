//! What srun asks of an allocation: the step. And where the streams of its tasks go.

use crate::args::error::CliError;
use crate::model::JobId;
use crate::model::request::{GpuRequest, MemRequest, OpenMode};
use crate::spec::cpu_bind::CpuBind;
use crate::spec::hostlist;

/// A step inside an allocation. `None`: as the allocation has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepAsk {
    pub name: String,
    pub ntasks: Option<u32>,
    pub ntasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub nodes: Option<(u32, u32)>,
    /// `--relative`: how many of the allocation's nodes to leave out.
    pub relative: Option<u32>,
    /// `--nodelist` and `--exclude`, as written.
    pub nodelist: Option<String>,
    pub exclude: Option<String>,
    pub mem: MemRequest,
    pub gpu: GpuRequest,
    /// `--exact`, `--exclusive` or `-c` in a step: it gets what it asks for and waits while that is not free.
    pub exact: bool,
    /// `--overlap`: takes nothing from the other steps and waits for none.
    pub overlap: bool,
    /// `--whole`: all of the allocation.
    pub whole: bool,
    pub cpu_bind: CpuBind,
    /// `--cpu-bind=verbose`: tell on standard error how each task is bound.
    pub report_cpu_bind: bool,
    /// `--gpu-bind`, as written.
    pub gpu_bind: Option<String>,
    /// Seconds; `None` is as long as the job.
    pub time_limit_secs: Option<u64>,
    /// `--immediate`: seconds to wait for room in the allocation; 0 is now or never.
    pub immediate_secs: Option<u64>,
}

impl StepAsk {
    /// Whether an allocation of the one node can be what was asked for (srun looks before it asks the controller).
    ///
    /// # Errors
    /// More nodes than one, the node left out, or another one: in srun's words.
    pub fn check_node(&self, job: JobId, node: &str) -> Result<(), CliError> {
        let is_node = |name: &String| name == node || name == "localhost";
        let hosts = |list: &Option<String>| list.as_deref().and_then(|text| hostlist::expand(text).ok());
        let asked = self.nodes.map_or(1, |(min, _)| min.max(1));
        if let Some(first) = self.relative.filter(|first| first.saturating_add(asked) > 1) {
            let of = if self.nodes.is_some() { "--nodes" } else { "SLURM_JOB_NUM_NODES" };
            let why = format!("incompatible with count of allocated nodes ({first}+{asked}>1)");
            return Err(CliError::error(1, format!("--relative and {of} option {why}")));
        }
        if asked > 1 {
            return Err(CliError::error(1, format!("Only allocated 1 nodes asked for {asked}")));
        }
        if hosts(&self.exclude).is_some_and(|names| names.iter().any(is_node)) {
            return Err(CliError::error(1, "Hostlist is empty!  Can't run job."));
        }
        if hosts(&self.nodelist).is_some_and(|names| !names.iter().all(is_node)) {
            let why = "Requested node configuration is not available";
            return Err(CliError::error(1, format!("Unable to create step for job {job}: {why}")));
        }
        Ok(())
    }
}

/// Where one of the three streams goes (`srun -i/-o/-e`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stream {
    /// To (or from) the terminal of srun, for all tasks. The default.
    #[default]
    All,
    /// `none`: nowhere.
    None,
    /// To or from srun, for this task only.
    Task(u32),
    /// A file, with the patterns of `spec::filename`.
    File(String),
}

impl Stream {
    /// `all`, `none`, the number of a task, or a file's pattern. An empty text says nothing.
    pub fn read(text: &str) -> Stream {
        match text {
            "" => Stream::All,
            _ if text.eq_ignore_ascii_case("all") => Stream::All,
            _ if text.eq_ignore_ascii_case("none") => Stream::None,
            _ => text.parse().map_or_else(|_| Stream::File(text.to_owned()), Stream::Task),
        }
    }

    /// The file's pattern, if it is a file. `/dev/null` for nowhere: what a job that the daemon runs has in its place.
    pub fn path(&self) -> Option<String> {
        match self {
            Stream::All | Stream::Task(_) => None,
            Stream::None => Some("/dev/null".to_owned()),
            Stream::File(path) => Some(path.clone()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Streams {
    pub input: Stream,
    pub output: Stream,
    /// `None`: with the output.
    pub error: Option<Stream>,
    pub open_mode: Option<OpenMode>,
    /// `-l`: `0: ` before each line.
    pub label: bool,
    /// `-u`.
    pub unbuffered: bool,
    /// `--pty`: task 0 in a pseudo terminal.
    pub pty: bool,
}
