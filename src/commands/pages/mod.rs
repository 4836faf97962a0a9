//! Man pages and shell completions, made of the definitions that the commands themselves are parsed with.
//!
//! Only texts and file names are made here; `slotd man` and `slotd completions` write them.

pub mod completions;
pub mod manual;
mod texts;

use crate::args::choices::{Applet, definition};
use crate::commands::{
    sacct, salloc, sattach, sbatch, scancel, scontrol, sdiag, seff, sinfo, sprio, squeue, srun, sstat,
};
use clap::{Arg, Command};

/// A file to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: Vec<u8>,
}

/// Every command with its definition.
pub fn commands() -> Vec<(Applet, Command)> {
    vec![
        (sbatch::args::APPLET, definition::<sbatch::options::SbatchOpts>(sbatch::args::APPLET)),
        (srun::args::APPLET, definition::<srun::options::SrunOpts>(srun::args::APPLET)),
        (salloc::args::APPLET, definition::<salloc::options::SallocOpts>(salloc::args::APPLET)),
        (squeue::args::APPLET, definition::<squeue::args::SqueueOpts>(squeue::args::APPLET)),
        (sacct::args::APPLET, definition::<sacct::args::SacctOpts>(sacct::args::APPLET)),
        (scontrol::args::APPLET, definition::<scontrol::args::ScontrolOpts>(scontrol::args::APPLET)),
        (scancel::args::APPLET, definition::<scancel::args::ScancelOpts>(scancel::args::APPLET)),
        (sinfo::args::APPLET, definition::<sinfo::args::SinfoOpts>(sinfo::args::APPLET)),
        (sstat::args::APPLET, definition::<sstat::args::SstatOpts>(sstat::args::APPLET)),
        (sattach::args::APPLET, definition::<sattach::args::SattachOpts>(sattach::args::APPLET)),
        (sprio::args::APPLET, definition::<sprio::args::SprioOpts>(sprio::args::APPLET)),
        (sdiag::args::APPLET, definition::<sdiag::args::SdiagOpts>(sdiag::args::APPLET)),
        (seff::args::APPLET, definition::<seff::args::SeffOpts>(seff::args::APPLET)),
    ]
}

/// The end of each file's last line, by which the installer knows what it may replace and remove.
pub const MARK: &str = "Made by slotd.";

/// `slotd` itself, with the commands as its subcommands.
fn slotd() -> Command {
    let dir = || Arg::new("dir").value_name("DIR").required(true).value_hint(clap::ValueHint::DirPath);
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(completions::SHELLS);
    Command::new("slotd")
        .about("Slurm for one machine")
        .disable_help_subcommand(true)
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand(Command::new("daemon").about("Serve the runtime root"))
        .subcommand(Command::new("man").about("Write the man pages into a directory").arg(dir()))
        .subcommand(Command::new("completions").about("Write the completions of a shell").arg(shell).arg(dir()))
        .subcommands(commands().into_iter().map(|(_, command)| command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        slotd().debug_assert();
        let names: Vec<&str> = commands().iter().map(|(applet, _)| applet.name).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn every_page_has_its_sections_and_every_option() {
        let pages = manual::pages();
        for (applet, command) in commands() {
            let page = pages.iter().find(|page| page.name == format!("{}.1", applet.name)).expect("a page");
            let text = String::from_utf8(page.text.clone()).expect("text").replace("\\-", "-");
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "\"EXIT STATUS\"", "\"SEE ALSO\""]
            {
                assert!(text.contains(&format!("\n.SH {section}\n")), "{}: {section}", applet.name);
            }
            for long in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long) {
                assert!(text.contains(&format!("--{long}")), "{}: --{long}", applet.name);
            }
            assert!(text.ends_with(&format!("{MARK}\n")), "{}", applet.name);
            for (variable, _) in applet.variables {
                assert!(text.contains(variable), "{}: {variable}", applet.name);
            }
        }
        assert_eq!(pages.len(), commands().len() + 1);
    }

    #[test]
    fn every_option_is_completed_in_every_shell() {
        for shell in completions::SHELLS {
            let files = completions::files(shell).expect("a shell");
            assert_eq!(files.len(), commands().len() + 1, "{shell}");
            for (applet, command) in commands() {
                let name = completions::file_name(shell, applet.name);
                let file = files.iter().find(|file| file.name == name).expect("a file");
                let text = String::from_utf8(file.text.clone()).expect("text");
                assert!(text.ends_with(&format!("\n# {MARK}\n")), "{shell}: {}", applet.name);
                for long in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long) {
                    assert!(text.contains(long), "{shell}: {}: --{long}", applet.name);
                }
            }
        }
        assert!(completions::files("csh").is_none());
    }
}
