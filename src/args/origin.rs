//! Where and by whom a command is run: all that the command lines need to know of the process
//! around them.
//!
//! Gathered once by the caller and handed in, so that everything in `args` that reads a command
//! line is a function of its arguments. What costs files to read is found out when it is first
//! looked at: most commands need none of it.

use crate::args::job_values::Limits;
use crate::model::Timestamp;
use crate::model::binding::CPU_BIND_VARIABLES;
use crate::model::rlimits::{Rlimit, Rlimits};
use std::cell::LazyCell;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// A user with the group that the system's list of users names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub user: String,
    pub uid: u32,
    pub group: String,
    pub gid: u32,
}

#[derive(Debug)]
pub struct Origin {
    pub cwd: LazyCell<PathBuf>,
    pub user: LazyCell<String>,
    pub uid: u32,
    pub group: LazyCell<String>,
    pub gid: u32,
    /// Looks another user up, by name or number: for `--uid`, which only root has a use for.
    pub account: fn(&str) -> Option<Account>,
    /// The user's home directory.
    pub home: LazyCell<String>,
    /// The user's login shell.
    pub shell: LazyCell<String>,
    /// The short host name.
    pub host: String,
    /// The environment, in its order. Values need not be UTF-8.
    pub env: Vec<(OsString, OsString)>,
    pub umask: LazyCell<u32>,
    /// The resource limits of this process, by the names of `--propagate`.
    pub limits: LazyCell<Vec<(&'static str, Rlimit)>>,
    pub now: Timestamp,
    pub tz: Rc<LazyCell<jiff::tz::TimeZone>>,
}

impl Origin {
    /// A variable of the environment. `None` where it is unset or not UTF-8.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.var_os(name)?.to_str()
    }

    /// A variable of the environment as bytes.
    pub fn var_os(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// A variable that counts only if it says something: an empty one is as good as unset.
    pub fn nonempty(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|value| !value.is_empty())
    }

    /// The kind of binding that the step has which this command runs in: as slotd wrote it, unless
    /// the user has changed it.
    pub fn binding_of_step(&self) -> Option<&str> {
        let [all, list, kind, said] =
            CPU_BIND_VARIABLES.map(|name| self.var(name).unwrap_or_default());
        let is_untouched = all == format!("{said},{kind}{list}");
        (self.var("SLURM_STEP_ID").is_some() && is_untouched).then_some(kind)
    }

    /// The exit code that a variable (`SLURM_EXIT_ERROR`) gives a failure: 1 without it.
    pub fn exit_code(&self, variable: &str) -> i32 {
        self.nonempty(variable).and_then(|code| code.parse().ok()).unwrap_or(1)
    }

    /// The resource limits of this process that its job gets: those that `--propagate` names, or
    /// all.
    pub fn propagated(&self, names: Option<&Limits>) -> Rlimits {
        let is_meant = |name: &&'static str| names.is_none_or(|names| names.contains(name));
        self.limits.iter().filter(|(name, _)| is_meant(name)).map(|(_, limit)| *limit).collect()
    }

    /// A path as seen from the working directory, without `.` components. `..` stays, since what it
    /// means depends on symbolic links.
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

    /// The user `lab` in `/work`, at 2026-11-20T12:00:00 UTC.
    pub(crate) fn lab(env: &[(&str, &str)]) -> Origin {
        Origin {
            cwd: LazyCell::new(|| PathBuf::from("/work")),
            user: LazyCell::new(|| "lab".into()),
            uid: 1001,
            group: LazyCell::new(|| "lab".into()),
            gid: 1001,
            account: |name| {
                let known =
                    Account { user: "alice".into(), uid: 1002, group: "users".into(), gid: 100 };
                [known.user.as_str(), "1002"].contains(&name).then_some(known)
            },
            home: LazyCell::new(|| "/home/lab".into()),
            shell: LazyCell::new(|| "/bin/bash".into()),
            host: "vm".into(),
            env: env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect(),
            umask: LazyCell::new(|| 0o022),
            limits: LazyCell::new(|| vec![("CORE", Rlimit { resource: 4, soft: 0, hard: 9 })]),
            now: Timestamp::from_secs(1_795_176_000),
            tz: Rc::new(LazyCell::new(|| jiff::tz::TimeZone::UTC)),
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
    fn an_empty_variable_says_nothing() {
        let origin = lab(&[("A", ""), ("B", "x")]);
        assert_eq!(origin.var("A"), Some(""));
        assert_eq!(origin.nonempty("A"), None);
        assert_eq!(origin.nonempty("B"), Some("x"));
    }
}
