//! Tests of the scheduling rules, one file for each topic.

mod admission;
mod arrays;
mod backfill;
mod choices;
mod control;
mod cpus;
mod crontab;
mod dependencies;
pub(crate) mod double;
mod ends;
mod gpus;
mod licenses;
mod node;
mod notify;
mod order;
mod preempt;
mod qos;
mod reboot;
mod recovery;
mod reservations;
mod resize;
mod site;
mod steps;
mod timers;
mod updates;
mod why;

use self::double::Double;
use super::testing::*;
use super::view::own_step;
use super::*;
use slotd_model::array::ArraySpec;
use slotd_model::dependency::{Dependency, DependencyKind, DependencyTerm};
use slotd_model::job::ClientProcess;
use slotd_model::job::Hold;
use slotd_model::request::{GpuRequest, MemRequest};
use slotd_model::update::Update;
use slotd_model::*;

use DependencyKind::{After, AfterAny, AfterCorr, AfterNotOk, AfterOk, Expand};

fn refusal(d: &mut Double, ask: Ask) -> Vec<String> {
    d.try_submit(ask).expect_err("the job is refused").lines("Batch job submission failed")
}

fn step(ntasks: u32) -> StepRequest {
    StepRequest { name: "hostname".to_string(), ntasks: Some(ntasks), ..StepRequest::default() }
}

/// Requests a step under this ticket.
fn create(
    d: &mut Double,
    job: JobId,
    request: StepRequest,
    ticket: u64,
) -> Result<StepStart, Refusal> {
    let asker = StepAsker { ticket, client: None };
    d.act(|core, cx| core.create_step(job, request, asker, cx))
}

fn end_step(d: &mut Double, key: StepKey, exit: ExitCode) {
    d.act(|core, cx| {
        core.on_step_ended(key, &ExitRecord::gone(exit, cx.now), EndCause::Exited, cx);
    });
}
