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

/// As many CPUs and megabytes as anybody may count.
pub const MOST_CPUS: u64 = 65_536;
pub const MOST_MB: u64 = 1 << 40;

/// What the manual and the daemon need to know of a setting beside its value.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub variable: &'static str,
    pub holds: Holds,
    /// What the manual says.
    pub manual: &'static str,
}

/// When a new value holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// As soon as the configuration is read again.
    Live,
    /// When the next daemon starts.
    Start,
}

/// The table of settings makes [`Settings`], the list of variables, and the reader of both.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $field:ident: $type:ty = $variable:expr, $holds:ident, $read:expr, $manual:expr;
    )*) => {
        /// How the daemon of one root works.
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
            /// Reads the environment. An empty variable counts as not set.
            ///
            /// # Errors
            /// A value that is no number in its range, no list of names, or no known word.
            pub fn read(root: PathBuf, env: &Environment) -> Result<Settings, SettingError> {
                $(
                    let read: fn(&Variable<'_>) -> Result<$type, SettingError> = $read;
                    let $field = read(&Variable { env, name: $variable })?;
                )*
                let settings = Settings { root, $($field,)* };
                settings.check_partitions()?;
                Ok(settings)
            }

            /// The same with those that hold at once ([`Holds::Live`]) as they are there.
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

const ADDRESS: &str = "an address that begins with http:// or https://";
const ROOT: &str =
    "The runtime root; commands and daemon must agree on it. Default: ~/.local/share/slotd.";

settings! {
    /// What the owner says of the host and its partitions. The variables go before it.
    site_file: Option<SiteFile> = "SLOTD_CONFIG", Live, |v| Ok(SiteFile::of(v.env)),
        "The file with the partitions and their policies. Default: ~/.config/slotd/slotd.toml, \
         where there is one.";
    /// `None`: those of the file, else one named cpu.
    cpu_partitions: Option<Vec<String>> = "SLOTD_CPU_PARTITIONS", Live, |v| v.names(),
        "Names of the CPU partitions, separated by commas; the first is the default partition. \
         Default: cpu.";
    /// `None`: those of the file, else one named gpu.
    gpu_partitions: Option<Vec<String>> = "SLOTD_GPU_PARTITIONS", Live, |v| v.names(),
        "Names of the GPU partitions, which exist only where there are GPUs. Default: gpu.";
    features: Vec<String> = "SLOTD_FEATURES", Live, |v| Ok(v.names()?.unwrap_or_default()),
        "Features for --constraint, separated by commas.";
    notify_cmd: Option<OsString> = "SLOTD_NOTIFY_CMD", Start, |v| Ok(v.raw()),
        "A shell command for each job that has ended. It sees SLOTD_JOB_ID, SLOTD_JOB_NAME, \
         SLOTD_JOB_STATE, SLOTD_JOB_PARTITION and SLOTD_JOB_REASON, and SLOTD_JOB_MAIL_TYPE and \
         SLOTD_JOB_MAIL_USER where they were given; SLOTD_EVENT and SLOTD_EVENT_TEXT, and of \
         several jobs SLOTD_EVENT_JOBS, _COMPLETED, _FAILED, _CANCELLED, SLOTD_EVENT_FIRST and \
         SLOTD_EVENT_LAST. contrib/hooks of the repository has one for the desktop.";
    /// Of what the command is told.
    notify_events: Events = "SLOTD_NOTIFY_EVENTS", Start, |v| v.events(),
        "Of what that command is told: some of job, array, chain, queue and never, separated by \
         commas. Default: job.";
    /// How long a notify hook may run.
    notify_timeout: Duration = "SLOTD_NOTIFY_TIMEOUT", Start, |v| v.seconds(1, 30),
        "Seconds after which that command, a mail or one try of a post is given up. Default: \
         30.";
    /// Where the same events are posted to.
    notify_url: Option<WebAddress> = "SLOTD_NOTIFY_URL", Start,
        |v| v.value(ADDRESS, WebAddress::parse),
        "An address (http or https) to which the same events are posted, each as a JSON object.";
    sendmail: Sendmail = "SLOTD_SENDMAIL", Start, |v| v.sendmail(),
        "The program that sends the mail of --mail-type, or off. Default: the sendmail of the \
         host, if it has one.";
    cgroup_base: Option<Place> = "SLOTD_CGROUP_BASE", Start, |v| v.cgroup_base(),
        "A writable cgroup v2 subtree, or auto: limits are enforced and not only reserved.";
    max_processes: MaxProcesses = "SLOTD_MAX_PROCESSES", Start, |v| v.max_processes(),
        "Processes and threads of a job at most, where there are cgroups, or unlimited. \
         Default: half of what the host allows.";
    io_weight: Option<u32> = "SLOTD_IO_WEIGHT", Start, |v| v.number("a weight", 1..=10_000),
        "io.weight for each CPU of a job, 1 to 10000, where there are cgroups.";
    kills_step: bool = "SLOTD_OOM_KILL_STEP", Start, |v| v.word([("no", false), ("yes", true)]),
        "yes or no: whether a step out of memory is killed as a whole. Default: no.";
    /// What the kernel is told about a job's processes for the case that the host's memory is used
    /// up (`oom_score_adj`). The default is above what systemd gives a user's service (200), so
    /// that a job goes before its daemon.
    oom_score_adj: u32 = "SLOTD_OOM_SCORE_ADJ", Start,
        |v| Ok(v.number("a number", 0..=1000)?.unwrap_or(500)),
        "oom_score_adj of jobs, 0 to 1000: where the host's memory runs out, the highest go \
         first. Default: 500.";
    /// `None`: ask `nvidia-smi`.
    gpu_count: Option<u32> = "SLOTD_GPU_COUNT", Start, |v| v.number("a number of GPUs", 0..=1024),
        "GPUs there are. Default: what nvidia-smi says, or sysfs of AMD's.";
    /// Into how many parts each GPU is divided; 0: none.
    gpu_shards: u32 = SHARDS_SETTING, Live,
        |v| Ok(v.number("a number of parts of a GPU", 0..=1024)?.unwrap_or(0)),
        "Parts into which each GPU is divided for --gres=shard:N. Default: 0.";
    /// No job gets a GPU on which processes are that no job started.
    avoids_used_gpus: bool = "SLOTD_GPU_FOREIGN", Live,
        |v| v.word([("ignore", false), ("avoid", true)]),
        "ignore or avoid: whether a job may get a GPU on which there are processes that no job \
         started. Default: ignore.";
    /// Jobs that have no GPU see them all the same.
    gpus_open: bool = "SLOTD_GPU_HIDE", Live, |v| v.word([("yes", false), ("no", true)]),
        "yes or no: whether jobs without a GPU see none. Default: yes.";
    /// `None`: what the kernel says.
    cpus: Option<Capacity> = "SLOTD_CPUS", Live, |v| v.capacity("a number of CPUs", MOST_CPUS),
        "CPUs to give out: a number, how many are kept back (-2), or a part of what there is \
         (150%). Default: those that the kernel allows.";
    /// CPUs that processes use that no job started are given to no job.
    avoids_used_cpus: bool = "SLOTD_CPU_FOREIGN", Live,
        |v| v.word([("ignore", false), ("avoid", true)]),
        "ignore or avoid: whether CPUs that processes use that no job started are given to \
         jobs. Default: ignore.";
    /// `None`: `MemTotal`. Megabytes.
    mem_mb: Option<Capacity> = "SLOTD_MEMORY_MB", Live,
        |v| v.capacity("a number of megabytes", MOST_MB),
        "Memory to give out, in MB, in the same forms. Default: MemTotal of the kernel.";
    /// What `-n N` means for a batch script.
    batch_tasks: BatchTasks = "SLOTD_BATCH_TASKS", Start,
        |v| Ok(v.value("ranks, once or auto", BatchTasks::named)?.unwrap_or_default()),
        "ranks, once or auto: what --ntasks means for a batch script. Default: auto.";
    /// `--requeue` has a job run once more after its own failure; otherwise only after one of the
    /// node, as in Slurm.
    reruns_failed: bool = "SLOTD_REQUEUE", Start, |v| v.word([("once", true), ("slurm", false)]),
        "once or slurm: with once, --requeue runs a job once more after FAILED, TIMEOUT and \
         OUT_OF_MEMORY. With slurm, a job that failed by itself stays ended, as in Slurm. \
         Default: once.";
    /// Tasks of a step at most, as Slurm's `MaxTasksPerNode`.
    max_tasks: u32 = MAX_TASKS_SETTING, Live,
        |v| Ok(v.number("a number of tasks", 1..=MOST_TASKS)?.unwrap_or(512)),
        "Tasks of a job or step at most, as Slurm's MaxTasksPerNode. Default: 512.";
    /// How long a process may take to end after SIGTERM, as Slurm's `KillWait`.
    kill_wait: Duration = "SLOTD_KILL_WAIT", Start, |v| v.seconds(0, 30),
        "Seconds between SIGTERM and SIGKILL. Default: 30.";
    /// How long ended jobs stay visible to squeue and scontrol, as Slurm's `MinJobAge`.
    min_job_age: Duration = "SLOTD_MIN_JOB_AGE", Live, |v| v.seconds(0, 300),
        "Seconds for which an ended job stays in the memory of the daemon; the database is \
         asked for older ones. Default: 300.";
    /// How long a job is kept after its end, days. `None`: for ever.
    keep_days: Option<u32> = "SLOTD_KEEP_DAYS", Start,
        |v| v.bound("a number of days", 1..=1_000_000, 365),
        "Days for which a job is kept after its end, or unlimited. Default: 365.";
    /// How many jobs that have ended are kept: by default less than 2 GB with their directories.
    /// `None`: all.
    keep_jobs: Option<u64> = "SLOTD_KEEP_JOBS", Start,
        |v| v.bound("a number of jobs", 1..=u64::from(u32::MAX), 100_000),
        "How many jobs that have ended are kept, or unlimited. Default: 100000.";
    /// git is asked about the work trees that jobs are submitted from.
    git: bool = "SLOTD_GIT", Start, |v| v.word([("on", true), ("off", false)]),
        "on or off: whether git is asked about the work trees that jobs are submitted from. \
         Default: on.";
    /// The differences of work trees that are kept, compressed, megabytes: by default some
    /// hundreds of large ones, or all that people make by hand. `None`: all.
    diffs_mb: Option<u64> = "SLOTD_DIFFS_MB", Start,
        |v| v.bound("a number of megabytes", 0..=MOST_MB, 64),
        "Megabytes of differences of work trees that are kept, compressed, or unlimited; the \
         oldest are deleted first. Default: 64.";
    /// What is written to the log: this level and what is worse.
    log: Level = "SLOTD_LOG", Start, |v| v.log(),
        "error, warn, info, debug or trace. Default: info.";
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
    pub fn cgroup_rules(&self) -> Rules {
        let (max_processes, io_weight) = (self.max_processes, self.io_weight);
        Rules { max_processes, io_weight, kill_step: self.kills_step }
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

/// A variable of the environment, read with a check.
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

    /// A value that `parse` takes.
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

    /// A number that bounds something, or `unlimited`: `None`.
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

    /// As far as any time in Slurm goes; beyond that sums of times would overflow.
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

    /// One of two words, of which the first is the default.
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
                    format!("some of {names}, separated by commas; {word:?} is none of them");
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
    fn nothing_set_and_empty_variables_give_the_defaults() {
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
