//! The options that sbatch, srun and salloc share. `submit` turns them into a request.

use crate::args::headings::{CPUS, GPUS, MEMORY, RUNS, WHEN, WHERE};
use crate::args::job_values::{self, NodeShape, PerTask};
use crate::args::kept::KeptOpts;
use crate::args::table::options;
use crate::args::value::{Maybe, named, unless_empty, value};
use clap::Args;
use slotd_model::binding::GpuBind;
use slotd_model::dependency::Dependency;
use slotd_model::placement::{Distribution, Hint, MemBind};
use slotd_model::request::{NodeCount, Sharing, Switches, WarnSignal};
use slotd_model::{Constraint, HostList, JobRequest};
use slotd_parse::SpecError;
use slotd_parse::error::shown;
use slotd_parse::gres::{GpuAsk, GresAsk};

/// Seconds; `None` means unlimited.
pub type Limit = Option<u64>;

options! {
    /// Options of every command.
    #[derive(Debug, Clone, Default, Args)]
    pub struct CommonOpts {
        /// Print a one-line usage summary
        #[arg(long)]
        pub usage: bool,
        /// Print the version
        #[arg(short = 'V', long)]
        pub version: bool,
        /// Print more details; may be repeated
        #[arg(short, long, action = clap::ArgAction::Count)]
        pub verbose: u8,
    }
}

options! {
    /// Options for structured output, of the commands that print tables.
    #[derive(Debug, Clone, Default, Args)]
    pub struct DataOpts {
        /// Print JSON in data format v0.0.38 (Slurm 22.05, the default) or v0.0.40
        #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml", default_missing_value = "", value_parser = value(data_version))]
        json: Option<DataVersion>,
        /// Print YAML in the same data formats
        #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json", default_missing_value = "", value_parser = value(data_version))]
        yaml: Option<DataVersion>,
    }
}

/// Machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Json(DataVersion),
    Yaml(DataVersion),
}

/// The version of the data format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataVersion {
    /// v0.0.38 of Slurm 22.05.
    V38,
    /// v0.0.40 of Slurm 23.11.
    V40,
}

fn data_version(text: &str) -> Result<DataVersion, SpecError> {
    match text {
        "" | "v0.0.38" => Ok(DataVersion::V38),
        "v0.0.40" => Ok(DataVersion::V40),
        _ => {
            let unknown =
                SpecError::value(format!("unsupported data format version {}", shown(text)));
            Err(unknown.with_hint("v0.0.38 (Slurm 22.05, the default) or v0.0.40 (Slurm 23.11)"))
        }
    }
}

impl DataOpts {
    pub fn machine(&self) -> Option<Machine> {
        self.json.map(Machine::Json).or(self.yaml.map(Machine::Yaml))
    }
}

options! {
    /// The options that describe a job and its resources.
    #[derive(Debug, Clone, Default, Args)]
    pub struct JobOpts {
        /// Print this help
        #[arg(short = 'h', long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Suppress informational messages
        #[arg(short = 'Q', long)]
        pub quiet: bool,
        /// Set the job name
        #[arg(short = 'J', long, value_name = "NAME", help_heading = RUNS)]
        pub job_name: Option<String>,
        /// Set the working directory; relative paths start at the current directory
        #[arg(short = 'D', long, value_name = "DIRECTORY", help_heading = RUNS)]
        pub chdir: Option<String>,
        /// Select the data to profile: all, none, or a list of energy, lustre, network, task; only
        /// shown
        #[arg(long, value_name = "KINDS", value_parser = value(slotd_parse::profile::parse), help_heading = RUNS)]
        pub profile: Option<String>,
        /// Submit as this user; only root may name another user, whose daemon receives the job
        #[arg(long, value_name = "USER", help_heading = RUNS)]
        pub uid: Option<String>,
        /// Accepted for compatibility; must be the user's own group
        #[arg(long, value_name = "GROUP", help_heading = RUNS)]
        pub gid: Option<String>,
        /// Set the number of CPUs per task
        #[arg(short, long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub cpus_per_task: Option<u32>,
        /// Set the number of tasks
        #[arg(short = 'n', long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub ntasks: Option<u32>,
        /// Set the minimum and maximum number of nodes; there is only one
        #[arg(short = 'N', long, value_name = "MIN[-MAX]", value_parser = value(slotd_parse::nodes::parse), help_heading = CPUS)]
        pub nodes: Option<NodeCount>,
        /// Set the number of tasks on the node, and --ntasks unless it is given
        #[arg(long, alias = "tasks-per-node", value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub ntasks_per_node: Option<u32>,
        /// Run at most this many tasks on each core
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub ntasks_per_core: Option<u32>,
        /// Run at most this many tasks on each socket
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub ntasks_per_socket: Option<u32>,
        /// Require at least this many CPUs on the node
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub mincpus: Option<u32>,
        /// Require this many cores per socket
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub cores_per_socket: Option<u32>,
        /// Require this many sockets on the host
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub sockets_per_node: Option<u32>,
        /// Use this many threads of each core and leave the other threads idle
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = CPUS)]
        pub threads_per_core: Option<u32>,
        /// Require this many sockets, cores per socket and threads per core: S[:C[:T]]
        #[arg(short = 'B', long, value_name = "S:C:T", value_parser = value(job_values::node_shape), help_heading = CPUS)]
        pub extra_node_info: Option<NodeShape>,
        /// Place tasks for this kind of program: compute_bound, memory_bound, multithread or
        /// nomultithread (one thread per core)
        #[arg(long, value_name = "WORD", value_parser = value(job_values::hint), help_heading = CPUS)]
        pub hint: Option<Hint>,
        /// Do not share the host with other jobs
        #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, overrides_with = "oversubscribe", default_missing_value = "", value_parser = named(job_values::sharing), help_heading = CPUS)]
        pub exclusive: Option<Sharing>,
        /// Share resources with other jobs
        #[arg(short = 's', long, overrides_with = "exclusive", help_heading = CPUS)]
        pub oversubscribe: bool,
        /// Run more tasks than CPUs: all tasks share the CPUs of one task
        #[arg(short = 'O', long, help_heading = CPUS)]
        pub overcommit: bool,
        /// Distribute tasks to sockets: block, cyclic or plane=N; then, after a colon, block, cyclic or
        /// fcyclic
        #[arg(short = 'm', long, value_name = "HOW", value_parser = value(slotd_parse::distribution::parse), help_heading = CPUS)]
        pub distribution: Option<Distribution>,
        /// Set the resources of each task: cpu:N,gres/gpu:N
        #[arg(long, value_name = "LIST", value_parser = unless_empty(job_values::tres_per_task), help_heading = CPUS)]
        pub tres_per_task: Option<Maybe<PerTask>>,
        /// Set the memory of the job: 512M, 8G; a bare number is in MB; 0 is all memory
        #[arg(long, value_name = "SIZE", value_parser = named(slotd_parse::mem::parse_mb_for), help_heading = MEMORY)]
        pub mem: Option<u64>,
        /// Set the memory per CPU
        #[arg(long, value_name = "SIZE", value_parser = named(slotd_parse::mem::parse_mb_for), help_heading = MEMORY)]
        pub mem_per_cpu: Option<u64>,
        /// Set the memory per GPU
        #[arg(long, value_name = "SIZE", value_parser = named(slotd_parse::mem::parse_mb_for), help_heading = MEMORY)]
        pub mem_per_gpu: Option<u64>,
        /// Bind the memory of tasks to NUMA nodes: local, rank, map_mem:0,1, mask_mem:0x3 or none, with
        /// prefer or verbose
        #[arg(long, alias = "mem_bind", value_name = "MODE", value_parser = value(slotd_parse::mem_bind::parse), help_heading = MEMORY)]
        pub mem_bind: Option<MemBind>,
        /// Set the number of GPUs: [MODEL:]N
        #[arg(short = 'G', long, value_name = "N", value_parser = value(slotd_parse::gres::parse_gpus), help_heading = GPUS)]
        pub gpus: Option<GpuAsk>,
        /// Set the number of GPUs on the node: [MODEL:]N
        #[arg(long, value_name = "N", value_parser = value(slotd_parse::gres::parse_gpus), help_heading = GPUS)]
        pub gpus_per_node: Option<GpuAsk>,
        /// Set the number of GPUs per task: [MODEL:]N
        #[arg(long, value_name = "N", value_parser = value(slotd_parse::gres::parse_gpus), help_heading = GPUS)]
        pub gpus_per_task: Option<GpuAsk>,
        /// Set the number of GPUs per socket: [MODEL:]N
        #[arg(long, value_name = "N", value_parser = value(slotd_parse::gres::parse_gpus), help_heading = GPUS)]
        pub gpus_per_socket: Option<GpuAsk>,
        /// Set the number of CPUs per GPU
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = GPUS)]
        pub cpus_per_gpu: Option<u32>,
        /// Set the number of tasks per GPU
        #[arg(long, value_name = "N", value_parser = named(slotd_parse::count::parse), help_heading = GPUS)]
        pub ntasks_per_gpu: Option<u32>,
        /// Bind tasks to GPUs: none, single:N, map_gpu:0,1, closest
        #[arg(long, value_name = "MODE", value_parser = value(slotd_parse::gpu_bind::parse), help_heading = GPUS)]
        pub gpu_bind: Option<GpuBind>,
        /// Request generic resources on the node: gpu[:MODEL][:N], gpumem:SIZE, shard:N
        #[arg(long, value_name = "LIST", value_parser = value(job_values::gres), help_heading = GPUS)]
        pub gres: Option<Maybe<GresAsk>>,
        /// Set the time limit: minutes, minutes:seconds, hours:minutes:seconds, days-hours, …
        #[arg(short, long, value_name = "TIME", value_parser = named(slotd_parse::time::parse_limit_for), help_heading = WHEN)]
        pub time: Option<Limit>,
        /// Refuse the job if its time limit, or that of its partition, is below this
        #[arg(long, value_name = "TIME", value_parser = named(slotd_parse::time::parse_limit_for), help_heading = WHEN)]
        pub time_min: Option<Limit>,
        /// Start no earlier than this time: now+1hour, 16:00, tomorrow, 2030-01-02T03:04:05
        #[arg(short, long, value_name = "TIME", help_heading = WHEN)]
        pub begin: Option<String>,
        /// Remove the job if it cannot end before this time
        #[arg(long, value_name = "TIME", help_heading = WHEN)]
        pub deadline: Option<String>,
        /// Wait for other jobs: afterok:12, afterany:12:13, singleton
        #[arg(short, long, value_name = "KIND:JOB", value_parser = value(slotd_parse::dependency::parse), help_heading = WHEN)]
        pub dependency: Option<Dependency>,
        /// Cancel the job if its dependency can never be satisfied: yes or no
        #[arg(long, value_name = "YES|NO", value_parser = named(job_values::yes_or_no), help_heading = WHEN)]
        pub kill_on_invalid_dep: Option<bool>,
        /// Submit the job in held state
        #[arg(short = 'H', long, help_heading = WHEN)]
        pub hold: bool,
        /// Set the priority: a number or TOP
        #[arg(long, value_name = "N", value_parser = named(job_values::priority), help_heading = WHEN)]
        pub priority: Option<Maybe<u32>>,
        /// Lower the priority by this amount (100 if no value is given)
        #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "100", value_parser = named(job_values::nice), help_heading = WHEN)]
        pub nice: Option<i64>,
        /// Send a signal before the time limit: [B:]SIGNAL[@SECONDS]
        #[arg(long, value_name = "SPEC", value_parser = value(slotd_parse::signal::parse_warn), help_heading = WHEN)]
        pub signal: Option<WarnSignal>,
        /// Submit to one of these partitions
        #[arg(short, long, value_name = "NAMES", help_heading = WHERE)]
        pub partition: Option<String>,
        /// Require these features of the host
        #[arg(short = 'C', long, value_name = "FEATURES", value_parser = unless_empty(slotd_parse::constraint::parse), help_heading = WHERE)]
        pub constraint: Option<Maybe<Constraint>>,
        /// Prefer these features; only shown, but unknown ones are refused
        #[arg(long, value_name = "FEATURES", value_parser = unless_empty(slotd_parse::constraint::parse_preference), help_heading = WHERE)]
        pub prefer: Option<Maybe<Constraint>>,
        /// Request adjacent nodes; only shown, since there is one node
        #[arg(long, help_heading = WHERE)]
        pub contiguous: bool,
        /// Limit the number of network switches, and the time to wait for them; only shown
        #[arg(long, value_name = "N[@TIME]", value_parser = named(job_values::switches), help_heading = WHERE)]
        pub switches: Option<Maybe<Switches>>,
        /// Delay the reboot of nodes; only shown
        #[arg(long, value_name = "TIME", value_parser = named(slotd_parse::time::parse_secs_for), help_heading = WHERE)]
        pub delay_boot: Option<Limit>,
        /// Require temporary disk space; only shown
        #[arg(long, value_name = "SIZE", value_parser = named(slotd_parse::mem::parse_mb_for), help_heading = WHERE)]
        pub tmp: Option<u64>,
        /// Run on these hosts; there is only one
        #[arg(short = 'w', long, value_name = "HOSTS", value_parser = value(slotd_parse::hostlist::parse), help_heading = WHERE)]
        pub nodelist: Option<HostList>,
        /// Do not run on these hosts
        #[arg(short = 'x', long, value_name = "HOSTS", value_parser = value(slotd_parse::hostlist::parse), help_heading = WHERE)]
        pub exclude: Option<HostList>,
        /// Submit to this cluster of clusters.toml, or to the one of several that starts the job first
        #[arg(short = 'M', long, alias = "cluster", value_name = "NAME", value_parser = unless_empty(slotd_parse::cluster::parse), help_heading = WHERE)]
        pub clusters: Option<Maybe<&'static str>>,
        #[command(flatten)]
        pub kept: KeptOpts,
    }
}

impl JobOpts {
    /// Copies the options that do not depend on others into the request.
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
        // A priority of 0 holds the job.
        request.hold = self.hold || self.priority == Some(Some(0));
        request.priority = self.priority.flatten().filter(|priority| *priority > 0);
        request.constraint = self.constraint.clone().flatten().map(Box::new);
        request.prefer = self.prefer.clone().flatten().map(Box::new);
        request.contiguous = self.contiguous;
        request.nodelist = self.nodelist.clone().unwrap_or_default();
        request.exclude = self.exclude.clone().unwrap_or_default();
        request.signal = self.signal;
        request.kill_on_invalid_dep = self.kill_on_invalid_dep;
        request.switches = self.switches.flatten();
        request.delay_boot_secs = self.delay_boot.flatten();
        request.tmp_disk_mb = self.tmp;
        request.profile = self.profile.clone();
        request.gpu_bind = self.gpu_bind.clone().map(Box::new);
        self.kept.write(request);
    }
}
