//! The processes of jobs, which outlive the daemon: their starts, stops and ends.

use super::*;

impl World {
    pub(super) fn report(&self, job: JobId, record: ExitRecord, cause: EndCause) {
        self.log(|| format!("job {job} ended: {cause:?} {:?}", record.exit));
        if let Some(daemon) = &self.daemon {
            daemon.do_send(JobEnded { job, record, cause });
        }
    }

    pub(super) fn process_of(&mut self, job: JobId) -> Option<&mut Process> {
        self.processes.range_mut((job, 0)..=(job, u32::MAX)).next_back().map(|(_, process)| process)
    }

    /// Carries out a command as a job's runner would.
    pub(super) fn run(&mut self, job: JobId, command: RunnerCommand) {
        match command {
            RunnerCommand::Launch(m) => self.launch(m.job),
            RunnerCommand::Adopt(m) => self.adopt(&m.job),
            RunnerCommand::Stop { cause, .. } => self.stop(job, cause),
            RunnerCommand::Suspend => {
                if let Some(process) = self.process_of(job).filter(|process| process.is_alive()) {
                    process.suspended = Some(process.ends - NOW.get());
                }
            }
            RunnerCommand::Resume => {
                self.check_resumption(job);
                if let Some(process) = self.process_of(job)
                    && let Some(left) = process.suspended.take()
                {
                    process.ends = NOW.get() + left;
                }
            }
            RunnerCommand::SetTimeLimit(limit) => {
                if let Some(process) = self.process_of(job) {
                    process.limit = limit.map(|secs| process.begun + secs.cast_signed() * MICROS);
                }
            }
            RunnerCommand::Prepare(_)
            | RunnerCommand::Open(_)
            | RunnerCommand::Dismiss
            | RunnerCommand::Warn
            | RunnerCommand::Preempt
            | RunnerCommand::Resize { .. }
            | RunnerCommand::Signal { .. } => {}
            RunnerCommand::LaunchStep(_)
            | RunnerCommand::StopStep(..)
            | RunnerCommand::ToStep(..)
            | RunnerCommand::Measure(..) => unreachable!("no steps here"),
        }
    }

    pub(super) fn launch(&mut self, job: Box<Job>) {
        if !self.is_calm && self.chance(3) {
            self.doomed = true;
            return;
        }
        if self.never_begun.remove(&job.id) {
            return;
        }
        if !self.is_calm && self.chance(3) {
            let record = ExitRecord::launch_failed("no such directory".to_owned(), clock());
            return self.report(job.id, record, EndCause::LaunchFailed);
        }
        self.log(|| format!("job {} ({:?}) run {} starts", job.id, job.role, job.run.restarts));
        self.check_start(&job);
        self.check_recurrence(&job);
        self.stats.launched += 1;
        let begun = NOW.get();
        let secs = if self.chance(20) { 0 } else { self.rng.i64(1..200) };
        let exit = if self.chance(25) { ExitCode::status(1) } else { ExitCode::OK };
        let limit = job.request.time_limit_secs.map(|secs| begun + secs.cast_signed() * MICROS);
        let ends = begun + secs * MICROS + self.rng.i64(0..MICROS);
        let id = job.id;
        let key = (id, job.run.restarts);
        let process = Process {
            job,
            ends,
            exit,
            limit,
            suspended: None,
            stopped: None,
            begun,
            record: None,
            is_gone: false,
        };
        assert!(
            self.processes.insert(key, process).is_none(),
            "run {} of job {id} has two processes",
            key.1
        );
        if let Some(daemon) = &self.daemon {
            daemon.do_send(StepStarted {
                step: StepKey { job: id, step: StepId::Batch },
                pids: vec![id.0],
            });
        }
    }

    pub(super) fn adopt(&mut self, job: &Job) {
        if job.request.kind == JobKind::Allocation {
            return;
        }
        let known =
            self.processes.get(&(job.id, job.run.restarts)).map(|process| process.record.clone());
        match known {
            None => self.report(
                job.id,
                ExitRecord::gone(ExitCode::OK, clock()),
                EndCause::NeverLaunched,
            ),
            Some(Some((record, cause))) => self.report(job.id, record, cause),
            // The process may be in a state that an earlier daemon did not record.
            Some(None) => {
                let is_suspended = job.run.state == JobState::Suspended;
                let was_suspended =
                    self.process_of(job.id).is_some_and(|process| process.suspended.is_some());
                match (is_suspended, was_suspended) {
                    (true, false) => self.run(job.id, RunnerCommand::Suspend),
                    (false, true) if job.run.state == JobState::Running => {
                        self.run(job.id, RunnerCommand::Resume);
                    }
                    _ => {}
                }
            }
        }
    }

    pub(super) fn stop(&mut self, job: JobId, cause: StopCause) {
        self.log(|| format!("job {job} is stopped: {cause:?}"));
        let grace = self.rng.i64(0..3 * MICROS);
        let Some(record) = self.disk.stored.jobs.get(&job) else { return };
        let (run, is_allocation) =
            (record.run.restarts, record.request.kind == JobKind::Allocation);
        match self.processes.get_mut(&(job, run)) {
            Some(process) if process.is_alive() => {
                process.stopped = Some(cause);
                process.ends = process.ends.min(NOW.get() + grace);
            }
            // Its end is already being reported.
            Some(_) => {}
            None => {
                let exit =
                    if is_allocation { ExitCode::OK } else { ExitCode::signal(libc::SIGTERM) };
                if !is_allocation {
                    self.never_begun.insert(job);
                }
                self.report(job, ExitRecord::gone(exit, clock()), EndCause::Stopped);
            }
        }
    }

    /// Returns the next time at which a process ends or reaches its limit.
    pub(super) fn next_process(&self) -> Option<(i64, RunKey)> {
        self.processes.iter().filter_map(|(key, process)| Some((process.due()?, *key))).min()
    }

    pub(super) fn process_due(&mut self, key: RunKey) {
        let lives = self.daemon.is_some();
        let Some(process) = self.processes.get_mut(&key) else { return };
        let now = NOW.get();
        if process.ends > now {
            // It reached its limit, which no one enforces while no daemon is running.
            process.limit = None;
            if !lives {
                process.limit = Some(now + MICROS);
                return;
            }
            process.stopped = Some(StopCause::TimeLimit);
            process.ends = process.ends.min(now + MICROS);
            if let Some(daemon) = &self.daemon {
                daemon.do_send(LimitReached { job: key.0 });
            }
            return;
        }
        let (exit, cause) = match process.stopped {
            None => (process.exit, EndCause::Exited),
            Some(StopCause::TimeLimit) => (ExitCode::signal(libc::SIGTERM), EndCause::TimeLimit),
            Some(_) => (ExitCode::signal(libc::SIGTERM), EndCause::Stopped),
        };
        process.end(exit, cause);
        if let Some((record, cause)) = process.record.clone() {
            self.report(key.0, record, cause);
        }
    }
}
