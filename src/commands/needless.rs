//! Slurm commands that are pointless on one host. Each prints what to use instead.

use super::pages::texts;
use super::{Done, Entry};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::options::CommonOpts;
use crate::args::table::options;
use clap::Args;
use std::ffi::OsString;

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub(super) struct Needless {
        #[command(flatten)]
        common: CommonOpts,
        /// Print this help
        #[arg(long)]
        help: bool,
        /// Ignored
        #[arg(value_name = "WORD")]
        operands: Vec<String>,
    }
}

/// Defines a command, with the reason why it does not exist and its replacement.
macro_rules! needless {
    ($entry:ident, $name:literal, $about:literal, $why:literal, $instead:literal) => {
        pub const $entry: Entry = Entry {
            applet: Applet::new($name, $about),
            define: definition::<Needless>,
            run: |argv| refuse($entry.applet, argv, $why, $instead),
            page: &texts::NEEDLESS,
        };
    };
}

needless!(
    STRIGGER,
    "strigger",
    "Manage triggers (not supported)",
    "slotd has no triggers",
    "SLOTD_NOTIFY_CMD, a command that runs at the end of each job, or sbatch --dependency=afternotok:JOB, which runs a job \
     after another one failed"
);
needless!(
    SGATHER,
    "sgather",
    "Collect files from the nodes of a job (not supported)",
    "there is only one node, and its files are on this host",
    "cp"
);

/// Handles `--help` and `--version`, and refuses everything else.
fn refuse(applet: Applet, argv: &[OsString], why: &str, instead: &str) -> Done {
    let asks = |word: &&OsString| {
        ["--help", "--usage", "--version", "-V"].iter().any(|asked| *word == asked)
    };
    let words: Vec<OsString> =
        argv.iter().take(1).chain(argv.iter().skip(1).find(asks)).cloned().collect();
    choices::parse::<Needless>(applet, &words, &super::origin())?;
    // The list of triggers is empty.
    if applet.name == "strigger" && argv.iter().any(|word| word == "--get") {
        return Ok(0);
    }
    Err(CliError::error(1, why).hint(format!("use instead: {instead}")))
}
