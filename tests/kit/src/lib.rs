//! A private daemon for each test, and the commands that talk to it.
//!
//! Everything lives in one temporary directory: the runtime root, a working directory, links with
//! the names of the commands, and the daemon's log. The environment contains only the variables set
//! here, so that the user's own slotd, shell and locale have no effect. When a test ends, all
//! remaining processes of its directory are killed. When it fails, the daemon's log and its jobs
//! are printed first.
//!
//! Tests wait for conditions with a deadline, never for a fixed time. `PATIENCE` is longer than
//! anything takes on a busy machine, so a test that reaches it has failed.

pub mod disk;
pub mod git;
pub mod lab;
pub mod limits;
pub mod loads;
pub mod proc;
pub mod scripts;
pub mod spooler;
pub mod tmux;
pub mod trace;
pub mod turns;
pub mod users;
pub mod wal;
pub mod wire;

use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longer than any operation takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A world-writable in-memory file system on Linux.
const MEMORY: &str = "/dev/shm";

/// An upper bound on the space used there by all tests at one time, in bytes.
const SCRATCH_BYTES: u64 = 1 << 30;

/// The time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const COMMANDS: [&str; 22] = [
    "slotd", "sbatch", "srun", "salloc", "squeue", "sacct", "scontrol", "scancel", "sinfo",
    "sstat", "sattach", "sprio", "sdiag", "seff", "sjobmgr", "sacctmgr", "sshare", "sbcast",
    "strigger", "sreport", "scrontab", "sgather",
];

/// Polls `look` until it returns a value. Returns `None` at the deadline.
pub fn until<T>(look: impl FnMut() -> Option<T>) -> Option<T> {
    until_within(PATIENCE, look)
}

/// Like [`until`], with another deadline.
pub fn until_within<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// `TZ` for everything that a test starts. In this zone the tests began between 13:00 and 14:00, so
/// that no run crosses midnight, where `sacct` starts by default, or a named hour.
pub fn zone() -> &'static str {
    static ZONE: OnceLock<String> = OnceLock::new();
    ZONE.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
        let hour = (since.as_secs() / 3600 % 24) as i64;
        // POSIX offsets are added to local time to get UTC.
        format!("RUN{:+}", hour - 13)
    })
}

/// Creates a directory that is removed when the test ends. It is in memory if there is enough
/// space: short-lived files are expensive on a disk and test nothing more there. TMPDIR overrides
/// this.
pub fn tempdir() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("slotd-");
    let in_memory =
        std::env::var_os("TMPDIR").is_none() && disk::has_room(Path::new(MEMORY), SCRATCH_BYTES);
    let made = if in_memory { builder.tempdir_in(MEMORY) } else { builder.tempdir() };
    made.expect("a temporary directory")
}

/// The output and exit code of a command.
#[derive(Debug, Clone)]
pub struct Out {
    pub stdout: String,
    pub stderr: String,
    /// As a shell reports it: 128 plus the signal if the process was killed by one.
    pub code: i32,
    line: String,
}

impl Out {
    /// Asserts that the command exited with 0.
    #[track_caller]
    pub fn ok(self) -> Out {
        assert_eq!(self.code, 0, "`{}` failed: {}{}", self.line, self.stdout, self.stderr);
        self
    }

    /// Asserts that the command exited with this code.
    #[track_caller]
    pub fn fails(self, code: i32) -> Out {
        assert_eq!(
            self.code, code,
            "`{}` ended with {}: {}{}",
            self.line, self.code, self.stdout, self.stderr
        );
        self
    }

    /// Returns standard output without the final newline.
    pub fn text(&self) -> &str {
        self.stdout.trim_end_matches('\n')
    }

    pub fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }
}

/// The configuration of a test's daemon.
#[derive(Debug, Clone)]
pub struct Setup {
    vars: Vec<(String, String)>,
    deep: bool,
    toml: Option<String>,
}

impl Default for Setup {
    fn default() -> Self {
        let vars = [
            ("SLOTD_CPUS", "4"),
            ("SLOTD_MEMORY_MB", "8192"),
            ("SLOTD_GPU_COUNT", "0"),
            ("SLOTD_KILL_WAIT", "1"),
            ("SLOTD_LOG", "info"),
            // The host's sendmail would send real mail.
            ("SLOTD_SENDMAIL", "off"),
        ];
        let vars = vars.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        Setup { vars, deep: false, toml: None }
    }
}

impl Setup {
    /// Sets an environment variable of the daemon.
    pub fn set(mut self, name: &str, value: impl ToString) -> Setup {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn unset(mut self, name: &str) -> Setup {
        self.vars.retain(|(known, _)| known != name);
        self
    }

    /// Makes the path of the runtime root longer than a socket address allows.
    pub fn deep(mut self) -> Setup {
        self.deep = true;
        self
    }

    /// Sets the contents of `slotd.toml`, which is in the base directory.
    pub fn toml(mut self, text: &str) -> Setup {
        self.toml = Some(text.to_owned());
        self
    }

    /// Creates the directories without starting a daemon.
    #[track_caller]
    pub fn prepare(self) -> Slotd {
        let dir = tempdir();
        let base = dir.path().canonicalize().expect("the temporary directory exists");
        let root =
            if !self.deep { base.join("root") } else { base.join("deep-".repeat(30)).join("root") };
        for made in [&root, &base.join("work"), &base.join("bin"), &base.join("home")] {
            fs::create_dir_all(made).unwrap();
        }
        for command in COMMANDS {
            std::os::unix::fs::symlink(program(), base.join("bin").join(command)).unwrap();
        }
        std::os::unix::fs::symlink(helper(), base.join("bin/helper")).unwrap();
        let mut slotd = Slotd { base, root, vars: self.vars, daemon: None, _dir: dir };
        slotd.reset_var("SLOTD_TEST_WALL_CLOCK", slotd.base.join("clock").display());
        if let Some(text) = self.toml {
            let file = slotd.base.join("slotd.toml");
            fs::write(&file, text).unwrap();
            slotd.reset_var("SLOTD_CONFIG", file.display());
        }
        slotd
    }

    /// Starts the daemon and waits until it answers.
    #[track_caller]
    pub fn start(self) -> Slotd {
        let mut slotd = self.prepare();
        slotd.start_daemon();
        slotd
    }
}

/// A daemon with its directories. Dropping it kills everything that it started.
#[derive(Debug)]
pub struct Slotd {
    pub base: PathBuf,
    pub root: PathBuf,
    vars: Vec<(String, String)>,
    daemon: Option<Child>,
    _dir: tempfile::TempDir,
}

impl Slotd {
    /// Starts a daemon with 4 CPUs, 8 GB, no GPU and a kill wait of one second.
    #[track_caller]
    pub fn start() -> Slotd {
        Setup::default().start()
    }

    /// Changes `slotd.toml`, and applies it.
    #[track_caller]
    pub fn reconfigure(&self, text: &str) {
        fs::write(self.base.join("slotd.toml"), text).unwrap();
        self.line("scontrol reconfigure").ok();
    }

    pub fn setup() -> Setup {
        Setup::default()
    }

    /// Changes a variable for the next daemon.
    pub fn reset_var(&mut self, name: &str, value: impl ToString) {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_owned(), value.to_string()));
    }

    // Daemon

    /// Returns the command that starts a daemon, for tests that wait for it themselves.
    pub fn daemon_command(&self) -> Command {
        let mut daemon = self.command("slotd");
        daemon.arg("daemon").envs(self.vars.iter().cloned()).current_dir("/");
        daemon
    }

    /// Starts the daemon and waits until it answers.
    #[track_caller]
    pub fn start_daemon(&mut self) {
        self.start_daemon_by(self.daemon_command());
    }

    /// Like [`Self::start_daemon`], with a modified [`Self::daemon_command`].
    #[track_caller]
    pub fn start_daemon_by(&mut self, mut daemon: Command) {
        assert!(self.daemon.is_none(), "a daemon is running already");
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        daemon.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        self.daemon = Some(daemon.spawn().unwrap());
        let ready = until(|| {
            let ended = self.daemon.as_mut().and_then(|d| d.try_wait().unwrap());
            assert!(ended.is_none(), "the daemon ended with {ended:?}:\n{}", self.log());
            self.ask(&json!("Ping")).ok()
        });
        assert!(ready.is_some(), "the daemon does not answer:\n{}", self.log());
    }

    pub fn daemon_pid(&self) -> i32 {
        self.daemon.as_ref().expect("a daemon runs").id() as i32
    }

    /// Returns false if the daemon has exited. Another one may then be started.
    pub fn daemon_is_running(&mut self) -> bool {
        let ended = self.daemon.as_mut().is_none_or(|daemon| daemon.try_wait().unwrap().is_some());
        if ended {
            self.daemon = None;
        }
        !ended
    }

    /// Sends SIGKILL to the daemon only.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Sends SIGTERM to the daemon and waits for it to exit.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().expect("a daemon runs");
        proc::signal(daemon.id() as i32, proc::TERM);
        until(|| daemon.try_wait().unwrap()).expect("the daemon stops on SIGTERM")
    }

    /// Kills the daemon and starts a new one.
    #[track_caller]
    pub fn crash(&mut self) {
        self.kill9();
        self.start_daemon();
    }

    /// Simulates a power failure: all processes of this directory are frozen, then killed, so that
    /// none writes anything more.
    #[track_caller]
    pub fn power_off(&mut self) {
        let mut stopped = Vec::new();
        let all = until(|| {
            let fresh: Vec<i32> = proc::of_directory(&self.base)
                .into_iter()
                .filter(|pid| !stopped.contains(pid))
                .collect();
            fresh.iter().for_each(|pid| proc::signal(*pid, proc::STOP));
            stopped.extend(&fresh);
            fresh.is_empty().then_some(())
        });
        assert!(all.is_some(), "new processes keep appearing: {stopped:?}");
        stopped.iter().for_each(|pid| proc::signal(*pid, proc::KILL));
        drop(self.daemon.take().map(|mut daemon| daemon.wait()));
        let gone = until(|| proc::of_directory(&self.base).is_empty().then_some(()));
        assert!(gone.is_some(), "processes outlive SIGKILL: {:?}", proc::of_directory(&self.base));
    }

    /// Simulates a boot with a new boot ID at this time (seconds since 1970), and starts the
    /// daemon.
    #[track_caller]
    pub fn boot(&mut self, id: u32, at: i64) {
        self.reset_var("SLOTD_TEST_BOOT", format!("{id:x}@{at}"));
        self.start_daemon();
    }

    /// Sets the wall clock of the daemon and its watchers this many seconds ahead of the real one.
    pub fn set_clock(&self, ahead: i64) {
        let path = self.base.join("clock");
        fs::write(path.with_extension("new"), ahead.to_string()).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    pub fn log_path(&self) -> PathBuf {
        self.base.join("daemon.log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    // Commands

    /// Returns a command with the test's environment and working directory.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.base.join("bin").join(name));
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.base.join("bin").display()))
            .env("HOME", self.base.join("home"))
            .env("LANG", "C")
            .env("SHELL", "/bin/sh")
            .env("TZ", zone())
            .env("SLOTD_ROOT", &self.root)
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to completion.
    #[track_caller]
    pub fn cmd<S: AsRef<std::ffi::OsStr>>(&self, name: &str, args: &[S]) -> Out {
        let mut command = self.command(name);
        command.args(args);
        self.run(command)
    }

    /// Runs a prepared command to completion.
    #[track_caller]
    pub fn run(&self, command: Command) -> Out {
        self.spawn(command).end()
    }

    /// Like [`Self::run`], with text on standard input.
    #[track_caller]
    pub fn feed(&self, mut command: Command, text: impl Into<Vec<u8>>) -> Out {
        command.stdin(Stdio::piped());
        let mut running = self.spawn(command);
        let mut stdin = running.child.stdin.take().unwrap();
        let text = text.into();
        // A command that does not read must not block the test.
        let writer = thread::spawn(move || drop(stdin.write_all(&text)));
        let out = running.end();
        drop(writer);
        out
    }

    /// Starts a command in the background.
    #[track_caller]
    pub fn spawn(&self, mut command: Command) -> Running {
        let line = format!("{command:?}").replace(&format!("{}/", self.base.display()), "");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Stream::of(child.stdout.take().unwrap());
        let stderr = Stream::of(child.stderr.take().unwrap());
        Running { child, stdout, stderr, line, log: self.log_path() }
    }

    /// Splits a command line at spaces and runs it.
    #[track_caller]
    pub fn line(&self, line: &str) -> Out {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.cmd(words[0], &words[1..])
    }

    /// Asserts the exit code, standard output and standard error of a command line.
    #[track_caller]
    pub fn expect(&self, line: &str, code: i32, stdout: &str, stderr: &str) {
        let out = self.line(line);
        assert_eq!(
            (out.code, out.stdout.as_str(), out.stderr.as_str()),
            (code, stdout, stderr),
            "{line}"
        );
    }

    /// Replaces what differs between two runs or two machines by placeholders: the test's
    /// directory, the host, the user, and every timestamp.
    pub fn stable(&self, text: &str) -> String {
        let user =
            self.sh("printf '%s(%s) %s(%s)' $(id -un) $(id -u) $(id -gn) $(id -g)").ok().stdout;
        let (user, group) = user.split_once(' ').expect("two words");
        let text = text
            .replace(&self.base.display().to_string(), "{base}")
            .replace(&format!("UserId={user}"), "UserId={user}")
            .replace(&format!("GroupId={group}"), "GroupId={group}")
            .replace(&format!("AllocNode:Sid={}:", host()), "AllocNode:Sid={host}:");
        let words = text.split_inclusive([' ', '\n', '=']).map(|word| {
            let bare = word.trim_end();
            let is_time = bare.len() == 19 && bare.as_bytes()[10] == b'T' && bare.starts_with("20");
            if is_time { format!("{{time}}{}", &word[bare.len()..]) } else { word.to_owned() }
        });
        words.collect()
    }

    /// Runs `sh -c` with the commands in the path.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Out {
        let mut command = self.shell();
        command.arg("-c").arg(script);
        self.run(command)
    }

    /// Returns a shell with the test's environment.
    pub fn shell(&self) -> Command {
        let model = self.command("slotd");
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().current_dir(self.work()).stdin(Stdio::null());
        shell.envs(
            model.get_envs().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))),
        );
        shell
    }

    /// Submits a job with sbatch and returns its ID.
    #[track_caller]
    pub fn submit<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> u32 {
        let mut command = self.command("sbatch");
        command.arg("--parsable").args(args);
        let out = self.run(command).ok();
        out.text().parse().unwrap_or_else(|_| panic!("no job number in {out:?}"))
    }

    /// Submits a job with `--wrap`.
    #[track_caller]
    pub fn wrap(&self, args: &[&str], script: &str) -> u32 {
        self.submit(&[args, &["--wrap", script]].concat())
    }

    /// Submits a job that runs until it is cancelled or the test ends.
    #[track_caller]
    pub fn endless(&self, args: &[&str]) -> u32 {
        let id = self.wrap(args, "exec sleep 1000");
        self.wait_state(id, "RUNNING");
        id
    }

    /// Submits a job that runs `then` once the gate is open, and waits until its script has begun.
    /// A RUNNING job may not have executed its first instruction yet, and if the daemon is killed
    /// at that moment, nothing was launched.
    #[track_caller]
    pub fn begun(&self, args: &[&str], gate: &str, then: &str) -> u32 {
        let id =
            self.wrap(args, &format!("echo > begun.$SLURM_JOB_ID; {}; {then}", self.gate(gate)));
        self.wait_text(&format!("begun.{id}"), "\n");
        id
    }

    /// Submits a job with `--wrap`, waits until it is COMPLETED, and returns its standard output.
    #[track_caller]
    pub fn ran(&self, args: &[&str], script: &str) -> String {
        let id = self.wrap(args, script);
        self.wait_state(id, "COMPLETED");
        self.output(id)
    }

    /// Submits a held job, and returns what squeue prints for it in this format.
    #[track_caller]
    pub fn shown(&self, args: &[&str], format: &str) -> String {
        let id = self.wrap(&[args, &["--hold"]].concat(), "true");
        self.cmd("squeue", &["-h", "-j", &id.to_string(), "-o", format]).ok().text().to_owned()
    }

    /// Returns a value from `scontrol show job`.
    #[track_caller]
    pub fn show(&self, id: u32, key: &str) -> String {
        let all = self.cmd("scontrol", &["show", "job", "-o", &id.to_string()]).ok();
        let prefix = format!("{key}=");
        let found = all.text().split(' ').find_map(|word| word.strip_prefix(&prefix));
        found.unwrap_or_else(|| panic!("no {key} in {}", all.text())).to_owned()
    }

    /// Returns slotd's comment on the job, if any.
    #[track_caller]
    pub fn system_comment(&self, id: u32) -> String {
        let shown = self.cmd("scontrol", &["show", "job", &id.to_string()]).ok().stdout;
        let found = shown.lines().find_map(|line| line.trim().strip_prefix("SystemComment="));
        found.unwrap_or_default().replace("\\040", " ")
    }

    /// Sets a job's time limit in seconds. On the command line, limits are whole minutes.
    #[track_caller]
    pub fn limit(&self, id: u32, secs: u64) {
        let update = json!({ "Control": { "jobs": [{ "job": id }], "action": { "Update": [{ "TimeLimit": secs }] } } });
        self.ask(&update).unwrap_or_else(|e| panic!("the limit of job {id}: {e}"));
    }

    /// Submits `script` as a file.
    #[track_caller]
    pub fn script(&self, args: &[&str], script: &str) -> u32 {
        self.write("job.sh", script);
        self.submit(&[args, &["job.sh"]].concat())
    }

    // Files in the working directory

    pub fn work(&self) -> PathBuf {
        self.base.join("work")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    #[track_caller]
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes an executable file.
    #[track_caller]
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        scripts::executable(&path, text);
        path
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns the standard output of a batch job that set no output file.
    #[track_caller]
    pub fn output(&self, id: u32) -> String {
        self.read(&format!("slurm-{id}.out"))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Waits until a file contains a text, and returns the whole file.
    #[track_caller]
    pub fn wait_text(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        self.wait(&format!("{text:?} in {name}"), || {
            fs::read_to_string(&path).ok().filter(|all| all.contains(text))
        })
    }

    /// Returns shell code that waits until `open` is called with this name.
    pub fn gate(&self, name: &str) -> String {
        format!("until [ -e '{}' ]; do sleep 0.03; done", self.path(name).display())
    }

    #[track_caller]
    pub fn open(&self, name: &str) {
        self.write(name, "");
    }

    // Jobs

    /// Sends a request to the daemon and returns its answer.
    ///
    /// # Errors
    /// Fails if the daemon is down or refuses.
    pub fn ask(&self, request: &Value) -> Result<Value, String> {
        wire::ask(&self.root, request)
    }

    /// Returns all records of a job: itself, or the tasks of an array.
    #[track_caller]
    pub fn records(&self, id: u32) -> Vec<Record> {
        let request = json!({ "Accounting": { "jobs": [{ "job": id }] } });
        let answer = self.ask(&request).unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        let list =
            answer["Jobs"]["jobs"].as_array().unwrap_or_else(|| panic!("no jobs in {answer}"));
        list.iter().map(Record::of).collect()
    }

    /// Returns all records of all jobs.
    #[track_caller]
    pub fn all_records(&self) -> Vec<Record> {
        let answer = self
            .ask(&json!({ "Accounting": {} }))
            .unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        answer["Jobs"]["jobs"].as_array().unwrap().iter().map(Record::of).collect()
    }

    /// Returns the record with this job ID.
    #[track_caller]
    pub fn job(&self, id: u32) -> Record {
        let found = self.records(id).into_iter().find(|record| record.id() == id);
        found.unwrap_or_else(|| panic!("job {id} does not exist"))
    }

    /// Returns the job as queued, with the reason why it is pending.
    #[track_caller]
    pub fn queued(&self, id: u32) -> Record {
        let answer = self.ask(&json!({ "Jobs": { "jobs": [{ "job": id }] } })).unwrap();
        let found =
            answer["Jobs"]["jobs"].as_array().unwrap().iter().find(|view| view["job"]["id"] == id);
        Record::of(found.unwrap_or_else(|| panic!("job {id} is not in the queue: {answer}")))
    }

    #[track_caller]
    pub fn state(&self, id: u32) -> String {
        self.job(id).state()
    }

    #[track_caller]
    pub fn wait_state(&self, id: u32, state: &str) -> Record {
        let mut last = String::new();
        let found = until(|| {
            let job = self.job(id);
            last = job.state();
            // A final state never changes again.
            let over = job.is_over() && last != state;
            assert!(!over, "job {id} is {last} ({}), not {state}\n{}", job.reason(), self.dump());
            (last == state).then_some(job)
        });
        found.unwrap_or_else(|| panic!("job {id} is {last}, not {state}\n{}", self.dump()))
    }

    /// Waits until the job has ended in any state.
    #[track_caller]
    pub fn wait_end(&self, id: u32) -> Record {
        self.wait(&format!("the end of job {id}"), || Some(self.job(id)).filter(Record::is_over))
    }

    /// Waits until all tasks of an array have ended. Returns their records ordered by task.
    #[track_caller]
    pub fn wait_array(&self, id: u32, tasks: usize) -> Vec<Record> {
        self.wait(&format!("the end of {tasks} tasks of array {id}"), || {
            let mut records = self.records(id);
            records.sort_by_key(Record::task);
            Some(records).filter(|all| all.len() == tasks && all.iter().all(Record::is_over))
        })
    }

    /// Waits until a job is pending for this reason.
    #[track_caller]
    pub fn wait_reason(&self, id: u32, reason: &str) {
        let mut last = String::new();
        let found = until(|| {
            let job = self.queued(id);
            last = format!("{} ({})", job.state(), job.reason());
            (job.state() == "PENDING" && job.reason() == reason).then_some(())
        });
        assert!(found.is_some(), "job {id} is {last}, not pending for {reason}\n{}", self.dump());
    }

    /// Waits until the GPUs have been detected. The daemon starts without them if `nvidia-smi`
    /// takes more than two seconds, as it may on a busy machine.
    #[track_caller]
    pub fn wait_gpus(&self) {
        self.wait("the GPUs", || {
            self.line("sinfo -h -o %G").ok().stdout.contains("gpu:").then_some(())
        });
    }

    /// Waits for a condition.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        until(look).unwrap_or_else(|| panic!("timed out waiting for {what}\n{}", self.dump()))
    }

    #[track_caller]
    pub fn cancel(&self, id: u32) {
        self.cmd("scancel", &[id.to_string()]).ok();
    }

    /// Returns fields of `sacct` for a job.
    #[track_caller]
    pub fn sacct(&self, id: u32, fields: &str) -> String {
        self.cmd("sacct", &["-nXP", "-j", &id.to_string(), "-o", fields]).ok().text().to_owned()
    }

    /// Returns fields of `sacct` for a job and its steps, one line each.
    #[track_caller]
    pub fn steps(&self, id: u32, fields: &str) -> String {
        self.cmd("sacct", &["-nP", "-j", &id.to_string(), "-o", fields]).ok().text().to_owned()
    }

    pub fn job_dir(&self, id: u32) -> PathBuf {
        self.root.join("lib/jobs").join(id.to_string())
    }

    /// Returns the processes of this test except for the daemon.
    pub fn processes(&self) -> Vec<i32> {
        let daemon = self.daemon.as_ref().map_or(0, |d| d.id() as i32);
        proc::of_directory(&self.base).into_iter().filter(|pid| *pid != daemon).collect()
    }

    /// Returns the watcher of a running job's batch step: the parent of the process with the job's
    /// environment.
    #[track_caller]
    pub fn watcher_of(&self, id: u32) -> i32 {
        let wanted = format!("SLURM_JOB_ID={id}");
        self.wait(&format!("the watcher of job {id}"), || {
            proc::of_directory(&self.base).into_iter().find_map(|pid| {
                let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
                environ.split(|b| *b == 0).any(|entry| entry == wanted.as_bytes()).then_some(())?;
                let parent = proc::parent(pid)?;
                proc::cmdline(parent).contains("__launcher").then_some(parent)
            })
        })
    }

    /// Returns the jobs and the daemon's log, to print when a test fails.
    pub fn dump(&self) -> String {
        let mut text = String::from("--- jobs\n");
        match self.ask(&json!({ "Accounting": {} })) {
            Ok(answer) => {
                for job in answer["Jobs"]["jobs"].as_array().into_iter().flatten() {
                    let job = Record::of(job);
                    text +=
                        &format!("{} {} {} {}\n", job.id(), job.state(), job.reason(), job.exit());
                }
            }
            Err(e) => text += &format!("{e}\n"),
        }
        text + "--- log\n" + &self.log()
    }
}

impl Drop for Slotd {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.dump());
        }
        if let Some(mut daemon) = self.daemon.take() {
            drop(daemon.kill());
            drop(daemon.wait());
        }
        // A process may start another one just before it is killed, so repeat until none is left.
        let gone = until(|| {
            let left = proc::of_directory(&self.base);
            for pid in &left {
                proc::signal(*pid, proc::KILL);
            }
            left.is_empty().then_some(())
        });
        if gone.is_none() && !thread::panicking() {
            panic!("processes outlive SIGKILL: {:?}", proc::of_directory(&self.base));
        }
    }
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    stdout: Stream,
    stderr: Stream,
    line: String,
    log: PathBuf,
}

/// The output of a pipe, collected as it arrives.
#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn of(mut from: impl Read + Send + 'static) -> Stream {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut chunk = [0; 65_536];
            // Output read before an error still counts.
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                keep.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Stream { bytes, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.so_far()
    }
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        proc::signal(self.pid(), signal);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until the command has printed this text on standard error.
    #[track_caller]
    pub fn wait_stderr(&mut self, text: &str) {
        let printed = until(|| self.stderr.so_far().contains(text).then_some(()));
        assert!(
            printed.is_some(),
            "`{}` did not print {text:?} but {:?}",
            self.line,
            self.stderr.so_far()
        );
    }

    /// Waits until standard output has a line with this text, and returns the line.
    #[track_caller]
    pub fn wait_stdout(&mut self, text: &str) -> String {
        let line = |so_far: String| {
            so_far
                .split_inclusive('\n')
                .find(|l| l.contains(text) && l.ends_with('\n'))
                .map(|l| l.trim_end().to_owned())
        };
        let printed = until(|| line(self.stdout.so_far()));
        printed.unwrap_or_else(|| {
            panic!(
                "`{}` did not print {text:?} but {:?}, {:?}",
                self.line,
                self.stdout.so_far(),
                self.stderr.so_far()
            )
        })
    }

    /// Waits until the command and its output have ended.
    #[track_caller]
    pub fn end(mut self) -> Out {
        let Some(status) = until(|| self.child.try_wait().unwrap()) else {
            proc::signal(self.pid(), proc::KILL);
            let printed = (self.stdout.so_far(), self.stderr.so_far());
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            panic!("`{}` does not exit; it printed {printed:?}\n{log}", self.line);
        };
        Out {
            stdout: self.stdout.whole(),
            stderr: self.stderr.whole(),
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            line: self.line.clone(),
        }
    }
}

impl Drop for Running {
    /// Kills a client left behind by a failed test.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// A job record as the daemon sends it.
#[derive(Debug, Clone)]
pub struct Record(pub Value);

impl Record {
    /// Takes the job from a view, and merges the fields of its run into it.
    pub fn of(view: &Value) -> Record {
        let mut job = view["job"].clone();
        let mut run = job["run"].take();
        job.as_object_mut()
            .expect("a job is an object")
            .append(run.as_object_mut().expect("a run is an object"));
        Record(job)
    }

    pub fn id(&self) -> u32 {
        self.0["id"].as_u64().unwrap() as u32
    }

    pub fn state(&self) -> String {
        self.0["state"].as_str().unwrap().to_owned()
    }

    pub fn reason(&self) -> String {
        self.0["reason"].as_str().unwrap().to_owned()
    }

    /// Returns `status:signal`.
    pub fn exit(&self) -> String {
        format!("{}:{}", self.0["exit"]["status"], self.0["exit"]["signal"])
    }

    pub fn is_over(&self) -> bool {
        let live = ["PENDING", "RUNNING", "SUSPENDED", "COMPLETING"];
        !live.contains(&self.state().as_str())
    }

    /// Returns the array task ID.
    pub fn task(&self) -> Option<u64> {
        self.0["role"]["Task"]["task"].as_u64()
    }

    /// Returns microseconds since 1970.
    pub fn start(&self) -> i64 {
        self.0["start"].as_i64().unwrap_or_else(|| panic!("job {} has not started", self.id()))
    }

    pub fn end(&self) -> i64 {
        self.0["end"].as_i64().unwrap_or_else(|| panic!("job {} has not ended", self.id()))
    }

    pub fn restarts(&self) -> u64 {
        self.0["restarts"].as_u64().unwrap()
    }

    pub fn steps(&self) -> &[Value] {
        self.0["steps"].as_array().map_or(&[], Vec::as_slice)
    }

    pub fn partition(&self) -> &str {
        self.0["partition"].as_str().unwrap()
    }

    /// Returns the CPUs, megabytes and GPUs that it requests.
    pub fn tres(&self) -> (u64, u64, u64) {
        let tres = &self.0["tres"];
        (
            tres["cpus"].as_u64().unwrap(),
            tres["mem_mb"].as_u64().unwrap(),
            tres["gpus"].as_u64().unwrap(),
        )
    }

    pub fn gpu_ids(&self) -> Vec<u64> {
        self.0["alloc"]["gpu_ids"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .collect()
    }
}

/// Returns the largest number of these records that were running at the same time.
pub fn most_at_once(records: &[Record]) -> usize {
    let starts = records.iter().map(|r| (r.start(), 1));
    let ends = records.iter().map(|r| (r.end(), -1));
    let mut edges: Vec<(i64, i32)> = starts.chain(ends).collect();
    // If one ends when another starts, they do not overlap.
    edges.sort_unstable();
    let mut open = 0;
    edges
        .iter()
        .map(|(_, step)| {
            open += step;
            open
        })
        .max()
        .unwrap_or(0) as usize
}

/// Returns the host name without the domain, as jobs and nodes use it.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("the host has a name");
    name.trim_end().split('.').next().unwrap_or_default().to_owned()
}

/// Returns the program under test, which cargo builds next to the tests. `SLOTD_TEST_PROGRAM`
/// overrides it if the tests run on another machine, as tests that need a delegated cgroup do in a
/// guest.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let named = std::env::var_os("SLOTD_TEST_PROGRAM").map(PathBuf::from);
        named.unwrap_or_else(|| {
            // target/debug/deps/scheduling-0123456789abcdef
            let test = std::env::current_exe().expect("this program has a path");
            let built = test.ancestors().nth(2).expect("tests are built in deps").join("slotd");
            assert!(built.is_file(), "{} does not exist: run cargo build", built.display());
            built
        })
    })
}

/// Returns the helper program built by this crate's build script. `SLOTD_TEST_HELPER` overrides it
/// on another machine.
fn helper() -> PathBuf {
    std::env::var_os("SLOTD_TEST_HELPER")
        .map_or_else(|| PathBuf::from(env!("HELPER")), PathBuf::from)
}
