//! `sacctmgr`: what the accounting has of users, accounts and limits. It is read only: one host
//! with one user has none of them to change.

use super::output::{self, ctx};
use super::{Done, Entry, ask_node, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Operands;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::parse::error::shown;
use crate::render::accounts::{Entity, Layout};
use clap::Args;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sacctmgr>, run, page: &texts::SACCTMGR };

const APPLET: Applet = Applet {
    name: "sacctmgr",
    about: "Show what the accounting has of users, accounts and limits",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[],
    variables: Vec::new,
    submission: "",
    examples: &[],
};

#[derive(Debug, Clone, Default, Args)]
pub struct Sacctmgr {
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// Print a short line of the form of the command
    #[arg(long)]
    pub usage: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// Tell more of what is done; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Change things without a question, where nothing is changed
    #[arg(short, long)]
    pub immediate: bool,
    /// No line of headers
    #[arg(short, long)]
    pub noheader: bool,
    /// A line for each record, as it always is
    #[arg(short, long)]
    pub oneliner: bool,
    /// Values with | between them and after the last one
    #[arg(short, long, overrides_with = "parsable2")]
    pub parsable: bool,
    /// Values with | between them
    #[arg(short = 'P', long, overrides_with = "parsable")]
    pub parsable2: bool,
    /// Hide messages that are only news
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// Change nothing, as always
    #[arg(short, long)]
    pub readonly: bool,
    /// Columns of the associations beside those of users and accounts
    #[arg(short = 's', long)]
    pub associations: bool,
    /// show or list, what of (user, account, association, cluster, qos, tres, …), and perhaps
    /// names, format=COLUMNS
    #[arg(value_name = "WORD")]
    pub operands: Vec<String>,
}

/// What is asked for.
#[derive(Debug)]
struct Listing {
    entity: Entity,
    layout: Layout,
    /// Only these, if any.
    names: Vec<String>,
}

/// Verbs that change what there is.
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
    let mut rows = listing.entity.rows(&node.host, &node.limits);
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
            "{verb}: nothing here can be changed: one host with one user has no accounts and no limits"
        );
        return Err(
            CliError::error(1, text).hint("what a partition allows stands in SLOTD_PARTITIONS")
        );
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
    format!("an entity is one of {}", Entity::names())
}

/// The columns and the names after the entity. Conditions on what no record has are met by none.
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
            // Times, states and the like choose among records, of which there are none.
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
    fn what_is_shown_is_chosen_by_entity_columns_and_names() {
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
    fn what_changes_anything_is_refused_in_words() {
        for words in [
            &["add", "user", "x"][..],
            &["modify", "user", "set", "maxjobs=1"],
            &["Delete", "account", "x"],
        ] {
            let error = asked(words).expect_err("a refusal").text("sacctmgr");
            assert!(error.contains("nothing here can be changed"), "{error}");
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
