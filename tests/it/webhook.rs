//! SLOTD_NOTIFY_URL: events posted as JSON.

use serde_json::{Value, json};
use slotd_kit::{Setup, Slotd, proc};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A received request: the request line, the headers in lower case, and the body.
#[derive(Debug, Clone)]
struct Request {
    line: String,
    headers: Vec<String>,
    body: Value,
}

/// The reaction of the server to a request.
#[derive(Debug, Clone, Copy)]
enum Reaction {
    Status(u16),
    /// A status with `Retry-After`, in seconds.
    Later(u16, u32),
    /// No response.
    Hang,
}

type Reactions = Box<dyn Fn(usize) -> Reaction + Send>;

/// A server on a free port.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    /// The reaction to a request, by the index of the request.
    reactions: Arc<Mutex<Reactions>>,
}

impl Server {
    fn start(reactions: impl Fn(usize) -> Reaction + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            port: listener.local_addr().unwrap().port(),
            requests: Arc::default(),
            reactions: Arc::new(Mutex::new(Box::new(reactions))),
        };
        let (requests, reactions) = (Arc::clone(&server.requests), Arc::clone(&server.reactions));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (requests, reactions) = (Arc::clone(&requests), Arc::clone(&reactions));
                thread::spawn(move || {
                    serve(stream.unwrap(), &requests, &|number| reactions.lock().unwrap()(number))
                });
            }
        });
        server
    }

    fn answer(&self, reactions: impl Fn(usize) -> Reaction + Send + 'static) {
        *self.reactions.lock().unwrap() = Box::new(reactions);
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Starts a daemon that posts to this server. The URL contains a secret.
    fn daemon(&self, events: &str) -> Slotd {
        self.daemon_with_timeout(events, 60)
    }

    /// Starts a daemon that waits this many seconds for a response.
    fn daemon_with_timeout(&self, events: &str, secs: u32) -> Slotd {
        Setup::default()
            .set("SLOTD_NOTIFY_URL", format!("http://127.0.0.1:{}/hook?token=s3cr3t", self.port))
            .set("SLOTD_NOTIFY_EVENTS", events)
            .set("SLOTD_NOTIFY_TIMEOUT", secs)
            .start()
    }

    fn wait_requests(&self, slotd: &Slotd, count: usize) -> Vec<Request> {
        slotd.wait("the posts", || Some(self.requests()).filter(|requests| requests.len() >= count))
    }
}

fn serve(stream: TcpStream, requests: &Mutex<Vec<Request>>, answer: &dyn Fn(usize) -> Reaction) {
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
            let mut requests = requests.lock().unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            requests.push(Request { line: line.trim().to_owned(), headers, body });
            requests.len() - 1
        };
        let response = match answer(number) {
            Reaction::Status(status) => {
                format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok")
            }
            Reaction::Later(status, secs) => {
                format!("HTTP/1.1 {status} x\r\nRetry-After: {secs}\r\nContent-Length: 0\r\n\r\n")
            }
            Reaction::Hang => loop {
                thread::park();
            },
        };
        // A single write, because separate writes would wait for an acknowledgement.
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn wait_log(slotd: &Slotd, text: &str) {
    slotd.wait(text, || slotd.log().contains(text).then_some(()));
}

/// Returns the running messenger processes of the daemon.
fn messengers(slotd: &Slotd) -> Vec<i32> {
    slotd.processes().into_iter().filter(|pid| proc::cmdline(*pid).contains("__post")).collect()
}

fn keeps_the_secret(slotd: &Slotd) -> bool {
    !slotd.log().contains("s3cr3t")
}

#[test]
fn every_event_is_posted_as_one_object() {
    let server = Server::start(|_| Reaction::Status(200));
    let slotd = server.daemon("job,queue");
    let job = slotd.wrap(&["-J", "train", "-c", "2", "--mem", "100", "-t", "5"], "exit 3");
    let requests = server.wait_requests(&slotd, 2);
    let Request { line, headers, body } = &requests[0];
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
    let queue = &requests[1].body;
    assert_eq!(
        (&queue["event"], &queue["jobs"], &queue["states"]),
        (&json!("queue"), &json!(1), &json!({"FAILED": 1}))
    );
    assert!(body["number"].as_u64().unwrap() < queue["number"].as_u64().unwrap());
    // No process and no database entry is left.
    slotd.wait("the end of the messenger", || messengers(&slotd).is_empty().then_some(()));
    let shown = slotd.cmd("scontrol", &["show", "config"]).ok().stdout;
    assert!(
        shown.contains(&format!("http://127.0.0.1:{}/…", server.port)) && !shown.contains("s3cr3t"),
        "{shown}"
    );
}

#[test]
fn failed_posts_are_retried_but_not_refused_ones() {
    let server = Server::start(|number| match number {
        0 => Reaction::Status(500),
        1 => Reaction::Later(429, 2),
        3 => Reaction::Status(404),
        _ => Reaction::Status(204),
    });
    let slotd = server.daemon("job");
    for name in ["a", "b", "c"] {
        let job = slotd.wrap(&["-J", name], "true");
        slotd.wait_state(job, "COMPLETED");
    }
    let requests = server.wait_requests(&slotd, 5);
    let names: Vec<&str> =
        requests.iter().map(|request| request.body["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "a", "a", "b", "c"], "in order");
    wait_log(&slotd, "could not post job 1 to http://127.0.0.1:");
    wait_log(&slotd, "retrying: the server returned HTTP 500");
    wait_log(&slotd, "giving up: the server returned HTTP 404");
    assert!(keeps_the_secret(&slotd));
}

#[test]
fn a_hanging_or_missing_server_blocks_nothing() {
    let server =
        Server::start(|number| if number == 0 { Reaction::Hang } else { Reaction::Status(200) });
    let slotd = server.daemon_with_timeout("job", 2);
    let jobs: Vec<u32> = (0..3).map(|_| slotd.wrap(&["--mem", "1"], "true")).collect();
    for job in &jobs {
        slotd.wait_state(*job, "COMPLETED");
    }
    let requests = server.wait_requests(&slotd, 4);
    assert_eq!(
        requests[0].body["number"], requests[1].body["number"],
        "the first event is posted again"
    );
    assert!(keeps_the_secret(&slotd));
    // A port without a listener, and which the kernel assigns to no other test.
    let url = "http://127.0.0.1:1/";
    let slotd =
        Setup::default().set("SLOTD_NOTIFY_URL", url).set("SLOTD_NOTIFY_TIMEOUT", 2).start();
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
    wait_log(&slotd, &format!("could not post job 1 to {url} yet"));
}

#[test]
fn the_next_daemon_retries_the_events_of_a_killed_one() {
    let server = Server::start(|_| Reaction::Later(503, 300));
    let mut slotd = server.daemon("job");
    let job = slotd.wrap(&["-J", "kept"], "true");
    slotd.wait_state(job, "COMPLETED");
    server.wait_requests(&slotd, 1);
    wait_log(&slotd, "could not post job 1 to");
    slotd.kill9();
    slotd.wait("the end of the messenger", || messengers(&slotd).is_empty().then_some(()));
    server.answer(|_| Reaction::Status(200));
    slotd.start_daemon();
    let requests = server.wait_requests(&slotd, 2);
    assert_eq!((requests.len(), &requests[1].body["name"]), (2, &json!("kept")));
    assert_eq!(requests[0].body["number"], requests[1].body["number"]);
    slotd.wait("the end of the messenger", || messengers(&slotd).is_empty().then_some(()));
    slotd.stop();
    slotd.start_daemon();
    slotd.wrap(&["-J", "other"], "true");
    let requests = server.wait_requests(&slotd, 3);
    assert_eq!(
        requests[2].body["name"],
        json!("other"),
        "the first event is not posted a third time"
    );
    // The first event is no longer stored, and its number is not used again.
    assert!(
        requests[2].body["number"].as_u64() > requests[0].body["number"].as_u64(),
        "{requests:?}"
    );
}

#[test]
fn a_thousand_events_reach_a_slow_server_in_order() {
    const EVENTS: usize = 1000;
    let server = Server::start(|_| Reaction::Status(200));
    let (gate, open) = std::sync::mpsc::channel::<()>();
    let open = Mutex::new(Some(open));
    // The server does not respond until all events exist.
    server.answer(move |_| {
        if let Some(open) = open.lock().unwrap().take() {
            let _ = open.recv_timeout(Duration::from_secs(60));
        }
        Reaction::Status(200)
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
    // The daemon still responds.
    assert_eq!(slotd.cmd("squeue", &["-h"]).ok().stdout, "");
    drop(gate);
    let requests = server.wait_requests(&slotd, EVENTS);
    let posted: Vec<String> =
        requests.iter().map(|request| request.body["job"].as_str().unwrap().to_owned()).collect();
    let want: Vec<String> = jobs.iter().map(u32::to_string).collect();
    assert_eq!(posted, want);
}
