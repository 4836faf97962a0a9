//! The submission: one request, or a second one with the script that the daemon asks for.

use crate::kernel::{
    CText, Fd, Found, access, exit, find, is_terminal, only_user, open, pid, shorten_slice, umask,
    working_directory, write_all,
};
use crate::process::Process;
use crate::text::{Text, is_same, number_at};
use crate::{Attempt, keep, record};
use slotd_protocol::VERSION;
use slotd_protocol::frame::{HEADER, MAGIC};

/// The longest path that is used, including its final zero byte, and the largest script, in bytes.
/// `sbatch` handles longer ones.
const PATH: usize = 1024;
const SCRIPT: usize = 16 << 10;

/// The longest answer that is used, in bytes.
const ANSWER: usize = HEADER + 16 + PATH;

/// The time after which a warning says that the answer is late, in seconds: that of `sbatch`.
const LATE: i64 = 10;

/// The daemon's answer. Its raw part is a text or a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    /// The job was submitted. This has to be printed.
    Printed,
    /// Nothing was submitted. The script with this path is needed.
    ScriptWanted,
    /// Nothing was submitted. `sbatch` has to run.
    NotPlain,
}

/// A request, of which only the script is not known from the start.
struct Asker<'a> {
    process: &'a Process,
    /// The working directory, and whether it may be in a git work tree.
    dir: &'a [u8],
    may_be_in_tree: bool,
    socket: Fd,
    /// The path of the socket, with its final zero byte.
    path: &'a [u8],
}

/// Submits the job and exits. Returns if `sbatch` has to run.
pub(crate) fn run(process: &Process) {
    let mut dir = Text::<PATH>::new();
    let mut path = Text::<PATH>::new();
    let asker = only_user().and_then(|user| {
        let may_be_in_tree = working_directory_of(process, &mut dir)?;
        socket_path(&mut path, process)?;
        shorten_slice();
        let (dir, path) = (dir.get()?, path.get()?);
        Some(Asker { process, dir, may_be_in_tree, socket: connect(path, user)?, path })
    });
    if let Some(asker) = asker {
        let mut answer = Text::<ANSWER>::new();
        match asker.ask(b"", &mut answer) {
            Some((Answered::Printed, text)) => print(text),
            Some((Answered::ScriptWanted, path)) => asker.with_script(path),
            Some((Answered::NotPlain, _)) | None => {}
        }
    }
}

/// Prints the answer and exits. Returns if it cannot be printed, so that `sbatch` reports this.
fn print(text: &[u8]) {
    if write_all(1, text).is_ok() {
        exit(0);
    }
    record(if keep(text) { Attempt::Submitted } else { Attempt::Answered });
}

/// Connects to the daemon, if it runs as this user: the script and the environment are not for
/// others.
fn connect(path: &[u8], user: u32) -> Option<Fd> {
    let socket = Fd::socket().ok().filter(|socket| !socket.is_standard())?;
    socket.connect(CText::new(path)?).ok()?;
    (socket.peer() == Ok(user)).then_some(socket)
}

/// Writes the working directory as `sbatch` determines it: `PWD` if that is correct, or else its
/// physical path. Returns whether it may be in a git work tree, and `None` if it cannot be used.
fn working_directory_of(process: &Process, dir: &mut Text<PATH>) -> Option<bool> {
    let len = dir.fill(working_directory).ok()?;
    let physical = dir.get()?.get(..len.checked_sub(1)?)?;
    // The kernel returns a path in parentheses if the directory cannot be reached.
    (physical.first() == Some(&b'/')).then_some(())?;
    let may_be_in_tree = may_be_in_work_tree(physical);
    let shown = process.variable(b"PWD=").filter(|path| path.first() == Some(&b'/'));
    if let Some(shown) = shown.filter(|shown| !is_same(shown, physical)) {
        let mut path = Text::<PATH>::new();
        path.add(shown).push(0);
        if is_here(path.get()?) {
            dir.cut(0);
            dir.add(path.get()?);
        }
    }
    // The job enters it by this path.
    access(CText::new(dir.get()?)?, libc::X_OK).ok()?;
    let len = dir.get()?.len();
    dir.cut(len - 1);
    Some(may_be_in_tree)
}

/// Returns whether this path, which ends with a zero byte, leads to the working directory.
fn is_here(path: &[u8]) -> bool {
    let found = |path: &[u8]| -> Option<Found> { find(CText::new(path)?).ok() };
    match (found(path), found(b".\0")) {
        (Some(shown), Some(here)) => shown.is_same(here),
        _ => false,
    }
}

/// Returns whether this directory or one above it contains `.git`, or may contain it.
fn may_be_in_work_tree(physical: &[u8]) -> bool {
    let mut path = Text::<PATH>::new();
    path.add(physical);
    let mut end = if physical.len() == 1 { 0 } else { physical.len() };
    loop {
        path.cut(end);
        path.add(b"/.git\0");
        let found = path.get().and_then(CText::new).map(|path| access(path, libc::F_OK));
        if found != Some(Err(libc::ENOENT)) {
            return true;
        }
        if end == 0 {
            return false;
        }
        end = physical
            .get(..end)
            .and_then(|above| above.iter().rposition(|byte| *byte == b'/'))
            .unwrap_or(0);
    }
}

impl Asker<'_> {
    /// Sends the request and receives its answer. Returns `None` if `sbatch` has to run.
    fn ask<'a>(&self, script: &[u8], answer: &'a mut Text<ANSWER>) -> Option<(Answered, &'a [u8])> {
        let mut head = Text::<256>::new();
        self.write_head(&mut head, script.len())?;
        let parts = [head.get()?, self.process.words, self.dir, script];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        // The daemon ignores a request that is not complete.
        (self.socket.send(&parts) == Ok(len)).then_some(())?;
        // From now on the job may exist.
        record(Attempt::Lost);
        let (answered, text) = self.receive(answer)?;
        if answered != Answered::Printed {
            record(Attempt::None);
        }
        Some((answered, text))
    }

    /// Reads the script that the daemon asks for, and asks again. Its memory is not touched before
    /// it is needed.
    #[inline(never)]
    fn with_script(&self, path: &[u8]) {
        let mut script = Text::<SCRIPT>::new();
        let mut answer = Text::<ANSWER>::new();
        if read_script(path, &mut script).is_some()
            && let Some(script) = script.get()
            && let Some((Answered::Printed, text)) = self.ask(script, &mut answer)
        {
            print(text);
        }
    }

    /// Writes the header and the JSON part of the request.
    fn write_head(&self, head: &mut Text<256>, script: usize) -> Option<()> {
        let Asker { process, dir, .. } = self;
        let word = |is_so: bool| -> &[u8] { if is_so { b"true" } else { b"false" } };
        let mut json = Text::<224>::new();
        json.add(b"{\"Sbatch\":{\"args\":").number(process.args);
        json.add(b",\"words_len\":").number(process.words.len());
        json.add(b",\"dir_len\":").number(dir.len());
        json.add(b",\"script_len\":").number(script);
        json.add(b",\"pid\":").number(pid());
        json.add(b",\"umask\":").number(umask());
        json.add(b",\"may_be_in_tree\":").add(word(self.may_be_in_tree));
        json.add(b",\"is_on_terminal\":").add(word(is_terminal(2))).add(b"}}");
        let json = json.get()?;
        let raw = process.words.len() + dir.len() + script;
        start_frame(head);
        head.add(&(json.len() as u32).to_le_bytes()).add(&(raw as u32).to_le_bytes()).add(json);
        Some(())
    }

    /// Receives the answer. Returns `None` if there is none, or another one.
    fn receive<'a>(&self, answer: &'a mut Text<ANSWER>) -> Option<(Answered, &'a [u8])> {
        if self.socket.is_readable_within(LATE) == Ok(false) {
            warn_late(self.path);
        }
        loop {
            answer.fill(|free| self.socket.read(free)).ok().filter(|count| *count > 0)?;
            let got = answer.get()?;
            let Some((json, raw)) = number_at(got, 8).zip(number_at(got, 12)) else { continue };
            if !is_own_frame(got) {
                record(Attempt::Answered);
                break None;
            }
            let whole = HEADER.checked_add(json)?.checked_add(raw)?;
            if got.len() >= whole || whole > ANSWER {
                break parse(answer.get()?, json, whole);
            }
        }
    }
}

/// Writes the first eight bytes of a frame, which name the protocol and its version.
fn start_frame<const N: usize>(text: &mut Text<N>) {
    text.add(&MAGIC).add(&VERSION.to_le_bytes()).add(&[0, 0]);
}

/// Returns whether a frame is of this protocol and version.
fn is_own_frame(frame: &[u8]) -> bool {
    let mut start = Text::<8>::new();
    start_frame(&mut start);
    frame.get(..8).zip(start.get()).is_some_and(|(found, own)| is_same(found, own))
}

/// Parses an answer that has arrived completely.
fn parse(answer: &[u8], json: usize, whole: usize) -> Option<(Answered, &[u8])> {
    record(Attempt::Answered);
    let (json, raw) = answer.get(HEADER..whole)?.split_at_checked(json)?;
    let kinds: [(&[u8], Answered); 3] = [
        (b"\"Printed\"", Answered::Printed),
        (b"\"ScriptWanted\"", Answered::ScriptWanted),
        (b"\"NotPlain\"", Answered::NotPlain),
    ];
    let (_, answered) = kinds.into_iter().find(|(name, _)| is_same(json, name))?;
    Some((answered, raw))
}

/// Writes the path of the daemon's socket with a final zero byte. Returns `None` if only `sbatch`
/// can determine it.
fn socket_path(path: &mut Text<PATH>, process: &Process) -> Option<()> {
    match process.variable(b"SLOTD_ROOT=") {
        Some(root) => path.add(root),
        None => path.add(process.variable(b"HOME=")?).add(b"/.local/share/slotd"),
    };
    (path.get()?.first() == Some(&b'/')).then_some(())?;
    path.add(b"/run/slotd.sock\0");
    Some(())
}

fn warn_late(path: &[u8]) {
    let mut text = Text::<PATH>::new();
    text.add(b"slotd: warning: the daemon at ").add(without_zero(path));
    text.add(b" has not answered for ").number(LATE as usize);
    text.add(b" s; waiting for it (`slotd daemon status` shows whether it hangs)\n");
    if let Some(text) = text.get() {
        let _ = write_all(2, text);
    }
}

fn without_zero(path: &[u8]) -> &[u8] {
    path.split_last().map_or(path, |(_, path)| path)
}

/// Reads the script, if it is a regular file of a usual size.
fn read_script(path: &[u8], script: &mut Text<SCRIPT>) -> Option<()> {
    let path = CText::new(path)?;
    // A FIFO would lose what is read from it here.
    find(path).ok()?.is_file_within(SCRIPT).then_some(())?;
    let file = open(path).ok()?;
    file.find().ok()?.is_file_within(SCRIPT).then_some(())?;
    while script.fill(|free| file.read(free)).ok()? > 0 {}
    // It may have grown meanwhile.
    script.get().filter(|script| !script.is_empty() && script.len() < SCRIPT).map(drop)
}
