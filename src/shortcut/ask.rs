//! The connection to the daemon: requests with a command line, and their answers.

use crate::kernel::{CText, Fd, host_name, only_ids, pid, root, shorten_slice};
use crate::process::Process;
use crate::text::{Text, is_same, number_at};
use crate::{Attempt, LEFT_OPEN, SENT, record, sum};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use slotd_model::{DEFAULT_ROOT, SOCKET};
use slotd_protocol::VERSION;
use slotd_protocol::frame::{HEADER, MAGIC};
use slotd_protocol::request::Surroundings;

/// The longest path that is used, including its final zero byte, in bytes. The program handles
/// longer ones.
pub(crate) const PATH: usize = 1024;

/// The part of an answer before its raw part, in bytes.
pub(crate) const ANSWER_HEAD: usize = HEADER + 16;

/// The longest wait for an answer, in seconds. The program may not need the daemon, for example to
/// report an invalid option.
const PATIENCE: i64 = 1;

/// The daemon's answer. Its raw part is a text or a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The command line was carried out. This has to be printed.
    Printed,
    /// Nothing was submitted. The script with this path is needed.
    ScriptWanted,
    /// Nothing was submitted. The program has to run.
    NotPlain,
}

/// The facts that a submission adds to the command line and the environment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place<'a> {
    /// The working directory, and whether it may be in a git work tree.
    pub(crate) dir: &'a [u8],
    pub(crate) may_be_in_tree: bool,
    pub(crate) umask: usize,
    /// Standard error is a terminal.
    pub(crate) is_on_terminal: bool,
}

/// A file that is sent as the script. None: no bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Script<'a> {
    pub(crate) text: &'a [u8],
    /// The word that names it, or 0 if the daemon has asked for it.
    pub(crate) word: usize,
}

/// A connection to the daemon.
pub(crate) struct Asker<'a> {
    process: &'a Process,
    socket: Fd,
    /// The real user and group.
    ids: (u32, u32),
}

impl<'a> Asker<'a> {
    /// Connects to the daemon, if it runs as this user: the script and the environment are not for
    /// others.
    pub(crate) fn connect(process: &'a Process) -> Option<Asker<'a>> {
        let ids = only_ids()?;
        let mut path = Text::<PATH>::new();
        write_socket_path(&mut path, process)?;
        shorten_slice();
        let path = path.get()?;
        let socket = Fd::socket().ok().filter(|socket| !socket.is_standard())?;
        socket.connect(CText::new(path)?).ok()?;
        (socket.peer() == Ok(ids.0)).then_some(Asker { process, socket, ids })
    }

    /// Sends the request and receives its answer. Returns `None` if the program has to run.
    pub(crate) fn ask<'b, const N: usize>(
        &self,
        place: Place<'_>,
        script: Script<'_>,
        answer: &'b mut Text<N>,
    ) -> Option<(Answered, &'b [u8])> {
        let mut head = Text::<368>::new();
        self.write_head(&mut head, place, script)?;
        let parts = [head.get()?, self.process.words, place.dir, script.text];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        // The daemon ignores a request that is not complete.
        (self.socket.send(&parts) == Ok(len)).then_some(())?;
        // From now on the job may exist.
        record(Attempt::Asked);
        if self.socket.is_readable_within(PATIENCE) != Ok(true) {
            SENT.store(sum(script.text), Ordering::Relaxed);
            return None;
        }
        record(Attempt::Lost);
        let (answered, text) = self.receive(answer)?;
        if answered != Answered::Printed {
            record(Attempt::None);
        }
        Some((answered, text))
    }

    /// Leaves the connection to the program.
    pub(crate) fn leave(self) {
        LEFT_OPEN.store(self.socket.leave_open(), Ordering::Relaxed);
    }

    /// Writes the header and the JSON part of the request.
    fn write_head(&self, head: &mut Text<368>, place: Place<'_>, script: Script<'_>) -> Option<()> {
        let process = self.process;
        let word = |is_so: bool| -> &[u8] { if is_so { b"true" } else { b"false" } };
        let mut json = Text::<336>::new();
        json.add(b"{\"Plain\":{\"program\":\"").add(process.program.name().as_bytes());
        json.add(b"\",\"args\":").number(process.args);
        json.add(b",\"words_len\":").number(process.words.len());
        json.add(b",\"dir_len\":").number(place.dir.len());
        json.add(b",\"script_len\":").number(script.text.len());
        json.add(b",\"script_word\":").number(script.word);
        json.add(b",\"pid\":").number(pid());
        json.add(b",\"surroundings\":").number(self.surroundings()? as usize);
        json.add(b",\"umask\":").number(place.umask);
        json.add(b",\"may_be_in_tree\":").add(word(place.may_be_in_tree));
        json.add(b",\"is_on_terminal\":").add(word(place.is_on_terminal)).add(b"}}");
        let json = json.get()?;
        let raw = process.words.len() + place.dir.len() + script.text.len();
        start_frame(head);
        head.add(&(json.len() as u32).to_le_bytes()).add(&(raw as u32).to_le_bytes()).add(json);
        Some(())
    }

    /// Returns the checksum of the surroundings of this process, or `None` if the kernel is too old.
    fn surroundings(&self) -> Option<u64> {
        let (user, group) = self.ids;
        let [root_mount, root_device, root_inode] = root().ok()?;
        let mut names = MaybeUninit::uninit();
        let host = host_name(&mut names).ok()?;
        let surroundings = Surroundings { user, group, root_mount, root_device, root_inode, host };
        Some(surroundings.checksum())
    }

    /// Receives the answer. Returns `None` if there is none, or another one.
    fn receive<'b, const N: usize>(&self, answer: &'b mut Text<N>) -> Option<(Answered, &'b [u8])> {
        loop {
            answer.fill(|free| self.socket.read(free)).ok().filter(|count| *count > 0)?;
            let got = answer.get()?;
            let Some((json, raw)) = number_at(got, 8).zip(number_at(got, 12)) else { continue };
            if !is_own_frame(got) {
                record(Attempt::Answered);
                break None;
            }
            let whole = HEADER.checked_add(json)?.checked_add(raw)?;
            if got.len() >= whole || whole > N {
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

/// Writes the path of the daemon's socket with a final zero byte. Returns `None` if only the program
/// can determine it.
fn write_socket_path(path: &mut Text<PATH>, process: &Process) -> Option<()> {
    match process.variable(b"SLOTD_ROOT=") {
        Some(root) => path.add(root),
        None => path.add(process.variable(b"HOME=")?).add(b"/").add(DEFAULT_ROOT.as_bytes()),
    };
    (path.get()?.first() == Some(&b'/')).then_some(())?;
    path.add(b"/").add(SOCKET.as_bytes()).push(0);
    Some(())
}
