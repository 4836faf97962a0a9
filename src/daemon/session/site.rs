//! What the owner of the host changes while the daemon runs: the file of partitions, a partition,
//! the node.

use super::{Replied, Session, plain, refused};
use crate::actors::messages::{ChangeSite, CheckParts, ProbeGpus, SiteChange};
use crate::daemon::core_config::{core_config, shown};
use crate::daemon::error::DaemonError;
use crate::daemon::node_order;
use crate::daemon::settings::Settings;
use crate::daemon::sources::Sources;
use crate::model::Refusal;
use crate::model::node::{NodeOrder, NodeReason};
use crate::model::partition::Host;
use crate::protocol::answer::Answer;
use crate::sched;
use crate::sys::{aside, user};
use std::sync::Arc;

impl Session {
    /// Reads the settings' file and `slotd.toml` again, and looks what the machine has. What is
    /// wrong with a file is told, and all stays as it was.
    pub(super) async fn reconfigure(&self) -> Replied {
        let hub = &self.hub;
        let gpus = hub.inventory.send(ProbeGpus).await?;
        let known = match hub.machine.look().await {
            Ok(host) => Host { gpus, ..*host },
            Err(why) => return Ok(refused(Refusal::Configuration(why.to_string()))),
        };
        let (settings, sources) = (Arc::clone(&hub.settings), Arc::clone(&hub.sources));
        let read = move || configured(&settings, &sources, known);
        let read = aside::run("reading the configuration", aside::PATIENCE, read);
        let Configured { settings, config, remarks } =
            match read.await.map_err(DaemonError::from).and_then(|read| read) {
                Ok(configured) => configured,
                Err(why) => {
                    log::error!("the configuration stays as it was: {why}");
                    return Ok(refused(Refusal::Configuration(why.to_string())));
                }
            };
        *hub.config.borrow_mut() = shown(&settings, &config);
        log::info!("the configuration was read again");
        remarks.iter().for_each(|remark| log::warn!("{remark}"));
        self.change_site(SiteChange::Configured(Box::new(config)), remarks).await
    }

    pub(super) async fn update_partition(
        &self,
        name: String,
        settings: Vec<(String, String)>,
    ) -> Replied {
        self.change_site(SiteChange::Partition { name, settings }, Vec::new()).await
    }

    /// The order is on disk before it holds.
    pub(super) async fn update_node(&self, order: NodeOrder) -> Replied {
        // Each order changes what the last one has left on the disk.
        let _one_by_one = self.hub.node_orders.lock().await;
        if let Err(why) = self.hub.scheduler.send(CheckParts(order.parts().clone())).await? {
            return Ok(refused(why));
        }
        let (paths, since, uid) = (self.hub.paths.clone(), (self.hub.clock)(), self.uid);
        let because = move |text| NodeReason { text, since, user: user::user_name(uid), uid };
        let change = move || {
            let drains = node_order::read(&paths).after(order, because);
            node_order::write(&paths, &drains).map(|()| drains)
        };
        let changed = aside::run("writing the state of the node", aside::PATIENCE, change).await;
        match changed
            .map_err(|e| e.to_string())
            .and_then(|drains| drains.map_err(|e| e.to_string()))
        {
            Ok(drains) => self.change_site(SiteChange::Drains(drains), Vec::new()).await,
            Err(e) => Ok(refused(Refusal::Configuration(format!(
                "the state of the node cannot be written: {e}"
            )))),
        }
    }

    /// What the scheduler has to say of it comes after `remarks`.
    async fn change_site(&self, change: SiteChange, mut remarks: Vec<String>) -> Replied {
        Ok(match self.hub.scheduler.send(ChangeSite(change)).await? {
            Ok(more) => {
                remarks.extend(more);
                plain(Answer::SiteChanged(remarks))
            }
            Err(why) => refused(why),
        })
    }
}

/// What the files say now.
struct Configured {
    settings: Settings,
    config: sched::Config,
    remarks: Vec<String>,
}

/// # Errors
/// What is wrong, with the file and the value.
fn configured(
    running: &Settings,
    sources: &Sources,
    known: Host,
) -> Result<Configured, DaemonError> {
    let env = sources.read()?;
    let now = Settings::read(running.root.clone(), &env)?;
    let settings = running.with_live(now);
    let config = core_config(&settings, known)?;
    Ok(Configured { settings, config, remarks: sources.remarks(&env) })
}
