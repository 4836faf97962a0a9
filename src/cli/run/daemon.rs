//! `slotd` itself: `slotd daemon`, and help on the rest.

use crate::daemon;
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
slotd: Slurm for one machine

Usage: slotd daemon              serve SLOTD_ROOT (default ~/.local/share/slotd)
       slotd COMMAND [ARGS...]   run a Slurm command
       COMMAND [ARGS...]         the same, where COMMAND is a link to slotd

Commands: sbatch srun salloc squeue sacct scontrol scancel sinfo sstat sattach sprio sdiag seff
`COMMAND --help` tells of each.
";

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
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        [] => {
            eprint!("{HELP}");
            ExitCode::from(2)
        }
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

fn serve() -> ExitCode {
    let level = env_logger::Env::new().filter_or("SLOTD_LOG", "info");
    env_logger::Builder::from_env(level).init();
    let paths = match super::paths() {
        Ok(paths) => paths,
        Err(error) => {
            eprint!("{}", error.text("slotd"));
            return ExitCode::from(1);
        }
    };
    match daemon::run(paths.root().to_owned(), |name| std::env::var_os(name)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slotd: error: {error}");
            ExitCode::from(1)
        }
    }
}
