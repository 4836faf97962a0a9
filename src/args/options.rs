//! The options that sbatch, srun and salloc share, as they are written. `submit` gives them their meaning.

use clap::Args;

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
    /// Print JSON
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml")]
    json: Option<Option<String>>,
    /// Print YAML
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json")]
    yaml: Option<Option<String>>,
}

/// Machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Json,
    Yaml,
}

impl DataOpts {
    pub fn machine(&self) -> Option<Machine> {
        match (&self.json, &self.yaml) {
            (Some(_), _) => Some(Machine::Json),
            (None, Some(_)) => Some(Machine::Yaml),
            (None, None) => None,
        }
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
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAME")]
    pub clusters: Option<String>,
    /// Free text kept with the job
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Features that the host must have
    #[arg(short = 'C', long, value_name = "FEATURES")]
    pub constraint: Option<String>,
    /// CPUs for each task
    #[arg(short, long, value_name = "N")]
    pub cpus_per_task: Option<String>,
    /// CPUs for each GPU
    #[arg(long, value_name = "N")]
    pub cpus_per_gpu: Option<String>,
    /// Remove the job if it cannot end before this time
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Jobs to wait for: afterok:12, afterany:12:13, singleton
    #[arg(short, long, value_name = "KIND:JOB")]
    pub dependency: Option<String>,
    /// Hosts not to run on
    #[arg(short = 'x', long, value_name = "HOSTS")]
    pub exclude: Option<String>,
    /// Share the host with no other job
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, overrides_with = "oversubscribe")]
    pub exclusive: Option<Option<String>>,
    /// Group to run as, which is yours
    #[arg(long, value_name = "GROUP")]
    pub gid: Option<String>,
    /// GPUs: [MODEL:]N
    #[arg(short = 'G', long, value_name = "N")]
    pub gpus: Option<String>,
    /// GPUs of the node: [MODEL:]N
    #[arg(long, value_name = "N")]
    pub gpus_per_node: Option<String>,
    /// GPUs for each socket: [MODEL:]N
    #[arg(long, value_name = "N")]
    pub gpus_per_socket: Option<String>,
    /// GPUs for each task: [MODEL:]N
    #[arg(long, value_name = "N")]
    pub gpus_per_task: Option<String>,
    /// Generic resources of the node: gpu[:MODEL][:N]
    #[arg(long, value_name = "LIST")]
    pub gres: Option<String>,
    /// Submit the job held
    #[arg(short = 'H', long)]
    pub hold: bool,
    /// Name of the job
    #[arg(short = 'J', long, value_name = "NAME")]
    pub job_name: Option<String>,
    /// Cancel the job when its dependency can never be met: yes or no
    #[arg(long, value_name = "YES|NO")]
    pub kill_on_invalid_dep: Option<String>,
    /// Licenses; kept and shown
    #[arg(short = 'L', long, value_name = "NAMES")]
    pub licenses: Option<String>,
    /// When mail would be sent; kept and shown
    #[arg(long, value_name = "EVENTS")]
    pub mail_type: Option<String>,
    /// Who would get mail; kept and shown
    #[arg(long, value_name = "USER")]
    pub mail_user: Option<String>,
    /// Memory for the job: 512M, 8G; a bare number is MB; 0 is all of it
    #[arg(long, value_name = "SIZE")]
    pub mem: Option<String>,
    /// Memory for each CPU
    #[arg(long, value_name = "SIZE")]
    pub mem_per_cpu: Option<String>,
    /// Memory for each GPU
    #[arg(long, value_name = "SIZE")]
    pub mem_per_gpu: Option<String>,
    /// CPUs of the node at least
    #[arg(long, value_name = "N")]
    pub mincpus: Option<String>,
    /// Step back behind others by so much (100 if no value is given)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    pub nice: Option<Option<String>>,
    /// Hosts to run on, of which there is one
    #[arg(short = 'w', long, value_name = "HOSTS")]
    pub nodelist: Option<String>,
    /// Nodes, at least and at most; there is one
    #[arg(short = 'N', long, value_name = "MIN[-MAX]")]
    pub nodes: Option<String>,
    /// Tasks
    #[arg(short = 'n', long, value_name = "N")]
    pub ntasks: Option<String>,
    /// Tasks for each GPU
    #[arg(long, value_name = "N")]
    pub ntasks_per_gpu: Option<String>,
    /// Tasks of the node; sets --ntasks where that is not given
    #[arg(long, value_name = "N")]
    pub ntasks_per_node: Option<String>,
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
    #[arg(long, value_name = "N")]
    pub priority: Option<String>,
    /// Quality of service; kept and shown
    #[arg(short, long, value_name = "NAME")]
    pub qos: Option<String>,
    /// Reservation; kept and shown
    #[arg(long, value_name = "NAME")]
    pub reservation: Option<String>,
    /// Signal before the time limit: [B:]SIGNAL[@SECONDS]
    #[arg(long, value_name = "SPEC")]
    pub signal: Option<String>,
    /// Time limit: minutes, minutes:seconds, hours:minutes:seconds, days-hours, …
    #[arg(short, long, value_name = "TIME")]
    pub time: Option<String>,
    /// The time limit may be shortened to this to start earlier
    #[arg(long, value_name = "TIME")]
    pub time_min: Option<String>,
    /// Resources for each task: cpu:N,gres/gpu:N
    #[arg(long, value_name = "LIST")]
    pub tres_per_task: Option<String>,
    /// User to run as, who is you
    #[arg(long, value_name = "USER")]
    pub uid: Option<String>,
    /// Workload characterization key; kept and shown
    #[arg(long, value_name = "KEY")]
    pub wckey: Option<String>,
}
