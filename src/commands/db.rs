//! `slotd db`: checks, copies, restores and compacts the daemon's database.

use crate::args::error::CliError;
use crate::commands::output::print;
use crate::commands::{Done, paths};
use crate::daemon::database::{self, DatabaseError};
use slotd_render::size::{Units, kib};
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum DbVerb {
    /// Check the whole database and list its errors. The exit code is 1 if there are any, else 0
    Check,
    /// Write a copy to a file. The daemon may be running
    Backup {
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Replace the database with a copy and keep the old file. The daemon must not be running
    Restore {
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Compact the database file. The daemon must not be running
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
                print(&format!("{line}\n"))?;
            }
            if !wrong.is_empty() {
                let why = database::advice(&paths, "the database is damaged");
                return Err(CliError::error(1, why));
            }
            print(&format!(
                "{} is valid: {} job{}, {}\n",
                paths.db().display(),
                contents.jobs,
                if contents.jobs == 1 { "" } else { "s" },
                size(contents.bytes)
            ))
        }
        DbVerb::Backup { file } => {
            database::backup(&paths, file).map_err(failed)?;
            print(&format!("wrote {}, a copy of {}\n", file.display(), paths.db().display()))
        }
        DbVerb::Restore { file } => match database::restore(&paths, file).map_err(failed)? {
            Some(old) => print(&format!(
                "restored {}; the old file is {}\n",
                paths.db().display(),
                old.display()
            )),
            None => print(&format!("restored {}; there was no old file\n", paths.db().display())),
        },
        DbVerb::Vacuum => {
            let (before, after) = database::vacuum(&paths).map_err(failed)?;
            let (now, before) = (size(after), size(before));
            print(&format!("{}: {now}, previously {before}\n", paths.db().display()))
        }
    }
}
