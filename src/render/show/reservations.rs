//! `scontrol show reservation` and `sinfo -T`.

use crate::ctx::Ctx;
use crate::time;
use slotd_model::node::ranges;
use slotd_model::reservation::{Flag, Reservation, ReservationView, Share};
use slotd_model::view::NodeView;

/// Prints the reservations, or the one with this name.
pub fn reservations(n: &NodeView, name: Option<&str>, one_line: bool, ctx: &Ctx) -> String {
    let is_meant = |view: &&ReservationView| name.is_none_or(|name| view.reservation.name == *name);
    n.reservations.iter().filter(is_meant).map(|view| one(n, view, one_line, ctx)).collect()
}

fn one(n: &NodeView, view: &ReservationView, one_line: bool, ctx: &Ctx) -> String {
    let r = &view.reservation;
    let null = || "(null)".to_owned();
    let (cpus, tres) = amounts(n, r);
    let has_nodes = r.share != Share::Licenses;
    let node = if has_nodes { n.host.name.clone() } else { null() };
    let partition = r.partition.clone().unwrap_or_else(|| match r.share {
        Share::Parts(_) => default_partition(n),
        _ => null(),
    });
    let list = |names: &[String]| if names.is_empty() { null() } else { names.join(",") };
    let mut lines = vec![
        format!(
            "ReservationName={} StartTime={} EndTime={} Duration={}",
            r.name,
            time::instant(r.start, ctx),
            end(r, ctx),
            duration(r)
        ),
        format!(
            "Nodes={node} NodeCnt={} CoreCnt={cpus} Features=(null) PartitionName={partition} \
             Flags={}",
            u32::from(has_nodes),
            flags(r)
        ),
    ];
    if matches!(r.share, Share::Parts(_)) && !view.cpus.is_empty() {
        lines.push(format!("  NodeName={} CoreIDs={}", n.host.name, ranges(&view.cpus)));
    }
    lines.push(format!("TRES={tres}"));
    lines.push(format!(
        "Users={} Groups=(null) Accounts={} Licenses={} State={} BurstBuffer=(null) Watts=n/a",
        list(&r.users),
        list(&r.accounts),
        r.licenses.clone().unwrap_or_else(null),
        state(r, ctx),
    ));
    lines.push("MaxStartDelay=(null)".to_owned());
    let between = if one_line { " " } else { "\n   " };
    lines.join(between) + if one_line { "\n" } else { "\n\n" }
}

/// Returns the number of CPUs, and the resources as Slurm lists them.
fn amounts(n: &NodeView, r: &Reservation) -> (u32, String) {
    match r.share {
        Share::Node => {
            let cpus = n.host.cpu_ids.len() as u32;
            (cpus, format!("cpu={cpus}"))
        }
        Share::Parts(limit) => (limit.cpus.unwrap_or(0), limit.text(|mb| format!("{mb}M"))),
        Share::Licenses => (0, "(null)".to_owned()),
    }
}

fn default_partition(n: &NodeView) -> String {
    let default = n.partitions.iter().find(|known| known.partition.is_default);
    default.map_or_else(|| "(null)".to_owned(), |known| known.partition.name.clone())
}

fn flags(r: &Reservation) -> String {
    let shown = |flag: &Flag| match (flag, r.purge_secs()) {
        (Flag::PurgeComp, Some(secs)) => format!("{flag}={}", time::long(secs)),
        _ => flag.to_string(),
    };
    r.flags.iter().map(shown).collect::<Vec<_>>().join(",")
}

fn end(r: &Reservation, ctx: &Ctx) -> String {
    time::instant_or(r.end, "Unknown", ctx)
}

fn duration(r: &Reservation) -> String {
    r.end.map_or_else(|| "UNLIMITED".to_owned(), |end| time::long(end.since(r.start).as_secs()))
}

fn state(r: &Reservation, ctx: &Ctx) -> &'static str {
    if r.is_active(ctx.now) { "ACTIVE" } else { "INACTIVE" }
}

/// Prints the table of `sinfo -T`.
pub fn reservation_table(n: &NodeView, header: bool, ctx: &Ctx) -> String {
    if n.reservations.is_empty() {
        return "No reservations in the system\n".to_owned();
    }
    let all = || n.reservations.iter().map(|view| &view.reservation);
    let width = all().map(|r| r.name.chars().count()).max().unwrap_or(0).max(9);
    let line = |name: &str, state: &str, start: &str, end: &str, length: &str, nodes: &str| {
        format!("{name:<width$}  {state:>8}  {start:>19}  {end:>19}  {length:>11}  {nodes}\n")
    };
    let head = line("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST");
    let rows = all().map(|r| {
        let nodes = if r.share == Share::Licenses { "" } else { &n.host.name };
        let (start, end) = (time::instant(r.start, ctx), end(r, ctx));
        line(&r.name, state(r, ctx), &start, &end, &duration(r), nodes)
    });
    let head = if header { head } else { String::new() };
    std::iter::once(head).chain(rows).collect()
}

/// Returns the active reservation of the whole node, one for maintenance first.
pub(crate) fn of_node(n: &NodeView) -> Option<&Reservation> {
    let all = n.reservations.iter().map(|view| &view.reservation);
    let active = all.filter(|r| r.share == Share::Node && r.is_active(n.now));
    active.max_by_key(|r| r.has(Flag::Maint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, node};
    use slotd_model::Timestamp;
    use slotd_model::qos::TresLimit;
    use std::collections::BTreeSet;

    fn with(reservation: Reservation) -> NodeView {
        let view = ReservationView { reservation, cpus: vec![0, 1] };
        NodeView { reservations: vec![view], ..node(0) }
    }

    #[test]
    fn reservations_are_shown_as_in_slurm() {
        let start = Timestamp::from_secs(3600);
        let whole = Reservation {
            name: "root_1".to_owned(),
            start,
            end: Some(start.plus_secs(600)),
            users: vec!["root".to_owned()],
            flags: BTreeSet::from([Flag::AllNodes, Flag::SpecNodes, Flag::Maint]),
            ..Reservation::default()
        };
        let n = with(whole.clone());
        let (name, cpus) = (n.host.name.clone(), n.host.cpu_ids.len());
        let at = |secs| time::instant(Timestamp::from_secs(secs), &ctx());
        let (from, until) = (at(3600), at(4200));
        assert_eq!(
            reservations(&n, None, false, &ctx()),
            format!(
                "ReservationName=root_1 StartTime={from} EndTime={until} Duration=00:10:00\n   \
                 Nodes={name} NodeCnt=1 CoreCnt={cpus} Features=(null) PartitionName=(null) \
                 Flags=MAINT,SPEC_NODES,ALL_NODES\n   \
                 TRES=cpu={cpus}\n   \
                 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE \
                 BurstBuffer=(null) Watts=n/a\n   \
                 MaxStartDelay=(null)\n\n"
            )
        );
        assert_eq!(reservations(&n, Some("other"), false, &ctx()), "");
        assert_eq!(
            reservation_table(&n, true, &ctx()),
            format!(
                "RESV_NAME     STATE           START_TIME             END_TIME     DURATION  \
                 NODELIST\n\
                 root_1     INACTIVE  {from}  {until}     00:10:00  {name}\n"
            )
        );
        let limit = TresLimit { cpus: Some(2), ..TresLimit::default() };
        let parts =
            Reservation { share: Share::Parts(limit), end: None, flags: BTreeSet::new(), ..whole };
        let text = reservations(&with(parts), None, true, &ctx());
        assert!(text.contains(" EndTime=Unknown Duration=UNLIMITED "), "{text}");
        assert!(text.contains(" Flags=   NodeName=") && text.contains(" TRES=cpu=2 "), "{text}");
        assert_eq!(reservation_table(&node(0), true, &ctx()), "No reservations in the system\n");
    }
}
