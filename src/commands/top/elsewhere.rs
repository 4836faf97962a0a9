//! The jobs of other clusters that `slotd top` lists below its own.
//!
//! They come from the journal of submissions. While it contains a job whose end is unknown, the
//! job's cluster is queried in the background, at most once per `poll`. Without clusters.toml or
//! such a job, no cluster is queried and only the journal is watched.

use super::background::{Background, News};
use crate::args::error::CliError;
use crate::client::watch::FileWatch;
use crate::clusters::config::Cluster;
use crate::clusters::journal::{Journal, Record};
use crate::clusters::link::Clusters;
use crate::clusters::states::Standing;
use crate::clusters::token::State;
use crate::commands::clusters::jobs::standings;
use crate::commands::clusters::remote::{failure, journal_dir, known};
use crate::tui::elsewhere::Line;
use slotd_model::Timestamp;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The answer of a cluster to one query, or why there is none.
#[derive(Debug)]
pub struct Answered {
    cluster: String,
    states: Result<Vec<(u64, Standing)>, CliError>,
}

/// The jobs of other clusters.
pub struct Elsewhere {
    dir: PathBuf,
    watch: Option<FileWatch>,
    /// By name.
    clusters: BTreeMap<String, Watched>,
    /// Why the journal or clusters.toml cannot be read.
    problem: Option<String>,
}

/// A cluster with submissions.
#[derive(Default)]
struct Watched {
    /// `None` if clusters.toml does not contain it.
    cluster: Option<Cluster>,
    clusters: Option<Clusters>,
    jobs: BTreeMap<u64, Job>,
    /// When the last query began.
    asked: Option<Instant>,
    is_asking: bool,
    problem: Option<String>,
}

struct Job {
    record: Record,
    state: String,
}

impl Job {
    fn is_open(&self) -> bool {
        self.record.open_job().is_some()
    }
}

impl Elsewhere {
    /// Reads the journal, and watches it if the user has other clusters.
    pub fn new() -> Elsewhere {
        let has_clusters = match known() {
            Ok(clusters) => !clusters.list.is_empty(),
            Err(_) => true,
        };
        let dir = journal_dir().ok().filter(|_| has_clusters);
        let mut elsewhere = Elsewhere {
            watch: dir.as_ref().and_then(|_| FileWatch::new().ok()),
            dir: dir.unwrap_or_default(),
            clusters: BTreeMap::new(),
            problem: None,
        };
        elsewhere.read();
        elsewhere
    }

    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Reads the journal after a change. Call it when [`Self::watched`] is readable.
    pub fn changed(&mut self) {
        if let Some(watch) = &self.watch {
            watch.clear();
        }
        self.read();
    }

    fn read(&mut self) {
        let Some(watch) = &self.watch else { return };
        watch.add(&self.dir);
        // Fails if nothing has been submitted yet.
        let _ = watch.add_dir(&self.dir);
        let records = match Journal::existing(self.dir.clone())
            .and_then(|journal| journal.map_or(Ok(Vec::new()), |journal| journal.all()))
        {
            Ok(records) => records,
            Err(error) => {
                self.problem = Some(format!("{}: {error}", self.dir.display()));
                return;
            }
        };
        self.problem = None;
        if records.iter().all(|record| record.open_job().is_none()) && self.clusters.is_empty() {
            return;
        }
        let known = known();
        let mut listed: BTreeMap<String, BTreeMap<u64, Record>> = BTreeMap::new();
        for record in records {
            let State::Submitted(Some(job)) = record.state else { continue };
            let name = name(known.as_ref().ok(), &record);
            // A job that ended while it was shown stays in the list.
            let was_shown = self.clusters.get(&name).is_some_and(|one| one.jobs.contains_key(&job));
            if record.open_job().is_some() || was_shown {
                listed.entry(name).or_default().insert(job, record);
            }
        }
        if listed.is_empty() {
            self.clusters.clear();
            return;
        }
        if let Err(error) = &known {
            self.problem = Some(first_line(error));
        }
        self.clusters.retain(|name, _| listed.contains_key(name));
        for (name, records) in listed {
            let watched = self.clusters.entry(name.clone()).or_default();
            watched.clusters = known.as_ref().ok().cloned();
            watched.cluster = known.as_ref().ok().and_then(|known| known.find(&name).cloned());
            let mut before = std::mem::take(&mut watched.jobs);
            for (job, record) in records {
                let seen = before.remove(&job).map(|job| job.state).unwrap_or_default();
                let state = record.end.as_ref().map_or(seen, |end| end.state.clone());
                watched.jobs.insert(job, Job { record, state });
            }
        }
    }

    /// Returns the time until the next query.
    pub fn rest(&self) -> Option<Duration> {
        self.clusters.values().filter_map(Watched::rest).min()
    }

    /// Starts the queries that are due.
    pub fn ask(&mut self, background: &Background) {
        for (name, watched) in &mut self.clusters {
            if watched.rest().is_none_or(|rest| !rest.is_zero()) {
                continue;
            }
            let (Some(cluster), Some(clusters)) = (&watched.cluster, &watched.clusters) else {
                continue;
            };
            let open = watched.jobs.iter().filter(|(_, job)| job.is_open());
            let ids: Vec<u64> = open.map(|(id, _)| *id).collect();
            let (cluster, clusters, name) = (cluster.clone(), clusters.clone(), name.clone());
            (watched.asked, watched.is_asking) = (Some(Instant::now()), true);
            let started = background.start(move |reporter| {
                let states = query(&clusters, &cluster, &ids);
                reporter.report(News::Elsewhere(Answered { cluster: name, states }));
            });
            if let Err(error) = started {
                watched.is_asking = false;
                watched.problem = Some(format!("cannot start a thread: {error}"));
            }
        }
    }

    /// Records the answer of a cluster.
    pub fn note(&mut self, answered: Answered) {
        let Some(watched) = self.clusters.get_mut(&answered.cluster) else { return };
        watched.is_asking = false;
        match answered.states {
            Ok(states) => {
                watched.problem = None;
                for (id, standing) in states {
                    let Some(job) = watched.jobs.get_mut(&id) else { continue };
                    job.state = match standing {
                        Standing::Active(state) | Standing::Ended { state, .. } => state,
                        Standing::Unknown => "UNKNOWN".to_owned(),
                        Standing::Unanswered => {
                            let text = "squeue, sacct or scontrol does not answer";
                            watched.problem = Some(text.to_owned());
                            continue;
                        }
                    };
                }
            }
            Err(error) => watched.problem = Some(first_line(&error)),
        }
        // The query has recorded the ends of jobs.
        self.read();
    }

    /// Returns the lines of the list: for each cluster its jobs, the latest first, or its problem.
    pub fn lines(&self) -> Vec<Line> {
        let of_cluster = |(name, watched): (&String, &Watched)| {
            let unlisted = || {
                watched.clusters.as_ref().map(|_| format!("cluster {name} is not in clusters.toml"))
            };
            let problem = match &watched.cluster {
                Some(_) => watched.problem.clone(),
                None => unlisted(),
            };
            if let Some(why) = problem {
                return vec![Line::Problem(why)];
            }
            let line = |(id, job): (&u64, &Job)| Line::Job {
                job: format!("{id}@{name}"),
                state: job.state.clone(),
                has_ended: !job.is_open(),
                submitted: Timestamp(job.record.at.saturating_mul(1_000_000)),
                command: shlex::try_join(job.record.words.iter().map(String::as_str))
                    .unwrap_or_default(),
            };
            let (open, ended): (Vec<_>, Vec<_>) =
                watched.jobs.iter().rev().partition(|(_, job)| job.is_open());
            open.into_iter().chain(ended).map(line).collect()
        };
        let problem = self.problem.iter().cloned().map(Line::Problem);
        problem.chain(self.clusters.iter().flat_map(of_cluster)).collect()
    }
}

/// Returns the name under which a submission is listed: that of its cluster in the file, or the
/// recorded one, with the host if the file gives this name to another cluster.
fn name(known: Option<&Clusters>, record: &Record) -> String {
    let recorded = &record.cluster;
    match (known.and_then(|known| known.of(record)), &record.link) {
        (Some(cluster), _) => cluster.name.clone(),
        (None, Some(link)) if known.is_some_and(|known| known.find(recorded).is_some()) => {
            format!("{recorded} ({link})")
        }
        (None, _) => recorded.clone(),
    }
}

impl Watched {
    fn rest(&self) -> Option<Duration> {
        let poll = Duration::from_secs(self.cluster.as_ref()?.poll);
        if self.is_asking || !self.jobs.values().any(Job::is_open) {
            return None;
        }
        Some(self.asked.map_or(Duration::ZERO, |asked| poll.saturating_sub(asked.elapsed())))
    }
}

/// Returns the text of an error without its hints.
fn first_line(error: &CliError) -> String {
    error.lines.first().map(|(_, text)| text.clone()).unwrap_or_default()
}

fn query(
    clusters: &Clusters,
    cluster: &Cluster,
    ids: &[u64],
) -> Result<Vec<(u64, Standing)>, CliError> {
    let words: Vec<String> = ids.iter().map(u64::to_string).collect();
    match standings(cluster, &words)? {
        Ok(standings) => Ok(ids.iter().copied().zip(standings).collect()),
        Err(ended) => Err(failure(clusters, cluster, &ended, "squeue")),
    }
}
