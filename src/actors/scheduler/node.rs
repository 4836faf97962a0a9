//! The node: answers to sinfo, changes by the owner of the host, and checks of cgroups.

use super::SchedulerActor;
use super::asker::CommitResult;
use crate::actors::messages::{
    CgroupsChecked, CgroupsUnusable, ChangeSite, CheckParts, HostGoesDown, NoteMachine,
    OrderReservation, QueryNode, SiteChange, SubmitJob,
};
use actix::prelude::*;
use slotd_exec::cgroup::CgroupBase;
use slotd_model::changed::Changed;
use slotd_model::node::{NodeReason, Outage};
use slotd_model::reservation::ReservationFault;
use slotd_model::unread::Unread;
use slotd_model::view::{NodeView, PartitionView};
use slotd_model::{JobId, Refusal};
use slotd_sched::{Core, Cx, Trouble};
use slotd_sys::aside;
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
            qos: self.core.config().qos.clone(),
            licenses: self.core.resources().licenses().collect(),
            reservations: self.core.reservations((self.outputs.clock)().wall),
            daemon_start: self.outputs.daemon_start,
            load_centi: slotd_sys::system::probe_load_centi(),
            cpus_elsewhere: self.core.resources().cpus_elsewhere(),
            free_mem_mb: slotd_sys::memory::probe_free_mb(),
            now: self.now(),
        })
    }
}

impl SchedulerActor {
    /// Samples the CPU usage on another thread.
    pub(super) fn read_cpus(&self, ctx: &mut actix::Context<Self>) {
        let there = self.core.config().host.topology.cpus().into_iter().collect();
        let read = slotd_sys::cpu_use::read(self.outputs.root.clone(), there);
        ctx.spawn(read.into_actor(self).map(|read, actor, ctx| {
            let read = read.map_err(Unread::cpus);
            actor.decide(ctx, |core, cx| core.on_cpus_read(read, cx.now));
        }));
    }
}

/// Converts a problem of the node for display. Problems that the daemon found itself are attributed
/// to its own user.
fn reason(trouble: &Trouble) -> NodeReason {
    let (user, uid) = trouble.by.clone().unwrap_or_else(|| {
        let (uid, _) = slotd_sys::user::current();
        (slotd_sys::user::user_name(uid), uid)
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
        self.publish(Changed::node);
        self.forecasts.outdate();
        self.decide(ctx, Core::notify_of_outages);
        Ok(if is_of_node { Vec::new() } else { self.beyond() })
    }
}

impl Handler<OrderReservation> for SchedulerActor {
    type Result = ResponseFuture<Result<String, Refusal>>;

    fn handle(
        &mut self,
        OrderReservation(order): OrderReservation,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let mut cx = Cx::at(self.now());
        if let Some(fault) = self.fault() {
            let why = Refusal::Reservation(ReservationFault::NotStored(fault));
            return Box::pin(async move { Err(why) });
        }
        let done = self.core.order_reservation(&order, &mut cx);
        self.publish(Changed::node);
        self.forecasts.outdate();
        let committed = self.commit_command(cx.out);
        self.ask_round(ctx);
        Box::pin(async move {
            let name = done?;
            match committed.await {
                CommitResult::Durable => Ok(name),
                CommitResult::Unstored(fault) => {
                    Err(Refusal::Reservation(ReservationFault::NotStored(fault)))
                }
            }
        })
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
                log::info!("all resources of this host are available again");
            }
            self.log_beyond();
        }
        self.publish(Changed::node);
        self.forecasts.outdate();
        self.decide(ctx, Core::notify_of_outages);
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
    /// Lists the resources that partitions contain but the host lacks. They may come back, so this
    /// is not an error.
    fn beyond(&self) -> Vec<String> {
        let config = self.core.config();
        config.partitions.iter().flat_map(|partition| partition.beyond(&config.host)).collect()
    }

    /// Logs missing resources of partitions.
    pub(super) fn log_beyond(&self) {
        self.beyond().iter().for_each(|words| log::warn!("{words}"));
    }

    /// Logs when the node stops or resumes accepting jobs.
    pub(super) fn log_node(&mut self) {
        let trouble = self.core.resources().node().trouble().map(|trouble| trouble.text.clone());
        if trouble == self.logged_trouble {
            return;
        }
        match &trouble {
            Some(text) => log::error!("the node is drained: {text}"),
            None => log::info!("the node accepts jobs again"),
        }
        self.logged_trouble = trouble;
        self.publish(Changed::node);
    }
}

impl Handler<CgroupsChecked> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, CgroupsChecked(result): CgroupsChecked, ctx: &mut Self::Context) {
        let now = self.now();
        self.core.node_mut().set_cgroup_trouble(result.err().map(|e| e.to_string()), now);
        self.log_node();
        self.forecasts.outdate();
        self.ask_round(ctx);
    }
}

impl Handler<HostGoesDown> for SchedulerActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: HostGoesDown, ctx: &mut Self::Context) -> Self::Result {
        let (asker, ended) = oneshot::channel();
        self.going_down = Some(asker);
        self.decide(ctx, Core::host_goes_down);
        self.answer_shutdown();
        // If the channel closes, the daemon that asked is stopping, too.
        Box::pin(async move { drop(ended.await) })
    }
}

impl SchedulerActor {
    /// Answers a waiting shutdown once no job is active and everything is durable.
    pub(super) fn answer_shutdown(&mut self) {
        if !self.core.records().has_active()
            && self.in_flight.is_empty()
            && let Some(asker) = self.going_down.take()
        {
            let _ = asker.send(());
        }
    }
}

/// Checks the base of the cgroups on another thread.
async fn probe(base: Arc<CgroupBase>) -> Result<(), CgroupsUnusable> {
    let check = move || base.probe();
    Ok(aside::run("checking the cgroups", aside::PATIENCE, check).await??)
}

impl SchedulerActor {
    /// Checks whether cgroups can be created again: the base may be repaired without a restart of
    /// the daemon.
    pub(super) fn check_cgroups(&self, ctx: &mut actix::Context<Self>) {
        let Some(base) = self.outputs.cgroups.clone() else { return };
        let checked = probe(base).into_actor(self);
        ctx.spawn(checked.map(|result, _, ctx| ctx.notify(CgroupsChecked(result))));
    }
}

/// Checks the base before it refuses a submission.
pub(super) fn submit_if_cgroups(
    base: Arc<CgroupBase>,
    submission: SubmitJob,
    scheduler: Addr<SchedulerActor>,
) -> ResponseFuture<Result<JobId, Refusal>> {
    Box::pin(async move {
        if let Err(why) = probe(base).await {
            return Err(Refusal::NoCgroups(why.to_string()));
        }
        scheduler.do_send(CgroupsChecked(Ok(())));
        // The result of the check arrives first, so the submission does not check again.
        scheduler.send(submission).await.unwrap_or(Err(Refusal::ShuttingDown))
    })
}
