//! Man pages, shell completions and reference pages, generated from the definitions of the commands.
//!
//! This module generates names and contents, and recognizes its files. `slotd man`, `slotd
//! completions` and the installer write them.

pub mod compat;
pub mod completions;
pub mod manual;
pub mod reference;
pub mod texts;

use slotd_sys::files;
use std::path::Path;

/// A file to install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: Vec<u8>,
}

/// The end of each file's last line, which marks it as one that the installer may replace and
/// remove.
pub const MARK: &str = "Made by slotd.";

/// Returns whether a man page or a completion script is slotd's, from its last line. A link is the
/// user's.
pub fn is_ours(path: &Path) -> bool {
    if path.is_symlink() {
        return false;
    }
    let Ok(bytes) = files::read(path, files::MOST_SETTINGS) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().last().unwrap_or_default();
    ["# ", ".\\\" "].iter().any(|comment| last.strip_prefix(comment) == Some(MARK))
}

/// Returns whether something that is not slotd's has the name of a page.
pub fn is_of_others(path: &Path) -> bool {
    path.symlink_metadata().is_ok() && !is_ours(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::headings;
    use crate::commands::{COMMANDS, Entry, slotd};
    use clap::Arg;

    #[test]
    fn definitions_are_valid() {
        slotd::definition().debug_assert();
        let names: Vec<&str> = COMMANDS.iter().map(Entry::name).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn every_page_has_all_sections_and_options() {
        let pages = manual::pages("man1");
        for entry in COMMANDS {
            let (applet, command) = (entry.applet, entry.definition());
            let page = pages
                .iter()
                .find(|page| page.name == format!("{}.1", applet.name))
                .expect("a page");
            let text = String::from_utf8(page.text.clone()).expect("text").replace("\\-", "-");
            // If options have headings, each heading is a section.
            let has_heading = |arg: &Arg| arg.get_help_heading() == Some(headings::GENERAL);
            let is_arranged = command.get_arguments().any(has_heading);
            let options = if is_arranged { "GENERAL" } else { "OPTIONS" };
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                options,
                "ENVIRONMENT",
                "\"EXIT STATUS\"",
                "\"SEE ALSO\"",
            ] {
                assert!(text.contains(&format!("\n.SH {section}\n")), "{}: {section}", applet.name);
            }
            assert_eq!(
                text.contains("\n.SH EXAMPLES\n"),
                !applet.examples.is_empty(),
                "{}",
                applet.name
            );
            for long in
                command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long)
            {
                assert!(text.contains(&format!("--{long}")), "{}: --{long}", applet.name);
            }
            assert!(text.ends_with(&format!("{MARK}\n")), "{}", applet.name);
            for (variable, _) in (applet.variables)() {
                assert!(text.contains(variable), "{}: {variable}", applet.name);
            }
        }
        assert_eq!(pages.len(), COMMANDS.len() + 1);
    }

    #[test]
    fn every_command_has_a_completion_file_in_every_shell() {
        for shell in completions::SHELLS {
            let files = completions::files(shell).expect("a shell");
            assert_eq!(files.len(), COMMANDS.len() + 1, "{shell}");
            for name in COMMANDS.iter().map(Entry::name).chain(["slotd"]) {
                let file_name = completions::file_name(shell, name);
                let file = files.iter().find(|file| file.name == file_name).expect("a file");
                let text = String::from_utf8(file.text.clone()).expect("text");
                assert!(text.contains(&format!("slotd complete {shell} ")), "{shell}: {name}");
                assert!(text.ends_with(&format!("\n# {MARK}\n")), "{shell}: {name}");
            }
        }
        assert!(completions::files("csh").is_none());
    }
}
