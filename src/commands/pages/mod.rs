//! Man pages and shell completions, made of the definitions that the commands themselves are parsed
//! with.
//!
//! Only texts and file names are made here; `slotd man` and `slotd completions` write them.

pub mod compat;
pub mod completions;
pub mod manual;
pub mod texts;

/// A file to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: Vec<u8>,
}

/// The end of each file's last line, by which the installer knows what it may replace and remove.
pub const MARK: &str = "Made by slotd.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::headings;
    use crate::commands::{COMMANDS, Entry, slotd};
    use clap::Arg;

    #[test]
    fn the_definitions_hold_together() {
        slotd::definition().debug_assert();
        let names: Vec<&str> = COMMANDS.iter().map(Entry::name).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn every_page_has_its_sections_and_every_option() {
        let pages = manual::pages();
        for entry in COMMANDS {
            let (applet, command) = (entry.applet, entry.definition());
            let page = pages
                .iter()
                .find(|page| page.name == format!("{}.1", applet.name))
                .expect("a page");
            let text = String::from_utf8(page.text.clone()).expect("text").replace("\\-", "-");
            // Options with headings have a section for each.
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
    fn every_option_is_completed_in_every_shell() {
        for shell in completions::SHELLS {
            let files = completions::files(shell).expect("a shell");
            assert_eq!(files.len(), COMMANDS.len() + 1, "{shell}");
            for entry in COMMANDS {
                let (applet, command) = (entry.applet, entry.definition());
                let name = completions::file_name(shell, applet.name);
                let file = files.iter().find(|file| file.name == name).expect("a file");
                let text = String::from_utf8(file.text.clone()).expect("text");
                assert!(text.ends_with(&format!("\n# {MARK}\n")), "{shell}: {}", applet.name);
                for long in command
                    .get_arguments()
                    .filter(|arg| !arg.is_hide_set())
                    .filter_map(Arg::get_long)
                {
                    assert!(text.contains(long), "{shell}: {}: --{long}", applet.name);
                }
            }
        }
        assert!(completions::files("csh").is_none());
    }
}
