//! What the owner of the host changes while the daemon runs: the file of partitions, a partition, the node.

use super::{Replied, Session, plain, refused};
use crate::actors::messages::{ChangeSite, ProbeGpus, SiteChange};
use crate::daemon::core_config::{core_config, shown};
use crate::daemon::node_order;
use crate::model::Refusal;
use crate::model::node::{NodeOrder, NodeReason};
use crate::protocol::answer::Answer;
use crate::sys::user;
use std::sync::Arc;
use tokio::task::spawn_blocking;

impl Session {
    /// Reads `slotd.toml` again, and looks for GPUs. What is wrong with the file is told, and all stays as it was.
    pub(super) async fn reconfigure(&self) -> Replied {
        let (hub, settings) = (&self.hub, Arc::clone(&self.hub.settings));
        let gpus = hub.inventory.send(ProbeGpus).await?;
        let config = match spawn_blocking(move || core_config(&settings, gpus)).await {
            Ok(Ok(config)) => config,
            Ok(Err(why)) => {
                log::error!("the configuration stays as it was: {why}");
                return Ok(refused(Refusal::Configuration(why.to_string())));
            }
            Err(_) => return Ok(refused(Refusal::ShuttingDown)),
        };
        *hub.config.borrow_mut() = shown(&hub.settings, &config);
        log::info!("the configuration was read again");
        self.change_site(SiteChange::Configured(Box::new(config))).await
    }

    pub(super) async fn update_partition(&self, name: String, settings: Vec<(String, String)>) -> Replied {
        self.change_site(SiteChange::Partition { name, settings }).await
    }

    /// The order is on disk before it holds.
    pub(super) async fn update_node(&self, order: NodeOrder) -> Replied {
        let (paths, since) = (self.hub.paths.clone(), (self.hub.clock)());
        let reason = match order {
            NodeOrder::Drain(text) => Some(NodeReason { text, since, user: user::user_name(self.uid), uid: self.uid }),
            NodeOrder::Resume => None,
        };
        let written = reason.clone();
        match spawn_blocking(move || node_order::write(&paths, written.as_ref())).await {
            Ok(Ok(())) => self.change_site(SiteChange::Node(reason)).await,
            Ok(Err(e)) => Ok(refused(Refusal::Configuration(format!("the state of the node cannot be written: {e}")))),
            Err(_) => Ok(refused(Refusal::ShuttingDown)),
        }
    }

    async fn change_site(&self, change: SiteChange) -> Replied {
        Ok(match self.hub.scheduler.send(ChangeSite(change)).await? {
            Ok(()) => plain(Answer::Done(Vec::new())),
            Err(why) => refused(why),
        })
    }
}
