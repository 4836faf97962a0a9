//! The daemon's messengers: processes of this program that send mail and post events. Users do not
//! run them.

use crate::client::tail;
use mail_builder::headers::HeaderType;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_exec::messenger::{GRACE, MAIL_ARG, Mail, POST_ARG, Post, PostTo, Posted};
use slotd_model::mail::{self, MailKind};
use slotd_model::notice::{Channel, Notice};
use slotd_render::notice;
use slotd_sys::{guard, system, zone};
use std::ffi::OsStr;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};

/// Maximum number of attempts to post an event, within [`MOST_TIME`].
const TRIES: u32 = 8;
const MOST_TIME: Duration = Duration::from_secs(15 * 60);

/// The delay between the first two attempts. It doubles each time.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Maximum delay that a server may request (`Retry-After`).
const MOST_DELAY: Duration = Duration::from_secs(300);

/// Maximum length of a response that is read, in bytes. Its contents are ignored.
const MOST_ANSWER: u64 = 64 << 10;

/// Maximum length of standard error in a mail, in bytes and in lines.
const MOST_TAIL: u64 = 8 << 10;
const TAIL_LINES: usize = 20;

/// A failed attempt to deliver an event.
struct Failure {
    why: String,
    /// A later attempt may succeed.
    can_retry: bool,
    /// The delay requested by the server.
    after: Option<Duration>,
}

/// Returns the messenger for this first argument.
pub fn named(arg: &OsStr) -> Option<fn() -> u8> {
    match arg.to_str()? {
        POST_ARG => Some(post),
        MAIL_ARG => Some(mail),
        _ => None,
    }
}

/// Posts the events from standard input, one after the other. Returns the exit code.
fn post() -> u8 {
    match post_all() {
        Ok(()) => 0,
        Err(e) => {
            report!("posting events: {e}");
            1
        }
    }
}

fn post_all() -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let Some(first) = lines.next().transpose()? else { return Ok(()) };
    let to: PostTo = serde_json::from_str(&first)?;
    let host = system::probe_host_name();
    // The host's root certificates, which may include its owner's own.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(to.timeout_secs)))
        // A redirected POST would become a GET.
        .max_redirects(0)
        .user_agent(concat!("slotd/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build()
        .into();
    for line in lines {
        let Post { number, notice } = serde_json::from_str(&line?)?;
        let body = notice::json(number, &notice, &host).to_string();
        let outcome = persist(|| attempt(&agent, &to.url, &body));
        report(&outcome)?;
    }
    Ok(())
}

fn report(posted: &Posted) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(posted)?)?;
    out.flush()
}

/// Repeats attempts until one succeeds, the time is up, or another attempt is pointless.
fn persist(mut attempt: impl FnMut() -> Result<(), Failure>) -> Posted {
    let began = Instant::now();
    let mut delay = FIRST_DELAY;
    for tried in 1..=TRIES {
        let failure = match attempt() {
            Ok(()) => return Posted::Given,
            Err(failure) => failure,
        };
        let wait = failure.after.map_or(delay, |after| after.clamp(FIRST_DELAY, MOST_DELAY));
        if !failure.can_retry {
            return Posted::GivenUp(failure.why);
        }
        if tried == TRIES || began.elapsed() + wait > MOST_TIME {
            return Posted::GivenUp(format!("{} ({tried} attempts)", failure.why));
        }
        if tried == 1 && report(&Posted::Failing(failure.why)).is_err() {
            break;
        }
        pause(wait);
        delay *= 2;
    }
    Posted::GivenUp("the daemon has exited".to_owned())
}

/// Waits. Exits if the daemon exits in the meantime; the next daemon posts the event again.
fn pause(wait: Duration) {
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let stdin = io::stdin();
        // Polls only for a hang-up.
        let mut end = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        let ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1);
        if poll(&mut end, PollTimeout::try_from(ms).unwrap_or(PollTimeout::NONE))
            .is_ok_and(|ready| ready > 0)
        {
            std::process::exit(0);
        }
    }
}

fn attempt(agent: &Agent, url: &str, body: &str) -> Result<(), Failure> {
    let failed = |error: ureq::Error| {
        let is_of_address = matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_));
        // These errors contain the address, which may be secret.
        let why =
            if is_of_address { "the address is invalid".to_owned() } else { error.to_string() };
        Failure { why, can_retry: !is_of_address, after: None }
    };
    let request = agent.post(url).header("Content-Type", "application/json");
    let mut answer = request.send(body).map_err(failed)?;
    let status = answer.status();
    let after = retry_after(&answer);
    // Read the body so that the connection can be reused.
    let _ = answer.body_mut().with_config().limit(MOST_ANSWER).read_to_vec();
    if status.is_success() {
        return Ok(());
    }
    let can_retry = status.is_server_error() || status.as_u16() == 429;
    Err(Failure { why: format!("the server returned HTTP {}", status.as_u16()), can_retry, after })
}

/// Returns the delay from `Retry-After`, which is a number of seconds or a date.
fn retry_after<T>(answer: &Response<T>) -> Option<Duration> {
    let text = answer.headers().get("Retry-After")?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    at.duration_since(jiff::Timestamp::now()).try_into().ok()
}

/// Sends the mail described by a line on standard input, which the daemon keeps open. Returns the
/// exit code, and prints errors to standard error.
fn mail() -> u8 {
    match send() {
        Ok(()) => 0,
        Err(why) => {
            report!("{why}");
            1
        }
    }
}

/// The error of a mail that was not sent.
#[derive(Debug, thiserror::Error)]
enum MailError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("invalid mail: {0}")]
    NoMail(#[from] serde_json::Error),
    #[error("{0:?} is not an address")]
    NoAddress(String),
    #[error("the mail has no recipients")]
    Nobody,
    #[error("{}: {error}", program.display())]
    Program { program: PathBuf, error: io::Error },
    #[error("{}: {status}", program.display())]
    Ended { program: PathBuf, status: ExitStatus },
}

fn send() -> Result<(), MailError> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let Mail { sendmail, number, notice } = serde_json::from_str(&line)?;
    guard::end_with_caller(GRACE);
    let to = recipients(&notice)?;
    let message = message(&notice, number, &to)?;
    let failed = |error| MailError::Program { program: sendmail.clone(), error };
    let mut child = Command::new(&sendmail)
        .args(["-i", "--"])
        .args(&to)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    // If sendmail exits without reading it, its exit code explains why.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&message));
    let status = child.wait()?;
    match written {
        _ if !status.success() => Err(MailError::Ended { program: sendmail, status }),
        written => written.map_err(failed),
    }
}

/// Returns the addresses of `--mail-user`, or else the user who submitted the job. They become
/// arguments of `sendmail`, so one that `sendmail` would take for something else is refused.
fn recipients(notice: &Notice) -> Result<Vec<String>, MailError> {
    let named = notice.mail_user.as_deref().unwrap_or(&notice.user);
    let to: Vec<String> = mail::recipients(named).map(str::to_owned).collect();
    match to.iter().find(|one| !mail::is_recipient(one)) {
        Some(bad) => Err(MailError::NoAddress(bad.clone())),
        None if to.is_empty() => Err(MailError::Nobody),
        None => Ok(to),
    }
}

fn message(notice: &Notice, number: u64, to: &[String]) -> io::Result<Vec<u8>> {
    let (host, zone) = (system::probe_host_name(), zone::local());
    let tail = match notice.channel {
        Channel::Mail(MailKind::Fail | MailKind::End) => {
            let std_err = notice.run.as_ref().map(|run| run.std_err.as_str()).unwrap_or_default();
            tail_of(Path::new(std_err)).unwrap_or_default()
        }
        Channel::Mail(_) | Channel::Command | Channel::Url => String::new(),
    };
    // In a header, control characters would be encoded instead of removed.
    let subject: String =
        notice::subject(notice).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mail = mail_builder::MessageBuilder::new()
        .to(to.iter().map(String::as_str).collect::<Vec<_>>())
        .header("Subject", subject_header(subject))
        // The same for the same event, so that a duplicate is shown once.
        .message_id(format!("slotd.{number}.{}@{host}", notice.at.0))
        .header("Auto-Submitted", mail_builder::headers::raw::Raw::new("auto-generated"))
        .text_body(notice::body(notice, &host, &zone, &tail));
    // sendmail expects this system's line endings.
    let text = mail.write_to_vec()?;
    Ok(String::from_utf8_lossy(&text).replace("\r\n", "\n").into_bytes())
}

/// Encodes the subject only if necessary, since people filter mail by it.
fn subject_header(subject: String) -> HeaderType<'static> {
    let is_plain = subject.is_ascii() && !subject.contains("=?");
    if is_plain { HeaderType::Raw(subject.into()) } else { HeaderType::Text(subject.into()) }
}

/// Reads the last lines of a file.
fn tail_of(path: &Path) -> io::Result<String> {
    let Some(mut file) = tail::open_output(path)? else { return Ok(String::new()) };
    let skipped = file.metadata()?.len().saturating_sub(MOST_TAIL);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(MOST_TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().skip(usize::from(skipped > 0)).collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::{Job, Timestamp};
    use std::sync::Arc;

    fn notice(user: &str, name: &str) -> Notice {
        let mut job = Job::default();
        let request = Arc::make_mut(&mut job.request);
        (request.name, request.mail_user) = (name.to_owned(), Some(user.to_owned()));
        Notice { channel: Channel::Mail(MailKind::End), ..Notice::of_end(&job, Timestamp(0)) }
    }

    #[test]
    fn recipients_cannot_be_options_or_headers() {
        assert_eq!(recipients(&notice("a@x, b@y", "")).unwrap(), ["a@x", "b@y"]);
        for bad in ["-oQ/tmp", "a@x\nBcc: b@y", "a b", " , ", "a@x,-X"] {
            assert!(recipients(&notice(bad, "")).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn job_names_cannot_inject_headers() {
        let made =
            message(&notice("a@x", "übung\nBcc: evil@x\r\n\r\nhello"), 7, &["a@x".to_owned()])
                .unwrap();
        let text = String::from_utf8(made).unwrap();
        let (headers, _) = text.split_once("\n\n").unwrap();
        assert!(!headers.contains("\nBcc") && !headers.contains("hello\n\n"), "{text}");
        assert!(headers.contains("Subject: =?utf-8?"), "{text}");
        assert!(headers.contains("Message-ID: <slotd.7.0@"), "{text}");
        assert!(!text.contains('\r'), "{text}");
    }

    #[test]
    fn permanent_failures_are_not_retried() {
        let mut tries = 0;
        let outcome = persist(|| {
            tries += 1;
            Err(Failure { why: "HTTP 404".to_owned(), can_retry: false, after: None })
        });
        assert_eq!((outcome, tries), (Posted::GivenUp("HTTP 404".to_owned()), 1));
    }

    #[test]
    fn tails_begin_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("err");
        std::fs::write(&path, "ä".repeat(5000) + "\n" + &"line\n".repeat(30)).unwrap();
        assert_eq!(tail_of(&path).unwrap(), ["line"; 20].join("\n"));
        std::fs::write(&path, "one\ntwo").unwrap();
        assert_eq!(tail_of(&path).unwrap(), "one\ntwo");
        assert_eq!(tail_of(Path::new("/dev/zero")).unwrap(), "");
    }
}
