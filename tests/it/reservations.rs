//! Reservations: created with `scontrol`, used with `--reservation`, and kept through restarts.

use slotd_kit::{Setup, Slotd, host};

/// The user of the daemon, for `Users=`.
fn user(slotd: &Slotd) -> String {
    slotd.sh("id -un").ok().text().to_owned()
}

/// Creates a reservation of the user with these keys.
fn create(slotd: &Slotd, keys: &str) {
    let line = format!("scontrol create reservation {keys} Users={}", user(slotd));
    slotd.line(&line).ok();
}

/// Lets this many seconds pass since the start of the test. Only the kernel's clock rings the
/// alarm, so the change comes with the next round.
fn pass(slotd: &Slotd, ahead: i64) {
    slotd.set_clock(ahead);
    slotd.line("scontrol reconfigure").ok();
}

fn why(slotd: &Slotd, id: u32) -> String {
    slotd.line(&format!("slotd why {id}")).ok().stdout
}

fn shown(slotd: &Slotd, name: &str) -> String {
    slotd.line(&format!("scontrol show reservation {name} -o")).ok().stdout
}

#[test]
fn a_reservation_is_shown_until_it_is_deleted() {
    let slotd = Slotd::start();
    let (user, host) = (user(&slotd), host());
    let none = "No reservations in the system\n";
    slotd.expect("scontrol show reservation", 0, none, "");
    slotd.expect("sinfo -T", 0, none, "");
    slotd.expect("scontrol show res nosuch", 1, "Reservation nosuch not found\n", "");
    let created = format!("Reservation created: {user}_1\n");
    let line = format!("scontrol create res start=now+60 dur=10 Nodes=ALL user={user}");
    slotd.expect(&line, 0, &created, "");
    let text = shown(&slotd, "");
    for part in [
        format!("ReservationName={user}_1 StartTime="),
        format!(
            "Duration=00:10:00 Nodes={host} NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) "
        ),
        "Flags=SPEC_NODES,ALL_NODES TRES=cpu=4 ".to_owned(),
        format!("Users={user} Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE "),
    ] {
        assert!(text.contains(&part), "{part} is missing in {text}");
    }
    let table = slotd.line("sinfo -T").ok().stdout;
    // The first column is as wide as the longest name.
    let title: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(title.join(" "), "RESV_NAME STATE START_TIME END_TIME DURATION NODELIST");
    assert!(table.contains("  INACTIVE  ") && table.contains("     00:10:00  "), "{table}");
    let line = format!("scontrol update reservation={user}_1 Duration=1:30:00 Flags+=MAINT");
    slotd.expect(&line, 0, "Reservation updated.\n", "");
    let text = shown(&slotd, &format!("{user}_1"));
    assert!(text.contains("Duration=01:30:00") && text.contains("Flags=MAINT,SPEC"), "{text}");
    slotd.expect(&format!("scontrol delete ReservationName={user}_1"), 0, "", "");
    slotd.expect("scontrol show reservation", 0, none, "");
    create(&slotd, "ReservationName=half StartTime=now Duration=60 CoreCnt=2");
    let text = shown(&slotd, "half");
    let parts =
        format!("CoreCnt=2 Features=(null) PartitionName=cpu Flags=   NodeName={host} CoreIDs=");
    assert!(text.contains(&parts) && text.contains("State=ACTIVE"), "{text}");
    slotd.expect("sinfo -h -o %t|%T", 0, "idle|idle\n", "");
    create(&slotd, "ReservationName=all StartTime=now Duration=60 Nodes=ALL Flags=OVERLAP");
    slotd.expect("sinfo -h -o %t|%T", 0, "resv|reserved\n", "");
    let node = slotd.line("scontrol show node").ok().stdout;
    assert!(node.contains("State=IDLE+RESERVED "), "{node}");
}

#[test]
fn wrong_orders_are_refused_in_slurms_words() {
    let slotd = Slotd::start();
    let user = user(&slotd);
    let start = "StartTime=now Duration=5";
    let none = "No reservation created.";
    let refused = |keys: &str, error: &str| {
        let out = slotd.line(&format!("scontrol create reservation {keys}")).fails(1);
        assert_eq!(out.stderr.lines().next(), Some(error), "{keys}");
    };
    let users = format!("Users={user}");
    for (keys, error) in [
        ("Duration=5 CoreCnt=1", format!("scontrol: error: A start time must be given.  {none}")),
        (
            "StartTime=now CoreCnt=1",
            format!("scontrol: error: An end time or duration must be given.  {none}"),
        ),
        (
            "StartTime=now Duration=abc",
            format!("scontrol: error: Invalid duration Duration=abc.  {none}"),
        ),
        ("StartTime=notatime", "Invalid time specification (pos=0): notatime".to_owned()),
        ("Foo=bar", format!("scontrol: error: Unknown parameter Foo=bar.  {none}")),
        ("Flags=NOSUCH", format!("scontrol: error: Error parsing flags NOSUCH.  {none}")),
        ("CoreCnt=x", "scontrol: error: Invalid core count x".to_owned()),
        ("TRES=bogus=1", "scontrol: error: couldn't identify configured TRES 'bogus'".to_owned()),
        ("Users=no-such-user", "Error creating the reservation: Invalid user id".to_owned()),
    ] {
        refused(keys, &error);
    }
    let must = "scontrol: error: CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.";
    refused(&format!("{start} {users}"), &format!("{must}  {none}"));
    let must = "scontrol: error: Either Users/Groups and/or Accounts must be specified.";
    refused(&format!("{start} CoreCnt=1"), &format!("{must}  {none}"));
    for (keys, why) in [
        ("StartTime=2020-01-01 Duration=5 CoreCnt=1", "Invalid time specified"),
        ("StartTime=now Duration=5 Nodes=nosuch", "Invalid node name specified"),
        ("StartTime=now Duration=5 CoreCnt=1 Part=nosuch", "Invalid partition name specified"),
        ("StartTime=now Duration=5 Licenses=a:1", "Invalid node name specified"),
        (
            "StartTime=now Duration=5 Licenses=a:1 Flags=LICENSE_ONLY",
            "Invalid license specification",
        ),
        ("StartTime=now Duration=5 CoreCnt=9", "Requested nodes are busy"),
        ("StartTime=now Duration=5 NodeCnt=2", "Requested nodes are busy"),
    ] {
        refused(&format!("{keys} {users}"), &format!("Error creating the reservation: {why}"));
    }
    create(&slotd, "ReservationName=a StartTime=now+1hour Duration=5 Nodes=ALL");
    for (keys, why) in [
        ("res=a StartTime=now Duration=1 CoreCnt=1", "Duplicate reservation name"),
        (
            "StartTime=now+1hour Duration=1 Nodes=ALL",
            "Requested reservation overlaps with another reservation",
        ),
    ] {
        refused(&format!("{keys} {users}"), &format!("Error creating the reservation: {why}"));
    }
    let invalid = "Requested reservation is invalid";
    slotd.expect(
        "scontrol update ReservationName=nosuch Duration=5",
        1,
        "",
        &format!("Error updating the reservation: {invalid}\nslurm_update error: {invalid}\n"),
    );
    slotd.expect(
        "scontrol delete reservation nosuch",
        1,
        "",
        &format!("delete_reservation reservation: {invalid}\n"),
    );
    slotd.expect(
        "scontrol delete reservation",
        1,
        "",
        "scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'\n",
    );
    for (command, failure) in [
        ("sbatch --reservation=nosuch --wrap true", "sbatch: error: Batch job submission failed"),
        ("srun --reservation=nosuch true", "srun: error: Unable to allocate resources"),
        ("salloc --reservation=nosuch true", "salloc: error: Job submit/allocate failed"),
    ] {
        let error = slotd.line(command).fails(1).stderr;
        assert!(error.ends_with(&format!("{failure}: {invalid}\n")), "{error}");
    }
    let line = "scontrol create reservation ReservationName=b StartTime=now Duration=5 CoreCnt=1 Accounts=proj";
    slotd.line(line).ok();
    let error = slotd.line("sbatch --reservation=b --wrap true").fails(1).stderr;
    assert!(error.ends_with("failed: Access denied to requested reservation\n"), "{error}");
    let inside = slotd.wrap(&["--reservation=b", "-A", "proj"], "true");
    slotd.wait_end(inside);
}

#[test]
fn jobs_run_before_inside_and_after_a_reservation() {
    let slotd = Slotd::start();
    create(&slotd, "ReservationName=soon StartTime=now+1hour Duration=10 Nodes=ALL");
    let short = slotd.wrap(&["-t", "1"], "true");
    let long = slotd.wrap(&["-t", "100"], "true");
    let inside =
        slotd.wrap(&["-t", "30", "--reservation=soon"], "echo $SLURM_JOB_RESERVATION; sleep 1000");
    let late = slotd.script(&["-c", "4"], "#!/bin/sh\n#SBATCH --reservation=soon\ntrue\n");
    slotd.wait_end(short);
    slotd.wait_reason(long, "ReqNodeNotAvail, Reserved for maintenance");
    let (start, end) = {
        let text = shown(&slotd, "soon");
        let value = |key: &str| {
            let word = text.split_whitespace().find_map(|word| word.strip_prefix(key));
            word.expect("the key is shown").to_owned()
        };
        (value("StartTime="), value("EndTime="))
    };
    slotd.expect(
        "squeue -h -S i -o %i|%T|%r|%v|%S",
        0,
        &format!(
            "{long}|PENDING|ReqNodeNotAvail, Reserved for maintenance|(null)|{end}\n\
             {inside}|PENDING|Reservation|soon|N/A\n{late}|PENDING|Reservation|soon|N/A\n"
        ),
        "",
    );
    assert_eq!(slotd.show(long, "Reason"), "ReqNodeNotAvail,_Reserved_for_maintenance");
    assert_eq!(slotd.show(inside, "Reservation"), "soon");
    let text = why(&slotd, long);
    let day_time = start.split_once('T').map(|(_, time)| time[..5].to_owned()).unwrap();
    assert!(
        text.contains("it would run into reservation soon of ") && text.contains(&day_time),
        "{text}"
    );
    let ids = slotd.line("squeue -h --reservation=soon -o %i").ok().stdout;
    assert_eq!(ids, format!("{inside}\n{late}\n"));
    let in_use = "delete_reservation reservation: Requested reservation is in use\n";
    slotd.expect("scontrol delete reservation soon", 1, "", in_use);
    pass(&slotd, 3600);
    slotd.wait_state(inside, "RUNNING");
    slotd.wait_text(&format!("slurm-{inside}.out"), "soon");
    assert_eq!(slotd.state(long), "PENDING");
    pass(&slotd, 3600 + 601);
    slotd.wait_state(inside, "TIMEOUT");
    let reason = "Reservation soon, which this job was running under, has ended";
    let lines = format!(" DUE TO TIME LIMIT ***\nslurmstepd: error: *** REASON: {reason} ***\n");
    assert!(slotd.output(inside).ends_with(&lines), "{}", slotd.output(inside));
    let text = why(&slotd, inside);
    assert!(text.contains("Its reservation soon ended.") && !text.contains("limit"), "{text}");
    slotd.wait_end(long);
    slotd.expect(
        "squeue -h -o %i|%T|%t|%r|%v",
        0,
        &format!("{late}|RESV_DEL_HOLD|RD|Reservation soon was deleted|(null)\n"),
        "",
    );
    assert_eq!(slotd.show(late, "Priority"), "0");
    slotd.expect("sinfo -T", 0, "No reservations in the system\n", "");
    slotd.line(&format!("scontrol release {late}")).ok();
    slotd.wait_end(late);
}

#[test]
fn reservations_survive_the_daemon_and_repeat() {
    let mut slotd = Slotd::start();
    create(&slotd, "ReservationName=day StartTime=now+1hour Duration=10 CoreCnt=3 Flags=DAILY");
    slotd.kill9();
    slotd.start_daemon();
    let inside = slotd.wrap(&["--reservation=day", "-c", "3"], "sleep 1000");
    let wide = slotd.wrap(&["-c", "2", "-t", "90"], "true");
    slotd.wait_reason(wide, "Resources");
    let text = why(&slotd, wide);
    assert!(text.contains("it would run into reservation day of "), "{text}");
    slotd.line(&format!("scontrol update JobId={wide} ReservationName=day")).ok();
    slotd.wait_reason(wide, "Reservation");
    slotd.line(&format!("scontrol update JobId={wide} ReservationName=")).ok();
    slotd.wait_reason(wide, "Resources");
    pass(&slotd, 3600);
    slotd.wait_state(inside, "RUNNING");
    slotd.kill9();
    slotd.start_daemon();
    assert_eq!(slotd.state(inside), "RUNNING");
    slotd.expect(&format!("squeue -h -j {inside} -o %v"), 0, "day\n", "");
    pass(&slotd, 3600 + 601);
    slotd.wait_state(inside, "TIMEOUT");
    let text = shown(&slotd, "day");
    assert!(text.contains("Duration=00:10:00") && text.contains("State=INACTIVE"), "{text}");
    assert!(text.contains("Flags=DAILY "), "{text}");
    slotd.wait_end(wide);
}

#[test]
fn the_alarm_rings_at_the_start() {
    let slotd = Slotd::start();
    create(&slotd, "ReservationName=now StartTime=now+2 Duration=1 CoreCnt=1 Flags=MAINT");
    let inside = slotd.wrap(&["--reservation=now"], "true");
    let flex = slotd.script(&[], "#!/bin/sh\n#SBATCH --reservation=\ntrue\n");
    slotd.wait_end(flex);
    let ended = slotd.wait_end(inside);
    let text = shown(&slotd, "now");
    let start = text.split_whitespace().find_map(|word| word.strip_prefix("StartTime="));
    assert_eq!(start, Some(slotd.show(inside, "StartTime").as_str()), "{ended:?}");
}

const LICENSES: &str = "[[license]]\nname = \"matlab\"\ncount = 3\n";

#[test]
fn gpus_and_licenses_are_reserved() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).toml(LICENSES).start();
    create(&slotd, "ReservationName=gpu StartTime=now Duration=60 TRES=cpu=1,gres/gpu=1");
    let keys = "ReservationName=seats StartTime=now Duration=60 Licenses=matlab:2";
    create(&slotd, &format!("{keys} Flags=LICENSE_ONLY"));
    slotd.expect(
        "scontrol show licenses -o",
        0,
        "LicenseName=matlab Total=3 Used=0 Free=3 Reserved=2 Remote=no\n",
        "",
    );
    let text = shown(&slotd, "gpu");
    assert!(text.contains(" TRES=cpu=1,gres/gpu=1 "), "{text}");
    let sleep = |options: &[&str]| slotd.wrap(options, "sleep 1000");
    let others = sleep(&["--gres=gpu:1"]);
    let waits = sleep(&["--gres=gpu:1"]);
    let inside = sleep(&["--gres=gpu:1", "--reservation=gpu"]);
    slotd.wait_state(others, "RUNNING");
    slotd.wait_state(inside, "RUNNING");
    slotd.wait_reason(waits, "Resources");
    let two = sleep(&["-L", "matlab:2"]);
    let one = sleep(&["-L", "matlab"]);
    let own = sleep(&["-L", "matlab:2", "--reservation=seats"]);
    slotd.wait_state(one, "RUNNING");
    slotd.wait_state(own, "RUNNING");
    slotd.wait_reason(two, "Licenses");
}

#[test]
fn an_idle_reservation_ends_early_and_its_number_does_not_come_back() {
    let mut slotd = Slotd::start();
    let user = user(&slotd);
    create(&slotd, "StartTime=now Duration=60 CoreCnt=1 Flags=PURGE_COMP=00:01:00");
    let text = shown(&slotd, &format!("{user}_1"));
    assert!(text.contains("Flags=PURGE_COMP=00:01:00 "), "{text}");
    let inside = slotd.wrap(&[&format!("--reservation={user}_1")], "sleep 1000");
    slotd.wait_state(inside, "RUNNING");
    pass(&slotd, 120);
    slotd.line(&format!("scancel {inside}")).ok();
    slotd.wait_end(inside);
    slotd.kill9();
    slotd.start_daemon();
    pass(&slotd, 170);
    assert!(shown(&slotd, "").contains("State=ACTIVE"));
    pass(&slotd, 190);
    slotd.expect("scontrol show reservation", 0, "No reservations in the system\n", "");
    slotd.kill9();
    slotd.start_daemon();
    let line = format!("scontrol create reservation start=now+1hour dur=5 corecnt=1 user={user}");
    slotd.expect(&line, 0, &format!("Reservation created: {user}_2\n"), "");
}
