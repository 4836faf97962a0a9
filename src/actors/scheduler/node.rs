//! The host as sinfo asks for it.

use super::SchedulerActor;
use crate::actors::messages::{
    CgroupsChecked, ChangeSite, CheckParts, HostGoesDown, NoteMachine, QueryNode, SiteChange,
    SubmitJob,
};
use crate::exec::cgroup::CgroupBase;
use crate::model::Refusal;
use crate::model::changed::Changed;
use crate::model::node::{NodeReason, Outage};
use crate::model::view::{NodeView, PartitionView};
use crate::sched::{Core, Submitted, Trouble};
use actix::prelude::*;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Handler<QueryNode> for SchedulerActor {
    type Result = MessageResult<QueryNode>;

    fn handle(&mut self, _: QueryNode, _: &mut Self::Context) -> Self::Result {
        MessageResult(NodeView {
            host: self.core.config().host.clone(),
            allocated: self.core.allocated(),
            closed_cpus: self.core.closed_cpus(),
            exclusive: self.core.is_exclusive(),
            partitions: self
                .core
                .partition_loads()
                .into_iter()
                .map(|load| PartitionView {
                    partition: load.partition,
                    running: load.running,
                    pending: load.pending,
                })
                .collect(),
            drained: self.core.node_trouble().map(reason),
            outages: {
                let outages = self.core.outages().into_iter();
                outages.map(|(parts, trouble)| Outage { parts, reason: reason(&trouble) }).collect()
            },
            daemon_start: self.outputs.daemon_start,
            load_centi: crate::sys::system::probe_load_centi(),
            cpus_elsewhere: self.core.cpus_elsewhere(),
            free_mem_mb: crate::sys::memory::probe_free_mb(),
            now: self.now(),
        })
    }
}

impl SchedulerActor {
    /// Has the use of the CPUs read, off this thread.
    pub(super) fn read_cpus(&self, ctx: &mut actix::Context<Self>) {
        let there = self.core.config().host.topology.cpus().into_iter().collect();
        let read = crate::sys::cpu_use::read(self.outputs.root.clone(), there);
        ctx.spawn(read.into_actor(self).map(|read, actor, ctx| {
            let read = read.map_err(|e| e.to_string());
            actor.decide(ctx, |core, cx| core.on_cpus_read(read, cx.now));
        }));
    }
}

/// As it is told: what the daemon has found is its owner's.
fn reason(trouble: &Trouble) -> NodeReason {
    let (user, uid) = trouble.by.clone().unwrap_or_else(|| {
        let (uid, _) = crate::sys::user::current();
        (crate::sys::user::user_name(uid), uid)
    });
    NodeReason { text: trouble.text.clone(), since: trouble.since, user, uid }
}

impl Handler<ChangeSite> for SchedulerActor {
    type Result = Result<Vec<String>, Refusal>;

    fn handle(&mut self, ChangeSite(change): ChangeSite, ctx: &mut Self::Context) -> Self::Result {
        let now = self.now();
        let is_of_node = matches!(change, SiteChange::Drains(_));
        match change {
            SiteChange::Configured(config) => self.core.set_config(*config, now),
            SiteChange::Partition { name, settings } => {
                self.core.update_partition(&name, &settings, now)?
            }
            SiteChange::Drains(drains) => self.core.set_drains(drains, now),
        }
        self.log_node();
        self.log_beyond();
        self.tell_changed(Changed::node);
        self.forecasts.outdate();
        self.decide(ctx, Core::tell_outages);
        Ok(if is_of_node { Vec::new() } else { self.beyond() })
    }
}

impl Handler<NoteMachine> for SchedulerActor {
    type Result = MessageResult<NoteMachine>;

    fn handle(
        &mut self,
        NoteMachine(machine): NoteMachine,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let now = self.now();
        let known = self.core.losses();
        self.core.on_machine_seen(machine, now);
        let losses = self.core.losses();
        if losses != known {
            losses.iter().for_each(|loss| log::error!("{loss}"));
            if losses.is_empty() {
                log::info!("all of this host is there again");
            }
            self.log_beyond();
        }
        self.tell_changed(Changed::node);
        self.forecasts.outdate();
        self.decide(ctx, Core::tell_outages);
        MessageResult(Box::new(self.core.config().host.clone()))
    }
}

impl Handler<CheckParts> for SchedulerActor {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, CheckParts(parts): CheckParts, _: &mut Self::Context) -> Self::Result {
        self.core.check_parts(&parts)
    }
}

impl SchedulerActor {
    /// What partitions were given that is not there. It may come back, so that it is no fault.
    fn beyond(&self) -> Vec<String> {
        let config = self.core.config();
        config.partitions.iter().flat_map(|partition| partition.beyond(&config.host)).collect()
    }

    /// Tells the log of it.
    pub(super) fn log_beyond(&self) {
        self.beyond().iter().for_each(|words| log::warn!("{words}"));
    }

    /// Tells the log once what keeps the node from taking jobs, and once that it takes them again.
    pub(super) fn log_node(&mut self) {
        let trouble = self.core.node_trouble().map(|trouble| trouble.text.clone());
        if trouble == self.logged_trouble {
            return;
        }
        match &trouble {
            Some(text) => log::error!("the node is drained: {text}"),
            None => log::info!("the node takes jobs again"),
        }
        self.logged_trouble = trouble;
        self.tell_changed(Changed::node);
    }
}

impl Handler<CgroupsChecked> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, CgroupsChecked(result): CgroupsChecked, _: &mut Self::Context) {
        let now = self.now();
        self.core.set_cgroup_trouble(result.err(), now);
        self.log_node();
    }
}

impl Handler<HostGoesDown> for SchedulerActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: HostGoesDown, ctx: &mut Self::Context) -> Self::Result {
        let (told, ended) = oneshot::channel();
        self.going_down = Some(told);
        self.decide(ctx, Core::host_goes_down);
        self.tell_all_ended();
        // The daemon that asks goes down without an answer too.
        Box::pin(async move { drop(ended.await) })
    }
}

impl SchedulerActor {
    /// Tells who waits for it that nothing runs and all of it is durable.
    pub(super) fn tell_all_ended(&mut self) {
        if !self.core.has_active()
            && self.in_flight.is_empty()
            && let Some(asker) = self.going_down.take()
        {
            let _ = asker.send(());
        }
    }
}

/// Looks again whether cgroups can be made, off this thread: whoever has mended the base need not restart the daemon.
pub(super) fn submit_if_cgroups(
    base: Arc<CgroupBase>,
    submission: SubmitJob,
    scheduler: Addr<SchedulerActor>,
) -> ResponseFuture<Result<Submitted, Refusal>> {
    Box::pin(async move {
        let looked =
            tokio::task::spawn_blocking(move || base.probe().map_err(|e| e.to_string())).await;
        match looked {
            Ok(Err(why)) => return Err(Refusal::NoCgroups(why)),
            Ok(Ok(())) => scheduler.do_send(CgroupsChecked(Ok(()))),
            Err(_) => return Err(Refusal::ShuttingDown),
        }
        // The fact comes first, so that this is not done again.
        scheduler.send(submission).await.unwrap_or(Err(Refusal::ShuttingDown))
    })
}
