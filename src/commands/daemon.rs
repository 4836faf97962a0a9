//! `slotd` itself: `slotd daemon`, what the installer asks for, and help on the rest.

use crate::commands::pages::completions::SHELLS;
use crate::commands::{COMMANDS, pages};
use crate::daemon;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

const HELP: &str = "\
slotd: Slurm for one machine

Usage: slotd daemon              serve SLOTD_ROOT (default ~/.local/share/slotd)
       slotd COMMAND [ARGS...]   run a Slurm command
       COMMAND [ARGS...]         the same, where COMMAND is a link to slotd
       slotd commands            print the names of the commands, a line each
       slotd man DIR             write the man pages into DIR
       slotd completions SHELL DIR
                                 write the completions for bash, zsh or fish into DIR
";

/// The help text, with the names of the commands.
fn help() -> String {
    format!("{HELP}\nCommands: {}\n`COMMAND --help` tells of each.\n", COMMANDS.map(|entry| entry.name()).join(" "))
}

/// `slotd WORDS...`, where the first word is no Slurm command.
pub fn main(words: &[OsString]) -> ExitCode {
    let text: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
    match text.iter().map(AsRef::as_ref).collect::<Vec<&str>>().as_slice() {
        ["daemon"] => serve(),
        ["--version" | "-V" | "version"] => {
            println!("slotd {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ["--help" | "-h" | "help"] | ["daemon", "--help" | "-h"] => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        [] => {
            eprint!("{}", help());
            ExitCode::from(2)
        }
        ["commands"] => {
            COMMANDS.iter().for_each(|entry| println!("{}", entry.name()));
            ExitCode::SUCCESS
        }
        ["man", dir] => written(write(dir, pages::manual::pages())),
        ["completions", shell, dir] => match pages::completions::files(shell) {
            Some(files) => written(write(dir, files)),
            None => misused(&format!("no completions for {shell}: there are some for {}", SHELLS.join(", "))),
        },
        ["man", ..] => misused("man takes one directory"),
        ["completions", ..] => misused("completions takes a shell and a directory"),
        ["daemon", extra, ..] => {
            eprintln!("slotd: error: the daemon takes no arguments: {extra}");
            ExitCode::from(2)
        }
        [word, ..] => {
            eprintln!("slotd: error: unknown command: {word}\nTry \"slotd --help\" for more information");
            ExitCode::from(2)
        }
    }
}

fn misused(why: &str) -> ExitCode {
    eprintln!("slotd: error: {why}\nTry \"slotd --help\" for more information");
    ExitCode::from(2)
}

fn written(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slotd: error: {error}");
            ExitCode::from(1)
        }
    }
}

/// Writes files into a directory, which is made where it is missing.
fn write(dir: &str, files: Vec<pages::File>) -> Result<(), String> {
    let dir = Path::new(dir);
    let failed = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
    for file in files {
        let path = dir.join(file.name);
        fs::write(&path, file.text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

fn serve() -> ExitCode {
    let paths = match super::paths() {
        Ok(paths) => paths,
        Err(error) => {
            eprint!("{}", error.text("slotd"));
            return ExitCode::from(1);
        }
    };
    match daemon::run(paths.root().to_owned(), &std::env::vars_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slotd: error: {error}");
            ExitCode::from(1)
        }
    }
}
