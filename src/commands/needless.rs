//! Commands of Slurm that one host has no need of: each says so, and what to use in its place.

use super::pages::texts;
use super::{Done, Entry};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::getopt::Operands;
use crate::args::options::CommonOpts;
use clap::Args;
use std::ffi::OsString;

#[derive(Debug, Clone, Default, Args)]
struct Needless {
    #[command(flatten)]
    common: CommonOpts,
    /// Print this help
    #[arg(long)]
    help: bool,
    /// Nothing of it is read
    #[arg(value_name = "WORD")]
    operands: Vec<String>,
}

const fn applet(name: &'static str, about: &'static str) -> Applet {
    Applet {
        name,
        about,
        operands: Operands::Anywhere,
        usage_exit: 1,
        points_to_help: true,
        extras: &[],
        variables: Vec::new,
        submission: "",
        examples: &[],
    }
}

/// A command, why it is needless, and what there is in its place.
macro_rules! needless {
    ($entry:ident, $name:literal, $about:literal, $why:literal, $instead:literal) => {
        pub const $entry: Entry = Entry {
            applet: applet($name, $about),
            define: definition::<Needless>,
            run: |argv| refuse($entry.applet, argv, $why, $instead),
            page: &texts::NEEDLESS,
        };
    };
}

needless!(
    STRIGGER,
    "strigger",
    "Triggers, of which there are none",
    "there are no triggers on one host",
    "SLOTD_NOTIFY_CMD is a program that is called at the end of each job, and sbatch --dependency=afternotok:JOB runs one \
     after a job that failed"
);
needless!(
    SCRONTAB,
    "scrontab",
    "A crontab of jobs, of which there is none",
    "there is no crontab of jobs on one host",
    "crontab -e, with lines that call sbatch"
);
needless!(
    SGATHER,
    "sgather",
    "Collect files of nodes, of which there is one",
    "the files of the one node are on this host",
    "cp"
);

/// `--help` and `--version` are answered; anything else is refused, whatever it asks for.
fn refuse(applet: Applet, argv: &[OsString], why: &str, instead: &str) -> Done {
    let asks = |word: &&OsString| {
        ["--help", "--usage", "--version", "-V"].iter().any(|asked| *word == asked)
    };
    let words: Vec<OsString> =
        argv.iter().take(1).chain(argv.iter().skip(1).find(asks)).cloned().collect();
    choices::parse::<Needless>(applet, &words, &super::origin())?;
    // A list of what there is none of has no lines.
    if applet.name == "strigger" && argv.iter().any(|word| word == "--get") {
        return Ok(0);
    }
    Err(CliError::error(1, why).hint(format!("in its place: {instead}")))
}
