//! The options whose text is stored with the job and shown, one row each. The parser, help, man
//! pages, completions, directives, the environment and `slotd edit` use this table. The fields of
//! the request and the names in `scontrol update` are in [`KeptText`].

use crate::args::headings::{NEWS, RUNS, WHERE};
use crate::args::job_values;
use crate::args::table::{Field, Kind, Options, Row, Table, Values, rows_of};
use crate::args::value::{Maybe, unless_empty};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use slotd_model::JobRequest;
use slotd_model::request::KeptText;
use slotd_parse::SpecError;

/// An option of sbatch, srun and salloc.
pub struct KeptOption {
    pub text: KeptText,
    pub long: &'static str,
    short: Option<char>,
    value_name: &'static str,
    help: &'static str,
    heading: &'static str,
    /// The variables for sbatch, salloc and srun; empty if the command has none.
    pub variables: [&'static str; 3],
    /// Validates the value.
    read: fn(&str) -> Result<String, SpecError>,
}

/// All options, in the order of the help.
pub const OPTIONS: &[KeptOption] = &[
    KeptOption {
        text: KeptText::Comment,
        long: "comment",
        short: None,
        value_name: "TEXT",
        help: "Store a comment with the job",
        heading: RUNS,
        variables: ["", "", ""],
        read: any,
    },
    KeptOption {
        text: KeptText::Extra,
        long: "extra",
        short: None,
        value_name: "TEXT",
        help: "Store additional free text, shown with the job",
        heading: RUNS,
        variables: ["", "", ""],
        read: any,
    },
    KeptOption {
        text: KeptText::Licenses,
        long: "licenses",
        short: Some('L'),
        value_name: "NAME:N",
        help: "Hold licenses while the job runs: matlab:2,foo",
        heading: WHERE,
        variables: ["", "", ""],
        read: any,
    },
    KeptOption {
        text: KeptText::Reservation,
        long: "reservation",
        short: None,
        value_name: "NAME",
        help: "Run in one of these reservations: NAME,NAME",
        heading: WHERE,
        variables: ["SBATCH_RESERVATION", "SALLOC_RESERVATION", "SLURM_RESERVATION"],
        read: any,
    },
    KeptOption {
        text: KeptText::Account,
        long: "account",
        short: Some('A'),
        value_name: "NAME",
        help: "Set the account; it is stored and shown",
        heading: WHERE,
        variables: ["SBATCH_ACCOUNT", "SALLOC_ACCOUNT", "SLURM_ACCOUNT"],
        read: any,
    },
    KeptOption {
        text: KeptText::Qos,
        long: "qos",
        short: Some('q'),
        value_name: "NAME",
        help: "Set the quality of service (QOS): one of slotd.toml, or normal",
        heading: WHERE,
        variables: ["SBATCH_QOS", "SALLOC_QOS", "SLURM_QOS"],
        read: any,
    },
    KeptOption {
        text: KeptText::WcKey,
        long: "wckey",
        short: None,
        value_name: "KEY",
        help: "Set the workload characterization key; it is stored and shown",
        heading: WHERE,
        variables: ["SBATCH_WCKEY", "SALLOC_WCKEY", "SLURM_WCKEY"],
        read: any,
    },
    KeptOption {
        text: KeptText::MailType,
        long: "mail-type",
        short: None,
        value_name: "EVENTS",
        help: "Send mail on these events, through the host's sendmail",
        heading: NEWS,
        variables: ["", "", ""],
        read: job_values::mail_type,
    },
    KeptOption {
        text: KeptText::MailUser,
        long: "mail-user",
        short: None,
        value_name: "USER",
        help: "Send mail to this user; the default is the submitting user",
        heading: NEWS,
        variables: ["", "", ""],
        read: job_values::mail_user,
    },
    KeptOption {
        text: KeptText::Network,
        long: "network",
        short: None,
        value_name: "TEXT",
        help: "Set network requirements; only shown",
        heading: WHERE,
        variables: ["SBATCH_NETWORK", "SALLOC_NETWORK", "SLURM_NETWORK"],
        read: any,
    },
];

/// Validates a text that `scontrol update` sets. An empty one removes it.
///
/// # Errors
/// Fails like the option of the text.
pub fn check(text: KeptText, value: &str) -> Result<String, SpecError> {
    match OPTIONS.iter().find(|option| option.text == text) {
        Some(option) if !value.is_empty() => (option.read)(value),
        _ => any(value),
    }
}

fn any(text: &str) -> Result<String, SpecError> {
    Ok(text.to_owned())
}

/// The stored options that were given on the command line.
#[derive(Debug, Clone, Default)]
pub struct KeptOpts(Vec<(KeptText, String)>);

impl KeptOpts {
    pub fn write(&self, request: &mut JobRequest) {
        for (text, value) in &self.0 {
            *text.of_mut(request) = Some(value.clone());
        }
    }
}

impl Args for KeptOpts {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().map(|row| {
            let arg = Arg::new(row.long).long(row.long).value_name(row.value_name).help(row.help);
            let arg = arg.action(ArgAction::Set).value_parser(unless_empty(row.read));
            let arg = arg.help_heading(row.heading);
            match row.short {
                Some(short) => arg.short(short),
                None => arg,
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KeptOpts {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(KeptOpts::default())
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Options for KeptOpts {
    fn rows(rows: &mut Vec<Row>) {
        rows.extend(OPTIONS.iter().map(|option| {
            let mut row = Row::of_field(option.long, Kind::One);
            row.set_long(Some(option.long));
            Row { short: option.short, ..row }
        }));
    }

    fn table() -> &'static [Row] {
        static TABLE: Table = Table::new();
        TABLE.get_or_init(rows_of::<Self>)
    }

    fn read(values: &mut Values<'_>) -> Self {
        let read = |option: &KeptOption| {
            let value: Option<Maybe<String>> =
                Field::take(values.next(), &unless_empty(option.read));
            Some((option.text, value??))
        };
        KeptOpts(OPTIONS.iter().filter_map(read).collect())
    }
}
