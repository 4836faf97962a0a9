//! Clients that are broken, rude or gone: the daemon lives and answers the next one (issue of bad
//! input).

use serde_json::json;
use slotd_kit::wire::{ask, connect, drain, frame, header, receive};
use slotd_kit::{Slotd, proc, until};
use std::io::Write;
use std::net::Shutdown;

/// The daemon is the same process as before, and works.
#[track_caller]
fn is_well(slotd: &Slotd) {
    let pong = ask(&slotd.root, &json!("Ping")).unwrap();
    assert_eq!(pong["Pong"]["pid"], slotd.daemon_pid(), "another daemon answers");
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

/// Sends bytes, ends the stream, and returns what the daemon says to that.
fn say(slotd: &Slotd, bytes: &[u8]) -> String {
    let mut socket = connect(&slotd.root).unwrap();
    // The daemon may have closed its side before it read everything.
    drop(socket.write_all(bytes));
    drop(socket.shutdown(Shutdown::Write));
    String::from_utf8_lossy(&drain(socket)).into_owned()
}

#[test]
fn another_language_is_answered_and_turned_away() {
    let slotd = Slotd::start();
    let answer = say(&slotd, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.contains("does not speak slotd's protocol"), "{answer}");
    is_well(&slotd);
}

#[test]
fn a_frame_that_announces_too_much_is_refused_before_it_comes() {
    let slotd = Slotd::start();
    for lengths in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX), (64 << 20, 0)] {
        let mut socket = connect(&slotd.root).unwrap();
        socket.write_all(&header(lengths.0, lengths.1)).unwrap();
        // Nothing more is sent, and the connection is left open: the refusal must come by itself.
        let answer = receive(&mut socket).unwrap();
        assert!(
            answer["Refused"]["Malformed"].as_str().unwrap().contains("longer than"),
            "{answer}"
        );
    }
    is_well(&slotd);
}

#[test]
fn half_a_frame_and_then_nothing_harms_nobody() {
    let slotd = Slotd::start();
    let whole = frame(br#""Ping""#, b"");
    let halves: Vec<_> = (1..whole.len())
        .map(|length| {
            let mut socket = connect(&slotd.root).unwrap();
            socket.write_all(&whole[..length]).unwrap();
            socket
        })
        .collect();
    is_well(&slotd);
    drop(halves);
    is_well(&slotd);
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_understood() {
    let slotd = Slotd::start();
    let mut socket = connect(&slotd.root).unwrap();
    for byte in frame(br#""Ping""#, b"") {
        socket.write_all(&[byte]).unwrap();
    }
    assert!(receive(&mut socket).unwrap()["Pong"].is_object());
}

#[test]
fn several_requests_in_one_breath_are_answered_in_order() {
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
fn malformed_json_is_refused_and_the_connection_goes_on() {
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
    is_well(&slotd);
}

#[test]
fn another_version_is_told_both_versions() {
    let slotd = Slotd::start();
    let mut bytes = frame(br#""Ping""#, b"");
    bytes[4] = 99;
    let answer = say(&slotd, &bytes);
    assert!(answer.contains("protocol version 99"), "{answer}");
    is_well(&slotd);
}

#[test]
fn a_script_shorter_than_announced_submits_nothing() {
    let slotd = Slotd::start();
    let submit = json!({ "Submit": {
        "request": { "name": "short", "user": "u", "work_dir": "/", "submit_line": "", "submit_host": "" },
        "script_len": 1000, "wait": false, "test_only": false, "client": { "pid": 1, "start_ticks": 0 } } });
    let mut socket = connect(&slotd.root).unwrap();
    socket.write_all(&frame(submit.to_string().as_bytes(), b"#!/bin/sh\n")).unwrap();
    let answer = receive(&mut socket).unwrap();
    assert!(answer.to_string().contains("shorter than announced"), "{answer}");
    assert!(slotd.all_records().is_empty());
    is_well(&slotd);
}

#[test]
fn a_request_that_asks_for_the_impossible_is_refused() {
    let slotd = Slotd::start();
    // What no command would send: numbers at the edge, a step of a job that is none, a job of no
    // size.
    let launch = json!({ "LaunchStep": {
        "job": 77, "client": { "pid": 1, "start_ticks": 0 }, "again": false, "argv": [], "work_dir": "/",
        "umask": null, "streams": [], "pty": true, "client_line": 9, "label": false,
        "request": { "name": "x", "ntasks": u32::MAX, "cpus_per_task": u32::MAX, "mem": { "per_cpu": u64::MAX },
            "gpu": { "total": u32::MAX }, "time_limit_secs": u64::MAX } } });
    assert!(ask(&slotd.root, &launch).is_err());
    let mut launch = launch;
    launch["LaunchStep"]["request"]["cpu_bind"] = json!("nonsense");
    assert!(ask(&slotd.root, &launch).is_err());
    // Where those that are taken write to.
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
        // Refused or taken: either is an answer.
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
    is_well(&slotd);
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
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
    // 160 came in; some of its own the daemon may have opened meanwhile.
    let closed = until(|| (open() < before + 8).then_some(()));
    assert!(closed.is_some(), "{} descriptors were open before, {} are now", before, open());
}

#[test]
fn a_client_that_dies_after_its_request_leaves_a_whole_job_or_none() {
    let slotd = Slotd::start();
    for i in 0..20 {
        let mut command = slotd.command("sbatch");
        command.args(["-J", &format!("vanish{i}"), "--wrap", "true"]);
        let running = slotd.spawn(command);
        // Whatever moment that is.
        running.signal(proc::KILL);
        drop(running);
    }
    is_well(&slotd);
    for record in slotd.all_records() {
        slotd.wait_state(record.id(), "COMPLETED");
    }
}

#[test]
fn a_reader_that_does_not_read_blocks_nobody() {
    let slotd = Slotd::start();
    for _ in 0..50 {
        slotd.wrap(&["-H"], "true");
    }
    let mut mute = connect(&slotd.root).unwrap();
    mute.set_nonblocking(true).unwrap();
    let jobs = frame(json!({ "Jobs": {} }).to_string().as_bytes(), b"");
    // Until no more fits: the daemon has stopped to read, since its answers are not taken.
    let mut sent = 0;
    while sent < 5000 && mute.write_all(&jobs).is_ok() {
        sent += 1;
    }
    is_well(&slotd);
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
fn the_socket_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let slotd = Slotd::start();
    let mode =
        |path: &str| std::fs::metadata(slotd.root.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run/slotd.sock"), 0o600);
    assert_eq!(mode("lib/state.db"), 0o600);
    assert_eq!(mode("lib/jobs"), 0o700);
}
