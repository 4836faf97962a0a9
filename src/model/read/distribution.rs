//! The reader of distributions of tasks.

use crate::placement::{Dealing, Distribution, Spread};

/// Reads a distribution in lower case.
pub fn distribution(text: &str) -> Option<Distribution> {
    let (how, packs) = match text.split_once(',') {
        None if text == "pack" => ("*", Some(true)),
        None if text == "nopack" => ("*", Some(false)),
        None => (text, None),
        Some((how, "pack")) => (how, Some(true)),
        Some((how, "nopack")) => (how, Some(false)),
        Some(_) => return None,
    };
    let mut words = how.split(':');
    let nodes = match words.next()? {
        "*" => Spread::Default,
        "block" => Spread::Block,
        "cyclic" => Spread::Cyclic,
        "plane" => Spread::Plane(None),
        plane => Spread::Plane(Some(
            plane.strip_prefix("plane=")?.parse().ok().filter(|size| *size > 0)?,
        )),
    };
    let mut dealing = || match words.next() {
        None | Some("*") => Some(None),
        Some("block") => Some(Some(Dealing::Block)),
        Some("cyclic") => Some(Some(Dealing::Cyclic)),
        Some("fcyclic") => Some(Some(Dealing::Fcyclic)),
        Some(_) => None,
    };
    let (sockets, cores) = (dealing()?, dealing()?);
    // `plane` takes no further words.
    let is_whole = words.next().is_none()
        && (!matches!(nodes, Spread::Plane(_)) || (sockets, cores) == (None, None));
    is_whole.then_some(Distribution { nodes, sockets, cores, packs })
}
