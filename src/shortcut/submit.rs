//! The submission: one request, or a second one with the script that the daemon asks for.
//!
//! Only the daemon knows which word names the script. The first file that a word names is most
//! likely the script, so it is sent with the first request, and the daemon rarely has to ask.

use crate::ask::{ANSWER_HEAD, Answered, Asker, PATH, Place, Script};
use crate::kernel::{
    CText, Found, access, exit, find, is_terminal, open, umask, working_directory, write_all,
};
use crate::process::Process;
use crate::text::{Text, after, is_same};
use crate::{Attempt, attempt, keep, record};

/// The largest script that is sent, in bytes. `sbatch` handles larger ones.
const SCRIPT: usize = 16 << 10;

/// The longest answer that is used, in bytes: it has a sentence or a path.
const ANSWER: usize = ANSWER_HEAD + PATH;

/// Submits the job and exits. Returns if `sbatch` has to run.
pub(crate) fn run(process: &Process) {
    let mut dir = Text::<PATH>::new();
    let Some(may_be_in_tree) = working_directory_of(process, &mut dir) else { return };
    let Some(dir) = dir.get() else { return };
    let place = Place { dir, may_be_in_tree, umask: umask(), is_on_terminal: is_terminal(2) };
    if let Some(asker) = Asker::connect(process) {
        let mut answer = Text::<ANSWER>::new();
        let named = process.names().find(|(_, path)| is_small_file(path));
        let answered = match named {
            Some((word, path)) => with_script(&asker, place, word, path, &mut answer),
            None => asker.ask(place, Script::default(), &mut answer),
        };
        match answered {
            Some((Answered::Printed, text)) => print(text),
            Some((Answered::ScriptWanted, path)) => as_asked(&asker, place, path),
            Some((Answered::NotPlain, _)) | None => {}
        }
        if attempt() == Attempt::Asked {
            asker.leave();
        }
    }
}

/// Sends the script that the daemon asks for. Returns if `sbatch` has to run.
#[inline(never)]
fn as_asked(asker: &Asker<'_>, place: Place<'_>, path: &[u8]) {
    let mut answer = Text::<ANSWER>::new();
    if is_small_file(path)
        && let Some((Answered::Printed, text)) = with_script(asker, place, 0, path, &mut answer)
    {
        print(text);
    }
}

/// Prints the answer and exits. Returns if it cannot be printed, so that `sbatch` reports this.
fn print(text: &[u8]) {
    if write_all(1, text).is_ok() {
        exit(0);
    }
    record(if keep(text) { Attempt::Submitted } else { Attempt::Answered });
}

/// Sends the request with the script that a word names, or word 0: with the one that the daemon has
/// asked for. The memory of the script is not touched before it is needed.
#[inline(never)]
fn with_script<'a>(
    asker: &Asker<'_>,
    place: Place<'_>,
    word: usize,
    path: &[u8],
    answer: &'a mut Text<ANSWER>,
) -> Option<(Answered, &'a [u8])> {
    let mut script = Text::<SCRIPT>::new();
    let is_read = read_script(path, &mut script).is_some();
    let text = script.get().filter(|_| is_read);
    match text {
        // Every script starts with this.
        Some(text) if word == 0 || after(text, b"#!").is_some() => {
            asker.ask(place, Script { text, word }, answer)
        }
        _ if word == 0 => None,
        _ => asker.ask(place, Script::default(), answer),
    }
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

/// Returns whether a path leads to a regular file of the size of a usual script. Opening a FIFO
/// would disturb whoever writes to it.
fn is_small_file(path: &[u8]) -> bool {
    CText::new(path).is_some_and(|path| find(path).is_ok_and(|file| file.is_file_within(SCRIPT)))
}

/// Reads the script, if it is still a regular file of a usual size.
fn read_script(path: &[u8], script: &mut Text<SCRIPT>) -> Option<()> {
    let file = open(CText::new(path)?).ok()?;
    file.find().ok()?.is_file_within(SCRIPT).then_some(())?;
    while script.fill(|free| file.read(free)).ok()? > 0 {}
    // It may have grown meanwhile.
    script.get().filter(|script| !script.is_empty() && script.len() < SCRIPT).map(drop)
}
