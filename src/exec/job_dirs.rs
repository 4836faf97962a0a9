//! Information that can be recovered from the job directories alone: the job IDs that were
//! assigned, and the steps that were launched in each.
//!
//! The database holds more. This is for a database that was lost, or that is older than the latest
//! jobs.

use crate::job_files::{self, JOB, RUNNER, SCRIPT};
use crate::prepared_dir;
use crate::{LaunchError, launch_spec};
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};
use slotd_model::exit::Trace;
use slotd_model::series::StepSeries;
use slotd_model::{Job, JobId, StepId, StepKey};
use slotd_sys::beneath::{Dir, is_absent};
use slotd_sys::files::{self, MOST_RECORD};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The socket of the manager of the job's steps, which exists while the manager runs.
pub const MANAGERS_SOCKET: &str = "sjobmgr.sock";

/// A link to the job's cgroup, which exists while the cgroup does.
const CGROUP: &str = "cgroup";

/// The largest job ID (the default `MaxJobId` of slurm.conf). A directory with a larger number is
/// not a job's.
pub(super) const MAX_JOB_ID: u32 = 0x03ff_0000;

/// The contents of a job directory.
#[derive(Debug, Default)]
pub struct Found {
    /// The job as it was launched. `None` if nothing was launched, or if it was launched by a slotd
    /// version that did not record jobs.
    pub job: Option<Job>,
    /// The steps that were launched.
    pub steps: Vec<Trace>,
}

/// Returns the job IDs for which a directory, or anything else of that name, exists, in no
/// particular order.
///
/// # Errors
/// Fails if the directory of job directories cannot be read.
pub fn numbers(jobs_dir: &Path) -> io::Result<Vec<JobId>> {
    Ok(take_stock(jobs_dir)?.0)
}

/// Returns what [`numbers`] returns, after deleting the directories that killed watchers had prepared.
/// No launch may be in progress.
///
/// # Errors
/// Fails if the directory of job directories cannot be read.
pub fn tidy(jobs_dir: &Path) -> io::Result<Vec<JobId>> {
    let (found, prepared) = take_stock(jobs_dir)?;
    prepared_dir::forget(jobs_dir, &prepared);
    Ok(found)
}

/// Returns the job IDs and the names of prepared directories.
fn take_stock(jobs_dir: &Path) -> io::Result<(Vec<JobId>, Vec<OsString>)> {
    let (mut found, mut prepared) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(jobs_dir)? {
        let name = entry?.file_name();
        match name.to_str() {
            Some(text) if prepared_dir::is_name(text) => prepared.push(name),
            Some(text) => found.extend(number(text)),
            None => {}
        }
    }
    Ok((found, prepared))
}

fn number(name: &str) -> Option<JobId> {
    let number = name.parse::<u32>().ok().filter(|number| number.to_string() == name);
    number.filter(|number| (1..=MAX_JOB_ID).contains(number)).map(JobId)
}

/// Returns whether this is the name of a job directory, of one that [`clear_way`] has moved aside, or
/// of one prepared for a launch: `17`, `17.aside1`, `prepared.4711`.
pub fn is_name(name: &str) -> bool {
    if prepared_dir::is_name(name) {
        return true;
    }
    let is_count =
        |count: &str| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    number(
        name.split_once(".aside").filter(|(_, count)| is_count(count)).map_or(name, |(job, _)| job),
    )
    .is_some()
}

/// Returns the links with the name of a job directory.
pub fn links(jobs_dir: &Path) -> Vec<PathBuf> {
    let mut links: Vec<PathBuf> = numbers(jobs_dir)
        .unwrap_or_default()
        .iter()
        .map(|id| jobs_dir.join(id.to_string()))
        .collect();
    links.retain(|path| path.is_symlink());
    links
}

/// Records where the job's cgroup will be created. A later daemon may have a different base, or
/// none, and must still clean it up.
///
/// # Errors
/// Fails if the directory or the link in it cannot be created.
pub fn note_cgroup(job_dir: &Path, cgroup: &Path) -> Result<(), LaunchError> {
    job_files::make_job_dir(job_dir)?;
    let link = job_dir.join(CGROUP);
    if fs::read_link(&link).is_ok_and(|known| known == cgroup) {
        return Ok(());
    }
    forget_cgroup(job_dir);
    std::os::unix::fs::symlink(cgroup, &link).map_err(LaunchError::own_file("create", &link))
}

/// Returns where the job's cgroup was created. It may still exist.
pub fn cgroup(job_dir: &Path) -> Option<PathBuf> {
    fs::read_link(job_dir.join(CGROUP)).ok()
}

/// Deletes the link to the job's cgroup, once the cgroup is removed.
pub fn forget_cgroup(job_dir: &Path) {
    // There is usually no link.
    let _ = fs::remove_file(job_dir.join(CGROUP));
}

/// Returns the launches recorded in a job directory. Ignores unreadable files.
pub fn look(job_dir: &Path) -> Found {
    let Ok(entries) = fs::read_dir(job_dir) else { return Found::default() };
    let mut found = Found { job: job_files::read_job(job_dir), steps: Vec::new() };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if let Some((step, run)) = socket_of(&name) {
            // The record is in place before the socket is removed.
            found.steps.push(Trace { step, run, ended: None });
        } else if let Some(step) = record_of(&name)
            && let Ok(Some(record)) = job_files::read_any_record(job_dir, step)
        {
            found.steps.push(Trace { step, run: record.run, ended: Some(record) });
        }
    }
    let ended: Vec<(StepId, u32)> = found
        .steps
        .iter()
        .filter(|trace| trace.ended.is_some())
        .map(|trace| (trace.step, trace.run))
        .collect();
    found.steps.retain(|trace| trace.ended.is_some() || !ended.contains(&(trace.step, trace.run)));
    found.steps.sort_by_key(|trace| (trace.run, trace.step));
    found
}

/// Parses `batch.0.sock`.
pub(super) fn socket_of(name: &str) -> Option<(StepId, u32)> {
    let (step, run) = name.strip_suffix(".sock")?.split_once('.')?;
    Some((step.parse().ok()?, run.parse().ok()?))
}

/// Parses `exit_status` or `3.exit`.
pub(super) fn record_of(name: &str) -> Option<StepId> {
    if name == "exit_status" {
        Some(StepId::Batch)
    } else {
        name.strip_suffix(".exit")?.parse().ok()
    }
}

/// Returns the resource usage over time of the steps that ended in this run of the job, or in the
/// last run with a record. Steps that ended before their first sample are not included.
pub fn over_time(job_dir: &Path, job: JobId, run: Option<u32>) -> Vec<StepSeries> {
    let Ok(entries) = fs::read_dir(job_dir) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let read = |step| Some((step, job_files::read_series(job_dir, step)?));
    let found: Vec<_> = names.filter_map(|name| read(record_of(&name)?)).collect();
    let run = run.or_else(|| found.iter().map(|(_, (run, ..))| *run).max());
    let mut all: Vec<StepSeries> = found
        .into_iter()
        .filter(|(_, (of, _, series))| Some(*of) == run && !series.is_empty())
        .map(|(step, (_, start, series))| StepSeries { step: StepKey { job, step }, start, series })
        .collect();
    all.sort_by_key(|one| one.step.step);
    all
}

/// Returns the check whether a job was launched, in any run. For a job that the database has as
/// running, it takes that run, and finds nothing while the socket of that run exists. It looks files
/// up from the open directory: resolving whole paths for thousands of jobs would delay the start of
/// the daemon.
///
/// # Errors
/// Fails if the directory of job directories cannot be opened.
pub fn launched(jobs_dir: &Path) -> io::Result<impl Fn(JobId, Option<u32>) -> bool + use<>> {
    let jobs_dir = File::open(jobs_dir)?;
    let exists = move |file: PathBuf| {
        faccessat(&jobs_dir, &file, AccessFlags::F_OK, AtFlags::empty()).is_ok()
    };
    Ok(move |id: JobId, running: Option<u32>| {
        let job_dir = PathBuf::from(id.to_string());
        let runs = |run| exists(job_dir.join(launch_spec::socket_name(StepId::Batch, run)));
        let was_launched =
            || exists(job_dir.join(JOB)) || exists(launch_spec::exit_path(&job_dir, StepId::Batch));
        !running.is_some_and(runs) && was_launched()
    })
}

/// Returns the batch script of a job, if it has one.
pub fn script(job_dir: &Path) -> Option<Vec<u8>> {
    files::read(&job_dir.join(SCRIPT), MOST_RECORD).ok()
}

/// Prepares the directory for the first launch of a job that was just assigned this ID. Existing
/// files of another job are moved aside, so that they do not mix with the new job's. A directory
/// that holds only the script belongs to the new job. Returns the new path of the files moved.
///
/// # Errors
/// Fails if they cannot be moved.
pub fn clear_way(job_dir: &Path) -> io::Result<Option<PathBuf>> {
    let is_stranger = match fs::symlink_metadata(job_dir) {
        Err(_) => false,
        Ok(there) if !there.is_dir() => true,
        Ok(_) => {
            let found = look(job_dir);
            found.job.is_some() || !found.steps.is_empty()
        }
    };
    if !is_stranger {
        return Ok(None);
    }
    let aside =
        (1..).map(|n| job_dir.with_extension(format!("aside{n}"))).find(|path| !path.exists());
    let aside = aside.unwrap_or_default();
    fs::rename(job_dir, &aside)?;
    Ok(Some(aside))
}

/// Returns the disk space used by a job directory, in bytes.
pub fn size(jobs: &Dir, id: JobId) -> u64 {
    jobs.tree_size(Path::new(&id.to_string()))
}

/// Deletes the directory of a job, and returns the disk space that its files used, in bytes.
///
/// # Errors
/// Fails if a link or file has replaced the directory, if something is mounted in it, or if it
/// cannot be deleted. The error names its path below `jobs_dir`, which is the path of `jobs`.
pub fn remove(jobs: &Dir, jobs_dir: &Path, id: JobId) -> io::Result<u64> {
    let name = id.to_string();
    match jobs.remove_tree(Path::new(&name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(not_removed(&jobs_dir.join(name), &e)),
        freed => freed,
    }
}

/// Returns the error for one of slotd's own directories that could not be deleted, with the reason.
pub(super) fn not_removed(dir: &Path, e: &io::Error) -> io::Error {
    let why = match e.raw_os_error() {
        _ if dir.is_symlink() => {
            "it is a link, and its target is not deleted: remove the link".to_owned()
        }
        Some(libc::ENOTDIR | libc::ELOOP) => "it is not a directory: remove it".to_owned(),
        Some(libc::EXDEV | libc::EBUSY) => {
            "something is mounted in it: unmount it first".to_owned()
        }
        _ => e.to_string(),
    };
    io::Error::new(e.kind(), format!("{}: {why}", dir.display()))
}

/// Deletes the file that holds the environment of the launch.
///
/// # Errors
/// Fails if it cannot be deleted. The error names its path.
pub fn forget_launch(jobs: &Dir, jobs_dir: &Path, id: JobId) -> io::Result<()> {
    let name = format!("{id}/{RUNNER}");
    match jobs.remove_file(Path::new(&name)) {
        // Behind a link, the file counts as absent.
        Err(e) if is_absent(&e) => Ok(()),
        other => other.map_err(|e| {
            io::Error::new(e.kind(), format!("{}: {e}", jobs_dir.join(name).display()))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LaunchSpec;
    use crate::launch_spec::JobText;
    use slotd_model::series::{Series, Span};
    use slotd_model::{ExitCode, ExitRecord, Timestamp};
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_prepared_directories_are_deleted_while_the_others_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("script.sh"), "the user's").unwrap();
        symlink(elsewhere.path(), dir.path().join("prepared.18")).unwrap();
        let kept = ["018", "17", "prepared", "prepared.+19", "prepared.020", "prepared.x"];
        for name in kept.iter().chain(&["prepared.17"]) {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("script.sh"), "").unwrap();
        }
        assert_eq!(numbers(dir.path()).unwrap(), [JobId(17)]);
        assert_eq!(tidy(dir.path()).unwrap(), [JobId(17)]);
        let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: BTreeSet<String> = left.map(|name| name.into_string().unwrap()).collect();
        let kept = kept.into_iter().chain(["prepared.18"]).map(str::to_owned).collect();
        assert_eq!(left, kept);
        assert_eq!(fs::read(elsewhere.path().join("script.sh")).unwrap(), b"the user's");
    }

    #[test]
    fn only_valid_job_ids_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["7", "12", "007", "0", "4294967295", "x", "7.aside1"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut found = numbers(dir.path()).unwrap();
        found.sort_unstable();
        assert_eq!(found, [JobId(7), JobId(12)]);
    }

    #[test]
    fn a_job_directory_contains_its_job_and_the_state_of_each_step() {
        let dir = tempfile::tempdir().unwrap();
        let job = Job { id: JobId(3), ..Job::default() };
        let record = ExitRecord { run: 1, exit: ExitCode::status(4), ..ExitRecord::default() };
        let write = |name: &str, text: Vec<u8>| fs::write(dir.path().join(name), text).unwrap();
        write(JOB, serde_json::to_vec(&job).unwrap());
        write("0.exit", serde_json::to_vec(&record).unwrap());
        for name in ["0.1.sock", "batch.1.sock", "script.sh"] {
            write(name, Vec::new());
        }
        let found = look(dir.path());
        assert_eq!(found.job, Some(job));
        let batch = Trace { step: StepId::Batch, run: 1, ended: None };
        assert_eq!(
            found.steps,
            [batch, Trace { step: StepId::Num(0), run: 1, ended: Some(record) }]
        );
    }

    #[test]
    fn the_job_of_the_last_run_is_found_even_if_only_in_an_exit_record() {
        let jobs = tempfile::tempdir().unwrap();
        let dir = jobs.path().join("3");
        fs::create_dir(&dir).unwrap();
        let open = || File::open(&dir).unwrap();
        let was_launched = launched(jobs.path()).unwrap();
        let run = |restarts| {
            let mut job = Job { id: JobId(3), ..Job::default() };
            job.run.restarts = restarts;
            job
        };
        let spec = |job| LaunchSpec {
            job_dir: dir.clone(),
            job: JobText::of(&job),
            ..LaunchSpec::default()
        };
        assert!(!was_launched(JobId(3), None) && !was_launched(JobId(4), None));
        job_files::write_record(&open(), &spec(run(0)), &ExitRecord::default(), &Series::default())
            .unwrap();
        assert!(was_launched(JobId(3), None) && was_launched(JobId(3), Some(0)));
        fs::write(dir.join("batch.0.sock"), "").unwrap();
        assert!(!was_launched(JobId(3), Some(0)) && was_launched(JobId(3), Some(1)));
        fs::remove_file(dir.join("batch.0.sock")).unwrap();
        assert_eq!(look(&dir).job, Some(run(0)));
        job_files::write_job(&open(), &spec(run(1))).unwrap();
        assert_eq!(look(&dir).job, Some(run(1)));
        let second = ExitRecord { run: 2, ..ExitRecord::default() };
        job_files::write_record(&open(), &spec(run(2)), &second, &Series::default()).unwrap();
        let found = look(&dir);
        assert_eq!((found.job, found.steps[0].run), (Some(run(2)), 2));
    }

    #[test]
    fn usage_over_time_covers_a_single_run() {
        let dir = tempfile::tempdir().unwrap();
        let series = |cpu_us| {
            let mut series = Series::default();
            series.push(Span { ms: 300, cpu_us, ..Span::default() });
            series
        };
        let write = |step, run, over_time: &Series| {
            let spec = LaunchSpec {
                job_dir: dir.path().to_owned(),
                step: StepKey { job: JobId(3), step },
                ..LaunchSpec::default()
            };
            let started = Timestamp::from_secs(i64::from(run) * 100);
            let record = ExitRecord { run, started, ..ExitRecord::default() };
            let opened = File::open(dir.path()).unwrap();
            job_files::write_record(&opened, &spec, &record, over_time).unwrap();
        };
        write(StepId::Batch, 1, &series(7));
        write(StepId::Num(0), 0, &series(8));
        write(StepId::Num(1), 1, &series(9));
        write(StepId::Num(2), 1, &Series::default());
        fs::write(dir.path().join("4.exit"), "no record").unwrap();
        let used = |run| -> Vec<(StepId, i64, u64)> {
            let all = over_time(dir.path(), JobId(3), run);
            all.iter()
                .map(|one| (one.step.step, one.start.as_secs(), one.series.spans()[0].cpu_us))
                .collect()
        };
        let mut last = [(StepId::Batch, 100, 7), (StepId::Num(1), 100, 9)];
        last.sort();
        assert_eq!(used(None), last);
        assert_eq!(used(Some(1)), last);
        assert_eq!(used(Some(0)), [(StepId::Num(0), 0, 8)]);
        assert_eq!(over_time(&dir.path().join("none"), JobId(3), None), []);
    }

    #[test]
    fn files_of_another_job_are_moved_aside_but_a_script_stays() {
        let dir = tempfile::tempdir().unwrap();
        let job_dir = dir.path().join("5");
        assert_eq!(clear_way(&job_dir).unwrap(), None);
        fs::create_dir(&job_dir).unwrap();
        fs::write(job_dir.join("script.sh"), "true").unwrap();
        assert_eq!(clear_way(&job_dir).unwrap(), None);
        fs::write(job_dir.join("batch.0.sock"), "").unwrap();
        assert_eq!(clear_way(&job_dir).unwrap(), Some(dir.path().join("5.aside1")));
        fs::write(&job_dir, "a file").unwrap();
        assert_eq!(clear_way(&job_dir).unwrap(), Some(dir.path().join("5.aside2")));
        assert!(!job_dir.exists());
    }

    #[test]
    fn only_real_job_directories_are_deleted() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("jobs/1/inner")).unwrap();
        fs::create_dir_all(at("scratch/2")).unwrap();
        for name in [
            "jobs/1/inner/file",
            "jobs/3",
            "jobs/1/runner.sh",
            "scratch/precious",
            "scratch/runner.sh",
        ] {
            fs::write(at(name), "text").unwrap();
        }
        std::os::unix::fs::symlink(at("scratch"), at("jobs/2")).unwrap();
        std::os::unix::fs::symlink(at("scratch"), at("jobs/1/scratch")).unwrap();
        nix::unistd::mkfifo(&at("jobs/4"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (dir, jobs) = (at("jobs"), Dir::open(&at("jobs")).unwrap());
        forget_launch(&jobs, &dir, JobId(2)).unwrap();
        forget_launch(&jobs, &dir, JobId(1)).unwrap();
        assert!(at("scratch/runner.sh").exists() && !at("jobs/1/runner.sh").exists());
        assert!(size(&jobs, JobId(1)) > 0);
        assert!(remove(&jobs, &dir, JobId(1)).unwrap() > 0);
        for (id, why) in
            [(2, "it is a link, "), (3, "it is not a directory"), (4, "it is not a directory")]
        {
            let refused = remove(&jobs, &dir, JobId(id)).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("{}: {why}", dir.join(id.to_string()).display())),
                "{refused}"
            );
        }
        assert_eq!(remove(&jobs, &dir, JobId(5)).unwrap(), 0);
        let left = |name: &str| fs::read_dir(at(name)).unwrap().count();
        assert_eq!((left("jobs"), left("scratch")), (3, 3));
    }
}
