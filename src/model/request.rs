//! A submission, as the client understood the command line.
//!
//! It does not depend on the host. `sched::admit` decides how many CPUs and megabytes it amounts
//! to.

use crate::array::ArraySpec;
use crate::batch_tasks::{BatchTasks, ScriptTasks};
use crate::binding::{CpuBind, GpuBind};
use crate::cron::Recurrence;
use crate::dependency::Dependency;
use crate::gpu::GpuShare;
use crate::is_default;
use crate::placement::Placement;
use crate::rlimits::Rlimits;
use crate::source::{Snapshot, WorkTree};
use crate::time::Timestamp;
use crate::{Constraint, HostList};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// An sbatch script, launched by the daemon.
    #[default]
    Batch,
    /// A command of `srun --no-wait`, launched by the daemon.
    Run,
    /// An allocation of srun or salloc. Its processes are launched as steps.
    Allocation,
}

/// The memory option that was given, in MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemRequest {
    /// None: the default applies (512 MB for the job).
    #[default]
    Default,
    /// `--mem`; 0 means the host's whole memory.
    PerNode(u64),
    PerCpu(u64),
    PerGpu(u64),
    /// No memory: the job only adds CPUs to another one.
    None,
}

/// The GPU options, in each of Slurm's spellings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuRequest {
    /// `-G/--gpus` (for the job).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// `--gpus-per-node` or `--gres=gpu:n`. With one node, the same as the total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_socket: Option<u32>,
    /// The model in `gpu:a100:4`, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `--cpus-per-gpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_per_gpu: Option<u32>,
    /// `--gres=gpumem:10G`: this many MB of each of its GPUs, which other jobs may share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_mb: Option<u64>,
    /// `--gres=shard:2`: this many shards of one GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
}

impl GpuRequest {
    /// Returns the requested share of each GPU.
    pub fn share(&self) -> GpuShare {
        match (self.mem_mb, self.shards) {
            (Some(mb), _) => GpuShare::MemMb(mb),
            (None, Some(shards)) => GpuShare::Shards(shards),
            (None, None) => GpuShare::Whole,
        }
    }

    /// Returns the number of GPUs requested for `tasks` tasks, or `None` if no option specifies it.
    /// A share without a number of GPUs means one GPU.
    pub fn count(&self, tasks: u32) -> Option<u32> {
        let of_tasks = || self.per_task.map(|each| each.saturating_mul(tasks));
        let said = self.total.or(self.per_node).or_else(of_tasks).or(self.per_socket);
        said.or((self.share() != GpuShare::Whole).then_some(1))
    }

    /// Formats a GPU count as in Slurm's `TresPer...` fields: `gres:gpu:2`, `gres:gpu:a100:2`.
    pub fn as_gres(&self, count: u32) -> String {
        let model = self.model.as_ref().map(|model| format!("{model}:")).unwrap_or_default();
        format!("gres:gpu:{model}{count}")
    }
}

/// The value of `-N`: the minimum and the maximum number of nodes; `u32::MAX` for no maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct NodeCount {
    pub min: u32,
    pub max: u32,
}

impl From<(u32, u32)> for NodeCount {
    fn from((min, max): (u32, u32)) -> Self {
        NodeCount { min, max }
    }
}

impl From<NodeCount> for (u32, u32) {
    fn from(nodes: NodeCount) -> Self {
        (nodes.min, nodes.max)
    }
}

/// Prints `1`, `1-2` or `1-`, which `parse::nodes` parses back.
impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NodeCount { min, max: u32::MAX } => write!(f, "{min}-"),
            NodeCount { min, max } if min == max => write!(f, "{min}"),
            NodeCount { min, max } => write!(f, "{min}-{max}"),
        }
    }
}

/// `--switches=COUNT[@TIME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Switches {
    /// The maximum number of network switches.
    pub count: u32,
    /// How long the job may wait for them.
    pub wait_secs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    #[default]
    Truncate,
    Append,
}

/// The value of `--export`: the environment variables that the job receives from its submitter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportSpec {
    /// `ALL` was named, or nothing was given.
    pub all: bool,
    /// Names to copy from the submitter's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// `KEY=VALUE` pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<(String, String)>,
}

impl Default for ExportSpec {
    fn default() -> Self {
        ExportSpec { all: true, names: Vec::new(), set: Vec::new() }
    }
}

/// `--signal=[B:]SIG[@seconds]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WarnSignal {
    pub signal: i32,
    /// Seconds before the end of the time limit.
    pub before_secs: u32,
    /// `B:`: only signal the batch shell.
    pub batch_only: bool,
}

/// `--exclusive` and `--oversubscribe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    #[default]
    Default,
    Exclusive,
    /// Share only with jobs of the same user or of the same security label. All jobs are, so this
    /// is only shown.
    User,
    Mcs,
    Oversubscribe,
}

/// Lists each text once, with its field in the request and its name in `scontrol update`.
macro_rules! kept_texts {
    ($($text:ident: $field:ident, $name:literal;)*) => {
        /// A string that is stored with the job and shown. `scontrol update` changes it under its
        /// name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum KeptText { $($text,)* }

        impl KeptText {
            pub const ALL: [KeptText; [$($name),*].len()] = [$(KeptText::$text,)*];

            /// Returns Slurm's name for it.
            pub const fn name(self) -> &'static str {
                match self { $(KeptText::$text => $name,)* }
            }

            /// Returns the name that refusals use, which is that of its field.
            pub const fn field(self) -> &'static str {
                match self { $(KeptText::$text => stringify!($field),)* }
            }

            /// Returns the text in a request.
            pub fn of(self, request: &JobRequest) -> Option<&String> {
                match self { $(KeptText::$text => request.$field.as_ref(),)* }
            }

            /// Returns the text's field in a request.
            pub fn of_mut(self, request: &mut JobRequest) -> &mut Option<String> {
                match self { $(KeptText::$text => &mut request.$field,)* }
            }
        }
    };
}

kept_texts! {
    Account: account, "Account";
    Qos: qos, "QOS";
    Comment: comment, "Comment";
    Extra: extra, "Extra";
    WcKey: wckey, "WCKey";
    Reservation: reservation, "Reservation";
    Licenses: licenses, "Licenses";
    MailType: mail_type, "MailType";
    MailUser: mail_user, "MailUser";
    AdminComment: admin_comment, "AdminComment";
    Network: network, "Network";
}

impl KeptText {
    /// Finds the option with this name, ignoring case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|text| text.name().eq_ignore_ascii_case(name))
    }
}

/// One submission.
///
/// `None` and empty values mean "not requested". Defaults are applied on admission.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobRequest {
    pub kind: JobKind,
    pub name: String,
    pub user: String,
    pub uid: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "is_default")]
    pub gid: u32,
    /// `-p`, possibly several separated by commas. The job goes to the first in which it can start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,

    // Size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_per_task: Option<u32>,
    /// One host: the minimum must be 1 (or 0 in a range).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCount>,
    /// `-O`: the tasks share the CPUs of one task (srun man page, `--overcommit`).
    #[serde(skip_serializing_if = "is_default")]
    pub overcommit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mincpus: Option<u32>,
    /// Host CPUs that must be among the job's, ascending (`srun --cpu-bind=map_cpu:1`). The job
    /// waits until they are free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_cpus: Vec<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub mem: MemRequest,
    #[serde(skip_serializing_if = "is_default")]
    pub gpu: GpuRequest,
    #[serde(skip_serializing_if = "is_default")]
    pub sharing: Sharing,

    // Timing and order.
    /// Seconds; `None` means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_secs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_min_secs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    /// When the job recurs, as an entry of a crontab. `begin` is its first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<Box<Recurrence>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "Dependency::is_empty")]
    pub dependency: Dependency,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    #[serde(skip_serializing_if = "is_default")]
    pub hold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub nice: i64,
    /// `--immediate`: seconds to wait for the allocation; 0 means now or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate_secs: Option<u64>,

    // Host selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Box<Constraint>>,
    /// `--prefer`: has no effect, since there is no other host to choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Box<Constraint>>,
    /// `--contiguous`: always satisfied by one node.
    #[serde(skip_serializing_if = "is_default")]
    pub contiguous: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub nodelist: HostList,
    #[serde(skip_serializing_if = "is_default")]
    pub exclude: HostList,

    // Directories, files, script and environment.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub work_dir: String,
    /// The directory in which the command was called: `SLURM_SUBMIT_DIR`. Differs from `work_dir`
    /// if `--chdir` is given. Empty in records of older versions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub submit_dir: String,
    /// The git work tree that contains `work_dir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Box<WorkTree>>,
    /// `--snapshot`: the copy of the work tree that contains `work_dir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Box<Snapshot>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std_out: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std_err: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std_in: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_mode: Option<OpenMode>,
    /// The script's path, or the program of `srun`, as `scontrol show job` shows them. `None` for
    /// `--wrap`, a script on standard input, `salloc` and a `Run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the script, or the whole command of a `Run`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The script came from `--wrap`.
    #[serde(skip_serializing_if = "is_default")]
    pub wrapped: bool,
    /// Hints about its tasks in the script or in salloc's command.
    #[serde(alias = "script_has_srun", skip_serializing_if = "is_default")]
    pub script_tasks: ScriptTasks,
    /// The submitter's own `SLOTD_BATCH_TASKS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_tasks: Option<BatchTasks>,
    #[serde(skip_serializing_if = "is_default")]
    pub export: ExportSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<WarnSignal>,
    /// `--requeue`: requeue the job once after a failure.
    #[serde(skip_serializing_if = "is_default")]
    pub requeue: bool,
    /// `--no-requeue`: refuse `scontrol requeue`.
    #[serde(skip_serializing_if = "is_default")]
    pub no_requeue: bool,
    /// Whether to cancel the job if its dependency can never be satisfied; `None` means no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill_on_invalid_dep: Option<bool>,
    /// The command line, for `SubmitLine`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub submit_line: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub submit_host: String,
    /// The submitter's umask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// The submitter's resource limits, which the processes that the daemon launches inherit
    /// (`--propagate`).
    #[serde(skip_serializing_if = "is_default")]
    pub rlimits: Rlimits,
    /// The CPU binding of a `Run` (`srun --no-wait --cpu-bind`).
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_bind: CpuBind,
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,

    // Stored and shown, without effect on one host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The text of `scontrol update AdminComment=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wckey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licenses: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_boot_secs: Option<u64>,
    /// `--tmp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp_disk_mb: Option<u64>,
    /// The kinds of `--profile`, in Slurm's spelling: `Energy,Task`, or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// `--gpu-bind`, for the ranks of a batch job or a `Run`. Steps receive it in `SLURM_GPU_BIND`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_bind: Option<Box<GpuBind>>,
}

impl JobRequest {
    /// Returns whether to cancel the job if its dependency can never be satisfied.
    pub fn is_killed_on_invalid_dep(&self) -> bool {
        self.kill_on_invalid_dep == Some(true)
    }

    /// Returns the directory that relative names of output files start from.
    pub fn output_dir(&self) -> &str {
        self.snapshot.as_ref().map_or(&self.work_dir, |snapshot| &snapshot.output_dir)
    }

    /// Returns the number of tasks: `--ntasks`, else `--ntasks-per-node` (one node), else 1.
    pub fn task_count(&self) -> u32 {
        self.ntasks.or(self.ntasks_per_node).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kept_text_has_its_own_name_and_field() {
        let mut request = JobRequest::default();
        for text in KeptText::ALL {
            assert_eq!(KeptText::named(&text.name().to_ascii_lowercase()), Some(text));
            assert_eq!(text.of_mut(&mut request).replace(text.name().to_owned()), None);
        }
        let kept = KeptText::ALL.map(|text| text.of(&request).cloned());
        assert_eq!(kept, KeptText::ALL.map(|text| Some(text.name().to_owned())));
    }

    #[test]
    fn records_from_before_typed_values_are_read() {
        let old = r#"{"kind":"batch","name":"x","nodes":[1,4294967295],"constraint":"a,[b|c]","nodelist":"n[1-2]",
            "exclude":"m","kill_on_invalid_dep":true,"cpu_bind":"map_cpu:0,2*3","gpu":{"total":2,"spelled":"gres:gpu:2"}}"#;
        let request: JobRequest = serde_json::from_str(old).unwrap();
        let texts = [
            request.nodes.unwrap().to_string(),
            request.constraint.as_ref().unwrap().to_string(),
            request.nodelist.to_string(),
            request.exclude.to_string(),
            request.cpu_bind.to_string(),
            request.gpu.as_gres(2),
        ];
        assert_eq!(request.kill_on_invalid_dep, Some(true));
        assert_eq!(texts, ["1-", "a&(b|c)", "n[1-2]", "m", "map_cpu:0,2*3", "gres:gpu:2"]);
        let again: JobRequest =
            serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
        assert_eq!(again, request);
    }
}
