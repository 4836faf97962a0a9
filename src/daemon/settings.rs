//! The daemon's settings. Nothing else in the daemon reads `SLOTD_*`.

use crate::daemon::site::SiteFile;
use log::Level;
use slotd_exec::cgroup::{MaxProcesses, Place, Rules};
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::notice::{Audience, Event, Events};
use slotd_model::refusal::{MAX_TASKS_SETTING, MOST_TASKS, SHARDS_SETTING};
use slotd_parse::capacity::{self, Capacity};
use slotd_parse::web_address::WebAddress;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The most CPUs and megabytes that a setting accepts.
pub const MOST_CPUS: u64 = 65_536;
pub const MOST_MB: u64 = 1 << 40;

/// The variable of a setting, its text in the manual, and when a new value takes effect.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub variable: &'static str,
    pub holds: Holds,
    /// Its text in the manual.
    pub manual: &'static str,
}

/// When a new value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// When the configuration is reloaded.
    Live,
    /// When the daemon restarts.
    Start,
}

/// Expands the table of settings into [`Settings`], the list of variables, and the functions that
/// read them.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $field:ident: $type:ty = $variable:expr, $holds:ident, $read:expr, $manual:expr;
    )*) => {
        /// The settings of the daemon of one root.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            pub root: PathBuf,
            $($(#[$doc])* pub $field: $type,)*
        }

        /// All settings.
        pub const TABLE: &[Setting] = &[
            Setting { variable: "SLOTD_ROOT", holds: Holds::Start, manual: ROOT },
            $(Setting { variable: $variable, holds: Holds::$holds, manual: $manual },)*
        ];

        impl Settings {
            /// Reads the environment. An empty variable counts as unset.
            ///
            /// # Errors
            /// Fails if a value is not a number in its range, a list of names, or a known word.
            pub fn read(root: PathBuf, env: &Environment) -> Result<Settings, SettingError> {
                $(
                    let read: fn(&Variable<'_>) -> Result<$type, SettingError> = $read;
                    let $field = read(&Variable { env, name: $variable })?;
                )*
                let settings = Settings { root, $($field,)* };
                settings.check_partitions()?;
                Ok(settings)
            }

            /// Returns these settings, with the live ones ([`Holds::Live`]) taken from `now`.
            #[must_use]
            pub fn with_live(&self, now: Settings) -> Settings {
                Settings {
                    root: self.root.clone(),
                    $($field: match Holds::$holds {
                        Holds::Live => now.$field,
                        Holds::Start => self.$field.clone(),
                    },)*
                }
            }
        }
    };
}

const ADDRESS: &str = "a URL that begins with http:// or https://";
const ROOT: &str =
    "The runtime root; commands and daemon must agree on it. Default: ~/.local/share/slotd.";

settings! {
    /// The owner's configuration of the host and its partitions. Variables take precedence over it.
    site_file: Option<SiteFile> = "SLOTD_CONFIG", Live, |v| v.site_file(),
        "The file with the partitions and their policies. Default: ~/.config/slotd/slotd.toml, \
         if it exists.";
    /// `None`: those in the file, or else one named cpu.
    cpu_partitions: Option<Vec<String>> = "SLOTD_CPU_PARTITIONS", Live, |v| v.names(),
        "Names of the CPU partitions, separated by commas. The first one is the default \
         partition. Default: cpu.";
    /// `None`: those in the file, or else one named gpu.
    gpu_partitions: Option<Vec<String>> = "SLOTD_GPU_PARTITIONS", Live, |v| v.names(),
        "Names of the GPU partitions, which exist only if the host has GPUs. Default: gpu.";
    features: Vec<String> = "SLOTD_FEATURES", Live, |v| Ok(v.names()?.unwrap_or_default()),
        "Features for --constraint, separated by commas.";
    notify_cmd: Option<OsString> = "SLOTD_NOTIFY_CMD", Start, |v| Ok(v.raw()),
        "Shell command to run when a job ends. Its environment contains SLOTD_JOB_ID, \
         SLOTD_JOB_NAME, SLOTD_JOB_STATE, SLOTD_JOB_PARTITION and SLOTD_JOB_REASON; \
         SLOTD_JOB_MAIL_TYPE and SLOTD_JOB_MAIL_USER if the job set them; SLOTD_EVENT and \
         SLOTD_EVENT_TEXT; and, for several jobs, SLOTD_EVENT_JOBS, _COMPLETED, _FAILED and \
         _CANCELLED, SLOTD_EVENT_FIRST and SLOTD_EVENT_LAST. contrib/hooks in the repository \
         contains one for desktop notifications.";
    /// The events that run the command.
    notify_events: Events = "SLOTD_NOTIFY_EVENTS", Start, |v| v.events(),
        "Events that run this command: any of job, array, chain, queue and never, separated by \
         commas. Default: job.";
    /// The timeout of a notification command.
    notify_timeout: Duration = "SLOTD_NOTIFY_TIMEOUT", Start, |v| v.seconds(1, 30),
        "Timeout of this command, of an email and of each attempt to post, in seconds. Default: \
         30.";
    /// The URL to which the same events are posted.
    notify_url: Option<WebAddress> = "SLOTD_NOTIFY_URL", Start,
        |v| v.value(ADDRESS, WebAddress::parse),
        "HTTP or HTTPS URL to which the same events are posted, each as a JSON object.";
    sendmail: Sendmail = "SLOTD_SENDMAIL", Start, |v| v.sendmail(),
        "Program that sends the email requested with --mail-type, or off. Default: the host's \
         sendmail, if it has one.";
    cgroup_base: Option<Place> = "SLOTD_CGROUP_BASE", Start, |v| v.cgroup_base(),
        "Writable cgroup v2 subtree, or auto. If set, the resource limits of jobs are enforced.";
    max_processes: MaxProcesses = "SLOTD_MAX_PROCESSES", Start, |v| v.max_processes(),
        "Maximum number of processes and threads of a job if cgroups are used, or unlimited. \
         Default: half of the host's limit.";
    io_weight: Option<u32> = "SLOTD_IO_WEIGHT", Start, |v| v.number("a weight", 1..=10_000),
        "io.weight per CPU of a job, 1 to 10000, if cgroups are used.";
    kills_step: bool = "SLOTD_OOM_KILL_STEP", Start, |v| v.word([("no", false), ("yes", true)]),
        "yes or no: whether a step that runs out of memory is killed as a whole. Default: no.";
    /// The `oom_score_adj` of jobs' processes, for when the host runs out of memory. The default is
    /// above systemd's for a user service (200), so that the kernel kills a job before its daemon.
    oom_score_adj: u32 = "SLOTD_OOM_SCORE_ADJ", Start,
        |v| Ok(v.number("a number", 0..=1000)?.unwrap_or(500)),
        "oom_score_adj of jobs, 0 to 1000. If the host runs out of memory, the kernel kills the \
         highest first. Default: 500.";
    /// `None`: ask `nvidia-smi`.
    gpu_count: Option<u32> = "SLOTD_GPU_COUNT", Start, |v| v.number("a number of GPUs", 0..=1024),
        "Number of GPUs. Default: detected with nvidia-smi, or with sysfs for AMD.";
    /// The number of shards per GPU, or 0 for none.
    gpu_shards: u32 = SHARDS_SETTING, Live,
        |v| Ok(v.number("a number of shards per GPU", 0..=1024)?.unwrap_or(0)),
        "Number of shards per GPU, for --gres=shard:N. Default: 0.";
    /// Allocate no GPU that is used by processes outside jobs.
    avoids_used_gpus: bool = "SLOTD_GPU_FOREIGN", Live,
        |v| v.word([("ignore", false), ("avoid", true)]),
        "ignore or avoid: whether jobs can get a GPU that is used by processes outside jobs. \
         Default: ignore.";
    /// Jobs without a GPU see all GPUs.
    gpus_open: bool = "SLOTD_GPU_HIDE", Live, |v| v.word([("yes", false), ("no", true)]),
        "yes or no: whether GPUs are hidden from jobs that have none. Default: yes.";
    /// `None`: all CPUs that the kernel allows.
    cpus: Option<Capacity> = "SLOTD_CPUS", Live, |v| v.capacity("a number of CPUs", MOST_CPUS),
        "CPUs for jobs: a number, a number to keep back (-2), or a percentage of the total \
         (150%). Default: all CPUs that the kernel allows.";
    /// Allocate no CPUs that are used by processes outside jobs.
    avoids_used_cpus: bool = "SLOTD_CPU_FOREIGN", Live,
        |v| v.word([("ignore", false), ("avoid", true)]),
        "ignore or avoid: whether jobs can get CPUs that are used by processes outside jobs. \
         Default: ignore.";
    /// Megabytes. `None`: `MemTotal`.
    mem_mb: Option<Capacity> = "SLOTD_MEMORY_MB", Live,
        |v| v.capacity("a number of megabytes", MOST_MB),
        "Memory for jobs in MB, in the same forms. Default: MemTotal of the kernel.";
    /// The meaning of `-n N` for a batch script.
    batch_tasks: BatchTasks = "SLOTD_BATCH_TASKS", Start,
        |v| Ok(v.value("ranks, once or auto", BatchTasks::named)?.unwrap_or_default()),
        "ranks, once or auto: the meaning of --ntasks for a batch script. Default: auto.";
    /// With `--requeue`, also rerun a job once after its own failure, not only after a node failure
    /// as in Slurm.
    reruns_failed: bool = "SLOTD_REQUEUE", Start, |v| v.word([("once", true), ("slurm", false)]),
        "once or slurm: with once, --requeue reruns a job one time after FAILED, TIMEOUT or \
         OUT_OF_MEMORY. With slurm, a job that failed on its own stays ended, as in Slurm. \
         Default: once.";
    /// The most tasks of a step (Slurm `MaxTasksPerNode`).
    max_tasks: u32 = MAX_TASKS_SETTING, Live,
        |v| Ok(v.number("a number of tasks", 1..=MOST_TASKS)?.unwrap_or(512)),
        "Maximum number of tasks of a job or step (Slurm's MaxTasksPerNode). Default: 512.";
    /// The time between SIGTERM and SIGKILL (Slurm `KillWait`).
    kill_wait: Duration = "SLOTD_KILL_WAIT", Start, |v| v.seconds(0, 30),
        "Seconds between SIGTERM and SIGKILL. Default: 30.";
    /// The time that ended jobs stay visible to squeue and scontrol (Slurm `MinJobAge`).
    min_job_age: Duration = "SLOTD_MIN_JOB_AGE", Live, |v| v.seconds(0, 300),
        "Seconds that an ended job stays in the daemon's memory. Older ones are read from the \
         database. Default: 300.";
    /// Days to keep a job after its end. `None`: forever.
    keep_days: Option<u32> = "SLOTD_KEEP_DAYS", Start,
        |v| v.bound("a number of days", 1..=1_000_000, 365),
        "Days to keep a job after its end, or unlimited. Default: 365.";
    /// The number of ended jobs to keep. With their directories, the default takes less than 2 GB.
    /// `None`: all.
    keep_jobs: Option<u64> = "SLOTD_KEEP_JOBS", Start,
        |v| v.bound("a number of jobs", 1..=u64::from(u32::MAX), 100_000),
        "Number of ended jobs to keep, or unlimited. Default: 100000.";
    /// Record the git state of the work trees that jobs are submitted from.
    git: bool = "SLOTD_GIT", Start, |v| v.word([("on", true), ("off", false)]),
        "on or off: whether the git commit and changes of the work tree are recorded at submission. \
         Default: on.";
    /// Megabytes of compressed work tree diffs to keep. The default holds a few hundred large ones,
    /// or everything that people write by hand. `None`: all.
    diffs_mb: Option<u64> = "SLOTD_DIFFS_MB", Start,
        |v| v.bound("a number of megabytes", 0..=MOST_MB, 64),
        "Megabytes of compressed work tree diffs to keep, or unlimited. The oldest are deleted \
         first. Default: 64.";
    /// The lowest level that is logged.
    log: Level = "SLOTD_LOG", Start, |v| v.log(),
        "Log level: error, warn, info, debug or trace. Default: info.";
}

/// The program that sends email.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sendmail {
    /// The host's own, if it has one.
    #[default]
    Search,
    Program(PathBuf),
    Off,
}

/// A variable with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?}: expected {expected}")]
pub struct SettingError {
    pub variable: &'static str,
    pub value: String,
    pub expected: String,
}

impl Settings {
    pub fn cgroup_rules(&self) -> Rules {
        let (max_processes, io_weight) = (self.max_processes, self.io_weight);
        Rules { max_processes, io_weight, kill_step: self.kills_step }
    }

    /// Returns the recipients of notifications about the queue.
    pub fn audience(&self, sends_mail: bool) -> Audience {
        let events = |is_wanted: bool| if is_wanted { self.notify_events } else { Events::NONE };
        Audience {
            command: events(self.notify_cmd.is_some()),
            url: events(self.notify_url.is_some()),
            mail: sends_mail,
        }
    }

    /// Checks that all partitions have different names.
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
                        format!("distinct names; {name} is also the name of another partition");
                    return Err(SettingError { variable, value: names.join(","), expected });
                }
            }
        }
        Ok(())
    }
}

/// Environment variables by name.
pub type Environment = BTreeMap<OsString, OsString>;

/// One variable of the environment, with methods that validate its value.
struct Variable<'a> {
    env: &'a Environment,
    name: &'static str,
}

impl Variable<'_> {
    fn raw(&self) -> Option<OsString> {
        self.env.get(OsStr::new(self.name)).filter(|value| !value.is_empty()).cloned()
    }

    fn refused(&self, value: impl Into<String>, expected: impl Into<String>) -> SettingError {
        SettingError { variable: self.name, value: value.into(), expected: expected.into() }
    }

    fn text(&self) -> Result<Option<String>, SettingError> {
        let text = self
            .raw()
            .map(OsString::into_string)
            .transpose()
            .map_err(|raw| self.refused(raw.to_string_lossy(), "text in UTF-8"))?;
        Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// Reads a value with `parse`.
    fn value<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        let Some(value) = self.text()? else { return Ok(None) };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(self.refused(value, expected)),
        }
    }

    fn number<T>(&self, what: &str, range: RangeInclusive<T>) -> Result<Option<T>, SettingError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let expected = format!("{what} from {} to {}", range.start(), range.end());
        self.value(&expected, |text| text.parse().ok().filter(|n| range.contains(n)))
    }

    fn capacity(&self, what: &str, most: u64) -> Result<Option<Capacity>, SettingError> {
        self.value(&capacity::forms(what, most), |text| capacity::parse(text, most))
    }

    /// Reads an upper bound. `unlimited` is `None`.
    fn bound<T>(
        &self,
        what: &str,
        range: RangeInclusive<T>,
        default: T,
    ) -> Result<Option<T>, SettingError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let expected = format!("{what} from {} to {}, or unlimited", range.start(), range.end());
        let parsed = self.value(&expected, |text| match text {
            "unlimited" => Some(None),
            number => number.parse().ok().filter(|n| range.contains(n)).map(Some),
        })?;
        Ok(parsed.unwrap_or(Some(default)))
    }

    /// The largest value is the longest time in Slurm. Beyond it, sums of times would overflow.
    fn seconds(&self, least: u32, default: u32) -> Result<Duration, SettingError> {
        let secs = self.number("a number of seconds", least..=u32::MAX)?;
        Ok(Duration::from_secs(secs.unwrap_or(default).into()))
    }

    fn names(&self) -> Result<Option<Vec<String>>, SettingError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        self.value("names of letters, digits, '_', '-' and '.', separated by commas", |text| {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            let names: Vec<String> = names.map(str::to_owned).collect();
            (!names.is_empty() && names.iter().all(|name| name.chars().all(legal))).then_some(names)
        })
    }

    /// Reads one of two words. The first is the default.
    fn word<T: Copy>(&self, words: [(&str, T); 2]) -> Result<T, SettingError> {
        let [(default, _), (other, _)] = words;
        let named =
            |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        Ok(self.value(&format!("{default} or {other}"), named)?.unwrap_or(words[0].1))
    }

    fn cgroup_base(&self) -> Result<Option<Place>, SettingError> {
        let Some(base) = self.raw().map(PathBuf::from) else { return Ok(None) };
        if base.as_os_str() == "auto" {
            return Ok(Some(Place::Auto));
        }
        if base.is_absolute() {
            return Ok(Some(Place::Path(base)));
        }
        Err(self.refused(base.display().to_string(), "an absolute path, or auto"))
    }

    /// Commands and daemon have different working directories, so the path must be absolute.
    fn site_file(&self) -> Result<Option<SiteFile>, SettingError> {
        match self.raw().map(PathBuf::from) {
            Some(path) if !path.is_absolute() => {
                Err(self.refused(path.display().to_string(), "an absolute path"))
            }
            _ => Ok(SiteFile::of(self.env)),
        }
    }

    fn max_processes(&self) -> Result<MaxProcesses, SettingError> {
        let expected = format!("a number of processes from 1 to {}, or unlimited", u32::MAX);
        let parsed = self.value(&expected, |text| match text {
            "unlimited" => Some(MaxProcesses::Unlimited),
            number => number.parse().ok().filter(|n| *n > 0).map(MaxProcesses::Number),
        })?;
        Ok(parsed.unwrap_or(MaxProcesses::Half))
    }

    fn sendmail(&self) -> Result<Sendmail, SettingError> {
        let parsed = self.value("an absolute path, or off", |text| match text {
            "off" => Some(Sendmail::Off),
            path => {
                Some(PathBuf::from(path)).filter(|path| path.is_absolute()).map(Sendmail::Program)
            }
        })?;
        Ok(parsed.unwrap_or_default())
    }

    fn events(&self) -> Result<Events, SettingError> {
        let Some(value) = self.text()? else { return Ok(Events::NONE.with(Event::Job)) };
        let mut events = Events::NONE;
        for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some(event) = Event::ALL.into_iter().find(|event| event.name() == word) else {
                let names = Event::ALL.map(Event::name).join(", ");
                let expected =
                    format!("some of {names}, separated by commas; {word:?} is not one of them");
                return Err(self.refused(value, expected));
            };
            events = events.with(event);
        }
        Ok(events)
    }

    fn log(&self) -> Result<Level, SettingError> {
        let parsed = self.value("error, warn, info, debug or trace", |text| text.parse().ok())?;
        Ok(parsed.unwrap_or(Level::Info))
    }
}

/// Returns the variables that look like settings but are not, such as `SLOTD_CPU`. Variables of the
/// commands and of hooks are left out.
pub fn unknown<'a>(names: impl Iterator<Item = &'a OsString>) -> Vec<&'a str> {
    let is_for_tests = |name: &str| cfg!(debug_assertions) && name.starts_with("SLOTD_TEST_");
    let known = |name: &str| {
        let is_for_hooks = name.starts_with("SLOTD_JOB_") || name.starts_with("SLOTD_EVENT");
        TABLE.iter().any(|setting| setting.variable == name)
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
    fn unset_and_empty_variables_give_the_defaults() {
        let settings = read(&[]).unwrap();
        assert_eq!(
            (settings.cpu_partitions.clone(), settings.gpu_partitions.clone()),
            (None, None)
        );
        assert_eq!(settings.gpu_count, None);
        assert_eq!(settings.notify_cmd, None);
        assert_eq!(settings.kill_wait, Duration::from_secs(30));
        assert_eq!(settings.log, Level::Info);
        let empty: Vec<_> = TABLE.iter().map(|setting| (setting.variable, "")).collect();
        assert_eq!(read(&empty).unwrap(), settings);
    }

    #[test]
    fn hook_keeps_its_quotes_and_dollars() {
        let hook = r#"notify-send "slotd" "$SLOTD_JOB_ID $SLOTD_JOB_STATE""#;
        let settings = read(&[("SLOTD_NOTIFY_CMD", hook)]).unwrap();
        assert_eq!(settings.notify_cmd, Some(hook.into()));
        assert_eq!(settings.audience(false).command, Events::NONE.with(Event::Job));
        let settings =
            read(&[("SLOTD_NOTIFY_CMD", hook), ("SLOTD_NOTIFY_EVENTS", "queue, array")]).unwrap();
        assert_eq!(settings.audience(false).command.to_string(), "array,queue");
        assert!(
            read(&[("SLOTD_NOTIFY_EVENTS", "queue")]).unwrap().audience(false).is_empty(),
            "no command to run"
        );
    }

    #[test]
    fn error_names_the_variable_and_the_expected_value() {
        for (name, value, expected) in [
            ("SLOTD_GPU_COUNT", "many", "a number of GPUs from 0 to 1024"),
            ("SLOTD_GPU_COUNT", "4096", "a number of GPUs from 0 to 1024"),
            ("SLOTD_GPU_SHARDS", "-1", "a number of shards per GPU from 0 to 1024"),
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
            ("SLOTD_CPUS", "1001%", "a percentage of the total (75%, at most 1000%)"),
            ("SLOTD_MEMORY_MB", "-0", "a number to keep back (-2)"),
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
    fn duplicate_partition_name_is_refused() {
        let error =
            read(&[("SLOTD_CPU_PARTITIONS", "a,b"), ("SLOTD_GPU_PARTITIONS", "b")]).unwrap_err();
        assert_eq!(error.variable, "SLOTD_GPU_PARTITIONS");
        assert!(read(&[("SLOTD_CPU_PARTITIONS", "a,a")]).is_err());
    }

    #[test]
    fn misspelled_variable_is_found() {
        let names =
            ["SLOTD_CPU", "SLOTD_CPUS", "PATH", "SLOTD_OUTPUT", "SLOTD_UID"].map(OsString::from);
        assert_eq!(unknown(names.iter()), ["SLOTD_CPU"]);
    }
}
