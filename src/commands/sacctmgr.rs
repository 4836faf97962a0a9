//! `sacctmgr`: shows users, accounts and limits. It is read-only, because one host with one user
//! has none of them to change.

use super::output::{self, ctx};
use super::{Done, Entry, ask_node, clusters, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::commands::pages::texts;
use clap::Args;
use slotd_parse::error::shown;
use slotd_render::accounts::{Entity, Layout, Row};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sacctmgr>, run, page: &texts::SACCTMGR };

const APPLET: Applet =
    Applet::new("sacctmgr", "Show users, accounts and limits in the accounting database");

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sacctmgr {
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        /// Print a one-line usage summary
        #[arg(long)]
        pub usage: bool,
        /// Print the version
        #[arg(short = 'V', long)]
        pub version: bool,
        /// Print more details; may be repeated
        #[arg(short, long, action = clap::ArgAction::Count)]
        pub verbose: u8,
        /// Accepted for compatibility; nothing can be changed
        #[arg(short, long)]
        pub immediate: bool,
        /// Omit the header
        #[arg(short, long)]
        pub noheader: bool,
        /// Print one line per record, as slotd always does
        #[arg(short, long)]
        pub oneliner: bool,
        /// Separate values with | and end each line with |
        #[arg(short, long, overrides_with = "parsable2")]
        pub parsable: bool,
        /// Separate values with |
        #[arg(short = 'P', long, overrides_with = "parsable")]
        pub parsable2: bool,
        /// Suppress informational messages
        #[arg(short = 'Q', long)]
        pub quiet: bool,
        /// Change nothing, as slotd always does
        #[arg(short, long)]
        pub readonly: bool,
        /// Add the columns of associations to those of users and accounts
        #[arg(short = 's', long)]
        pub associations: bool,
        /// show or list, then an entity (user, account, association, cluster, qos, tres, …), optionally
        /// names and format=COLUMNS
        #[arg(value_name = "WORD")]
        pub operands: Vec<String>,
    }
}

/// A parsed `show` command.
#[derive(Debug)]
struct Listing {
    entity: Entity,
    layout: Layout,
    /// The records to show. If empty, all are shown.
    names: Vec<String>,
}

/// Verbs that would change records.
const CHANGES: [&str; 12] = [
    "add",
    "archive",
    "clear",
    "create",
    "delete",
    "dump",
    "load",
    "modify",
    "reconfigure",
    "remove",
    "shutdown",
    "update",
];

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sacctmgr, CliError> {
    choices::parse::<Sacctmgr>(APPLET, argv, origin).map(|(args, _)| args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    if args.operands.first().is_some_and(|verb| verb.eq_ignore_ascii_case("version")) {
        return output::print(&format!("{}\n", choices::VERSION));
    }
    let listing = listing(&args)?;
    let node = ask_node()?;
    if listing.entity == Entity::RunawayJobs {
        let cluster = &ctx(&origin, node.now).cluster;
        let text = format!("Runaway Jobs: No runaway jobs found on cluster {cluster}\n");
        return output::print(&text);
    }
    let (uid, _) = slotd_sys::user::current();
    let user = slotd_sys::user::user_name(uid);
    let mut rows = listing.entity.rows(&node, &user);
    let elsewhere = match listing.entity {
        Entity::Cluster => clusters::remote::destinations()?,
        _ => Vec::new(),
    };
    rows.extend(elsewhere.iter().map(|(name, host)| Row::Elsewhere(name, host)));
    rows.retain(|row| listing.names.is_empty() || listing.names.iter().any(|name| row.is(name)));
    output::print(&listing.layout.print(&rows, !args.noheader, &ctx(&origin, node.now)))
}

fn listing(args: &Sacctmgr) -> Result<Listing, CliError> {
    let Some((verb, words)) = args.operands.split_first() else {
        return Err(CliError::error(1, "No command given: sacctmgr show ENTITY").hint(entities()));
    };
    let verb = verb.to_ascii_lowercase();
    if CHANGES.contains(&verb.as_str()) {
        let text = format!(
            "{verb}: nothing can be changed here: one host with one user has no accounts or limits"
        );
        return Err(CliError::error(1, text)
            .hint("set limits of partitions, accounts and job names in slotd.toml"));
    }
    if !["show", "list"].contains(&verb.as_str()) {
        return Err(CliError::new(Mark::Bare, 1, format!("invalid keyword: {}", shown(&verb))));
    }
    let Some((entity, specs)) = words.split_first() else { return Err(no_entity()) };
    let entity = Entity::named(entity).ok_or_else(no_entity)?;
    let (layout, names) = specifications(args, entity, specs)?;
    let layout = match (args.parsable, args.parsable2) {
        (true, _) => layout.parsable("|", true),
        (_, true) => layout.parsable("|", false),
        (false, false) => layout,
    };
    Ok(Listing { entity, layout, names })
}

fn no_entity() -> CliError {
    CliError::new(Mark::Bare, 1, "No valid entity in list command").hint(entities())
}

fn entities() -> String {
    format!("entities: {}", Entity::names())
}

/// Parses the columns and names after the entity.
fn specifications(
    args: &Sacctmgr,
    entity: Entity,
    specs: &[String],
) -> Result<(Layout, Vec<String>), CliError> {
    let mut columns = None;
    let mut names = Vec::new();
    let mut associations = args.associations;
    for spec in specs {
        let (key, value) =
            spec.split_once('=').map_or((spec.as_str(), None), |(key, value)| (key, Some(value)));
        match (key.to_ascii_lowercase().as_str(), value) {
            ("format" | "fields" | "fo" | "form", Some(value)) => columns = Some(value),
            ("withassoc" | "withassociations", None) => associations = true,
            ("where" | "set" | "tree", None) => {}
            (key, None)
                if key.starts_with("with") || key.starts_with("wo") || key.starts_with("only") => {}
            (_, None) => names.extend(list(key)),
            ("name" | "names" | "id" | "ids" | "type" | "cluster" | "clusters", Some(value)) => {
                names.extend(list(value))
            }
            ("user" | "users" | "account" | "accounts", Some(value)) => names.extend(list(value)),
            // Times, states and the like would filter records that do not exist here.
            (_, Some(_)) => {}
        }
    }
    let layout = match columns {
        Some(columns) => Layout::ruled(columns).map_err(output::format_error)?,
        None => entity.layout(associations),
    };
    Ok((layout, names))
}

fn list(text: &str) -> impl Iterator<Item = String> {
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Listing, CliError> {
        listing(&Sacctmgr {
            operands: words.iter().map(ToString::to_string).collect(),
            ..Sacctmgr::default()
        })
    }

    #[test]
    fn listing_is_selected_by_entity_columns_and_names() {
        let Ok(got) =
            asked(&["list", "qos", "where", "name=normal,high", "format=name%20,priority"])
        else {
            panic!("a listing")
        };
        assert_eq!(
            (got.entity, got.names),
            (Entity::Qos, vec!["normal".to_owned(), "high".to_owned()])
        );
        assert_eq!(got.layout, Layout::ruled("name%20,priority").unwrap_or_default());
        let Ok(got) = asked(&["show", "user", "lab", "withassoc"]) else { panic!("a listing") };
        assert_eq!((got.entity, got.layout), (Entity::User, Entity::User.layout(true)));
    }

    #[test]
    fn verbs_that_change_records_are_refused() {
        for words in [
            &["add", "user", "x"][..],
            &["modify", "user", "set", "maxjobs=1"],
            &["Delete", "account", "x"],
        ] {
            let error = asked(words).expect_err("a refusal").text("sacctmgr");
            assert!(error.contains("nothing can be changed here"), "{error}");
        }
        for (words, text) in [
            (&["show"][..], "No valid entity in list command"),
            (&["show", "nosuch"], "No valid entity in list command"),
            (&["frob"], "invalid keyword: frob"),
            (&["show", "user", "format=nosuch"], "Unknown field 'nosuch'"),
        ] {
            let error = asked(words).expect_err("a refusal").text("sacctmgr");
            assert!(error.contains(text), "{error}");
        }
    }
}
