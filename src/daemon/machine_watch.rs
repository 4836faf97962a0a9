//! Probes the CPUs and the memory of the machine, on request and when the kernel reports a change.

use crate::actors::SchedulerActor;
use crate::actors::messages::NoteMachine;
use actix::prelude::*;
use slotd_model::partition::Host;
use slotd_sys::aside::Unfinished;
use slotd_sys::uevents::Uevents;
use slotd_sys::{aside, machine};
use std::io;
use std::rc::Rc;
use tokio::sync::Mutex;

/// The reason why the state of the machine is unknown.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    #[error("cannot read the CPUs and the memory of this machine: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Scheduler(#[from] MailboxError),
}

pub struct MachineWatch {
    scheduler: Addr<SchedulerActor>,
    /// Held during a probe, so that results are reported in order.
    looks: Mutex<()>,
}

impl MachineWatch {
    pub fn new(scheduler: Addr<SchedulerActor>) -> Self {
        MachineWatch { scheduler, looks: Mutex::default() }
    }

    /// Probes the machine and reports the result to the scheduler. Returns the updated host.
    ///
    /// # Errors
    /// Fails if nothing was reported.
    pub async fn look(&self) -> Result<Box<Host>, MachineError> {
        let _one_by_one = self.looks.lock().await;
        let seen = aside::run(
            "reading the CPUs and the memory of this machine",
            aside::PATIENCE,
            machine::probe,
        );
        Ok(self.scheduler.send(NoteMachine(seen.await??)).await?)
    }

    /// Does the same without a caller, and logs errors.
    pub async fn look_again(self: Rc<Self>) {
        if let Err(why) = self.look().await {
            log::warn!("{why}");
        }
    }

    /// Probes again each time the kernel reports a change.
    pub async fn follow(self: Rc<Self>) {
        let mut uevents = match Uevents::open() {
            Ok(uevents) => uevents,
            Err(e) => {
                log::info!(
                    "the kernel reports no changes of CPUs, so only scontrol reconfigure \
                     detects them: {e}"
                );
                return;
            }
        };
        loop {
            if let Err(e) = uevents.machine_changed().await {
                log::warn!(
                    "the kernel no longer reports changes of CPUs, so only scontrol reconfigure \
                     detects them: {e}"
                );
                return;
            }
            Rc::clone(&self).look_again().await;
        }
    }
}
