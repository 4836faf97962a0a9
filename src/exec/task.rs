//! Starts a task: its environment, and everything between fork and exec.

use crate::affinity;
use crate::environment::pmi_variables;
use crate::job_files::{self, Opened, Streams};
use crate::launch_spec::{LaunchSpec, TaskSpec};
use crate::{LaunchError, LaunchFault};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{AccessFlags, Pid, access, dup2_stderr, dup2_stdin, dup2_stdout, setpgid};
use slotd_model::node::HostFault;
use slotd_model::rlimits::Rlimit;
use slotd_sys::fork::{Memory, fork_into};
use slotd_sys::umask::Umask;
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The number of attempts to execute a script that somebody still has open for writing, and the
/// pause between them.
const BUSY_TRIES: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// `KEY=VALUE` entries with the null bytes that end them.
pub(super) type Environment<'a> = Vec<Cow<'a, CStr>>;

/// Returns the environment of a task's processes, except `SLURM_TASK_PID`: the step's variables
/// that the task does not replace, and those of the task.
pub(super) fn environment<'a>(spec: &'a LaunchSpec, task: &'a TaskSpec) -> Environment<'a> {
    let is_of_task = |name: &[u8]| task.env.iter().any(|(own, _)| own.as_bytes() == name);
    let of_step = spec.env.split_inclusive(|b| *b == 0).filter(|entry| {
        let name = entry.split(|b| *b == b'=').next().unwrap_or_default();
        name != TASK_PID && !is_of_task(name)
    });
    // Only an entry that was cut off has no null byte at its end.
    let of_step = of_step.filter_map(|entry| CStr::from_bytes_with_nul(entry).ok());
    let of_task = task.env.iter().enumerate().filter(|(i, (name, _))| {
        let is_replaced = task.env[i + 1..].iter().any(|(later, _)| later == name);
        name.as_bytes() != TASK_PID && !is_replaced
    });
    let of_task =
        of_task.filter_map(|(_, (name, value))| CString::new(format!("{name}={value}")).ok());
    of_step.map(Cow::Borrowed).chain(of_task.map(Cow::Owned)).collect()
}

/// The variable that a task sets itself.
const TASK_PID: &[u8] = b"SLURM_TASK_PID";

/// Returns the command of a task: the script with its arguments, the task's own command, or the
/// step's.
pub(super) fn command(spec: &LaunchSpec, task: &TaskSpec) -> Vec<Vec<u8>> {
    let argv = task.argv.as_ref().unwrap_or(&spec.argv).iter().map(|arg| arg.as_bytes().to_vec());
    match spec.script {
        Some(_) => std::iter::once(script_path(spec).into_os_string().into_encoded_bytes())
            .chain(argv)
            .collect(),
        None => argv.collect(),
    }
}

/// Returns `<job_dir>/script.sh`.
pub(super) fn script_path(spec: &LaunchSpec) -> PathBuf {
    spec.job_dir.join(job_files::SCRIPT)
}

const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// The context of a fork, in addition to the spec.
pub(super) struct ForkContext<'a> {
    pub spec: &'a LaunchSpec,
    pub task: &'a TaskSpec,
    pub streams: &'a Streams,
    /// The pipe for failures, close-on-exec. A task that cannot be started writes the reason to it.
    /// When all copies are closed, all tasks are running.
    pub failures: RawFd,
    /// Both ends of a pipe. The task starts when the watcher closes the write end, so that either
    /// all tasks of a step start or none. A single task needs no gate.
    pub gate: Option<(RawFd, RawFd)>,
    /// The watcher's limit on descriptors before it was raised.
    pub nofile: Option<Rlimit>,
    /// Set if it is higher than the watcher's.
    pub oom_score_adj: Option<u32>,
    pub watcher: i32,
    /// Its socket to the server of an MPI program's ranks. Close-on-exec until the task executes.
    pub pmi: Option<RawFd>,
}

impl ForkContext<'_> {
    /// Returns the memory that the task uses until it executes its program. A task that first waits
    /// for others needs a copy: sharing the memory would block the watcher.
    fn memory(&self) -> Memory {
        let waits = self.gate.is_some()
            || self.streams.iter().any(|stream| matches!(stream, Opened::Fifo { .. }));
        if waits { Memory::Copy } else { Memory::Parents }
    }
}

/// The program of a task. Owned by the watcher, because a task that shares the watcher's memory
/// frees nothing when it executes.
struct Program<'a> {
    argv: Vec<CString>,
    env: Environment<'a>,
    file: Option<CString>,
    /// The arguments of `execve`: `argv` and `env`.
    pointers: [Vec<*const libc::c_char>; 2],
}

impl<'a> Program<'a> {
    fn new(context: &ForkContext<'a>) -> Result<Program<'a>, LaunchError> {
        let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| LaunchError::ZeroByte);
        let argv: Vec<CString> = command(context.spec, context.task)
            .into_iter()
            .map(c_string)
            .collect::<Result<_, _>>()?;
        if argv.is_empty() {
            return Err(LaunchError::NoCommand);
        }
        let ForkContext { spec, task, pmi, .. } = context;
        let mut env = environment(spec, task);
        let pmi =
            pmi.iter().flat_map(|end| pmi_variables(spec.step, task.rank, spec.tasks.len(), *end));
        let pmi = pmi.filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok());
        env.extend(pmi.map(Cow::Owned));
        Ok(Program { argv, env, file: None, pointers: [Vec::new(), Vec::new()] })
    }

    fn path(&self) -> Option<&[u8]> {
        self.env.iter().find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="))
    }

    /// Executes the command. Returns only if that fails, with the name for the message and the
    /// error. `is_own` means that slotd wrote the script.
    fn execute(&mut self, is_own: bool) -> (String, Errno) {
        let own_pid = CString::new(format!("SLURM_TASK_PID={}", std::process::id()));
        self.env.extend(own_pid.map(Cow::Owned));
        let name = self.argv[0].as_bytes();
        self.file = if name.contains(&b'/') { None } else { search(name, self.path()) };
        let file = self.file.as_ref().unwrap_or(&self.argv[0]);
        let null = [std::ptr::null()];
        self.pointers = [
            self.argv.iter().map(|word| word.as_ptr()).chain(null).collect(),
            self.env.iter().map(|entry| entry.as_ptr()).chain(null).collect(),
        ];
        let [argv, env] = &self.pointers;
        let mut tries = if is_own { BUSY_TRIES } else { 0 };
        let error = loop {
            // SAFETY: the words end with a null byte, the lists with a null pointer.
            unsafe { libc::execve(file.as_ptr(), argv.as_ptr(), env.as_ptr()) };
            let error = Errno::last();
            // A process that was started while the script was being written has copies of all
            // descriptors until it executes.
            if error != Errno::ETXTBSY || tries == 0 {
                break error;
            }
            tries -= 1;
            thread::sleep(BUSY_PAUSE);
        };
        let as_path = Path::new(OsStr::from_bytes(file.as_bytes()));
        if let (Errno::ENOENT, Some(interpreter)) = (error, interpreter(as_path)) {
            return (format!("bad interpreter({interpreter})"), error);
        }
        let shown = match (name.contains(&b'/') && name[0] != b'/', std::env::current_dir()) {
            // As in Slurm, show `./x` with the directory.
            (true, Ok(dir)) => format!("{}/{}", dir.display(), String::from_utf8_lossy(name)),
            _ => String::from_utf8_lossy(name).into_owned(),
        };
        (shown, error)
    }
}

/// Forks the task and returns its PID. The task is in its own process group then.
///
/// # Errors
/// Fails if a word of the command contains a null byte or the fork fails.
pub(super) fn spawn(context: &ForkContext) -> Result<i32, LaunchError> {
    let mut program = Program::new(context)?;
    // SAFETY: the watcher has a single thread.
    let child = unsafe { fork_into(context.memory(), &mut || be_task(context, &mut program)) };
    let child = child.map_err(LaunchError::system("fork"))?;
    if !context.spec.pty {
        // Both sides do this, so that neither has to wait for the other. It fails if the child has
        // already executed.
        let _ = setpgid(child, child);
    }
    Ok(child.as_raw())
}

/// Becomes the task, in the child. Returns the exit code if that is not possible.
fn be_task(context: &ForkContext, program: &mut Program) -> i32 {
    if let Some((read, write)) = context.gate {
        wait_for_gate(read, write);
    }
    if let Err(error) = prepare(context) {
        // Write the line in one piece, since other tasks write to the same pipe.
        let _ = nix::unistd::write(
            borrow(context.failures),
            line_of(&error, &context.spec.job_dir).as_bytes(),
        );
        return 1;
    }
    let (name, error) = program.execute(context.spec.script.is_some());
    print_line(&format!("error: execve(): {name}: {}", error.desc()));
    // As in Slurm: 2 for a command that is not found, 13 for one that may not be executed.
    error as i32
}

/// Returns when the watcher closes its end of the pipe.
fn wait_for_gate(read: RawFd, write: RawFd) {
    // SAFETY: the descriptor is this process's copy and is not used again.
    unsafe { libc::close(write) };
    while let Err(Errno::EINTR) = nix::unistd::read(borrow(read), &mut [0u8; 1]) {}
}

/// Formats a failure for the watcher: the index of the host fault in [`HostFault::ALL`], or a
/// hyphen, followed by the text.
fn line_of(error: &LaunchError, job_dir: &Path) -> String {
    let place = match error.fault(job_dir) {
        LaunchFault::Host(fault) => HostFault::ALL.iter().position(|known| *known == fault),
        LaunchFault::Job => None,
    };
    format!("{}\t{error}\n", place.map_or_else(|| "-".to_owned(), |place| place.to_string()))
}

/// Returns the reasons why tasks could not be started, from the lines that they wrote, without
/// duplicates. Also returns the host fault of the last line, if any.
pub(super) fn reasons(lines: &str) -> (String, Option<HostFault>) {
    let mut all: Vec<&str> = Vec::new();
    let mut fault = None;
    for line in lines.lines() {
        let (place, text) = line.split_once('\t').unwrap_or(("-", line));
        fault = place.parse().ok().and_then(|place: usize| HostFault::ALL.get(place).copied());
        if !all.contains(&text) {
            all.push(text);
        }
    }
    (all.join("; "), fault)
}

fn borrow(fd: RawFd) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: the descriptors that a task inherits stay open until it executes or exits.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}

/// Prints a line to the task's standard error, where Slurm's users expect it.
fn print_line(text: &str) {
    let _ = nix::unistd::write(borrow(2), format!("slurmstepd: {text}\n").as_bytes());
}

/// Does everything but the exec. An error is a failure of the launch, not of the command.
fn prepare(context: &ForkContext) -> Result<(), LaunchError> {
    let ForkContext { spec, task, .. } = context;
    // Without its watcher, a task would keep running on resources that are allocated to others, and
    // nobody would report its end. So it is killed too.
    set_pdeathsig(Signal::SIGKILL).map_err(LaunchError::system("set the parent death signal"))?;
    if nix::unistd::getppid().as_raw() != context.watcher {
        return Err(LaunchError::NoWatcher);
    }
    if spec.pty && task.rank == 0 {
        nix::unistd::setsid().map_err(LaunchError::system("start a session"))?;
    } else {
        // This cannot fail for a new child.
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
        discard_keys();
    }
    if let Some(cgroup) = &spec.cgroup {
        join(cgroup)?;
    }
    if let Some(wanted) = context.oom_score_adj {
        // If the host runs out of memory, the kernel kills this process and its children before the
        // watcher and the daemon. Every process may raise its own score. Ignore systems without the
        // file.
        let _ = fs::write(OOM_SCORE_ADJ, wanted.to_string());
    }
    connect(context.streams)?;
    if spec.pty && task.rank == 0 {
        // SAFETY: TIOCSCTTY takes a number. 0 means not to steal the terminal of another session.
        if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } == -1 {
            return Err(LaunchError::system("get a controlling terminal")(Errno::last()));
        }
    }
    match affinity::bind(&task.cpus) {
        // CPUs may have gone offline since the daemon checked. The kernel then chooses others.
        Err(e) if task.must_bind => return Err(LaunchError::Affinity(e)),
        Ok(()) | Err(_) => {}
    }
    if let Some(text) = &task.report_binding {
        let line = format!("{text} [{}]: mask {} set\n", std::process::id(), affinity::mask());
        let _ = nix::unistd::write(borrow(2), line.as_bytes());
    }
    if let Some(memory) = &task.memory {
        let mask =
            affinity::bind_memory(&memory.nodes, memory.prefers).map_err(LaunchError::Affinity)?;
        if let Some(text) = &memory.report {
            let line = format!("{text} [{}]: mask {mask} set\n", std::process::id());
            let _ = nix::unistd::write(borrow(2), line.as_bytes());
        }
    }
    for limit in context.nofile.iter().chain(spec.rlimits.iter()) {
        set_limit(limit);
    }
    std::env::set_current_dir(&spec.work_dir).map_err(job_files::no_work_dir(&spec.work_dir))?;
    unblock_signals();
    close_on_exec();
    if let Some(end) = context.pmi {
        let kept = fcntl(borrow(end), FcntlArg::F_SETFD(FdFlag::empty()));
        kept.map_err(LaunchError::system("pass on a socket"))?;
    }
    Ok(())
}

fn join(cgroup: &Path) -> Result<(), LaunchError> {
    let path = cgroup.join("cgroup.procs");
    // Do not create a missing file: a plain directory must not look like a cgroup.
    let joined =
        OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"0"));
    joined.map_err(LaunchError::file("join the cgroup", cgroup))
}

/// Returns the `oom_score_adj` of this process.
pub(super) fn oom_score_adj() -> i64 {
    fs::read_to_string(OOM_SCORE_ADJ).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn connect(streams: &Streams) -> Result<(), LaunchError> {
    if streams.iter().any(|stream| matches!(stream, Opened::Fifo { .. })) {
        // The other end may never be opened, so a task that waits for it must be killable with
        // SIGTERM.
        unblock_signals();
    }
    for (target, stream) in streams.iter().enumerate() {
        let source = match stream {
            Opened::Raw(fd) => *fd,
            // If standard error is the same named pipe as standard output, share the description.
            Opened::Fifo { .. } if target == 2 && *stream == streams[1] => 1,
            Opened::Fifo { path, write } => OpenOptions::new()
                .read(!write)
                .write(*write)
                .custom_flags(libc::O_NOCTTY)
                .open(path)
                .map_err(LaunchError::file("open", path))?
                .into_raw_fd(),
        };
        // All sources are above 2, except for the two cases that copy an earlier target.
        let connected = match target {
            0 => dup2_stdin(borrow(source)),
            1 => dup2_stdout(borrow(source)),
            _ => dup2_stderr(borrow(source)),
        };
        connected.map_err(LaunchError::system("connect a standard stream"))?;
    }
    Ok(())
}

fn set_limit(limit: &Rlimit) {
    let wanted = libc::rlimit { rlim_cur: limit.soft, rlim_max: limit.hard };
    // SAFETY: the pointer is to a live rlimit.
    if unsafe { libc::setrlimit(limit.resource as _, &wanted) } == 0 {
        return;
    }
    // A hard limit cannot be raised again. Set at least the soft limit, as far as possible.
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to live rlimits.
    unsafe {
        if libc::getrlimit(limit.resource as _, &mut now) == 0 {
            now.rlim_cur = limit.soft.min(now.rlim_max);
            libc::setrlimit(limit.resource as _, &now);
        }
    }
}

/// Sets the umask of the submitter, which the tasks inherit, while this process opens their files and
/// forks them. It must not apply to slotd's own files, or to the next step that this process watches.
pub(super) fn set_umask(spec: &LaunchSpec) -> Umask {
    Umask::set(spec.umask.unwrap_or(0o022))
}

/// Resets all signals, so that a task does not inherit those that the launcher or the Rust runtime
/// ignores or handles. A watcher, which blocks all signals, calls this once: its tasks inherit the
/// result.
pub(super) fn default_signals() {
    // Use the kernel's call: the C library reserves signals 32 and 33, which may have been
    // inherited as ignored. All zeros is the default action without flags; 8 is the size of a
    // signal set.
    let default = [0u64; 4];
    // SAFETY: plain system calls on live values. They fail for signals that cannot be changed,
    // which is fine.
    unsafe {
        for signal in 1..=64 {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, 8usize);
        }
    }
}

/// Discards signals of terminal keys that were pressed before this process had its own group. They
/// were meant for the launcher, which received them too. Signals that the launcher sends to a task
/// arrive only after it has executed.
fn discard_keys() {
    for key in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP] {
        // SAFETY: no handler is set. Ignoring a signal discards a pending one.
        unsafe {
            let _ = nix::sys::signal::signal(key, SigHandler::SigIgn);
            let _ = nix::sys::signal::signal(key, SigHandler::SigDfl);
        }
    }
}

fn unblock_signals() {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

/// Closes all descriptors but 0, 1 and 2 on exec, including any that came from elsewhere through
/// the daemon and the launcher.
fn close_on_exec() {
    // SAFETY: close_range takes numbers.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return;
    }
    // Kernels before 5.11.
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return };
    for fd in entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<RawFd>().ok())
        .filter(|fd| *fd > 2)
    {
        // This fails for the descriptor that read the directory, which is closed already.
        let _ = fcntl(borrow(fd), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    }
}

/// Returns the first program of this name in `PATH`. If `PATH` has no such program, the caller
/// tries the name relative to the working directory, as Slurm does.
fn search(name: &[u8], path: Option<&[u8]>) -> Option<CString> {
    let runnable = |file: &Path| {
        let Ok(meta) = fs::metadata(file) else { return false };
        meta.is_file()
            && meta.permissions().mode() & 0o111 != 0
            && access(file, AccessFlags::X_OK).is_ok()
    };
    let path = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    for dir in path.split(|b| *b == b':') {
        let dir = if dir.is_empty() { b".".as_slice() } else { dir };
        let file = Path::new(OsStr::from_bytes(dir)).join(OsStr::from_bytes(name));
        if runnable(&file) {
            return CString::new(file.into_os_string().into_encoded_bytes()).ok();
        }
    }
    None
}

/// Returns the program after `#!`, if the file exists and starts with it.
fn interpreter(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    let line = text.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().next()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_pressed_before_a_task_has_its_own_group_are_discarded() {
        use nix::sys::signal::raise;
        let keys = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP];
        // As in the launcher, which reads signals from a descriptor. Only this thread gets them.
        thread::spawn(move || {
            keys.into_iter().collect::<SigSet>().thread_block().unwrap();
            let pending = || {
                // SAFETY: all zeros is a valid set, which the call overwrites.
                let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
                // SAFETY: the pointer is to a live set.
                assert_eq!(unsafe { libc::sigpending(&mut set) }, 0);
                // SAFETY: as above.
                keys.map(|key| unsafe { libc::sigismember(&set, key as i32) })
            };
            keys.into_iter().for_each(|key| raise(key).unwrap());
            assert_eq!(pending(), [1, 1, 1]);
            discard_keys();
            assert_eq!(pending(), [0, 0, 0]);
        })
        .join()
        .unwrap();
    }

    fn entries(spec: &LaunchSpec, task: &TaskSpec) -> Vec<Vec<u8>> {
        environment(spec, task).iter().map(|entry| entry.to_bytes().to_vec()).collect()
    }

    #[test]
    fn variables_of_a_task_replace_those_of_the_step() {
        let pair = |n: &str, v: &str| (n.to_string(), v.to_string());
        let spec = LaunchSpec {
            env: b"A=1\0NN=2\0N=3\0SLURM_TASK_PID=9\0E=\0X=\xff=z\0CUT=".to_vec(),
            ..LaunchSpec::default()
        };
        let task = TaskSpec {
            env: vec![
                pair("N", "7"),
                pair("M", "no"),
                pair("SLURM_TASK_PID", "8"),
                pair("M", "\n"),
            ],
            ..TaskSpec::default()
        };
        let expected: [&[u8]; 6] = [b"A=1", b"NN=2", b"E=", b"X=\xff=z", b"N=7", b"M=\n"];
        assert_eq!(entries(&spec, &task), expected);
    }

    #[test]
    fn a_command_is_the_script_the_tasks_own_or_the_steps() {
        let mut spec =
            LaunchSpec { job_dir: "/j".into(), argv: vec!["a".into()], ..LaunchSpec::default() };
        let mut task = TaskSpec::default();
        assert_eq!(command(&spec, &task), [b"a".to_vec()]);
        task.argv = Some(vec!["b".into()]);
        assert_eq!(command(&spec, &task), [b"b".to_vec()]);
        spec.script = Some(Vec::new());
        task.argv = None;
        assert_eq!(command(&spec, &task), [b"/j/script.sh".to_vec(), b"a".to_vec()]);
    }

    #[test]
    fn a_program_is_found_in_the_first_directory_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        fs::write(&file, "").unwrap();
        let path = format!("{0}/missing::{0}", dir.path().display());
        // Not executable yet.
        assert_eq!(search(b"tool", Some(path.as_bytes())), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let found = search(b"tool", Some(path.as_bytes())).unwrap();
        assert_eq!(found, CString::new(file.to_str().unwrap()).unwrap());
    }
}
