//! Looks what the machine has of CPUs and memory: when somebody asks for it, and when the kernel
//! tells of a change.

use crate::actors::SchedulerActor;
use crate::actors::messages::NoteMachine;
use crate::model::partition::Host;
use crate::sys::aside::Unfinished;
use crate::sys::uevents::Uevents;
use crate::sys::{aside, machine};
use actix::prelude::*;
use std::io;
use std::rc::Rc;
use tokio::sync::Mutex;

/// Why it is not known what the machine has.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    #[error("what this machine has of CPUs and memory cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Scheduler(#[from] MailboxError),
}

pub struct MachineWatch {
    scheduler: Addr<SchedulerActor>,
    /// Held by who looks, so that what was seen last is told last.
    looks: Mutex<()>,
}

impl MachineWatch {
    pub fn new(scheduler: Addr<SchedulerActor>) -> Self {
        MachineWatch { scheduler, looks: Mutex::default() }
    }

    /// Looks, and has it noted. The host as it is known from now on.
    ///
    /// # Errors
    /// Nothing was noted.
    pub async fn look(&self) -> Result<Box<Host>, MachineError> {
        let _one_by_one = self.looks.lock().await;
        let seen = aside::run(
            "reading the CPUs and the memory of this machine",
            aside::PATIENCE,
            machine::probe,
        );
        Ok(self.scheduler.send(NoteMachine(seen.await??)).await?)
    }

    /// The same for nobody in particular: the log tells what is wrong.
    pub async fn look_again(self: Rc<Self>) {
        if let Err(why) = self.look().await {
            log::warn!("{why}");
        }
    }

    /// Looks again each time that the kernel tells of a change.
    pub async fn follow(self: Rc<Self>) {
        let mut uevents = match Uevents::open() {
            Ok(uevents) => uevents,
            Err(e) => {
                log::info!(
                    "CPUs that go off line are noticed at scontrol reconfigure: the kernel tells of none: {e}"
                );
                return;
            }
        };
        loop {
            if let Err(e) = uevents.machine_changed().await {
                log::warn!("the kernel tells no more of CPUs that come and go: {e}");
                return;
            }
            Rc::clone(&self).look_again().await;
        }
    }
}
