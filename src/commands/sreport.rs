//! `sreport`: Slurm's reports of clusters, accounts and users. One host with one user has no
//! accounts to report on: the reports are there, with their columns and without lines, so that
//! scripts that ask for them go on.

use super::{Done, Entry, origin, output};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Operands;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::model::Timestamp;
use crate::parse;
use crate::parse::error::shown;
use crate::render::time::iso;
use clap::Args;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sreport>, run, page: &texts::SREPORT };

const APPLET: Applet = Applet {
    name: "sreport",
    about: "Reports of clusters and accounts, which are empty: sacct and seff show jobs",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[],
    variables: Vec::new,
    submission: "",
    examples: &[("sreport cluster utilization start=2026-11-01", "a report, without lines")],
};

#[derive(Debug, Clone, Default, Args)]
pub struct Sreport {
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// Print a short line of the form of the command
    #[arg(long)]
    pub usage: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// All clusters, of which there is one
    #[arg(short, long)]
    pub all_clusters: bool,
    /// This cluster
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAME")]
    pub clusters: Option<String>,
    /// Report on the federation, of which there is none
    #[arg(long)]
    pub federation: bool,
    /// Report on this cluster alone
    #[arg(long)]
    pub local: bool,
    /// No lines of headers
    #[arg(short, long)]
    pub noheader: bool,
    /// Values with | between them and after the last one
    #[arg(short, long, overrides_with = "parsable2")]
    pub parsable: bool,
    /// Values with | between them
    #[arg(short = 'P', long, overrides_with = "parsable")]
    pub parsable2: bool,
    /// Hide messages that are only news
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// Unit of time: seconds, minutes, hours or percent
    #[arg(short, long, value_name = "UNIT")]
    pub t: Option<String>,
    /// Resources to report on
    #[arg(short = 'T', long, value_name = "LIST")]
    pub tres: Option<String>,
    /// Print more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The kind of a report, the report, and perhaps start=TIME and end=TIME
    #[arg(value_name = "WORD")]
    pub operands: Vec<String>,
}

/// A report: its kind and name, its title, whether that has the length of its time, and its columns
/// with their widths.
struct Report(&'static str, &'static str, &'static str, bool, &'static [(&'static str, usize)]);

const SIZES: [(&str, usize); 6] = [
    ("0-49 CPUs", 13),
    ("50-249 CPUs", 13),
    ("250-499 CPUs", 13),
    ("500-999 CPUs", 13),
    (">= 1000 CPUs", 13),
    ("% of cluster", 12),
];

/// The reports, each with the columns before those of [`SIZES`], which reports of jobs have.
const REPORTS: [Report; 10] = [
    Report(
        "cluster",
        "AccountUtilizationByUser",
        "Cluster/Account/User Utilization",
        true,
        &[
            ("Cluster", 9),
            ("Account", 15),
            ("Login", 9),
            ("Proper Name", 15),
            ("Used", 8),
            ("Energy", 8),
        ],
    ),
    Report(
        "cluster",
        "UserUtilizationByAccount",
        "Cluster/User/Account Utilization",
        true,
        &[
            ("Cluster", 9),
            ("Login", 9),
            ("Proper Name", 15),
            ("Account", 15),
            ("Used", 8),
            ("Energy", 8),
        ],
    ),
    Report(
        "cluster",
        "UserUtilizationByWckey",
        "Cluster/User/WCKey Utilization",
        true,
        &[("Cluster", 9), ("Login", 9), ("Proper Name", 15), ("WCKey", 15), ("Used", 8)],
    ),
    Report(
        "cluster",
        "Utilization",
        "Cluster Utilization",
        false,
        &[
            ("Cluster", 9),
            ("Allocate", 8),
            ("Down", 8),
            ("PLND Dow", 8),
            ("Idle", 8),
            ("Planned", 8),
            ("Reported", 8),
        ],
    ),
    Report(
        "cluster",
        "WCKeyUtilizationByUser",
        "Cluster/WCKey/User Utilization",
        true,
        &[("Cluster", 9), ("WCKey", 15), ("Login", 9), ("Proper Name", 15), ("Used", 8)],
    ),
    Report("job", "SizesByAccount", "Job Sizes", true, &[("Cluster", 9), ("Account", 9)]),
    Report("job", "SizesByAccountAndWckey", "Job Sizes", true, &[("Cluster", 9), ("Account", 20)]),
    Report("job", "SizesByWckey", "Job Sizes by Wckey", true, &[("Cluster", 9), ("Wckey", 9)]),
    Report(
        "reservation",
        "Utilization",
        "Reservation Utilization",
        false,
        &[
            ("Cluster", 9),
            ("Name", 9),
            ("Start", 19),
            ("End", 19),
            ("TRES Name", 14),
            ("Allocated", 20),
            ("Idle", 20),
        ],
    ),
    Report(
        "user",
        "TopUsage",
        "Top 10 Users",
        true,
        &[
            ("Cluster", 9),
            ("Login", 9),
            ("Proper Name", 15),
            ("Account", 15),
            ("Used", 8),
            ("Energy", 8),
        ],
    ),
];

/// # Errors
/// Slurm's texts, exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sreport, CliError> {
    choices::parse::<Sreport>(APPLET, argv, origin).map(|(args, _)| args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    output::print(&report(&args, &origin)?)
}

/// The report that the words name.
fn report(args: &Sreport, origin: &Origin) -> Result<String, CliError> {
    let invalid =
        |word: &str| CliError::new(Mark::Bare, 1, format!("invalid keyword: {}", shown(word)));
    let begins = |name: &str, word: &str| {
        name.get(..word.len())
            .is_some_and(|start| !word.is_empty() && start.eq_ignore_ascii_case(word))
    };
    let names = || {
        let all: Vec<String> =
            REPORTS.iter().map(|Report(kind, name, ..)| format!("{kind} {name}")).collect();
        format!("reports: {}", all.join(", "))
    };
    let mut words = args.operands.iter();
    let kind =
        words.next().ok_or_else(|| CliError::error(1, "no report is named").hint(names()))?;
    if !REPORTS.iter().any(|Report(known, ..)| begins(known, kind)) {
        return Err(invalid(kind).hint(names()));
    }
    let name =
        words.next().ok_or_else(|| CliError::error(1, "no report is named").hint(names()))?;
    let is_it = |Report(known, report, ..): &&Report| begins(known, kind) && begins(report, name);
    let Report(kind, _, title, has_length, columns) =
        REPORTS.iter().find(is_it).ok_or_else(|| invalid(name).hint(names()))?;
    if args.noheader {
        return Ok(String::new());
    }
    let columns: Vec<(&str, usize)> =
        columns.iter().copied().chain(SIZES.into_iter().filter(|_| *kind == "job")).collect();
    let (start, end) = window(words, origin)?;
    let length =
        if *has_length { format!(" ({} secs)", end.since(start).as_secs()) } else { String::new() };
    let last = Timestamp::from_secs(end.as_secs() - 1);
    let (from, to) = (iso(start, &origin.tz), iso(last, &origin.tz));
    let rule = "-".repeat(80);
    let counted = match *kind {
        "job" => "Time reported in Minutes",
        "reservation" => "Usage reported in TRES Minutes",
        _ => "Usage reported in CPU Minutes",
    };
    let mut text = format!("{rule}\n{title} {from} - {to}{length}\n{counted}\n{rule}\n");
    if args.parsable || args.parsable2 {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        text += &(names.join("|") + if args.parsable { "|\n" } else { "\n" });
        return Ok(text);
    }
    let left = |name: &str, width: usize| *kind == "job" && name == "Account" && width > 9;
    for (name, width) in &columns {
        text += &if left(name, *width) {
            format!("{name:<width$} ")
        } else {
            format!("{name:>width$} ")
        };
    }
    text.push('\n');
    text.extend(columns.iter().map(|(_, width)| "-".repeat(*width) + " "));
    text.push('\n');
    Ok(text)
}

/// From when to when: yesterday, unless `start=` and `end=` say otherwise.
fn window<'a>(
    words: impl Iterator<Item = &'a String>,
    origin: &Origin,
) -> Result<(Timestamp, Timestamp), CliError> {
    let read = |text: &str, is_end: bool| {
        parse::acct_time::parse(text, origin.now, &origin.tz, is_end)
            .map_err(|error| CliError::new(Mark::Bare, 1, error.to_string()).maybe_hint(error.hint))
    };
    let (mut start, mut end) = (None, None);
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key.to_ascii_lowercase().as_str() {
            "start" => start = Some(read(value, false)?),
            "end" => end = Some(read(value, true)?),
            // Which columns, users and accounts: there is no line to choose from.
            _ => {}
        }
    }
    let end = match end {
        Some(end) => end,
        None if start.is_some() => origin.now,
        None => read("midnight", true)?,
    };
    let start = start.unwrap_or(Timestamp::from_secs(end.as_secs() - 86_400));
    if start >= end {
        return Err(CliError::error(1, "the report ends before it starts"));
    }
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::origin::tests::lab;

    fn print(words: &[&str]) -> Result<String, CliError> {
        let argv: Vec<OsString> = ["sreport"].iter().chain(words).map(OsString::from).collect();
        let origin = lab(&[]);
        report(&parse(&argv, &origin)?, &origin)
    }

    #[test]
    fn each_report_has_slurms_header_and_no_lines() {
        let rule = "-".repeat(80);
        assert_eq!(
            print(&["cluster", "utilization"]).ok(),
            Some(format!(
                "{rule}\nCluster Utilization 2026-11-19T00:00:00 - 2026-11-19T23:59:59\nUsage reported in CPU Minutes\n{rule}\n  \
                 Cluster Allocate     Down PLND Dow     Idle  Planned Reported \n--------- -------- -------- -------- \
                 -------- -------- -------- \n"
            ))
        );
        for Report(kind, name, ..) in REPORTS {
            assert!(
                print(&[kind, name, "start=2026-11-01", "end=2026-11-02"])
                    .is_ok_and(|text| text.lines().count() == 6)
            );
        }
        assert!(
            print(&["user", "top"])
                .is_ok_and(|text| text.contains("Top 10 Users") && text.contains("(86400 secs)"))
        );
        assert_eq!(print(&["-n", "cluster", "Util"]).ok(), Some(String::new()));
        assert!(
            print(&["-P", "user", "top"]).is_ok_and(
                |text| text.ends_with("\nCluster|Login|Proper Name|Account|Used|Energy\n")
            )
        );
        for (words, said) in
            [(&["bogus"][..], "invalid keyword: bogus"), (&["cluster", "x"], "invalid keyword: x")]
        {
            assert!(print(words).expect_err("a refusal").text("sreport").starts_with(said));
        }
    }
}
