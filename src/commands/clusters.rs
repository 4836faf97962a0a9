//! `-M`: runs Slurm's commands on other clusters, and decides whether a command does.
//!
//! The decision is made once, before a command does anything else. A command line without `-M` and
//! without its variables is not parsed here, and costs nothing.

use super::{Done, Entry, output};
use crate::args::error::CliError;
use crate::args::getopt::{GetoptError, Grammar, Remaining};
use crate::clusters::choice::{self, By, Chosen, Place};
use crate::clusters::config::{Cluster, Link};
use crate::clusters::join::{self, Join, Part};
use crate::clusters::link::{Clusters, Ended, Input, Output, Stream};
use crate::clusters::program;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub mod admin;
mod clean;
pub mod fetch;
pub mod jobs;
mod list;
pub mod named;
pub mod remote;
mod submit;

use remote::{Remote, failure, here, known, print};

/// How a command treats clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Any number of clusters, each below a heading.
    Lists,
    /// Any number of clusters, in one table.
    Accounting,
    /// Any number of clusters, one after the other.
    Each,
    /// Exactly one cluster.
    One,
    /// The cluster that starts the job first.
    Submits,
    /// Only this host, since the command stays connected to its job.
    Stays,
}

/// The variables that name clusters for sbatch, in order of precedence.
const SBATCH_VARIABLES: [&str; 2] = ["SLURM_CLUSTERS", "SBATCH_CLUSTERS"];

/// A command that takes `-M`, and its variables in order of precedence. sacct has none.
const KINDS: [(&str, Kind, &[&str]); 10] = [
    ("squeue", Kind::Lists, &["SLURM_CLUSTERS"]),
    ("sinfo", Kind::Lists, &["SLURM_CLUSTERS"]),
    ("sacct", Kind::Accounting, &[]),
    ("scancel", Kind::Each, &["SLURM_CLUSTERS"]),
    ("scontrol", Kind::One, &["SLURM_CLUSTERS"]),
    ("sprio", Kind::One, &["SLURM_CLUSTERS"]),
    ("sdiag", Kind::One, &["SLURM_CLUSTERS"]),
    ("sbatch", Kind::Submits, &SBATCH_VARIABLES),
    ("salloc", Kind::Stays, &["SLURM_CLUSTERS", "SALLOC_CLUSTERS"]),
    ("srun", Kind::Stays, &["SLURM_CLUSTERS"]),
];

/// A command line that names other clusters.
pub struct Elsewhere<'a> {
    pub entry: &'a Entry,
    /// All words after the command's name.
    pub words: Vec<String>,
    /// The words without `-M`.
    pub left: Remaining,
    pub clusters: Clusters,
    pub places: Vec<Place>,
}

/// Runs the command if it names other clusters. Returns `None` if it is for this host alone, and
/// for invalid command lines.
pub fn run(entry: &Entry, args: &[OsString]) -> Option<Done> {
    let (_, kind, variables) = KINDS.into_iter().find(|(name, ..)| *name == entry.name())?;
    let variable = || {
        let set = variables.iter().find(|name| std::env::var_os(name).is_some())?;
        Some((std::env::var_os(set)?, By::Variable(set)))
    };
    let of_environment = variable();
    if of_environment.is_none() && !args.iter().skip(1).any(may_name_clusters) {
        return None;
    }
    let words: Option<Vec<String>> =
        args.iter().skip(1).map(|word| word.to_str().map(str::to_owned)).collect();
    let words = words?;
    let left = take_out(entry, &words, &["clusters"]).ok()?;
    let asks = ["help", "usage", "version"].iter().any(|name| left.has(name));
    // Commands that submit would look for a script first.
    if asks && matches!(kind, Kind::Submits | Kind::Stays) {
        return None;
    }
    let (list, by) = match left.value("clusters") {
        Some(list) => (list.to_owned(), By::CommandLine),
        None => of_environment.map(|(list, by)| (list.to_string_lossy().into_owned(), by))?,
    };
    let named = Named { entry, kind, words, left, list, by };
    named.run().transpose()
}

/// Returns whether an sbatch command line may name clusters. `is_set` returns whether a variable is
/// set.
pub fn may_be_named(args: &[OsString], is_set: impl Fn(&str) -> bool) -> bool {
    SBATCH_VARIABLES.iter().any(|name| is_set(name)) || args.iter().skip(1).any(may_name_clusters)
}

/// Runs sbatch on the clusters that a directive of its script names. Returns `None` if there is no
/// such directive.
pub fn run_directive(entry: &Entry, args: &[OsString], script: &[u8]) -> Option<Done> {
    let list = submit::directive(script)?;
    let words: Option<Vec<String>> =
        args.iter().skip(1).map(|word| word.to_str().map(str::to_owned)).collect();
    let words = words?;
    let left = take_out(entry, &words, &["clusters"]).ok()?;
    // A directive has the lowest precedence.
    if left.has("clusters") || SBATCH_VARIABLES.iter().any(|name| std::env::var_os(name).is_some())
    {
        return None;
    }
    let named = Named { entry, kind: Kind::Submits, words, left, list, by: By::Script };
    named.run_with(Some(script.to_vec())).transpose()
}

/// Returns whether a word may be `-M` or one of its long forms. A false positive only costs time,
/// nothing else.
fn may_name_clusters(word: impl AsRef<OsStr>) -> bool {
    let word = word.as_ref().as_encoded_bytes();
    match word.strip_prefix(b"--") {
        Some(long) => {
            let name = long.split(|byte| *byte == b'=').next().unwrap_or_default();
            !name.is_empty() && (b"clusters".starts_with(name) || b"cluster".starts_with(name))
        }
        None => word.starts_with(b"-") && word.contains(&b'M'),
    }
}

fn take_out(entry: &Entry, words: &[String], names: &[&str]) -> Result<Remaining, GetoptError> {
    Grammar::of_definition(&entry.definition()).take_out(words, entry.applet.operands, names)
}

/// A command line with the clusters that it names.
struct Named<'a> {
    entry: &'a Entry,
    kind: Kind,
    words: Vec<String>,
    left: Remaining,
    list: String,
    by: By,
}

impl Named<'_> {
    fn run(self) -> Result<Option<u8>, CliError> {
        self.run_with(None)
    }

    fn run_with(self, script: Option<Vec<u8>>) -> Result<Option<u8>, CliError> {
        // A heading needs the complete output, and a repeated listing never completes.
        let is_ordinary = self.kind != Kind::Lists || self.left.has("iterate");
        if choice::is_this_host(&self.list) && is_ordinary {
            return Ok(None);
        }
        let clusters = if choice::is_this_host(&self.list) {
            Clusters { file: PathBuf::new(), list: Vec::new() }
        } else {
            known()?
        };
        if self.list.eq_ignore_ascii_case("all") && clusters.list.is_empty() {
            return Ok(None);
        }
        let chosen = choice::choose(&self.list, &clusters.names());
        let name = self.entry.name();
        if self.kind == Kind::One && chosen.places.len() > 1 {
            let text = format!("Only one cluster can be used at a time with {name}");
            return Err(CliError::fatal(1, text));
        }
        if chosen.places.is_empty() {
            return Err(choice::refusal(&chosen, &self.list, self.by, name));
        }
        self.report_unknown(&chosen);
        let Named { entry, kind, words, left, .. } = self;
        let elsewhere = Elsewhere { entry, words, left, clusters, places: chosen.places };
        match kind {
            Kind::Submits => submit::run(&elsewhere, script).map(Some),
            Kind::Stays if elsewhere.places == [Place::ThisHost] => Err(elsewhere.stay()),
            Kind::Stays => Err(elsewhere.refuse_to_stay()),
            Kind::Lists | Kind::Accounting | Kind::Each | Kind::One => {
                elsewhere.query(kind).map(Some)
            }
        }
    }

    fn report_unknown(&self, chosen: &Chosen) {
        if !chosen.unknown.is_empty() {
            let name = self.entry.name();
            output::print_error(name, &choice::refusal(chosen, &self.list, self.by, name));
        }
    }
}

impl Elsewhere<'_> {
    fn cluster(&self, place: Place) -> Option<&Cluster> {
        match place {
            Place::ThisHost => None,
            Place::Other(i) => self.clusters.list.get(i),
        }
    }

    /// Returns the named clusters other than this host.
    fn others(&self) -> Vec<&Cluster> {
        self.places.iter().filter_map(|place| self.cluster(*place)).collect()
    }

    fn name_of(&self, place: Place) -> &str {
        self.cluster(place).map_or(slotd_model::CLUSTER, |cluster| cluster.name.as_str())
    }

    /// Becomes the command of this host, without `-M`. Returns only if this fails.
    fn stay(&self) -> CliError {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(self.entry.name()).args(&self.left.words);
        command.env_remove("SLURM_CLUSTERS").env_remove("SALLOC_CLUSTERS");
        command.exec().into()
    }

    /// Refuses srun and salloc, and suggests the command line that runs them there.
    fn refuse_to_stay(&self) -> CliError {
        let name = self.entry.name();
        let text = format!(
            "{name} stays connected to its job, and slotd does not forward such connections to other clusters"
        );
        let there = self.places.iter().find_map(|place| self.cluster(*place));
        let hint = there
            .map(|cluster| format!("run it there: {}", by_hand(cluster, name, &self.left.words)));
        CliError::error(1, text).maybe_hint(hint)
    }

    fn query(&self, kind: Kind) -> Done {
        match (self.places.as_slice(), kind) {
            ([one @ Place::Other(_)], _) => match self.cluster(*one) {
                Some(cluster) => self.stream(cluster, kind),
                None => Ok(1),
            },
            _ => self.gather(kind),
        }
    }

    /// Whether the outputs get headings, and whether a date precedes them.
    fn heading(&self, kind: Kind) -> (bool, bool) {
        let bare = ["noheader", "json", "yaml", "help", "usage", "version"]
            .iter()
            .any(|name| self.left.has(name));
        let dated = ["long", "iterate"].iter().any(|name| self.left.has(name));
        (kind == Kind::Lists && !bare, dated)
    }

    /// Whether the command reads standard input.
    fn reads_input(&self) -> bool {
        match self.entry.name() {
            "scontrol" => self.left.words.iter().all(|word| word.starts_with('-')),
            "scancel" => self.left.has("interactive"),
            _ => false,
        }
    }

    fn body(&self) -> Vec<u8> {
        let name = self.entry.name();
        let words = std::iter::once(name).chain(self.left.words.iter().map(String::as_str));
        program::line(words)
    }

    /// Runs the command on one cluster and passes its output through as it arrives.
    fn stream(&self, cluster: &Cluster, kind: Kind) -> Done {
        let name = self.entry.name();
        let (headed, dated) = self.heading(kind);
        // The heading is printed before the table, and not before the message about a wrong option.
        let mut heading = headed.then(|| join::heading(&cluster.name));
        let mut first = dated;
        let mut errors = Vec::new();
        let mut broken = false;
        let input = if self.reads_input() { Input::Own } else { Input::Nothing };
        let ended = Remote::new(cluster, &self.body(), name)?.run(input, &mut |stream, bytes| {
            if stream == Stream::Err {
                errors.extend_from_slice(bytes);
                return io::stderr().write_all(bytes);
            }
            let mut out = io::stdout().lock();
            let date = match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) if first => at + 1,
                None if first => bytes.len(),
                _ => 0,
            };
            let printed = out.write_all(&bytes[..date]).and_then(|()| {
                first &= date > 0 && !bytes[..date].ends_with(b"\n");
                if !first && let Some(heading) = heading.take() {
                    out.write_all(&heading)?;
                }
                out.write_all(&bytes[date..])?;
                out.flush()
            });
            broken = printed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
            printed
        });
        if broken {
            return Ok(1);
        }
        let ended = ended?;
        let Ended::Code(code) = ended else { return Err(self.failure(cluster, &ended)) };
        let found_none = errors.starts_with(b"slurm_load");
        match heading.filter(|_| code == 0 || found_none) {
            Some(heading) => print(&heading).map(|_| code),
            None => Ok(code),
        }
    }

    /// Runs the command on several clusters at once, then prints their outputs in order.
    fn gather(&self, kind: Kind) -> Done {
        if self.left.has("yaml") {
            return Err(CliError::error(
                1,
                "--yaml cannot join several clusters: name one of them, or use --json",
            ));
        }
        if self.left.has("iterate") && self.places.len() > 1 {
            return Err(CliError::error(
                1,
                "--iterate cannot join several clusters: name one of them",
            ));
        }
        let done: Vec<Result<Output, CliError>> = std::thread::scope(|scope| {
            let started: Vec<_> =
                self.places.iter().map(|place| scope.spawn(|| self.ask(*place))).collect();
            let lost = || Err(CliError::error(1, "the query failed unexpectedly: try again"));
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
        });
        let name = self.entry.name();
        let mut code = 0;
        let mut parts = Vec::new();
        let mut errors = Vec::new();
        let (headed, dated) = self.heading(kind);
        for (place, result) in self.places.iter().zip(&done) {
            match result {
                Ok(Output { ended: Ended::Code(exit), out, err }) => {
                    code = code.max(*exit);
                    errors.extend_from_slice(err);
                    let is_refused =
                        *exit != 0 && out.is_empty() && !err.starts_with(b"slurm_load");
                    if !is_refused {
                        parts.push(Part { name: self.name_of(*place), out });
                    }
                }
                Ok(Output { ended, .. }) => {
                    code = code.max(1);
                    if let Some(cluster) = self.cluster(*place) {
                        errors
                            .extend_from_slice(self.failure(cluster, ended).text(name).as_bytes());
                    }
                }
                Err(error) => {
                    code = code.max(1);
                    errors.extend_from_slice(error.text(name).as_bytes());
                }
            }
        }
        let joined = join::join(self.joining(kind, headed), dated && headed, &parts)
            .map_err(|error| CliError::error(1, error.to_string()));
        // As in Slurm, all errors follow the output, which is written as a whole.
        let printed = joined.and_then(|text| print(&text));
        let _ = io::stderr().write_all(&errors);
        printed.map(|_| code)
    }

    fn joining(&self, kind: Kind, headed: bool) -> Join {
        let is_json = self.left.has("json");
        let has_format = ["format", "Format"].iter().any(|name| self.left.has(name));
        match kind {
            _ if is_json => Join::Json,
            Kind::Accounting => Join::Table { header: !self.left.has("noheader") },
            Kind::Lists if headed => Join::Headed,
            Kind::Lists
                if self.entry.name() == "squeue" && !has_format && self.places.len() > 1 =>
            {
                Join::Column
            }
            Kind::Lists | Kind::Each | Kind::One | Kind::Submits | Kind::Stays => Join::Plain,
        }
    }

    /// Runs the command in one place and collects its output.
    fn ask(&self, place: Place) -> Result<Output, CliError> {
        match self.cluster(place) {
            Some(cluster) => {
                let remote = Remote::new(cluster, &self.body(), self.entry.name())?;
                remote.output(Input::Nothing)
            }
            None => {
                // The tables of several clusters have one layout.
                let layout = [("SLOTD_OUTPUT", "slurm")];
                here(
                    self.entry.name(),
                    &self.left.words,
                    if self.places.len() > 1 { &layout } else { &[] },
                )
            }
        }
    }

    /// Returns the error for a command that did not run to its end.
    pub fn failure(&self, cluster: &Cluster, ended: &Ended) -> CliError {
        failure(&self.clusters, cluster, ended, self.entry.name())
    }
}

/// Returns the command line that runs a command on a cluster by hand, in a terminal.
fn by_hand(cluster: &Cluster, name: &str, words: &[String]) -> String {
    let join = |words: &[&str]| shlex::try_join(words.iter().copied()).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &cluster.link {
        Link::Ssh(host) => {
            let inner = join(&[&[name], words.as_slice()].concat());
            join(&["ssh", "-t", host, &inner])
        }
        Link::Local(dir) => {
            let program = dir.join(name);
            join(&[&[program.to_string_lossy().as_ref()], words.as_slice()].concat())
        }
    }
}
