//! Users: each runs one command after another, and records the promises that slotd makes.

use crate::model::{After, Answer, How, Plan, Submission, Touch, What};
use crate::world::{CPUS, Crontab, GPUS, Output, QOS_JOBS, SEATS, World, now};
use fastrand::Rng;
use slotd_kit::proc;
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// The number of queued jobs at which users stop submitting.
const MOST_QUEUED: usize = 40;

/// The longest time a command may wait in the queue once there are no more faults.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest pause between two commands of a user, in milliseconds.
const PAUSE_MS: u64 = 150;

pub struct User<'a> {
    world: &'a World,
    rng: Rng,
}

impl<'a> User<'a> {
    pub fn new(world: &'a World, seed: u64) -> User<'a> {
        User { world, rng: Rng::with_seed(seed) }
    }

    /// Runs commands until the end of the run.
    pub fn live(mut self) {
        while !self.world.is_over() {
            self.act();
            thread::sleep(Duration::from_millis(self.rng.u64(..PAUSE_MS)));
        }
    }

    fn act(&mut self) {
        let is_full = self.world.backlog.load(Ordering::Relaxed) >= MOST_QUEUED;
        match self.rng.u32(..100) {
            0..46 if is_full => self.look(),
            0..26 => self.batch(None),
            26..32 => {
                let tasks = self.rng.u32(2..5);
                self.batch(Some(tasks));
            }
            32..38 => self.run(),
            38..42 => self.allocate(How::AllocCommand),
            42..46 => self.allocate(How::AllocBare),
            46..58 => self.touch(What::Cancel),
            58..63 => self.touch(What::Hold),
            63..69 => self.touch(What::Release),
            69..73 => self.touch(What::Requeue),
            73..76 => self.touch(What::Suspend),
            76..81 => self.touch(What::Resume),
            81..85 => self.touch(What::Update),
            85..87 => self.top(),
            87..89 => self.crontab(),
            89..91 => self.reserve(),
            _ => self.look(),
        }
    }

    fn plan(&mut self, how: How) -> Plan {
        let rng = &mut self.rng;
        let mut plan = Plan { cpus: 1, ms: rng.u64(20..400), ..Plan::default() };
        plan.code = if rng.u32(..3) == 0 { rng.i32(2..60) } else { 0 };
        if rng.u32(..4) == 0 {
            plan.cpus = rng.u32(1..=CPUS);
        }
        if rng.u32(..5) == 0 {
            plan.gpus = rng.u32(1..=GPUS);
        }
        if rng.u32(..8) == 0 {
            plan.seats = rng.u32(1..=SEATS);
        }
        plan.has_qos = rng.u32(..8) == 0;
        if rng.u32(..12) == 0 {
            plan.ms = rng.u64(1000..2500);
        }
        if how != How::Batch {
            return plan;
        }
        plan.ignores_term = rng.u32(..10) == 0;
        plan.leaves_child = rng.u32(..10) == 0;
        plan.requeue = rng.u32(..7) == 0;
        plan.lines = if rng.u32(..6) == 0 { rng.u32(1..500) } else { 0 };
        match rng.u32(..20) {
            0 | 1 => plan.begin = Some(self.world.wall_clock() + rng.i64(0..4)),
            2 | 3 => plan.held = true,
            4 => plan.limit = Some(rng.u32(1..3)),
            5..=8 => plan.after = self.before(),
            10 | 11 => plan.singleton = true,
            12..16 => plan.step = Some((rng.u64(20..1500), rng.i32(2..60))),
            _ => {}
        }
        plan
    }

    /// Chooses an earlier submission to depend on.
    fn before(&mut self) -> Option<(After, u32)> {
        let jobs = self.world.jobs();
        let known: Vec<u32> =
            jobs.iter().rev().take(20).filter(|job| job.id().is_some()).map(|j| j.number).collect();
        let kind = After::ALL[self.rng.usize(..After::ALL.len())];
        (!known.is_empty()).then(|| (kind, known[self.rng.usize(..known.len())]))
    }

    // Submissions

    /// Records a submission before it is made.
    fn enter(&self, how: How, plan: Plan, tasks: Option<u32>) -> Submission {
        let mut jobs = self.world.jobs();
        let number = jobs.len() as u32 + 1;
        let job = Submission {
            number,
            how,
            plan,
            tasks,
            answer: Answer::Open,
            client: None,
            sent: now(),
            touches: vec![],
        };
        jobs.push(job.clone());
        job
    }

    fn answer(&self, number: u32, answer: Answer) {
        self.world.jobs()[number as usize - 1].answer = answer;
    }

    /// Returns the command line of the player in the job.
    fn play(&self, job: &Submission, locks: bool) -> Vec<String> {
        let plan = &job.plan;
        let ms = if plan.limit.is_some() { 60_000 } else { plan.ms };
        let (log, held) = (self.world.log.display(), self.world.locks.display());
        let mut words: Vec<String> = ["helper", "play"].map(str::to_owned).into();
        words.extend([
            format!("log={log}"),
            format!("locks={held}"),
            format!("sub={}", job.number),
        ]);
        words.extend([format!("ms={ms}"), format!("code={}", plan.code)]);
        if locks {
            let mut take = format!("take=cpu:{}/{CPUS},seat:{}/{SEATS}", plan.cpus, plan.seats);
            if plan.has_qos {
                take += &format!(",qos:1/{QOS_JOBS}");
            }
            if job.tasks.is_none() {
                take += &format!(",t{}:1/1", job.number);
            }
            words.extend([take, format!("gpus={}", plan.gpus)]);
        }
        let flags = [(plan.ignores_term, "ignore"), (plan.leaves_child, "child")];
        words.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
        if plan.lines > 0 {
            words.push(format!("lines={}", plan.lines));
        }
        words.extend(plan.step.map(|(ms, code)| format!("step={ms},{code}")));
        words
    }

    /// Returns the options common to all commands.
    fn options(job: &Submission) -> Vec<String> {
        let plan = &job.plan;
        let comment = format!("--comment={}", job.name());
        let mut options = vec![comment, format!("-c{}", plan.cpus), "--mem=64".to_owned()];
        options.extend(
            plan.singleton
                .then(|| ["-Jalone", "-dsingleton"].map(str::to_owned))
                .into_iter()
                .flatten(),
        );
        if plan.gpus > 0 {
            options.extend(["-pgpu".to_owned(), format!("-G{}", plan.gpus)]);
        }
        if plan.seats > 0 {
            options.push(format!("-Lseat:{}", plan.seats));
        }
        options.extend(plan.has_qos.then(|| "-qfew".to_owned()));
        options
    }

    fn batch(&mut self, tasks: Option<u32>) {
        let mut plan = self.plan(How::Batch);
        if tasks.is_some() {
            plan.step = None;
        }
        let after = plan.after.and_then(|(kind, number)| {
            Some(format!("-d{}:{}", kind.word(), self.world.jobs()[number as usize - 1].id()?))
        });
        let job = self.enter(How::Batch, plan, tasks);
        let plan = &job.plan;
        let mut args = Self::options(&job);
        args.push("--parsable".to_owned());
        args.extend(after);
        args.extend(tasks.map(|tasks| format!("-a0-{}", tasks - 1)));
        args.extend(plan.requeue.then(|| "--requeue".to_owned()));
        args.extend(plan.held.then(|| "-H".to_owned()));
        args.extend(plan.begin.map(|at| format!("--begin={at}")));
        args.extend(plan.limit.map(|secs| format!("-t0:{secs:02}")));
        let output = if plan.lines > 0 && tasks.is_none() {
            format!("out/{}", job.number)
        } else {
            "/dev/null".into()
        };
        args.extend(["-o".to_owned(), output]);
        let quoted: Vec<String> =
            self.play(&job, true).iter().map(|word| format!("'{word}'")).collect();
        args.extend(["--wrap".to_owned(), format!("exec {}", quoted.join(" "))]);
        let out = self.world.run("sbatch", &args);
        let number = out.stdout.trim().parse().ok();
        self.note(&job, &out, number);
    }

    /// Records the result of a submission.
    fn note(&self, job: &Submission, out: &Output, number: Option<u32>) {
        match (number, out.code) {
            (Some(id), _) => self.answer(job.number, Answer::Number(id)),
            (None, Some(1)) if !out.killed => {
                self.world.counts.add("submissions refused");
                self.answer(job.number, Answer::Refused);
            }
            (None, Some(_)) if out.killed => {
                self.touched(job.number, What::KillClient, None, out, true)
            }
            (None, None) => {}
            (None, Some(code)) => {
                self.world.report(format!("submission {} ended with {code}: {out:?}", job.number))
            }
        }
    }

    /// Reserves a license for the next day, or deletes such a reservation.
    fn reserve(&mut self) {
        let mut all = self.world.reservations.lock().unwrap();
        let known = all.iter().find(|(_, exists)| **exists == Some(true)).map(|(name, _)| name);
        let (name, is_new) = match known.filter(|_| self.rng.bool()) {
            Some(known) => (known.clone(), false),
            None => (format!("r{}", all.len()), true),
        };
        let line = if is_new {
            format!(
                "create reservation ReservationName={name} StartTime=now+1days Duration=10 \
                 Accounts=lab Licenses=seat:1 Flags=LICENSE_ONLY"
            )
        } else {
            format!("delete reservation {name}")
        };
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let out = self.world.run("scontrol", &args);
        match out.code {
            Some(0) => drop(all.insert(name, Some(is_new))),
            // If the disk is full, the change holds until the daemon ends, and may be stored later.
            _ => {
                all.insert(name, None);
                if !out.killed && out.code != Some(1) {
                    self.world.report(format!("scontrol {line} ended with {out:?}"));
                }
            }
        }
    }

    /// Replaces or removes the crontab. Its old entries are cancelled.
    fn crontab(&mut self) {
        let mut crontab = self.world.crontab.lock().unwrap();
        if self.world.is_over() {
            return;
        }
        let count = self.rng.u32(..4);
        let jobs: Vec<Submission> = (0..count)
            .map(|_| {
                let plan = Plan { requeue: false, ..self.plan(How::Cron) };
                self.enter(How::Cron, plan, None)
            })
            .collect();
        let text: String = jobs.iter().map(|job| self.entry(job)).collect();
        let file = self.world.slotd.base.join("crontab");
        fs::write(&file, &text).expect("a file");
        let sent = now();
        let (name, args) = match count {
            0 => ("scrontab", "-r".to_owned()),
            _ => ("scrontab", file.display().to_string()),
        };
        let out = self.world.run(name, &[args]);
        let acked = out.code == Some(0);
        for number in &crontab.entries {
            let touch =
                Touch { what: What::Cancel, task: None, sent, acked: acked.then_some(out.ended) };
            self.world.jobs()[*number as usize - 1].touches.push(touch);
        }
        let numbers = jobs.iter().map(|job| job.number);
        // A daemon that dies before the disk has space again has the old crontab.
        let is_unstored = out.code == Some(1) && out.stderr.contains("done, but lost");
        match out.code {
            Some(0) => *crontab = Crontab { text: Some(text), entries: numbers.collect() },
            Some(1) if !out.killed && !is_unstored => {
                self.world.counts.add("crontabs refused");
                numbers.for_each(|number| self.answer(number, Answer::Refused));
            }
            _ => {
                crontab.text = None;
                crontab.entries.extend(numbers);
                if !out.killed && !is_unstored {
                    self.world.report(format!("scrontab ended with {out:?}"));
                }
            }
        }
    }

    /// Returns the lines of the crontab for a job that runs every minute.
    fn entry(&self, job: &Submission) -> String {
        let options = Self::options(job).join(" ");
        let words: Vec<String> = self.play(job, true).iter().map(|w| format!("'{w}'")).collect();
        format!("#SCRON -o /dev/null {options}\n* * * * * exec {}\n", words.join(" "))
    }

    /// Runs a command with srun, and records its exit code.
    fn run(&mut self) {
        let plan = self.plan(How::Run);
        let job = self.enter(How::Run, plan, None);
        let mut args = Self::options(&job);
        args.extend(self.play(&job, true));
        self.foreground("srun", &job, args);
    }

    fn allocate(&mut self, how: How) {
        let plan = self.plan(how);
        let job = self.enter(how, plan, None);
        let mut args = Self::options(&job);
        match how {
            How::AllocBare => args.push("--no-shell".to_owned()),
            _ => args.extend(self.play(&job, false)),
        }
        let out = self.foreground("salloc", &job, args);
        let granted = out
            .stderr
            .lines()
            .find_map(|line| line.split("Granted job allocation ").nth(1)?.parse().ok());
        if let Some(id) = granted {
            self.answer(job.number, Answer::Number(id));
            if how == How::AllocBare {
                self.use_bare(&job, id);
            }
        } else if how == How::AllocBare && out.killed {
            self.end_forgotten(&job);
        }
    }

    /// Cancels an allocation whose client was killed before it printed the job ID. Otherwise it
    /// would hold its CPUs until a fault ends it, and two of these can hold all CPUs.
    fn end_forgotten(&mut self, job: &Submission) {
        let listed = self.world.run("squeue", &["-h", "-o", "%A %k"].map(str::to_owned));
        let own = format!(" t{}", job.number);
        if let Some(id) = listed.stdout.lines().find_map(|line| line.strip_suffix(&own)) {
            self.cancel(job, None, id.trim().to_owned());
        }
    }

    /// Runs a step in an allocation without a command, then releases the allocation.
    fn use_bare(&mut self, job: &Submission, id: u32) {
        let mut args = vec![format!("--jobid={id}"), "-n1".to_owned()];
        args.extend(self.play(job, true));
        let mut command = self.world.slotd.command("srun");
        command.args(args);
        let out = self.world.wait_for(command, || QUEUE_TIMEOUT);
        self.ended(job, &out);
        self.cancel(job, None, id.to_string());
    }

    /// Runs a command that waits for its job.
    fn foreground(&mut self, name: &str, job: &Submission, args: Vec<String>) -> Output {
        let mut command = self.world.slotd.command(name);
        command.args(args);
        let out = self.world.wait_for(command, || QUEUE_TIMEOUT);
        if job.how != How::AllocBare || out.code != Some(0) {
            self.ended(job, &out);
        }
        out
    }

    /// Records the exit code of a foreground command.
    fn ended(&self, job: &Submission, out: &Output) {
        match out.code {
            Some(_) if out.killed => self.touched(job.number, What::KillClient, None, out, true),
            Some(code) => {
                self.world.jobs()[job.number as usize - 1].client = Some((code, out.stderr.clone()))
            }
            None => {}
        }
    }

    // Actions on jobs

    /// Chooses a recent job, and returns its target for commands: the job ID, or an array task.
    fn choose(&mut self) -> Option<(Submission, Option<u32>, String)> {
        let jobs = self.world.jobs();
        let known: Vec<&Submission> =
            jobs.iter().rev().take(40).filter(|job| job.id().is_some()).collect();
        let job = (*known.get(self.rng.usize(..known.len().max(1)))?).clone();
        let id = job.id()?;
        let task = job.tasks.filter(|_| self.rng.bool()).map(|tasks| self.rng.u32(..tasks));
        let text = task.map_or_else(|| id.to_string(), |task| format!("{id}_{task}"));
        Some((job, task, text))
    }

    fn touched(&self, number: u32, what: What, task: Option<u32>, out: &Output, acked: bool) {
        let touch = Touch { what, task, sent: out.sent, acked: acked.then_some(out.ended) };
        self.world.jobs()[number as usize - 1].touches.push(touch);
    }

    fn touch(&mut self, what: What) {
        let Some((job, task, target)) = self.choose() else { return };
        let verb = match what {
            What::Cancel => return self.cancel(&job, task, target),
            What::Hold => "hold",
            What::Release => "release",
            What::Requeue => "requeue",
            What::Suspend => "suspend",
            What::Resume => "resume",
            What::Update => return self.update(&job, task, target),
            What::KillClient => return,
        };
        self.send(what, &job, task, "scontrol", vec![verb.to_owned(), target]);
    }

    fn update(&mut self, job: &Submission, task: Option<u32>, target: String) {
        // Setting a priority also releases a held job.
        let (what, change) = if job.plan.limit.is_none() && self.rng.bool() {
            (What::Update, "TimeLimit=10")
        } else {
            (What::Release, "Priority=5")
        };
        self.send(
            what,
            job,
            task,
            "scontrol",
            vec!["update".into(), "job".into(), target, change.into()],
        );
    }

    pub fn cancel(&self, job: &Submission, task: Option<u32>, target: String) {
        self.send(What::Cancel, job, task, "scancel", vec![target]);
    }

    /// Runs a command on a job. From now on it may have taken effect.
    fn send(&self, what: What, job: &Submission, task: Option<u32>, name: &str, args: Vec<String>) {
        let at = {
            let touches = &mut self.world.jobs()[job.number as usize - 1].touches;
            touches.push(Touch { what, task, sent: now(), acked: None });
            touches.len() - 1
        };
        let out = self.world.run(name, &args);
        if out.code == Some(0) {
            self.world.jobs()[job.number as usize - 1].touches[at].acked = Some(out.ended);
        } else if !out.killed && out.code.is_some_and(|code| code != 1) {
            self.world.report(format!("{name} {args:?} ended with {out:?}"));
        }
    }

    fn top(&mut self) {
        let Some((_, _, target)) = self.choose() else { return };
        let out = self.world.run("scontrol", &["top".to_owned(), target]);
        if !out.killed && out.code.is_some_and(|code| code > 1) {
            self.world.report(format!("scontrol top ended with {out:?}"));
        }
    }

    fn look(&mut self) {
        let (name, line) = [
            ("squeue", "-h -r -o %A"),
            ("squeue", "-h -r -o %A"),
            ("squeue", "--start"),
            ("sacct", "-X -n -P"),
            ("sinfo", "-N -l"),
            ("sdiag", ""),
            ("sprio", ""),
        ][self.rng.usize(..7)];
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let out = self.world.run(name, &args);
        if name == "squeue" && out.code == Some(0) && args.len() > 1 {
            self.world.backlog.store(out.stdout.lines().count(), Ordering::Relaxed);
        }
        if !out.killed && out.code.is_some_and(|code| code > 1 && code != 128 + proc::KILL) {
            self.world.report(format!("{name} {line} ended with {out:?}"));
        }
    }
}
