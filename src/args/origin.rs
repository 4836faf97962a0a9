//! The process in which a command runs, as far as command lines depend on it.
//!
//! The caller collects this information once and passes it in, so that parsing a command line is a
//! function of its arguments. Values that require reading files are computed on first use, because
//! most commands do not need them.

use crate::args::job_values::Limits;
use slotd_model::Timestamp;
use slotd_model::binding::CPU_BIND_VARIABLES;
use slotd_model::environ::Environ;
use slotd_model::late::Late;
use slotd_model::rlimits::{Rlimit, Rlimits};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// A user with their primary group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub user: String,
    pub uid: u32,
    pub group: String,
    pub gid: u32,
}

#[derive(Debug)]
pub struct Origin {
    pub cwd: Late<PathBuf>,
    pub user: Late<String>,
    pub uid: u32,
    pub group: Late<String>,
    pub gid: u32,
    /// Looks up another user by name or number. Only root's `--uid` needs this.
    pub account: fn(&str) -> Option<Account>,
    /// The user's home directory.
    pub home: Late<String>,
    /// The user's login shell.
    pub shell: Late<String>,
    /// The short host name.
    pub host: String,
    pub env: Environ,
    pub umask: Late<u32>,
    /// The resource limits of this process, by their `--propagate` names.
    pub limits: Late<Vec<(&'static str, Rlimit)>>,
    pub now: Timestamp,
    pub tz: Rc<Late<jiff::tz::TimeZone>>,
    /// The columns of the terminal on standard output, if known. The outer `None`: it is no terminal.
    pub terminal: Late<Option<Option<u16>>>,
}

impl Origin {
    /// Returns an environment variable, or `None` if it is unset or not UTF-8.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.var_os(name)?.to_str()
    }

    /// Returns an environment variable as bytes.
    pub fn var_os(&self, name: &str) -> Option<&OsStr> {
        self.env.get(name).map(OsStr::from_bytes)
    }

    /// Returns an environment variable, or `None` if it is unset or empty.
    pub fn nonempty(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|value| !value.is_empty())
    }

    /// Returns the kind of CPU binding of the step that this command runs in. Returns `None`
    /// outside a step, and if the user has changed the variables that slotd set.
    pub fn binding_of_step(&self) -> Option<&str> {
        let [all, list, kind, said] =
            CPU_BIND_VARIABLES.map(|name| self.var(name).unwrap_or_default());
        let is_untouched = all == format!("{said},{kind}{list}");
        (self.var("SLURM_STEP_ID").is_some() && is_untouched).then_some(kind)
    }

    /// Returns the exit code for errors from a variable (`SLURM_EXIT_ERROR`), or 1 without it.
    pub fn exit_code(&self, variable: &str) -> i32 {
        self.nonempty(variable).and_then(|code| code.parse().ok()).unwrap_or(1)
    }

    /// Returns the resource limits of this process that its job inherits: those in `names`, or all.
    pub fn propagated(&self, names: Option<&Limits>) -> Rlimits {
        let is_meant = |name: &&'static str| names.is_none_or(|names| names.contains(name));
        self.limits.iter().filter(|(name, _)| is_meant(name)).map(|(_, limit)| *limit).collect()
    }

    /// Returns an absolute path without `.` components. `..` is kept, because its meaning depends
    /// on symbolic links.
    pub fn absolute(&self, path: &str) -> String {
        let mut whole = PathBuf::new();
        for part in self.cwd.join(Path::new(path)).components() {
            if part != Component::CurDir {
                whole.push(part);
            }
        }
        whole.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use slotd_model::late::late;

    /// The user `lab` in `/work`, at 2026-11-20T12:00:00 UTC.
    pub(crate) fn lab(env: &[(&str, &str)]) -> Origin {
        Origin {
            cwd: late(|| PathBuf::from("/work")),
            user: late(|| "lab".into()),
            uid: 1001,
            group: late(|| "lab".into()),
            gid: 1001,
            account: |name| {
                let known =
                    Account { user: "alice".into(), uid: 1002, group: "users".into(), gid: 100 };
                [known.user.as_str(), "1002"].contains(&name).then_some(known)
            },
            home: late(|| "/home/lab".into()),
            shell: late(|| "/bin/bash".into()),
            host: "vm".into(),
            env: env.iter().copied().collect(),
            umask: late(|| 0o022),
            limits: late(|| vec![("CORE", Rlimit { resource: 4, soft: 0, hard: 9 })]),
            now: Timestamp::from_secs(1_795_176_000),
            tz: Rc::new(late(|| jiff::tz::TimeZone::UTC)),
            terminal: late(|| None),
        }
    }

    #[test]
    fn a_relative_path_starts_at_the_working_directory() {
        let origin = lab(&[]);
        assert_eq!(origin.absolute("a/b"), "/work/a/b");
        assert_eq!(origin.absolute("."), "/work");
        assert_eq!(origin.absolute("./x/../y"), "/work/x/../y");
        assert_eq!(origin.absolute("/tmp"), "/tmp");
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let origin = lab(&[("A", ""), ("B", "x")]);
        assert_eq!(origin.var("A"), Some(""));
        assert_eq!(origin.nonempty("A"), None);
        assert_eq!(origin.nonempty("B"), Some("x"));
    }
}
