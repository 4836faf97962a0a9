//! What the shells complete of each command.

use super::{File, MARK};
use crate::commands;
use clap::Command;
use clap_complete::aot::{Bash, Fish, Zsh, generate};

/// The shells that there are completions for.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The files for a shell, one a command; `None` for another shell.
pub fn files(shell: &str) -> Option<Vec<File>> {
    let file = |(name, command)| {
        let text = script(shell, name, command)?;
        Some(File { name: file_name(shell, name), text })
    };
    commands::definitions().map(file).collect()
}

/// The name by which a shell finds the completions of a command.
pub fn file_name(shell: &str, command: &str) -> String {
    match shell {
        "zsh" => format!("_{command}"),
        "fish" => format!("{command}.fish"),
        _ => command.to_owned(),
    }
}

fn script(shell: &str, name: &str, mut command: Command) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    match shell {
        "bash" => generate(Bash, &mut command, name, &mut text),
        "zsh" => generate(Zsh, &mut command, name, &mut text),
        "fish" => generate(Fish, &mut command, name, &mut text),
        _ => return None,
    }
    text.extend(format!("\n# {MARK}\n").bytes());
    Some(text)
}
