//! All integration tests in one program, which links faster than many programs, and in which the
//! tests share the CPUs until the end. The files next to this directory are also separate programs:
//! `cargo test --test scheduling`.

mod architecture;
#[path = "../array.rs"]
mod array;
mod bad_input;
#[path = "../begin.rs"]
mod begin;
mod beside;
mod book;
mod break_points;
#[path = "../cancellation.rs"]
mod cancellation;
mod cgroup;
#[path = "../cli_basic.rs"]
mod cli_basic;
mod client_cost;
mod clocks;
mod clusters;
#[path = "../compound_scheduling.rs"]
mod compound_scheduling;
#[path = "../constraint.rs"]
mod constraint;
#[path = "../control.rs"]
mod control;
mod cores;
#[path = "../cpu_bind.rs"]
mod cpu_bind;
mod crowds;
mod database;
#[path = "../dependency_variants.rs"]
mod dependency_variants;
mod english;
mod examples;
mod failing;
mod gpus;
mod history;
mod host_use;
mod install;
mod jobmgr;
mod leaks;
mod licenses;
mod log;
mod long_answers;
mod lost_daemon;
mod lost_database;
mod mail;
mod measuring;
mod mpi;
mod nested_daemon;
#[path = "../notify.rs"]
mod notify;
mod other_commands;
#[path = "../output_files.rs"]
mod output_files;
mod over_time;
mod preemption;
mod published;
mod qos;
#[path = "../query_sacct.rs"]
mod query_sacct;
#[path = "../query_squeue.rs"]
mod query_squeue;
mod reboot;
mod recorded_slurm;
#[path = "../recovery.rs"]
mod recovery;
mod report;
#[path = "../requeue.rs"]
mod requeue;
mod reservations;
mod resize;
#[path = "../resource_flags.rs"]
mod resource_flags;
mod retry_drain_edit;
#[path = "../salloc.rs"]
mod salloc;
#[path = "../sbatch_options.rs"]
mod sbatch_options;
#[path = "../scheduling.rs"]
mod scheduling;
mod scrontab;
mod shortcut;
mod sick_disk;
mod sick_host;
#[path = "../sinfo.rs"]
mod sinfo;
mod site;
mod snapshot;
mod source;
#[path = "../srun.rs"]
mod srun;
#[path = "../srun_allocation.rs"]
mod srun_allocation;
#[path = "../srun_interactive.rs"]
mod srun_interactive;
#[path = "../srun_modes.rs"]
mod srun_modes;
#[path = "../srun_options.rs"]
mod srun_options;
mod submit;
#[path = "../timeout.rs"]
mod timeout;
mod top;
mod trust;
#[path = "../update.rs"]
mod update;
#[path = "../warning_signal.rs"]
mod warning_signal;
mod watch;
mod web;
mod webhook;
mod why;
