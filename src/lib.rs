//! slotd: Slurm for one machine.
//!
//! A pure scheduling core makes the decisions, thin actix actors carry them out, diesel stores
//! them, and the command line queries the daemon over a Unix socket. This page is the architecture
//! overview.
//!
//! # Layers
//!
//! Each folder of `src` is a layer. Those from `model` to `shortcut` are crates (`slotd_model`), and
//! their `Cargo.toml` says which others they may use. The rest are modules of this crate;
//! `tests/it/architecture.rs` defines which layers each of them may use, and checks the source.
//! Pure layers only compute: they use no files, processes, sockets, environment variables or
//! clocks. They receive the time, the settings and the facts about the host as arguments.
//!
//! A crate makes public only what another crate uses, so that the compiler finds unused code. The
//! unit tests of this crate use the builders in `sched::testing`, `store::testing` and
//! `render::fixture`; the feature `test-support`, which no other build has, adds them.
//!
//! | layer | contents | pure |
//! |---|---|---|
//! | `model` | the vocabulary: job, run state, step, update, query, refusal, states, reasons, trackable resources (TRES) | yes |
//! | `parse` | parsers from user input to model values, one grammar per file | yes |
//! | `sched` | decisions: which jobs are admitted, which run now, which wait and why, how a job ends | yes |
//! | `stepmgr` | the step manager's decisions: its language, dependencies between steps, which step starts next | yes |
//! | `render` | printers from model values to text: layout, one table of fields per command, records, JSON | yes |
//! | `protocol` | requests, answers and their framing | yes |
//! | `store` | the database: migrations, rows, commits, queries of the history | |
//! | `sys` | this machine: /proc, clocks, users, paths, CPUs, memory, GPUs, sockets with descriptors | |
//! | `exec` | starting, watching and stopping processes; job directory, environment, cgroup, binding, output | |
//! | `shortcut` | submits plain jobs before the C library of `sbatch` has started | |
//! | `tui` | `slotd top`: its state, its key bindings, how it is drawn | yes |
//! | `live` | the queue as a watching client holds it, and its requests after each change | yes |
//! | `actors` | shells around `sched`, `store` and `exec`, which translate messages, call them and carry out effects | |
//! | `daemon` | wiring and life cycle: settings, lock, listener, sessions, log | |
//! | `client` | the commands' side of the socket: connecting, requests, waiting, running tasks in the foreground | |
//! | `clusters` | other clusters, which `-M` names: `clusters.toml`, programs run by ssh, submissions made exactly once | |
//! | `stepmgrd` | the step manager's I/O: its loop, its socket, its journal, its connection to the daemon | |
//! | `args` | code shared by all command lines: getopt behavior, precedence, errors | |
//! | `commands` | one file per command, and the table of all commands | |
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
//!                            │                      ├──LaunchJob, StopJob, …──► RunnerActor (one per job)
//!                        ReaderActors               │                             │  └─ exec: launcher ─► watcher ─► tasks
//!                       (sacct, read only)          │   ◄── StepStarted, StepEnded, JobEnded
//!                                                   ├──ReadGpus──► GpuInventoryActor
//!                                                   │   ◄── GpusChanged, GpusRead
//!                                                   └──Notify──► NotifierActor (SLOTD_NOTIFY_CMD, mail, posts)
//! ```
//!
//! Commands are imperative (`SubmitJob`) and have an answer. Facts are in the past tense
//! (`JobEnded`) and have none. `actors/messages.rs` defines all of them, by receiver. The launcher
//! is a small separate process that forks a watcher for a step if no watcher is idle. A watcher
//! outlives the daemon and records how its tasks ended; the next daemon adopts it.
//!
//! # Life of a job
//!
//! ```text
//!              submit                plan                 processes exit
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
//! `model::JobState::can_become` is the table of transitions. Only `sched::core` changes a state.
//! The reason of a pending job is computed when it is queried, with one predicate per reason
//! (`sched::blockers`).
//!
//! # Order of effects
//!
//! A decision is a list of changes and a list of effects. The changes are committed first. Then
//! come the launches, then the answers, then the notify hook. Ending and signaling running
//! processes is an exception: it happens immediately and is recorded afterwards, so that a job that
//! fills the disk can still be killed. A job that is stopped before its launch never starts
//! (`actors::scheduler::in_flight`).
//!
//! It follows that:
//!
//! * a job is RUNNING in the database before its process exists;
//! * its end is in the database before the next job with its resources has a process;
//! * `sbatch` prints a job ID only when the job is durable.
//!
//! The decisions of a round are committed together with their cause: a job that starts immediately
//! costs one write to the disk, and its end costs another, which also starts the next job.
//!
//! Clients that mirror the queue (`Request::Watch`) are notified of each decision as it is made.
//! The notification says what to fetch again, not the new values. Changes between two requests of a
//! client are merged into one message of bounded length.
//!
//! Nothing polls. Each fact requests a scheduling round, and any number of facts share one round.
//! There is one timer, set for whatever is due next; an idle daemon does not wake up.
//!
//! # Where do I add …
//!
//! | addition | place |
//! |---|---|
//! | a text that is stored with a job | its field and its line in `kept_texts!` of `model/request.rs`, its row in `args/kept.rs`, its row in `render/job_facts.rs`. Then record the help texts again (`tests/README.md`) |
//! | another job option | the field in `model/request.rs`; the option with its heading and the line that copies it in `args/options.rs` (or the command's own file), its variables in `args/variables.rs`; its row in `render/job_facts.rs`. If it can be changed: a variant of `model::Update` (`model/update.rs`; the compiler reports every place to extend), its row in `commands/changes.rs`. Then record the help texts again |
//! | a fact about a run | its field in `model::RunState`, the place that sets it (`sched/lifecycle.rs`), its row in `render` |
//! | an update for `scontrol update` and `slotd edit` | for a stored text: a variant of `model::request::KeptText`; otherwise a variant of `model::Update` with its stage and its effect (the compiler reports both places), its row in `commands/changes.rs` |
//! | a filter for squeue, sacct or scancel | a field of `model::JobQuery` and its line in the matcher, the option of the command |
//! | an end state | a line in the table of `model/state.rs`, with its outcome, and no longer one in `ABSENT` of `parse/states.rs` (a test checks this). The compiler reports the rest: its transitions, `slotd why`, `slotd report`, `salloc`, whether `--requeue` runs the job again. Then the cause that leads to it: `sched::EndCause`, `Ending` in `sched/lifecycle.rs` |
//! | a state of a job that has not ended | a line in the same table; the compiler reports the rest. `is_over` in `tests/kit` |
//! | a cause that drains the node | `sched/resources/node.rs`. Whether a failed launch is the host's fault: `exec/error.rs` |
//! | a reason | a line in `model/reason.rs`, a predicate in `sched/blockers.rs` |
//! | a grammar | a file in `parse` with `parse`, and `parse(print(x)) == x` as its property test. If its value is stored as text: its reader in `model/read`, which `parse` calls |
//! | a refusal | a variant of `model::Refusal` with its text |
//! | a command | a file in `commands`, a line in its table |
//! | a setting | a row of the table in `daemon/settings.rs` |
//! | a view of the `slotd web` page | its files in `commands/web/page`, its requests in `commands/web`, its test in `tests/web/browse.py` |
//! | a column | a migration, `store/schema.rs`, `store/row.rs` |

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]

/// Prints a line to standard error. Unlike `eprintln!`, it does not end the process if that fails:
/// an error on standard error cannot be reported anywhere.
macro_rules! report {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod actors;
mod args;
mod client;
mod clusters;
mod commands;
mod daemon;
mod live;
mod stepmgrd;
mod tui;

/// Entry points for `tests/fuzz`.
#[cfg(fuzzing)]
pub use commands::fuzz;

/// Runs the daemon, the launcher, or the command that the program was invoked as, and exits.
pub fn main() -> ! {
    std::process::exit(commands::main().into())
}
