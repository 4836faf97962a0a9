//! The data that the ranks of a step publish, and the responses to their requests, in PMI-1 or
//! PMI-2, whichever a rank uses. Does no I/O.
//!
//! A PMI-1 request is a line of `key=value` words. A PMI-2 request is a message of `key=value;`
//! pairs in which `;;` is a semicolon. All ranks are on one host, so a value is visible to all of
//! them right away; a fence only waits for the other ranks.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The maximum length of a name, a key and a value, as in Slurm.
const MAX_LENGTHS: (usize, usize, usize) = (256, 64, 1024);

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A response, without its length prefix or newline.
    Answer { rank: u32, text: String },
    /// A rank aborts: end the step.
    Abort,
}

/// The key-value pairs of a request or response.
type Words = Vec<(String, String)>;

#[derive(Debug)]
pub(crate) struct Table {
    /// The name of the step, which is also the name of its key-value space.
    job: String,
    size: u32,
    values: HashMap<String, String>,
    node: HashMap<String, String>,
    ports: HashMap<String, String>,
    /// The ranks that have reached the fence, with the responses to send when all have.
    fence: BTreeMap<u32, String>,
    /// The ranks that are waiting for an attribute of the node, with its key and the thread that
    /// asked.
    waiting: Vec<(u32, String, Option<String>)>,
    /// Ranks in the middle of a multi-line request, with its words so far.
    spawning: HashMap<u32, Words>,
}

impl Table {
    pub(crate) fn new(job: impl ToString, size: u32) -> Table {
        Table {
            job: job.to_string(),
            size,
            values: HashMap::new(),
            node: HashMap::new(),
            ports: HashMap::new(),
            fence: BTreeMap::new(),
            waiting: Vec::new(),
            spawning: HashMap::new(),
        }
    }

    /// Returns the process mapping: node 0, one node of this kind, all ranks on it.
    fn mapping(&self) -> String {
        format!("(vector,(0,1,{}))", self.size)
    }

    fn value(&self, key: &str) -> Option<String> {
        match key {
            "PMI_process_mapping" => Some(self.mapping()),
            "universeSize" => Some(self.size.to_string()),
            _ => self.values.get(key).cloned(),
        }
    }

    /// Adds a rank to the fence. Once all ranks are there, answers all of them.
    fn at_fence(&mut self, rank: u32, response: String) -> Vec<Outcome> {
        self.fence.insert(rank, response);
        if self.fence.len() < self.size as usize {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.fence);
        all.into_iter().map(|(rank, text)| Outcome::Answer { rank, text }).collect()
    }

    /// Handles a PMI-1 line. Every rank starts with PMI-1.
    pub(crate) fn line(&mut self, rank: u32, text: &str) -> Vec<Outcome> {
        if let Some(mut words) = self.spawning.remove(&rank) {
            if text.trim() != "endcmd" {
                words.extend(words_of_line(text));
                self.spawning.insert(rank, words);
                return Vec::new();
            }
            // If several programs are spawned at once, only the last is answered.
            let is_last = get(&words, "spawnssofar") == get(&words, "totspawns");
            let answer = "cmd=spawn_result rc=-1 msg=spawn_not_supported";
            return is_last
                .then(|| Outcome::Answer { rank, text: answer.to_owned() })
                .into_iter()
                .collect();
        }
        let words = words_of_line(text);
        if get(&words, "mcmd").is_some() {
            self.spawning.insert(rank, words);
            return Vec::new();
        }
        let text = match get(&words, "cmd").unwrap_or_default() {
            "barrier_in" => return self.at_fence(rank, "cmd=barrier_out rc=0".to_owned()),
            "abort" => return vec![Outcome::Abort],
            command => self.answer_to_line(command, &words),
        };
        vec![Outcome::Answer { rank, text }]
    }

    fn answer_to_line(&mut self, command: &str, words: &Words) -> String {
        let of = |key: &str| get(words, key).unwrap_or_default().to_owned();
        let (name, key, value) = MAX_LENGTHS;
        match command {
            "init" => {
                let version = if get(words, "pmi_version") == Some("2") {
                    "2 pmi_subversion=0"
                } else {
                    "1 pmi_subversion=1"
                };
                format!("cmd=response_to_init pmi_version={version} rc=0")
            }
            "get_maxes" => {
                format!("cmd=maxes kvsname_max={name} keylen_max={key} vallen_max={value} rc=0")
            }
            "get_appnum" => "cmd=appnum appnum=0 rc=0".to_owned(),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={} rc=0", self.job),
            "get_universe_size" => format!("cmd=universe_size size={} rc=0", self.size),
            "put" => {
                self.values.insert(of("key"), of("value"));
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "get" => match self.value(&of("key")) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            "publish_name" => {
                self.ports.insert(of("service"), of("port"));
                "cmd=publish_result info=ok rc=0 msg=success".to_owned()
            }
            "unpublish_name" => match self.ports.remove(&of("service")) {
                Some(_) => "cmd=unpublish_result info=ok rc=0 msg=success".to_owned(),
                None => "cmd=unpublish_result info=fail rc=-1 msg=service_not_found".to_owned(),
            },
            "lookup_name" => match self.ports.get(&of("service")) {
                Some(port) => format!("cmd=lookup_result info=ok rc=0 msg=success port={port}"),
                None => "cmd=lookup_result info=fail rc=-1 msg=service_not_found".to_owned(),
            },
            "finalize" => "cmd=finalize_ack rc=0".to_owned(),
            // The library treats an unexpected response as an error. Without any response it would
            // wait forever.
            _ => "cmd=unknown rc=-1 msg=command_not_supported".to_owned(),
        }
    }

    /// Handles a PMI-2 message. A rank switches to PMI-2 by requesting that version.
    pub(crate) fn message(&mut self, rank: u32, text: &str) -> Vec<Outcome> {
        let words = words_of_message(text);
        let of = |key: &str| get(&words, key).unwrap_or_default().to_owned();
        let thread = get(&words, "thrid").map(str::to_owned);
        let answer =
            |command: &str, pairs: &[(&str, &str)]| answer(command, thread.as_deref(), pairs);
        let command = of("cmd");
        let text = match command.as_str() {
            "kvs-fence" => return self.at_fence(rank, answer("kvs-fence", &[("rc", "0")])),
            "abort" => return vec![Outcome::Abort],
            "info-putnodeattr" => {
                self.node.insert(of("key"), of("value"));
                let response =
                    Outcome::Answer { rank, text: answer("info-putnodeattr", &[("rc", "0")]) };
                return std::iter::once(response).chain(self.wake(&of("key"))).collect();
            }
            "info-getnodeattr" if of("wait") == "TRUE" && !self.node.contains_key(&of("key")) => {
                self.waiting.push((rank, of("key"), thread));
                return Vec::new();
            }
            "info-getnodeattr" => {
                found("info-getnodeattr", thread.as_deref(), self.node.get(&of("key")))
            }
            "info-getjobattr" | "kvs-get" => {
                found(&command, thread.as_deref(), self.value(&of("key")).as_ref())
            }
            "kvs-put" => {
                self.values.insert(of("key"), of("value"));
                answer("kvs-put", &[("rc", "0")])
            }
            "fullinit" => answer(
                "fullinit",
                &[
                    ("rc", "0"),
                    ("pmi-version", "2"),
                    ("pmi-subversion", "0"),
                    ("rank", &rank.to_string()),
                    ("size", &self.size.to_string()),
                    ("appnum", "0"),
                    ("debugged", "FALSE"),
                    ("pmiverbose", "FALSE"),
                ],
            ),
            "job-getid" => answer("job-getid", &[("rc", "0"), ("jobid", &self.job)]),
            "name-publish" => {
                self.ports.insert(of("name"), of("port"));
                answer("name-publish", &[("rc", "0")])
            }
            "name-unpublish" => {
                let rc = if self.ports.remove(&of("name")).is_some() { "0" } else { "1" };
                answer("name-unpublish", &[("rc", rc)])
            }
            "name-lookup" => match self.ports.get(&of("name")) {
                Some(port) => answer("name-lookup", &[("rc", "0"), ("value", port)]),
                None => answer("name-lookup", &[("rc", "1"), ("errmsg", "not found")]),
            },
            "finalize" => answer("finalize", &[("rc", "0")]),
            other => answer(other, &[("rc", "-1"), ("errmsg", "not supported")]),
        };
        vec![Outcome::Answer { rank, text }]
    }

    /// Answers the ranks that are waiting for this attribute of the node.
    fn wake(&mut self, key: &str) -> Vec<Outcome> {
        let value = self.node.get(key);
        let ready = self.waiting.extract_if(.., |(_, wanted, _)| wanted == key);
        ready
            .map(|(rank, _, thread)| Outcome::Answer {
                rank,
                text: found("info-getnodeattr", thread.as_deref(), value),
            })
            .collect()
    }
}

fn found(command: &str, thread: Option<&str>, value: Option<&String>) -> String {
    match value {
        Some(value) => answer(command, thread, &[("rc", "0"), ("found", "TRUE"), ("value", value)]),
        None => answer(command, thread, &[("rc", "0"), ("found", "FALSE")]),
    }
}

/// Builds a PMI-2 response.
fn answer(command: &str, thread: Option<&str>, pairs: &[(&str, &str)]) -> String {
    let mut text = format!("cmd={command}-response;");
    for (key, value) in thread.map(|thread| ("thrid", thread)).iter().chain(pairs) {
        // Writing to a string does not fail.
        let _ = write!(text, "{key}={};", value.replace(';', ";;"));
    }
    text
}

fn get<'a>(words: &'a Words, key: &str) -> Option<&'a str> {
    words.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn words_of_line(text: &str) -> Words {
    let pair =
        |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    text.split_ascii_whitespace().filter_map(pair).collect()
}

fn words_of_message(text: &str) -> Words {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some((key, tail)) = rest.split_once('=') {
        let (mut value, mut chars) = (String::new(), tail.char_indices().peekable());
        let mut end = tail.len();
        while let Some((at, c)) = chars.next() {
            match (c, chars.peek()) {
                (';', Some((_, ';'))) => {
                    chars.next();
                    value.push(';');
                }
                (';', _) => {
                    end = at + 1;
                    break;
                }
                _ => value.push(c),
            }
        }
        words.push((key.to_owned(), value));
        rest = tail.get(end..).unwrap_or_default();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn to(rank: u32, text: &str) -> Outcome {
        Outcome::Answer { rank, text: text.to_owned() }
    }

    /// The requests of MPICH 4.0 from `MPI_Init` to `MPI_Finalize`, with the expected responses.
    #[test]
    fn two_ranks_of_mpich_find_each_other() {
        let mut table = Table::new("7.0", 2);
        for (request, response) in [
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            ),
            ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"),
            ("cmd=get_appnum", "cmd=appnum appnum=0 rc=0"),
            ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=7.0 rc=0"),
            (
                "cmd=get kvsname=7.0 key=PMI_process_mapping",
                "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))",
            ),
            ("cmd=put kvsname=7.0 key=bc-0 value=mpi#1=2", "cmd=put_result rc=0 msg=success"),
            (
                "cmd=get kvsname=7.0 key=bc-1",
                "cmd=get_result rc=-1 msg=key_not_found value=unknown",
            ),
            ("cmd=get kvsname=7.0 key=bc-0", "cmd=get_result rc=0 msg=success value=mpi#1=2"),
            ("cmd=get_universe_size", "cmd=universe_size size=2 rc=0"),
            ("cmd=finalize", "cmd=finalize_ack rc=0"),
        ] {
            assert_eq!(table.line(0, request), [to(0, response)], "{request}");
        }
    }

    #[test]
    fn a_fence_opens_when_all_ranks_have_arrived_and_closes_again() {
        let mut table = Table::new("7.0", 2);
        for _ in 0..2 {
            assert_eq!(table.line(1, "cmd=barrier_in"), []);
            assert_eq!(table.line(1, "cmd=barrier_in"), []);
            let out = "cmd=barrier_out rc=0";
            assert_eq!(table.line(0, "cmd=barrier_in"), [to(0, out), to(1, out)]);
        }
        assert_eq!(table.message(0, "cmd=kvs-fence;thrid=5;"), []);
        let responses =
            [to(0, "cmd=kvs-fence-response;thrid=5;rc=0;"), to(1, "cmd=kvs-fence-response;rc=0;")];
        assert_eq!(table.message(1, "cmd=kvs-fence;"), responses);
    }

    #[test]
    fn a_rank_may_use_pmi2() {
        let mut table = Table::new("7.0", 2);
        let init = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0";
        assert_eq!(table.line(1, "cmd=init pmi_version=2 pmi_subversion=0"), [to(1, init)]);
        let hello = "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;debugged=FALSE;\
                     pmiverbose=FALSE;";
        for (request, response) in [
            ("cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;", hello),
            ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=7.0;"),
            ("cmd=kvs-put;key=a;value=x;;y=z;", "cmd=kvs-put-response;rc=0;"),
            (
                "cmd=kvs-get;jobid=7.0;srcid=-1;key=a;",
                "cmd=kvs-get-response;rc=0;found=TRUE;value=x;;y=z;",
            ),
            ("cmd=kvs-get;jobid=7.0;key=b;", "cmd=kvs-get-response;rc=0;found=FALSE;"),
            (
                "cmd=info-getjobattr;key=universeSize;",
                "cmd=info-getjobattr-response;rc=0;found=TRUE;value=2;",
            ),
            ("cmd=name-lookup;name=n;", "cmd=name-lookup-response;rc=1;errmsg=not found;"),
            ("cmd=name-publish;name=n;port=p;", "cmd=name-publish-response;rc=0;"),
            ("cmd=name-lookup;name=n;", "cmd=name-lookup-response;rc=0;value=p;"),
            ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
        ] {
            assert_eq!(table.message(1, request), [to(1, response)], "{request}");
        }
    }

    #[test]
    fn a_rank_waits_for_an_attribute_of_the_node() {
        let mut table = Table::new("7.0", 2);
        assert_eq!(table.message(0, "cmd=info-getnodeattr;key=shm;wait=TRUE;"), []);
        let responses = [
            to(1, "cmd=info-putnodeattr-response;rc=0;"),
            to(0, "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=/dev/shm/x;"),
        ];
        assert_eq!(table.message(1, "cmd=info-putnodeattr;key=shm;value=/dev/shm/x;"), responses);
        let none = "cmd=info-getnodeattr-response;rc=0;found=FALSE;";
        assert_eq!(table.message(0, "cmd=info-getnodeattr;key=other;wait=FALSE;"), [to(0, none)]);
    }

    #[test]
    fn unsupported_requests_are_refused_with_a_response() {
        let mut table = Table::new("7.0", 1);
        for line in ["mcmd=spawn", "nprocs=2", "execname=x y", "totspawns=1", "spawnssofar=1"] {
            assert_eq!(table.line(0, line), [], "{line}");
        }
        assert_eq!(
            table.line(0, "endcmd"),
            [to(0, "cmd=spawn_result rc=-1 msg=spawn_not_supported")]
        );
        assert_eq!(table.line(0, "cmd=no"), [to(0, "cmd=unknown rc=-1 msg=command_not_supported")]);
        assert_eq!(table.line(0, ""), [to(0, "cmd=unknown rc=-1 msg=command_not_supported")]);
        assert_eq!(
            table.message(0, "cmd=spawn;"),
            [to(0, "cmd=spawn-response;rc=-1;errmsg=not supported;")]
        );
        assert_eq!(table.line(0, "cmd=abort exitcode=3"), [Outcome::Abort]);
        assert_eq!(table.message(0, "cmd=abort;isworld=TRUE;msg=m;"), [Outcome::Abort]);
    }

    proptest! {
        #[test]
        fn a_pmi2_value_is_returned_as_it_was_put(value in "[ -~]{0,40}") {
            let mut table = Table::new("7.0", 1);
            table.message(0, &format!("cmd=kvs-put;key=k;value={};", value.replace(';', ";;")));
            prop_assert_eq!(table.value("k"), Some(value));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,80}") {
            let mut table = Table::new("7.0", 2);
            table.line(0, &text);
            table.message(0, &text);
        }
    }
}
