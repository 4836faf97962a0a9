//! Plain command lines.

use super::{Replied, Session, plain};
use crate::daemon::command_line::{CommandLine, Parsed, PlainQuery, QueryOf, SentScript};
use slotd_model::JobRequest;
use slotd_model::environ::Environ;
use slotd_model::job::ClientProcess;
use slotd_model::source::WorkTree;
use slotd_model::view::JobList;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{
    MOST_PLAIN_ARGS, MOST_PLAIN_BYTES, MOST_PRINTED, PlainCommand, Program, Surroundings,
};
use slotd_sys::{aside, clock, mount, proc, work_tree};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The most records that the daemon prints, steps included. Other clients wait meanwhile.
const MOST_ROWS: usize = 32;

impl Session {
    /// Parses a command line and carries it out. Its program handles all command lines that are not
    /// plain, and all errors.
    pub(super) async fn plain_command(&mut self, ask: PlainCommand, raw: Vec<u8>) -> Replied {
        let not_plain = Ok(plain(Answer::NotPlain));
        let Some(line) = self.command_line(&ask, raw) else { return not_plain };
        let is_off = line.env.get("SLOTD_GIT").is_some_and(|value| value == b"off");
        let looks = ask.may_be_in_tree && self.hub.work_trees.is_on && !is_off;
        match (self.hub.parser)(line) {
            Parsed::NotPlain => not_plain,
            Parsed::Query(query) => self.plain_query(*query).await,
            Parsed::ScriptWanted(path) => {
                let path = [path.as_os_str().as_bytes(), b"\0"].concat();
                Ok(Some((Answer::ScriptWanted, path)))
            }
            Parsed::Job { mut submit, raw, printed } => {
                if looks {
                    let Some(tree) = work_tree_of(&submit.request).await else { return not_plain };
                    submit.request.tree = tree.map(Box::new);
                }
                match self.submit(*submit, raw, Some(printed)).await? {
                    Some((Answer::Refused(_), _)) => not_plain,
                    answer => Ok(answer),
                }
            }
        }
    }

    /// Answers a query with the text that its program prints, if that is short.
    async fn plain_query(&self, query: PlainQuery) -> Replied {
        let answer = match query.of {
            QueryOf::Jobs(query) => self.jobs(query, MOST_ROWS).await?,
            QueryOf::Accounting(query) => self.accounting(query, MOST_ROWS).await?,
            QueryOf::Node => self.node().await?,
        };
        let is_short = |answer: &Answer| match answer {
            Answer::Jobs(list) => steps(list) <= MOST_ROWS,
            _ => true,
        };
        let text = answer.map(|(answer, _)| answer).filter(is_short).and_then(query.print);
        Ok(match text.filter(|text| text.len() <= MOST_PRINTED) {
            Some(text) => Some((Answer::Printed, text.into_bytes())),
            None => plain(Answer::NotPlain),
        })
    }

    /// Returns the client, as the daemon identifies it. In another namespace it has another number.
    pub(super) fn peer_process(&self) -> Option<ClientProcess> {
        let pid = self.socket.peer_cred().ok()?.pid()?;
        let start_ticks = proc::start_ticks(pid)?;
        Some(ClientProcess { pid: u32::try_from(pid).ok()?, start_ticks, boot: clock::boot_id() })
    }

    /// Returns the command line of this client. Returns `None` if it is not a process of the
    /// daemon's own user and group in the same surroundings, if it submits and the daemon cannot
    /// identify it, or if it is unusually large.
    fn command_line(&self, ask: &PlainCommand, raw: Vec<u8>) -> Option<CommandLine> {
        let peer = self.socket.peer_cred().ok()?;
        let own = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        ((peer.uid(), peer.gid()) == own).then_some(())?;
        (surroundings() == Some(ask.surroundings)).then_some(())?;
        let client = match ask.program {
            Program::Sbatch => Some(self.peer_process().filter(|client| client.pid == ask.pid)?),
            Program::Squeue | Program::Sinfo | Program::Sacct | Program::Scontrol => None,
        };
        let (words, rest) = raw.split_at_checked(ask.words_len)?;
        let (dir, script) = rest.split_at_checked(ask.dir_len)?;
        let is_usual = words.len() <= MOST_PLAIN_BYTES
            && ask.args <= MOST_PLAIN_ARGS
            && ask.script_word < ask.args
            && ask.umask <= 0o777;
        let is_path = client.is_none() || (dir.starts_with(b"/") && !dir.contains(&0));
        (script.len() == ask.script_len && is_usual && is_path).then_some(())?;
        let mut args = Vec::with_capacity(ask.args);
        let mut rest = words;
        while args.len() < ask.args && !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            let (word, others) = rest.split_at(end);
            args.push(OsString::from_vec(word.to_vec()));
            rest = others.get(1..).unwrap_or_default();
        }
        let script = (!script.is_empty()).then(|| SentScript {
            word: args.get(ask.script_word).filter(|_| ask.script_word > 0).cloned(),
            text: script.to_vec(),
        });
        Some(CommandLine {
            program: ask.program,
            args,
            env: Environ::parse(rest.to_vec()),
            dir: PathBuf::from(OsString::from_vec(dir.to_vec())),
            script,
            umask: ask.umask,
            is_on_terminal: ask.is_on_terminal,
            client,
        })
    }
}

/// Returns the checksum of the surroundings of this process. The host may get another name while it
/// runs.
fn surroundings() -> Option<u64> {
    let [root_mount, root_device, root_inode] = mount::of_root()?;
    let host = nix::sys::utsname::uname().ok()?;
    let surroundings = Surroundings {
        user: nix::unistd::getuid().as_raw(),
        group: nix::unistd::getgid().as_raw(),
        root_mount,
        root_device,
        root_inode,
        host: host.nodename().as_bytes(),
    };
    Some(surroundings.checksum())
}

/// Returns the number of steps in an answer.
fn steps(list: &JobList) -> usize {
    let brief = list.brief.iter().filter_map(|job| job.past.as_ref()).map(|past| past.steps.len());
    list.jobs.iter().map(|job| job.steps.len()).chain(brief).sum()
}

/// Returns the work tree that a job runs in, as `sbatch` itself would find it. Returns `None` if the
/// file system does not answer.
async fn work_tree_of(request: &JobRequest) -> Option<Option<WorkTree>> {
    let dir = PathBuf::from(&request.work_dir);
    let what = format!("looking for a git work tree around {}", dir.display());
    aside::run(what, aside::PATIENCE, move || work_tree::probe(&dir)).await.ok()
}
