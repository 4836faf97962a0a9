//! The daemon's configuration. This is the only reader of `SLOTD_*` in the daemon.

use crate::sched::BatchTasks;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How long a process may take to end after SIGTERM, as Slurm's `KillWait`.
pub const DEFAULT_KILL_WAIT: Duration = Duration::from_secs(30);

/// How long a notify hook may run.
pub const DEFAULT_NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long ended jobs stay visible to squeue and scontrol, as Slurm's `MinJobAge`.
pub const DEFAULT_MIN_JOB_AGE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub root: PathBuf,
    pub cpu_partitions: Vec<String>,
    pub gpu_partitions: Vec<String>,
    pub features: Vec<String>,
    pub notify_cmd: Option<OsString>,
    pub notify_timeout: Duration,
    pub cgroup_base: Option<PathBuf>,
    /// `NOTIFY_SOCKET`: where systemd wants to hear that the daemon serves.
    pub notify_socket: Option<OsString>,
    /// `None`: ask `nvidia-smi`.
    pub gpu_count: Option<u32>,
    /// `None`: what the kernel says.
    pub cpus: Option<u32>,
    /// `None`: `MemTotal`. Megabytes.
    pub mem_mb: Option<u64>,
    /// `SLOTD_BATCH_TASKS`: what `-n N` means for a batch script.
    pub batch_tasks: BatchTasks,
    pub kill_wait: Duration,
    pub min_job_age: Duration,
}

/// A variable with a value that means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub variable: &'static str,
    pub value: String,
    pub expected: &'static str,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={:?}: expected {}", self.variable, self.value, self.expected)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the variables by `lookup`.
    ///
    /// # Errors
    /// [`ConfigError`] for a value that is no number, no list of names, or no known word.
    pub fn from_env(root: PathBuf, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Config, ConfigError> {
        let text = |name: &'static str| -> Result<Option<String>, ConfigError> {
            match lookup(name) {
                None => Ok(None),
                Some(value) => match value.into_string() {
                    Ok(text) if text.trim().is_empty() => Ok(None),
                    Ok(text) => Ok(Some(text.trim().to_owned())),
                    Err(raw) => Err(ConfigError {
                        variable: name,
                        value: raw.to_string_lossy().into_owned(),
                        expected: "text in UTF-8",
                    }),
                },
            }
        };
        let number = |name: &'static str, expected: &'static str| -> Result<Option<u64>, ConfigError> {
            text(name)?
                .map(|value| value.parse::<u64>().map_err(|_| ConfigError { variable: name, value, expected }))
                .transpose()
        };
        let names = |name: &'static str, default: &[&str]| -> Result<Vec<String>, ConfigError> {
            let Some(value) = text(name)? else { return Ok(default.iter().map(|&s| s.to_owned()).collect()) };
            let list: Vec<String> =
                value.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect();
            let legal = |s: &String| s.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
            if list.iter().all(legal) {
                Ok(list)
            } else {
                Err(ConfigError {
                    variable: name,
                    value,
                    expected: "names of letters, digits, '_', '-' and '.', separated by commas",
                })
            }
        };
        let seconds = |name: &'static str, default: Duration| -> Result<Duration, ConfigError> {
            // As far as any time in Slurm goes; beyond that sums of times would overflow.
            match number(name, "a number of seconds up to 4294967295")? {
                Some(n) if n > u64::from(u32::MAX) => Err(ConfigError {
                    variable: name,
                    value: n.to_string(),
                    expected: "a number of seconds up to 4294967295",
                }),
                given => Ok(given.map_or(default, Duration::from_secs)),
            }
        };
        let small = |name: &'static str, expected: &'static str, max: u64| -> Result<Option<u32>, ConfigError> {
            match number(name, expected)? {
                Some(n) if n > max => Err(ConfigError { variable: name, value: n.to_string(), expected }),
                other => Ok(other.map(|n| n as u32)),
            }
        };
        let batch_tasks = match text("SLOTD_BATCH_TASKS")?.as_deref() {
            None | Some("auto") => BatchTasks::Auto,
            Some("ranks") => BatchTasks::Ranks,
            Some("once") => BatchTasks::Once,
            Some(other) => {
                return Err(ConfigError {
                    variable: "SLOTD_BATCH_TASKS",
                    value: other.to_owned(),
                    expected: "ranks, once or auto",
                });
            }
        };
        let config = Config {
            root,
            cpu_partitions: names("SLOTD_CPU_PARTITIONS", &["cpu"])?,
            gpu_partitions: names("SLOTD_GPU_PARTITIONS", &["gpu"])?,
            features: names("SLOTD_FEATURES", &[])?,
            notify_cmd: lookup("SLOTD_NOTIFY_CMD").filter(|v| !v.is_empty()),
            notify_timeout: seconds("SLOTD_NOTIFY_TIMEOUT", DEFAULT_NOTIFY_TIMEOUT)?,
            cgroup_base: lookup("SLOTD_CGROUP_BASE").filter(|v| !v.is_empty()).map(PathBuf::from),
            notify_socket: lookup("NOTIFY_SOCKET").filter(|v| !v.is_empty()),
            gpu_count: small("SLOTD_GPU_COUNT", "a number of GPUs from 0 to 1024", 1024)?,
            cpus: small("SLOTD_CPUS", "a number of CPUs from 1 to 65536", 65_536)?,
            mem_mb: number("SLOTD_MEMORY_MB", "a number of megabytes")?,
            batch_tasks,
            kill_wait: seconds("SLOTD_KILL_WAIT", DEFAULT_KILL_WAIT)?,
            min_job_age: seconds("SLOTD_MIN_JOB_AGE", DEFAULT_MIN_JOB_AGE)?,
        };
        if config.cpus == Some(0) {
            return Err(ConfigError {
                variable: "SLOTD_CPUS",
                value: "0".to_owned(),
                expected: "a number of CPUs from 1 to 65536",
            });
        }
        let mut all: Vec<&String> = config.cpu_partitions.iter().chain(&config.gpu_partitions).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        if all.len() != count {
            return Err(ConfigError {
                variable: "SLOTD_CPU_PARTITIONS",
                value: config.cpu_partitions.join(","),
                expected: "names that differ from each other and from those of SLOTD_GPU_PARTITIONS",
            });
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_env(PathBuf::from("/r"), |name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn nothing_set_gives_the_defaults_of_the_book() {
        let config = read(&[]).unwrap();
        assert_eq!(config.cpu_partitions, ["cpu"]);
        assert_eq!(config.gpu_partitions, ["gpu"]);
        assert_eq!(config.gpu_count, None);
        assert_eq!(config.notify_cmd, None);
        assert_eq!(config.kill_wait, DEFAULT_KILL_WAIT);
    }

    #[test]
    fn a_hook_keeps_its_quotes_and_dollars() {
        let hook = r#"notify-send "slotd" "$SLOTD_JOB_ID $SLOTD_JOB_STATE""#;
        assert_eq!(read(&[("SLOTD_NOTIFY_CMD", hook)]).unwrap().notify_cmd, Some(hook.into()));
    }

    #[test]
    fn a_bad_value_is_named_with_its_variable() {
        for (name, value) in [
            ("SLOTD_GPU_COUNT", "many"),
            ("SLOTD_GPU_COUNT", "4096"),
            ("SLOTD_CPU_PARTITIONS", "a b"),
            ("SLOTD_BATCH_TASKS", "sometimes"),
            ("SLOTD_KILL_WAIT", "-1"),
            ("SLOTD_MIN_JOB_AGE", "18446744073709551615"),
            ("SLOTD_CPUS", "0"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert_eq!(error.variable, name);
            assert!(error.to_string().contains(value), "{error}");
        }
    }

    #[test]
    fn one_name_for_two_partitions_is_refused() {
        assert!(read(&[("SLOTD_CPU_PARTITIONS", "a,b"), ("SLOTD_GPU_PARTITIONS", "b")]).is_err());
    }
}
