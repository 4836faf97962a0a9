//! `slotd web`: who is let in, what is told, what is done. What a browser makes of it is looked at
//! in tests/web.

use serde_json::{Value, json};
use slotd_kit::{PATIENCE, Running, Slotd, proc};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;

/// A server with a session.
struct Web {
    running: Running,
    /// Host and port.
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
    /// One whose address was not opened yet.
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
        // A server that refuses does not read all of it.
        drop(socket.write_all(format!("{text}\r\n{body}").as_bytes()));
        socket
    }

    /// Exactly this, on a connection of its own.
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

    /// What the page would send.
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

    fn queue(&self) -> Value {
        let answer = self.get("/api/queue");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    fn events(&self, path: &str) -> Events {
        let socket = self.connect(&format!("GET {path} HTTP/1.1"), &self.own(), "");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out above zero");
        Events(BufReader::new(socket))
    }
}

/// A stream of events, with the headers and the sizes of its chunks read over.
struct Events(BufReader<TcpStream>);

impl Events {
    /// `None`: it has ended.
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
}

/// Whether it tells that this job has changed.
fn names(event: &Value, job: u32) -> bool {
    event["jobs"].as_array().is_some_and(|jobs| jobs.contains(&json!(job)))
}

fn rows(picture: &Value, kind: &str) -> Vec<String> {
    picture[kind]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["label"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_address_opens_the_page_once() {
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
    assert_eq!(web.open(&web.token).status, 401, "the token is used up");
    let session = cookie.split(';').next().unwrap();
    let again = web.ask("GET / HTTP/1.1", &[("Host", &web.at), ("Cookie", session)], "");
    assert_eq!(again.status, 200, "a reload");
    assert!(again.text().contains("name=\"key\" content=\"\""), "the key is told once");
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
fn a_job_and_the_host_have_plots_of_what_was_used() {
    let slotd = Slotd::start();
    let job = slotd.begun(&["-c", "2", "--mem", "100M"], "go", "exit 0");
    let web = Web::start(&slotd);
    // The first look may be at a script that is about to be started.
    let plots = |path: &str| {
        let has_memory = |used: &Value| {
            used["memory"].as_array().unwrap().iter().any(|b| b.as_f64() > Some(0.0))
        };
        slotd.wait("its memory", || Some(web.get(path).json()).filter(has_memory))
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
    let host = slotd.wait("what the host used", || Some(charts(60)).filter(has_end));
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
fn only_loopback_is_listened_at() {
    let slotd = Slotd::start();
    for address in ["0.0.0.0", "192.168.0.1", "[::]", "localhost"] {
        let out = slotd.cmd("slotd", &["web", "--listen", address]).fails(2);
        assert!(
            out.stderr.starts_with(&format!("slotd: error: --listen {address}: this is no ")),
            "{out:?}"
        );
    }
}

#[test]
fn without_a_daemon_there_is_no_page() {
    let mut slotd = Slotd::start();
    slotd.stop();
    let out = slotd.cmd("slotd", &["web"]).fails(1);
    assert!(out.stderr.contains("no daemon answers at"), "{out:?}");
}

#[test]
fn foreign_names_sites_and_origins_are_refused_and_so_is_who_lacks_cookie_or_key() {
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
        // The same path is written in many ways.
        for (line, body) in [
            ("POST /api/act HTTP/1.1", cancel.as_str()),
            ("POST /%61pi/act HTTP/1.1", cancel.as_str()),
            ("GET /api/queue HTTP/1.1", ""),
            ("GET /a%70i/queue HTTP/1.1", ""),
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
    assert_eq!(asked_before.status, 403, "what a browser asks before it sends a header of its own");
    // A tunnel has another port, and a browser says whose page it is.
    let host = format!("localhost:{port}");
    let origin = format!("http://{host}");
    let mut tunnel = but("Host", None);
    tunnel.extend([("Host", host.as_str()), ("Origin", origin.as_str())]);
    assert_eq!(web.ask("POST /api/act HTTP/1.1", &tunnel, &cancel).status, 200);
    assert_eq!(slotd.wait_end(job).state(), "CANCELLED");
}

#[test]
fn half_open_connections_do_not_keep_the_page_waiting() {
    const CONNECTIONS: usize = 200;
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let half = || {
        let mut socket = TcpStream::connect(&web.at).unwrap();
        // The server may have closed it already.
        drop(
            socket.write_all(format!("GET /api/queue HTTP/1.1\r\nHost: {}\r\n", web.at).as_bytes()),
        );
        socket
    };
    let half_open: Vec<TcpStream> = (0..CONNECTIONS).map(|_| half()).collect();
    assert_eq!(web.get("/api/queue").status, 200);
    // Without a limit each of them would keep its place until the server answers 408 for the
    // missing rest.
    let unanswered = half_open.into_iter().filter(|mut socket| {
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer));
        answer.is_empty()
    });
    assert!(unanswered.count() > CONNECTIONS / 2);
}

#[test]
fn a_connection_that_does_not_authenticate_is_closed_and_one_that_does_is_kept() {
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
    // To its end: the server closes it.
    drop(stranger.read_to_string(&mut answer));
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    // Strangers come and go, and connections that have authenticated stay.
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
fn there_is_no_path_to_a_file_and_no_way_round_the_names_of_jobs() {
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
fn a_body_that_is_too_long_is_not_taken() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let script = "x".repeat(5 << 20);
    let answer = web.post("/api/submit", &json!({ "options": [], "script": script }));
    assert!([400, 413].contains(&answer.status), "{answer:?}");
    assert!(slotd.all_records().is_empty());
}

#[test]
fn the_queue_is_shown_as_it_is() {
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
    assert_eq!(first["name"], "<img src=x onerror=alert(1)>", "text stays text");
    assert!(first["why"].as_str().unwrap().contains(&format!("job {runs}")), "{first}");
    assert!(first["expected"].as_i64() > queue["now"].as_i64(), "{first}");
    assert_eq!((&ended["state"], &ended["exit"]), (&json!("FAILED"), &json!("3:0")));
    assert_eq!(queue["running"][0]["cpu_ids"].as_array().unwrap().len(), 2);
    assert_eq!(queue["host"]["cpus"], json!({ "all": 2, "given": 2 }));
    assert_eq!(
        queue["arrays"][array.to_string()],
        json!({ "total": 9, "waiting": 9, "running": 0 })
    );
    let few = web.get("/api/queue?rows=1").json();
    assert_eq!((few["waiting"].as_array().unwrap().len(), &few["waiting_count"]), (1, &json!(2)));
    let whole = web.get(&format!("/api/job/{array}_3")).json();
    assert_eq!(whole["job"]["array"], array);
    assert!(whole["text"].as_str().unwrap().contains("JobState=PENDING"), "{whole}");
    assert_eq!(web.get("/api/job/999999").status, 404);
}

#[test]
fn history_is_searched_by_the_words_of_sacct() {
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
fn history_shows_how_far_an_array_is_that_still_has_tasks() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let script = format!("test $SLURM_ARRAY_TASK_ID -le 2 || {}", slotd.gate("go"));
    let array = slotd.wrap(&["-a", "1-40%4", "-c", "1"], &script);
    let find = || web.get("/api/history").json();
    // The first two are over, four run and the others wait.
    let middle = json!({ "total": 40, "waiting": 34, "running": 4 });
    slotd.wait("four tasks beside the two", || {
        (find()["arrays"][array.to_string()] == middle).then_some(())
    });
    slotd.cancel(array);
    slotd.wait("the end of all", || (find()["arrays"] == json!({})).then_some(()));
}

#[test]
fn a_script_and_the_options_of_sbatch_are_submitted_as_sbatch_does() {
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
    let refused = web.post("/api/submit", &json!({ "options": ["--nonsense"], "script": script }));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.text().contains("nonsense"), "in the words of sbatch: {refused:?}");
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
fn a_job_that_is_over_is_submitted_once_more() {
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
    assert!(refused.text().contains("only what is over is submitted again"), "{refused:?}");
}

#[test]
fn a_job_that_waits_is_edited_as_it_was_shown_or_not_at_all() {
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
        (200, &json!(format!("job {job} is changed"))),
        "{done:?}"
    );
    assert_eq!(slotd.show(job, "TimeLimit"), "00:20:00");
    let late = change(&shown, &text.replace("00:20:00", "00:30:00"));
    assert_eq!(late.status, 422, "{late:?}");
    assert!(late.text().contains("has been changed meanwhile"), "{late:?}");
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    slotd.wait_end(job);
    assert_eq!(slotd.output(job), "after\n");
    assert_eq!(web.get(&path).status, 422, "it waits no more");
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
fn why_a_job_waits_or_ended_is_told_as_slotd_why_tells_it() {
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
fn a_log_is_read_by_parts_and_followed() {
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
    assert_eq!(range("bytes=0-", "err").body.len(), 256 << 10, "never more than that at once");
    let past = range(&format!("bytes={size}-"), "err");
    assert_eq!(
        (past.status, past.header("content-range")),
        (416, Some(format!("bytes */{size}").as_str()))
    );
    slotd.write("more", "");
    events.until(|event| event["out"] == 11);
    assert_eq!(range("bytes=6-", "out").text(), "more\n");
    slotd.write("end", "");
    events.until(|event| names(event, job));
    slotd.wait_end(job);
}

#[test]
fn what_changes_is_told_as_it_changes_over_a_restart_of_the_daemon() {
    let mut slotd = Slotd::start();
    let web = Web::start(&slotd);
    let mut events = web.events("/api/events");
    assert_eq!(events.next(), Some(json!({ "event": "daemon", "up": true })));
    assert_eq!(events.next(), Some(json!({ "event": "changed", "all": true })));
    let job = slotd.submit(&["-H", "--wrap", "true"]);
    events.until(|event| names(event, job));
    slotd.crash();
    events.until(|event| *event == json!({ "event": "daemon", "up": false }));
    events.until(|event| *event == json!({ "event": "daemon", "up": true }));
    events.until(|event| event["all"] == true);
    slotd.cancel(job);
    events.until(|event| names(event, job));
    slotd.stop();
    let mut late = web.events("/api/events");
    assert_eq!(
        late.next(),
        Some(json!({ "event": "daemon", "up": false })),
        "it is told, and waited for"
    );
    slotd.start_daemon();
    assert_eq!(late.next(), Some(json!({ "event": "daemon", "up": true })));
}

#[test]
fn streams_are_bounded_and_who_does_not_read_holds_nobody_up() {
    let slotd = Slotd::start();
    let web = Web::start(&slotd);
    let mut oldest = web.events("/api/events");
    oldest.until(|event| event["all"] == true);
    // None of these reads.
    let idle: Vec<Events> = (0..15).map(|_| web.events("/api/events")).collect();
    let mut last = web.events("/api/events");
    // Only a stream that follows the daemon by now gets the change as an event of its own.
    last.until(|event| event["all"] == true);
    while oldest.next().is_some() {}
    let job = slotd.submit(&["-H", "--wrap", "true"]);
    assert_eq!(rows(&web.queue(), "waiting"), [job.to_string()]);
    last.until(|event| event["jobs"] == json!([job]));
    drop((idle, last));
    let mut fresh = web.events("/api/events");
    fresh.until(|event| event["all"] == true);
}

#[test]
fn an_idle_page_wakes_nobody_up_and_ctrl_c_ends_the_server() {
    let slotd = Slotd::start();
    let mut web = Web::start(&slotd);
    let mut events = web.events("/api/events");
    events.until(|event| event["all"] == true);
    let pids = [slotd.daemon_pid(), web.running.pid()];
    let mut before = pids.map(proc::wakeups);
    // Busy machines bring a late wake-up now and then: some quiet second must come. The server's
    // clock ticks.
    slotd.wait("a quiet second", || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = pids.map(proc::wakeups);
        // The wake-ups of a thread that has ended do not count any more.
        let woken = [0, 1].map(|at| now[at].checked_sub(before[at]));
        before = now;
        (woken[0] == Some(0) && woken[1].is_some_and(|times| times <= 4)).then_some(())
    });
    web.running.signal(proc::INT);
    slotd.wait("the end of the server", || (!web.running.is_running()).then_some(()));
}
