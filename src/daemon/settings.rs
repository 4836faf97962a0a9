//! The daemon's settings. This is the only reader of `SLOTD_*` in the daemon.

use crate::daemon::site::SiteFile;
use crate::exec::cgroup::{MaxProcesses, Place, Rules};
use crate::model::batch_tasks::BatchTasks;
use crate::model::notice::{Audience, Event, Events};
use crate::model::refusal::{MAX_TASKS_SETTING, MOST_TASKS, SHARDS_SETTING};
use crate::parse::capacity::{self, Capacity};
use crate::parse::web_address::WebAddress;
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// How long a process may take to end after SIGTERM, as Slurm's `KillWait`.
const DEFAULT_KILL_WAIT: Duration = Duration::from_secs(30);

/// How long a notify hook may run.
const DEFAULT_NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long ended jobs stay visible to squeue and scontrol, as Slurm's `MinJobAge`.
const DEFAULT_MIN_JOB_AGE: Duration = Duration::from_secs(300);

/// Tasks of a step at most, as Slurm's `MaxTasksPerNode`.
const DEFAULT_MAX_TASKS: u32 = 512;

/// How long a job is kept after its end, days.
const DEFAULT_KEEP_DAYS: u32 = 365;

/// Above what systemd gives a user's service (200), so that a job goes before its daemon.
const DEFAULT_OOM_SCORE_ADJ: u32 = 500;

/// How many jobs that have ended are kept: with their directories less than 2 GB.
const DEFAULT_KEEP_JOBS: u64 = 100_000;

/// The differences of work trees that are kept, compressed, megabytes: some hundreds of large ones,
/// or all that people make by hand.
const DEFAULT_DIFFS_MB: u64 = 64;

/// As many CPUs and megabytes as anybody may count.
pub const MOST_CPUS: u64 = 65_536;
pub const MOST_MB: u64 = 1 << 40;

/// All settings, by the names of their variables.
pub const VARIABLES: [&str; 32] = [
    "SLOTD_ROOT",
    "SLOTD_CONFIG",
    "SLOTD_CPU_PARTITIONS",
    "SLOTD_GPU_PARTITIONS",
    "SLOTD_FEATURES",
    "SLOTD_NOTIFY_CMD",
    "SLOTD_NOTIFY_EVENTS",
    "SLOTD_NOTIFY_TIMEOUT",
    "SLOTD_NOTIFY_URL",
    "SLOTD_SENDMAIL",
    "SLOTD_CGROUP_BASE",
    "SLOTD_MAX_PROCESSES",
    "SLOTD_IO_WEIGHT",
    "SLOTD_OOM_KILL_STEP",
    "SLOTD_OOM_SCORE_ADJ",
    "SLOTD_GPU_COUNT",
    SHARDS_SETTING,
    "SLOTD_GPU_FOREIGN",
    "SLOTD_GPU_HIDE",
    "SLOTD_CPUS",
    "SLOTD_CPU_FOREIGN",
    "SLOTD_MEMORY_MB",
    "SLOTD_BATCH_TASKS",
    "SLOTD_REQUEUE",
    MAX_TASKS_SETTING,
    "SLOTD_KILL_WAIT",
    "SLOTD_MIN_JOB_AGE",
    "SLOTD_KEEP_DAYS",
    "SLOTD_KEEP_JOBS",
    "SLOTD_GIT",
    "SLOTD_DIFFS_MB",
    "SLOTD_LOG",
];

/// Those that hold as soon as the configuration is read again; the others are for a daemon as long
/// as it runs.
pub const LIVE: [&str; 12] = [
    "SLOTD_CONFIG",
    "SLOTD_CPU_PARTITIONS",
    "SLOTD_GPU_PARTITIONS",
    "SLOTD_FEATURES",
    SHARDS_SETTING,
    "SLOTD_GPU_FOREIGN",
    "SLOTD_GPU_HIDE",
    "SLOTD_CPUS",
    "SLOTD_CPU_FOREIGN",
    "SLOTD_MEMORY_MB",
    MAX_TASKS_SETTING,
    "SLOTD_MIN_JOB_AGE",
];

/// How the daemon of one root works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub root: PathBuf,
    /// What the owner says of the host and its partitions. The variables go before it.
    pub site_file: Option<SiteFile>,
    /// `None`: those of the file, else one named cpu.
    pub cpu_partitions: Option<Vec<String>>,
    /// `None`: those of the file, else one named gpu.
    pub gpu_partitions: Option<Vec<String>>,
    pub features: Vec<String>,
    pub notify_cmd: Option<OsString>,
    /// Of what the command is told.
    pub notify_events: Events,
    pub notify_timeout: Duration,
    /// Where the same events are posted to.
    pub notify_url: Option<WebAddress>,
    pub sendmail: Sendmail,
    pub cgroup_base: Option<Place>,
    pub cgroup_rules: Rules,
    /// What the kernel is told about a job's processes for the case that the host's memory is used
    /// up (`oom_score_adj`).
    pub oom_score_adj: u32,
    /// `None`: ask `nvidia-smi`.
    pub gpu_count: Option<u32>,
    /// Into how many parts each GPU is divided; 0: none.
    pub gpu_shards: u32,
    /// No job gets a GPU on which processes are that no job started.
    pub avoids_used_gpus: bool,
    /// Jobs that have no GPU see them all the same.
    pub gpus_open: bool,
    /// CPUs that processes use that no job started are given to no job.
    pub avoids_used_cpus: bool,
    /// `None`: what the kernel says.
    pub cpus: Option<Capacity>,
    /// `None`: `MemTotal`. Megabytes.
    pub mem_mb: Option<Capacity>,
    /// Tasks of a step at most.
    pub max_tasks: u32,
    /// What `-n N` means for a batch script.
    pub batch_tasks: BatchTasks,
    /// `--requeue` has a job run once more after its own failure; otherwise only after one of the
    /// node, as in Slurm.
    pub reruns_failed: bool,
    pub kill_wait: Duration,
    pub min_job_age: Duration,
    /// How long a job is kept after its end, days. `None`: for ever.
    pub keep_days: Option<u32>,
    /// How many jobs that have ended are kept. `None`: all.
    pub keep_jobs: Option<u64>,
    /// git is asked about the work trees that jobs are submitted from.
    pub git: bool,
    /// The differences of work trees that are kept, compressed, megabytes. `None`: all.
    pub diffs_mb: Option<u64>,
    /// What is written to the log: this level and what is worse.
    pub log: Level,
}

/// Who sends mail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sendmail {
    /// The host's own, if there is one.
    #[default]
    Search,
    Program(PathBuf),
    Off,
}

/// A variable with a value that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?}: expected {expected}")]
pub struct SettingError {
    pub variable: &'static str,
    pub value: String,
    pub expected: String,
}

impl Settings {
    /// Reads the environment. An empty variable counts as not set.
    ///
    /// # Errors
    /// A value that is no number in its range, no list of names, or no known word.
    pub fn read(root: PathBuf, env: &Environment) -> Result<Settings, SettingError> {
        let vars = Variables(env);
        let settings = Settings {
            root,
            site_file: SiteFile::of(env),
            cpu_partitions: vars.names("SLOTD_CPU_PARTITIONS")?,
            gpu_partitions: vars.names("SLOTD_GPU_PARTITIONS")?,
            features: vars.names("SLOTD_FEATURES")?.unwrap_or_default(),
            notify_cmd: vars.raw("SLOTD_NOTIFY_CMD"),
            notify_events: vars.events()?,
            notify_timeout: vars
                .seconds("SLOTD_NOTIFY_TIMEOUT", 1)?
                .unwrap_or(DEFAULT_NOTIFY_TIMEOUT),
            notify_url: vars.value(
                "SLOTD_NOTIFY_URL",
                "an address that begins with http:// or https://",
                WebAddress::parse,
            )?,
            sendmail: vars.sendmail()?,
            cgroup_base: vars.cgroup_base()?,
            cgroup_rules: vars.cgroup_rules()?,
            oom_score_adj: vars
                .number("SLOTD_OOM_SCORE_ADJ", "a number", 0..=1000)?
                .unwrap_or(DEFAULT_OOM_SCORE_ADJ),
            gpu_count: vars.number("SLOTD_GPU_COUNT", "a number of GPUs", 0..=1024)?,
            gpu_shards: vars
                .number(SHARDS_SETTING, "a number of parts of a GPU", 0..=1024)?
                .unwrap_or(0),
            avoids_used_gpus: vars
                .word("SLOTD_GPU_FOREIGN", [("ignore", false), ("avoid", true)])?,
            gpus_open: vars.word("SLOTD_GPU_HIDE", [("yes", false), ("no", true)])?,
            avoids_used_cpus: vars
                .word("SLOTD_CPU_FOREIGN", [("ignore", false), ("avoid", true)])?,
            cpus: vars.capacity("SLOTD_CPUS", "a number of CPUs", MOST_CPUS)?,
            mem_mb: vars.capacity("SLOTD_MEMORY_MB", "a number of megabytes", MOST_MB)?,
            max_tasks: vars
                .number(MAX_TASKS_SETTING, "a number of tasks", 1..=MOST_TASKS)?
                .unwrap_or(DEFAULT_MAX_TASKS),
            batch_tasks: vars.batch_tasks()?,
            reruns_failed: vars.word("SLOTD_REQUEUE", [("once", true), ("slurm", false)])?,
            kill_wait: vars.seconds("SLOTD_KILL_WAIT", 0)?.unwrap_or(DEFAULT_KILL_WAIT),
            min_job_age: vars.seconds("SLOTD_MIN_JOB_AGE", 0)?.unwrap_or(DEFAULT_MIN_JOB_AGE),
            keep_days: vars.bound(
                "SLOTD_KEEP_DAYS",
                "a number of days",
                1..=1_000_000,
                DEFAULT_KEEP_DAYS,
            )?,
            keep_jobs: vars.bound(
                "SLOTD_KEEP_JOBS",
                "a number of jobs",
                1..=u64::from(u32::MAX),
                DEFAULT_KEEP_JOBS,
            )?,
            git: vars.word("SLOTD_GIT", [("on", true), ("off", false)])?,
            diffs_mb: vars.bound(
                "SLOTD_DIFFS_MB",
                "a number of megabytes",
                0..=MOST_MB,
                DEFAULT_DIFFS_MB,
            )?,
            log: vars.log()?,
        };
        settings.check_partitions()?;
        Ok(settings)
    }

    /// Who is told of what happens to the queue.
    pub fn audience(&self, sends_mail: bool) -> Audience {
        let events = |is_wanted: bool| if is_wanted { self.notify_events } else { Events::NONE };
        Audience {
            command: events(self.notify_cmd.is_some()),
            url: events(self.notify_url.is_some()),
            mail: sends_mail,
        }
    }

    /// The same with those of [`LIVE`] as they are there.
    #[must_use]
    pub fn with_live(&self, now: Settings) -> Settings {
        Settings {
            site_file: now.site_file,
            cpu_partitions: now.cpu_partitions,
            gpu_partitions: now.gpu_partitions,
            features: now.features,
            gpu_shards: now.gpu_shards,
            avoids_used_gpus: now.avoids_used_gpus,
            gpus_open: now.gpus_open,
            cpus: now.cpus,
            avoids_used_cpus: now.avoids_used_cpus,
            mem_mb: now.mem_mb,
            max_tasks: now.max_tasks,
            min_job_age: now.min_job_age,
            ..self.clone()
        }
    }

    /// Each partition has a name of its own.
    fn check_partitions(&self) -> Result<(), SettingError> {
        let mut seen = BTreeSet::new();
        for (variable, names) in [
            ("SLOTD_CPU_PARTITIONS", &self.cpu_partitions),
            ("SLOTD_GPU_PARTITIONS", &self.gpu_partitions),
        ] {
            let names = names.as_deref().unwrap_or_default();
            for name in names {
                if !seen.insert(name) {
                    let expected =
                        format!("names that differ; {name} is the name of another partition too");
                    return Err(SettingError { variable, value: names.join(","), expected });
                }
            }
        }
        Ok(())
    }
}

/// Variables by their names.
pub type Environment = BTreeMap<OsString, OsString>;

/// The environment, read with a check.
struct Variables<'a>(&'a Environment);

impl Variables<'_> {
    fn raw(&self, name: &str) -> Option<OsString> {
        self.0.get(OsStr::new(name)).filter(|value| !value.is_empty()).cloned()
    }

    fn text(&self, variable: &'static str) -> Result<Option<String>, SettingError> {
        let text = self.raw(variable).map(OsString::into_string).transpose().map_err(|raw| {
            SettingError {
                variable,
                value: raw.to_string_lossy().into_owned(),
                expected: "text in UTF-8".to_owned(),
            }
        })?;
        Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// A value that `parse` takes.
    fn value<T>(
        &self,
        variable: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        let Some(value) = self.text(variable)? else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(SettingError { variable, value, expected: expected.to_owned() }),
        }
    }

    fn number<T>(
        &self,
        variable: &'static str,
        what: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, SettingError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let expected = format!("{what} from {} to {}", range.start(), range.end());
        self.value(variable, &expected, |text| text.parse().ok().filter(|n| range.contains(n)))
    }

    fn capacity(
        &self,
        variable: &'static str,
        what: &str,
        most: u64,
    ) -> Result<Option<Capacity>, SettingError> {
        self.value(variable, &capacity::forms(what, most), |text| capacity::parse(text, most))
    }

    /// A number that bounds something, or `unlimited`: `None`.
    fn bound<T>(
        &self,
        variable: &'static str,
        what: &str,
        range: RangeInclusive<T>,
        default: T,
    ) -> Result<Option<T>, SettingError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let expected = format!("{what} from {} to {}, or unlimited", range.start(), range.end());
        let parsed = self.value(variable, &expected, |text| match text {
            "unlimited" => Some(None),
            number => number.parse().ok().filter(|n| range.contains(n)).map(Some),
        })?;
        Ok(parsed.unwrap_or(Some(default)))
    }

    /// As far as any time in Slurm goes; beyond that sums of times would overflow.
    fn seconds(
        &self,
        variable: &'static str,
        least: u32,
    ) -> Result<Option<Duration>, SettingError> {
        let secs = self.number(variable, "a number of seconds", least..=u32::MAX)?;
        Ok(secs.map(|secs| Duration::from_secs(secs.into())))
    }

    fn names(&self, variable: &'static str) -> Result<Option<Vec<String>>, SettingError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        self.value(
            variable,
            "names of letters, digits, '_', '-' and '.', separated by commas",
            |text| {
                let names: Vec<String> = text
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect();
                (!names.is_empty() && names.iter().all(|name| name.chars().all(legal)))
                    .then_some(names)
            },
        )
    }

    /// One of two words, of which the first is the default.
    fn word<T: Copy>(
        &self,
        variable: &'static str,
        words: [(&str, T); 2],
    ) -> Result<T, SettingError> {
        let [(default, _), (other, _)] = words;
        let named =
            |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        Ok(self.value(variable, &format!("{default} or {other}"), named)?.unwrap_or(words[0].1))
    }

    fn cgroup_base(&self) -> Result<Option<Place>, SettingError> {
        let Some(base) = self.raw("SLOTD_CGROUP_BASE").map(PathBuf::from) else { return Ok(None) };
        if base.as_os_str() == "auto" {
            return Ok(Some(Place::Auto));
        }
        if base.is_absolute() {
            return Ok(Some(Place::Path(base)));
        }
        let value = base.display().to_string();
        Err(SettingError {
            variable: "SLOTD_CGROUP_BASE",
            value,
            expected: "an absolute path, or auto".to_owned(),
        })
    }

    fn cgroup_rules(&self) -> Result<Rules, SettingError> {
        let expected = format!("a number of processes from 1 to {}, or unlimited", u32::MAX);
        let max_processes = self.value("SLOTD_MAX_PROCESSES", &expected, |text| match text {
            "unlimited" => Some(MaxProcesses::Unlimited),
            number => number.parse().ok().filter(|n| *n > 0).map(MaxProcesses::Number),
        })?;
        Ok(Rules {
            max_processes: max_processes.unwrap_or(MaxProcesses::Half),
            io_weight: self.number("SLOTD_IO_WEIGHT", "a weight", 1..=10_000)?,
            kill_step: self.word("SLOTD_OOM_KILL_STEP", [("no", false), ("yes", true)])?,
        })
    }

    fn sendmail(&self) -> Result<Sendmail, SettingError> {
        let parsed =
            self.value("SLOTD_SENDMAIL", "an absolute path, or off", |text| match text {
                "off" => Some(Sendmail::Off),
                path => Some(PathBuf::from(path))
                    .filter(|path| path.is_absolute())
                    .map(Sendmail::Program),
            })?;
        Ok(parsed.unwrap_or_default())
    }

    fn events(&self) -> Result<Events, SettingError> {
        let variable = "SLOTD_NOTIFY_EVENTS";
        let Some(value) = self.text(variable)? else { return Ok(Events::NONE.with(Event::Job)) };
        let mut events = Events::NONE;
        for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some(event) = Event::ALL.into_iter().find(|event| event.name() == word) else {
                let names = Event::ALL.map(Event::name).join(", ");
                let expected =
                    format!("some of {names}, separated by commas; {word:?} is none of them");
                return Err(SettingError { variable, value, expected });
            };
            events = events.with(event);
        }
        Ok(events)
    }

    fn batch_tasks(&self) -> Result<BatchTasks, SettingError> {
        let parsed = self.value("SLOTD_BATCH_TASKS", "ranks, once or auto", BatchTasks::named)?;
        Ok(parsed.unwrap_or_default())
    }

    fn log(&self) -> Result<Level, SettingError> {
        let parsed =
            self.value("SLOTD_LOG", "error, warn, info, debug or trace", |text| text.parse().ok())?;
        Ok(parsed.unwrap_or(Level::Info))
    }
}

/// Checks an environment before a daemon is started with it.
///
/// # Errors
/// As of [`Settings::read`].
pub fn check(env: &Environment) -> Result<(), SettingError> {
    Settings::read(PathBuf::new(), env).map(drop)
}

/// The variables that look like settings and are none, such as `SLOTD_CPU`: neither one for the
/// commands nor what a hook is told.
pub fn unknown<'a>(names: impl Iterator<Item = &'a OsString>) -> Vec<&'a str> {
    let is_for_tests = |name: &str| cfg!(debug_assertions) && name.starts_with("SLOTD_TEST_");
    let known = |name: &str| {
        let is_for_hooks = name.starts_with("SLOTD_JOB_") || name.starts_with("SLOTD_EVENT");
        VARIABLES.contains(&name)
            || ["SLOTD_OUTPUT", "SLOTD_SNAPSHOT_DIR", "SLOTD_UID"].contains(&name)
            || is_for_hooks
            || is_for_tests(name)
    };
    names
        .filter_map(|name| name.to_str())
        .filter(|name| name.starts_with("SLOTD_") && !known(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Settings, SettingError> {
        let env = vars.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        Settings::read(PathBuf::from("/r"), &env)
    }

    #[test]
    fn nothing_set_and_empty_variables_give_the_defaults() {
        let settings = read(&[]).unwrap();
        assert_eq!(
            (settings.cpu_partitions.clone(), settings.gpu_partitions.clone()),
            (None, None)
        );
        assert_eq!(settings.gpu_count, None);
        assert_eq!(settings.notify_cmd, None);
        assert_eq!(settings.kill_wait, DEFAULT_KILL_WAIT);
        assert_eq!(settings.log, Level::Info);
        assert_eq!(read(&VARIABLES.map(|name| (name, ""))).unwrap(), settings);
    }

    #[test]
    fn a_hook_keeps_its_quotes_and_dollars() {
        let hook = r#"notify-send "slotd" "$SLOTD_JOB_ID $SLOTD_JOB_STATE""#;
        let settings = read(&[("SLOTD_NOTIFY_CMD", hook)]).unwrap();
        assert_eq!(settings.notify_cmd, Some(hook.into()));
        assert_eq!(settings.audience(false).command, Events::NONE.with(Event::Job));
        let settings =
            read(&[("SLOTD_NOTIFY_CMD", hook), ("SLOTD_NOTIFY_EVENTS", "queue, array")]).unwrap();
        assert_eq!(settings.audience(false).command.to_string(), "array,queue");
        assert!(
            read(&[("SLOTD_NOTIFY_EVENTS", "queue")]).unwrap().audience(false).is_empty(),
            "there is nobody to tell"
        );
    }

    #[test]
    fn a_bad_value_is_named_with_its_variable_and_what_is_expected() {
        for (name, value, expected) in [
            ("SLOTD_GPU_COUNT", "many", "a number of GPUs from 0 to 1024"),
            ("SLOTD_GPU_COUNT", "4096", "a number of GPUs from 0 to 1024"),
            ("SLOTD_GPU_SHARDS", "-1", "a number of parts of a GPU from 0 to 1024"),
            ("SLOTD_GPU_FOREIGN", "shun", "ignore or avoid"),
            ("SLOTD_GPU_HIDE", "perhaps", "yes or no"),
            ("SLOTD_CPU_PARTITIONS", "a b", "separated by commas"),
            ("SLOTD_GPU_PARTITIONS", ",", "separated by commas"),
            ("SLOTD_FEATURES", "a&b", "separated by commas"),
            ("SLOTD_BATCH_TASKS", "sometimes", "ranks, once or auto"),
            ("SLOTD_REQUEUE", "twice", "once or slurm"),
            ("SLOTD_KILL_WAIT", "-1", "a number of seconds from 0 to 4294967295"),
            ("SLOTD_NOTIFY_TIMEOUT", "0", "a number of seconds from 1 to"),
            (
                "SLOTD_NOTIFY_EVENTS",
                "job,ends",
                "some of job, array, chain, queue, never, separated by commas; \"ends\" is",
            ),
            ("SLOTD_MIN_JOB_AGE", "18446744073709551615", "a number of seconds"),
            ("SLOTD_KEEP_DAYS", "0", "a number of days from 1 to 1000000, or unlimited"),
            ("SLOTD_KEEP_JOBS", "never", "a number of jobs from 1 to 4294967295, or unlimited"),
            (
                "SLOTD_DIFFS_MB",
                "64M",
                "a number of megabytes from 0 to 1099511627776, or unlimited",
            ),
            ("SLOTD_CPUS", "0", "a number of CPUs from 1 to 65536"),
            ("SLOTD_CPUS", "1001%", "a part of what there is (75%, at most 1000%)"),
            ("SLOTD_MEMORY_MB", "-0", "how many are kept back (-2)"),
            ("SLOTD_MEMORY_MB", "8G", "a number of megabytes"),
            ("SLOTD_CGROUP_BASE", "slotd", "an absolute path, or auto"),
            (
                "SLOTD_MAX_PROCESSES",
                "0",
                "a number of processes from 1 to 4294967295, or unlimited",
            ),
            ("SLOTD_IO_WEIGHT", "10001", "a weight from 1 to 10000"),
            ("SLOTD_OOM_KILL_STEP", "1", "no or yes"),
            ("SLOTD_OOM_SCORE_ADJ", "-5", "a number from 0 to 1000"),
            ("SLOTD_MAX_TASKS_PER_NODE", "65534", "a number of tasks from 1 to 65533"),
            ("SLOTD_LOG", "verbose", "error, warn, info, debug or trace"),
            ("SLOTD_LOG", "slotd=debug", "error, warn, info, debug or trace"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("{name}={value:?}: expected ")), "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn one_name_for_two_partitions_is_refused() {
        let error =
            read(&[("SLOTD_CPU_PARTITIONS", "a,b"), ("SLOTD_GPU_PARTITIONS", "b")]).unwrap_err();
        assert_eq!(error.variable, "SLOTD_GPU_PARTITIONS");
        assert!(read(&[("SLOTD_CPU_PARTITIONS", "a,a")]).is_err());
    }

    #[test]
    fn a_misspelled_variable_is_found() {
        let names =
            ["SLOTD_CPU", "SLOTD_CPUS", "PATH", "SLOTD_OUTPUT", "SLOTD_UID"].map(OsString::from);
        assert_eq!(unknown(names.iter()), ["SLOTD_CPU"]);
    }
}
