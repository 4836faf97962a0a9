//! `sreport`: prints Slurm's reports of clusters, accounts and users. One host with one user has no
//! accounts, so the reports have their columns but no lines, which keeps scripts that read them
//! working.

use super::{Done, Entry, origin, output};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::commands::pages::texts;
use clap::Args;
use jiff::tz::TimeZone;
use slotd_model::Timestamp;
use slotd_parse::error::shown;
use slotd_render::time::iso;
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sreport>, run, page: &texts::SREPORT };

const APPLET: Applet = Applet {
    examples: &[("sreport cluster utilization start=2026-11-01", "a report without lines")],
    ..Applet::new(
        "sreport",
        "Print empty reports of clusters and accounts; use sacct and seff for jobs",
    )
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sreport {
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        /// Print a one-line usage summary
        #[arg(long)]
        pub usage: bool,
        /// Print the version
        #[arg(short = 'V', long)]
        pub version: bool,
        /// Report on all clusters; there is only one
        #[arg(short, long)]
        pub all_clusters: bool,
        /// Report on this cluster
        #[arg(short = 'M', long, alias = "cluster", value_name = "NAME")]
        pub clusters: Option<String>,
        /// Accepted for compatibility; there are no federations
        #[arg(long)]
        pub federation: bool,
        /// Report only on the local cluster
        #[arg(long)]
        pub local: bool,
        /// Omit the header
        #[arg(short, long)]
        pub noheader: bool,
        /// Separate values with | and end each line with |
        #[arg(short, long, overrides_with = "parsable2")]
        pub parsable: bool,
        /// Separate values with |
        #[arg(short = 'P', long, overrides_with = "parsable")]
        pub parsable2: bool,
        /// Suppress informational messages
        #[arg(short = 'Q', long)]
        pub quiet: bool,
        /// Print times in this unit: seconds, minutes, hours or percent
        #[arg(short, long, value_name = "UNIT")]
        pub t: Option<String>,
        /// Report on these resources
        #[arg(short = 'T', long, value_name = "LIST")]
        pub tres: Option<String>,
        /// Print more details; may be repeated
        #[arg(short, long, action = clap::ArgAction::Count)]
        pub verbose: u8,
        /// The kind of report, the report, and optionally start=TIME and end=TIME
        #[arg(value_name = "WORD")]
        pub operands: Vec<String>,
    }
}

/// A report: its kind, its name, its title, whether the title includes the length of the window,
/// and its columns with their widths.
struct Report(&'static str, &'static str, &'static str, bool, &'static [(&'static str, usize)]);

const SIZES: [(&str, usize); 6] = [
    ("0-49 CPUs", 13),
    ("50-249 CPUs", 13),
    ("250-499 CPUs", 13),
    ("500-999 CPUs", 13),
    (">= 1000 CPUs", 13),
    ("% of cluster", 12),
];

/// The reports. Reports of kind `job` also have the columns of [`SIZES`] at the end.
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
            ("Allocated", 8),
            ("Down", 8),
            ("PLND Down", 8),
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

/// Parses a command line.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sreport, CliError> {
    choices::parse::<Sreport>(APPLET, argv, origin).map(|(args, _)| args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    output::print(&report(&args, &origin)?)
}

/// Returns the report that the words select.
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
    let kind = words.next().ok_or_else(|| CliError::error(1, "no report given").hint(names()))?;
    if !REPORTS.iter().any(|Report(known, ..)| begins(known, kind)) {
        return Err(invalid(kind).hint(names()));
    }
    let name = words.next().ok_or_else(|| CliError::error(1, "no report given").hint(names()))?;
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
    let unit = unit(args.t.as_deref())?;
    let counted = match (*kind, unit) {
        ("job", _) => format!("Time reported in {unit}"),
        (_, PERCENT) => format!("Usage reported in {unit}"),
        ("reservation", _) => format!("Usage reported in TRES {unit}"),
        _ => format!("Usage reported in CPU {unit}"),
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
            format!("{name:<width$.width$} ")
        } else {
            format!("{name:>width$.width$} ")
        };
    }
    text.push('\n');
    text.extend(columns.iter().map(|(_, width)| "-".repeat(*width) + " "));
    text.push('\n');
    Ok(text)
}

const PERCENT: &str = "Percentage of Total";

/// The units of `-t`, the most common ones first: an abbreviation means the first that it fits.
const UNITS: [(&str, &str); 7] = [
    ("seconds", "Seconds"),
    ("minutes", "Minutes"),
    ("hours", "Hours"),
    ("percent", PERCENT),
    ("secper", "Seconds/Percentage of Total"),
    ("minper", "Minutes/Percentage of Total"),
    ("hourper", "Hours/Percentage of Total"),
];

/// Returns the name of the unit of `-t`.
///
/// # Errors
/// Fails for an unknown unit.
fn unit(word: Option<&str>) -> Result<&'static str, CliError> {
    let Some(word) = word else { return Ok("Minutes") };
    let asked = word.to_ascii_lowercase();
    let named = UNITS.iter().find(|(name, _)| !asked.is_empty() && name.starts_with(&asked));
    named.map(|(_, unit)| *unit).ok_or_else(|| {
        let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
        CliError::new(Mark::Bare, 1, format!("unknown time format {}", shown(word)))
            .hint(format!("units: {}", names.join(", ")))
    })
}

/// Returns the beginning of the hour of a time.
fn hour_of(at: Timestamp, zone: &TimeZone) -> Timestamp {
    let zoned =
        jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default().to_zoned(zone.clone());
    let past = i64::from(zoned.minute()) * 60 + i64::from(zoned.second());
    Timestamp::from_secs(at.as_secs() - past)
}

/// The seconds of an hour.
const HOUR: i64 = 3600;

/// Returns the window of the report in whole hours: yesterday, unless `start=` and `end=` set
/// another.
fn window<'a>(
    words: impl Iterator<Item = &'a String>,
    origin: &Origin,
) -> Result<(Timestamp, Timestamp), CliError> {
    let read = |text: &str, is_end: bool| {
        slotd_parse::acct_time::parse(text, origin.now, &origin.tz, is_end)
            .map_err(|error| CliError::new(Mark::Bare, 1, error.to_string()).maybe_hint(error.hint))
    };
    let (mut start, mut end) = (None, None);
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key.to_ascii_lowercase().as_str() {
            "start" => start = Some(read(value, false)?),
            "end" => end = Some(read(value, true)?),
            // Columns, users and accounts would select lines, but the reports have none.
            _ => {}
        }
    }
    let midnight = read("midnight", true)?;
    let hour_after = |at: Timestamp| hour_of(Timestamp::from_secs(at.as_secs() + HOUR), &origin.tz);
    let start = start.map(|start| hour_of(start, &origin.tz));
    let end = match (end, start) {
        (Some(end), _) => hour_after(Timestamp::from_secs(end.as_secs() - 1)),
        (None, Some(start)) if start >= midnight => hour_after(start),
        (None, _) => midnight,
    };
    let start = start.unwrap_or(Timestamp::from_secs(end.as_secs() - 24 * HOUR));
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
    fn reports_have_slurms_header_and_no_lines() {
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
        assert!(print(&["-P", "cluster", "util"]).is_ok_and(|text| {
            text.ends_with("\nCluster|Allocated|Down|PLND Down|Idle|Planned|Reported\n")
        }));
        assert!(
            print(&["-P", "user", "top"]).is_ok_and(
                |text| text.ends_with("\nCluster|Login|Proper Name|Account|Used|Energy\n")
            )
        );
        for (words, message) in
            [(&["bogus"][..], "invalid keyword: bogus"), (&["cluster", "x"], "invalid keyword: x")]
        {
            assert!(print(words).expect_err("a refusal").text("sreport").starts_with(message));
        }
    }

    #[test]
    fn the_unit_and_whole_hours_are_shown() {
        let lines = |words: &[&str]| {
            let text = print(words).expect("a report");
            text.lines().skip(1).take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let title = "Cluster Utilization";
        for (unit, name) in [
            ("hours", "CPU Hours"),
            ("S", "CPU Seconds"),
            ("percent", "Percentage of Total"),
            ("hourper", "CPU Hours/Percentage of Total"),
        ] {
            let of_unit = lines(&["-t", unit, "cluster", "util"]);
            assert_eq!(of_unit[1], format!("Usage reported in {name}"));
        }
        let window = ["cluster", "util", "start=2026-11-01T10:10:10", "end=2026-11-01T12:50:00"];
        assert_eq!(lines(&window)[0], format!("{title} 2026-11-01T10:00:00 - 2026-11-01T12:59:59"));
        // Without an end: until today's midnight, or an hour.
        assert_eq!(
            lines(&window[..3])[0],
            format!("{title} 2026-11-01T10:00:00 - 2026-11-19T23:59:59")
        );
        let today = lines(&["cluster", "util", "start=2026-11-20T00:30"]);
        assert_eq!(today[0], format!("{title} 2026-11-20T00:00:00 - 2026-11-20T00:59:59"));
        let refused = print(&["-t", "weeks", "cluster", "util"]).expect_err("a refusal");
        assert!(refused.text("sreport").starts_with("unknown time format weeks\n"));
    }
}
