//! sdiag: Slurm's sections, filled with slotd's figures, then slotd's own sections.
//!
//! A "server thread" is a connected client, an "agent" watches one job, and the "DBD agent queue"
//! counts the commits that are being written. A backfill cycle is a scheduling round that tried
//! jobs after the first one that has to wait.

use crate::{Ctx, time};
use slotd_model::diagnostics::{Diagnostics, Tally, mean};
use slotd_model::{StoreTrouble, Timestamp};
use std::fmt::Write as _;

/// The output of `--reset`.
pub const RESET: &str = "Reset scheduling statistics\n";

/// The request type that submissions are counted under.
const SUBMISSION: &str = "REQUEST_SUBMIT_BATCH_JOB";

/// Returns the rounds per minute; `None` before a full minute has passed.
pub(crate) fn cycles_per_minute(d: &Diagnostics) -> Option<u64> {
    let minutes = d.now.since(d.since).as_secs() / 60;
    (minutes > 0).then(|| d.cycles.count / minutes)
}

/// Returns the number of reservations in a backfill round: one, for the first job that has to wait.
pub(crate) fn table_size(d: &Diagnostics) -> u64 {
    u64::from(d.backfill.cycles.count > 0)
}

/// Prints all sections. Requests keep the given order.
pub fn print(d: &Diagnostics, ctx: &Ctx) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, d, ctx)
        .and_then(|()| schedule(&mut out, d))
        .and_then(|()| backfill(&mut out, d, ctx))
        .and_then(|()| requests(&mut out, d))
        .and_then(|()| own(&mut out, d, ctx));
    out
}

fn dated(t: Timestamp, ctx: &Ctx) -> String {
    format!("{} ({})", time::date(t, &ctx.tz), t.as_secs())
}

fn head(out: &mut String, d: &Diagnostics, ctx: &Ctx) -> std::fmt::Result {
    let stars = "*".repeat(55);
    writeln!(out, "{stars}")?;
    writeln!(out, "sdiag output at {}", dated(d.now, ctx))?;
    writeln!(out, "Data since      {}", dated(d.since, ctx))?;
    writeln!(out, "{stars}")?;
    writeln!(out, "Server thread count:  {}", d.connections)?;
    writeln!(out, "Agent queue size:     0")?;
    writeln!(out, "Agent count:          {}", d.runners)?;
    writeln!(out, "Agent thread count:   0")?;
    writeln!(out, "DBD Agent queue size: {}\n", d.commits_in_flight)?;
    writeln!(out, "Jobs submitted: {}", d.jobs.submitted)?;
    writeln!(out, "Jobs started:   {}", d.jobs.started)?;
    writeln!(out, "Jobs completed: {}", d.jobs.completed)?;
    writeln!(out, "Jobs canceled:  {}", d.jobs.cancelled)?;
    writeln!(out, "Jobs failed:    {}\n", d.jobs.failed)?;
    writeln!(out, "Job states ts:  {}", dated(d.now, ctx))?;
    writeln!(out, "Jobs pending:   {}", d.pending)?;
    writeln!(out, "Jobs running:   {}\n", d.running)
}

fn schedule(out: &mut String, d: &Diagnostics) -> std::fmt::Result {
    writeln!(out, "Main schedule statistics (microseconds):")?;
    writeln!(out, "\tLast cycle:   {}", d.cycles.last_us)?;
    writeln!(out, "\tMax cycle:    {}", d.cycles.max_us)?;
    writeln!(out, "\tTotal cycles: {}", d.cycles.count)?;
    if d.cycles.count > 0 {
        writeln!(out, "\tMean cycle:   {}", d.cycles.mean_us())?;
        writeln!(out, "\tMean depth cycle:  {}", mean(d.depth, d.cycles.count))?;
    }
    if let Some(cycles) = cycles_per_minute(d) {
        writeln!(out, "\tCycles per minute: {cycles}")?;
    }
    writeln!(out, "\tLast queue length: {}\n", d.queue_length)
}

fn backfill(out: &mut String, d: &Diagnostics, ctx: &Ctx) -> std::fmt::Result {
    let b = &d.backfill;
    let count = b.cycles.count;
    writeln!(out, "Backfilling stats")?;
    writeln!(out, "\tTotal backfilled jobs (since last slurm start): {}", b.jobs_ever)?;
    writeln!(out, "\tTotal backfilled jobs (since last stats cycle start): {}", b.jobs)?;
    writeln!(out, "\tTotal backfilled heterogeneous job components: 0")?;
    writeln!(out, "\tTotal cycles: {count}")?;
    writeln!(
        out,
        "\tLast cycle when: {}",
        b.last_at.map_or_else(|| "N/A".to_owned(), |at| dated(at, ctx))
    )?;
    writeln!(out, "\tLast cycle: {}", b.cycles.last_us)?;
    writeln!(out, "\tMax cycle:  {}", b.cycles.max_us)?;
    if count > 0 {
        writeln!(out, "\tMean cycle: {}", b.cycles.mean_us())?;
    }
    writeln!(out, "\tLast depth cycle: {}", b.last_depth)?;
    writeln!(out, "\tLast depth cycle (try sched): {}", b.last_depth)?;
    if count > 0 {
        writeln!(out, "\tDepth Mean: {}", mean(b.depth, count))?;
        writeln!(out, "\tDepth Mean (try depth): {}", mean(b.depth, count))?;
    }
    writeln!(out, "\tLast queue length: {}", b.last_queue_length)?;
    if count > 0 {
        writeln!(out, "\tQueue length mean: {}", mean(b.queue_length, count))?;
    }
    writeln!(out, "\tLast table size: {}", table_size(d))?;
    if count > 0 {
        writeln!(out, "\tMean table size: {}", table_size(d))?;
    }
    writeln!(out, "\nLatency for 1000 calls to gettimeofday(): {} microseconds\n", d.clock_us)
}

fn requests(out: &mut String, d: &Diagnostics) -> std::fmt::Result {
    let times = |t: &Tally| {
        format!("count:{:<6} ave_time:{:<6} total_time:{}", t.count, t.mean_us(), t.total_us)
    };
    writeln!(out, "Remote Procedure Call statistics by message type")?;
    for request in &d.requests {
        writeln!(out, "\t{:<40}({:5}) {}", request.name, request.id, times(&request.tally))?;
    }
    writeln!(out, "\nRemote Procedure Call statistics by user")?;
    for user in &d.users {
        writeln!(out, "\t{:<16}({:8}) {}", user.name, user.uid, times(&user.tally))?;
    }
    writeln!(out, "\nPending RPC statistics\n\tNo pending RPCs\n")
}

fn own(out: &mut String, d: &Diagnostics, ctx: &Ctx) -> std::fmt::Result {
    writeln!(out, "Daemon")?;
    writeln!(out, "\tUp since: {}", dated(d.daemon_start, ctx))?;
    writeln!(out, "\tUptime: {}\n", time::long(d.now.since(d.daemon_start).as_secs()))?;
    writeln!(out, "Commits to the database (microseconds):")?;
    tally(out, "commit", &d.commits)?;
    if let Some(StoreTrouble { fault, message, since }) = &d.trouble {
        writeln!(out, "\tWaiting since {}: {fault} ({message})", dated(*since, ctx))?;
    }
    writeln!(out, "\nSubmission latency (microseconds):")?;
    let submissions = d.requests.iter().find(|request| request.name == SUBMISSION);
    tally(out, "submission", &submissions.map(|request| request.tally).unwrap_or_default())
}

fn tally(out: &mut String, what: &str, t: &Tally) -> std::fmt::Result {
    writeln!(out, "\tTotal {what}s: {}", t.count)?;
    writeln!(out, "\tLast {what}: {}", t.last_us)?;
    writeln!(out, "\tMax {what}: {}", t.max_us)?;
    if t.count > 0 {
        writeln!(out, "\tMean {what}: {}", t.mean_us())?;
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::fixture::{at, ctx, now};
    use slotd_model::StoreFault;
    use slotd_model::diagnostics::{Backfill, JobCounts, RequestTally, UserTally};

    const fn tally(count: u64, last_us: u64, max_us: u64, total_us: u64) -> Tally {
        Tally { count, last_us, max_us, total_us }
    }

    /// A daemon that has been up for an hour and has counted for two minutes.
    pub fn busy() -> Diagnostics {
        Diagnostics {
            now: now(),
            daemon_start: at(3600),
            since: at(120),
            connections: 1,
            hung: Vec::new(),
            slow_trees: Vec::new(),
            in_memory: 6,
            runners: 3,
            commits_in_flight: 1,
            jobs: JobCounts { submitted: 12, started: 9, completed: 4, cancelled: 2, failed: 1 },
            pending: 3,
            running: 2,
            cycles: tally(10, 90, 300, 1000),
            depth: 45,
            queue_length: 3,
            backfill: Backfill {
                cycles: tally(2, 80, 120, 200),
                last_at: Some(at(60)),
                last_depth: 2,
                depth: 6,
                last_queue_length: 3,
                queue_length: 8,
                jobs: 1,
                jobs_ever: 5,
            },
            commits: tally(20, 700, 2500, 16_000),
            trouble: None,
            clock_us: 31,
            requests: vec![
                RequestTally {
                    name: "REQUEST_PING".to_owned(),
                    id: 1008,
                    tally: tally(2, 10, 20, 30),
                },
                RequestTally {
                    name: SUBMISSION.to_owned(),
                    id: 4003,
                    tally: tally(12, 900, 3000, 12_000),
                },
            ],
            users: vec![UserTally {
                name: "lab".to_owned(),
                uid: 1001,
                tally: tally(14, 10, 3000, 12_030),
            }],
        }
    }

    #[test]
    fn slurms_sections_come_first_and_slotds_own_last() {
        let text = "\
*******************************************************
sdiag output at Fri Nov 20 23:39:58 2026 (1795217998)
Data since      Fri Nov 20 23:37:58 2026 (1795217878)
*******************************************************
Server thread count:  1
Agent queue size:     0
Agent count:          3
Agent thread count:   0
DBD Agent queue size: 1

Jobs submitted: 12
Jobs started:   9
Jobs completed: 4
Jobs canceled:  2
Jobs failed:    1

Job states ts:  Fri Nov 20 23:39:58 2026 (1795217998)
Jobs pending:   3
Jobs running:   2

Main schedule statistics (microseconds):
\tLast cycle:   90
\tMax cycle:    300
\tTotal cycles: 10
\tMean cycle:   100
\tMean depth cycle:  4
\tCycles per minute: 5
\tLast queue length: 3

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 5
\tTotal backfilled jobs (since last stats cycle start): 1
\tTotal backfilled heterogeneous job components: 0
\tTotal cycles: 2
\tLast cycle when: Fri Nov 20 23:38:58 2026 (1795217938)
\tLast cycle: 80
\tMax cycle:  120
\tMean cycle: 100
\tLast depth cycle: 2
\tLast depth cycle (try sched): 2
\tDepth Mean: 3
\tDepth Mean (try depth): 3
\tLast queue length: 3
\tQueue length mean: 4
\tLast table size: 1
\tMean table size: 1

Latency for 1000 calls to gettimeofday(): 31 microseconds

Remote Procedure Call statistics by message type
\tREQUEST_PING                            ( 1008) count:2      ave_time:15     total_time:30
\tREQUEST_SUBMIT_BATCH_JOB                ( 4003) count:12     ave_time:1000   total_time:12000

Remote Procedure Call statistics by user
\tlab             (    1001) count:14     ave_time:859    total_time:12030

Pending RPC statistics
\tNo pending RPCs

Daemon
\tUp since: Fri Nov 20 22:39:58 2026 (1795214398)
\tUptime: 01:00:00

Commits to the database (microseconds):
\tTotal commits: 20
\tLast commit: 700
\tMax commit: 2500
\tMean commit: 800

Submission latency (microseconds):
\tTotal submissions: 12
\tLast submission: 900
\tMax submission: 3000
\tMean submission: 1000
";
        assert_eq!(print(&busy(), &ctx()), text);
    }

    #[test]
    fn waiting_commits_show_the_cause() {
        let trouble =
            StoreTrouble { fault: StoreFault::Full, message: "no room".to_owned(), since: at(60) };
        let text = print(&Diagnostics { trouble: Some(trouble), ..busy() }, &ctx());
        let line = "\tWaiting since Fri Nov 20 23:38:58 2026 (1795217938): the disk of the daemon's database is full (no room)\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn means_without_data_are_omitted() {
        let text =
            print(&Diagnostics { now: now(), since: now(), ..Diagnostics::default() }, &ctx());
        for absent in ["Mean", "mean", "per minute"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        assert!(text.contains("\tLast cycle when: N/A\n"), "{text}");
    }
}
