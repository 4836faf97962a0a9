//! The sources of the daemon's variables: its environment, and the file named by its service or by
//! `slotd daemon start`.
//!
//! Both the service and `slotd daemon start` put the variables of the file into the environment. A
//! variable that has the same value there as in the file at startup counts as the file's. Any other
//! variable in the environment takes precedence over the file, even if the file changes later.

use crate::daemon::settings::{self, Environment, Holds};
use slotd_parse::env_file::{EnvFile, EnvFileError};
use slotd_sys::files::{self, MOST_SETTINGS};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Errors in the settings file.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    #[error("{}: {error}", file.display())]
    Read { file: PathBuf, error: io::Error },
    #[error("{}:{error}: correct or remove the line", file.display())]
    Line { file: PathBuf, error: EnvFileError },
}

pub struct Sources {
    file: Option<PathBuf>,
    /// The variables from the environment alone.
    own: Environment,
    /// All variables as of startup, including those from the file.
    at_start: Environment,
}

impl Sources {
    /// Reads the file, and separates its variables from the others in the environment.
    ///
    /// # Errors
    /// See [`Self::read`].
    pub fn new(env: Environment, file: Option<PathBuf>) -> Result<Sources, SourcesError> {
        let given = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let own: Environment =
            env.into_iter().filter(|(name, value)| given.get(name) != Some(value)).collect();
        let mut at_start = given;
        at_start.extend(own.clone());
        Ok(Sources { file, own, at_start })
    }

    /// Returns the variables as of startup.
    pub fn at_start(&self) -> &Environment {
        &self.at_start
    }

    /// Returns the variables with the current contents of the file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has an invalid line. The error names the file.
    pub fn read(&self) -> Result<Environment, SourcesError> {
        let Some(file) = &self.file else { return Ok(self.at_start.clone()) };
        let mut env = read(file)?;
        env.extend(self.own.clone());
        Ok(env)
    }

    /// Returns remarks on these variables: settings that take effect only after a restart, and
    /// unknown settings.
    pub fn remarks(&self, now: &Environment) -> Vec<String> {
        let Some(file) = &self.file else { return Vec::new() };
        let value = |env: &Environment, name: &str| {
            env.get(OsStr::new(name)).filter(|v| !v.is_empty()).cloned()
        };
        let has_changed = |name: &&str| value(now, name) != value(&self.at_start, name);
        let at_start = settings::TABLE.iter().filter(|setting| setting.holds == Holds::Start);
        let late = at_start.map(|setting| setting.variable).filter(has_changed);
        let late = late.map(|name| format!("{name} takes effect after a restart of the daemon"));
        let unknown = settings::unknown(now.keys()).into_iter();
        let unknown =
            unknown.map(|name| format!("{name} is not a slotd setting and has no effect"));
        late.chain(unknown).map(|what| format!("{}: {what}", file.display())).collect()
    }
}

/// Reads the variables of a file. A missing file has none.
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
    fn environment_takes_precedence_over_the_file() {
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
                format!("{shown}: SLOTD_KILL_WAIT takes effect after a restart of the daemon"),
                format!("{shown}: SLOTD_CPU is not a slotd setting and has no effect"),
            ]
        );
        fs::write(&file, "no assignment\n").unwrap();
        let wrong = sources.read().unwrap_err().to_string();
        assert!(wrong.starts_with(&format!("{shown}:1: not NAME=VALUE")), "{wrong}");
        fs::remove_file(&file).unwrap();
        assert_eq!(sources.read().unwrap(), env(&[("SLOTD_LOG", "debug"), ("HOME", "/h")]));
    }

    #[test]
    fn without_a_file_nothing_changes() {
        let at_start = env(&[("SLOTD_CPUS", "4"), ("SLOTD_CPU", "4")]);
        let sources = Sources::new(at_start.clone(), None).unwrap();
        assert_eq!(sources.read().unwrap(), at_start);
        assert!(sources.remarks(&at_start).is_empty());
    }
}
