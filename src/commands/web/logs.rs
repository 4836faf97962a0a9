//! Parts of a job's output. The page reads only the parts that it shows, so a file of gigabytes can
//! be followed.
//!
//! The path comes from the daemon, never from the page. The accepted ranges are `bytes=A-`,
//! `bytes=A-B` and `bytes=-LAST`. A response is never longer than [`MOST_PART`].

use super::job::{named, record, records};
use super::refused::{Refused, waiting};
use crate::client::tail;
use crate::commands::ask_for_jobs;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use slotd_model::query::JobQuery;
use slotd_model::{JobRef, JobState};
use slotd_protocol::request::Request;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Maximum size of a response, bytes.
pub const MOST_PART: u64 = 256 << 10;

/// Maximum number of jobs in a response with last lines.
const MOST_LINES: usize = 64;

/// The part of a file in which its last line is looked for, bytes.
const END: u64 = 4096;

/// Maximum length of a last line, in characters.
const LONGEST_LINE: usize = 400;

/// The requested range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// From the first offset up to and including the second one, or to the end.
    From(u64, Option<u64>),
    Last(u64),
}

#[derive(Debug, PartialEq, Eq)]
struct Part {
    from: u64,
    /// The size of the whole file.
    size: u64,
    bytes: Vec<u8>,
}

pub async fn part(
    request: HttpRequest,
    path: web::Path<(String, String)>,
) -> Result<HttpResponse, Refused> {
    let (name, stream) = path.into_inner();
    let (job, stream) = (named(&name)?, Stream::named(&stream)?);
    let range = request.headers().get(header::RANGE).and_then(|range| range.to_str().ok());
    let asked = match range {
        None => Asked::From(0, None),
        Some(text) => {
            parse(text).ok_or_else(|| Refused::bad(format!("invalid Range header: {text}")))?
        }
    };
    let part = waiting(move || read(&path_of(&job, stream)?, asked)).await?;
    let size = part.size;
    let mut answer = HttpResponse::build(StatusCode::PARTIAL_CONTENT);
    if part.bytes.is_empty() {
        answer
            .status(StatusCode::RANGE_NOT_SATISFIABLE)
            .insert_header((header::CONTENT_RANGE, format!("bytes */{size}")));
    } else {
        let last = part.from + part.bytes.len() as u64 - 1;
        answer.insert_header((header::CONTENT_RANGE, format!("bytes {}-{last}/{size}", part.from)));
    }
    Ok(answer.insert_header((header::CONTENT_TYPE, "application/octet-stream")).body(part.bytes))
}

#[derive(Debug, Deserialize)]
pub struct Failed {
    /// Ended jobs, separated by commas.
    failed: Option<String>,
}

/// Sends the last line of output of the running jobs by record number, or the last line of the
/// errors of ended jobs.
pub async fn last_lines(asked: web::Query<Failed>) -> Result<HttpResponse, Refused> {
    if let Some(names) = &asked.failed {
        let jobs = names.split(',').take(MOST_LINES).map(named).collect::<Result<_, _>>()?;
        return Ok(HttpResponse::Ok().json(waiting(|| last_errors(jobs)).await?));
    }
    let look = || {
        let states = Some(vec![JobState::Running]);
        let query = JobQuery { states, without_steps: true, ..JobQuery::default() };
        let mut found: BTreeMap<u32, String> = BTreeMap::new();
        ask_for_jobs(&Request::Jobs(query), |list| {
            for job in &list.jobs {
                if found.len() < MOST_LINES
                    && !job.std_out.is_empty()
                    && let Some(line) = last_line(Path::new(&job.std_out))
                {
                    found.insert(job.id.0, line);
                }
            }
            Ok(())
        })?;
        Ok(found)
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}

/// Returns the last line of the errors of ended jobs, by record number.
fn last_errors(jobs: Vec<JobRef>) -> Result<BTreeMap<u32, String>, Refused> {
    let query = JobQuery { without_steps: true, ..JobQuery::of(jobs) };
    let mut found: BTreeMap<u32, String> = BTreeMap::new();
    ask_for_jobs(&Request::Accounting(query), |list| {
        for job in &list.jobs {
            // A whole array has any number of records.
            if found.len() < MOST_LINES
                && job.run.state.is_terminal()
                && !job.std_err.is_empty()
                && let Some(line) = last_line(Path::new(&job.std_err))
            {
                found.insert(job.id.0, line);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the last line with text at the end of a file. Progress bars end their lines with a
/// carriage return.
fn last_line(path: &Path) -> Option<String> {
    let part = read(path, Asked::Last(END)).ok()?;
    let text = String::from_utf8_lossy(&part.bytes);
    let has_text = |line: &&str| line.chars().any(|c| !c.is_whitespace() && !c.is_control());
    let line = text.rsplit(['\n', '\r']).find(has_text)?;
    Some(line.chars().take(LONGEST_LINE).collect())
}

/// One of the two outputs of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

impl Stream {
    fn named(text: &str) -> Result<Stream, Refused> {
        match text {
            "out" => Ok(Stream::Out),
            "err" => Ok(Stream::Err),
            _ => Err(Refused::missing("no such output: use out or err")),
        }
    }
}

/// Returns the path of an output file.
///
/// # Errors
/// Fails if the job writes to a terminal.
pub fn path_of(job: &JobRef, stream: Stream) -> Result<PathBuf, Refused> {
    let list = records(job)?;
    let view = record(&list)?;
    let path = match stream {
        Stream::Out => &view.std_out,
        Stream::Err => &view.std_err,
    };
    if path.is_empty() {
        return Err(Refused::missing("this job writes to a terminal, not to a file"));
    }
    Ok(PathBuf::from(path))
}

fn parse(text: &str) -> Option<Asked> {
    match text.strip_prefix("bytes=")?.split_once('-')? {
        ("", last) => Some(Asked::Last(last.parse().ok()?)),
        (from, "") => Some(Asked::From(from.parse().ok()?, None)),
        (from, to) => Some(Asked::From(from.parse().ok()?, Some(to.parse().ok()?))),
    }
}

/// Opens a regular file. Terminals, pipes and devices may have no end.
fn open(path: &Path) -> Result<File, Refused> {
    let refused = |why: &str| Refused::missing(format!("{}: {why}", path.display()));
    match tail::open_output(path) {
        Ok(Some(file)) => Ok(file),
        Ok(None) if path.exists() => Err(refused("not a regular file")),
        Ok(None) => Err(refused("no output yet")),
        Err(e) => Err(refused(&e.to_string())),
    }
}

fn read(path: &Path, asked: Asked) -> Result<Part, Refused> {
    let mut file = open(path)?;
    let failed = |e: io::Error| Refused::missing(format!("{}: {e}", path.display()));
    let size = file.metadata().map_err(failed)?.len();
    let (from, until) = match asked {
        Asked::From(from, to) => (from, to.map_or(size, |to| size.min(to.saturating_add(1)))),
        Asked::Last(count) => (size.saturating_sub(count.min(MOST_PART)), size),
    };
    let len = until.saturating_sub(from).min(MOST_PART);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    file.take(len).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Part { from, size, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_matches_the_requested_range_up_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let text: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &text).unwrap();
        for (range, from, len) in [
            ("bytes=0-", 0, MOST_PART),
            ("bytes=10-19", 10, 10),
            ("bytes=599990-", 599_990, 10),
            ("bytes=-5", 599_995, 5),
            ("bytes=-999999999", 600_000 - MOST_PART, MOST_PART),
            ("bytes=600000-", 600_000, 0),
            ("bytes=700000-700001", 700_000, 0),
            ("bytes=9-3", 9, 0),
        ] {
            let part = read(&path, parse(range).unwrap()).unwrap();
            assert_eq!(
                (part.from, part.bytes.len() as u64, part.size),
                (from, len, 600_000),
                "{range}"
            );
            let expected = text.get(from as usize..(from + len) as usize).unwrap_or_default();
            assert!(part.bytes == expected, "{range}");
        }
        for range in ["", "bytes", "bytes=-", "bytes=a-", "lines=1-2", "bytes=1-2-3", "bytes=--1"] {
            assert_eq!(parse(range), None, "{range}");
        }
    }

    #[test]
    fn the_last_line_is_the_last_one_with_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        for (text, line) in [
            (&b"a\nb\n\n \n"[..], Some("b")),
            (b"10%\r20%\r30%\r", Some("30%")),
            (b"x\xff\n", Some("x\u{fffd}")),
            (b"\0\0\n", None),
            (b"", None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(last_line(&path).as_deref(), line, "{text:?}");
        }
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(last_line(&path), None, "a sparse file");
        std::fs::write(&path, "y".repeat(9000)).unwrap();
        assert_eq!(last_line(&path).map(|line| line.len()), Some(LONGEST_LINE));
        for path in ["/dev/zero", "/dev", "/proc/self/nothing"] {
            assert_eq!(last_line(Path::new(path)), None, "{path}");
        }
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(last_line(&fifo), None, "a FIFO without a writer");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let whole = Asked::From(0, None);
        for path in ["/dev/zero", "/dev", "/proc/self/nothing"] {
            assert!(read(&PathBuf::from(path), whole).is_err(), "{path}");
        }
    }
}
