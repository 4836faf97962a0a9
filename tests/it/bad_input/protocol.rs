//! Broken, misbehaving or dead clients must not affect the daemon: it survives and serves the next
//! client.

use serde_json::json;
use slotd_kit::wire::{ask, connect, drain, frame, header, receive};
use slotd_kit::{Slotd, proc, until};
use std::io::Write;
use std::net::Shutdown;

/// Asserts that the daemon is still the same process and runs jobs.
#[track_caller]
fn assert_works(slotd: &Slotd) {
    let pong = ask(&slotd.root, &json!("Ping")).unwrap();
    assert_eq!(pong["Pong"]["pid"], slotd.daemon_pid(), "a different daemon answered");
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

/// Sends bytes, closes the sending side, and returns the daemon's response.
fn exchange(slotd: &Slotd, bytes: &[u8]) -> String {
    let mut socket = connect(&slotd.root).unwrap();
    // The daemon may close the connection before it has read everything.
    drop(socket.write_all(bytes));
    drop(socket.shutdown(Shutdown::Write));
    String::from_utf8_lossy(&drain(socket)).into_owned()
}

#[test]
fn a_client_of_another_protocol_is_refused() {
    let slotd = Slotd::start();
    let answer = exchange(&slotd, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.contains("does not speak slotd's protocol"), "{answer}");
    assert_works(&slotd);
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_header() {
    let slotd = Slotd::start();
    for lengths in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX), (64 << 20, 0)] {
        let mut socket = connect(&slotd.root).unwrap();
        socket.write_all(&header(lengths.0, lengths.1)).unwrap();
        // Nothing more is sent and the connection stays open, so the refusal must not wait for the
        // announced bytes.
        let answer = receive(&mut socket).unwrap();
        assert!(
            answer["Refused"]["Malformed"].as_str().unwrap().contains("longer than"),
            "{answer}"
        );
    }
    assert_works(&slotd);
}

#[test]
fn incomplete_frames_do_not_affect_other_clients() {
    let slotd = Slotd::start();
    let whole = frame(br#""Ping""#, b"");
    let halves: Vec<_> = (1..whole.len())
        .map(|length| {
            let mut socket = connect(&slotd.root).unwrap();
            socket.write_all(&whole[..length]).unwrap();
            socket
        })
        .collect();
    assert_works(&slotd);
    drop(halves);
    assert_works(&slotd);
}

#[test]
fn a_frame_may_arrive_byte_by_byte() {
    let slotd = Slotd::start();
    let mut socket = connect(&slotd.root).unwrap();
    for byte in frame(br#""Ping""#, b"") {
        socket.write_all(&[byte]).unwrap();
    }
    assert!(receive(&mut socket).unwrap()["Pong"].is_object());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let slotd = Slotd::start();
    let mut socket = connect(&slotd.root).unwrap();
    let requests =
        [frame(br#""Ping""#, b""), frame(br#""Node""#, b""), frame(br#""Ping""#, b"")].concat();
    socket.write_all(&requests).unwrap();
    let kinds: Vec<String> = (0..3)
        .map(|_| receive(&mut socket).unwrap().as_object().unwrap().keys().next().unwrap().clone())
        .collect();
    assert_eq!(kinds, ["Pong", "Node", "Pong"]);
}

#[test]
fn malformed_json_is_refused_and_the_connection_stays_open() {
    let slotd = Slotd::start();
    let mut socket = connect(&slotd.root).unwrap();
    let deep = "[".repeat(100_000);
    let bad: [&[u8]; 9] = [
        b"",
        b"{",
        b"null",
        b"\"Nonsense\"",
        br#"{"Submit":{}}"#,
        br#"{"Submit":{"request":{"ntasks":-1},"script_len":0,"wait":false,"test_only":false,"client":{"pid":1,"start_ticks":0}}}"#,
        br#"{"Jobs":{"jobs":[{"job":99999999999999}]}}"#,
        b"\xff\xfe\x00",
        deep.as_bytes(),
    ];
    for json in bad {
        socket.write_all(&frame(json, b"")).unwrap();
        let answer = receive(&mut socket).unwrap();
        assert!(answer["Refused"].is_object(), "{answer}");
    }
    socket.write_all(&frame(br#""Ping""#, b"")).unwrap();
    assert!(receive(&mut socket).unwrap()["Pong"].is_object());
    assert_works(&slotd);
}

#[test]
fn another_protocol_version_is_refused_with_its_number() {
    let slotd = Slotd::start();
    let mut bytes = frame(br#""Ping""#, b"");
    bytes[4] = 99;
    let answer = exchange(&slotd, &bytes);
    assert!(answer.contains("protocol version 99"), "{answer}");
    assert_works(&slotd);
}

#[test]
fn a_script_shorter_than_announced_is_refused() {
    let slotd = Slotd::start();
    let submit = json!({ "Submit": {
        "request": { "name": "short", "user": "u", "work_dir": "/", "submit_line": "", "submit_host": "" },
        "script_len": 1000, "wait": false, "test_only": false, "client": { "pid": 1, "start_ticks": 0 } } });
    let mut socket = connect(&slotd.root).unwrap();
    socket.write_all(&frame(submit.to_string().as_bytes(), b"#!/bin/sh\n")).unwrap();
    let answer = receive(&mut socket).unwrap();
    assert!(answer.to_string().contains("shorter than announced"), "{answer}");
    assert!(slotd.all_records().is_empty());
    assert_works(&slotd);
}

#[test]
fn impossible_requests_do_not_affect_the_daemon() {
    let slotd = Slotd::start();
    // Requests that no command sends: extreme numbers, a step of a job that does not exist, a job
    // of size zero.
    let launch = json!({ "LaunchStep": {
        "job": 77, "client": { "pid": 1, "start_ticks": 0 }, "again": false, "argv": [], "work_dir": "/",
        "umask": null, "streams": [], "pty": true, "client_line": 9, "label": false,
        "request": { "name": "x", "ntasks": u32::MAX, "cpus_per_task": u32::MAX, "mem": { "per_cpu": u64::MAX },
            "gpu": { "total": u32::MAX }, "time_limit_secs": u64::MAX } } });
    assert!(ask(&slotd.root, &launch).is_err());
    let mut launch = launch;
    launch["LaunchStep"]["request"]["cpu_bind"] = json!("nonsense");
    assert!(ask(&slotd.root, &launch).is_err());
    // The working directory of the jobs that are accepted.
    let work = slotd.work();
    for request in [
        json!({ "request": { "ntasks": u32::MAX, "cpus_per_task": u32::MAX, "work_dir": work } }),
        json!({ "request": { "ntasks": 0, "work_dir": work } }),
        json!({ "request": { "mem": { "per_cpu": u64::MAX }, "ntasks": 4, "work_dir": work } }),
        json!({ "request": { "gpu": { "per_task": u32::MAX }, "ntasks": u32::MAX, "work_dir": work } }),
        json!({ "request": { "partition": "\u{0}", "work_dir": "" } }),
    ] {
        let mut submit = json!({ "script_len": 0, "wait": false, "test_only": false, "client": { "pid": 1, "start_ticks": 0 } });
        submit["request"] = request["request"].clone();
        submit["request"]["name"] = json!("edge");
        // Both a refusal and a submission are fine.
        drop(ask(&slotd.root, &json!({ "Submit": submit })));
    }
    for request in [
        json!({ "Attach": { "job": 5, "client": { "pid": 1, "start_ticks": 0 }, "step": null, "holds": true } }),
        json!({ "WaitEnd": 12345 }),
        json!({ "BatchScript": 12345 }),
        json!({ "Cancel": { "query": { "jobs": [{ "job": 4_294_967_295u32 }] }, "signal": 4096 } }),
    ] {
        drop(ask(&slotd.root, &request));
    }
    assert_works(&slotd);
}

#[test]
fn unexpected_descriptors_are_closed() {
    let slotd = Slotd::start();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", slotd.daemon_pid())).unwrap().count();
    let ping = frame(br#""Ping""#, b"");
    let mut first = connect(&slotd.root).unwrap();
    first.write_all(&ping).unwrap();
    receive(&mut first).unwrap();
    let before = open();
    for _ in 0..20 {
        let mut socket = connect(&slotd.root).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds: Vec<_> = (0..8).map(|_| std::os::fd::AsRawFd::as_raw_fd(&null)).collect();
        let rights = [nix::sys::socket::ControlMessage::ScmRights(&fds)];
        let bytes = [std::io::IoSlice::new(&ping)];
        let flags = nix::sys::socket::MsgFlags::empty();
        nix::sys::socket::sendmsg::<()>(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            &bytes,
            &rights,
            flags,
            None,
        )
        .unwrap();
        assert!(receive(&mut socket).unwrap()["Pong"].is_object());
    }
    // The daemon received 160 descriptors, and may have opened some itself in the meantime.
    let closed = until(|| (open() < before + 8).then_some(()));
    assert!(closed.is_some(), "{} descriptors were open before, {} are now", before, open());
}

#[test]
fn a_killed_client_leaves_a_complete_job_or_none() {
    let slotd = Slotd::start();
    for i in 0..20 {
        let mut command = slotd.command("sbatch");
        command.args(["-J", &format!("vanish{i}"), "--wrap", "true"]);
        let running = slotd.spawn(command);
        // The signal arrives at an arbitrary moment.
        running.signal(proc::KILL);
        drop(running);
    }
    assert_works(&slotd);
    for record in slotd.all_records() {
        slotd.wait_state(record.id(), "COMPLETED");
    }
}

#[test]
fn a_client_that_does_not_read_blocks_nobody() {
    let slotd = Slotd::start();
    for _ in 0..50 {
        slotd.wrap(&["-H"], "true");
    }
    let mut silent = connect(&slotd.root).unwrap();
    silent.set_nonblocking(true).unwrap();
    let jobs = frame(json!({ "Jobs": {} }).to_string().as_bytes(), b"");
    // Send until the socket is full: the daemon stops reading because its responses are not read.
    let mut sent = 0;
    while sent < 5000 && silent.write_all(&jobs).is_ok() {
        sent += 1;
    }
    assert_works(&slotd);
}

#[test]
fn two_hundred_connections_at_once_are_served() {
    let slotd = Slotd::start();
    let mut all: Vec<_> = (0..200).map(|_| connect(&slotd.root).unwrap()).collect();
    for socket in &mut all {
        socket.write_all(&frame(br#""Ping""#, b"")).unwrap();
    }
    for socket in &mut all {
        assert!(receive(socket).unwrap()["Pong"].is_object());
    }
}

#[test]
fn only_the_owner_can_access_the_socket_and_the_database() {
    use std::os::unix::fs::PermissionsExt;
    let slotd = Slotd::start();
    let mode =
        |path: &str| std::fs::metadata(slotd.root.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run/slotd.sock"), 0o600);
    assert_eq!(mode("lib/state.db"), 0o600);
    assert_eq!(mode("lib/jobs"), 0o700);
}
