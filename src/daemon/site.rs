//! `slotd.toml`: the owner's settings for the capacity of the host, its partitions, limits,
//! licenses and QOS.
//!
//! An invalid file is refused as a whole. The error names the line, the value and the expected
//! form.

use serde::Deserialize;
use slotd_model::Partition;
use slotd_model::license::License;
use slotd_model::limit::Limit;
use slotd_model::qos::{self, Qos};
use slotd_parse::capacity::{self, Capacity};
use slotd_parse::partition::{self, PartitionError, Written};
use slotd_parse::qos::QosError;
use slotd_sys::files::{self, MOST_SETTINGS};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};
use wildmatch::WildMatch;

use super::settings::{Environment, MOST_CPUS, MOST_MB};

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Site {
    pub cpus: Option<Capacity>,
    pub mem_mb: Option<Capacity>,
    pub partitions: Vec<Partition>,
    pub limits: Vec<Limit>,
    pub licenses: Vec<License>,
    /// Without [`qos::DEFAULT`], if the file does not configure it.
    pub qos: Vec<Qos>,
    pub lines: Lines,
}

/// The line of each key. Keys of the host are under an empty partition name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines(BTreeMap<(String, String), usize>);

impl Lines {
    fn note(&mut self, partition: &str, key: &str, line: Option<usize>) {
        self.0.extend(line.map(|line| ((partition.to_owned(), key.to_owned()), line)));
    }

    /// Returns the line of a key of a partition.
    pub fn of(&self, partition: &str, key: &str) -> Option<usize> {
        self.0.get(&(partition.to_owned(), key.to_owned())).copied()
    }

    /// Returns the line of a key of the host.
    pub fn of_host(&self, key: &str) -> Option<usize> {
        self.of("", key)
    }
}

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", .path.display(), .line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct SiteError {
    pub path: PathBuf,
    /// Counted from 1.
    pub line: Option<usize>,
    pub what: String,
}

/// The file that `SLOTD_CONFIG` names, or else the one next to the user's environment file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFile {
    path: PathBuf,
    /// The file may be missing.
    is_default: bool,
}

impl SiteFile {
    pub fn of(env: &Environment) -> Option<SiteFile> {
        let variable = |name: &str| {
            env.get(OsStr::new(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        match variable("SLOTD_CONFIG") {
            Some(path) => Some(SiteFile { path, is_default: false }),
            None => variable("HOME")
                .map(|home| home.join(".config/slotd/slotd.toml"))
                .map(SiteFile::beside),
        }
    }

    fn beside(path: PathBuf) -> SiteFile {
        SiteFile { path, is_default: true }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the current contents.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is invalid.
    pub fn read(&self) -> Result<Site, SiteError> {
        match files::read_text(&self.path, MOST_SETTINGS) {
            Ok(text) => parse(&text).map_err(|(line, what)| SiteError {
                path: self.path.clone(),
                line,
                what,
            }),
            Err(e) if self.is_default && e.kind() == io::ErrorKind::NotFound => Ok(Site::default()),
            Err(e) => Err(SiteError { path: self.path.clone(), line: None, what: e.to_string() }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cpus: Option<Spanned<Value>>,
    memory_mb: Option<Spanned<Value>>,
    #[serde(default)]
    partition: Vec<Spanned<Entry>>,
    #[serde(default)]
    limit: Vec<Spanned<Entry>>,
    #[serde(default)]
    license: Vec<Spanned<Entry>>,
    #[serde(default)]
    qos: Vec<Spanned<Entry>>,
}

type Entry = BTreeMap<Spanned<String>, Spanned<Value>>;

type Wrong = (Option<usize>, String);

fn parse(text: &str) -> Result<Site, Wrong> {
    let breaks: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| Some(breaks.partition_point(|newline| *newline < at) + 1);
    let file: File = toml::from_str(text).map_err(|e| {
        let at = e.span().and_then(|span| line(span.start));
        (at, e.message().replace('\n', ", "))
    })?;
    let capacity = |key: &str, what: &str, most: u64, value: Option<Spanned<Value>>| {
        let Some(value) = value else { return Ok(None) };
        let (at, written) = (line(value.span().start), as_text(value.get_ref()));
        let parsed = written.as_deref().and_then(|text| capacity::parse(text, most));
        parsed.map(Some).ok_or_else(|| {
            (at, format!("{key} = {}: expected {}", value.get_ref(), capacity::forms(what, most)))
        })
    };
    let mut lines = Lines::default();
    for (key, value) in [("cpus", &file.cpus), ("memory_mb", &file.memory_mb)] {
        lines.note("", key, value.as_ref().and_then(|value| line(value.span().start)));
    }
    let cpus = capacity("cpus", "a number of CPUs", MOST_CPUS, file.cpus)?;
    let mem_mb = capacity("memory_mb", "a number of megabytes", MOST_MB, file.memory_mb)?;
    let (mut partitions, mut names) = (Vec::new(), HashSet::new());
    for entry in file.partition {
        let (at, entry) = (line(entry.span().start), entry.into_inner());
        let keys: Vec<_> =
            entry.keys().map(|key| (key.get_ref().clone(), line(key.span().start))).collect();
        let partition = read_partition(entry, at, &line)?;
        if !names.insert(partition.name.clone()) {
            return Err((
                at,
                format!("duplicate partition {}: rename one of them", partition.name),
            ));
        }
        keys.iter().for_each(|(key, at)| lines.note(&partition.name, key, *at));
        partitions.push(partition);
    }
    let defaults: Vec<&str> =
        partitions.iter().filter(|p: &&Partition| p.is_default).map(|p| p.name.as_str()).collect();
    if let [_, second, ..] = defaults[..] {
        let what = format!(
            "only one partition can be the default, but these are: {}",
            defaults.join(", ")
        );
        return Err((lines.of(second, "default"), what));
    }
    if let Some(entry) = file.limit.get(Limit::MOST) {
        return Err((
            line(entry.span().start),
            format!("at most {} limits are allowed", Limit::MOST),
        ));
    }
    let limits = file.limit.into_iter().map(|entry| {
        let at = line(entry.span().start);
        read_limit(entry.into_inner(), at, &line)
    });
    let limits = limits.collect::<Result<_, _>>()?;
    let licenses = read_licenses(file.license, &line)?;
    let qos = read_all_qos(file.qos, &line)?;
    Ok(Site { cpus, mem_mb, partitions, limits, licenses, qos, lines })
}

/// Returns a value as it would be written after `KEY=`.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

fn read_limit(
    entry: Entry,
    at: Option<usize>,
    line: &impl Fn(usize) -> Option<usize>,
) -> Result<Limit, Wrong> {
    let mut limit = Limit::default();
    for (key, value) in &entry {
        let (at, name) = (line(key.span().start), key.get_ref().as_str());
        let wrong = |what: &str| (at, format!("{name} = {}: expected {what}", value.get_ref()));
        let count = |what: &str| {
            let number = value.get_ref().as_integer().and_then(|number| u32::try_from(number).ok());
            number.map(Some).ok_or_else(|| wrong(what))
        };
        match (name, value.get_ref()) {
            ("account", Value::String(text)) if !text.is_empty() => {
                limit.account = Some(text.clone())
            }
            ("account", _) => return Err(wrong("an account name, as for --account")),
            ("name", Value::String(text)) if !text.is_empty() => {
                limit.name = Some(WildMatch::new(text))
            }
            ("name", _) => {
                return Err(wrong("a job name, in which * matches any characters and ? one"));
            }
            ("jobs", _) => limit.jobs = count("the number of jobs that may run at once")?,
            ("cpus", _) => {
                limit.cpus = count("the number of CPUs that running jobs may use together")?
            }
            _ => {
                return Err((
                    at,
                    format!("unknown key {name} in a limit: expected account, name, jobs or cpus"),
                ));
            }
        }
    }
    if limit.account.is_none() && limit.name.is_none() {
        return Err((
            at,
            "a limit needs an account or a name: add account = \"...\" or name = \"...\""
                .to_owned(),
        ));
    }
    if limit.jobs.is_none() && limit.cpus.is_none() {
        return Err((at, "a limit needs an amount: add jobs = ... or cpus = ...".to_owned()));
    }
    Ok(limit)
}

/// Returns the licenses, ordered by name.
fn read_licenses(
    entries: Vec<Spanned<Entry>>,
    line: &impl Fn(usize) -> Option<usize>,
) -> Result<Vec<License>, Wrong> {
    let mut licenses: BTreeMap<String, License> = BTreeMap::new();
    for entry in entries {
        let at = line(entry.span().start);
        let license = read_license(entry.into_inner(), at, line)?;
        let name = license.name.clone();
        if licenses.insert(name.clone(), license).is_some() {
            return Err((at, format!("duplicate license {name}: rename one of them")));
        }
    }
    Ok(licenses.into_values().collect())
}

fn read_license(
    entry: Entry,
    at: Option<usize>,
    line: &impl Fn(usize) -> Option<usize>,
) -> Result<License, Wrong> {
    let (mut name, mut count) = (None, None);
    for (key, value) in &entry {
        let (at, key) = (line(key.span().start), key.get_ref().as_str());
        let wrong = |what: &str| (at, format!("{key} = {}: expected {what}", value.get_ref()));
        match (key, value.get_ref()) {
            ("name", Value::String(text)) if is_name(text) => name = Some(text.clone()),
            ("name", _) => return Err(wrong(NAME)),
            ("count", value) => {
                let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
                let number = number.ok_or_else(|| {
                    wrong("the number of these licenses that jobs may hold together")
                })?;
                count = Some(number);
            }
            _ => {
                let what = format!("unknown key {key} in a license: expected name or count");
                return Err((at, what));
            }
        }
    }
    let name = name.ok_or_else(|| (at, "a license needs a name: add name = \"...\"".to_owned()))?;
    let count =
        count.ok_or_else(|| (at, format!("license {name} needs a count: add count = ...")))?;
    Ok(License { name, count })
}

/// Returns the QOS in the order of the file, with the default first if it is configured.
fn read_all_qos(
    entries: Vec<Spanned<Entry>>,
    line: &impl Fn(usize) -> Option<usize>,
) -> Result<Vec<Qos>, Wrong> {
    if let Some(entry) = entries.get(Qos::MOST) {
        let what = format!("at most {} QOS are allowed", Qos::MOST);
        return Err((line(entry.span().start), what));
    }
    let (mut all, mut lines): (Vec<Qos>, Vec<Option<usize>>) = Default::default();
    for entry in entries {
        let at = line(entry.span().start);
        lines.push(at);
        let qos = read_qos(entry.into_inner(), at, line)?;
        if all.iter().any(|known| known.name == qos.name) {
            return Err((at, format!("duplicate qos {}: rename one of them", qos.name)));
        }
        all.push(qos);
    }
    check_preemption(&all, &lines)?;
    all.sort_by_key(|qos| qos.name != qos::DEFAULT);
    Ok(all)
}

/// Checks that all QOS that others may preempt exist, and that none could preempt itself through
/// others: such jobs would push each other out forever. `at`: the line of each QOS.
fn check_preemption(all: &[Qos], at: &[Option<usize>]) -> Result<(), Wrong> {
    let find = |name: &str| all.iter().position(|qos| qos.name == name);
    for (qos, at) in all.iter().zip(at) {
        let is_unknown = |name: &&String| find(name).is_none() && *name != qos::DEFAULT;
        if let Some(name) = qos.preempt.iter().find(is_unknown) {
            let what = format!("qos {} preempts {name}, which does not exist", qos.name);
            return Err((*at, what));
        }
    }
    for (start, at) in at.iter().enumerate() {
        let (mut seen, mut next) = (vec![false; all.len()], vec![start]);
        while let Some(one) = next.pop() {
            let victims: Vec<usize> =
                all[one].preempt.iter().filter_map(|name| find(name)).collect();
            if victims.contains(&start) {
                let what = if one == start {
                    format!("qos {} preempts itself", all[start].name)
                } else {
                    format!("qos {} and {} preempt each other", all[start].name, all[one].name)
                };
                return Err((*at, what));
            }
            let new = victims.into_iter().filter(|one| !std::mem::replace(&mut seen[*one], true));
            next.extend(new.collect::<Vec<_>>());
        }
    }
    Ok(())
}

fn read_qos(
    entry: Entry,
    at: Option<usize>,
    line: &impl Fn(usize) -> Option<usize>,
) -> Result<Qos, Wrong> {
    let mut qos = Qos::default();
    for (key, value) in &entry {
        let (at, name) = (line(key.span().start), key.get_ref().as_str());
        let wrong = |what: &str| (at, format!("{name} = {}: expected {what}", value.get_ref()));
        let text = as_list(value.get_ref())
            .ok_or_else(|| wrong("a string, a whole number or a list of strings"))?;
        slotd_parse::qos::set(&mut qos, name, &text).map_err(|error| match error {
            QosError::Expected(forms) => wrong(forms),
            QosError::UnknownKey(hint) => (at, format!("unknown key {name} in a qos: {hint}")),
        })?;
    }
    if qos.name.is_empty() {
        return Err((at, "a qos needs a name: add name = \"...\"".to_owned()));
    }
    Ok(qos)
}

/// Returns a value, or a list of strings, as it would be written after `KEY=`.
fn as_list(value: &Value) -> Option<String> {
    let Value::Array(words) = value else { return as_text(value) };
    let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
    words.map(|words| words.join(","))
}

fn read_partition(
    entry: Entry,
    at: Option<usize>,
    line: &impl Fn(usize) -> Option<usize>,
) -> Result<Partition, Wrong> {
    let mut partition = Partition::default();
    for (key, value) in &entry {
        let (at, name) = (line(key.span().start), key.get_ref().as_str());
        let wrong = |what: &str| (at, format!("{name} = {}: expected {what}", value.get_ref()));
        match (name, value.get_ref()) {
            ("name", Value::String(text)) if is_name(text) => partition.name.clone_from(text),
            ("name", _) => return Err(wrong(NAME)),
            ("gpu", Value::Boolean(yes)) => partition.is_gpu = *yes,
            ("gpu", _) => {
                return Err(wrong("true or false: whether jobs that request no GPU get one"));
            }
            // A number of CPUs or GPUs, not a list.
            ("cpus", Value::Integer(_)) => {
                set(&mut partition, "max_cpus_per_node", value.get_ref(), wrong, at)?
            }
            ("gpus", Value::Integer(_)) => {
                set(&mut partition, "max_gpus", value.get_ref(), wrong, at)?
            }
            _ => set(&mut partition, name, value.get_ref(), wrong, at)?,
        }
    }
    if partition.name.is_empty() {
        return Err((at, "a partition needs a name: add name = \"...\"".to_owned()));
    }
    partition::check(&partition)
        .map_err(|what| (at, format!("partition {}: {what}", partition.name)))?;
    Ok(partition)
}

fn set(
    partition: &mut Partition,
    key: &str,
    value: &Value,
    wrong: impl Fn(&str) -> Wrong,
    at: Option<usize>,
) -> Result<(), Wrong> {
    let text = as_text(value).ok_or_else(|| wrong("a string, a whole number, true or false"))?;
    partition::set(partition, key, &text, Written::InFile).map_err(|error| match error {
        PartitionError::Expected(forms) => wrong(forms),
        PartitionError::UnknownKey(hint) => {
            (at, format!("unknown key {key} in a partition: {hint}"))
        }
    })
}

/// The form of the name of a partition or license.
const NAME: &str = "letters, digits, '_', '-' and '.'";

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::partition::{OverSubscribe, PartitionState};

    #[test]
    fn file_sets_the_capacity_and_partitions() {
        let site = parse(
            "cpus = -2\nmemory_mb = \"90%\"\n\n[[partition]]\nname = \"day\"\ncpus = \"0-3\"\nmax_time = \"2:00:00\"\n\
             default = true\n\n[[partition]]\nname = \"night\"\ncpus = 2\nover_subscribe = \"FORCE:2\"\nstate = \"DOWN\"\n",
        )
        .unwrap();
        assert_eq!(
            (site.cpus, site.mem_mb),
            (Some(Capacity::KeptBack(2)), Some(Capacity::Percent(90)))
        );
        let lines = &site.lines;
        assert_eq!((lines.of_host("memory_mb"), lines.of("day", "cpus")), (Some(2), Some(6)));
        let [day, night] = &site.partitions[..] else { panic!("{site:?}") };
        assert_eq!(
            (day.cpus.clone(), day.max_time_secs, day.is_default),
            (Some((0..4).collect()), Some(7200), true)
        );
        assert_eq!((night.max_cpus, night.over_subscribe), (Some(2), OverSubscribe::Force(2)));
        assert_eq!(night.state, PartitionState::Down);
        assert_eq!(parse("").unwrap(), Site::default());
    }

    #[test]
    fn file_limits_accounts_and_names() {
        let site =
            parse("[[limit]]\naccount = \"lab\"\njobs = 2\n[[limit]]\nname = \"fit*\"\njobs = 0\ncpus = 4\n").unwrap();
        let shown: Vec<String> = site.limits.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["Account=lab MaxJobs=2", "Name=fit* MaxJobs=0 GrpTRES=cpu=4"]);
    }

    #[test]
    fn licenses_are_ordered_by_name() {
        let site = parse(
            "[[license]]\nname = \"matlab\"\ncount = 3\n[[license]]\nname = \"foo\"\ncount = 0\n",
        );
        let shown: Vec<String> = site.unwrap().licenses.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["foo:0", "matlab:3"]);
    }

    #[test]
    fn the_default_qos_is_first() {
        let site = parse(
            "[[qos]]\nname = \"two\"\npriority = 10\nmax_jobs_per_user = 1\nmax_wall = \"5\"\n\
             [[qos]]\nname = \"Normal\"\nmax_tres_per_user = \"cpu=1,mem=300M\"\nflags = [\"DenyOnLimit\"]\n",
        );
        let shown: Vec<String> = site.unwrap().qos.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "normal Flags=DenyOnLimit MaxTRESPU=cpu=1,mem=300M",
                "two Priority=10 MaxWall=300s MaxJobsPU=1"
            ]
        );
    }

    #[test]
    fn error_names_the_line_and_the_expected_value() {
        let named = "[[partition]]\nname = \"a\"\n";
        let many_qos: String = (0..65).map(|at| format!("[[qos]]\nname = \"q{at}\"\n")).collect();
        for (text, line, what) in [
            (
                "cpus = 0\n",
                1,
                "cpus = 0: expected a number of CPUs from 1 to 65536, a number to keep back (-2)",
            ),
            ("\ncpus = \"2000%\"\n", 2, "cpus = \"2000%\": expected"),
            (
                "cpu = 4\n",
                1,
                "unknown field `cpu`, expected one of `cpus`, `memory_mb`, `partition`, `limit`, `license`, `qos`",
            ),
            (
                &format!("{named}max_tiem = 5\n"),
                3,
                "unknown key max_tiem in a partition: did you mean max_time?",
            ),
            (
                &format!("{named}max_time = \"1h\"\n"),
                3,
                "max_time = \"1h\": expected minutes, hours",
            ),
            (
                &format!("{named}cpus = [0, 1]\n"),
                3,
                "cpus = [0, 1]: expected a string, a whole number",
            ),
            (&format!("{named}over_subscribe = \"FORCE:0\"\n"), 3, "expected NO, EXCLUSIVE"),
            (&format!("{named}{named}"), 3, "duplicate partition a"),
            ("[[partition]]\nname = \"a b\"\n", 2, "name = \"a b\": expected letters"),
            ("[[partition]]\nstate = \"UP\"\n", 1, "a partition needs a name"),
            (
                &format!("\n{named}max_time = 60\ndefault_time = \"2:00:00\"\n"),
                2,
                "partition a: DefaultTime 7200 s exceeds MaxTime 3600 s",
            ),
            ("[[partition]\n", 1, ""),
            (
                "[[limit]]\naccount = \"a\"\njobs = -1\n",
                3,
                "jobs = -1: expected the number of jobs that may run at once",
            ),
            ("[[limit]]\naccount = \"\"\njobs = 1\n", 2, "account = \"\": expected an account"),
            ("\n[[limit]]\njobs = 1\n", 2, "a limit needs an account or a name: add account = "),
            (
                "[[limit]]\nname = \"fit*\"\n",
                1,
                "a limit needs an amount: add jobs = ... or cpus = ...",
            ),
            (
                "[[limit]]\nuser = \"a\"\n",
                2,
                "unknown key user in a limit: expected account, name, jobs or cpus",
            ),
            ("[[license]]\nname = \"\"\ncount = 1\n", 2, "name = \"\": expected letters, digits"),
            ("[[license]]\nname = \"a:b\"\ncount = 1\n", 2, "name = \"a:b\": expected letters"),
            (
                "[[license]]\nname = \"a\"\ncount = -1\n",
                3,
                "count = -1: expected the number of these licenses that jobs may hold together",
            ),
            ("[[license]]\nname = \"a\"\ncount = \"2\"\n", 3, "count = \"2\": expected the number"),
            ("[[license]]\ncount = 1\n", 1, "a license needs a name: add name = "),
            ("[[license]]\nname = \"a\"\n", 1, "license a needs a count: add count = ..."),
            (
                "[[license]]\nname = \"a\"\nservers = 1\n",
                3,
                "unknown key servers in a license: expected name or count",
            ),
            (&"[[license]]\nname = \"a\"\ncount = 1\n".repeat(2), 4, "duplicate license a"),
            ("[[qos]]\npriority = 1\n", 1, "a qos needs a name: add name = "),
            ("[[qos]]\nname = \"a\"\n[[qos]]\nname = \"A\"\n", 3, "duplicate qos a"),
            ("[[qos]]\nname = \"a:b\"\n", 2, "name = \"a:b\": expected letters, digits"),
            (
                "[[qos]]\nname = \"a\"\nmax_jobs_per_user = -1\n",
                3,
                "max_jobs_per_user = -1: expected a whole number",
            ),
            (
                "[[qos]]\nname = \"a\"\nmax_tres_per_user = \"node=1\"\n",
                3,
                "max_tres_per_user = \"node=1\": expected amounts of cpu, mem and gres/gpu",
            ),
            (
                "[[qos]]\nname = \"a\"\nflags = [\"NoReserve\", 1]\n",
                3,
                "flags = [\"NoReserve\", 1]: expected a string, a whole number or a list of strings",
            ),
            (
                "[[qos]]\nname = \"a\"\nflags = [\"PartitionMaxNodes\"]\n",
                3,
                "flags = [\"PartitionMaxNodes\"]: expected a list of DenyOnLimit and NoReserve",
            ),
            (
                "[[qos]]\nname = \"a\"\npreempt = [\"b\"]\n",
                1,
                "qos a preempts b, which does not exist",
            ),
            ("[[qos]]\nname = \"a\"\npreempt = [\"A\"]\n", 1, "qos a preempts itself"),
            (
                "[[qos]]\nname = \"c\"\n[[qos]]\nname = \"a\"\npreempt = [\"b\", \"c\"]\n\
                 [[qos]]\nname = \"b\"\npreempt = \"a\"\n",
                3,
                "qos a and b preempt each other",
            ),
            (
                "[[qos]]\nname = \"a\"\npreempt_mode = \"gang\"\n",
                3,
                "preempt_mode = \"gang\": expected OFF, SUSPEND, REQUEUE or CANCEL",
            ),
            (
                "[[partition]]\nname = \"a\"\ngrace_time = -1\n",
                3,
                "grace_time = -1: expected a whole number of seconds",
            ),
            (&many_qos, 129, "at most 64 QOS are allowed"),
            (
                &"[[limit]]\nname = \"a\"\njobs = 1\n".repeat(65),
                193,
                "at most 64 limits are allowed",
            ),
        ] {
            let (at, told) = parse(text).unwrap_err();
            assert_eq!(at, Some(line), "{text}: {told}");
            assert!(told.contains(what), "{text}: {told}");
        }
        let two = "[[partition]]\nname = \"a\"\ndefault = true\n[[partition]]\nname = \"b\"\ndefault = true\n";
        assert_eq!(
            parse(two).unwrap_err(),
            (Some(6), "only one partition can be the default, but these are: a, b".to_owned())
        );
    }

    #[test]
    fn only_an_explicit_file_must_exist() {
        let env = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
        };
        let of = |pairs: &[(&str, &str)]| SiteFile::of(&env(pairs)).unwrap();
        assert_eq!(of(&[("HOME", "/nowhere/at/all")]).read(), Ok(Site::default()));
        let error = of(&[("SLOTD_CONFIG", "/nowhere/x.toml")]).read().unwrap_err().to_string();
        assert_eq!(error, "/nowhere/x.toml: No such file or directory (os error 2)");
    }
}
