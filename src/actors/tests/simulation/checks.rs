//! The guarantees that users rely on, checked when a job starts, after each event and at the end.

use super::*;

impl World {
    /// Checks that no running process is on the CPUs of a job that continues.
    pub(super) fn check_resumption(&self, id: JobId) {
        let cpus = |job: &Job| job.run.alloc.as_ref().map(|alloc| alloc.cpu_ids.clone());
        let Some(own) = self.disk.stored.jobs.get(&id).and_then(cpus) else { return };
        let runs = |process: &&Process| process.is_alive() && process.suspended.is_none();
        for other in self.processes.values().filter(runs).filter(|other| other.job.id != id) {
            let theirs = cpus(&other.job).unwrap_or_default();
            let is_shared = theirs.iter().any(|cpu| own.contains(cpu));
            assert!(!is_shared, "job {id} continues on CPUs of job {}", other.job.id);
        }
    }

    /// Checks the guarantees for a job whose process starts now.
    pub(super) fn check_start(&self, job: &Job) {
        let id = job.id;
        let stored = self
            .disk
            .stored
            .jobs
            .get(&id)
            .unwrap_or_else(|| panic!("job {id} starts but is not in the database"));
        // A later decision may be in the same commit as the start.
        assert!(stored.run.state.is_active(), "job {id} starts: {:?}", stored.run);
        assert_eq!(stored.run.restarts, job.run.restarts, "job {id} starts");
        let was_refused =
            job.request.comment.as_ref().is_some_and(|comment| self.refused.contains(comment));
        assert!(!was_refused, "job {id} starts although its submission was refused");
        assert!(
            job.begin().is_none_or(|begin| begin <= clock()),
            "job {id} starts before its time"
        );
        let named = job.array_job_id().unwrap_or(id);
        for (promised, promise) in
            self.promises.iter().filter(|(of, _)| **of == id || **of == named)
        {
            assert!(!promise.cancelled, "job {id} starts after the answer to scancel {promised}");
            if let Some((kind, target)) = promise.after {
                self.check_after(job, kind, target);
            }
        }
        let alive = || {
            self.processes.values().filter(|process| process.is_alive()).map(|process| &process.job)
        };
        let mut cpus: Vec<u32> = Vec::new();
        let mut gpus: Vec<u32> = Vec::new();
        let mut memory = 0;
        let lends = |job: &Job| {
            let run = self.disk.stored.jobs.get(&job.id).map(|stored| &stored.run);
            run.is_some_and(|run| run.lends_cpus().is_some())
        };
        for job in alive().map(|job| &**job).chain([job]) {
            let alloc = job
                .run
                .alloc
                .as_ref()
                .unwrap_or_else(|| panic!("job {} runs without an allocation", job.id));
            cpus.extend(alloc.cpu_ids.iter().filter(|_| !lends(job)));
            gpus.extend(&alloc.gpu_ids);
            memory += alloc.tres.mem_mb;
        }
        for (what, mut ids, most) in [("CPU", cpus, CPUS), ("GPU", gpus, GPUS)] {
            ids.sort_unstable();
            assert!(
                ids.windows(2).all(|pair| pair[0] != pair[1]),
                "job {id} starts on a {what} in use: {ids:?}"
            );
            assert!(ids.iter().all(|id| *id < most), "{ids:?}");
        }
        assert!(memory <= MEMORY_MB, "job {id} starts: {memory} MB are in use");
        self.check_reserved(job);
        self.check_licenses(alive().map(|job| job.id).chain([id]), id);
        let of_qos = |name: &str| {
            let all = alive().map(|job| &**job).chain([job]);
            let own = all.filter(|job| qos::of(&job.request) == name);
            own.map(|job| job.tres.cpus).collect::<Vec<u32>>()
        };
        let (one, few) = (of_qos("one"), of_qos("few"));
        assert!(one.len() <= 1, "job {id} starts: {} jobs of one run", one.len());
        assert!(few.iter().sum::<u32>() <= FEW_CPUS, "job {id} starts: few has {few:?} CPUs");
        let exclusive = |job: &Job| job.request.sharing == Sharing::Exclusive;
        let others = || alive().filter(|job| !lends(job));
        let lonely = exclusive(job) || others().any(|job| exclusive(job));
        assert!(!lonely || others().count() == 0, "job {id} starts beside an exclusive one");
    }

    /// Checks that a job does not start in the reservation of the node that it does not name.
    pub(super) fn check_reserved(&self, job: &Job) {
        let start = job.run.start.unwrap_or_default();
        let all = self.disk.stored.memos.values().filter_map(|memo| match memo {
            MemoBody::Reservation(reservation) => Some(reservation),
            _ => None,
        });
        for one in all.filter(|one| one.share == Share::Node && one.is_active(start)) {
            let is_inside = one.start < start && !one.is_named_by(&job.request);
            assert!(!is_inside, "job {} starts in reservation {}", job.id, one.name);
        }
    }

    /// Checks that these jobs hold no more licenses than there are.
    pub(super) fn check_licenses(&self, alive: impl Iterator<Item = JobId>, starting: JobId) {
        let alive: Vec<JobId> = alive.collect();
        for (name, most) in LICENSES {
            let request = |id: &JobId| self.disk.stored.jobs.get(id)?.request.licenses.as_deref();
            let asked = alive.iter().filter_map(request).filter_map(license::parse).flatten();
            let held: u32 = asked.filter(|(asked, _)| *asked == name).map(|(_, count)| count).sum();
            assert!(held <= most, "job {starting} starts: {held} licenses of {name} are in use");
        }
    }

    pub(super) fn check_after(&self, job: &Job, kind: DependencyKind, target: JobId) {
        let id = job.id;
        let is_target = |job: &&Job| job.id == target || job.array_job_id() == Some(target);
        let mut targets: Vec<&Job> = self.disk.stored.jobs.values().filter(is_target).collect();
        let has_task = |task: u32| {
            let mut arrays = targets.iter().filter_map(|target| target.request.array.as_ref());
            arrays.any(|array| array.tasks.iter().any(|other| other == task))
        };
        // An array task waits only for its counterpart, or without one, for the whole array.
        if let (DependencyKind::AfterCorr, ArrayRole::Task { task, .. }) = (kind, &job.role)
            && has_task(*task)
        {
            let is_it =
                |other: &ArrayRole| matches!(other, ArrayRole::Task { task: of, .. } if of == task);
            targets.retain(|target| is_it(&target.role));
            assert!(!targets.is_empty(), "job {id} starts before task {task} of {target} exists");
        }
        let ok = |job: &&Job| job.run.state == JobState::Ended(End::Completed);
        let has_begun = |job: &Job| job.run.start.is_some() || job.run.state.is_terminal();
        let is_met = match kind {
            DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer => {
                targets.iter().all(|job| job.run.state.is_terminal())
            }
            DependencyKind::AfterOk | DependencyKind::AfterCorr => targets.iter().all(ok),
            DependencyKind::Expand => targets.iter().all(|job| job.run.state == JobState::Running),
            DependencyKind::After => {
                targets.iter().all(|job| self.begun.contains(&job.id) || has_begun(job))
            }
            DependencyKind::AfterNotOk => {
                targets.iter().all(|job| job.run.state.is_terminal()) && !targets.iter().all(ok)
            }
        };
        // A later requeue of the target does not undo the dependency.
        let came_back = targets.iter().any(|job| job.run.restarts > 0);
        let states: Vec<JobState> = targets.iter().map(|job| job.run.state).collect();
        assert!(is_met || came_back, "job {id} starts before {}:{target}: {states:?}", kind.name());
    }
}

impl Play {
    /// Checks what must hold whenever the daemon is idle.
    pub(super) async fn check_now(&self) {
        let daemon = self.world.borrow().daemon.clone().filter(|_| !self.world.borrow().doomed);
        let Some(daemon) = daemon else { return };
        let sound = daemon.send(CheckInvariants).await.expect("the daemon lives");
        let active = sound.expect("the invariants hold");
        let mut world = self.world.borrow_mut();
        world.begun.extend(active);
        world.check_crontab();
        let waits_for_disk = world.disk.waiting() > 0 && !world.disk.is_known_faulty();
        assert!(
            waits_for_disk || world.unanswered == 0,
            "{} requests were not answered",
            world.unanswered
        );
    }

    pub(super) fn check_end(&self) {
        let world = self.world.borrow();
        assert_eq!(world.unanswered, 0, "requests without an answer");
        for id in world.promises.keys() {
            assert!(
                world.disk.stored.jobs.contains_key(id),
                "job {id} was accepted but is not in the database"
            );
        }
        for ((id, run), process) in &world.processes {
            assert!(!process.is_alive(), "run {run} of job {id} is still alive");
        }
        for job in world.disk.stored.jobs.values() {
            self.check_job_end(&world, job);
        }
    }

    /// Checks that the last run of a job ended like its process.
    pub(super) fn check_job_end(&self, world: &World, job: &Job) {
        let Some(process) = world.processes.get(&(job.id, job.run.restarts)) else {
            assert_ne!(job.run.state, JobState::Ended(End::Completed), "job {} never ran", job.id);
            return;
        };
        let Some((record, EndCause::Exited)) = &process.record else { return };
        let was_stopped = [End::Cancelled, End::Preempted].map(JobState::Ended);
        if !was_stopped.contains(&job.run.state) {
            let expected = if record.exit.is_success() {
                JobState::Ended(End::Completed)
            } else {
                JobState::Ended(End::Failed)
            };
            assert_eq!((job.run.state, job.run.exit), (expected, record.exit), "job {}", job.id);
        }
    }
}
