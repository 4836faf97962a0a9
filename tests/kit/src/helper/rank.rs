//! An MPI rank up to its first message: publishes its rank number, and prints those of all ranks.

use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

fn number(name: &str) -> i32 {
    env::var(name).expect(name).parse().expect("a number")
}

/// The connection to the PMI server.
struct Connection {
    file: File,
    version: i32,
}

impl Connection {
    fn exchange(&mut self, text: &str, framed: bool) -> String {
        let text = if framed { format!("{:6}{text}", text.len()) } else { format!("{text}\n") };
        self.file.write_all(text.as_bytes()).expect("the server is connected");
        let mut answer = Vec::new();
        let mut take = |many: usize| {
            let mut bytes = vec![0; many];
            self.file.read_exact(&mut bytes).expect("an answer");
            bytes
        };
        if framed {
            let length = String::from_utf8(take(6)).expect("a length");
            answer = take(length.trim().parse().expect("a length"));
        } else {
            while answer.last() != Some(&b'\n') {
                answer.extend(take(1));
            }
        }
        String::from_utf8(answer).expect("an answer").trim_end().to_owned()
    }

    /// Sends a command in the syntax of this version, and returns the answer.
    fn ask(&mut self, words: &[&str]) -> String {
        match self.version {
            1 => self.exchange(&words.join(" "), false),
            _ => self.exchange(&format!("{};", words.join(";")), true),
        }
    }
}

pub fn rank(version: i32) {
    // SAFETY: The descriptor was created for this process and is used nowhere else.
    let file = unsafe { File::from_raw_fd(number("PMI_FD")) };
    let (rank, size) = (number("PMI_RANK"), number("PMI_SIZE"));
    let job = env::var("PMI_JOBID").expect("PMI_JOBID");
    let mut connection = Connection { file, version };
    connection.exchange(&format!("cmd=init pmi_version={version} pmi_subversion=0"), false);
    let (put, fence, get) = match version {
        1 => ("put", "barrier_in", "get"),
        _ => {
            connection.ask(&["cmd=fullinit", &format!("pmirank={rank}")]);
            ("kvs-put", "kvs-fence", "kvs-get")
        }
    };
    let space = format!("kvsname={job}");
    connection.ask(&[
        &format!("cmd={put}"),
        &space,
        &format!("key=rank-{rank}"),
        &format!("value={rank}"),
    ]);
    connection.ask(&[&format!("cmd={fence}")]);
    let seen = (0..size).map(|other| {
        let answer = connection.ask(&[&format!("cmd={get}"), &space, &format!("key=rank-{other}")]);
        let value = answer.rsplit_once("value=").unwrap_or_else(|| panic!("{answer}")).1;
        value.trim_end_matches(';').to_owned()
    });
    let seen: Vec<String> = seen.collect();
    println!("{rank} of {size}: {}", seen.join(" "));
    connection.ask(&["cmd=finalize"]);
}
