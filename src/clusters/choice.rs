//! Which clusters a command names, and how Slurm refuses unknown names.
//!
//! Names come in the order of the file, this host first, and are matched without regard to case. A
//! blank after a comma is part of the name, as in Slurm.

use crate::args::error::CliError;
use slotd_model::CLUSTER;
use slotd_parse::error::shown;

/// The source of a command's list of clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    CommandLine,
    Variable(&'static str),
    /// A directive of the script.
    Script,
}

/// A cluster that a command runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    ThisHost,
    /// The index in the file.
    Other(usize),
}

/// The clusters of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Each once, this host first, the others in the order of the file.
    pub places: Vec<Place>,
    /// Names of unknown clusters, in the order given.
    pub unknown: Vec<String>,
}

/// Returns whether a list names this host and nothing else, so that the file need not be read.
pub fn is_this_host(list: &str) -> bool {
    list.split(',').all(|name| name.eq_ignore_ascii_case(CLUSTER))
}

/// Resolves a list of names. `known` are the names in the file, in its order.
pub fn choose(list: &str, known: &[&str]) -> Chosen {
    let all = std::iter::once(Place::ThisHost).chain((0..known.len()).map(Place::Other));
    if list.eq_ignore_ascii_case("all") {
        return Chosen { places: all.collect(), unknown: Vec::new() };
    }
    let mut unknown: Vec<String> = Vec::new();
    let is_name = |place: &Place, name: &str| match place {
        Place::ThisHost => CLUSTER.eq_ignore_ascii_case(name),
        Place::Other(i) => known[*i].eq_ignore_ascii_case(name),
    };
    let all: Vec<Place> = all.collect();
    for name in list.split(',') {
        let is_known = all.iter().any(|place| is_name(place, name));
        if !is_known && !unknown.iter().any(|other| other == name) {
            unknown.push(name.to_owned());
        }
    }
    let is_named = |place: &Place| list.split(',').any(|name| is_name(place, name));
    Chosen { places: all.into_iter().filter(is_named).collect(), unknown }
}

/// Returns Slurm's lines about unknown names: one for each, and a last one if nothing else was
/// named. Only squeue names the variable in it.
pub fn refusal(chosen: &Chosen, list: &str, by: By, command: &str) -> CliError {
    let known = |name: &String| format!("No cluster '{}' known by database.", shown(name));
    let mut lines: Vec<String> = chosen.unknown.iter().map(known).collect();
    if chosen.places.is_empty() {
        let entry = match by {
            By::Variable(name) if command == "squeue" => name,
            By::Variable(_) | By::CommandLine | By::Script => "--cluster",
        };
        lines.push(format!(
            "'{}' can't be reached now, or it is an invalid entry for {entry}.  Use 'sacctmgr list clusters' to see available clusters.",
            shown(list)
        ));
    }
    CliError::error(1, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Place::{Other, ThisHost};
    use proptest::prelude::*;

    const KNOWN: [&str; 2] = ["beta", "alpha"];

    #[test]
    fn names_come_in_the_order_of_the_file_with_this_host_first() {
        for (list, places) in [
            ("alpha", vec![Other(1)]),
            ("alpha,beta", vec![Other(0), Other(1)]),
            ("ALPHA,slotd,alpha", vec![ThisHost, Other(1)]),
            ("all", vec![ThisHost, Other(0), Other(1)]),
        ] {
            assert_eq!(choose(list, &KNOWN), Chosen { places, unknown: vec![] }, "{list}");
        }
    }

    #[test]
    fn a_blank_and_an_empty_name_are_unknown_names() {
        assert_eq!(choose("alpha, beta", &KNOWN).unknown, [" beta"]);
        assert_eq!(choose("", &KNOWN), Chosen { places: vec![], unknown: vec![String::new()] });
        assert_eq!(choose("x,x", &KNOWN).unknown, ["x"]);
        assert!(is_this_host("slotd,SLOTD"));
        assert!(!is_this_host("") && !is_this_host("slotd,") && !is_this_host("all"));
    }

    #[test]
    fn unknown_names_are_refused_as_in_slurm() {
        let text = |list: &str, by, command| {
            refusal(&choose(list, &KNOWN), list, by, command).text(command)
        };
        assert_eq!(
            text("nosuch,none", By::CommandLine, "squeue"),
            "squeue: error: No cluster 'nosuch' known by database.\nsqueue: error: No cluster 'none' known by database.\n\
             squeue: error: 'nosuch,none' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.\n"
        );
        assert_eq!(
            text("a,alpha", By::CommandLine, "sinfo"),
            "sinfo: error: No cluster 'a' known by database.\n"
        );
        assert!(
            text("a", By::Variable("SLURM_CLUSTERS"), "squeue")
                .contains("entry for SLURM_CLUSTERS.")
        );
        assert!(
            text("a", By::Variable("SLURM_CLUSTERS"), "sbatch").contains("entry for --cluster.")
        );
        assert!(text("", By::CommandLine, "sbatch").contains("'' can't be reached"));
    }

    proptest! {
        #[test]
        fn every_name_is_a_place_or_unknown(list in "(alpha|BETA|slotd|x| ){0,3}(,(alpha|beta|y)){0,3}") {
            let chosen = choose(&list, &KNOWN);
            let mut names: Vec<String> = list.split(',').map(str::to_lowercase).collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(chosen.places.len() + chosen.unknown.len(), names.len());
        }
    }
}
