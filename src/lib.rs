//! slotd: Slurm for one machine.
//!
//! A pure scheduling core decides, thin actix actors carry its decisions out, diesel remembers, and
//! the command line asks over a Unix socket and prints. This page is the map of the house.
//!
//! # Layers
//!
//! Each folder of `src` is a layer. A layer uses only those that the table names, and
//! `tests/it/architecture.rs` holds the source against it. The pure layers compute: no file,
//! process, socket, environment variable or clock. The time, the settings and the facts about the
//! host are arguments there.
//!
//! | module | what it is | pure |
//! |---|---|---|
//! | `model` | the words: job, run state, step, update, query, refusal, states, reasons, trackable resources (TRES) | yes |
//! | `parse` | text that a user writes, to those values: one grammar a file | yes |
//! | `sched` | decisions: who is admitted, who runs now, who waits and why, how a job ends | yes |
//! | `stepmgr` | the step manager's decisions: its language, who waits for whom, which step starts next | yes |
//! | `render` | those values to text: one layout, one table of fields a command, records, JSON | yes |
//! | `tui` | what `slotd top` shows: its state, what keys do to it, how it is drawn | yes |
//! | `protocol` | requests and answers, and the frames that carry them | yes |
//! | `store` | the database: migrations, rows, commits, questions about the past | |
//! | `sys` | this machine: /proc, clocks, users, paths, CPUs, memory, GPUs, sockets with descriptors | |
//! | `exec` | starting, watching and stopping processes; job directory, environment, cgroup, binding, output | |
//! | `actors` | shells around `sched`, `store` and `exec`: translate, call, carry out | |
//! | `daemon` | wiring and life cycle: settings, lock, listener, sessions, log | |
//! | `client` | the command's side of the socket: connect, ask, wait, run tasks in the foreground | |
//! | `stepmgrd` | the step manager carried out: its loop, its socket, its journal, its line to the daemon | |
//! | `args` | what the command lines share: getopt's manners, precedence, refusals | |
//! | `commands` | one file a command, and the one table of all commands | |
//!
//! # Message graph
//!
//! ```text
//!  sbatch, squeue, …          srun, salloc
//!        │  unix socket            │  the same, with descriptors
//!        ▼                         ▼
//!  daemon::listener ──► daemon::session ──► SchedulerActor ──Commit──► StoreActor
//!                            ▲   ▲               ▲  │  ▲                   │
//!                            │   └── answers ────┘  │  └──── Committed ────┘
//!                            │                      ├──LaunchJob, StopJob, …──► RunnerActor (one a job)
//!                        ReaderActors               │                             │  └─ exec: launcher ─► watcher ─► tasks
//!                       (sacct, read only)          │   ◄── StepStarted, StepEnded, JobEnded
//!                                                   ├──ReadGpus──► GpuInventoryActor
//!                                                   │   ◄── GpusChanged, GpusRead
//!                                                   └──Notify──► NotifierActor (SLOTD_NOTIFY_CMD, mail, posts)
//! ```
//!
//! Commands are imperative (`SubmitJob`) and have an answer. Facts are in the past tense
//! (`JobEnded`) and have none. All of them stand in `actors/messages.rs`, by receiver. The launcher
//! is a small process of its own that forks a watcher for a step that finds none waiting. A watcher
//! outlives the daemon and writes down how its tasks ended; the next daemon adopts it.
//!
//! # Life of a job
//!
//! ```text
//!              submit                plan                 processes gone
//!   (nothing) ───────► PENDING ───────────────► RUNNING ─────────────────► COMPLETED, FAILED, OUT_OF_MEMORY
//!                       │   ▲  ▲                 │  ▲ │
//!     scancel, deadline │   │  │   suspend/resume│  │ │ scancel, time limit, deadline
//!                       │   │  │                 ▼  │ ▼
//!                       │   │  │           SUSPENDED COMPLETING ─────────► CANCELLED, TIMEOUT, OUT_OF_MEMORY
//!                       ▼   │  │                          │
//!               CANCELLED   │  └──────── requeue ─────────┤
//!                           └─── requeue of an ended job ─┘
//! ```
//!
//! The table of transitions is `model::JobState::can_become`; the one place where a state changes
//! is `sched::core`. Why a pending job waits is worked out when it is asked for, one predicate a
//! reason (`sched::blockers`).
//!
//! # Order of effects
//!
//! A decision is a list of changes and a list of effects. The changes are committed first. Then
//! come the launches, then the answers, then the notify hook. What ends or signals running
//! processes acts at once and is recorded after, so that a full disk never protects the job that
//! fills it; a job that is stopped before its launch never starts (`actors::scheduler::in_flight`).
//! So a job is RUNNING in the database before its process exists, its end is there before the next
//! one with its resources has a process, and `sbatch` prints a number only when the job is durable.
//! What a round decides is committed with what asked for it: a job that starts at once is one write
//! to the disk, and its end is another, which starts the next.
//!
//! Whoever keeps a picture of the queue (`Request::Watch`) is told of each decision as it is made:
//! where to look again, and not what is there. What changes before the client asks again is told in
//! one message of bounded length.
//!
//! Nothing polls. Each fact asks for one scheduling round, and any number of facts share one. There
//! is one timer, set for what is due next; an idle daemon does not wake up.
//!
//! # Where do I add …
//!
//! | what | where |
//! |---|---|
//! | a text that is kept with a job | its field and its line in `kept_texts!` of `model/request.rs`, its row in `args/kept.rs`, its row in `render/job_facts.rs`. Then record the help texts anew (`tests/README.md`) |
//! | another job option | the field in `model/request.rs`; the option with its heading and the line that copies it in `args/options.rs` (or the command's own file), its variables in `args/variables.rs`; its row in `render/job_facts.rs`. If it can be changed: a variant of `model::Update` with when and how (`model/update.rs`, the compiler names the places), its row in `commands/changes.rs`. Then record the help texts anew |
//! | a fact about a run | `model::RunState`, where it becomes known (`sched/lifecycle.rs`), its row in `render` |
//! | what `scontrol update` and `slotd edit` can change | of a text that is kept: a variant of `model::request::KeptText`; else a variant of `model::Update` with when it is done and what comes of it (the compiler names both places), its row in `commands/changes.rs` |
//! | a filter of squeue, sacct, scancel | a field of `model::JobQuery` and its line in the matcher, the option of the command |
//! | an end state | a line in the table of `model/state.rs`, with how well the job ended (and no longer in `ABSENT` of `parse/states.rs`: a test says so); the compiler names the rest: from where it may come, `slotd why`, `slotd report`, `salloc`, whether `--requeue` runs the job again. Then the cause that leads to it: `sched::EndCause`, `Ending` in `sched/lifecycle.rs` |
//! | a state of a job that is not over | a line in the same table; the compiler names the rest. `is_over` in `tests/kit` |
//! | what keeps the node from taking jobs | `sched/resources/node.rs`; whether a failed launch is the host's fault: `exec/error.rs` |
//! | a reason | a line in `model/reason.rs`, a predicate in `sched/blockers.rs` |
//! | a grammar | a file in `parse` with `parse`, and `parse(print(x)) == x` as its property test |
//! | a refusal | a variant of `model::Refusal` with its text |
//! | a command | a file in `commands`, a line in its table |
//! | a setting | a row of the table in `daemon/settings.rs`, a row of the table in README.md |
//! | a view of the page of `slotd web` | its files in `commands/web/page`, what it asks in `commands/web`, a look at it in `tests/web/browse.py` |
//! | a column | a migration, `store/schema.rs`, `store/row.rs` |

// A fault of one request must not end the daemon, which holds the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]

mod actors;
mod args;
mod client;
mod commands;
mod daemon;
mod exec;
mod model;
mod parse;
mod protocol;
mod render;
mod sched;
mod stepmgr;
mod stepmgrd;
mod store;
mod sys;
mod tui;

/// What `tests/fuzz` calls.
#[cfg(fuzzing)]
pub use commands::fuzz;

/// The cluster's name, where Slurm's tools ask for one.
pub const CLUSTER: &str = "slotd";

/// The version of Slurm whose command lines and output slotd follows.
pub const SLURM_VERSION: &str = "22.05.8";

/// Runs the process to its end: the daemon, the launcher, or a command by the name that it is
/// called by.
pub fn main() -> ! {
    std::process::exit(commands::main().into())
}
