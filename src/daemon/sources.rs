//! Where the daemon's variables come from: its environment, and the file that its service or
//! `slotd daemon start` names.
//!
//! Both of them put the variables of the file into the environment. What stands there at the start
//! with the value that the file has is the file's, and what else stands there goes before it,
//! whatever the file says then or later.

use crate::daemon::settings::{self, Environment, Holds};
use crate::parse::env_file::{EnvFile, EnvFileError};
use crate::sys::files::{self, MOST_SETTINGS};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with the file of the settings.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    #[error("{}: {error}", file.display())]
    Read { file: PathBuf, error: io::Error },
    #[error("{}:{error}: correct or remove the line", file.display())]
    Line { file: PathBuf, error: EnvFileError },
}

pub struct Sources {
    file: Option<PathBuf>,
    /// Of the environment alone.
    own: Environment,
    /// With what the file said at the start.
    at_start: Environment,
}

impl Sources {
    /// # Errors
    /// As of [`Self::read`].
    pub fn new(env: Environment, file: Option<PathBuf>) -> Result<Sources, SourcesError> {
        let given = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let own: Environment =
            env.into_iter().filter(|(name, value)| given.get(name) != Some(value)).collect();
        let mut at_start = given;
        at_start.extend(own.clone());
        Ok(Sources { file, own, at_start })
    }

    /// The variables at the start.
    pub fn at_start(&self) -> &Environment {
        &self.at_start
    }

    /// The variables with what the file says now.
    ///
    /// # Errors
    /// It cannot be read, or a line of it makes no sense: the text names the file.
    pub fn read(&self) -> Result<Environment, SourcesError> {
        let Some(file) = &self.file else { return Ok(self.at_start.clone()) };
        let mut env = read(file)?;
        env.extend(self.own.clone());
        Ok(env)
    }

    /// What is to be told of these variables: settings that hold only after a restart, and what is
    /// no setting.
    pub fn remarks(&self, now: &Environment) -> Vec<String> {
        let Some(file) = &self.file else { return Vec::new() };
        let value = |env: &Environment, name: &str| {
            env.get(OsStr::new(name)).filter(|v| !v.is_empty()).cloned()
        };
        let has_changed = |name: &&str| value(now, name) != value(&self.at_start, name);
        let at_start = settings::TABLE.iter().filter(|setting| setting.holds == Holds::Start);
        let late = at_start.map(|setting| setting.variable).filter(has_changed);
        let late = late.map(|name| format!("{name} holds after the next start of the daemon"));
        let unknown = settings::unknown(now.keys()).into_iter();
        let unknown =
            unknown.map(|name| format!("{name} is no setting of slotd and has no effect"));
        late.chain(unknown).map(|what| format!("{}: {what}", file.display())).collect()
    }
}

/// The variables of a file; none where it is not there.
fn read(file: &Path) -> Result<Environment, SourcesError> {
    let text = match files::read_text(file, MOST_SETTINGS) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| SourcesError::Read { file: file.to_owned(), error })?,
    };
    let parsed = EnvFile::parse(&text)
        .map_err(|error| SourcesError::Line { file: file.to_owned(), error })?;
    Ok(parsed.iter().map(|(name, value)| (name.into(), value.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn env(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_file_says_what_the_environment_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("slotd.env");
        fs::write(&file, "SLOTD_CPUS=\"4\"\nSLOTD_LOG=warn\nSLOTD_KILL_WAIT=9\n").unwrap();
        let at_start = env(&[
            ("SLOTD_CPUS", "4"),
            ("SLOTD_LOG", "debug"),
            ("SLOTD_KILL_WAIT", "9"),
            ("HOME", "/h"),
        ]);
        let sources = Sources::new(at_start.clone(), Some(file.clone())).unwrap();
        assert_eq!(sources.read().unwrap(), at_start);
        assert!(sources.remarks(&at_start).is_empty());
        fs::write(&file, "SLOTD_CPUS=5\nSLOTD_LOG=error\nSLOTD_CPU=7\n").unwrap();
        let now = sources.read().unwrap();
        let shown = file.display();
        assert_eq!(
            now,
            env(&[("SLOTD_CPUS", "5"), ("SLOTD_LOG", "debug"), ("SLOTD_CPU", "7"), ("HOME", "/h")])
        );
        assert_eq!(
            sources.remarks(&now),
            [
                format!("{shown}: SLOTD_KILL_WAIT holds after the next start of the daemon"),
                format!("{shown}: SLOTD_CPU is no setting of slotd and has no effect"),
            ]
        );
        fs::write(&file, "no assignment\n").unwrap();
        let wrong = sources.read().unwrap_err().to_string();
        assert!(wrong.starts_with(&format!("{shown}:1: no NAME=VALUE")), "{wrong}");
        fs::remove_file(&file).unwrap();
        assert_eq!(sources.read().unwrap(), env(&[("SLOTD_LOG", "debug"), ("HOME", "/h")]));
    }

    #[test]
    fn without_a_file_all_stays_as_it_was() {
        let at_start = env(&[("SLOTD_CPUS", "4"), ("SLOTD_CPU", "4")]);
        let sources = Sources::new(at_start.clone(), None).unwrap();
        assert_eq!(sources.read().unwrap(), at_start);
        assert!(sources.remarks(&at_start).is_empty());
    }
}
