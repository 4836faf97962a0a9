//! `slotd db`: looks after the database of the daemon.

use crate::args::error::CliError;
use crate::commands::{Done, paths};
use crate::daemon::database::{self, DatabaseError};
use crate::render::size::{Units, kib};
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum DbVerb {
    /// Read all of it and tell what is wrong: exit code 0; 1 where something is
    Check,
    /// Write a copy to a file, also while the daemon runs
    Backup {
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Put a copy in its place; the old one stays beside it. No daemon may run
    Restore {
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Write it anew, as small as it can be. No daemon may run
    Vacuum,
}

fn size(bytes: u64) -> String {
    kib(bytes.div_ceil(1024), Units::Exact)
}

pub fn run(verb: &DbVerb) -> Done {
    let paths = paths()?;
    let failed = |why: DatabaseError| CliError::error(1, why.to_string());
    match verb {
        DbVerb::Check => {
            let (contents, wrong) = database::check(&paths).map_err(failed)?;
            for line in &wrong {
                println!("{line}");
            }
            if !wrong.is_empty() {
                let why = database::advice(&paths, "the database is damaged");
                return Err(CliError::error(1, why));
            }
            println!(
                "{} is sound: {} jobs, {}",
                paths.db().display(),
                contents.jobs,
                size(contents.bytes)
            );
        }
        DbVerb::Backup { file } => {
            database::backup(&paths, file).map_err(failed)?;
            println!("{} is a copy of {}", file.display(), paths.db().display());
        }
        DbVerb::Restore { file } => match database::restore(&paths, file).map_err(failed)? {
            Some(old) => {
                println!("{} is restored; the old one is {}", paths.db().display(), old.display())
            }
            None => println!("{} is restored; there was none", paths.db().display()),
        },
        DbVerb::Vacuum => {
            let (before, after) = database::vacuum(&paths).map_err(failed)?;
            println!("{}: {}, before {}", paths.db().display(), size(after), size(before));
        }
    }
    Ok(0)
}
