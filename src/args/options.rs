//! The options that sbatch, srun and salloc share. `submit` makes a request of them.

use crate::args::headings::{CPUS, GPUS, MEMORY, RUNS, WHEN, WHERE};
use crate::args::job_values::{self, NodeShape, PerTask};
use crate::args::kept::KeptOpts;
use crate::args::value::{Maybe, named, unless_empty, value};
use crate::model::dependency::Dependency;
use crate::model::placement::{Distribution, Hint, MemBind};
use crate::model::request::{NodeCount, Sharing, WarnSignal};
use crate::model::{Constraint, HostList, JobRequest};
use crate::parse::error::shown;
use crate::parse::gres::{GpuAsk, GresAsk};
use crate::parse::{self, SpecError};
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
    /// Print this help
    #[arg(short = 'h', long)]
    pub help: bool,
    #[command(flatten)]
    pub common: CommonOpts,
    /// Hide messages that are only news
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// Name of the job
    #[arg(short = 'J', long, value_name = "NAME", help_heading = RUNS)]
    pub job_name: Option<String>,
    /// Where to run; relative to the present directory
    #[arg(short = 'D', long, value_name = "DIRECTORY", help_heading = RUNS)]
    pub chdir: Option<String>,
    /// User to run as: you, or for root the user whose daemon gets the job
    #[arg(long, value_name = "USER", help_heading = RUNS)]
    pub uid: Option<String>,
    /// Group to run as, which is yours
    #[arg(long, value_name = "GROUP", help_heading = RUNS)]
    pub gid: Option<String>,
    /// CPUs for each task
    #[arg(short, long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub cpus_per_task: Option<u32>,
    /// Tasks
    #[arg(short = 'n', long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub ntasks: Option<u32>,
    /// Nodes, at least and at most; there is one
    #[arg(short = 'N', long, value_name = "MIN[-MAX]", value_parser = value(parse::nodes::parse), help_heading = CPUS)]
    pub nodes: Option<NodeCount>,
    /// Tasks of the node; sets --ntasks where that is not given
    #[arg(long, alias = "tasks-per-node", value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub ntasks_per_node: Option<u32>,
    /// Tasks on each core at most
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub ntasks_per_core: Option<u32>,
    /// Tasks on each socket at most
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub ntasks_per_socket: Option<u32>,
    /// CPUs of the node at least
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub mincpus: Option<u32>,
    /// Cores that a socket must have
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub cores_per_socket: Option<u32>,
    /// Sockets that the host must have
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub sockets_per_node: Option<u32>,
    /// Threads of each core to use; the rest of its cores stays empty
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = CPUS)]
    pub threads_per_core: Option<u32>,
    /// Sockets, cores of each and threads of each that the host must have: S[:C[:T]]
    #[arg(short = 'B', long, value_name = "S:C:T", value_parser = value(job_values::node_shape), help_heading = CPUS)]
    pub extra_node_info: Option<NodeShape>,
    /// What the program is bound by: compute_bound, memory_bound, nomultithread (one thread of each
    /// core), multithread
    #[arg(long, value_name = "WORD", value_parser = value(job_values::hint), help_heading = CPUS)]
    pub hint: Option<Hint>,
    /// Share the host with no other job
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, overrides_with = "oversubscribe", default_missing_value = "", value_parser = named(job_values::sharing), help_heading = CPUS)]
    pub exclusive: Option<Sharing>,
    /// Share the host's resources with other jobs
    #[arg(short = 's', long, overrides_with = "exclusive", help_heading = CPUS)]
    pub oversubscribe: bool,
    /// More tasks than CPUs: they share the CPUs of one
    #[arg(short = 'O', long, help_heading = CPUS)]
    pub overcommit: bool,
    /// How tasks are dealt out to sockets: block, cyclic, plane=N; after a colon block, cyclic or
    /// fcyclic
    #[arg(short = 'm', long, value_name = "HOW", value_parser = value(parse::distribution::parse), help_heading = CPUS)]
    pub distribution: Option<Distribution>,
    /// Resources for each task: cpu:N,gres/gpu:N
    #[arg(long, value_name = "LIST", value_parser = unless_empty(job_values::tres_per_task), help_heading = CPUS)]
    pub tres_per_task: Option<Maybe<PerTask>>,
    /// Memory for the job: 512M, 8G; a bare number is MB; 0 is all of it
    #[arg(long, value_name = "SIZE", value_parser = named(parse::mem::parse_mb_for), help_heading = MEMORY)]
    pub mem: Option<u64>,
    /// Memory for each CPU
    #[arg(long, value_name = "SIZE", value_parser = named(parse::mem::parse_mb_for), help_heading = MEMORY)]
    pub mem_per_cpu: Option<u64>,
    /// Memory for each GPU
    #[arg(long, value_name = "SIZE", value_parser = named(parse::mem::parse_mb_for), help_heading = MEMORY)]
    pub mem_per_gpu: Option<u64>,
    /// NUMA nodes that tasks have their memory from: local, rank, map_mem:0,1, mask_mem:0x3, none;
    /// prefer, verbose
    #[arg(long, alias = "mem_bind", value_name = "MODE", value_parser = value(parse::mem_bind::parse), help_heading = MEMORY)]
    pub mem_bind: Option<MemBind>,
    /// GPUs: [MODEL:]N
    #[arg(short = 'G', long, value_name = "N", value_parser = value(parse::gres::parse_gpus), help_heading = GPUS)]
    pub gpus: Option<GpuAsk>,
    /// GPUs of the node: [MODEL:]N
    #[arg(long, value_name = "N", value_parser = value(parse::gres::parse_gpus), help_heading = GPUS)]
    pub gpus_per_node: Option<GpuAsk>,
    /// GPUs for each task: [MODEL:]N
    #[arg(long, value_name = "N", value_parser = value(parse::gres::parse_gpus), help_heading = GPUS)]
    pub gpus_per_task: Option<GpuAsk>,
    /// GPUs for each socket: [MODEL:]N
    #[arg(long, value_name = "N", value_parser = value(parse::gres::parse_gpus), help_heading = GPUS)]
    pub gpus_per_socket: Option<GpuAsk>,
    /// CPUs for each GPU
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = GPUS)]
    pub cpus_per_gpu: Option<u32>,
    /// Tasks for each GPU
    #[arg(long, value_name = "N", value_parser = named(parse::count::parse), help_heading = GPUS)]
    pub ntasks_per_gpu: Option<u32>,
    /// Generic resources of the node: gpu[:MODEL][:N], gpumem:SIZE, shard:N
    #[arg(long, value_name = "LIST", value_parser = value(job_values::gres), help_heading = GPUS)]
    pub gres: Option<Maybe<GresAsk>>,
    /// Time limit: minutes, minutes:seconds, hours:minutes:seconds, days-hours, …
    #[arg(short, long, value_name = "TIME", value_parser = named(parse::time::parse_limit_for), help_heading = WHEN)]
    pub time: Option<Limit>,
    /// The time limit may be shortened to this to start earlier
    #[arg(long, value_name = "TIME", value_parser = named(parse::time::parse_limit_for), help_heading = WHEN)]
    pub time_min: Option<Limit>,
    /// Start at this time or later: now+1hour, 16:00, tomorrow, 2030-01-02T03:04:05
    #[arg(short, long, value_name = "TIME", help_heading = WHEN)]
    pub begin: Option<String>,
    /// Remove the job if it cannot end before this time
    #[arg(long, value_name = "TIME", help_heading = WHEN)]
    pub deadline: Option<String>,
    /// Jobs to wait for: afterok:12, afterany:12:13, singleton
    #[arg(short, long, value_name = "KIND:JOB", value_parser = value(parse::dependency::parse), help_heading = WHEN)]
    pub dependency: Option<Dependency>,
    /// Cancel the job when its dependency can never be met: yes or no
    #[arg(long, value_name = "YES|NO", value_parser = named(job_values::yes_or_no), help_heading = WHEN)]
    pub kill_on_invalid_dep: Option<bool>,
    /// Submit the job held
    #[arg(short = 'H', long, help_heading = WHEN)]
    pub hold: bool,
    /// Priority, or TOP
    #[arg(long, value_name = "N", value_parser = named(job_values::priority), help_heading = WHEN)]
    pub priority: Option<Maybe<u32>>,
    /// Step back behind others by so much (100 if no value is given)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "100", value_parser = named(job_values::nice), help_heading = WHEN)]
    pub nice: Option<i64>,
    /// Signal before the time limit: [B:]SIGNAL[@SECONDS]
    #[arg(long, value_name = "SPEC", value_parser = value(parse::signal::parse_warn), help_heading = WHEN)]
    pub signal: Option<WarnSignal>,
    /// Partition
    #[arg(short, long, value_name = "NAMES", help_heading = WHERE)]
    pub partition: Option<String>,
    /// Features that the host must have
    #[arg(short = 'C', long, value_name = "FEATURES", value_parser = unless_empty(parse::constraint::parse), help_heading = WHERE)]
    pub constraint: Option<Maybe<Constraint>>,
    /// Features that would be nice to have: known ones are shown, unknown ones refused
    #[arg(long, value_name = "FEATURES", value_parser = unless_empty(parse::constraint::parse_preference), help_heading = WHERE)]
    pub prefer: Option<Maybe<Constraint>>,
    /// Ask for neighbouring nodes: shown, one host has one
    #[arg(long, help_heading = WHERE)]
    pub contiguous: bool,
    /// Hosts to run on, of which there is one
    #[arg(short = 'w', long, value_name = "HOSTS", value_parser = value(parse::hostlist::parse), help_heading = WHERE)]
    pub nodelist: Option<HostList>,
    /// Hosts not to run on
    #[arg(short = 'x', long, value_name = "HOSTS", value_parser = value(parse::hostlist::parse), help_heading = WHERE)]
    pub exclude: Option<HostList>,
    /// Cluster to submit to, of which there is one
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAME", value_parser = unless_empty(parse::cluster::parse), help_heading = WHERE)]
    pub clusters: Option<Maybe<&'static str>>,
    #[command(flatten)]
    pub kept: KeptOpts,
}

impl JobOpts {
    /// Writes what needs nothing but itself to be understood.
    pub fn write(&self, request: &mut JobRequest) {
        request.ntasks = self.ntasks;
        request.ntasks_per_node = self.ntasks_per_node;
        request.cpus_per_task = self.cpus_per_task;
        request.nodes = self.nodes;
        request.overcommit = self.overcommit;
        request.mincpus = self.mincpus;
        request.time_limit_secs = self.time.flatten();
        request.time_min_secs = self.time_min.flatten();
        request.dependency = self.dependency.clone().unwrap_or_default();
        // A priority of 0 is a hold.
        request.hold = self.hold || self.priority == Some(Some(0));
        request.priority = self.priority.flatten().filter(|priority| *priority > 0);
        request.constraint = self.constraint.clone().flatten();
        request.prefer = self.prefer.clone().flatten();
        request.contiguous = self.contiguous;
        request.nodelist = self.nodelist.clone().unwrap_or_default();
        request.exclude = self.exclude.clone().unwrap_or_default();
        request.signal = self.signal;
        request.kill_on_invalid_dep = self.kill_on_invalid_dep.unwrap_or(false);
        self.kept.write(request);
    }
}
