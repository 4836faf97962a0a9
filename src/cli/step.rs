//! What srun asks of an allocation: the step. And where the streams of its tasks go.

use crate::model::request::{GpuRequest, MemRequest, OpenMode};
use crate::spec::cpu_bind::CpuBind;

/// A step inside an allocation. `None`: as the allocation has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepAsk {
    pub name: String,
    pub ntasks: Option<u32>,
    pub ntasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub nodes: Option<(u32, u32)>,
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
