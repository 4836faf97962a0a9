//! Changes that the owner of the host makes while the daemon is running: to the configuration
//! files, a partition, or the node.

use super::{Replied, Session, plain, refused};
use crate::actors::messages::{ChangeSite, CheckParts, ProbeGpus, SiteChange};
use crate::daemon::core_config::{core_config, shown};
use crate::daemon::error::DaemonError;
use crate::daemon::node_order;
use crate::daemon::settings::Settings;
use crate::daemon::sources::Sources;
use slotd_model::Refusal;
use slotd_model::node::{NodeOrder, NodeReason};
use slotd_model::partition::Host;
use slotd_protocol::answer::Answer;
use slotd_sys::{aside, user};
use std::sync::Arc;

impl Session {
    /// Reloads the settings file and `slotd.toml`, and probes the machine. If a file is invalid,
    /// the error is reported and nothing changes.
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
                    log::error!("the configuration is unchanged: {why}");
                    return Ok(refused(Refusal::Configuration(why.to_string())));
                }
            };
        *hub.config.borrow_mut() = shown(&settings, &config);
        log::info!("the configuration was reloaded");
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

    /// Changes the state of the node. It is stored before it takes effect.
    pub(super) async fn update_node(&self, order: NodeOrder) -> Replied {
        // Each change builds on the state that the previous one stored.
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
                "cannot write the state of the node: {e}"
            )))),
        }
    }

    /// Applies a change. The scheduler's remarks follow `remarks`.
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

/// The current contents of the files.
struct Configured {
    settings: Settings,
    config: slotd_sched::Config,
    remarks: Vec<String>,
}

/// Reads the configuration files.
///
/// # Errors
/// Fails if a file cannot be read or is invalid. The error names the file and the value.
fn configured(
    running: &Settings,
    sources: &Sources,
    known: Host,
) -> Result<Configured, DaemonError> {
    let env = sources.read()?;
    let now = Settings::read(running.root.clone(), &env)?;
    let settings = running.with_live(now);
    let (config, unused) = core_config(&settings, known)?;
    let remarks = sources.remarks(&env).into_iter().chain(unused).collect();
    Ok(Configured { settings, config, remarks })
}
