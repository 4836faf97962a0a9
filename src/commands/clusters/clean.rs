//! `slotd cluster clean`: deletes the copies of ended jobs on a cluster, and their records here.
//!
//! A copy is deleted if its job has ended, and if its files were fetched or the job ended long ago.
//! It is kept if anything about it is unknown: whether there is a job, whether it has ended, or
//! whose directory it is. Records of a cluster that clusters.toml no longer has are deleted by their
//! age, and the files of submissions that were killed here once no process uses them.

use super::super::Done;
use super::super::clean::{can_ask, confirms, counted, left, older_than};
use super::jobs::standings;
use super::list::report_broken;
use super::remote::{Remote, failure, journal, print, safe, seconds};
use crate::args::error::CliError;
use crate::clusters::clean::{Found, read};
use crate::clusters::config::{Cluster, KEEP, Link};
use crate::clusters::journal::{End, Journal, Leftovers, Record};
use crate::clusters::link::{Clusters, Ended, Input};
use crate::clusters::program;
use crate::clusters::states::Standing;
use crate::clusters::token::State;
use slotd_render::size::{Units, kib};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The number of submissions in one call, each with an open lock.
const AT_ONCE: usize = 200;

const UNREPORTED: &str = "the cluster did not report on its directory";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd cluster clean hpc --dry-run                print what would be deleted and how much space that frees\n  slotd cluster clean hpc                          the same, then ask for confirmation and delete\n  slotd cluster clean hpc --older-than 7d --yes    also files that were not fetched, after a week (scripts)"
)]
pub struct CleanArgs {
    /// Cluster
    name: String,
    /// Delete the files of jobs that were not fetched but ended longer ago than this: 30d, 12h, 2w
    /// [default: `keep` in clusters.toml, 30d]
    #[arg(long, value_name = "AGE")]
    older_than: Option<String>,
    /// Print what would be deleted, but delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete without asking for confirmation. Required if standard input or output is not a
    /// terminal
    #[arg(short, long)]
    yes: bool,
}

impl CleanArgs {
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The submissions to a cluster, by what happens to them.
#[derive(Default)]
struct Plan {
    /// Those to delete.
    old: Vec<Record>,
    /// Those to delete whose cluster is not in the file any more: only their records.
    gone: Vec<Record>,
    /// Records of such clusters that are not old enough.
    recorded: Vec<String>,
    /// Files of submissions that were killed on this host.
    leftovers: Leftovers,
    /// The size of their copies, KiB.
    kib: u64,
    active: Vec<String>,
    recent: Vec<String>,
    unknown: Vec<String>,
    /// The submissions whose copies cannot be deleted, by the reason.
    odd: BTreeMap<String, Vec<String>>,
}

/// Deletes the copies and the records of ended jobs.
///
/// # Errors
/// Fails if the cluster cannot be reached, if its squeue does not answer, or if there is no
/// terminal to ask for confirmation.
pub fn clean(clusters: &Clusters, cluster: Option<&Cluster>, args: &CleanArgs) -> Done {
    let keep = match &args.older_than {
        Some(text) => older_than(text)?.as_secs(),
        None => cluster.map_or(KEEP, |cluster| cluster.keep),
    };
    let asks = !args.yes && !args.dry_run;
    if asks {
        can_ask()?;
    }
    let journal = journal()?;
    let name = cluster.map_or(args.name(), |cluster| cluster.name.as_str());
    let mut plan = match cluster {
        Some(cluster) => Cleaning { clusters, cluster, journal: &journal }.plan(keep)?,
        None => Plan::default(),
    };
    plan.add_removed(clusters, &journal, name, keep)?;
    plan.leftovers = journal.leftovers(false)?;
    report_broken(&journal.list()?.1);
    if args.dry_run || asks {
        print(plan.text(name, true).as_bytes())?;
        if args.dry_run || plan.is_empty() {
            return Ok(0);
        }
        if !confirms()? {
            return Ok(1);
        }
    }
    let mut done = match cluster {
        Some(cluster) => Cleaning { clusters, cluster, journal: &journal }.delete(plan)?,
        None => plan,
    };
    done.delete_removed(&journal)?;
    done.leftovers = journal.leftovers(true)?;
    print(done.text(name, false).as_bytes())?;
    Ok(u8::from(!done.odd.is_empty() || !done.leftovers.kept.is_empty()))
}

/// Returns whether this host has submitted jobs to a cluster that had this name.
///
/// # Errors
/// Fails if the journal cannot be read.
pub fn has_records(name: &str) -> Result<bool, CliError> {
    Ok(journal()?.all()?.iter().any(|record| record.is_named(name)))
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.old.is_empty() && self.gone.is_empty() && self.leftovers.count == 0
    }

    /// Decides about the submissions to clusters that had this name and are not in the file any
    /// more. Nothing there can be asked, so their age counts, and those whose outcome is unknown are
    /// kept.
    fn add_removed(
        &mut self,
        clusters: &Clusters,
        journal: &Journal,
        name: &str,
        keep: u64,
    ) -> Result<(), CliError> {
        let is_removed = |record: &Record| record.is_named(name) && clusters.of(record).is_none();
        for record in journal.all()?.into_iter().filter(is_removed) {
            let end = record.end.as_ref().map_or(record.at, |end| end.at);
            let age = u64::try_from(seconds() - end).unwrap_or(0);
            if record.is_unknown() {
                self.unknown.push(record.token);
            } else if record.fetched || age >= keep {
                self.gone.push(record);
            } else {
                self.recorded.push(self::name(&record));
            }
        }
        Ok(())
    }

    /// Deletes the records of clusters that are not in the file any more.
    fn delete_removed(&mut self, journal: &Journal) -> Result<(), CliError> {
        for record in std::mem::take(&mut self.gone) {
            match journal.lock(&record.token)? {
                Some(lock) => {
                    journal.remove(&record.token, lock)?;
                    self.gone.push(record);
                }
                None => self.active.push(name(&record)),
            }
        }
        Ok(())
    }
}

struct Cleaning<'a> {
    clusters: &'a Clusters,
    cluster: &'a Cluster,
    journal: &'a Journal,
}

impl Cleaning<'_> {
    /// Decides about each submission to the cluster. Nothing is deleted.
    fn plan(&self, keep: u64) -> Result<Plan, CliError> {
        let is_here = |record: &Record| self.clusters.of(record) == Some(self.cluster);
        let own = || -> Result<Vec<Record>, CliError> {
            Ok(self.journal.all()?.into_iter().filter(is_here).collect())
        };
        let open: Vec<String> = own()?.iter().filter_map(Record::open_job).map(text).collect();
        let standings = match open.as_slice() {
            [] => Vec::new(),
            open => standings(self.cluster, open)?
                .map_err(|ended| failure(self.clusters, self.cluster, &ended, "squeue"))?,
        };
        let is_active =
            |(_, standing): &(&String, Standing)| matches!(standing, Standing::Active(_));
        let active: BTreeSet<&String> =
            open.iter().zip(standings).filter(is_active).map(|(id, _)| id).collect();
        let mut plan = Plan::default();
        let (unknown, known): (Vec<_>, Vec<_>) = own()?.into_iter().partition(Record::is_unknown);
        plan.unknown = unknown.into_iter().map(|record| record.token).collect();
        let found = self.stages(&known, false)?;
        for mut record in known {
            let name = name(&record);
            let kib = match found.get(&record.token) {
                Some(Found::Busy) => {
                    // It was requeued, or it has not ended.
                    self.journal.change(&record.token, |record| {
                        (record.end, record.fetched) = (None, false);
                    })?;
                    plan.active.push(name);
                    continue;
                }
                Some(Found::Kept(why)) => {
                    plan.odd.entry(why.clone()).or_default().push(name);
                    continue;
                }
                // The directory of a job that has not ended may be elsewhere, but is not gone.
                Some(_) if active.contains(&name) => {
                    plan.active.push(name);
                    continue;
                }
                None => {
                    plan.odd.entry(UNREPORTED.to_owned()).or_default().push(name);
                    continue;
                }
                Some(Found::Gone) => 0,
                Some(Found::There(kib) | Found::Deleted(kib)) => *kib,
            };
            let end = self.end(&mut record)?;
            let age = u64::try_from(seconds() - end).unwrap_or(0);
            if record.fetched || age >= keep {
                plan.kib += kib;
                plan.old.push(record);
            } else {
                plan.recent.push(name);
            }
        }
        Ok(plan)
    }

    /// Returns when the job ended. If the cluster has forgotten it, this is the first time at which
    /// that was noticed.
    fn end(&self, record: &mut Record) -> Result<i64, CliError> {
        if record.state == State::Refused {
            return Ok(record.at);
        }
        let noticed = End { at: seconds(), state: String::new() };
        let end = record.end.get_or_insert(noticed).clone();
        self.journal.change(&record.token, |record| {
            record.end.get_or_insert(end.clone());
        })?;
        Ok(end.at)
    }

    /// Examines or deletes stages.
    fn stages(
        &self,
        records: &[Record],
        deletes: bool,
    ) -> Result<BTreeMap<String, Found>, CliError> {
        let mut found = BTreeMap::new();
        // The configured directory may have changed since.
        let dirs: BTreeSet<&str> = records.iter().map(|record| record.dir.as_str()).collect();
        for dir in dirs {
            let inside = records.iter().filter(|record| record.dir == dir);
            let tokens: String = inside.map(|record| format!("{}\n", record.token)).collect();
            let body = program::clean(dir, deletes);
            let remote = Remote::new(self.cluster, &body, "squeue")?;
            let input = Input::From(Box::new(move |to| to.write_all(tokens.as_bytes())));
            let output = remote.output(input)?;
            let name = &self.cluster.name;
            match output.ended {
                Ended::Code(0) => found.extend(read(&output.out).ok_or_else(|| {
                    let text = format!(
                        "nothing was deleted: squeue of cluster {name} does not answer, so its jobs may still need their files"
                    );
                    CliError::error(1, text).hint(format!("slotd cluster check {name} looks for the cause"))
                })?),
                Ended::Code(_) => {
                    let text = format!("nothing was deleted: the staging directory {dir} of cluster {name} is not visible or cannot be entered");
                    return Err(CliError::error(1, text).hint("its file system may not be mounted; if it is gone for good, create the directory there"));
                }
                ended => return Err(failure(self.clusters, self.cluster, &ended, "squeue")),
            }
        }
        Ok(found)
    }

    /// Deletes the planned copies, each one only if it is still as planned, then their records.
    fn delete(&self, plan: Plan) -> Result<Plan, CliError> {
        let mut done = Plan { old: Vec::new(), kib: 0, ..plan };
        for some in plan.old.chunks(AT_ONCE) {
            let mut locked = Vec::new();
            for record in some {
                match self.journal.lock(&record.token)? {
                    Some(lock) => locked.push((record, lock)),
                    None => done.active.push(name(record)),
                }
            }
            // A file that was fetched or a job that was resolved meanwhile changes nothing.
            let records: Vec<Record> = locked.iter().map(|(record, _)| (*record).clone()).collect();
            let found = self.stages(&records, true)?;
            for (record, lock) in locked {
                match found.get(&record.token) {
                    Some(Found::Deleted(kib)) => done.kib += kib,
                    Some(Found::Gone) => {}
                    Some(Found::Kept(why)) => {
                        done.odd.entry(why.clone()).or_default().push(name(record));
                        continue;
                    }
                    Some(Found::There(_)) | None => {
                        done.odd.entry(UNREPORTED.to_owned()).or_default().push(name(record));
                        continue;
                    }
                    Some(Found::Busy) => {
                        done.active.push(name(record));
                        continue;
                    }
                }
                self.journal.remove(&record.token, lock)?;
                done.old.push(record.clone());
            }
        }
        Ok(done)
    }
}

fn text(id: u64) -> String {
    id.to_string()
}

/// The job of a submission, or its token if it has none.
fn name(record: &Record) -> String {
    match record.state {
        State::Submitted(Some(job)) => job.to_string(),
        State::Submitted(None) | State::Prepared | State::Refused | State::Unknown => {
            record.token.clone()
        }
    }
}

impl Plan {
    fn text(&self, cluster: &str, is_planned: bool) -> String {
        // Job IDs by number, then tokens.
        let left = |names: &[String], why: &dyn Fn(&str, &str) -> String| {
            let mut names = names.to_vec();
            names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
            left("submission", &names, why)
        };
        let is_one = self.old.len() == 1;
        let (verb, would) = match (is_planned, is_one) {
            (true, _) => ("would be deleted", "would free"),
            (false, true) => ("was deleted", "freed"),
            (false, false) => ("were deleted", "freed"),
        };
        let mut text = String::new();
        if !self.old.is_empty() || self.gone.is_empty() {
            text = format!(
                "{} to {cluster} {verb}; {} there {would} {}\n",
                counted(self.old.len() as u64, "submission"),
                if is_one { "its copy" } else { "their copies" },
                kib(self.kib, Units::Exact)
            );
        }
        text += &left(&self.active, &|_, their| format!("{their} job has not ended"));
        text += &left(&self.recent, &|_, their| {
            format!("{their} files were not fetched and {their} job ended recently (--older-than)")
        });
        text += &left(&self.recorded, &|_, their| {
            format!(
                "{their} cluster is not in clusters.toml any more, and did not report {their} end (--older-than)"
            )
        });
        text += &left(&self.unknown, &|_, their| {
            format!("{their} outcome is unknown (slotd cluster resolve)")
        });
        for (why, names) in &self.odd {
            text += &left(names, &|_, _| safe(why));
        }
        text += &self.removed(is_planned);
        text += &self.local(is_planned);
        text
    }

    /// Returns the lines about clusters that are not in the file any more: what may be left there.
    fn removed(&self, is_planned: bool) -> String {
        let mut places: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
        for record in &self.gone {
            let link = record.link.as_ref().map_or(record.cluster.clone(), Link::to_string);
            places.entry((link, &record.dir)).or_default().push(&record.token);
        }
        let lines = places.iter().map(|((link, dir), tokens)| {
            let count = counted(tokens.len() as u64, "record");
            let verb = match (is_planned, tokens.len()) {
                (true, _) => "would be deleted",
                (false, 1) => "was deleted",
                (false, _) => "were deleted",
            };
            let tokens = tokens.join(" ");
            safe(&format!(
                "{count} of submissions to {link} {verb}, which is not in clusters.toml any more; copies may be left there in {dir}: {tokens}"
            )) + "\n"
        });
        lines.collect()
    }

    /// Returns the lines about files of submissions that were killed on this host.
    fn local(&self, is_planned: bool) -> String {
        let count = self.leftovers.count;
        let verb = match (is_planned, count) {
            (_, 0) => return self.kept(),
            (true, _) => "would be deleted",
            (false, 1) => "was deleted",
            (false, _) => "were deleted",
        };
        let files = counted(count, "file");
        format!("{files} of interrupted submissions {verb} on this host\n{}", self.kept())
    }

    fn kept(&self) -> String {
        let line = |(path, why): &(PathBuf, String)| {
            safe(&format!("kept on this host: {}: {why}", path.display())) + "\n"
        };
        self.leftovers.kept.iter().map(line).collect()
    }
}
