//! The options that sbatch, srun and salloc share. `submit` makes a request of them.

use crate::args::job_values::{self, NodeShape, PerTask};
use crate::args::value::{Maybe, named, unless_empty, value};
use crate::model::dependency::Dependency;
use crate::model::placement::{Distribution, Hint, MemBind};
use crate::model::request::{NodeCount, Sharing, WarnSignal};
use crate::model::{Constraint, HostList};
use crate::spec::error::shown;
use crate::spec::gres::{GpuAsk, GresAsk};
use crate::spec::{self, SpecError};
use clap::Args;

/// Seconds; `None` is unlimited.
pub type Limit = Option<u64>;

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct CommonOpts {
    /// Print a short line of the form of the command
    #[arg(long)]
    pub usage: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// Tell more of what is done; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Data in place of a table, for the commands that show something.
#[derive(Debug, Clone, Default, Args)]
pub struct DataOpts {
    /// Print JSON, in the shape of v0.0.38 (Slurm 22.05, the default) or v0.0.40
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml", default_missing_value = "", value_parser = value(data_version))]
    json: Option<DataVersion>,
    /// Print YAML, in the same shapes
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json", default_missing_value = "", value_parser = value(data_version))]
    yaml: Option<DataVersion>,
}

/// Machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Json(DataVersion),
    Yaml(DataVersion),
}

/// Whose shape the data has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataVersion {
    /// v0.0.38, of Slurm 22.05.
    V38,
    /// v0.0.40, of Slurm 23.11.
    V40,
}

fn data_version(text: &str) -> Result<DataVersion, SpecError> {
    match text {
        "" | "v0.0.38" => Ok(DataVersion::V38),
        "v0.0.40" => Ok(DataVersion::V40),
        _ => {
            let unknown =
                SpecError::value(format!("No data of version {} is printed", shown(text)));
            Err(unknown.with_hint(
                "v0.0.38 (Slurm 22.05, also without a version) or v0.0.40 (Slurm 23.11)",
            ))
        }
    }
}

impl DataOpts {
    pub fn machine(&self) -> Option<Machine> {
        self.json.map(Machine::Json).or(self.yaml.map(Machine::Yaml))
    }
}

/// What a job is and needs.
#[derive(Debug, Clone, Default, Args)]
pub struct JobOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short = 'h', long)]
    pub help: bool,
    /// Hide messages that are only news
    #[arg(short = 'Q', long)]
    pub quiet: bool,

    /// Account to name the job's use for; kept and shown
    #[arg(short = 'A', long, value_name = "NAME")]
    pub account: Option<String>,
    /// Start at this time or later: now+1hour, 16:00, tomorrow, 2030-01-02T03:04:05
    #[arg(short, long, value_name = "TIME")]
    pub begin: Option<String>,
    /// Where to run; relative to the present directory
    #[arg(short = 'D', long, value_name = "DIRECTORY")]
    pub chdir: Option<String>,
    /// Cluster to submit to, of which there is one
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAME", value_parser = unless_empty(spec::cluster::parse))]
    pub clusters: Option<Maybe<&'static str>>,
    /// Free text kept with the job
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Features that the host must have
    #[arg(short = 'C', long, value_name = "FEATURES", value_parser = unless_empty(spec::constraint::parse))]
    pub constraint: Option<Maybe<Constraint>>,
    /// Cores that a socket must have
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub cores_per_socket: Option<u32>,
    /// CPUs for each task
    #[arg(short, long, value_name = "N", value_parser = named(spec::count::parse))]
    pub cpus_per_task: Option<u32>,
    /// CPUs for each GPU
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub cpus_per_gpu: Option<u32>,
    /// Remove the job if it cannot end before this time
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Jobs to wait for: afterok:12, afterany:12:13, singleton
    #[arg(short, long, value_name = "KIND:JOB", value_parser = value(spec::dependency::parse))]
    pub dependency: Option<Dependency>,
    /// How tasks are dealt out to sockets: block, cyclic, plane=N; after a colon block, cyclic or fcyclic
    #[arg(short = 'm', long, value_name = "HOW", value_parser = value(spec::distribution::parse))]
    pub distribution: Option<Distribution>,
    /// Hosts not to run on
    #[arg(short = 'x', long, value_name = "HOSTS", value_parser = value(spec::hostlist::parse))]
    pub exclude: Option<HostList>,
    /// Share the host with no other job
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, overrides_with = "oversubscribe", default_missing_value = "", value_parser = named(job_values::sharing))]
    pub exclusive: Option<Sharing>,
    /// Free text beside the comment; kept and shown
    #[arg(long, value_name = "TEXT")]
    pub extra: Option<String>,
    /// Sockets, cores of each and threads of each that the host must have: S[:C[:T]]
    #[arg(short = 'B', long, value_name = "S:C:T", value_parser = value(job_values::node_shape))]
    pub extra_node_info: Option<NodeShape>,
    /// Group to run as, which is yours
    #[arg(long, value_name = "GROUP")]
    pub gid: Option<String>,
    /// GPUs: [MODEL:]N
    #[arg(short = 'G', long, value_name = "N", value_parser = value(spec::gres::parse_gpus))]
    pub gpus: Option<GpuAsk>,
    /// GPUs of the node: [MODEL:]N
    #[arg(long, value_name = "N", value_parser = value(spec::gres::parse_gpus))]
    pub gpus_per_node: Option<GpuAsk>,
    /// GPUs for each socket: [MODEL:]N
    #[arg(long, value_name = "N", value_parser = value(spec::gres::parse_gpus))]
    pub gpus_per_socket: Option<GpuAsk>,
    /// GPUs for each task: [MODEL:]N
    #[arg(long, value_name = "N", value_parser = value(spec::gres::parse_gpus))]
    pub gpus_per_task: Option<GpuAsk>,
    /// Generic resources of the node: gpu[:MODEL][:N], gpumem:SIZE, shard:N
    #[arg(long, value_name = "LIST", value_parser = value(spec::gres::parse))]
    pub gres: Option<Maybe<GresAsk>>,
    /// What the program is bound by: compute_bound, memory_bound, nomultithread (one thread of each core), multithread
    #[arg(long, value_name = "WORD", value_parser = value(job_values::hint))]
    pub hint: Option<Hint>,
    /// Submit the job held
    #[arg(short = 'H', long)]
    pub hold: bool,
    /// Name of the job
    #[arg(short = 'J', long, value_name = "NAME")]
    pub job_name: Option<String>,
    /// Cancel the job when its dependency can never be met: yes or no
    #[arg(long, value_name = "YES|NO", value_parser = named(job_values::yes_or_no))]
    pub kill_on_invalid_dep: Option<bool>,
    /// Licenses, of which there are none
    #[arg(short = 'L', long, value_name = "NAMES")]
    pub licenses: Option<String>,
    /// When mail is sent, by the host's sendmail
    #[arg(long, value_name = "EVENTS", value_parser = unless_empty(job_values::mail_type))]
    pub mail_type: Option<Maybe<String>>,
    /// Who gets mail; the submitting user by default
    #[arg(long, value_name = "USER")]
    pub mail_user: Option<String>,
    /// Memory for the job: 512M, 8G; a bare number is MB; 0 is all of it
    #[arg(long, value_name = "SIZE", value_parser = named(spec::mem::parse_mb_for))]
    pub mem: Option<u64>,
    /// NUMA nodes that tasks have their memory from: local, rank, map_mem:0,1, mask_mem:0x3, none; prefer, verbose
    #[arg(long, alias = "mem_bind", value_name = "MODE", value_parser = value(spec::mem_bind::parse))]
    pub mem_bind: Option<MemBind>,
    /// Memory for each CPU
    #[arg(long, value_name = "SIZE", value_parser = named(spec::mem::parse_mb_for))]
    pub mem_per_cpu: Option<u64>,
    /// Memory for each GPU
    #[arg(long, value_name = "SIZE", value_parser = named(spec::mem::parse_mb_for))]
    pub mem_per_gpu: Option<u64>,
    /// CPUs of the node at least
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub mincpus: Option<u32>,
    /// Step back behind others by so much (100 if no value is given)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "100", value_parser = named(job_values::nice))]
    pub nice: Option<i64>,
    /// Hosts to run on, of which there is one
    #[arg(short = 'w', long, value_name = "HOSTS", value_parser = value(spec::hostlist::parse))]
    pub nodelist: Option<HostList>,
    /// Nodes, at least and at most; there is one
    #[arg(short = 'N', long, value_name = "MIN[-MAX]", value_parser = value(spec::nodes::parse))]
    pub nodes: Option<NodeCount>,
    /// Tasks
    #[arg(short = 'n', long, value_name = "N", value_parser = named(spec::count::parse))]
    pub ntasks: Option<u32>,
    /// Tasks on each core at most
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub ntasks_per_core: Option<u32>,
    /// Tasks for each GPU
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub ntasks_per_gpu: Option<u32>,
    /// Tasks of the node; sets --ntasks where that is not given
    #[arg(long, alias = "tasks-per-node", value_name = "N", value_parser = named(spec::count::parse))]
    pub ntasks_per_node: Option<u32>,
    /// Tasks on each socket at most
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub ntasks_per_socket: Option<u32>,
    /// More tasks than CPUs: they share the CPUs of one
    #[arg(short = 'O', long)]
    pub overcommit: bool,
    /// Share the host's resources with other jobs
    #[arg(short = 's', long, overrides_with = "exclusive")]
    pub oversubscribe: bool,
    /// Partition
    #[arg(short, long, value_name = "NAMES")]
    pub partition: Option<String>,
    /// Priority, or TOP
    #[arg(long, value_name = "N", value_parser = named(job_values::priority))]
    pub priority: Option<u32>,
    /// Quality of service; kept and shown
    #[arg(short, long, value_name = "NAME")]
    pub qos: Option<String>,
    /// Reservation, of which there are none
    #[arg(long, value_name = "NAME")]
    pub reservation: Option<String>,
    /// Signal before the time limit: [B:]SIGNAL[@SECONDS]
    #[arg(long, value_name = "SPEC", value_parser = value(spec::signal::parse_warn))]
    pub signal: Option<WarnSignal>,
    /// Sockets that the host must have
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub sockets_per_node: Option<u32>,
    /// Threads of each core to use; the rest of its cores stays empty
    #[arg(long, value_name = "N", value_parser = named(spec::count::parse))]
    pub threads_per_core: Option<u32>,
    /// Time limit: minutes, minutes:seconds, hours:minutes:seconds, days-hours, …
    #[arg(short, long, value_name = "TIME", value_parser = named(spec::time::parse_limit_for))]
    pub time: Option<Limit>,
    /// The time limit may be shortened to this to start earlier
    #[arg(long, value_name = "TIME", value_parser = named(spec::time::parse_limit_for))]
    pub time_min: Option<Limit>,
    /// Resources for each task: cpu:N,gres/gpu:N
    #[arg(long, value_name = "LIST", value_parser = unless_empty(job_values::tres_per_task))]
    pub tres_per_task: Option<Maybe<PerTask>>,
    /// User to run as, who is you
    #[arg(long, value_name = "USER")]
    pub uid: Option<String>,
    /// Workload characterization key; kept and shown
    #[arg(long, value_name = "KEY")]
    pub wckey: Option<String>,
}
