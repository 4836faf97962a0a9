//! The reasons why a pending job does not start, in words: the lacking resources, the jobs that
//! hold them, when those are expected to end, and the remedy.

use super::records::Record;
use super::resources::Resources;
use slotd_model::dependency::DependencyTerm;
use slotd_model::license::{LicenseHolder, LicenseShortage};
use slotd_model::node::ranges;
use slotd_model::qos::{self, Limited};
use slotd_model::why::{
    Awaited, Blocker, Holder, QosShortage, ReservationBlock, ReservationBlocks, Shortage, Standing,
    Until, What,
};
use slotd_model::{Job, JobId, JobRef, JobState, Reason, Timestamp, Tres, counted};
use slotd_parse::hours::Zone;

/// The most jobs to name.
const MOST_NAMED: usize = 3;

impl Resources {
    /// Returns a blocker with its text and remedy.
    pub fn in_words(&self, record: &Record, reason: Reason, what: What, now: Timestamp) -> Blocker {
        let job = &record.job;
        let text = match &what {
            What::Elsewhere { .. } => self.used_by_others(job).unwrap_or_default(),
            What::Node { since } => {
                let why = self
                    .node()
                    .start_trouble()
                    .map(|trouble| trouble.text.as_str())
                    .unwrap_or_default();
                format!("the node has started no jobs since {}: {why}", self.words(now).at(*since))
            }
            What::Hold { .. } if reason == Reason::ReservationDeleted => {
                job.run.system_comment.clone().unwrap_or_default()
            }
            What::Hold { by_admin: true } => match &job.run.system_comment {
                Some(why) => format!("held by slotd: {why}"),
                None => "held by an administrator".to_owned(),
            },
            What::TooLarge { partition, needs, most } => {
                self.too_large_in_words(job, reason, partition, needs, most)
            }
            other => self.words(now).text(job, other),
        };
        Blocker { reason, text, remedy: self.remedy(job, reason, &what), what }
    }

    pub fn words(&self, now: Timestamp) -> Words<'_> {
        Words { zone: &self.config().zone, now }
    }

    fn too_large_in_words(
        &self,
        job: &Job,
        reason: Reason,
        partition: &str,
        needs: &Tres,
        most: &Tres,
    ) -> String {
        let (tasks, most_tasks) = (job.request.task_count(), self.config().max_tasks);
        if tasks > most_tasks {
            return format!(
                "it has {}, but SLOTD_MAX_TASKS_PER_NODE is {most_tasks}",
                counted(tasks, "task")
            );
        }
        let needs = amounts(needs);
        let named = named_cpus(&job.request.named_cpus);
        let named = if named.is_empty() { named } else { format!(", including {named}") };
        let model = job
            .request
            .gpu
            .model
            .as_ref()
            .map(|model| format!(" (GPU model {model})"))
            .unwrap_or_default();
        let most = Tres { gpus: if job.tres.gpus > 0 { most.gpus } else { 0 }, ..*most };
        match reason {
            Reason::ReqNodeNotAvail => format!(
                "it needs {needs}{model}{named}; partition {partition} has {} while this is out of use: {}",
                amounts_or_none(&most),
                self.node().why_out()
            ),
            _ => {
                format!(
                    "it needs {needs}{model}{named}; partition {partition} has {} in total",
                    amounts_or_none(&most)
                )
            }
        }
    }

    /// Returns the command that removes the blocker, if there is one.
    fn remedy(&self, job: &Job, reason: Reason, what: &What) -> Option<String> {
        if job.run.state != JobState::Pending {
            // It lent its CPUs and waits for the same ones.
            return None;
        }
        let label = job.label();
        // scontrol cannot change an entry of a crontab.
        let is_entry = job.request.recurrence.is_some();
        let unless_entry =
            |command: String| Some(if is_entry { "scrontab -e".to_owned() } else { command });
        let update = |change: &str| unless_entry(format!("scontrol update JobId={label} {change}"));
        match what {
            What::Hold { .. } => unless_entry(format!("scontrol release {label}")),
            What::Dependency { on, .. } => match unsatisfied(job, on) {
                Some(failed) => Some(format!("slotd retry --with-dependents {failed}")),
                None => update("Dependency="),
            },
            What::Begin { .. } => update("StartTime=now"),
            What::ArrayLimit { limit, .. } => {
                let array = job.array_job_id().unwrap_or(job.id);
                Some(format!(
                    "scontrol update JobId={array} ArrayTaskThrottle={}",
                    limit.saturating_add(1)
                ))
            }
            What::Partition { state: None, .. } => {
                let known = self.config().partitions.iter().find(|partition| partition.is_default);
                update(&format!("Partition={}", known.map_or("NAME", |known| known.name.as_str())))
            }
            What::Partition { opens: Some(_), .. } => None,
            What::Partition { partition, .. } => {
                Some(format!("scontrol update PartitionName={partition} State=UP"))
            }
            What::TimeLimit { most_secs, .. } => {
                update(&format!("TimeLimit={}", limit_value((*most_secs)?)))
            }
            What::TooLarge { .. } if reason == Reason::ReqNodeNotAvail => {
                let parts = &self.host().drained;
                let cpus = slotd_model::node::ranges(&parts.cpus);
                let gpus = slotd_model::node::ranges(&parts.gpus);
                let named = [("CPUs=", cpus), ("Gres=gpu:", gpus)]
                    .into_iter()
                    .filter(|(_, ids)| !ids.is_empty());
                let named: Vec<String> = named.map(|(key, ids)| format!(" {key}{ids}")).collect();
                Some(format!(
                    "scontrol update NodeName={} State=RESUME{}",
                    self.host().name,
                    named.concat()
                ))
            }
            What::TooLarge { needs, most, .. } if needs.cpus > most.cpus && most.cpus > 0 => {
                update(&format!("NumCPUs={}", most.cpus))
            }
            What::Node { .. } => {
                let is_ordered =
                    self.node().start_trouble().is_some_and(|trouble| trouble.by.is_some());
                is_ordered
                    .then(|| format!("scontrol update NodeName={} State=RESUME", self.host().name))
            }
            What::QosTimeLimit { most_secs, .. } => {
                update(&format!("TimeLimit={}", limit_value(*most_secs)))
            }
            What::NoQos { .. } => update(&format!("QOS={}", qos::DEFAULT)),
            What::Limit { .. }
            | What::Qos(_)
            | What::License(_)
            | What::Reservation(_)
            | What::Elsewhere { .. }
            | What::TooLarge { .. } => None,
            What::Shortage(Shortage { gap_secs: Some(gap), .. }) => {
                update(&format!("TimeLimit={}", limit_value(*gap)))
            }
            What::Shortage(Shortage { behind: Some(_), lacks, .. }) if *lacks == Tres::ZERO => {
                unless_entry(format!("scontrol top {label}"))
            }
            What::Shortage(Shortage { behind: None, lacks, lacks_cpus, free, .. })
                if reason == Reason::Resources
                    && is_only_cpus(lacks)
                    && lacks_cpus.is_empty()
                    && free.cpus > 0 =>
            {
                update(&format!("NumCPUs={}", free.cpus))
            }
            What::Shortage(_) => None,
        }
    }
}

fn is_only_cpus(lacks: &Tres) -> bool {
    lacks.cpus > 0 && Tres { cpus: 0, ..*lacks } == Tres::ZERO
}

/// Formats the figures of a blocker as text.
pub struct Words<'a> {
    zone: &'a Zone,
    now: Timestamp,
}

impl Words<'_> {
    fn at(&self, moment: Timestamp) -> String {
        self.zone.format(moment, self.now).unwrap_or_default()
    }

    fn reservation(&self, block: &ReservationBlock) -> String {
        let ReservationBlock { reservation, how, users, accounts, start, end } = block;
        let of = [users, accounts].into_iter().flatten().map(String::as_str);
        let of: Vec<&str> = of.collect();
        let of = format!("reservation {reservation} of {}", of.join(", "));
        let until = match end {
            Some(end) => format!("ends {}", self.at(*end)),
            None => "never ends".to_owned(),
        };
        let begins = if *start <= self.now { "began" } else { "begins" };
        let start = self.at(*start);
        match how {
            ReservationBlocks::NotBegun => format!("its {of} begins {start} and {until}"),
            ReservationBlocks::Full => {
                format!("it needs more than is free in its {of}, which {until}")
            }
            ReservationBlocks::OfOthers => {
                format!("it would run into {of}, which {begins} {start} and {until}")
            }
            ReservationBlocks::Gone => format!("its reservation {reservation} no longer exists"),
        }
    }

    fn text(&self, job: &Job, what: &What) -> String {
        match what {
            What::Dependency { any, on } => {
                let open = on.iter().filter(|awaited| awaited.standing != Standing::Met);
                let terms: Vec<String> = open.map(|awaited| self.awaited(awaited)).collect();
                format!("it waits for {}{}", if *any { "one of " } else { "" }, terms.join("; "))
            }
            What::Reservation(block) => self.reservation(block),
            What::Begin { at } => format!("it may not start before {}", self.at(*at)),
            What::ArrayLimit { limit, running } => {
                let verb = if *running == 1 { "is" } else { "are" };
                format!(
                    "{} of its array {verb} running, and at most {limit} may run at once",
                    counted(*running, "task")
                )
            }
            What::Partition { partition, state: None, .. } => {
                format!("partition {partition} no longer exists")
            }
            What::Partition { partition, opens: Some(opens), .. } => {
                format!(
                    "partition {partition} starts no jobs at this hour; it opens again at {}",
                    self.at(*opens)
                )
            }
            What::Partition { partition, state: Some(state), .. } => {
                format!("partition {partition} is {} and starts no jobs", state.name())
            }
            What::TimeLimit { partition, asked_secs, most_secs } => {
                let most = most_secs.map(period).unwrap_or_default();
                match asked_secs {
                    Some(asked) => {
                        format!(
                            "its time limit is {}, but partition {partition} allows at most {most}",
                            period(*asked)
                        )
                    }
                    None => format!(
                        "it has no time limit, but partition {partition} allows at most {most}"
                    ),
                }
            }
            What::Limit { limit, jobs, cpus } => {
                let needs = count(job.tres.cpus, "CPU");
                let (jobs, cpus) = (count(*jobs, "job"), count(*cpus, "CPU"));
                format!(
                    "the limit \"{limit}\" is reached: {jobs} with {cpus} running, and it needs {needs}"
                )
            }
            What::Qos(shortage) => self.qos(shortage),
            What::QosTimeLimit { qos, asked_secs, most_secs } => {
                let most = period(*most_secs);
                match asked_secs {
                    Some(asked) => {
                        let asked = period(*asked);
                        format!("its time limit is {asked}, but QOS {qos} allows at most {most}")
                    }
                    None => format!("it has no time limit, but QOS {qos} allows at most {most}"),
                }
            }
            What::NoQos { qos } => format!("its QOS {qos} no longer exists"),
            What::License(shortage) => self.license(shortage),
            What::Shortage(shortage) => self.shortage(shortage, true),
            What::Hold { .. } => "held by its user".to_owned(),
            What::Elsewhere { .. } | What::Node { .. } | What::TooLarge { .. } => String::new(),
        }
    }

    fn qos(&self, shortage: &QosShortage) -> String {
        let QosShortage { qos, limit, resource, most, used, needs, holders } = shortage;
        let amount = |n: u64| match resource {
            None => counted(n, "running job"),
            Some(Limited::Cpus) => counted(n, "CPU"),
            Some(Limited::Memory) => format!("{n} MB of memory"),
            Some(Limited::Gpus) => counted(n, "GPU"),
        };
        let allowed = format!("QOS {qos} allows {} ({limit})", amount(*most));
        let holders = named_holders(holders, |holder| match resource {
            None => format!("job {} runs {}", holder.job, self.until(&holder.until)),
            Some(_) => self.holder(holder),
        });
        match resource {
            None => {
                let are = if *used == 1 { "is" } else { "are" };
                format!("{allowed}, and {used} {are} running{holders}")
            }
            Some(_) if needs > most => format!("it needs {}, but {allowed}", amount(*needs)),
            Some(_) => format!(
                "it needs {}; {allowed}, of which its jobs hold {used}{holders}",
                amount(*needs)
            ),
        }
    }

    fn license(&self, shortage: &LicenseShortage) -> String {
        let LicenseShortage { license, needs, total, free, holders } = shortage;
        match total {
            None => format!("it needs {needs} of license {license}, which no longer exists"),
            Some(total) if needs > total => {
                format!(
                    "it needs {needs} of license {license}, but there {} {total} in total",
                    is_or_are(*total)
                )
            }
            Some(_) => format!(
                "it needs {needs} of license {license}, of which {free} {} free{}",
                is_or_are(*free),
                named_holders(holders, |LicenseHolder { job, holds, until, .. }| {
                    format!("job {job} holds {holds} {}", self.until(until))
                })
            ),
        }
    }

    /// Describes a shortage for `SystemComment`, or returns `None` if no job holds the lacking
    /// resources.
    pub fn comment(&self, shortage: &Shortage) -> Option<String> {
        let is_shown = shortage.lacks == Tres::ZERO || !shortage.holders.is_empty();
        is_shown.then(|| self.shortage(shortage, false))
    }

    fn shortage(&self, shortage: &Shortage, with_free: bool) -> String {
        let Shortage { free, lacks, lacks_cpus, holders, behind, gap_secs, .. } = shortage;
        if *lacks == Tres::ZERO {
            let first =
                behind.as_ref().map(|first| format!("delay job {first}, which is ahead of it"));
            let first = first.unwrap_or_else(|| "delay jobs ahead of it".to_owned());
            let gap = gap_secs
                .filter(|_| with_free)
                .map(|gap| format!("; with a time limit of {} it would not", period(gap)));
            return format!(
                "there are enough free resources, but it would {first}{}",
                gap.unwrap_or_default()
            );
        }
        let behind =
            behind.as_ref().map(|first| format!("behind job {first} ")).unwrap_or_default();
        let free = with_free.then(|| format!(", of which {} free", are(&of_kind(free, lacks))));
        let taken = named_cpus(lacks_cpus);
        let taken = if taken.is_empty() { taken } else { format!(", including {taken}") };
        let holders = named_holders(holders, |holder| self.holder(holder));
        format!("waits {behind}for {}{taken}{}{holders}", amounts(lacks), free.unwrap_or_default())
    }

    fn holder(&self, Holder { job, holds, until, .. }: &Holder) -> String {
        format!("job {job} holds {} {}", amounts(holds), self.until(until))
    }

    fn until(&self, until: &Until) -> String {
        match until {
            Until::Ending => "and is about to end".to_owned(),
            Until::Suspended => "and is suspended".to_owned(),
            Until::Preempted(end) => format!("until it makes room at {}", self.at(*end)),
            Until::Unknown => "and has no time limit".to_owned(),
            Until::ByLimit(end) => format!("until {} by its time limit", self.at(*end)),
            Until::AsEarlier(end) => {
                format!("until about {} if it takes as long as earlier ones", self.at(*end))
            }
        }
    }

    fn awaited(&self, Awaited { term, standing, state, until, tasks, jobs }: &Awaited) -> String {
        let now = match (state, until, tasks) {
            (_, Some(until), _) => format!("it runs {}", self.until(until)),
            (Some(state), None, _) => format!("it is {}", state.name()),
            (None, None, Some((ended, all))) => {
                format!("{ended} of its {} have ended", counted(*all, "task"))
            }
            (None, None, None) if !jobs.is_empty() => {
                format!(
                    "{} of the same name ahead of it: {}",
                    count(jobs.len() as u32, "job"),
                    named(jobs)
                )
            }
            (None, None, None) => "it has ended".to_owned(),
        };
        match standing {
            Standing::MetAt(at) => format!("{term} (from {})", self.at(*at)),
            Standing::Never => format!("{term}, which can never be satisfied: {now}"),
            Standing::Open | Standing::Met => format!("{term} ({now})"),
        }
    }
}

/// Returns the job that failed although this job needs its success.
fn unsatisfied<'a>(job: &'a Job, on: &[Awaited]) -> Option<&'a JobRef> {
    let is_never = |term: &&DependencyTerm| {
        let term = term.to_string();
        on.iter().any(|awaited| awaited.standing == Standing::Never && awaited.term == term)
    };
    job.request.dependency.terms.iter().filter(is_never).find_map(DependencyTerm::must_succeed)
}

fn named(jobs: &[JobId]) -> String {
    let (first, others) = jobs.split_at(jobs.len().min(MOST_NAMED));
    let names: Vec<String> = first.iter().map(ToString::to_string).collect();
    let more =
        if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    format!("{}{more}", names.join(", "))
}

/// Formats the CPUs that a job needs by number, as in `CPUs 1,3 (--cpu-bind)`.
fn named_cpus(ids: &[u32]) -> String {
    match ids {
        [] => String::new(),
        [one] => format!("CPU {one} (--cpu-bind)"),
        several => format!("CPUs {} (--cpu-bind)", ranges(several)),
    }
}

/// Formats the amounts of the lacking resources.
fn of_kind(of: &Tres, lacks: &Tres) -> Vec<String> {
    let words = [
        (lacks.cpus > 0).then(|| count(of.cpus, "CPU")),
        (lacks.mem_mb > 0).then(|| format!("{} MB of memory", of.mem_mb)),
        (lacks.gpus > 0).then(|| count(of.gpus, "GPU")),
        (lacks.gpu_mem_mb > 0).then(|| format!("{} MB of GPU memory", of.gpu_mem_mb)),
        (lacks.shards > 0).then(|| count(of.shards, "GPU shard")),
    ];
    words.into_iter().flatten().collect()
}

/// Describes the first holders, and counts the others.
fn named_holders<T>(holders: &[T], describe: impl Fn(&T) -> String) -> String {
    let (named, others) = holders.split_at(holders.len().min(MOST_NAMED));
    let more = match others.len() {
        0 => None,
        1 => Some("1 more has to end".to_owned()),
        several => Some(format!("{several} more have to end")),
    };
    named.iter().map(describe).chain(more).map(|word| format!("; {word}")).collect()
}

fn is_or_are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn are(words: &[String]) -> String {
    let verb = if words.len() == 1 && words[0].starts_with("1 ") { "is" } else { "are" };
    format!("{} {verb}", words.join(" and "))
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn amounts(tres: &Tres) -> String {
    of_kind(tres, tres).join(" and ")
}

fn amounts_or_none(tres: &Tres) -> String {
    let words = amounts(tres);
    if words.is_empty() { "none of that".to_owned() } else { words }
}

/// Formats a time limit as text.
fn period(secs: u64) -> String {
    let (n, what) = if secs.is_multiple_of(60) { (secs / 60, "minute") } else { (secs, "second") };
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Formats a time limit as scontrol reads it.
fn limit_value(secs: u64) -> String {
    if secs.is_multiple_of(60) {
        (secs / 60).to_string()
    } else {
        format!("{}:{:02}", secs / 60, secs % 60)
    }
}
