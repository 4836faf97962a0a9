//! Runs programs on a cluster, by ssh or on this host, and reads `clusters.toml`.
//!
//! ssh never prompts here and never opens a shared connection: only `slotd cluster login` does.

use crate::clusters::config::{self, Cluster, ConfigError, Link};
use crate::clusters::framing::Framer;
use crate::clusters::journal::Record;
use crate::clusters::program::Program;
use nix::sys::signal::SigHandler;
use slotd_sys::{files, ownership, start};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

/// The largest accepted `clusters.toml`, in bytes.
const MOST_FILE: u64 = 1 << 20;

/// The longest path of a socket to which ssh can still append its temporary suffix, in bytes.
const MOST_SOCKET: usize = 86;

/// The maximum number of pieces of output, each of at most [`PIECE`] bytes, that wait for a slow
/// reader. Then the command is blocked.
pub const MOST_PIECES: usize = 16;

/// The largest piece of output, in bytes.
const PIECE: usize = 64 << 10;

/// The time-outs of a connection: 15 seconds to connect, one minute without an answer.
const SSH_OPTIONS: [&str; 11] = [
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ControlMaster=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "ForkAfterAuthentication=no",
    "StdinNull=no",
];

/// The variables that commands of a cluster on this host (`local`) keep, as after a login.
const KEPT: [&str; 9] =
    ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TERM", "TMPDIR"];

/// The clusters of the user, and the file that they come from.
#[derive(Debug, Clone)]
pub struct Clusters {
    pub file: PathBuf,
    pub list: Vec<Cluster>,
}

impl Clusters {
    pub fn names(&self) -> Vec<&str> {
        self.list.iter().map(|cluster| cluster.name.as_str()).collect()
    }

    /// Returns the cluster with this name, without regard to case.
    pub fn find(&self, name: &str) -> Option<&Cluster> {
        self.list.iter().find(|cluster| cluster.name.eq_ignore_ascii_case(name))
    }

    /// Returns the cluster of a submission: the one with its name, unless the name is now that of
    /// another cluster, or else any other name of the same cluster.
    pub fn of(&self, record: &Record) -> Option<&Cluster> {
        let is_it = |cluster: &&Cluster| record.is_at(cluster);
        self.find(&record.cluster).filter(is_it).or_else(|| self.list.iter().find(is_it))
    }
}

/// A file or directory that cannot be used, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct Unusable {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Text(#[from] ConfigError),
}

impl Unusable {
    fn new(path: &Path, why: impl Into<Why>) -> Self {
        Unusable { path: path.to_owned(), why: why.into() }
    }
}

/// Reads `clusters.toml`. If the file is missing, there are no clusters.
///
/// # Errors
/// Fails with a message that names the file if it is not a regular file, if anyone but this user
/// and root can write to it or to its directory, or if its text is invalid.
pub fn read(file: &Path) -> Result<Clusters, Unusable> {
    let text = match checked(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Unusable::new(file, error)),
    };
    let list = config::parse(&text).map_err(|error| Unusable::new(file, error))?;
    Ok(Clusters { file: file.to_owned(), list })
}

fn checked(file: &Path) -> io::Result<String> {
    let opened = files::open(file)?;
    let found = opened.metadata()?;
    let own = nix::unistd::geteuid().as_raw();
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if found.uid() != own && found.uid() != 0 {
        return refused(format!(
            "it belongs to user {}, but it names programs to run: it must belong to you or to root",
            found.uid()
        ));
    }
    if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        return refused(format!(
            "others can write to it (mode {mode:04o}), and it names programs to run: run `chmod go-w` on it"
        ));
    }
    if let Some(dir) = file.parent() {
        ownership::check_dir(dir)
            .map_err(|error| io::Error::new(error.kind(), format!("its directory: {error}")))?;
    }
    let bytes = files::read_open(&opened, MOST_FILE)?;
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Returns the socket of a cluster's shared connection in this directory, or `None` if its path is
/// too long for a socket.
pub fn socket(dir: &Path, cluster: &Cluster) -> Option<PathBuf> {
    let Link::Ssh(host) = &cluster.link else { return None };
    // FNV-1a. The name must be short, and differ between destinations.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = cluster
        .name
        .as_bytes()
        .iter()
        .chain(b"\n")
        .chain(host.as_bytes())
        .fold(0xcbf2_9ce4_8422_2325, hash);
    let path = dir.join(format!("{hash:016x}"));
    (path.as_os_str().len() <= MOST_SOCKET).then_some(path)
}

/// Returns the socket of a cluster's shared connection in this directory if it exists and is safe to
/// use. Anyone who can replace it receives the user's script and files, and answers for the cluster.
///
/// # Errors
/// Fails with a message that names the path if the directory or the socket belongs to another user
/// or is a link, if others have access to the directory, or if another user can replace it.
pub fn shared(dir: &Path, cluster: &Cluster) -> Result<Option<PathBuf>, Unusable> {
    let Some(socket) = socket(dir, cluster) else { return Ok(None) };
    let found = match check_sockets(dir).and_then(|()| fs::symlink_metadata(&socket)) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Unusable::new(dir, error)),
    };
    let user = nix::unistd::geteuid().as_raw();
    let why = if !found.file_type().is_socket() {
        "it is not a socket".to_owned()
    } else if found.uid() != user {
        format!("it belongs to user {}, not to user {user}", found.uid())
    } else {
        return Ok(Some(socket));
    };
    Err(Unusable::new(&socket, io::Error::new(io::ErrorKind::PermissionDenied, why)))
}

/// Refuses a directory of sockets that is not the user's own, to which others have access, or which
/// another user can replace.
///
/// # Errors
/// Fails with the reason, without the path, or if the directory does not exist.
pub fn check_sockets(dir: &Path) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let found = fs::symlink_metadata(dir)?;
    let user = nix::unistd::geteuid().as_raw();
    if found.is_symlink() || !found.is_dir() {
        return refused("it is a link or a file, and must be a directory".to_owned());
    }
    if found.uid() != user {
        return refused(format!("it belongs to user {}, not to user {user}", found.uid()));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return refused(format!(
            "others have access to it (mode {mode:04o}): run `chmod 700` on it"
        ));
    }
    let above = fs::metadata(dir.parent().unwrap_or(Path::new("/")))?;
    let is_sticky = above.mode() & 0o1000 != 0;
    if ![0, user].contains(&above.uid()) {
        return refused(format!("the directory above it belongs to user {}", above.uid()));
    }
    if above.mode() & 0o022 != 0 && !is_sticky {
        return refused("others can write to the directory above it".to_owned());
    }
    Ok(())
}

/// Returns a random name for the frames of a call or for a submission: 128 bits in hexadecimal.
///
/// # Errors
/// Fails if the system has no random numbers.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns whether a variable of this host is never passed to ssh.
fn is_slurms(name: &OsStr) -> bool {
    [
        &b"SLURM_"[..],
        b"SBATCH_",
        b"SRUN_",
        b"SALLOC_",
        b"SQUEUE_",
        b"SINFO_",
        b"SACCT_",
        b"SCANCEL_",
    ]
    .iter()
    .any(|prefix| name.as_bytes().starts_with(prefix))
}

/// Returns the variables of this process that are passed to the cluster.
pub fn variables(cluster: &Cluster) -> Vec<(String, Vec<u8>)> {
    let value = |name: &String| {
        std::env::var_os(name).map(|value| (name.clone(), value.as_bytes().to_vec()))
    };
    cluster.export.iter().filter_map(value).collect()
}

/// Returns ssh with the options of all calls, without a command.
pub fn ssh(host: &str, socket: Option<&Path>) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.arg("-T");
    for option in SSH_OPTIONS {
        ssh.args(["-o", option]);
    }
    // Without a socket of ours, ssh uses a connection that the user's own configuration shares.
    if let Some(socket) = socket {
        ssh.arg("-o").arg(control_path(socket));
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_slurms(name)) {
        ssh.env_remove(name);
    }
    ssh.args(["--", host]);
    ssh
}

/// Returns ssh's option for a shared connection. ssh expands `%` and variables in it.
pub fn control_path(socket: &Path) -> OsString {
    let mut option = OsString::from("ControlPath=");
    for byte in socket.as_os_str().as_bytes() {
        match byte {
            b'%' => option.push("%%"),
            byte => option.push(OsStr::from_bytes(&[*byte])),
        }
    }
    option
}

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// A function that writes the standard input of a command.
pub type Payload<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'a>;

/// The standard input of a command. It is sent once the command's shell has answered, so that a
/// call that does not get an answer has not sent it.
pub enum Input<'a> {
    Nothing,
    /// This process's standard input.
    Own,
    From(Payload<'a>),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The exit code of the command.
    Code(u8),
    /// There is no such command in the PATH of the cluster.
    Missing,
    /// The command did not start. Contains the output of ssh and of the login shell.
    NotReached(String),
    /// The command started, and the connection broke before its end arrived.
    Broken,
}

/// A program and where it runs.
pub struct Call<'a> {
    pub cluster: &'a Cluster,
    /// The socket of the shared connection, if there is one that [`shared`] has checked.
    pub socket: Option<&'a Path>,
    /// The name of the frames.
    pub mark: &'a str,
    pub program: &'a Program,
}

impl Call<'_> {
    fn start(&self) -> io::Result<Child> {
        let mut command = match &self.cluster.link {
            Link::Ssh(host) => {
                let mut ssh = ssh(host, self.socket);
                ssh.arg(&self.program.command);
                ssh
            }
            Link::Local(_) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(&self.program.command).env_clear();
                let is_kept = |name: &OsStr| {
                    KEPT.iter().any(|kept| name == *kept) || name.as_bytes().starts_with(b"LC_")
                };
                shell.envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
                shell
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }

    /// Runs the program. Passes its output to `take` as it arrives.
    ///
    /// # Errors
    /// Fails if ssh cannot be started, or if `take` fails, which ends ssh.
    pub fn run(
        &self,
        input: Input<'_>,
        take: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> io::Result<Ended> {
        // A command that stops reading early must not end this process.
        start::on_broken_pipe(SigHandler::SigIgn);
        let mut child = self.start()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (sender, pieces) = mpsc::sync_channel(MOST_PIECES);
        let (begin, begun) = mpsc::channel();
        // A process that the command left behind may hold these streams open for long.
        if let Some(out) = stdout {
            let sender = sender.clone();
            std::thread::spawn(move || read_to(out, Stream::Out, &sender));
        }
        if let Some(err) = stderr {
            let sender = sender.clone();
            std::thread::spawn(move || read_to(err, Stream::Err, &sender));
        }
        let done = std::thread::scope(|scope| {
            drop(sender);
            if let Some(mut to) = stdin {
                let text = self.program.text.clone();
                match input {
                    // A read from the terminal cannot be interrupted, so this thread is left behind.
                    Input::Own => drop(std::thread::spawn(move || {
                        feed(&mut to, &text, &begun, Box::new(copy_stdin))
                    })),
                    Input::From(payload) => {
                        drop(scope.spawn(move || feed(&mut to, &text, &begun, payload)))
                    }
                    Input::Nothing => drop(
                        scope.spawn(move || feed(&mut to, &text, &begun, Box::new(|_| Ok(())))),
                    ),
                }
            }
            let done = self.collect(&pieces, begin, take);
            // ssh is not needed any more once the command has ended or its output cannot be passed
            // on.
            if child.try_wait().is_ok_and(|status| status.is_none())
                && (done.is_err() || matches!(done, Ok(Ended::Code(_) | Ended::Missing)))
            {
                let _ = child.kill();
            }
            drop(pieces);
            done
        });
        child.wait()?;
        done
    }

    fn collect(
        &self,
        pieces: &Receiver<(Stream, Vec<u8>)>,
        begin: Sender<()>,
        take: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> io::Result<Ended> {
        let (mut out, mut err) = (Framer::new(self.mark), Framer::new(self.mark));
        let mut begin = Some(begin);
        while out.end().is_none() || err.end().is_none() {
            let Ok((stream, bytes)) = pieces.recv() else { break };
            let framer = match stream {
                Stream::Out => &mut out,
                Stream::Err => &mut err,
            };
            let output = framer.feed(&bytes);
            if out.has_begun()
                && let Some(begin) = begin.take()
            {
                // The receiving thread has already exited if it could not send the program.
                let _ = begin.send(());
            }
            if !output.is_empty() {
                take(stream, &output)?;
            }
        }
        Ok(match out.end() {
            Some("missing") => Ended::Missing,
            Some(code) => Ended::Code(code.parse().unwrap_or(1)),
            None if out.has_begun() => Ended::Broken,
            None => Ended::NotReached(format!("{}{}", out.banner(), err.banner())),
        })
    }
}

fn read_to(mut from: impl Read, stream: Stream, to: &SyncSender<(Stream, Vec<u8>)>) {
    let mut buffer = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.send((stream, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
}

/// Sends the program and, once it has begun, its standard input. An error means that the other side
/// no longer reads, which its exit code or the broken connection explains.
fn feed(to: &mut dyn Write, text: &[u8], begun: &Receiver<()>, payload: Payload<'_>) {
    let sent = to.write_all(text).and_then(|()| to.flush());
    if sent.is_ok() && begun.recv().is_ok() {
        let _ = payload(to).and_then(|()| to.flush());
    }
}

fn copy_stdin(to: &mut dyn Write) -> io::Result<()> {
    io::copy(&mut io::stdin(), to).map(drop)
}

/// The output of a call that is collected as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub ended: Ended,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
}

impl Call<'_> {
    /// Runs the program and collects its output.
    ///
    /// # Errors
    /// Fails if ssh cannot be started.
    pub fn output(&self, input: Input<'_>) -> io::Result<Output> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ended = self.run(input, &mut |stream, bytes| {
            match stream {
                Stream::Out => out.extend_from_slice(bytes),
                Stream::Err => err.extend_from_slice(bytes),
            }
            Ok(())
        })?;
        Ok(Output { ended, out, err })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::program::{program, tests::cluster};
    use std::os::unix::fs::PermissionsExt;

    fn call(body: &str, input: Input<'_>) -> Output {
        let cluster = cluster("");
        let program = program(&cluster, "m", &[], "sh", body.as_bytes());
        Call { cluster: &cluster, socket: None, mark: "m", program: &program }
            .output(input)
            .unwrap()
    }

    #[test]
    fn a_call_returns_both_streams_and_the_exit_code() {
        let input = Input::From(Box::new(|to| to.write_all(b"data")));
        let output = call("cat; echo warning >&2; exit 255", input);
        let expected =
            Output { ended: Ended::Code(255), out: b"data".to_vec(), err: b"warning\n".to_vec() };
        assert_eq!(output, expected);
    }

    #[test]
    fn a_command_that_dies_without_an_end_is_a_broken_connection() {
        assert_eq!(call("kill -9 $$", Input::Nothing).ended, Ended::Broken);
    }

    #[test]
    fn a_process_left_behind_does_not_delay_the_end() {
        let started = std::time::Instant::now();
        assert_eq!(call("sleep 100 & exit 4", Input::Nothing).ended, Ended::Code(4));
        assert!(started.elapsed().as_secs() < 90);
    }

    #[test]
    fn more_data_than_the_command_reads_is_no_error() {
        let input = Input::From(Box::new(|to| to.write_all(&vec![0; 4 << 20])));
        assert_eq!(call("exit 5", input).ended, Ended::Code(5));
    }

    #[test]
    fn output_is_not_read_ahead_of_a_slow_receiver() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        const ALL: usize = 500;
        /// Counts reads, and records the maximum lead over the receiver.
        struct Counted<'a> {
            read: &'a AtomicUsize,
            received: &'a AtomicUsize,
            ahead: &'a AtomicUsize,
        }
        impl Read for Counted<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let read = self.read.fetch_add(1, SeqCst) + 1;
                self.ahead.fetch_max(read.saturating_sub(self.received.load(SeqCst)), SeqCst);
                Ok(if read <= ALL { buffer.len() } else { 0 })
            }
        }
        let [read, received, ahead] = [const { AtomicUsize::new(0) }; 3];
        let counted = Counted { read: &read, received: &received, ahead: &ahead };
        let (sender, pieces) = mpsc::sync_channel(MOST_PIECES);
        std::thread::scope(|scope| {
            scope.spawn(move || read_to(counted, Stream::Out, &sender));
            while read.load(SeqCst) <= MOST_PIECES {
                std::thread::yield_now();
            }
            for (_, piece) in &pieces {
                assert_eq!(piece.len(), PIECE);
                received.fetch_add(1, SeqCst);
            }
        });
        assert_eq!(received.load(SeqCst), ALL);
        // One more piece is being read, and one may have been received but not counted yet.
        assert!(ahead.load(SeqCst) <= MOST_PIECES + 2, "{ahead:?}");
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("clusters.toml");
        assert_eq!(read(&file).unwrap().list, []);
        fs::write(&file, "[[cluster]]\nname = \"a\"\nssh = \"a\"\n").unwrap();
        let with = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        with(&file, 0o644);
        assert_eq!(read(&file).unwrap().names(), ["a"]);
        with(&file, 0o664);
        assert!(
            read(&file).unwrap_err().to_string().contains("others can write to it (mode 0664)")
        );
        with(&file, 0o600);
        with(dir.path(), 0o777);
        assert!(read(&file).unwrap_err().to_string().contains("its directory"));
        with(dir.path(), 0o700);
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_ok() {
            assert!(read(&file).unwrap_err().to_string().contains("belongs to user 12345"));
        }
    }

    #[test]
    fn a_fifo_a_directory_and_a_huge_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("clusters.toml");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("not a regular file"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("not a regular file"));
        fs::remove_dir(&file).unwrap();
        fs::File::create(&file).unwrap().set_len(MOST_FILE + 1).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn only_a_socket_of_the_user_in_a_directory_of_the_user_is_shared() {
        use std::os::unix::fs::{chown, symlink};
        use std::os::unix::net::UnixListener;
        let file = "[[cluster]]\nname = \"a\"\nssh = \"a\"\n";
        let ssh = config::parse(file).unwrap().remove(0);
        let top = tempfile::Builder::new().prefix("s").tempdir_in("/tmp").unwrap();
        let dir = top.path().join("ssh");
        let with = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        let why = |dir: &Path| shared(dir, &ssh).unwrap_err().to_string();
        assert_eq!(shared(&dir, &ssh).unwrap(), None);
        fs::create_dir(&dir).unwrap();
        with(&dir, 0o700);
        assert_eq!(shared(&dir, &ssh).unwrap(), None);
        let path = socket(&dir, &ssh).unwrap();
        fs::write(&path, "").unwrap();
        assert!(why(&dir).ends_with(": it is not a socket"));
        fs::remove_file(&path).unwrap();
        symlink("/run/other", &path).unwrap();
        assert!(why(&dir).ends_with(": it is not a socket"));
        fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(shared(&dir, &ssh).unwrap(), Some(path.clone()));
        with(&dir, 0o710);
        assert!(why(&dir).contains("others have access to it (mode 0710)"));
        with(&dir, 0o700);
        with(top.path(), 0o777);
        assert!(why(&dir).contains("others can write to the directory above it"));
        with(top.path(), 0o1777);
        assert_eq!(shared(&dir, &ssh).unwrap(), Some(path.clone()));
        symlink(&dir, top.path().join("link")).unwrap();
        assert!(why(&top.path().join("link")).contains("must be a directory"));
        // Only root can give files away.
        if chown(&path, Some(12_345), None).is_ok() {
            assert!(why(&dir).contains("it belongs to user 12345"));
            chown(&path, Some(0), None).unwrap();
            chown(&dir, Some(12_345), None).unwrap();
            assert!(why(&dir).contains("it belongs to user 12345"));
            chown(&dir, Some(0), None).unwrap();
            chown(top.path(), Some(12_345), None).unwrap();
            assert!(why(&dir).contains("the directory above it belongs to user 12345"));
            chown(top.path(), Some(0), None).unwrap();
        }
    }

    #[test]
    fn the_path_of_a_shared_connection_is_escaped_and_bounded() {
        let file = "[[cluster]]\nname = \"a\"\nssh = \"a\"\n";
        let ssh = config::parse(file).unwrap().remove(0);
        assert!(socket(Path::new("/run/user/1000/slotd"), &ssh).is_some());
        assert_eq!(socket(Path::new(&"/a".repeat(50)), &ssh), None);
        assert_eq!(socket(Path::new("/run"), &cluster("")), None);
        assert_eq!(control_path(Path::new("/a%h/b")), "ControlPath=/a%%h/b");
    }
}
