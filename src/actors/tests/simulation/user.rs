//! The random requests of users.

use super::*;

impl Play {
    pub(super) fn submit(&self) {
        let (request, after) = self.random_request();
        let comment = request.0.comment.clone().unwrap_or_default();
        let may_be_denied = qos::of(&request.0) == "few";
        let may_be_unknown = request.0.reservation.is_some();
        let ended = self.world.borrow().disk.stored.ended();
        let client = Some(Client {
            process: ClientProcess { pid: 1, start_ticks: 1, boot: BootId(0) },
            ..Client::default()
        });
        let submission = Submission { request: request.0, client, ended, ..Submission::default() };
        self.send(
            SubmitJob { submission, answer: None, again: false, news: None },
            move |world, answer| {
                let id = match answer {
                    Ok(id) => id,
                    Err(Refusal::NotStored(_)) => {
                        world.stats.refused += 1;
                        world.refused.insert(comment);
                        return;
                    }
                    Err(Refusal::QosLimit(_)) if may_be_denied => {
                        world.refused.insert(comment);
                        return;
                    }
                    Err(Refusal::UnknownReservation(_)) if may_be_unknown => {
                        world.refused.insert(comment);
                        return;
                    }
                    Err(refusal) => panic!("a job after {after:?} was refused: {refusal}"),
                };
                assert!(
                    world.disk.stored.jobs.contains_key(&id),
                    "job {id} was accepted but is not in the database"
                );
                world.log(|| format!("submitted {id}, after {after:?}"));
                world.stats.submitted += 1;
                world.promises.insert(id, Promise { after, ..Promise::default() });
            },
        );
    }

    pub(super) fn random_request(&self) -> (Ask, Option<(DependencyKind, JobId)>) {
        let world = &mut *self.world.borrow_mut();
        let mut request = ask().cpus(world.rng.u32(1..=CPUS)).mem(world.rng.u64(1..600));
        if world.chance(25) {
            request = request.gpus(world.rng.u32(1..=GPUS));
        }
        if world.chance(60) {
            request = request.limit(world.rng.u64(1..300));
        }
        if world.chance(30) {
            request = request.licenses(world.some_licenses());
        }
        if world.chance(40) {
            request = request.qos(world.some_qos());
        }
        if world.chance(10) {
            let name = RESERVED[world.rng.usize(..RESERVED.len())].to_owned();
            request = request.with(|request| request.reservation = Some(name));
        }
        let mut after = None;
        let known: Vec<JobId> = world.promises.keys().copied().collect();
        if world.chance(25) && !known.is_empty() {
            use DependencyKind::*;
            let kinds = [After, AfterAny, AfterOk, AfterNotOk, AfterCorr];
            let (kind, target) =
                (kinds[world.rng.usize(..kinds.len())], known[world.rng.usize(0..known.len())]);
            request = request.after(kind, target);
            after = Some((kind, target));
        }
        if world.chance(10) {
            request = request.singleton().name("one");
        }
        if world.chance(20) {
            let limit = world.chance(40).then_some(2);
            request = request.array(0, world.rng.u32(1..6), limit);
        } else if world.chance(8) {
            request = request.allocation();
        }
        if world.chance(8) {
            request = request.exclusive();
        }
        if world.chance(8) {
            request = request.held();
        }
        let (requeue, kill) = (world.chance(30), world.chance(50));
        let begin = world.chance(10).then(|| clock().plus_secs(world.rng.u64(1..200)));
        let comment = world.rng.u64(..).to_string();
        let request = request.with(|r| {
            r.comment = Some(comment);
            r.requeue = requeue;
            r.kill_on_invalid_dep = Some(kill);
            r.begin = begin;
        });
        (request, after)
    }

    /// Picks a job whose submission was accepted, by the ID that its user knows.
    pub(super) fn any_job(&self) -> Option<JobId> {
        let world = &mut *self.world.borrow_mut();
        let known: Vec<JobId> = world.promises.keys().rev().take(MOST_JOBS).copied().collect();
        (!known.is_empty()).then(|| known[world.rng.usize(0..known.len())])
    }

    pub(super) fn cancel(&self, id: JobId) {
        let query = JobQuery::of(vec![JobRef::job(id)]);
        let requeues = self.world.borrow().promises.get(&id).map(|promise| promise.requeues);
        self.send(
            CancelJobs(CancelAsk { query, uid: USER, ..CancelAsk::default() }),
            move |world, outcomes| {
                world.log(|| format!("cancelled {id}: {outcomes:?}"));
                if outcomes.iter().all(|outcome| outcome.result.is_ok())
                    && let Some(promise) = world.promises.get_mut(&id)
                {
                    promise.cancelled |= requeues == Some(promise.requeues);
                }
            },
        );
    }

    pub(super) fn control(&self, id: JobId, action: ControlAction) {
        self.world.borrow().log(|| format!("{action:?} {id}"));
        let is_requeue = matches!(action, ControlAction::Requeue(_));
        let ended = self.world.borrow().disk.stored.ended();
        let recalled = self
            .world
            .borrow()
            .disk
            .stored
            .jobs
            .get(&id)
            .filter(|job| job.run.state.is_terminal())
            .cloned();
        if is_requeue && let Some(promise) = self.world.borrow_mut().promises.get_mut(&id) {
            // The user wants the job to run again, so earlier guarantees no longer apply.
            *promise = Promise { requeues: promise.requeues + 1, ..Promise::default() };
        }
        let recalled = recalled.into_iter().collect();
        self.send(ControlJobs { jobs: vec![JobRef::job(id)], action, ended, recalled }, |_, _| {});
    }

    /// A random action of a user.
    pub(super) fn user(&self) {
        let choice = self.world.borrow_mut().rng.u32(0..100);
        let live = self
            .world
            .borrow()
            .disk
            .stored
            .jobs
            .values()
            .filter(|job| !job.run.state.is_terminal())
            .count();
        let Some(id) = self.any_job().filter(|_| choice >= 55 || live > MOST_JOBS) else {
            return self.submit();
        };
        match choice {
            55..70 => self.cancel(id),
            70..75 => self.control(id, ControlAction::Hold),
            75..82 => self.control(id, ControlAction::Release),
            82..87 => self.control(id, ControlAction::Requeue(None)),
            87..90 => self.control(id, ControlAction::Suspend),
            90..94 => self.control(id, ControlAction::Resume),
            94 => {
                let qos = self.world.borrow_mut().some_qos().to_owned();
                let update = Update::Text(KeptText::Qos, qos);
                self.control(id, ControlAction::Update(vec![update]));
            }
            95 => self.control(id, ControlAction::Update(vec![Update::TimeLimit(Some(500))])),
            96 => {
                let licenses = self.world.borrow_mut().some_licenses().to_owned();
                let update = Update::Text(KeptText::Licenses, licenses);
                self.control(id, ControlAction::Update(vec![update]));
            }
            97 => self.change_crontab(),
            98 => self.reserve(),
            _ => self.control(id, ControlAction::Top),
        }
    }

    /// Reserves some CPUs, or the node.
    pub(super) fn reserve(&self) {
        let ask = {
            let world = &mut *self.world.borrow_mut();
            let limit = TresLimit { cpus: Some(world.rng.u32(1..=CPUS)), ..TresLimit::default() };
            let share = if world.chance(50) { Share::Node } else { Share::Parts(limit) };
            let begins = world.rng.u64(0..600);
            ReservationAsk {
                name: Some(RESERVED[world.rng.usize(..RESERVED.len())].to_owned()),
                start: Some(Timestamp(NOW.get()).plus_secs(begins)),
                length: Some(Length::Secs(world.rng.u64(1..900))),
                users: Some((How::Set, vec!["lab".to_owned()])),
                share: Some(share),
                flags: Some((How::Set, vec![Flag::NoHoldJobsAfter])),
                ..ReservationAsk::default()
            }
        };
        self.world.borrow().log(|| format!("{ask:?}"));
        // One that does not fit, or whose name is taken, is refused.
        self.send(OrderReservation(ReservationOrder::Create(Box::new(ask))), |_, _| {});
    }
}
