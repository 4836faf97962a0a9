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
use crate::sys::aside;
use actix::prelude::*;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Handler<QueryNode> for SchedulerActor {
    type Result = MessageResult<QueryNode>;

    fn handle(&mut self, _: QueryNode, _: &mut Self::Context) -> Self::Result {
        MessageResult(NodeView {
            host: self.core.config().host.clone(),
            allocated: self.core.resources().allocated(),
            closed_cpus: self.core.resources().closed_cpus(),
            exclusive: self.core.resources().is_exclusive(),
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
            drained: self.core.resources().node().trouble().map(reason),
            outages: {
                let outages = self.core.resources().node().outages().into_iter();
                outages.map(|(parts, trouble)| Outage { parts, reason: reason(&trouble) }).collect()
            },
            limits: self.core.config().limits.clone(),
            daemon_start: self.outputs.daemon_start,
            load_centi: crate::sys::system::probe_load_centi(),
            cpus_elsewhere: self.core.resources().cpus_elsewhere(),
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
        let known = self.core.resources().node().losses();
        self.core.on_machine_seen(machine, now);
        let losses = self.core.resources().node().losses();
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
        self.core.resources().check_parts(&parts)
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
        let trouble = self.core.resources().node().trouble().map(|trouble| trouble.text.clone());
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

    fn handle(&mut self, CgroupsChecked(result): CgroupsChecked, ctx: &mut Self::Context) {
        let now = self.now();
        self.core.node_mut().set_cgroup_trouble(result.err(), now);
        self.log_node();
        self.forecasts.outdate();
        self.ask_round(ctx);
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
        if !self.core.records().has_active()
            && self.in_flight.is_empty()
            && let Some(asker) = self.going_down.take()
        {
            let _ = asker.send(());
        }
    }
}

/// Checks the base of the cgroups, off this thread.
async fn probe(base: Arc<CgroupBase>) -> Result<(), String> {
    let check = move || base.probe().map_err(|e| e.to_string());
    let checked = aside::run("the check of the cgroups", aside::PATIENCE, check).await;
    checked.unwrap_or_else(|e| Err(e.to_string()))
}

impl SchedulerActor {
    /// Checks whether cgroups can be made again: the base may be corrected without a restart of the
    /// daemon.
    pub(super) fn check_cgroups(&self, ctx: &mut actix::Context<Self>) {
        let Some(base) = self.outputs.cgroups.clone() else { return };
        let checked = probe(base).into_actor(self);
        ctx.spawn(checked.map(|result, _, ctx| ctx.notify(CgroupsChecked(result))));
    }
}

/// Checks the base before a submission is refused for it.
pub(super) fn submit_if_cgroups(
    base: Arc<CgroupBase>,
    submission: SubmitJob,
    scheduler: Addr<SchedulerActor>,
) -> ResponseFuture<Result<Submitted, Refusal>> {
    Box::pin(async move {
        if let Err(why) = probe(base).await {
            return Err(Refusal::NoCgroups(why));
        }
        scheduler.do_send(CgroupsChecked(Ok(())));
        // The fact comes first, so that this is not done again.
        scheduler.send(submission).await.unwrap_or(Err(Refusal::ShuttingDown))
    })
}
