//! `slotd web`: authentication, queries, events and actions over HTTP. `tests/web` tests the page
//! in a browser.

use serde_json::{Value, json};
use slotd_kit::{PATIENCE, Running, Slotd, proc};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;

/// A server with a session.
struct Web {
    running: Running,
    /// The host and port.
    at: String,
    token: String,
    cookie: String,
    key: String,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let is_it = |line: &&str| line.to_lowercase().starts_with(&format!("{name}:"));
        self.head.lines().find(is_it).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
    }
}

impl Web {
    /// Starts a server without opening its URL.
    #[track_caller]
    fn unopened(slotd: &Slotd) -> Web {
        let mut command = slotd.command("slotd");
        command.arg("web");
        let mut running = slotd.spawn(command);
        let line = running.wait_stdout("http://");
        let (at, token) = line.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
        let (at, token) = (at.to_owned(), token.to_owned());
        Web { running, at, token, cookie: String::new(), key: String::new() }
    }

    #[track_caller]
    fn start(slotd: &Slotd) -> Web {
        let mut web = Web::unopened(slotd);
        let page = web.open(&web.token);
        assert_eq!(page.status, 200, "{page:?}");
        web.cookie = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let text = page.text();
        web.key = text
            .split("name=\"key\" content=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned();
        web
    }

    fn open(&self, token: &str) -> Answer {
        self.ask(&format!("GET /?token={token} HTTP/1.1"), &[("Host", &self.at)], "")
    }

    fn connect(&self, line: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.at).unwrap();
        let mut text = format!("{line}\r\n");
        headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        if !body.is_empty() {
            text +=
                &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        // Fails if the server refuses the request before it has read it all.
        drop(socket.write_all(format!("{text}\r\n{body}").as_bytes()));
        socket
    }

    /// Sends a request as it is, on its own connection.
    fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers: Vec<_> = headers.iter().copied().chain([("Connection", "close")]).collect();
        let mut socket = self.connect(line, &headers, body);
        let mut bytes = Vec::new();
        drop(socket.read_to_end(&mut bytes));
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("{line}: no answer"));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: bytes.split_off(end + 4) }
    }

    /// Returns the headers that the page would send.
    fn own(&self) -> [(&str, &str); 4] {
        [
            ("Host", &self.at),
            ("Cookie", &self.cookie),
            ("X-Slotd-Key", &self.key),
            ("Sec-Fetch-Site", "same-origin"),
        ]
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1"), &self.own(), "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(&format!("POST {path} HTTP/1.1"), &self.own(), &body.to_string())
    }

    /// Returns the queue that a new browser receives.
    #[track_caller]
    fn queue(&self) -> Value {
        self.events("/api/events").queue()
    }

    fn events(&self, path: &str) -> Events {
        let socket = self.connect(&format!("GET {path} HTTP/1.1"), &self.own(), "");
        socket.set_read_timeout(Some(PATIENCE)).expect("a positive timeout");
        Events(BufReader::new(socket))
    }
}

/// A stream of events. The headers and the sizes of its chunks are skipped.
struct Events(BufReader<TcpStream>);

impl Events {
    /// Returns the next event; `None` if the stream has ended.
    #[track_caller]
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            let read = match self.0.read_line(&mut line) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("no event within {PATIENCE:?}")
                }
                other => other.unwrap_or(0),
            };
            if read == 0 || line == "0\r\n" {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    #[track_caller]
    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        while let Some(event) = self.next() {
            if is_it(&event) {
                return event;
            }
        }
        panic!("the stream has ended");
    }

    /// Returns the whole queue, with its rows in the lists of the page.
    #[track_caller]
    fn queue(&mut self) -> Value {
        listed(&self.until(is_whole))
    }

    /// Applies events to a queue, as the page does, until it is as expected.
    #[track_caller]
    fn apply(&mut self, queue: &mut Value, is_it: impl Fn(&Value) -> bool) {
        while !is_it(queue) {
            let event = self.until(|event| event["event"] != "daemon");
            if is_whole(&event) {
                *queue = json!({});
            }
            merge(queue, &event["queue"]);
        }
    }
}

fn is_whole(event: &Value) -> bool {
    event["event"] == "whole"
}

/// Applies a JSON merge patch.
fn merge(value: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let fields = value.as_object_mut().unwrap();
    for (name, new) in patch {
        if new.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), new);
        }
    }
}

fn listed(whole: &Value) -> Value {
    let mut queue = whole["queue"].clone();
    queue["now"] = whole["now"].clone();
    let mut rows: Vec<Value> = queue["rows"].as_object().unwrap().values().cloned().collect();
    rows.sort_by_key(|row| {
        let number = |name: &str| row[name].as_i64().unwrap();
        (row["later"].as_bool(), -number("priority"), number("id"))
    });
    let is_in = |row: &Value, list: &str| match row["state"].as_str().unwrap() {
        "PENDING" => list == "waiting",
        "RUNNING" | "SUSPENDED" | "COMPLETING" => list == "running",
        _ => list == "ended",
    };
    for list in ["running", "waiting", "ended"] {
        queue[list] = rows.iter().filter(|row| is_in(row, list)).cloned().collect();
    }
    queue
}

/// Returns whether an event changes the row of this job.
fn names(event: &Value, job: u32) -> bool {
    event["queue"]["rows"].get(job.to_string()).is_some()
}

/// Returns the records that an event changes.
fn named(event: &Value) -> Vec<&str> {
    event["queue"]["rows"]
        .as_object()
        .map_or_else(Vec::new, |rows| rows.keys().map(String::as_str).collect())
}

fn rows(queue: &Value, list: &str) -> Vec<String> {
    queue[list]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["label"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_url_works_once() {
    let slotd = Slotd::start();
    let web = Web::unopened(&slotd);
    assert!(web.at.starts_with("127.0.0.1:"), "{}", web.at);
    assert_eq!(web.open("0".repeat(64).as_str()).status, 401);
    assert_eq!(web.ask("GET / HTTP/1.1", &[("Host", &web.at)], "").status, 401);
    let page = web.open(&web.token);
    assert_eq!(page.status, 200, "{page:?}");
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(web.open(&web.token).status, 401, "the token was used");
    let session = cookie.split(';').next().unwrap();
    let again = web.ask("GET / HTTP/1.1", &[("Host", &web.at), ("Cookie", session)], "");
    assert_eq!(again.status, 200, "a reload");
    assert!(again.text().contains("name=\"key\" content=\"\""), "the key is sent once");
    for file in ["app.js", "app.css", "job.js"] {
        let line = format!("GET /page/{file} HTTP/1.1");
        assert_eq!(
            web.ask(&line, &[("Host", &web.at), ("Cookie", session)], "").status,
            200,
            "{file}"
        );
        assert_eq!(web.ask(&line, &[("Host", &web.at)], "").status, 401, "{file}");
    }
}

#[test]
fn a_job_and_the_host_have_usage_plots() {
    let slotd = Slotd::start();
    let job = slotd.begun(&["-c", "2", "--mem", "100M"], "go", "exit 0");
    let web = Web::start(&slotd);
    // The first sample may precede the start of the script.
    let plots = |path: &str| {
        let has_memory = |used: &Value| {
            used["memory"].as_array().unwrap().iter().any(|b| b.as_f64() > Some(0.0))
        };
        slotd.wait("its memory usage", || Some(web.get(path).json()).filter(has_memory))
    };
    let used = plots(&format!("/api/job/{job}/series"));
    assert_eq!((&used["all_cpus"], &used["all_memory"]), (&json!(2), &json!(100 << 20)));
    let column = |used: &Value, name: &str| used[name].as_array().unwrap().clone();
    for name in ["cpus", "memory", "read", "written"] {
        assert_eq!(column(&used, name).len(), 120, "{name}: {used}");
    }
    assert!(used["from"].as_i64() < used["to"].as_i64(), "{used}");
    let charts = |minutes: u32| web.get(&format!("/api/series?minutes={minutes}")).json();
    let has_end = |host: &Value| {
        host["charts"][0]["values"].as_array().is_some_and(|v| v.last() != Some(&Value::Null))
    };
    let host = slotd.wait("the host usage", || Some(charts(60)).filter(has_end));
    let names: Vec<&str> =
        host["charts"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.starts_with(&["CPUs", "Memory"]) && names.contains(&"Load"), "{names:?}");
    let values = column(&host["charts"][0], "values");
    assert_eq!((values.len(), &values[0]), (120, &Value::Null), "no job ran an hour ago: {host}");
    assert!(host["charts"][0]["title"].as_str().unwrap().starts_with("CPUs in use: "), "{host}");
    assert_eq!(host["to"].as_i64().unwrap() - host["from"].as_i64().unwrap(), 3_600_000);
    for minutes in ["", "?minutes=0", "?minutes=9999999", "?minutes=x"] {
        assert_eq!(web.get(&format!("/api/series{minutes}")).status, 400, "{minutes}");
    }
    let waits = slotd.submit(&["-H", "--wrap", "true"]);
    assert_eq!(
        column(&web.get(&format!("/api/job/{waits}/series")).json(), "cpus"),
        [] as [Value; 0]
    );
    assert_eq!(web.get("/api/job/999/series").status, 404);
    assert_eq!(web.get("/api/job/x/series").status, 400);
}

#[test]
fn only_loopback_addresses_are_accepted() {
    let slotd = Slotd::start();
    for address in ["0.0.0.0", "192.168.0.1", "[::]", "localhost"] {
        let out = slotd.cmd("slotd", &["web", "--listen", address]).fails(2);
        assert!(
            out.stderr.starts_with(&format!("slotd: error: --listen {address}: not a")),
            "{out:?}"
        );
    }
}

#[test]
fn web_needs_a_daemon() {
    let mut slotd = Slotd::start();
    slotd.stop();
    let out = slotd.cmd("slotd", &["web"]).fails(1);
    assert!(out.stderr.contains("no daemon answers at"), "{out:?}");
}

#[test]
fn a_foreign_host_or_origin_or_a_missing_cookie_or_key_is_refused() {
    let slotd = Slotd::start();
    let job = slotd.submit(&["-H", "--wrap", "true"]);
    let web = Web::start(&slotd);
    let cancel = json!({ "action": "cancel", "jobs": [job.to_string()] }).to_string();
    let (own, port) = (web.own(), web.at.split(':').nth(1).unwrap());
    let but = |name: &'static str, value: Option<&'static str>| -> Vec<(&str, &str)> {
        let rest = own.iter().copied().filter(|(known, _)| *known != name);
        rest.chain(value.map(|value| (name, value))).collect()
    };
    for (headers, status) in [
        (but("Host", Some("evil.example")), 421),
        (but("Host", Some("127.0.0.1.evil.example")), 421),
        (but("Origin", Some("http://evil.example")), 403),
        (but("Origin", Some("null")), 403),
        (but("Sec-Fetch-Site", Some("cross-site")), 403),
        (but("Sec-Fetch-Site", Some("same-site")), 403),
        (but("Cookie", None), 401),
        (but("Cookie", Some("slotd=0")), 401),
        (but("X-Slotd-Key", None), 403),
        (but("X-Slotd-Key", Some("0")), 403),
    ] {
        // Paths can be percent-encoded.
        for (line, body) in [
            ("POST /api/act HTTP/1.1", cancel.as_str()),
            ("POST /%61pi/act HTTP/1.1", cancel.as_str()),
            ("GET /api/events HTTP/1.1", ""),
            ("GET /api/history HTTP/1.1", ""),
            ("GET /a%70i/history HTTP/1.1", ""),
        ] {
            let answer = web.ask(line, &headers, body);
            assert_eq!(answer.status, status, "{line} {headers:?}: {answer:?}");
            assert!(answer.header("access-control-allow-origin").is_none(), "{answer:?}");
        }
    }
    assert_eq!(slotd.state(job), "PENDING");
    let asked_before = web.ask(
        "OPTIONS /api/act HTTP/1.1",
        &[("Host", &web.at), ("Origin", "http://evil.example")],
        "",
    );
    assert_eq!(asked_before.status, 403, "a preflight request");
    // Through a tunnel, the port differs, and the browser sends the origin of the page.
    let host = format!("localhost:{port}");
    let origin = format!("http://{host}");
    let mut tunnel = but("Host", None);
    tunnel.extend([("Host", host.as_str()), ("Origin", origin.as_str())]);
    assert_eq!(web.ask("POST /api/act HTTP/1.1", &tunnel, &cancel).status, 200);
    assert_eq!(slotd.wait_end(job).state(), "CANCELLED");
}

#[test]
fn half_open_connections_do_not_block_the_page() {
    const CONNECTIONS: usize = 200;
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let half = || {
        let mut socket = TcpStream::connect(&web.at).unwrap();
        // Fails if the server has closed the connection.
        drop(
            socket
                .write_all(format!("GET /api/history HTTP/1.1\r\nHost: {}\r\n", web.at).as_bytes()),
        );
        socket
    };
    let half_open: Vec<TcpStream> = (0..CONNECTIONS).map(|_| half()).collect();
    assert_eq!(web.get("/api/history").status, 200);
    // Without the limit, each of them would stay open until the server answers 408.
    let unanswered = half_open.into_iter().filter(|mut socket| {
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer));
        answer.is_empty()
    });
    assert!(unanswered.count() > CONNECTIONS / 2);
}

#[test]
fn only_authenticated_connections_are_kept_alive() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let ask = |socket: &mut TcpStream, cookie: &str| {
        let head =
            format!("GET /page/app.css HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", web.at);
        socket.write_all(head.as_bytes()).unwrap();
    };
    let mut stranger = TcpStream::connect(&web.at).unwrap();
    ask(&mut stranger, "slotd=x");
    let mut answer = String::new();
    // Reads to the end, as the server closes the connection.
    drop(stranger.read_to_string(&mut answer));
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    // An authenticated connection survives many unauthenticated ones.
    let mut own = TcpStream::connect(&web.at).unwrap();
    let mut reader = BufReader::new(own.try_clone().unwrap());
    for round in 0..2 {
        ask(&mut own, &web.cookie);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 200 OK\r\n", "{round}");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(bytes) = line.to_lowercase().strip_prefix("content-length: ") {
                length = bytes.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        if round == 0 {
            let strangers: Vec<TcpStream> =
                (0..40).map(|_| TcpStream::connect(&web.at).unwrap()).collect();
            drop(strangers);
        }
    }
}

#[test]
fn requests_cannot_name_other_files_or_commands() {
    let slotd = Slotd::start();
    let job = slotd.submit(&["-H", "--wrap", "true"]);
    let web = Web::start(&slotd);
    for path in [
        "/page/../Cargo.toml",
        "/page/..%2f..%2fCargo.toml",
        "/page/%2e%2e/app.js",
        "//etc/passwd",
        "/page/app.js/../../x",
        "/api/job/../../etc/passwd",
        "/api/job/..%2f..%2fetc%2fpasswd",
        "/api/job/1%00/script",
        "/api/job/--help/script",
        &format!("/api/job/{job}/log/..%2fout"),
        &format!("/api/job/{job}/log/%2fetc%2fpasswd"),
        "/api/nothing",
        "/index.html",
    ] {
        let answer = web.get(path);
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(!answer.text().contains("root:"), "{path}");
    }
    for (path, body) in [
        ("/api/act", json!({ "action": "cancel", "jobs": ["--me"] })),
        ("/api/act", json!({ "action": "cancel", "jobs": [format!("{job}; true")] })),
        ("/api/act", json!({ "action": "cancel", "jobs": [] })),
        ("/api/act", json!({ "action": "shutdown", "jobs": ["1"] })),
        ("/api/act", json!({ "action": "hold" })),
        ("/api/submit", json!({ "options": ["a\0b"], "script": "" })),
    ] {
        let answer = web.post(path, &body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    assert!([404, 405].contains(&web.ask("GET /api/act HTTP/1.1", &web.own(), "").status));
    assert_eq!(slotd.state(job), "PENDING");
}

#[test]
fn a_long_request_body_is_refused() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let script = "x".repeat(5 << 20);
    let answer = web.post("/api/submit", &json!({ "options": [], "script": script }));
    assert!([400, 413].contains(&answer.status), "{answer:?}");
    assert!(slotd.all_records().is_empty());
}

#[test]
fn the_queue_lists_running_pending_and_ended_jobs() {
    let slotd = Slotd::setup().set("SLOTD_CPUS", 2).start();
    let web = Web::start(&slotd);
    let done = slotd.submit(&["--wrap", "exit 3"]);
    slotd.wait_end(done);
    let runs = slotd.endless(&["-c", "2", "-t", "10"]);
    let waits = slotd.submit(&["-c", "2", "-J", "<img src=x onerror=alert(1)>", "--wrap", "true"]);
    let array = slotd.submit(&["-c", "2", "-a", "1-9", "--wrap", "true"]);
    let queue = web.queue();
    assert_eq!(rows(&queue, "running"), [runs.to_string()]);
    assert_eq!(rows(&queue, "waiting"), [waits.to_string(), format!("{array}_[1-9]")]);
    assert_eq!(rows(&queue, "ended"), [done.to_string()]);
    let (first, ended) = (&queue["waiting"][0], &queue["ended"][0]);
    assert_eq!(first["name"], "<img src=x onerror=alert(1)>", "the name is not escaped");
    assert!(first["why"].as_str().unwrap().contains(&format!("job {runs}")), "{first}");
    assert!(first["expected"].as_i64() > queue["now"].as_i64(), "{first}");
    assert_eq!((&ended["state"], &ended["exit"]), (&json!("FAILED"), &json!("3:0")));
    assert_eq!(queue["running"][0]["cpu_ids"].as_array().unwrap().len(), 2);
    assert_eq!(queue["host"]["cpus"], json!({ "all": 2, "given": 2 }));
    assert_eq!(
        queue["arrays"][array.to_string()],
        json!({ "total": 9, "waiting": 9, "running": 0, "failed": 0 })
    );
    let few = Web::start(&slotd).events("/api/events?rows=1").queue();
    assert_eq!((few["waiting"].as_array().unwrap().len(), &few["waiting_count"]), (1, &json!(2)));
    let whole = web.get(&format!("/api/job/{array}_3")).json();
    assert_eq!(whole["job"]["array"], array);
    assert!(whole["text"].as_str().unwrap().contains("JobState=PENDING"), "{whole}");
    assert_eq!(web.get("/api/job/999999").status, 404);
}

#[test]
fn history_is_searched_with_sacct_options() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let (good, bad) = (
        slotd.submit(&["-J", "good", "--wrap", "true"]),
        slotd.submit(&["-J", "bad", "--wrap", "false"]),
    );
    slotd.wait_end(good);
    slotd.wait_end(bad);
    let found = |search: &str| {
        let answer = web.get(&format!("/api/history?{search}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        rows(&answer.json(), "jobs")
    };
    let [good, bad] = [good, bad].map(|job| job.to_string());
    assert_eq!(found("starttime=now-1hour&state=F"), [bad.as_str()]);
    assert_eq!(found("name=good"), [good.as_str()]);
    assert_eq!(found(&format!("jobs={good}")), [good.as_str()]);
    assert_eq!(found("starttime=now-1hour&rows=1").len(), 1);
    assert!(found("name=none").is_empty());
    let refused = web.get("/api/history?starttime=soon");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("Invalid time specification"), "{refused:?}");
}

#[test]
fn history_shows_the_progress_of_unfinished_arrays() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let script = format!("test $SLURM_ARRAY_TASK_ID -le 2 || {}", slotd.gate("go"));
    let array = slotd.wrap(&["-a", "1-40%4", "-c", "1"], &script);
    let find = || web.get("/api/history").json();
    // Two tasks have ended, four are running and the others are pending.
    let middle = json!({ "total": 40, "waiting": 34, "running": 4, "failed": 0 });
    slotd.wait("four running tasks", || {
        (find()["arrays"][array.to_string()] == middle).then_some(())
    });
    slotd.cancel(array);
    slotd.wait("the end of all tasks", || (find()["arrays"] == json!({})).then_some(()));
}

#[test]
fn a_script_is_submitted_with_sbatch_options() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let script = "#!/bin/sh\n#SBATCH --comment=seen\necho $SLURM_JOB_NAME \"$@\"\n";
    let answer = web.post(
        "/api/submit",
        &json!({ "options": ["--job-name=a b", "--output=out"], "script": script }),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let job: u32 = answer.json()["job"].as_str().unwrap().parse().unwrap();
    slotd.wait_end(job);
    assert_eq!(slotd.read("out"), "a b\n");
    assert_eq!(slotd.sacct(job, "comment"), "seen");
    assert_eq!(web.get(&format!("/api/job/{job}/script")).text(), script);
    slotd.write("other.sh", "#!/bin/sh\n");
    for (options, why) in [
        (&["--nonsense"][..], "nonsense"),
        (&["-c", "1", "other.sh"], "other.sh: not an option"),
        (&["--wrap=true"], "--wrap"),
        (&["--help"], "--help"),
        (&["-W"], "--wait"),
        (&["--test-only"], "--test-only: leave it out"),
    ] {
        let refused = web.post("/api/submit", &json!({ "options": options, "script": script }));
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.text().contains(why), "{refused:?}");
    }
    for word in ["-W", "--wait", "--test-only"] {
        let script = format!("#!/bin/sh\n#SBATCH {word}\ntrue\n");
        let refused = web.post("/api/submit", &json!({ "options": [], "script": script }));
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.text().contains("#SBATCH --"), "{refused:?}");
    }
    assert_eq!(slotd.line("squeue -h").ok().text(), "");
}

#[test]
fn jobs_are_held_released_requeued_and_cancelled() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let job = slotd.endless(&["--requeue"]);
    let act = |action: &str| {
        let answer = web.post("/api/act", &json!({ "action": action, "jobs": [job.to_string()] }));
        assert_eq!(answer.status, 200, "{action}: {answer:?}");
    };
    slotd.wait_state(job, "RUNNING");
    act("suspend");
    slotd.wait_state(job, "SUSPENDED");
    act("resume");
    slotd.wait_state(job, "RUNNING");
    act("requeue");
    slotd.wait("the second run", || (slotd.show(job, "Restarts") == "1").then_some(()));
    act("cancel");
    slotd.wait_end(job);
    let held = slotd.submit(&["-H", "--wrap", "true"]);
    let answer = web.post("/api/act", &json!({ "action": "release", "jobs": [held.to_string()] }));
    assert_eq!(answer.status, 200, "{answer:?}");
    slotd.wait_end(held);
    let refused = web.post("/api/act", &json!({ "action": "hold", "jobs": [held.to_string()] }));
    assert_eq!(refused.status, 422, "{refused:?}");
}

#[test]
fn an_ended_job_is_resubmitted() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let failed = slotd.wrap(&["-J", "again"], "exit 3");
    slotd.wait_end(failed);
    let retry =
        |job: u32| web.post("/api/act", &json!({ "action": "retry", "jobs": [job.to_string()] }));
    let answer = retry(failed);
    assert_eq!(answer.status, 200, "{answer:?}");
    let told = answer.json()["told"].as_str().unwrap().to_owned();
    let fresh: u32 = told
        .strip_prefix("Submitted batch job ")
        .unwrap_or_else(|| panic!("{told}"))
        .parse()
        .unwrap();
    assert_eq!(
        (slotd.wait_end(fresh).exit(), slotd.sacct(fresh, "jobname")),
        ("3:0".to_owned(), "again".to_owned())
    );
    let waits = slotd.submit(&["-H", "--wrap", "true"]);
    let refused = retry(waits);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.text().contains("only ended jobs can be resubmitted"), "{refused:?}");
}

#[test]
fn the_time_limit_of_a_running_job_is_changed() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let job = slotd.endless(&["-t", "10"]);
    slotd.wait_state(job, "RUNNING");
    let path = format!("/api/job/{job}/limit");
    let change = |limit: &str| web.post(&path, &json!({ "limit": limit }));
    assert_eq!(change("20").status, 200);
    assert_eq!(slotd.show(job, "TimeLimit"), "00:20:00");
    assert_eq!(change("+1:00:00").status, 200);
    assert_eq!(slotd.show(job, "TimeLimit"), "01:20:00");
    let name = slotd.show(job, "JobName");
    for (limit, why) in [
        ("soon", "Invalid TimeLimit value: soon"),
        ("", "Invalid TimeLimit value"),
        ("5 JobName=other", "Invalid TimeLimit value: 5 JobName=other"),
        ("--help", "Invalid TimeLimit value: --help"),
    ] {
        let refused = change(limit);
        assert_eq!(refused.status, 422, "{limit}: {refused:?}");
        assert!(refused.text().contains(why), "{limit}: {refused:?}");
    }
    assert_eq!(change("5\0").status, 400);
    assert_eq!(
        (slotd.show(job, "TimeLimit"), slotd.show(job, "JobName")),
        ("01:20:00".to_owned(), name)
    );
    assert_eq!(web.post("/api/job/--help/limit", &json!({ "limit": "5" })).status, 400);
    let missing = web.post("/api/job/999/limit", &json!({ "limit": "5" }));
    assert!(missing.text().contains("Invalid job id specified"), "{missing:?}");
}

#[test]
fn the_environment_and_the_last_lines_of_jobs_are_sent() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let job = slotd.submit(&[
        "--export=NONE,COLOUR=red,EMPTY=,TWO=a=b",
        "--wrap",
        "printf 'first\\n10%%\\r20%%\\r'; until [ -e go ]; do sleep 0.1; done",
    ]);
    let pairs = web.get(&format!("/api/job/{job}/env")).json();
    for pair in [json!(["COLOUR", "red"]), json!(["EMPTY", ""]), json!(["TWO", "a=b"])] {
        assert!(pairs.as_array().unwrap().contains(&pair), "{pair}: {pairs}");
    }
    let pipe = slotd.submit(&["-o", "/dev/null", "--wrap", "until [ -e go ]; do sleep 0.1; done"]);
    slotd.wait_state(pipe, "RUNNING");
    let lines = slotd.wait("the last line", || {
        let lines = web.get("/api/lines").json();
        (lines[job.to_string()] == "20%").then_some(lines)
    });
    assert_eq!(lines, json!({ job.to_string(): "20%" }));
    slotd.write("go", "");
    slotd.wait_end(job);
    slotd.wait_end(pipe);
    assert_eq!(web.get("/api/lines").json(), json!({}));
    assert_eq!(web.get("/api/job/999/env").status, 404);
}

#[test]
fn the_host_has_its_limits_licenses_reservations_and_recurring_jobs() {
    let toml = "[[partition]]\nname = \"day\"\nmax_time = \"2:00:00\"\nmax_cpus_per_node = 1\n\
                [[license]]\nname = \"matlab\"\ncount = 2\n";
    let slotd = Slotd::setup().set("SLOTD_CPUS", 2).set("SLOTD_FEATURES", "avx").toml(toml).start();
    let web = Web::start(&slotd);
    let user = slotd.sh("id -un").ok().text().to_owned();
    slotd
        .line(&format!(
            "scontrol create reservation ReservationName=class StartTime=now+1hour Duration=30 CoreCnt=1 Users={user}"
        ))
        .ok();
    let mut scrontab = slotd.command("scrontab");
    scrontab.arg("-");
    slotd.feed(scrontab, "0 5 * * 1 true\n").ok();
    let mut queue = json!({});
    let has_row = |queue: &Value| {
        let rows = queue["rows"].as_object();
        rows.and_then(|rows| rows.values().next()).is_some_and(|row| row["recurs"].is_string())
    };
    web.events("/api/events").apply(&mut queue, has_row);
    let host = &queue["host"];
    assert_eq!(host["features"], json!(["avx"]));
    assert_eq!(host["licenses"], json!([{ "name": "matlab", "total": 2, "used": 0 }]));
    let day = &host["partitions"][0];
    assert_eq!((&day["max_secs"], &day["max_cpus"]), (&json!(7200), &json!(1)), "{day}");
    let class = &host["reservations"][0];
    let of = ["name", "cpus", "is_active", "is_whole"].map(|key| class[key].clone());
    assert_eq!(of, [json!("class"), json!(1), json!(false), json!(false)], "{class}");
    assert_eq!(class["end"].as_i64().unwrap() - class["start"].as_i64().unwrap(), 1_800_000);
    let row = queue["rows"].as_object().unwrap().values().next().unwrap();
    assert_eq!(row["recurs"], "0 5 * * 1", "{row}");
    assert!(row["expected"].as_i64().is_some(), "{row}");
}

#[test]
fn a_pending_job_is_edited_unless_it_changed_in_the_meantime() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let job = slotd.script(&["-H", "-t", "10"], "#!/bin/sh\necho before\n");
    let path = format!("/api/job/{job}/edit");
    let shown = web.get(&path).json()["text"].as_str().unwrap().to_owned();
    assert!(
        shown.contains("#SBATCH --time=00:10:00\n") && shown.ends_with("#!/bin/sh\necho before\n"),
        "{shown}"
    );
    let text = shown.replace("00:10:00", "00:20:00").replace("echo before", "echo after");
    let change =
        |before: &str, text: &str| web.post(&path, &json!({ "before": before, "text": text }));
    let wrong = change(&shown, &shown.replace("00:10:00", "soon"));
    assert_eq!(wrong.status, 422, "{wrong:?}");
    assert_eq!(slotd.show(job, "TimeLimit"), "00:10:00");
    let done = change(&shown, &text);
    assert_eq!(
        (done.status, &done.json()["told"]),
        (200, &json!(format!("changed job {job}"))),
        "{done:?}"
    );
    assert_eq!(slotd.show(job, "TimeLimit"), "00:20:00");
    let late = change(&shown, &text.replace("00:20:00", "00:30:00"));
    assert_eq!(late.status, 422, "{late:?}");
    assert!(late.text().contains("was changed in the meantime"), "{late:?}");
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    slotd.wait_end(job);
    assert_eq!(slotd.output(job), "after\n");
    assert_eq!(web.get(&path).status, 422, "it is no longer pending");
    assert_eq!(web.get("/api/job/--help/edit").status, 400);
    let line = format!("POST {path} HTTP/1.1");
    let body = json!({ "before": "", "text": "" }).to_string();
    let bare = [("Host", web.at.as_str()), ("Cookie", web.cookie.as_str())];
    assert_eq!(web.ask(&line, &bare, &body).status, 403, "without the key");
    let foreign =
        web.own().into_iter().chain([("Origin", "http://evil.example")]).collect::<Vec<_>>();
    assert_eq!(web.ask(&line, &foreign, &body).status, 403);
}

#[test]
fn job_details_include_the_output_of_slotd_why() {
    let slotd = Slotd::setup().set("SLOTD_CPUS", 2).start();
    let web = Web::start(&slotd);
    let runs = slotd.endless(&["-c", "2", "-t", "10"]);
    let waits = slotd.submit(&["-c", "2", "--wrap", "true"]);
    let why = |job: u32| web.get(&format!("/api/job/{job}")).json()["why"].clone();
    let told = why(waits);
    assert!(
        told["sentences"][0]
            .as_str()
            .unwrap()
            .starts_with(&format!("Job {waits} (wrap) is PENDING")),
        "{told}"
    );
    let keeps = told["blockers"][0]["text"].as_str().unwrap_or_else(|| panic!("{told}"));
    assert!(keeps.contains(&format!("job {runs}")), "{told}");
    slotd.cancel(runs);
    let failed = slotd.wrap(&[], "echo wrong >&2; exit 3");
    slotd.wait_end(failed);
    let told = why(failed);
    assert!(told["sentences"].to_string().contains("FAILED"), "{told}");
    assert_eq!(told["stderr"]["last_lines"], json!(["wrong"]), "{told}");
}

#[test]
fn a_log_is_read_in_parts_and_followed() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let long = "seq 200000 >&2; echo begun; until [ -e more ]; do sleep 0.05; done; echo more; until [ -e end ]; do sleep 0.05; done";
    let job = slotd.wrap(&["-o", "out", "-e", "err"], long);
    slotd.wait_text("out", "begun");
    let log = format!("/api/job/{job}/log");
    let mut events = web.events(&format!("/api/events?job={job}"));
    let size = slotd.read("err").len();
    let sizes = events.until(|event| event["event"] == "sizes");
    assert_eq!((&sizes["out"], &sizes["err"]), (&json!(6), &json!(size)));
    let range = |range: &str, stream: &str| {
        let headers: Vec<_> = web.own().into_iter().chain([("Range", range)]).collect();
        web.ask(&format!("GET {log}/{stream} HTTP/1.1"), &headers, "")
    };
    let end = range("bytes=-14", "err");
    assert_eq!((end.status, end.text().as_str()), (206, "199999\n200000\n"));
    assert_eq!(
        end.header("content-range"),
        Some(format!("bytes {}-{}/{size}", size - 14, size - 1).as_str())
    );
    assert_eq!(range("bytes=0-3", "err").text(), "1\n2\n");
    assert_eq!(range("bytes=0-", "err").body.len(), 256 << 10, "the limit of a response");
    let past = range(&format!("bytes={size}-"), "err");
    assert_eq!(
        (past.status, past.header("content-range")),
        (416, Some(format!("bytes */{size}").as_str()))
    );
    slotd.write("more", "");
    events.until(|event| event["out"] == 11);
    assert_eq!(range("bytes=6-", "out").text(), "more\n");
    slotd.write("end", "");
    events.until(|event| event["event"] == "changed");
    slotd.wait_end(job);
}

#[test]
fn events_continue_after_a_daemon_restart() {
    let mut slotd = Slotd::start();
    let web = Web::start(&slotd);
    let mut events = web.events("/api/events");
    assert_eq!(events.next(), Some(json!({ "event": "daemon", "up": true })));
    assert!(events.next().is_some_and(|event| is_whole(&event)));
    let job = slotd.submit(&["-H", "--wrap", "true"]);
    events.until(|event| names(event, job));
    slotd.crash();
    events.until(|event| *event == json!({ "event": "daemon", "up": false }));
    events.until(|event| *event == json!({ "event": "daemon", "up": true }));
    events.until(is_whole);
    slotd.cancel(job);
    events.until(|event| names(event, job));
    slotd.stop();
    let mut late = web.events("/api/events");
    assert_eq!(
        late.next(),
        Some(json!({ "event": "daemon", "up": false })),
        "the stream waits for the daemon"
    );
    slotd.start_daemon();
    assert_eq!(late.next(), Some(json!({ "event": "daemon", "up": true })));
}

#[test]
fn streams_are_limited_and_a_slow_reader_delays_no_other() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let mut oldest = web.events("/api/events");
    oldest.until(is_whole);
    // These streams are never read.
    let idle: Vec<Events> = (0..15).map(|_| web.events("/api/events")).collect();
    let mut last = web.events("/api/events");
    // Only a stream that already has the queue receives the change as a patch.
    last.until(is_whole);
    while oldest.next().is_some() {}
    let job = slotd.submit(&["-H", "--wrap", "true"]);
    let mut queue = json!({});
    let is_known = |queue: &Value| queue["rows"].get(job.to_string()).is_some();
    web.events("/api/events").apply(&mut queue, is_known);
    last.until(|event| names(event, job));
    drop((idle, last));
    let mut fresh = web.events("/api/events");
    fresh.until(is_whole);
}

#[test]
fn an_event_has_only_the_changed_fields_of_a_long_queue() {
    const JOBS: u32 = 500;
    let slotd = Slotd::start();
    let array = slotd.submit(&["-H", "-a", &format!("1-{JOBS}"), "--wrap", "true"]);
    let tasks = (1..=JOBS).map(|task| format!("{array}_{task}")).collect::<Vec<_>>().join(",");
    // Gives each task its own record.
    slotd.cmd("scontrol", &["update", &format!("jobid={tasks}"), "comment=own"]).ok();
    let web = Web::start(&slotd);
    let mut events = web.events(&format!("/api/events?rows={JOBS}"));
    let whole = events.until(is_whole);
    assert_eq!(named(&whole).len(), JOBS as usize);
    let id = |task: &str| {
        let rows = whole["queue"]["rows"].as_object().unwrap();
        let is_it = |(_, row): &(&String, &Value)| row["target"] == task;
        rows.iter().find(is_it).map(|(id, _)| id.clone()).unwrap()
    };
    for task in [1, JOBS / 2, JOBS - 1] {
        let task = format!("{array}_{task}");
        slotd.cmd("scontrol", &["update", &format!("jobid={task}"), "name=other"]).ok();
        let event = events.until(|event| !named(event).is_empty());
        assert_eq!(event["queue"]["rows"], json!({ id(&task): { "name": "other" } }), "{event}");
        assert!(event.to_string().len() < 500, "{event}");
    }
    // A second browser receives the same change. One that requested too few rows does not.
    let (mut other, mut small) = (web.events("/api/events?rows=500"), web.events("/api/events"));
    assert_eq!(named(&other.until(is_whole)).len(), JOBS as usize);
    small.until(is_whole);
    slotd.cmd("scancel", &[format!("{array}_3")]).ok();
    for stream in [&mut events, &mut other] {
        let event = stream.until(|event| !named(event).is_empty());
        assert_eq!(named(&event), [id(&format!("{array}_3"))], "{event}");
    }
}

#[test]
fn a_job_moves_between_the_lists() {
    let slotd = Slotd::setup().set("SLOTD_CPUS", 2).start();
    let web = Web::start(&slotd);
    let mut events = web.events("/api/events");
    let mut queue = json!({});
    events.apply(&mut queue, |queue| queue["waiting_count"] == 0);
    // A name can neither end nor forge an event.
    let name = "<b>\"}\u{2028}data: {\"event\":\"whole\"} \\n\\n";
    let job = slotd.begun(&["-c", "2", "-J", name], "go", "exit 0");
    let state = |queue: &Value, job: u32| queue["rows"][job.to_string()]["state"].clone();
    events.apply(&mut queue, |queue| state(queue, job) == "RUNNING");
    let row = queue["rows"][job.to_string()].clone();
    assert_eq!((&row["name"], &row["elapsed_ms"]), (&json!(name), &Value::Null));
    assert_eq!(row["cpu_ids"].as_array().unwrap().len(), 2, "{row}");
    let array = slotd.submit(&["-c", "2", "-a", "1-3%1", "--wrap", "sleep 1000"]);
    events.apply(&mut queue, |queue| queue["waiting_count"] == 1);
    assert_eq!(queue["rows"][array.to_string()]["label"], format!("{array}_[1-3%1]"));
    assert!(queue["rows"][array.to_string()]["why"].as_str().unwrap().contains("job"), "{queue}");
    slotd.write("go", "");
    events.apply(&mut queue, |queue| state(queue, job) == "COMPLETED");
    // The first task has its own record now.
    let split = |queue: &Value| {
        queue["arrays"][array.to_string()]
            == json!({ "total": 3, "waiting": 2, "running": 1, "failed": 0 })
    };
    events.apply(&mut queue, split);
    let labels = |queue: &Value| {
        let rows = queue["rows"].as_object().unwrap().values();
        rows.map(|row| row["label"].as_str().unwrap().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let expected = [job.to_string(), format!("{array}_1"), format!("{array}_[2-3%1]")];
    assert_eq!(labels(&queue), expected.into());
    // A new browser receives the same queue.
    assert_eq!(labels(&queue), labels(&web.events("/api/events").until(is_whole)["queue"]));
    slotd.cancel(array);
    events.apply(&mut queue, |queue| queue["arrays"].as_object().unwrap().is_empty());
    assert_eq!(queue["waiting_count"], 0);
}

#[test]
fn a_reconnect_or_a_daemon_restart_sends_the_whole_queue() {
    let mut slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    let web = Web::start(&slotd);
    let [stays, goes] = [(); 2].map(|()| slotd.submit(&["-H", "--wrap", "true"]).to_string());
    let mut events = web.events("/api/events");
    assert_eq!(rows(&events.queue(), "waiting"), [stays.as_str(), &goes]);
    drop(events);
    slotd.cmd("scancel", &[&goes]).ok();
    let mut events = web.events("/api/events");
    let mut queue = json!({});
    let is_left = |queue: &Value| queue["waiting_count"] == 1;
    events.apply(&mut queue, is_left);
    assert_ne!(queue["rows"][&goes]["state"], "PENDING");
    slotd.crash();
    events.until(|event| *event == json!({ "event": "daemon", "up": false }));
    assert_eq!(events.next(), Some(json!({ "event": "daemon", "up": true })));
    assert_eq!(rows(&events.queue(), "waiting"), [stays.as_str()]);
}

#[test]
fn an_idle_page_causes_no_wakeups_and_ctrl_c_stops_the_server() {
    let slotd = Slotd::start();
    let mut web = Web::start(&slotd);
    let mut events = web.events("/api/events");
    events.until(is_whole);
    let pids = [slotd.daemon_pid(), web.running.pid()];
    let mut before = pids.map(proc::wakeups);
    // A busy machine may delay a wake-up, so one quiet second is enough. The server's clock timer
    // still fires.
    slotd.wait("a quiet second", || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = pids.map(proc::wakeups);
        // The count drops when a thread ends.
        let woken = [0, 1].map(|at| now[at].checked_sub(before[at]));
        before = now;
        (woken[0] == Some(0) && woken[1].is_some_and(|times| times <= 4)).then_some(())
    });
    web.running.signal(proc::INT);
    slotd.wait("the end of the server", || (!web.running.is_running()).then_some(()));
}
