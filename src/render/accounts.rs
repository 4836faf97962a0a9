//! The lists of `sacctmgr` and `sshare`. One host with one user has no accounts and no shares, so
//! most lists are empty. Programs still look for their columns.

use crate::field::{Cut, Field, Place, Table};
use crate::size::mib;
use crate::value::Value;
use crate::{Ctx, layout, time, tres};
use slotd_model::limit::Limit;
use slotd_model::partition::Host;
use slotd_model::qos::{self, Qos, TresLimit};
use slotd_model::view::NodeView;

/// The field table of all lists. A name means the same in each list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounts;

pub type Layout = layout::Layout<Accounts>;

/// One line of a list.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// The cluster and the resources of its node.
    Cluster(&'a Host),
    /// Another cluster that `-M` reaches: its name and its host.
    Elsewhere(&'a str, &'a str),
    /// A QOS, and Slurm's number for it.
    Qos(u32, &'a Qos),
    /// The user, and the QOS of the user's jobs.
    Own(&'a str, &'a [Qos]),
    /// A trackable resource: its type, its name and Slurm's number for it.
    Tres(&'static str, &'static str, u32),
    /// A limit of `slotd.toml`, on an account or on a pattern of job names.
    Limit(&'a Limit),
}

/// The kinds of objects that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    Account,
    Association,
    Cluster,
    Coordinator,
    Event,
    Federation,
    Qos,
    Reservation,
    Resource,
    RunawayJobs,
    Transactions,
    Tres,
    User,
    Wckey,
}

/// Slurm's names, which may be abbreviated, with the default columns.
const ENTITIES: [(&str, Entity, &str); 14] = [
    ("accounts", Entity::Account, "Account,Description%20,Organization"),
    (
        "associations",
        Entity::Association,
        "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,\
         MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins",
    ),
    (
        "clusters",
        Entity::Cluster,
        "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,\
         DefaultQOS",
    ),
    ("coordinators", Entity::Coordinator, "Account,User"),
    ("events", Entity::Event, "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"),
    ("federations", Entity::Federation, "Federation,Cluster,ID%3,Weight,Features,FedState"),
    (
        "qos",
        Entity::Qos,
        "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThreshold,UsageFactor,GrpTRES,\
         GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,\
         MaxTRESPerUser,MaxJobsPerUser,MaxSubmitJobsPerUser,MaxTRESPerAccount,MaxJobsPerAccount,\
         MaxSubmitJobsPerAccount,MinTRES",
    ),
    ("reservations", Entity::Reservation, "Cluster,Name%15,TRES%30,TimeStart,TimeEnd,UnusedWall"),
    ("resources", Entity::Resource, "Name,Server,Type,Count,PercentAllowed,ServerType,Flags%20"),
    (
        "runawayjobs",
        Entity::RunawayJobs,
        "ID%12,Name,Partition,Cluster,State,TimeSubmit,TimeStart,TimeEnd",
    ),
    ("transactions", Entity::Transactions, "TimeStamp,Action,Actor,Where,Info"),
    ("tres", Entity::Tres, "Type,Name%15,ID"),
    ("users", Entity::User, "User,DefaultAccount,AdminLevel"),
    ("wckeys", Entity::Wckey, "Name,Cluster,User"),
];

/// The columns of `sshare`, and of `sshare -l`.
const SHARES: &str = "Account%-20,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare";
const LONG_SHARES: &str = "Account%-20,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,\
                           GrpTRESMins%30,TRESRunMins";

impl Entity {
    /// Returns the entity with this name. An abbreviation of two or more letters is enough.
    pub fn named(word: &str) -> Option<Entity> {
        let word = word.to_ascii_lowercase();
        let is_it = |name: &str| word.len() > 1 && name.starts_with(&word);
        ENTITIES.iter().find(|(name, ..)| is_it(name)).map(|(_, entity, _)| *entity)
    }

    /// Returns the default columns. `with_associations` appends those of the associations.
    pub fn layout(self, with_associations: bool) -> Layout {
        let columns = |wanted: Entity| {
            ENTITIES.iter().find(|(_, entity, _)| *entity == wanted).map(|(.., text)| *text)
        };
        let own = columns(self).unwrap_or_default();
        let added = match (with_associations, columns(Entity::Association)) {
            (true, Some(more)) if matches!(self, Entity::Account | Entity::User) => {
                format!("{own},{more}")
            }
            _ => own.to_owned(),
        };
        // A test checks that every constant parses.
        Layout::ruled(&added).unwrap_or_default()
    }

    /// Returns the rows of this list.
    pub fn rows<'a>(self, node: &'a NodeView, user: &'a str) -> Vec<Row<'a>> {
        let NodeView { host, limits, qos, .. } = node;
        match self {
            Entity::Association => {
                // Without QOS of the owner, there is nothing to associate the user with.
                let own = (qos.len() > 1).then_some(Row::Own(user, qos));
                own.into_iter().chain(limits.iter().map(Row::Limit)).collect()
            }
            Entity::Cluster => vec![Row::Cluster(host)],
            Entity::Qos => (1..).zip(qos).map(|(id, qos)| Row::Qos(id, qos)).collect(),
            Entity::Tres => {
                tres_known(host).map(|(kind, name, id)| Row::Tres(kind, name, id)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns all names, for a message.
    pub fn names() -> String {
        ENTITIES.map(|(name, ..)| name).join(", ")
    }
}

/// Returns the trackable resources with Slurm's numbers for them.
fn tres_known(host: &Host) -> impl Iterator<Item = (&'static str, &'static str, u32)> {
    let of_gpus = [("gres", "gpu", 1001), ("gres", "gpumem", 1002), ("gres", "shard", 1003)];
    let gpus = if host.has_gpus() { &of_gpus[..] } else { &[] };
    [("cpu", "", 1), ("mem", "", 2), ("energy", "", 3), ("node", "", 4), ("billing", "", 5)]
        .into_iter()
        .chain(gpus.to_vec())
}

/// Returns the columns of `sshare`.
pub fn shares(long: bool) -> Layout {
    Layout::ruled(if long { LONG_SHARES } else { SHARES }).unwrap_or_default()
}

impl Row<'_> {
    /// Returns whether `name=` or `id=` with this value selects the row.
    pub fn is(&self, wanted: &str) -> bool {
        match self {
            Row::Cluster(_) => wanted.eq_ignore_ascii_case(slotd_model::CLUSTER),
            Row::Elsewhere(name, _) => wanted.eq_ignore_ascii_case(name),
            Row::Qos(id, qos) => wanted.eq_ignore_ascii_case(&qos.name) || wanted == id.to_string(),
            Row::Own(user, _) => {
                wanted == *user || wanted.eq_ignore_ascii_case(slotd_model::CLUSTER)
            }
            Row::Tres(kind, name, id) => {
                [*kind, *name].contains(&wanted) || wanted == id.to_string()
            }
            Row::Limit(limit) => limit.account.as_deref() == Some(wanted),
        }
    }
}

impl Table for Accounts {
    type Row<'a> = Row<'a>;

    const ABBREVIATED: bool = true;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn unknown(_: Place, word: &str) -> String {
        format!("Unknown field '{word}'")
    }
}

type F = Field<Accounts>;
type Get = fn(&Row<'_>, &Ctx) -> Value<'static>;

const fn field(width: i32, names: &'static [&'static str], header: &'static str, get: Get) -> F {
    F::new(names, header, get).width(width)
}

/// Creates a field that is always empty on a single host.
const fn empty(width: i32, names: &'static [&'static str], header: &'static str) -> F {
    field(width, names, header, |_, _| Value::NONE)
}

fn of_qos<V: Into<Value<'static>>>(row: &Row<'_>, get: impl FnOnce(&Qos) -> V) -> Value<'static> {
    match row {
        Row::Qos(_, qos) => get(qos).into(),
        Row::Cluster(_) | Row::Elsewhere(..) | Row::Own(..) | Row::Tres(..) | Row::Limit(_) => {
            Value::NONE
        }
    }
}

/// Creates a column for a number of a QOS.
fn number_of_qos(row: &Row<'_>, get: impl FnOnce(&Qos) -> Option<u32>) -> Value<'static> {
    of_qos(row, |qos| get(qos).map_or(Value::NONE, |number| Value::Number(number.into())))
}

/// Formats a limit of a QOS on resources.
fn tres_of_qos(row: &Row<'_>, ctx: &Ctx, get: impl FnOnce(&Qos) -> TresLimit) -> Value<'static> {
    of_qos(row, |qos| get(qos).text(|mb| mib(mb, ctx.units)))
}

/// Returns the names of all QOS, in alphabetical order.
fn names(all: &[Qos]) -> String {
    let mut names: Vec<&str> = all.iter().map(|qos| qos.name.as_str()).collect();
    names.sort_unstable();
    names.join(",")
}

fn of_cluster<V: Into<Value<'static>>>(
    row: &Row<'_>,
    get: impl FnOnce(&Host) -> V,
) -> Value<'static> {
    match row {
        Row::Cluster(host) => get(host).into(),
        Row::Elsewhere(..) | Row::Qos(..) | Row::Own(..) | Row::Tres(..) | Row::Limit(_) => {
            Value::NONE
        }
    }
}

fn of_limit<V: Into<Value<'static>>>(
    row: &Row<'_>,
    get: impl FnOnce(&Limit) -> Option<V>,
) -> Value<'static> {
    match row {
        Row::Limit(limit) => get(limit).map_or(Value::NONE, Into::into),
        Row::Cluster(_) | Row::Elsewhere(..) | Row::Qos(..) | Row::Own(..) | Row::Tres(..) => {
            Value::NONE
        }
    }
}

/// Returns the maximum number of running jobs of the account. With a single user, the limit per
/// user is the same.
fn jobs(row: &Row<'_>, _: &Ctx) -> Value<'static> {
    of_limit(row, |limit| limit.jobs.map(|jobs| Value::Number(jobs.into())))
}

static FIELDS: &[F] = &[
    field(10, &["User"], "User", |r, _| match r {
        Row::Own(user, _) => (*user).to_owned().into(),
        _ => Value::NONE,
    }),
    empty(10, &["DefaultAccount", "DefAccount"], "Def Acct"),
    empty(9, &["AdminLevel"], "Admin"),
    empty(10, &["DefaultWCKey"], "Def WCKey"),
    empty(20, &["Coordinators"], "Coord Accounts"),
    field(10, &["Account", "Acct"], "Account", |r, _| of_limit(r, |limit| limit.account.clone())),
    // slotd's own: the pattern of job names.
    field(10, &["JobName"], "JobName", |r, _| {
        of_limit(r, |limit| limit.name.as_ref().map(ToString::to_string))
    }),
    field(20, &["Description"], "Descr", |r, _| {
        of_qos(r, |qos| match qos.name.as_str() {
            qos::DEFAULT => "Normal QOS default".to_owned(),
            name => name.to_owned(),
        })
    }),
    empty(20, &["Organization"], "Org"),
    field(10, &["Cluster"], "Cluster", |r, c| match r {
        Row::Cluster(_) | Row::Own(..) | Row::Limit(_) => c.cluster.clone().into(),
        Row::Elsewhere(name, _) => (*name).to_owned().into(),
        Row::Qos(..) | Row::Tres(..) => Value::NONE,
    }),
    empty(10, &["Partition"], "Partition"),
    field(9, &["Share"], "Share", |r, _| of_cluster(r, |_| Value::Number(1))),
    empty(10, &["FairShare"], "FairShare"),
    field(10, &["Priority"], "Priority", |r, _| number_of_qos(r, |qos| Some(qos.priority))),
    field(7, &["GrpJobs"], "GrpJobs", jobs),
    field(13, &["GrpTRES"], "GrpTRES", |r, c| match r {
        Row::Qos(..) => tres_of_qos(r, c, |qos| qos.grp_tres),
        _ => of_limit(r, |limit| limit.cpus.map(|cpus| format!("cpu={cpus}"))),
    }),
    empty(9, &["GrpSubmitJobs"], "GrpSubmit"),
    empty(11, &["GrpWall"], "GrpWall"),
    empty(13, &["GrpTRESMins"], "GrpTRESMins"),
    empty(13, &["GrpTRESRunMins"], "GrpTRESRunMins"),
    field(7, &["MaxJobs"], "MaxJobs", jobs),
    empty(13, &["MaxTRES", "MaxTRESPerJob"], "MaxTRES"),
    empty(14, &["MaxTRESPerNode"], "MaxTRESPerNode"),
    empty(9, &["MaxSubmitJobs"], "MaxSubmit"),
    field(11, &["MaxWall"], "MaxWall", |r, _| {
        of_qos(r, |qos| qos.max_wall_secs.map(time::long).unwrap_or_default())
    }),
    empty(13, &["MaxTRESMins"], "MaxTRESMins"),
    field(13, &["MaxTRESPerUser", "MaxTRESPU"], "MaxTRESPU", |r, c| {
        tres_of_qos(r, c, |qos| qos.max_tres)
    }),
    field(9, &["MaxJobsPerUser", "MaxJobsPU"], "MaxJobsPU", |r, _| {
        number_of_qos(r, |qos| qos.max_jobs)
    }),
    field(11, &["MaxSubmitJobsPerUser", "MaxSubmitPU"], "MaxSubmitPU", |r, _| {
        number_of_qos(r, |qos| qos.max_submit)
    }),
    empty(13, &["MaxTRESPerAccount", "MaxTRESPA"], "MaxTRESPA"),
    empty(9, &["MaxJobsPerAccount", "MaxJobsPA"], "MaxJobsPA"),
    empty(11, &["MaxSubmitJobsPerAccount", "MaxSubmitPA"], "MaxSubmitPA"),
    empty(13, &["MinTRES"], "MinTRES"),
    field(20, &["QOS"], "QOS", |r, _| match r {
        Row::Own(_, all) => names(all).into(),
        _ => of_cluster(r, |_| qos::DEFAULT),
    }),
    empty(9, &["DefaultQOS"], "Def QOS"),
    field(6, &["ID"], "ID", |r, _| match r {
        Row::Qos(id, _) | Row::Tres(_, _, id) => Value::Number((*id).into()),
        Row::Cluster(_) | Row::Elsewhere(..) | Row::Own(..) | Row::Limit(_) => Value::NONE,
    })
    .cut(Cut::Header),
    empty(10, &["ParentName"], "Par Name"),
    empty(6, &["ParentID"], "Par ID"),
    empty(6, &["LFT"], "LFT"),
    empty(6, &["RGT"], "RGT"),
    field(15, &["ControlHost"], "ControlHost", |r, _| match r {
        Row::Elsewhere(_, host) => (*host).to_owned().into(),
        _ => of_cluster(r, |_| "127.0.0.1"),
    }),
    // There is no port: commands connect to a Unix socket.
    field(12, &["ControlPort"], "ControlPort", |r, _| of_cluster(r, |_| Value::Number(0))),
    // The protocol version of Slurm 22.05, by which programs recognize the release.
    field(5, &["RPC"], "RPC", |r, _| of_cluster(r, |_| Value::Number(9728))),
    empty(9, &["Classification"], "Class"),
    field(20, &["ClusterNodes"], "Cluster Nodes", |r, _| of_cluster(r, |host| host.name.clone())),
    field(9, &["NodeCount"], "NodeCount", |r, _| of_cluster(r, |_| Value::Number(1))),
    field(9, &["NodeNames", "NodeName"], "NodeName", |r, _| {
        of_cluster(r, |host| host.name.clone())
    }),
    field(20, &["TRES"], "TRES", |r, c| {
        of_cluster(r, |host| tres::node(&host.tres(), true, c.units))
    }),
    field(20, &["Flags"], "Flags", |r, _| of_qos(r, Qos::flags)),
    field(10, &["Name"], "Name", |r, _| match r {
        Row::Qos(_, qos) => qos.name.clone().into(),
        Row::Tres(_, name, _) => (*name).into(),
        Row::Cluster(_) | Row::Elsewhere(..) | Row::Own(..) | Row::Limit(_) => Value::NONE,
    }),
    field(10, &["GraceTime"], "GraceTime", |r, _| of_qos(r, |qos| time::long(qos.grace_secs))),
    field(10, &["Preempt"], "Preempt", |r, _| of_qos(r, |qos| qos.preempt.join(","))),
    empty(19, &["PreemptExemptTime"], "PreemptExemptTime"),
    field(11, &["PreemptMode"], "PreemptMode", |r, _| {
        let mode = |qos: &Qos| qos.preempt_mode.map(|mode| mode.name().to_ascii_lowercase());
        of_qos(r, |qos| mode(qos).unwrap_or_else(|| "cluster".to_owned()))
    }),
    empty(10, &["UsageThreshold", "UsageThres"], "UsageThres"),
    field(11, &["UsageFactor"], "UsageFactor", |r, _| of_qos(r, |_| "1.000000")),
    field(8, &["Type"], "Type", |r, _| match r {
        Row::Tres(kind, ..) => (*kind).into(),
        Row::Cluster(_) | Row::Elsewhere(..) | Row::Qos(..) | Row::Own(..) | Row::Limit(_) => {
            Value::NONE
        }
    }),
    empty(10, &["Server"], "Server"),
    empty(10, &["ServerType"], "ServerType"),
    empty(6, &["Count"], "Count"),
    empty(9, &["PercentAllowed"], "% Allowed"),
    empty(19, &["TimeStart", "Start"], "TimeStart"),
    empty(19, &["TimeEnd", "End"], "TimeEnd"),
    empty(19, &["TimeSubmit"], "TimeSubmit"),
    empty(19, &["TimeStamp", "Time"], "Time"),
    empty(20, &["Action"], "Action"),
    empty(10, &["Actor"], "Actor"),
    empty(20, &["Where"], "Where"),
    empty(20, &["Info"], "Info"),
    empty(10, &["State"], "State"),
    empty(30, &["Reason"], "Reason"),
    empty(20, &["Federation"], "Federation"),
    empty(10, &["Weight"], "Weight"),
    empty(20, &["Features"], "Features"),
    empty(11, &["FedState"], "FedState"),
    empty(11, &["UnusedWall"], "UnusedWall"),
    empty(10, &["RawShares"], "RawShares"),
    empty(11, &["NormShares"], "NormShares"),
    empty(11, &["RawUsage"], "RawUsage"),
    empty(11, &["NormUsage"], "NormUsage"),
    empty(13, &["EffectvUsage"], "EffectvUsage"),
    empty(10, &["LevelFS"], "LevelFS"),
    empty(30, &["TRESRunMins"], "TRESRunMins"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, node};

    fn list(entity: Entity, layout: &Layout, gpus: u32) -> String {
        let node = node(gpus);
        layout.print(&entity.rows(&node, "lab"), true, &ctx())
    }

    #[test]
    fn every_list_has_all_of_its_columns() {
        for (name, entity, columns) in ENTITIES {
            assert_eq!(Entity::named(name), Some(entity), "{name}");
            assert!(Layout::ruled(columns).is_ok(), "{name}");
        }
        assert!(Layout::ruled(SHARES).is_ok() && Layout::ruled(LONG_SHARES).is_ok());
    }

    #[test]
    fn list_names_may_be_abbreviated() {
        let found = ["user", "Assoc", "QOS", "acc", "account", "cluster", "tres", "wckey"]
            .map(Entity::named);
        use Entity::*;
        let want = [User, Association, Qos, Account, Account, Cluster, Tres, Wckey];
        assert_eq!(found, want.map(Some));
        assert_eq!([Entity::named("nosuch"), Entity::named("")], [None, None]);
    }

    #[test]
    fn a_single_user_has_no_accounts() {
        assert_eq!(
            list(Entity::User, &Entity::User.layout(false), 0),
            "      User   Def Acct     Admin \n---------- ---------- --------- \n"
        );
        let shares = shares(false).print(&[], true, &ctx());
        assert_eq!(
            shares.lines().next(),
            Some(
                "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare "
            )
        );
        assert!(Entity::User.layout(true).print(&[], true, &ctx()).contains("GrpTRESRunMin"));
    }

    #[test]
    fn cluster_qos_and_resources_are_listed() {
        let of = |entity: Entity, columns: &str, gpus| {
            let Ok(layout) = Layout::ruled(columns) else { panic!("{columns}") };
            let node = node(gpus);
            layout.parsable("|", false).print(&entity.rows(&node, "lab"), false, &ctx())
        };
        assert_eq!(of(Entity::Cluster, "cluster,controlhost,qos", 0), "slotd|127.0.0.1|normal\n");
        assert_eq!(of(Entity::Qos, "name,priority,usagefactor", 0), "normal|0|1.000000\n");
        assert_eq!(
            of(Entity::Tres, "type,name,id", 0),
            "cpu||1\nmem||2\nenergy||3\nnode||4\nbilling||5\n"
        );
        assert!(
            of(Entity::Tres, "type,name,id", 2)
                .ends_with("billing||5\ngres|gpu|1001\ngres|gpumem|1002\ngres|shard|1003\n")
        );
    }

    #[test]
    fn each_qos_is_listed_with_its_limits() {
        let two = Qos {
            name: "two".to_owned(),
            priority: 10,
            max_jobs: Some(1),
            max_submit: Some(3),
            max_tres: TresLimit { cpus: Some(2), mem_mb: Some(1000), gpus: None },
            max_wall_secs: Some(300),
            grp_tres: TresLimit { cpus: Some(4), mem_mb: Some(2048), gpus: Some(1) },
            denies_on_limit: true,
            ..Qos::default()
        };
        let node = NodeView { qos: qos::with_default(vec![two]), ..node(0) };
        let shown = |entity: Entity, columns: Option<&str>| {
            let layout = columns.map_or_else(|| Ok(entity.layout(false)), Layout::ruled);
            let Ok(layout) = layout else { panic!("{columns:?}") };
            layout.parsable("|", false).print(&entity.rows(&node, "lab"), true, &ctx())
        };
        assert_eq!(
            shown(Entity::Qos, None),
            "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|\
             GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|\
             MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES\n\
             normal|0|00:00:00|||cluster|||1.000000|||||||||||||||||\n\
             two|10|00:00:00|||cluster|DenyOnLimit||1.000000|cpu=4,mem=2G,gres/gpu=1|||||||||00:05:00|\
             cpu=2,mem=1000M|1|3||||\n"
        );
        assert_eq!(
            shown(Entity::Association, Some("user,account,qos,defaultqos")),
            "User|Account|QOS|Def QOS\nlab||normal,two|\n"
        );
        let rows = Entity::Qos.rows(&node, "lab");
        assert!(rows[0].is("Normal") && rows[1].is("2") && !rows[1].is("other"));
    }
}
