//! The reservations, licenses and QOS of the host, in lines.

use super::state::Screen;
use slotd_model::reservation::{self, Reservation};
use slotd_model::view::NodeView;
use slotd_render::plan;

/// A line, and the kind of its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub name: &'static str,
    pub text: String,
}

/// The kinds, as the lines begin.
const RESERVED: &str = "RESERVED";
const LICENSES: &str = "LICENSES";
const QOS: &str = "QOS";

/// Returns the reservations, the active and the next ones first.
fn reservations(node: &NodeView) -> Vec<&Reservation> {
    let mut all: Vec<&Reservation> =
        node.reservations.iter().map(|view| &view.reservation).collect();
    all.sort_by_key(|r| (r.start, r.number));
    all
}

/// Returns when it is, and what it is for whom.
fn reserved(screen: &Screen, r: &Reservation) -> [String; 2] {
    let when = format!("{}: {}", r.name, plan::when(r, &screen.ctx()));
    [when, format!("{} for {}", plan::what(r), plan::who(r))]
}

/// Returns the licenses in use, with those that reservations keep.
fn licenses(node: &NodeView) -> Vec<String> {
    let one = |license: &slotd_model::license::LicenseUse| {
        let kept = reservation::licenses(&node.reservations, &license.name, node.now);
        let kept = if kept > 0 { format!(" ({kept} reserved)") } else { String::new() };
        format!("{} {} of {} used{kept}", license.name, license.used, license.total)
    };
    node.licenses.iter().map(one).collect()
}

/// Returns the QOS, unless there is only the default one without settings.
fn qos(node: &NodeView) -> Vec<String> {
    let all = node.qos.iter().filter(|qos| !qos.is_plain_default());
    all.map(ToString::to_string).collect()
}

/// Returns a line for the licenses, one for each reservation, and one for the QOS.
fn all(screen: &Screen) -> Vec<Plan> {
    let Some(node) = &screen.picture.node else { return Vec::new() };
    let in_one_line = |name, list: Vec<String>| {
        let text = list.join("; ");
        (!text.is_empty()).then_some(Plan { name, text })
    };
    let reserved = reservations(node).into_iter().map(|r| reserved(screen, r).join("; "));
    let reserved = reserved.map(|text| Plan { name: RESERVED, text });
    let licenses = in_one_line(LICENSES, licenses(node));
    licenses.into_iter().chain(reserved).chain(in_one_line(QOS, qos(node))).collect()
}

/// Returns the number of lines beside the lists that everything would take.
pub fn wanted(screen: &Screen) -> usize {
    let Some(node) = &screen.picture.node else { return 0 };
    let has_qos = node.qos.iter().any(|qos| !qos.is_plain_default());
    node.reservations.len() + usize::from(!node.licenses.is_empty()) + usize::from(has_qos)
}

/// Returns the lines that fit beside the lists. The last one says how many do not.
pub fn inline(screen: &Screen, lines: u16) -> Vec<Plan> {
    let mut all = all(screen);
    let lines = usize::from(lines);
    if all.len() > lines && lines > 0 {
        let more = all.len() - (lines - 1);
        all.truncate(lines - 1);
        all.push(Plan { name: "PLANS", text: format!("{more} more: press p") });
    }
    all
}

/// Returns everything, in lines that fit a narrow screen.
pub fn whole(screen: &Screen) -> Vec<String> {
    let Some(node) = &screen.picture.node else { return Vec::new() };
    let reserved = reservations(node).into_iter().flat_map(|r| {
        let [when, what] = reserved(screen, r);
        [when, format!("  {what}")]
    });
    let mut lines = Vec::new();
    for (name, list) in
        [(LICENSES, licenses(node)), (RESERVED, reserved.collect()), (QOS, qos(node))]
    {
        lines.push(name.to_owned());
        let none = list.is_empty().then(|| "none".to_owned());
        lines.extend(list.into_iter().chain(none).map(|text| format!("  {text}")));
    }
    lines
}
