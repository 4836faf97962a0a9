//! `clusters.toml`: the clusters that `-M` can name.
//!
//! The file names programs to run and hosts to connect to, so it is checked as strictly as ssh
//! checks its own: every unknown key is an error, with its line.

use crate::clusters::program;
use serde::{Deserialize, Serialize};
use slotd_model::CLUSTER;
use slotd_parse::error::shown;
use slotd_parse::{age, suggest};
use std::borrow::Cow;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest name of a cluster, in bytes. squeue's columns show ten.
const MOST_NAME: usize = 64;

/// Limits of `poll`, in seconds.
const POLL: std::ops::RangeInclusive<u64> = 1..=86_400;

/// How the commands of a cluster are reached. It identifies the cluster: the name of the file may
/// be given to another one later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// A host in `~/.ssh/config`, or `user@host`.
    Ssh(String),
    /// A directory on this host that contains the commands.
    Local(PathBuf),
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Link::Ssh(host) => write!(f, "ssh {host}"),
            Link::Local(dir) => write!(f, "local {}", dir.display()),
        }
    }
}

impl Link {
    /// Returns the line of the file that describes it.
    pub fn line(&self) -> String {
        match self {
            Link::Ssh(host) => format!("ssh = {host:?}"),
            Link::Local(dir) => format!("local = {dir:?}"),
        }
    }
}

/// The working directory of jobs on the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkDir {
    /// A copy of the work tree.
    Snapshot,
    /// The same path.
    Same,
    /// Paths here and their counterparts there. The longest match counts.
    Map(Vec<(String, String)>),
}

/// A cluster of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    pub link: Link,
    /// The staging directory, which may begin with `~/`.
    pub dir: String,
    pub workdir: WorkDir,
    /// The shell and its options: `["bash", "-l"]`.
    pub shell: Vec<String>,
    /// Put before the user's options of sbatch.
    pub options: Vec<String>,
    /// Names of the environment variables to pass to the cluster.
    pub export: Vec<String>,
    /// Seconds between two queries of a waiting command.
    pub poll: u64,
    /// The age in seconds after which ended jobs are cleaned up even if they were not fetched.
    pub keep: u64,
}

/// A problem in the file, with its line number, which starts at 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text}")]
pub struct ConfigError {
    pub line: usize,
    pub text: String,
}

/// The requirement that the value of a key violates: `must be …`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadValue(Cow<'static, str>);

impl From<&'static str> for BadValue {
    fn from(text: &'static str) -> Self {
        BadValue(text.into())
    }
}

impl From<String> for BadValue {
    fn from(text: String) -> Self {
        BadValue(text.into())
    }
}

/// A key of `[[cluster]]`.
pub struct Key {
    pub name: &'static str,
    /// An example, as written in the file.
    pub example: &'static str,
    /// The default, as written in the file; empty if there is none.
    pub default: &'static str,
    /// The meaning, for the reference.
    pub about: &'static str,
    set: fn(&mut Cluster, &DeValue<'_>) -> Result<(), BadValue>,
}

/// All keys of `[[cluster]]`, in the order of the reference.
pub const KEYS: [Key; 10] = [
    Key {
        name: "name",
        example: "\"hpc\"",
        default: "",
        about: "The name that `-M` takes: letters, digits, `.`, `_` and `-`. Required.",
        set: |cluster, value| {
            cluster.name = name(text(value)?)?;
            Ok(())
        },
    },
    Key {
        name: "ssh",
        example: "\"hpc\"",
        default: "",
        about: "The login host: a `Host` of `~/.ssh/config`, which holds everything else about the connection, or `user@host`.",
        set: |cluster, value| {
            cluster.link = Link::Ssh(host(text(value)?)?);
            Ok(())
        },
    },
    Key {
        name: "local",
        example: "\"/opt/slurm/bin\"",
        default: "",
        about: "Instead of `ssh`: a directory with the commands of a Slurm on this host.",
        set: |cluster, value| {
            let path = PathBuf::from(text(value)?);
            if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&b':') {
                return Err("must be an absolute path without `:`".into());
            }
            cluster.link = Link::Local(path);
            Ok(())
        },
    },
    Key {
        name: "dir",
        example: "\"~/.slotd\"",
        default: "\"~/.slotd\"",
        about: "The staging directory on the cluster. It must be visible to its compute nodes and to all of its login nodes.",
        set: |cluster, value| {
            let dir = text(value)?;
            let is_usable = dir.starts_with('/') || dir.starts_with("~/");
            if !is_usable || dir.trim_end_matches('/').len() < 2 || dir.contains(char::is_control) {
                return Err("must be an absolute path or begin with `~/`".into());
            }
            cluster.dir = dir.trim_end_matches('/').to_owned();
            Ok(())
        },
    },
    Key {
        name: "workdir",
        example: "[[\"/home/me\", \"/u/me\"]]",
        default: "\"snapshot\"",
        about: "The working directory of jobs: `\"snapshot\"`, a copy of the git work tree; `\"same\"`, the same path; \
                or pairs of a path here and its counterpart there.",
        set: |cluster, value| {
            cluster.workdir = workdir(value)?;
            Ok(())
        },
    },
    Key {
        name: "shell",
        example: "\"bash -l\"",
        default: "\"sh\"",
        about: "The shell that runs the commands. `\"bash -l\"` reads the login files, for sites where only they set PATH.",
        set: |cluster, value| {
            let shell: Vec<String> =
                text(value)?.split_ascii_whitespace().map(str::to_owned).collect();
            // The words are not quoted, because login shells quote differently.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            if shell.is_empty() || !shell.iter().all(|word| word.chars().all(is_plain)) {
                return Err("must be a POSIX shell and its options, such as \"bash -l\"".into());
            }
            cluster.shell = shell;
            Ok(())
        },
    },
    Key {
        name: "options",
        example: "[\"--account=x1\"]",
        default: "[]",
        about: "Options of sbatch, which are put before the user's.",
        set: |cluster, value| {
            cluster.options = texts(value)?;
            match cluster.options.iter().find(|word| word.contains('\0')) {
                Some(_) => Err("must not contain zero bytes".into()),
                None => Ok(()),
            }
        },
    },
    Key {
        name: "export",
        example: "[\"WANDB_MODE\"]",
        default: "[]",
        about: "Environment variables that are passed to the cluster's commands, and so to jobs. No \
                others are. Names that the shell there uses, such as `IFS`, and names of one or two \
                lower-case letters are refused.",
        set: |cluster, value| {
            cluster.export = texts(value)?;
            if let Some(bad) = cluster.export.iter().find(|name| !is_variable(name)) {
                return Err(format!("must be names of variables: {}", shown(bad)).into());
            }
            match cluster.export.iter().find(|name| program::is_own(name)) {
                Some(bad) => {
                    Err(format!("must not contain {bad}, which slotd or the shell there uses")
                        .into())
                }
                None => Ok(()),
            }
        },
    },
    Key {
        name: "poll",
        example: "60",
        default: "60",
        about: "Seconds between two queries while a command waits for jobs.",
        set: |cluster, value| {
            let seconds = match value {
                DeValue::Integer(number) => number.as_str().parse().ok(),
                _ => None,
            };
            cluster.poll = seconds
                .filter(|seconds| POLL.contains(seconds))
                .ok_or("must be a number of seconds, at most 86400")?;
            Ok(())
        },
    },
    Key {
        name: "keep",
        example: "\"90d\"",
        default: "\"30d\"",
        about: "How long after its end `slotd cluster clean` keeps the copy of a job that was not fetched: \
                a number and its unit, `h`, `d` or `w`.",
        set: |cluster, value| {
            let wrong = "must be an age such as \"30d\"";
            cluster.keep = age::parse(text(value)?, "keep").map_err(|_| wrong)?.as_secs();
            Ok(())
        },
    },
];

/// The default of `keep`, in seconds: 30 days.
pub const KEEP: u64 = 30 * 86_400;

fn text<'a>(value: &'a DeValue<'_>) -> Result<&'a str, BadValue> {
    match value {
        DeValue::String(text) => Ok(text),
        _ => Err("must be a string".into()),
    }
}

fn texts(value: &DeValue<'_>) -> Result<Vec<String>, BadValue> {
    let DeValue::Array(list) = value else { return Err("must be a list of strings".into()) };
    list.iter().map(|item| text(item.get_ref()).map(str::to_owned)).collect()
}

fn name(text: &str) -> Result<String, BadValue> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty()
        || text.len() > MOST_NAME
        || !text.chars().all(is_plain)
        || text.starts_with(['-', '.'])
    {
        return Err(
            "must consist of letters, digits, `.`, `_` and `-`, and begin with a letter or digit"
                .into(),
        );
    }
    if [CLUSTER, "all"].iter().any(|reserved| reserved.eq_ignore_ascii_case(text)) {
        return Err(format!("must not be `{CLUSTER}`, which is this host, or `all`").into());
    }
    Ok(text.to_owned())
}

/// Parses the destination of ssh, which must not be taken for an option.
fn host(text: &str) -> Result<String, BadValue> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control();
    if text.is_empty() || text.starts_with('-') || text.contains(is_bad) {
        return Err("must be a host of ~/.ssh/config or user@host".into());
    }
    Ok(text.to_owned())
}

fn workdir(value: &DeValue<'_>) -> Result<WorkDir, BadValue> {
    let wrong = "must be \"snapshot\", \"same\" or pairs of absolute paths such as [[\"/home/me\", \"/u/me\"]]";
    match value {
        DeValue::String(text) if text == "snapshot" => Ok(WorkDir::Snapshot),
        DeValue::String(text) if text == "same" => Ok(WorkDir::Same),
        DeValue::Array(list) if !list.is_empty() => {
            let pair = |item: &Spanned<DeValue<'_>>| match texts(item.get_ref()).ok()?.as_slice() {
                [here, there] if here.starts_with('/') && there.starts_with('/') => {
                    Some((trimmed(here), trimmed(there)))
                }
                _ => None,
            };
            let pairs: Option<Vec<_>> = list.iter().map(pair).collect();
            Ok(WorkDir::Map(pairs.ok_or(wrong)?))
        }
        _ => Err(wrong.into()),
    }
}

fn trimmed(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

/// Returns whether this is the name of an environment variable that a shell can set.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl WorkDir {
    /// Returns the path on the cluster for a directory of this host, or `None` if no pair matches.
    /// For a snapshot, the path is relative to its top, which the caller knows.
    pub fn there(&self, here: &str) -> Option<String> {
        match self {
            WorkDir::Snapshot => None,
            WorkDir::Same => Some(here.to_owned()),
            WorkDir::Map(pairs) => {
                let below = |from: &str| match here.strip_prefix(from.trim_end_matches('/'))? {
                    "" => Some(String::new()),
                    rest => rest.starts_with('/').then(|| rest.to_owned()),
                };
                let matches = pairs.iter().filter_map(|(from, to)| Some((from, to, below(from)?)));
                let (_, to, rest) = matches.max_by_key(|(from, ..)| from.len())?;
                let path = format!("{}{rest}", to.trim_end_matches('/'));
                Some(if path.is_empty() { "/".to_owned() } else { path })
            }
        }
    }
}

/// Parses the file.
///
/// # Errors
/// Fails for TOML that cannot be parsed, for unknown and missing keys, for invalid values, and for
/// two clusters with one name. Names are equal regardless of case.
pub fn parse(file: &str) -> Result<Vec<Cluster>, ConfigError> {
    let line_at = |at: usize| {
        file.as_bytes()[..at.min(file.len())].iter().filter(|b| **b == b'\n').count() + 1
    };
    let error = |at: usize, text: String| ConfigError { line: line_at(at), text };
    let table = DeTable::parse(file)
        .map_err(|bad| error(bad.span().map_or(0, |span| span.start), bad.message().to_owned()))?;
    let mut found: Vec<Cluster> = Vec::new();
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        if key.get_ref() != "cluster" {
            let text =
                format!("unknown key `{}`: clusters are [[cluster]] tables", shown(key.get_ref()));
            return Err(error(at, text));
        }
        let DeValue::Array(list) = value.get_ref() else {
            return Err(error(at, "`cluster` must be written as [[cluster]]".to_owned()));
        };
        for item in list {
            let DeValue::Table(keys) = item.get_ref() else {
                return Err(error(
                    item.span().start,
                    "`cluster` must be written as [[cluster]]".to_owned(),
                ));
            };
            let one = cluster(keys, item.span().start).map_err(|(at, text)| error(at, text))?;
            if found.iter().any(|other| other.name.eq_ignore_ascii_case(&one.name)) {
                let text = format!("two clusters are named `{}`", one.name);
                return Err(error(item.span().start, text));
            }
            found.push(one);
        }
    }
    Ok(found)
}

/// Parses one table, which begins at this position.
fn cluster(keys: &DeTable<'_>, start: usize) -> Result<Cluster, (usize, String)> {
    let mut cluster = Cluster {
        name: String::new(),
        link: Link::Ssh(String::new()),
        dir: "~/.slotd".to_owned(),
        workdir: WorkDir::Snapshot,
        shell: vec!["sh".to_owned()],
        options: Vec::new(),
        export: Vec::new(),
        poll: 60,
        keep: KEEP,
    };
    for (given, value) in keys {
        let at = given.span().start;
        let Some(key) = KEYS.iter().find(|key| key.name == given.get_ref()) else {
            let meant = suggest::nearest(given.get_ref(), KEYS.iter().map(|key| key.name));
            let meant = meant.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default();
            return Err((at, format!("unknown key `{}`{meant}", shown(given.get_ref()))));
        };
        (key.set)(&mut cluster, value.get_ref())
            .map_err(|why| (at, format!("`{}` {why}", key.name)))?;
    }
    let has = |name: &str| keys.iter().any(|(key, _)| key.get_ref() == name);
    if !has("name") {
        return Err((start, "`name` is missing".to_owned()));
    }
    if has("ssh") == has("local") {
        let text = format!("cluster `{}` needs either `ssh` or `local`", cluster.name);
        return Err((start, text));
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = "# mine\n[[cluster]]\nname = \"hpc\"\nssh = \"me@hpc\"\ndir = \"/scratch/me/\"\n\
        workdir = [[\"/home/me\", \"/u/me\"], [\"/home/me/big\", \"/scratch\"]]\nshell = \"bash -l\"\n\
        options = [\"--account=x1\"]\nexport = [\"A\"]\npoll = 5\n\n[[cluster]]\nname = \"here\"\nlocal = \"/opt/slurm/bin\"\n";

    #[test]
    fn every_key_is_read_and_the_others_have_defaults() {
        let [hpc, here] = parse(WHOLE).unwrap().try_into().unwrap();
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!((hpc.name.as_str(), hpc.dir.as_str(), hpc.poll), ("hpc", "/scratch/me", 5));
        assert_eq!(hpc.link, Link::Ssh("me@hpc".into()));
        assert_eq!((hpc.shell, hpc.options), (words(&["bash", "-l"]), words(&["--account=x1"])));
        assert_eq!(hpc.workdir.there("/home/me/p").as_deref(), Some("/u/me/p"));
        assert_eq!(hpc.workdir.there("/home/me/big/p").as_deref(), Some("/scratch/p"));
        assert_eq!(hpc.workdir.there("/home/me"), Some("/u/me".into()));
        assert_eq!(hpc.workdir.there("/home/men"), None);
        assert_eq!(here.link, Link::Local("/opt/slurm/bin".into()));
        assert_eq!(
            (here.dir.as_str(), here.workdir, here.poll),
            ("~/.slotd", WorkDir::Snapshot, 60)
        );
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn documented_defaults_match_the_parser() {
        let bare = "[[cluster]]\nname = \"hpc\"\nssh = \"hpc\"\n";
        let written: String = KEYS
            .iter()
            .filter(|key| !key.default.is_empty())
            .map(|key| format!("{} = {}\n", key.name, key.default))
            .collect();
        assert_eq!(parse(bare), parse(&format!("{bare}{written}")));
        for key in KEYS {
            let others = match key.name {
                "name" => "ssh = \"h\"",
                "ssh" | "local" => "name = \"h\"",
                _ => "name = \"h\"\nssh = \"h\"",
            };
            let file = format!("[[cluster]]\n{others}\n{} = {}\n", key.name, key.example);
            assert!(parse(&file).is_ok(), "{file}");
        }
    }

    #[test]
    fn problems_are_reported_with_their_line() {
        let base = "[[cluster]]\nname = \"a\"\nssh = \"a\"\n";
        for (file, line, text) in [
            (format!("{base}sh = 1\n"), 4, "unknown key `sh`"),
            (format!("{base}pol = 1\n"), 4, "unknown key `pol`: did you mean `poll`?"),
            (format!("{base}local = \"/a\"\n"), 1, "cluster `a` needs either `ssh` or `local`"),
            (format!("{base}{base}"), 4, "two clusters are named `a`"),
            (format!("{base}poll = 0\n"), 4, "`poll` must be a number"),
            (format!("{base}poll = \"1\"\n"), 4, "`poll` must be a number"),
            (format!("{base}shell = \"sh;x\"\n"), 4, "`shell` must be a POSIX shell"),
            (format!("{base}dir = \"x\"\n"), 4, "`dir` must be an absolute path"),
            (format!("{base}dir = \"/\"\n"), 4, "`dir` must be an absolute path"),
            (format!("{base}export = [\"A=1\"]\n"), 4, "`export` must be names"),
            (format!("{base}workdir = [[\"a\", \"/b\"]]\n"), 4, "`workdir` must be"),
            ("[[cluster]]\nname = \"all\"\nssh = \"a\"\n".into(), 2, "`name` must not be"),
            ("[[cluster]]\nname = \"SLOTD\"\nssh = \"a\"\n".into(), 2, "`name` must not be"),
            ("[[cluster]]\nname = \"a b\"\nssh = \"a\"\n".into(), 2, "`name` must consist"),
            ("[[cluster]]\nname = \"a\"\nssh = \"-oProxyCommand=x\"\n".into(), 3, "`ssh` must be"),
            ("[[cluster]]\nname = \"a\"\nlocal = \"bin\"\n".into(), 3, "`local` must be"),
            ("[[cluster]]\nssh = \"a\"\n".into(), 1, "`name` is missing"),
            ("[cluster]\nname = \"a\"\n".into(), 1, "`cluster` must be written as [[cluster]]"),
            ("cluster = [1]\n".into(), 1, "`cluster` must be written as [[cluster]]"),
            ("\n[host]\n".into(), 2, "unknown key `host`"),
            ("[[cluster]]\nname =\n".into(), 2, ""),
        ] {
            let error = parse(&file).expect_err(&file);
            assert_eq!(error.line, line, "{file}: {error}");
            assert!(error.text.contains(text), "{file}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(file in "(?s).{0,200}") {
            let _ = parse(&file);
        }

        #[test]
        fn a_mapped_path_stays_below_its_counterpart(rest in "(/[a-z.]{1,5}){0,4}") {
            let map = WorkDir::Map(vec![("/home/me".into(), "/u/me".into())]);
            prop_assert_eq!(map.there(&format!("/home/me{rest}")), Some(format!("/u/me{rest}")));
        }
    }
}
