//! The host as sinfo asks for it.

use super::SchedulerActor;
use crate::actors::messages::QueryNode;
use crate::model::view::{NodeView, PartitionView};
use actix::prelude::*;

impl Handler<QueryNode> for SchedulerActor {
    type Result = MessageResult<QueryNode>;

    fn handle(&mut self, _: QueryNode, _: &mut Self::Context) -> Self::Result {
        MessageResult(NodeView {
            host: self.core.config().host.clone(),
            allocated: self.core.allocated(),
            exclusive: self.core.is_exclusive(),
            partitions: self
                .core
                .partition_loads()
                .into_iter()
                .map(|load| PartitionView { partition: load.partition, running: load.running, pending: load.pending })
                .collect(),
            daemon_start: self.outputs.daemon_start,
            load_centi: crate::sys::system::probe_load_centi(),
            free_mem_mb: crate::sys::memory::probe_free_mb(),
            now: self.now(),
        })
    }
}
