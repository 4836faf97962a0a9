//! `--mail-type` and `--mail-user`: mail through the host's sendmail.

use slotd_kit::{Setup, Slotd, scripts};

/// Starts a daemon with a sendmail that stores its arguments and the mail, followed by a line `.`.
fn with_sendmail() -> Slotd {
    let mut slotd = Setup::default().prepare();
    install_sendmail(&mut slotd, "");
    slotd.start_daemon();
    slotd
}

fn install_sendmail(slotd: &mut Slotd, before: &str) {
    let (program, output) = (slotd.base.join("bin/sendmail"), slotd.path("mails"));
    let lock = slotd.path("mails.lock");
    let text = format!(
        "#!/bin/sh\n{before}\nexec 9>>'{}'; flock 9\n{{ printf '%s|' \"$@\"; echo; cat; echo .; }} >> '{}'\n",
        lock.display(),
        output.display()
    );
    scripts::executable(&program, &text);
    slotd.reset_var("SLOTD_SENDMAIL", program.display());
}

/// Returns the mails so far, each with the arguments as the first line.
fn mails(slotd: &Slotd) -> Vec<String> {
    let text = std::fs::read_to_string(slotd.path("mails")).unwrap_or_default();
    // Quoted-printable encoding splits long lines.
    let text = text.replace("=\n", "");
    text.split_inclusive("\n.\n")
        .map(str::to_owned)
        .filter(|mail| mail.ends_with("\n.\n"))
        .collect()
}

fn wait_log(slotd: &Slotd, text: &str) {
    slotd.wait(text, || slotd.log().contains(text).then_some(()));
}

/// Waits until there are at least this many mails.
fn wait_mails(slotd: &Slotd, count: usize) -> Vec<String> {
    slotd.wait("the mails", || Some(mails(slotd)).filter(|mails| mails.len() >= count))
}

fn subjects(mails: &[String]) -> Vec<String> {
    let subject = |mail: &String| {
        let (headers, _) = mail.split_once("\n\n").unwrap();
        let at = headers.find("\nSubject: ").unwrap() + "\nSubject: ".len();
        // Continuation lines begin with a space.
        let mut lines = headers[at..].lines();
        let first = lines.next().unwrap().to_owned();
        lines.take_while(|line| line.starts_with(' ')).fold(first, |all, line| all + line)
    };
    mails.iter().map(subject).collect()
}

#[test]
fn mails_have_the_subjects_of_slurm() {
    let slotd = with_sendmail();
    slotd.wrap(&["-J", "train", "--mail-type=BEGIN,END", "--mail-user=me@there,you@here"], "true");
    let sent = wait_mails(&slotd, 2);
    assert!(sent.iter().all(|mail| mail.starts_with("-i|--|me@there|you@here|\n")), "{sent:?}");
    let mut subjects = subjects(&sent);
    subjects.sort_unstable();
    assert!(
        subjects[0].starts_with("Slurm Job_id=1 Name=train Began, Queued time 00:0"),
        "{subjects:?}"
    );
    assert!(
        subjects[1].starts_with("Slurm Job_id=1 Name=train Ended, Run time 00:0"),
        "{subjects:?}"
    );
    assert!(subjects[1].ends_with(", COMPLETED, ExitCode 0"), "{subjects:?}");
}

#[test]
fn a_failure_mail_has_the_last_lines_of_standard_error() {
    let slotd = with_sendmail();
    let job =
        slotd.wrap(&["--mail-type=FAIL", "-o", "out", "-e", "err-%j"], "echo boom >&2; exit 3");
    let sent = wait_mails(&slotd, 1);
    let subject = &subjects(&sent)[0];
    assert!(
        subject.starts_with(&format!("Slurm Job_id={job} Name=wrap Failed, Run time 00:0")),
        "{subject}"
    );
    assert!(subject.ends_with(", FAILED, ExitCode 3"), "{subject}");
    assert!(sent[0].contains("\nExit code: 3:0\n"), "{}", sent[0]);
    assert!(sent[0].contains("\nThe last lines of its standard error:\n\nboom\n"), "{}", sent[0]);
    // Without --mail-user, the mail goes to the user who submitted the job.
    let user = slotd.cmd("squeue", &["-h", "-t", "all", "-o", "%u"]).ok().stdout;
    let user = user.trim();
    assert!(
        sent[0].starts_with(&format!("-i|--|{user}|\n"))
            && sent[0].contains(&format!("To: <{user}>\n")),
        "{}",
        sent[0]
    );
    slotd.wrap(&["--mail-type=END", "-o", "out", "-e", "err-%j"], "echo crash >&2; exit 3");
    let ended = wait_mails(&slotd, 2);
    assert!(
        ended
            .iter()
            .any(|mail| mail.contains("\nThe last lines of its standard error:\n\ncrash\n")),
        "{ended:?}"
    );
}

#[test]
fn names_and_addresses_cannot_inject_headers() {
    let slotd = with_sendmail();
    let name = "übung\nBcc: evil@x\n\nhello";
    slotd.wrap(&["-J", name, "--mail-type=END", "--mail-user=me@there"], "true");
    let sent = wait_mails(&slotd, 1);
    let (headers, _) = sent[0].split_once("\n\n").unwrap();
    assert!(!headers.contains("\nBcc") && !headers.contains("\nhello"), "{headers}");
    let address = "me@there\nBcc: evil@x";
    for wrong in [address, "-oQ/tmp", "|x", "me@there -X/tmp/x", "me@there,:include:/etc/passwd"] {
        let option = format!("--mail-user={wrong}");
        let refused = slotd.cmd("sbatch", &[&option, "--wrap=true"]).fails(255);
        assert!(refused.stderr.contains("Invalid --mail-user"), "{}", refused.stderr);
    }
    let held = slotd.wrap(&["--hold", "--mail-type=END"], "true");
    for wrong in [address, "-oQ/tmp"] {
        let change = format!("MailUser={wrong}");
        let update = slotd.cmd("scontrol", &["update", &format!("JobId={held}"), &change]);
        let refused = update.fails(1);
        assert!(refused.stderr.contains("Invalid --mail-user"), "{}", refused.stderr);
    }
    assert_eq!(mails(&slotd).len(), 1);
}

#[test]
fn an_array_gets_one_mail_unless_array_tasks_is_set() {
    let slotd = with_sendmail();
    let array = slotd.wrap(&["-a", "0-2", "--mail-type=END"], "exit $SLURM_ARRAY_TASK_ID");
    slotd.wait_array(array, 3);
    let sent = wait_mails(&slotd, 1);
    let subject = subjects(&sent).remove(0);
    let begin =
        format!("Slurm Array Summary Job_id={array}_* ({array}) Name=wrap Ended, Run time 00:0");
    assert!(
        subject.starts_with(&begin) && subject.ends_with(", Mixed, ExitCode [0-2]"),
        "{subject}"
    );
    let array = slotd.wrap(&["-a", "0-2", "--mail-type=END,ARRAY_TASKS"], "true");
    slotd.wait_array(array, 3);
    let sent = wait_mails(&slotd, 4);
    let tasks = subjects(&sent).iter().filter(|subject| subject.contains("Array Task")).count();
    assert_eq!((sent.len(), tasks), (4, 3));
}

#[test]
fn time_limit_percentages_are_mailed() {
    let slotd = with_sendmail();
    let types = "--mail-type=TIME_LIMIT_50,TIME_LIMIT";
    slotd.wrap(&["-t", "0:06", types], "exec sleep 1000");
    let sent = subjects(&wait_mails(&slotd, 2));
    let secs = |what: &str| -> u32 {
        let begin = format!("Slurm Job_id=1 Name=wrap Reached {what}, Run time 00:00:");
        let secs =
            sent.iter().find_map(|one| one.strip_prefix(begin.as_str())?.get(..2)?.parse().ok());
        secs.unwrap_or_else(|| panic!("{what}: {sent:?}"))
    };
    assert!((3..6).contains(&secs("50% of time limit")), "{sent:?}");
    assert!(secs("time limit") >= 6, "{sent:?}");
}

#[test]
fn an_unsatisfiable_dependency_is_mailed_once() {
    let slotd = with_sendmail();
    let first = slotd.wrap(&[], "exit 1");
    let job =
        slotd.wrap(&["-d", &format!("afterok:{first}"), "--mail-type=INVALID_DEPEND"], "true");
    let sent = wait_mails(&slotd, 1);
    assert_eq!(subjects(&sent), [format!("Slurm Job_id={job} Name=wrap Invalid dependency")]);
    assert!(
        sent[0].contains(
            "can never start: it waits for afterok:1, which can never be satisfied: it is FAILED"
        ),
        "{}",
        sent[0]
    );
    slotd.cancel(job);
    let last = slotd.wrap(&["--mail-type=END"], "true");
    let sent = subjects(&wait_mails(&slotd, 2));
    assert!(sent[1].contains(&format!("Job_id={last} ")), "{sent:?}");
}

#[test]
fn the_next_daemon_sends_unsent_mails() {
    let mut slotd = Setup::default().prepare();
    let gate = slotd.path("go");
    install_sendmail(
        &mut slotd,
        &format!("until [ -e '{}' ]; do sleep 0.05; done", gate.display()),
    );
    slotd.start_daemon();
    let jobs: Vec<u32> =
        (0..5).map(|_| slotd.wrap(&["--mem", "1", "--mail-type=END"], "true")).collect();
    for job in &jobs {
        slotd.wait_state(*job, "COMPLETED");
    }
    slotd.kill9();
    slotd.start_daemon();
    std::fs::write(&gate, "").unwrap();
    let all = |sent: &[String]| {
        jobs.iter().all(|job| sent.iter().any(|one| one.contains(&format!("Job_id={job} "))))
    };
    slotd.wait("all mails", || all(&subjects(&mails(&slotd))).then_some(()));
}

#[test]
fn a_failing_or_hanging_sendmail_affects_no_job() {
    for (before, log, secs) in
        [("exit 75", "exit status: 75", 60), ("exec sleep 1000", "within 1 s", 1)]
    {
        let mut slotd = Setup::default().set("SLOTD_NOTIFY_TIMEOUT", secs).prepare();
        install_sendmail(&mut slotd, before);
        slotd.start_daemon();
        let job = slotd.wrap(&["--mail-type=ALL"], "true");
        slotd.wait_state(job, "COMPLETED");
        wait_log(&slotd, log);
        slotd.wait("the end of sendmail", || {
            (!slotd
                .processes()
                .iter()
                .any(|pid| slotd_kit::proc::cmdline(*pid).starts_with("sleep 1000")))
            .then_some(())
        });
    }
}

#[test]
fn a_missing_sendmail_is_logged_once() {
    let slotd = Setup::default().start();
    for _ in 0..2 {
        let job = slotd.wrap(&["--mail-type=END"], "true");
        slotd.wait_state(job, "COMPLETED");
    }
    wait_log(&slotd, "a job requests mail, but none can be sent");
    assert_eq!(slotd.log().matches("a job requests mail").count(), 1);
    let doctor = slotd.cmd("slotd", &["doctor"]).stdout;
    assert!(doctor.contains("ok       no mail is sent"), "{doctor}");
}
