//! The commands of `scontrol`.

use super::show::Show;
use slotd_model::JobRef;
use slotd_model::job::Hold;
use slotd_model::node::NodeOrder;
use slotd_model::reservation::ReservationOrder;
use slotd_model::update::Update;

/// Jobs named by number or by name (`jobname=x`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Jobs(Vec<JobRef>),
    Name(String),
}

/// A command for an interactive session (scontrol man page, "INTERACTIVE COMMANDS").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `all` and `hide`: there are no hidden partitions.
    Partitions,
    Details,
    Oneliner,
    Quiet,
    Verbose,
    /// `exit` and `quit`
    End,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum Command {
    Show(Show),
    Hold(Vec<Target>),
    /// A hold that the job's owner may release.
    UserHold(Vec<Target>),
    Release(Vec<Target>),
    /// With this hold, if any.
    Requeue(Vec<JobRef>, Option<Hold>),
    Suspend(Vec<Target>),
    Resume(Vec<Target>),
    /// `update JobId=…`. Never empty.
    Update {
        target: Target,
        updates: Vec<Update>,
    },
    /// `update StepId=…`. Without a step, all numbered steps of the job.
    UpdateStep {
        step: JobRef,
        limit: Update,
    },
    UpdatePartition {
        name: String,
        settings: Vec<(String, String)>,
    },
    UpdateNode {
        name: String,
        order: NodeOrder,
    },
    /// `entity` is the first word after `delete`.
    Reservation {
        order: Box<ReservationOrder>,
        entity: String,
    },
    Reconfigure,
    Top(Vec<JobRef>),
    /// `write batch_script`. The file is `-` for standard output, or `None` for `slurm-<id>.sh`.
    WriteScript {
        job: JobRef,
        file: Option<String>,
    },
    Notify {
        job: JobRef,
        message: String,
    },
    /// `listpids`, for one job or step, or for all.
    ListPids(Option<JobRef>),
    /// `wait_job`: reports whether the job has its node.
    WaitJob(JobRef),
    /// `completing`: lists the jobs whose processes are being terminated.
    Completing,
    /// `pidinfo`: shows the job of a process.
    PidInfo(i32),
    /// `errnumstr`
    ErrorText(i32),
    /// Changes how the following commands of an interactive session print. Alone, it does nothing.
    Mode(Mode),
    Help,
    Ping,
    Version,
    /// No words: commands are read from standard input, one per line.
    #[default]
    Interactive,
}
