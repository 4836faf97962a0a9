//! SLOTD_NOTIFY_URL: events posted as JSON.

use serde_json::{Value, json};
use slotd_kit::{Setup, Slotd, proc};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a request had: the line of the path, the headers in small letters, and the body.
#[derive(Debug, Clone)]
struct Asked {
    line: String,
    headers: Vec<String>,
    body: Value,
}

/// What the server does with a request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Status(u16),
    /// With `Retry-After`, seconds.
    Later(u16, u32),
    /// Never.
    Hang,
}

type Answers = Box<dyn Fn(usize) -> Answer + Send>;

/// A server on a port of its own.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// By the number of the request.
    answers: Arc<Mutex<Answers>>,
}

impl Server {
    fn start(answers: impl Fn(usize) -> Answer + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            port: listener.local_addr().unwrap().port(),
            asked: Arc::default(),
            answers: Arc::new(Mutex::new(Box::new(answers))),
        };
        let (asked, answers) = (Arc::clone(&server.asked), Arc::clone(&server.answers));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                thread::spawn(move || {
                    serve(stream.unwrap(), &asked, &|number| answers.lock().unwrap()(number))
                });
            }
        });
        server
    }

    fn answer(&self, answers: impl Fn(usize) -> Answer + Send + 'static) {
        *self.answers.lock().unwrap() = Box::new(answers);
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// A daemon that posts to it. The address has a secret.
    fn daemon(&self, events: &str) -> Slotd {
        self.impatient_daemon(events, 60)
    }

    /// One that waits so many seconds for an answer.
    fn impatient_daemon(&self, events: &str, secs: u32) -> Slotd {
        Setup::default()
            .set("SLOTD_NOTIFY_URL", format!("http://127.0.0.1:{}/hook?token=s3cr3t", self.port))
            .set("SLOTD_NOTIFY_EVENTS", events)
            .set("SLOTD_NOTIFY_TIMEOUT", secs)
            .start()
    }

    fn await_asked(&self, slotd: &Slotd, count: usize) -> Vec<Asked> {
        slotd.wait("the posts", || Some(self.asked()).filter(|asked| asked.len() >= count))
    }
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &dyn Fn(usize) -> Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            match header.trim() {
                "" => break,
                header => headers.push(header.to_ascii_lowercase()),
            }
        }
        let length =
            headers.iter().find_map(|header| header.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let number = {
            let mut asked = asked.lock().unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            asked.push(Asked { line: line.trim().to_owned(), headers, body });
            asked.len() - 1
        };
        let said = match answer(number) {
            Answer::Status(status) => format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok"),
            Answer::Later(status, secs) => {
                format!("HTTP/1.1 {status} x\r\nRetry-After: {secs}\r\nContent-Length: 0\r\n\r\n")
            }
            Answer::Hang => loop {
                thread::park();
            },
        };
        // In one write: what is sent in parts waits for the other side's word.
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

fn wait_log(slotd: &Slotd, text: &str) {
    slotd.wait(text, || slotd.log().contains(text).then_some(()));
}

/// The messengers of the daemon that live.
fn messengers(slotd: &Slotd) -> Vec<i32> {
    slotd.processes().into_iter().filter(|pid| proc::cmdline(*pid).contains("__post")).collect()
}

fn keeps_the_secret(slotd: &Slotd) -> bool {
    !slotd.log().contains("s3cr3t")
}

#[test]
fn each_event_is_posted_as_one_object() {
    let server = Server::start(|_| Answer::Status(200));
    let slotd = server.daemon("job,queue");
    let job = slotd.wrap(&["-J", "train", "-c", "2", "--mem", "100", "-t", "5"], "exit 3");
    let asked = server.await_asked(&slotd, 2);
    let Asked { line, headers, body } = &asked[0];
    assert_eq!(line, "POST /hook?token=s3cr3t HTTP/1.1");
    assert!(headers.iter().any(|header| header == "content-type: application/json"), "{headers:?}");
    assert!(headers.iter().any(|header| header.starts_with("user-agent: slotd/")), "{headers:?}");
    for (key, value) in [
        ("event", json!("job")),
        (
            "text",
            json!(format!("job {job} (train) has ended: FAILED (NonZeroExitCode), exit code 3")),
        ),
        ("job", json!(job.to_string())),
        ("name", json!("train")),
        ("partition", json!("cpu")),
        ("state", json!("FAILED")),
        ("reason", json!("NonZeroExitCode")),
        ("exit_code", json!(3)),
        ("signal", json!(0)),
        ("cpus", json!(2)),
        ("memory_mb", json!(100)),
        ("time_limit", json!(300)),
    ] {
        assert_eq!(body[key], value, "{key} of {body}");
    }
    let queue = &asked[1].body;
    assert_eq!(
        (&queue["event"], &queue["jobs"], &queue["states"]),
        (&json!("queue"), &json!(1), &json!({"FAILED": 1}))
    );
    assert!(body["number"].as_u64().unwrap() < queue["number"].as_u64().unwrap());
    // Nothing is left to do: no process stays for it, and nothing in the database.
    slotd.wait("the end of the messenger", || messengers(&slotd).is_empty().then_some(()));
    let shown = slotd.cmd("scontrol", &["show", "config"]).ok().stdout;
    assert!(
        shown.contains(&format!("http://127.0.0.1:{}/…", server.port)) && !shown.contains("s3cr3t"),
        "{shown}"
    );
}

#[test]
fn what_fails_is_posted_again_and_what_is_refused_is_not() {
    let server = Server::start(|number| match number {
        0 => Answer::Status(500),
        1 => Answer::Later(429, 2),
        3 => Answer::Status(404),
        _ => Answer::Status(204),
    });
    let slotd = server.daemon("job");
    for name in ["a", "b", "c"] {
        let job = slotd.wrap(&["-J", name], "true");
        slotd.wait_state(job, "COMPLETED");
    }
    let asked = server.await_asked(&slotd, 5);
    let names: Vec<&str> = asked.iter().map(|asked| asked.body["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "a", "a", "b", "c"], "in their order");
    wait_log(&slotd, "job 1 is not posted to http://127.0.0.1:");
    wait_log(&slotd, "it is tried again: the answer is HTTP 500");
    wait_log(&slotd, "and is given up: the answer is HTTP 404");
    assert!(keeps_the_secret(&slotd));
}

#[test]
fn a_server_that_hangs_or_is_not_there_holds_up_nothing() {
    let server =
        Server::start(|number| if number == 0 { Answer::Hang } else { Answer::Status(200) });
    let slotd = server.impatient_daemon("job", 2);
    let jobs: Vec<u32> = (0..3).map(|_| slotd.wrap(&["--mem", "1"], "true")).collect();
    for job in &jobs {
        slotd.wait_state(*job, "COMPLETED");
    }
    let asked = server.await_asked(&slotd, 4);
    assert_eq!(asked[0].body["number"], asked[1].body["number"], "the first one again");
    assert!(keeps_the_secret(&slotd));
    // A port on which nobody listens, and which the kernel gives to no other test.
    let url = "http://127.0.0.1:1/";
    let slotd =
        Setup::default().set("SLOTD_NOTIFY_URL", url).set("SLOTD_NOTIFY_TIMEOUT", 2).start();
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
    wait_log(&slotd, &format!("job 1 is not posted to {url} yet"));
}

#[test]
fn a_daemon_that_is_killed_between_tries_leaves_the_event_to_the_next_one() {
    let server = Server::start(|_| Answer::Later(503, 300));
    let mut slotd = server.daemon("job");
    let job = slotd.wrap(&["-J", "kept"], "true");
    slotd.wait_state(job, "COMPLETED");
    server.await_asked(&slotd, 1);
    wait_log(&slotd, "is not posted to");
    slotd.kill9();
    slotd.wait("the end of the messenger", || messengers(&slotd).is_empty().then_some(()));
    server.answer(|_| Answer::Status(200));
    slotd.start_daemon();
    let asked = server.await_asked(&slotd, 2);
    assert_eq!((asked.len(), &asked[1].body["name"]), (2, &json!("kept")));
    assert_eq!(asked[0].body["number"], asked[1].body["number"]);
    slotd.wait("the end of the messenger", || messengers(&slotd).is_empty().then_some(()));
    slotd.stop();
    slotd.start_daemon();
    slotd.wrap(&["-J", "other"], "true");
    let asked = server.await_asked(&slotd, 3);
    assert_eq!(asked[2].body["name"], json!("other"), "the first is not told a third time");
    // Nothing of the first is kept any more, and its number stands for it alone.
    assert!(asked[2].body["number"].as_u64() > asked[0].body["number"].as_u64(), "{asked:?}");
}

#[test]
fn a_thousand_events_reach_a_slow_server_in_their_order() {
    const EVENTS: usize = 1000;
    let server = Server::start(|_| Answer::Status(200));
    let (gate, open) = std::sync::mpsc::channel::<()>();
    let open = Mutex::new(Some(open));
    // It answers nothing until all events are there.
    server.answer(move |_| {
        if let Some(open) = open.lock().unwrap().take() {
            let _ = open.recv_timeout(Duration::from_secs(60));
        }
        Answer::Status(200)
    });
    let mut slotd = Setup::default().prepare();
    slotd.reset_var("SLOTD_NOTIFY_URL", format!("http://127.0.0.1:{}/", server.port));
    slotd.reset_var("SLOTD_NOTIFY_TIMEOUT", 60);
    slotd.start_daemon();
    let lines = "{\"wrap\": \"true\"}\n".repeat(EVENTS);
    let mut submit = slotd.command("slotd");
    submit.args(["submit", "-H"]);
    slotd.feed(submit, lines).ok();
    let jobs: Vec<u32> = (1..=EVENTS as u32).collect();
    for some in jobs.chunks(200) {
        let ids: Vec<String> = some.iter().map(u32::to_string).collect();
        slotd.cmd("scancel", &ids).ok();
    }
    // The daemon answers as ever.
    assert_eq!(slotd.cmd("squeue", &["-h"]).ok().stdout, "");
    drop(gate);
    let asked = server.await_asked(&slotd, EVENTS);
    let told: Vec<String> =
        asked.iter().map(|asked| asked.body["job"].as_str().unwrap().to_owned()).collect();
    let want: Vec<String> = jobs.iter().map(u32::to_string).collect();
    assert_eq!(told, want);
}
