//! A rank of an MPI program, as far as it comes before the first message of MPI: it puts its own
//! number, and says those of all.

use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

fn number(name: &str) -> i32 {
    env::var(name).expect(name).parse().expect("a number")
}

/// The line to whoever knows the others.
struct Line {
    file: File,
    version: i32,
}

impl Line {
    fn say(&mut self, text: &str, framed: bool) -> String {
        let text = if framed { format!("{:6}{text}", text.len()) } else { format!("{text}\n") };
        self.file.write_all(text.as_bytes()).expect("somebody listens");
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

    /// The answer to a command in the words of the version.
    fn ask(&mut self, words: &[&str]) -> String {
        match self.version {
            1 => self.say(&words.join(" "), false),
            _ => self.say(&format!("{};", words.join(";")), true),
        }
    }
}

pub fn rank(version: i32) {
    // SAFETY: it was made for this process, which uses it nowhere else.
    let file = unsafe { File::from_raw_fd(number("PMI_FD")) };
    let (rank, size) = (number("PMI_RANK"), number("PMI_SIZE"));
    let job = env::var("PMI_JOBID").expect("PMI_JOBID");
    let mut line = Line { file, version };
    line.say(&format!("cmd=init pmi_version={version} pmi_subversion=0"), false);
    let (put, fence, get) = match version {
        1 => ("put", "barrier_in", "get"),
        _ => {
            line.ask(&["cmd=fullinit", &format!("pmirank={rank}")]);
            ("kvs-put", "kvs-fence", "kvs-get")
        }
    };
    let space = format!("kvsname={job}");
    line.ask(&[
        &format!("cmd={put}"),
        &space,
        &format!("key=rank-{rank}"),
        &format!("value={rank}"),
    ]);
    line.ask(&[&format!("cmd={fence}")]);
    let seen = (0..size).map(|other| {
        let answer = line.ask(&[&format!("cmd={get}"), &space, &format!("key=rank-{other}")]);
        let value = answer.rsplit_once("value=").unwrap_or_else(|| panic!("{answer}")).1;
        value.trim_end_matches(';').to_owned()
    });
    let seen: Vec<String> = seen.collect();
    println!("{rank} of {size}: {}", seen.join(" "));
    line.ask(&["cmd=finalize"]);
}
