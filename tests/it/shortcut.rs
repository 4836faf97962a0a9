//! The shortcut of common commands: a plain job is submitted, and a plain query answered, before the
//! program has started. The result must be the same as without it, and whatever is unusual must be
//! left to the program.
//!
//! `slotd sbatch` does not use the shortcut.

use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;
use serde_json::{Value, json};
use slotd_kit::git::{git, repository};
use slotd_kit::{Running, Slotd, wire};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A socket in place of a daemon.
struct Daemon {
    slotd: Slotd,
    listener: UnixListener,
}

/// A request and its raw bytes.
struct Asked {
    client: UnixStream,
    json: Value,
    raw: Vec<u8>,
}

impl Daemon {
    fn start() -> Daemon {
        let slotd = Slotd::setup().prepare();
        let run = slotd.root.join("run");
        fs::DirBuilder::new().mode(0o700).create(&run).unwrap();
        let listener = UnixListener::bind(run.join("slotd.sock")).unwrap();
        Daemon { slotd, listener }
    }

    fn sbatch(&self, args: &[&str]) -> Running {
        self.spawn(self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        self.program("sbatch", args)
    }

    fn program(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.slotd.command(name);
        command.args(args);
        command
    }

    fn spawn(&self, command: Command) -> Running {
        self.slotd.spawn(command)
    }

    /// Accepts the next client and returns its request.
    fn next(&self) -> Asked {
        let client = self.listener.accept().unwrap().0;
        client.set_read_timeout(Some(slotd_kit::PATIENCE)).unwrap();
        Asked { client, json: Value::Null, raw: Vec::new() }.more()
    }

    /// Checks that the program itself submits the job, and answers it.
    #[track_caller]
    fn program_submits(&self, again: bool) {
        let mut asked = self.next();
        let submit = &asked.json["Submit"];
        assert!(submit.is_object(), "{}", asked.json);
        assert_eq!(submit["again"], json!(again), "{}", asked.json);
        // The daemon has to identify the client as it did for the shortcut.
        assert_eq!(submit["after_shortcut"] == json!(true), again, "{}", asked.json);
        asked.answer(json!({"Submitted": {"job": 8}}), b"");
    }
}

impl Asked {
    /// Receives the next request of the same client.
    fn more(mut self) -> Asked {
        (self.json, self.raw) = wire::receive_whole(&mut self.client).unwrap();
        self
    }

    fn answer(&mut self, json: Value, raw: &[u8]) {
        self.client.write_all(&wire::frame(json.to_string().as_bytes(), raw)).unwrap();
    }

    #[track_caller]
    fn of_the_shortcut(self) -> Asked {
        assert!(self.json["Plain"].is_object(), "{}", self.json);
        self
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[test]
fn a_plain_job_is_sent_as_it_is_and_the_answer_is_printed() {
    let daemon = Daemon::start();
    let sbatch = daemon.sbatch(&["--wrap", "echo a b"]);
    let mut asked = daemon.next().of_the_shortcut();
    let work = daemon.slotd.work().display().to_string();
    let raw = String::from_utf8(asked.raw.clone()).unwrap();
    assert!(raw.contains("sbatch\0--wrap\0echo a b\0") && raw.ends_with(&work), "{raw:?}");
    asked.answer(json!("Printed"), b"Submitted batch job 7\n");
    assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 7\n");
}

#[test]
fn the_program_runs_if_the_daemon_says_so() {
    let daemon = Daemon::start();
    let sbatch = daemon.sbatch(&["--wrap", "true"]);
    daemon.next().of_the_shortcut().answer(json!("NotPlain"), b"");
    daemon.program_submits(false);
    assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 8\n");
}

/// The daemon may have submitted the job, so the program repeats the submission.
#[test]
fn a_job_whose_answer_is_missing_or_unknown_is_submitted_again() {
    let daemon = Daemon::start();
    let sbatch = daemon.sbatch(&["--wrap", "true"]);
    drop(daemon.next().of_the_shortcut());
    daemon.program_submits(true);
    let out = sbatch.end().ok();
    assert!(out.stderr.contains("the daemon stopped before it answered"), "{}", out.stderr);

    // The program says so once, however often it happens.
    let sbatch = daemon.sbatch(&["--wrap", "true"]);
    drop(daemon.next().of_the_shortcut());
    drop(daemon.next());
    daemon.program_submits(true);
    assert_eq!(sbatch.end().ok().stderr.matches("before it answered").count(), 1);

    for unknown in [json!({"Refused": "ShuttingDown"}), json!("Printe"), json!({"Printed": 1})] {
        let sbatch = daemon.sbatch(&["--wrap", "true"]);
        daemon.next().of_the_shortcut().answer(unknown, b"");
        daemon.program_submits(true);
        assert_eq!(sbatch.end().ok().stderr, "");
    }
}

/// A half of an answer, another protocol or version, and lengths that no answer has.
#[test]
fn a_torn_or_foreign_answer_is_not_used() {
    let daemon = Daemon::start();
    let whole = wire::frame(b"\"Printed\"", b"Submitted batch job 7\n");
    let torn = [whole[..15].to_vec(), whole[..20].to_vec(), whole[..whole.len() - 1].to_vec()];
    let foreign = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let long = [
        foreign(0),
        foreign(4),
        wire::header(u32::MAX, u32::MAX),
        wire::header(9, 1 << 20),
        wire::header(0, 0),
    ];
    for bytes in torn.into_iter().chain(long) {
        let sbatch = daemon.sbatch(&["--wrap", "true"]);
        daemon.next().of_the_shortcut().client.write_all(&bytes).unwrap();
        daemon.program_submits(true);
        assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 8\n");
    }
}

#[test]
fn an_answer_that_cannot_be_printed_is_reported_by_the_program() {
    let daemon = Daemon::start();
    let mut sbatch = daemon.command(&["--wrap", "true"]);
    sbatch.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
    let sbatch = sbatch.spawn().unwrap();
    // The job is known, so it is not submitted again.
    daemon.next().of_the_shortcut().answer(json!("Printed"), b"Submitted batch job 8\n");
    let out = sbatch.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr.contains("error: job 8 was submitted"), "{stderr}");
}

/// The first file that a word names is sent unasked, if it is a script.
#[test]
fn the_script_is_sent_with_the_first_request() {
    let daemon = Daemon::start();
    let work = daemon.slotd.work();
    write(&work.join("job.sh"), "#!/bin/sh\ntrue\n");
    write(&work.join("other"), "#!/bin/sh\nfalse\n");
    write(&work.join("text"), "no script\n");
    nix::unistd::mkfifo(&work.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("job.sh", work.join("link")).unwrap();
    let cases: [(&[&str], usize, &str); 8] = [
        (&["job.sh", "other"], 1, "true\n"),
        (&["-J", "other", "-o", "text", "./job.sh"], 5, "true\n"),
        (&["--parsable", "fifo", "missing", "..", "/dev/null", "link"], 6, "true\n"),
        (&["--", "job.sh"], 2, "true\n"),
        // The daemon sees that this is another word than the one that names the script.
        (&["--job-name", "other", "job.sh"], 2, "false\n"),
        // The daemon has to ask.
        (&["--job-name", "text", "job.sh"], 0, ""),
        (&["-H", "job.sh"], 0, ""),
        (&["missing.sh"], 0, ""),
    ];
    for (args, word, end) in cases {
        let sbatch = daemon.sbatch(args);
        let mut asked = daemon.next().of_the_shortcut();
        let ask = &asked.json["Plain"];
        assert_eq!(ask["script_word"], json!(word), "{args:?}");
        assert_eq!(ask["script_len"] == json!(0), word == 0, "{args:?}");
        assert!(asked.raw.ends_with(end.as_bytes()), "{args:?}");
        asked.answer(json!("Printed"), b"Submitted batch job 7\n");
        sbatch.end().ok();
    }
}

#[test]
fn a_script_is_sent_when_the_daemon_asks_for_it() {
    let daemon = Daemon::start();
    let script = daemon.slotd.work().join("job.sh");
    write(&script, "#!/bin/sh\ntrue\n");
    let sbatch = daemon.sbatch(&["-H", "job.sh", "x"]);
    let mut asked = daemon.next().of_the_shortcut();
    assert_eq!(asked.json["Plain"]["script_len"], json!(0));
    let path = format!("{}\0", script.display());
    asked.answer(json!("ScriptWanted"), path.as_bytes());
    let mut asked = asked.more().of_the_shortcut();
    assert!(asked.raw.ends_with(b"#!/bin/sh\ntrue\n"));
    // It is sent only once.
    asked.answer(json!("ScriptWanted"), path.as_bytes());
    daemon.program_submits(false);
    assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 8\n");
}

/// The shortcut must neither wait for a FIFO nor take what is in it.
#[test]
fn only_a_regular_file_of_a_usual_size_is_sent_as_a_script() {
    let daemon = Daemon::start();
    let work = daemon.slotd.work();
    let script = work.join("job.sh");
    write(&script, "#!/bin/sh\ntrue\n");
    nix::unistd::mkfifo(&work.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("fifo", work.join("link")).unwrap();
    write(&work.join("large"), &format!("#!/bin/sh\n# {}\n", "x".repeat(16 << 10)));
    write(&work.join("empty"), "");
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o000)
        .open(work.join("closed"))
        .unwrap();
    let names =
        ["fifo", "link", "large", "empty", "closed", ".", "missing", "/dev/zero", "/dev/tty"];
    for name in names {
        let sbatch = daemon.sbatch(&["job.sh"]);
        let path = format!("{}\0", work.join(name).display());
        daemon.next().of_the_shortcut().answer(json!("ScriptWanted"), path.as_bytes());
        daemon.program_submits(false);
        assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 8\n", "{name}");
    }
    // A path without its final zero byte is none.
    let sbatch = daemon.sbatch(&["job.sh"]);
    daemon.next().of_the_shortcut().answer(json!("ScriptWanted"), b"/etc/hostname");
    daemon.program_submits(false);
    sbatch.end().ok();
}

#[test]
fn an_unusual_process_does_not_use_the_shortcut() {
    let daemon = Daemon::start();
    let wrap = ["--wrap", "true"];
    let set = |name: &str, value: &str| {
        let mut sbatch = daemon.command(&wrap);
        sbatch.env(name, value);
        sbatch
    };
    let mut relative = set("SLOTD_ROOT", "root");
    relative.current_dir(&daemon.slotd.base);
    let many = vec!["-H"; 80];
    for sbatch in [
        relative,
        set("LARGE", &"x".repeat(100_000)),
        set("PWD", &format!("{}{}", "/.".repeat(600), daemon.slotd.work().display())),
        daemon.command(&[&many[..], &wrap[..]].concat()),
    ] {
        let sbatch = daemon.spawn(sbatch);
        daemon.program_submits(false);
        sbatch.end().ok();
    }
    // The program opens a closed stream before the socket gets its number.
    let mut closed = daemon.command(&wrap);
    // SAFETY: only closes a descriptor, between fork and exec.
    unsafe { closed.pre_exec(|| Ok(nix::unistd::close(1)?)) };
    let closed = daemon.spawn(closed);
    daemon.program_submits(false);
    closed.end().ok();
}

/// The daemon looks for the repository: what contains `.git` need not be one.
#[test]
fn a_work_tree_is_noticed_through_links_too() {
    let daemon = Daemon::start();
    let tree = daemon.slotd.work().join("tree/below");
    fs::create_dir_all(&tree).unwrap();
    let link = daemon.slotd.work().join("elsewhere");
    symlink(&tree, &link).unwrap();
    for is_there in [false, true] {
        if is_there {
            write(&tree.parent().unwrap().join(".git"), "");
        }
        for dir in [&tree, &link] {
            let mut sbatch = daemon.command(&["--wrap", "true"]);
            sbatch.current_dir(dir).env("PWD", dir);
            let sbatch = daemon.spawn(sbatch);
            let mut asked = daemon.next().of_the_shortcut();
            assert_eq!(asked.json["Plain"]["may_be_in_tree"], json!(is_there));
            assert!(asked.raw.ends_with(dir.as_os_str().as_bytes()));
            asked.answer(json!("Printed"), b"");
            sbatch.end().ok();
        }
    }
}

#[test]
fn the_commit_of_a_work_tree_is_recorded_as_without_the_shortcut() {
    let slotd = Slotd::start();
    repository(&slotd, "tree");
    let commit = git(&slotd, "tree", "rev-parse HEAD");
    let submit = |command: &str, words: &[&str], set: Option<&str>| {
        let mut submit = slotd.command(command);
        submit.args(words).args(["--parsable", "-H", "--wrap", "true"]);
        submit.current_dir(slotd.work().join("tree")).envs(set.map(|value| ("SLOTD_GIT", value)));
        let job = slotd.run(submit).ok();
        let told = slotd.cmd("slotd", &["source", "--json", job.text()]).stdout;
        serde_json::from_str::<Value>(&told).map_or(Value::Null, |told| told["commit"].clone())
    };
    let set = [None, Some("off"), Some("on")];
    let by_shortcut = set.map(|set| submit("sbatch", &[], set));
    assert_eq!(by_shortcut, set.map(|set| submit("slotd", &["sbatch"], set)));
    assert_eq!(by_shortcut, [json!(commit.trim()), Value::Null, json!(commit.trim())]);
}

#[test]
fn the_answer_to_a_query_is_printed() {
    let daemon = Daemon::start();
    for (name, words) in [
        ("squeue", ["-h", "a b"]),
        ("sinfo", ["", "a b"]),
        ("sacct", ["a b", "-c"]),
        ("scontrol", ["show", "job"]),
    ] {
        let query = daemon.spawn(daemon.program(name, &words));
        let mut asked = daemon.next().of_the_shortcut();
        assert_eq!(asked.json["Plain"]["program"], json!(name));
        let raw = String::from_utf8_lossy(&asked.raw).into_owned();
        assert!(raw.contains(&format!("{name}\0{}\0", words.join("\0"))), "{raw:?}");
        let long = "x".repeat(8 << 10);
        asked.answer(json!("Printed"), long.as_bytes());
        assert_eq!(query.end().ok().stdout, long);
    }
}

/// The daemon's answer may be missing, torn, foreign or too long.
#[test]
fn the_program_asks_if_it_cannot_use_the_answer_to_a_query() {
    let daemon = Daemon::start();
    let whole = wire::frame(b"\"Printed\"", b"text\n");
    let mut foreign = whole.clone();
    foreign[4] ^= 1;
    let answers = [
        Vec::new(),
        whole[..whole.len() - 1].to_vec(),
        foreign,
        wire::frame(b"\"Printed\"", &[b'x'; (8 << 10) + 100]),
        wire::frame(b"\"NotPlain\"", b""),
        wire::frame(b"{\"Refused\":\"ShuttingDown\"}", b""),
    ];
    for answer in answers {
        let query = daemon.spawn(daemon.program("sinfo", &["-h"]));
        // It may have stopped reading, or never have started.
        let _ = daemon.next().of_the_shortcut().client.write_all(&answer);
        let mut asked = daemon.next();
        assert_eq!(asked.json, json!("Node"));
        asked.answer(json!({"Refused": "ShuttingDown"}), b"");
        let out = query.end();
        assert_eq!((out.code, out.stdout.as_str()), (1, ""));
    }
}

/// Neither the shortcut nor the program repeats or loses bytes.
#[test]
fn output_is_printed_once_to_a_slow_reader() {
    let daemon = Daemon::start();
    // The pipe holds a page, and does not wait for its reader.
    let printed = |mut command: Command, answer: Option<&str>| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        // SAFETY: these calls change only this pipe.
        unsafe {
            libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096);
            libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        }
        let mut child = command.stdout(writer).spawn().unwrap();
        drop(command);
        if let Some(text) = answer {
            daemon.next().of_the_shortcut().answer(json!("Printed"), text.as_bytes());
        }
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        printed
    };
    let long = "x".repeat(8 << 10);
    assert_eq!(printed(daemon.program("sinfo", &[]), Some(&long)), long);
    let help = daemon.slotd.line("srun --help").ok().stdout;
    assert!(help.len() > 4096, "{}", help.len());
    assert_eq!(printed(daemon.program("srun", &["--help"]), None), help);
}

#[test]
fn a_query_does_not_wait_long_for_a_daemon_that_hangs() {
    let daemon = Daemon::start();
    let query = daemon.spawn(daemon.program("squeue", &["--nonsense"]));
    let _hangs = daemon.next().of_the_shortcut();
    assert!(query.end().fails(1).stderr.contains("unrecognized option"));
}

#[test]
fn an_invalid_submission_is_reported_while_the_daemon_hangs() {
    let daemon = Daemon::start();
    write(&daemon.slotd.work().join("job.sh"), "#!/bin/sh\ntrue\n");
    write(&daemon.slotd.work().join("bad.sh"), "#!/bin/sh\n#SBATCH --nonsense\n");
    let (invalid, help) = ((255, "unrecognized option"), (0, "--help"));
    for (words, (code, text)) in [
        (&["--nonsense"][..], invalid),
        (&["--hel"], help),
        (&["-n", "many", "--wrap", "true"], (1, "many")),
        (&["missing.sh"], (1, "Unable to open file missing.sh")),
        (&["--nonsense", "job.sh"], invalid),
        (&["-n", "many", "job.sh"], (1, "many")),
        (&["bad.sh"], (255, "unrecognized option")),
    ] {
        let sbatch = daemon.sbatch(words);
        let _hangs = daemon.next().of_the_shortcut();
        let out = sbatch.end();
        assert_eq!(out.code, code, "{words:?} {out:?}");
        assert!(out.stdout.contains(text) || out.stderr.contains(text), "{words:?} {out:?}");
    }
}

/// A second submission could reach the daemon before the first.
#[test]
fn a_submission_with_a_late_answer_is_sent_once() {
    let daemon = Daemon::start();
    nix::unistd::mkfifo(&daemon.slotd.work().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let started = || {
        let sbatch = daemon.sbatch(&["fifo"]);
        let asked = daemon.next().of_the_shortcut();
        // The program opens it to read the script, so it runs now.
        write(&daemon.slotd.work().join("fifo"), "#!/bin/sh\ntrue\n");
        (sbatch, asked)
    };
    let (sbatch, mut asked) = started();
    asked.answer(json!("Printed"), b"Submitted batch job 7\n");
    let out = sbatch.end().ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("Submitted batch job 7\n", ""));
    daemon.listener.set_nonblocking(true).unwrap();
    assert!(daemon.listener.accept().is_err(), "it was submitted again");
    daemon.listener.set_nonblocking(false).unwrap();

    let (sbatch, mut asked) = started();
    asked.answer(json!("NotPlain"), b"");
    daemon.program_submits(false);
    assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 8\n");

    let (sbatch, asked) = started();
    drop(asked);
    daemon.program_submits(true);
    let out = sbatch.end().ok();
    assert!(out.stderr.contains("the daemon stopped before it answered"), "{}", out.stderr);
}

/// The script may have been removed or changed since. Now it may even name another cluster.
#[test]
fn a_late_answer_to_a_sent_script_is_waited_for() {
    for now in ["no script\n", "#!/bin/sh\n#SBATCH -M nowhere\ntrue\n"] {
        let daemon = Daemon::start();
        let script = daemon.slotd.work().join("job.sh");
        write(&script, "#!/bin/sh\ntrue\n");
        let sbatch = daemon.sbatch(&["job.sh"]);
        let mut asked = daemon.next().of_the_shortcut();
        assert!(asked.raw.ends_with(b"#!/bin/sh\ntrue\n"));
        fs::remove_file(&script).unwrap();
        nix::unistd::mkfifo(&script, nix::sys::stat::Mode::S_IRWXU).unwrap();
        write(&script, now);
        asked.answer(json!("Printed"), b"Submitted batch job 7\n");
        assert_eq!(sbatch.end().ok().stdout, "Submitted batch job 7\n", "{now}");
    }
}

#[test]
fn a_query_whose_daemon_is_killed_says_how_to_start_it() {
    for (is_plain, text) in [
        (true, "no daemon answers at"),
        (false, "the daemon closed the connection before it answered"),
    ] {
        let daemon = Daemon::start();
        let query = daemon.spawn(daemon.program("sinfo", &["-h"]));
        let mut asked = daemon.next().of_the_shortcut();
        if !is_plain {
            asked.answer(json!("NotPlain"), b"");
            asked = daemon.next();
        }
        // A process that another test is starting may still have a copy of the socket.
        let listener = daemon.listener.as_raw_fd();
        nix::sys::socket::shutdown(listener, nix::sys::socket::Shutdown::Both).unwrap();
        drop(asked);
        let stderr = query.end().fails(1).stderr;
        assert!(stderr.contains(text), "{stderr}");
        assert!(stderr.contains("start it with `slotd daemon start`"), "{stderr}");
    }
}

/// On a terminal, the width and the colours matter.
#[test]
fn queries_on_a_terminal_do_not_use_the_shortcut() {
    let daemon = Daemon::start();
    let pty = nix::pty::openpty(None, None).unwrap();
    let mut query = daemon.program("sinfo", &["-h"]);
    let mut query = query.stdout(pty.slave).stderr(Stdio::null()).spawn().unwrap();
    let mut asked = daemon.next();
    assert_eq!(asked.json, json!("Node"));
    asked.answer(json!({"Refused": "ShuttingDown"}), b"");
    assert_eq!(query.wait().unwrap().code(), Some(1));
}

/// In another namespace, the time zone, the host name or the users may be others.
#[test]
fn only_processes_in_the_daemons_surroundings_have_plain_command_lines() {
    let daemon = Daemon::start();
    let query = daemon.spawn(daemon.program("sinfo", &["-h"]));
    let mut asked = daemon.next().of_the_shortcut();
    asked.answer(json!("Printed"), b"");
    query.end().ok();

    let slotd = Slotd::start();
    let mut socket = wire::connect(&slotd.root).unwrap();
    let mut answer = |json: &Value| {
        socket.write_all(&wire::frame(json.to_string().as_bytes(), &asked.raw)).unwrap();
        wire::receive(&mut socket).unwrap()
    };
    let mut elsewhere = asked.json.clone();
    let own = asked.json["Plain"]["surroundings"].as_u64().unwrap();
    elsewhere["Plain"]["surroundings"] = json!(own ^ 1);
    assert_eq!(answer(&elsewhere), json!("NotPlain"));
    assert_eq!(answer(&asked.json), json!("Printed"));
    // The daemon disconnects: the client has all it wanted.
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}

#[test]
fn each_namespace_counts_as_other_surroundings() {
    let daemon = Daemon::start();
    let surroundings = |namespace: Option<CloneFlags>| -> Option<u64> {
        let mut query = daemon.program("sinfo", &["-h"]);
        let enter = move || -> io::Result<()> {
            let Some(namespace) = namespace else { return Ok(()) };
            unshare(namespace)?;
            if namespace == CloneFlags::CLONE_NEWUTS {
                sethostname("elsewhere")?;
            }
            Ok(())
        };
        // SAFETY: the closure makes only system calls.
        unsafe { query.pre_exec(enter) };
        let query = query.stdout(Stdio::null()).spawn();
        // Only root may create all of them.
        let mut query =
            query.map_err(|e| assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{e}")).ok()?;
        let mut asked = daemon.next().of_the_shortcut();
        asked.answer(json!("Printed"), b"");
        assert!(query.wait().unwrap().success());
        asked.json["Plain"]["surroundings"].as_u64()
    };
    let own = surroundings(None).unwrap();
    assert_eq!(surroundings(None), Some(own));
    for namespace in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNS, CloneFlags::CLONE_NEWUTS]
    {
        assert_ne!(surroundings(Some(namespace)), Some(own), "{namespace:?}");
    }
}

#[test]
fn queries_print_the_same_as_without_the_shortcut() {
    let slotd = Slotd::start();
    slotd.cmd("sbatch", &["-W", "-J", "ended", "--wrap", "srun -n1 true"]).ok();
    slotd.line("sbatch -J waits -H -t 5 --wrap true").ok();
    slotd.line("sbatch -H -a 1-5,9%2 -o %A-%a.txt --comment=ä --wrap true").ok();
    slotd.cmd("sbatch", &["-b", "now+2days", "-J", "a name", "--wrap", "true"]).ok();
    let own = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let of_user = format!("-u {own} -h");
    let queries = [
        ("squeue", "-j 1"),
        ("squeue", "-j 2,3 -o %i|%j|%t|%r -h"),
        ("squeue", "-j 3_1"),
        ("squeue", "-j 7"),
        ("squeue", "-j x"),
        ("squeue", "-l"),
        ("squeue", "--start"),
        ("squeue", "-r"),
        ("squeue", "-s"),
        ("squeue", "-t all -S i"),
        ("squeue", "-O jobid,name:30,stdout:40,nonsense"),
        ("squeue", "-o %i%Z%b"),
        ("squeue", "-w elsewhere"),
        ("squeue", "-u nobody-at-all"),
        ("squeue", "--me -n waits,ended"),
        ("squeue", "--helpformat"),
        ("squeue", "--nonsense"),
        ("squeue", "-M nowhere"),
        ("squeue", &of_user),
        ("sinfo", ""),
        ("sinfo", "-N -l"),
        ("sinfo", "-R"),
        ("sinfo", "-s -o %P|%C|%Q"),
        ("sinfo", "-O partition,nonsense"),
        ("sinfo", "-T"),
        ("sinfo", "-n elsewhere"),
        ("sacct", "-j 1"),
        ("sacct", "-j 1 -X -n -P -o jobid,state,exitcode,jobname%3"),
        ("sacct", "-j 1.batch,2"),
        ("sacct", "-j 3 --array"),
        ("sacct", "-j 99"),
        ("sacct", "-j 1 -l"),
        ("sacct", "-j 1 -B"),
        ("sacct", "-j 1 -E 2020-01-01"),
        ("sacct", "-S now-1hour"),
        ("sacct", "-j 1 -o nonsense"),
        ("scontrol", "show job 1"),
        ("scontrol", "-o show job 3"),
        ("scontrol", "-dd show job 3_9"),
        ("scontrol", "show jobid=2"),
        ("scontrol", "show job 99"),
        ("scontrol", "show job x"),
        ("scontrol", "show job 3_77"),
        ("scontrol", "show job"),
        ("scontrol", "-Q show job 99"),
        ("scontrol", "show partition"),
        ("scontrol", "show job 1 2"),
    ];
    let variables: [&[(&str, &str)]; 5] = [
        &[],
        &[("SLOTD_OUTPUT", "slurm"), ("SQUEUE_FORMAT", "%A %.7j"), ("SINFO_FORMAT", "%N")],
        &[("TZ", "Asia/Kathmandu"), ("SLURM_TIME_FORMAT", "%d.%m.%Y %H"), ("SACCT_FORMAT", "End")],
        &[("TZ", "./zone"), ("SLURM_BITSTR_LEN", "4"), ("SQUEUE_STATES", "all")],
        &[("SLURM_CLUSTERS", "nowhere")],
    ];
    // Between the two, the scheduler may look at a job, and a second may end, which changes the date
    // above a table.
    let is_date = |line: &str| {
        ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "]
            .iter()
            .any(|day| line.starts_with(day))
    };
    let is_fixed = |line: &&str| !line.contains("LastSchedEval=") && !is_date(line);
    for (name, words) in queries {
        for set in variables {
            let printed = |program: &str, first: Option<&str>| {
                let mut command = slotd.command(program);
                command.args(first).args(words.split_whitespace()).envs(set.iter().copied());
                let out = slotd.run(command);
                let lines = out.stdout.lines().filter(is_fixed).map(str::to_owned);
                (out.code, lines.collect::<Vec<_>>(), out.stderr.clone())
            };
            let program = printed("slotd", Some(name));
            assert_eq!(printed(name, None), program, "{name} {words} {set:?}");
        }
    }
}

/// Returns the record, the script and the environment of the job that a command submits, without
/// its times and the daemon's own directory.
fn submitted(slotd: &Slotd, mut sbatch: Command) -> [String; 3] {
    sbatch.env("USER_VARIABLE", "a=b\n c").env("EMPTY", "").env("SBATCH_NICE", "7");
    let out = slotd.run(sbatch).ok();
    let job: u32 = out.stdout.split_whitespace().last().unwrap().parse().unwrap();
    let show = slotd.line(&format!("scontrol show job -dd {job}")).ok().stdout;
    let is_of_the_job = |line: &&str| {
        let times = ["Time=", "LastSchedEval="];
        !times.iter().any(|name| line.contains(name)) || line.contains("TimeLimit=")
    };
    let own = |text: String| text.replace(&slotd.base.display().to_string(), "BASE");
    let show = show.lines().filter(is_of_the_job).collect::<Vec<_>>().join("\n");
    let script = slotd.line(&format!("scontrol write batch_script {job} -")).ok().stdout;
    let mut socket = wire::connect(&slotd.root).unwrap();
    let ask = json!({"BatchEnv": job}).to_string();
    socket.write_all(&wire::frame(ask.as_bytes(), b"")).unwrap();
    let (_, env) = wire::receive_whole(&mut socket).unwrap();
    [own(show), script, own(String::from_utf8(env).unwrap())]
}

#[test]
fn the_job_is_the_same_as_without_the_shortcut() {
    // The jobs of two daemons have the same numbers.
    let daemons = [Slotd::start(), Slotd::start()];
    for slotd in &daemons {
        write(
            &slotd.work().join("job.sh"),
            "#!/bin/bash\n#SBATCH -J named -n 2\n#SBATCH --time=5\n#SBATCH -o '%x-%j.txt'\nsrun true\n",
        );
        write(&slotd.work().join("other"), "#!/bin/sh\n#SBATCH -n 3\nfalse\n");
        fs::create_dir(slotd.work().join("bin")).unwrap();
        fs::copy(slotd.work().join("job.sh"), slotd.work().join("bin/found")).unwrap();
        write(&slotd.work().join("exported"), "FROM_FILE=1\0");
    }
    let [one, other] = &daemons;
    let cases: [&[&str]; 18] = [
        // These name other files before the script.
        &["--job-name", "other", "job.sh"],
        &["--output", "other", "./job.sh", "other"],
        &["--export-file", "exported", "bin/../job.sh"],
        // It is below a directory of PATH.
        &["--comment", "other", "found"],
        &["--wrap", "true"],
        &["--parsable", "--wrap", "echo \"$HOME\""],
        &["job.sh"],
        &["-J", "other", "job.sh", "an argument", "-x"],
        &["-a", "1-3%2", "-c2", "--mem=100", "--wrap", "true"],
        &["--export=NONE", "--wrap", "true"],
        &["--export=USER_VARIABLE,A=1", "--wrap", "true"],
        &["--export=NIL", "--wrap", "true"],
        &["--export-file=exported", "--wrap", "true"],
        &["--propagate=NOFILE", "--begin=now+1hour", "--wrap", "true"],
        &["--mail-type=END", "--mail-user=me@example.org", "--comment=ä", "--wrap", "true"],
        &["-d", "singleton", "--deadline=2099-01-01", "--nice=3", "-D", "..", "--wrap", "true"],
        &["-o", "out/%j", "-e", "/dev/null", "-i", "job.sh", "--open-mode=append", "job.sh"],
        &["--get-user-env", "--requeue", "--signal=B:USR1@60", "-t", "1-0", "--wrap", "true"],
    ];
    for args in cases {
        let mut shortcut = one.command("sbatch");
        shortcut.arg("--hold").args(args);
        let mut program = other.command("slotd");
        program.args(["sbatch", "--hold"]).args(args);
        for (slotd, command) in [(one, &mut shortcut), (other, &mut program)] {
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{path}", slotd.work().join("bin").display()));
        }
        assert_eq!(submitted(one, shortcut), submitted(other, program), "{args:?}");
    }
}

/// Both print the same, too.
#[test]
fn errors_are_the_same_as_without_the_shortcut() {
    let slotd = Slotd::start();
    write(&slotd.work().join("text"), "no script\n");
    write(&slotd.work().join("bad.sh"), "#!/bin/sh\n#SBATCH --nonsense\ntrue\n");
    let cases: [&[&str]; 11] = [
        &["--nonsense"],
        &["-n", "many", "--wrap", "true"],
        &["-p", "nowhere", "--wrap", "true"],
        &["-N", "7", "--wrap", "true"],
        &["missing.sh"],
        &["text"],
        &["bad.sh"],
        &["--wrap", "true", "operand"],
        &["-d", "afterok:999", "--wrap", "true"],
        &["--test-only", "-c", "64", "--wrap", "true"],
        &["-M", "nowhere", "--wrap", "true"],
    ];
    for args in cases {
        let shortcut = slotd.cmd("sbatch", args);
        let program = slotd.cmd("slotd", &[&["sbatch"], args].concat());
        let all = |out: slotd_kit::Out| (out.code, out.stdout, out.stderr);
        assert_eq!(all(shortcut), all(program), "{args:?}");
    }
    assert_eq!(slotd.all_records().len(), 0);
}
