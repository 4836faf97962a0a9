//! Parses plain command lines in the daemon, for the shortcut of their programs (`slotd_shortcut`).
//!
//! A command line of `sbatch` is plain if it does nothing but submit the job and print its ID; a
//! query is plain if it prints a short table. The program itself handles all others, and all errors,
//! so that a user sees no difference.

use super::sbatch::{self, Sbatch, Text, number, sentence};
use super::{clusters, now, sacct, scontrol, sinfo, squeue};
use crate::args::origin::Origin;
use crate::daemon::command_line::{CommandLine, Parsed, PlainQuery};
use slotd_model::environ::Environ;
use slotd_model::job::Client;
use slotd_model::late::late;
use slotd_model::request::MemRequest;
use slotd_model::rlimits::Rlimit;
use slotd_protocol::request::{Program, Submit};
use slotd_sys::{limits, system, user, zone};
use std::cell::{Cell, OnceCell};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names from the user database. The daemon runs as the user who submits.
#[derive(Debug, Clone)]
struct Names {
    user: String,
    group: String,
    home: String,
    shell: String,
}

/// The state of the files of the user database: their numbers, sizes and times.
type Stamp = [Option<(u64, u64, i64, i64)>; 2];

/// The names as of a state of the user database. No names: they are being read, or the database has
/// none.
#[derive(Debug, Default)]
struct Known {
    stamp: Stamp,
    names: Option<Names>,
}

/// Parses command lines of this user.
#[derive(Debug, Default)]
pub struct Parser {
    /// Shared with the thread that reads the user database.
    known: Arc<Mutex<Known>>,
}

fn stamp() -> Stamp {
    ["/etc/passwd", "/etc/group"].map(|path| {
        let file = fs::metadata(path).ok()?;
        Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
    })
}

/// Reads the names from the user database. Returns `None` if it has none: digits are no name, and
/// `sbatch` itself looks for one each time.
fn read_names() -> Option<Names> {
    let (uid, gid) = user::current();
    let (home, shell) = user::home_and_shell(uid);
    let (user, group) = (user::user_name(uid), user::group_name(gid));
    let has_names = user != uid.to_string() && group != gid.to_string();
    has_names.then_some(Names { user, group, home, shell })
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Parser {
    /// Returns a parser that is reading the user database. Until then, no command line is plain.
    pub fn start() -> Parser {
        let parser = Parser::default();
        parser.read();
        parser
    }

    /// Reads the user database, on a thread of its own: a server of the host's network may have to
    /// answer.
    fn read(&self) {
        let stamp = stamp();
        *lock(&self.known) = Known { stamp, names: None };
        let known = Arc::clone(&self.known);
        let read = move || {
            let names = read_names();
            let mut known = lock(&known);
            if known.stamp == stamp {
                known.names = names;
            }
        };
        if let Err(why) = std::thread::Builder::new().name("names".to_owned()).spawn(read) {
            log::warn!("cannot start a thread that reads the user database: {why}");
        }
    }

    /// Returns the names, if the user database has not changed since they were read. Otherwise,
    /// reads it again for the next command line.
    fn names(&self) -> Option<Names> {
        if lock(&self.known).stamp != stamp() {
            self.read();
            return None;
        }
        lock(&self.known).names.clone()
    }

    pub fn parse(&self, line: CommandLine) -> Parsed {
        let parsed = match line.program {
            Program::Sbatch => self.parse_sbatch(line),
            Program::Squeue => self.parse_query(line, squeue::plain),
            Program::Sinfo => self.parse_query(line, sinfo::plain),
            Program::Sacct => self.parse_query(line, sacct::plain),
            Program::Scontrol => self.parse_query(line, scontrol::plain),
        };
        parsed.unwrap_or(Parsed::NotPlain)
    }

    /// Returns `None` if the command line is not plain.
    fn parse_query(
        &self,
        line: CommandLine,
        plain: fn(&[OsString], Origin) -> Option<PlainQuery>,
    ) -> Option<Parsed> {
        let CommandLine { args, env, dir, umask, .. } = line;
        is_short(&args, &env).then_some(())?;
        let origin = self.origin(env, dir, umask, Vec::new())?;
        let names_clusters = clusters::may_be_named(&args, |name| origin.var_os(name).is_some());
        (!names_clusters).then(|| plain(&args, origin))?.map(|query| Parsed::Query(Box::new(query)))
    }

    /// Returns `None` if the command line is not plain.
    fn parse_sbatch(&self, line: CommandLine) -> Option<Parsed> {
        let CommandLine { args, env, dir, script, umask, is_on_terminal, client, .. } = line;
        dir.to_str()?;
        let client = client?;
        let limits = limits::propagated_by(i32::try_from(client.pid).ok()?)?;
        let origin = self.origin(env, dir, umask, limits)?;
        if clusters::may_be_named(&args, |name| origin.var_os(name).is_some()) {
            return None;
        }
        // The client is asked for the first file that is read, unless it has sent it. It has to read
        // everything else itself.
        let guess = script.as_ref().and_then(|script| script.word.as_ref()?.to_str());
        let guess = guess.map(|word| PathBuf::from(origin.absolute(word)));
        let may_ask = Cell::new(guess.is_some() || script.is_none());
        let script = Cell::new(script);
        let wanted = OnceCell::<PathBuf>::new();
        let read = |text: Text<'_>| match text {
            Text::File(path) if may_ask.get() && guess.as_deref() != Some(path) => {
                let _ = wanted.set(path.to_owned());
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Text::File(_) => {
                may_ask.set(false);
                script.take().map(|sent| sent.text).ok_or(io::ErrorKind::PermissionDenied.into())
            }
            Text::Stdin | Text::Descriptor(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        let parsed = sbatch::parse(&args, &origin, &read);
        if let Some(path) = wanted.into_inner() {
            return Some(Parsed::ScriptWanted(path));
        }
        let sbatch = parsed.ok().filter(|sbatch| is_plain(sbatch, &origin, is_on_terminal))?;
        let Sbatch { request, texts, parsable, .. } = sbatch;
        let script_len = texts.script.len();
        let mut raw = texts.script;
        raw.extend(texts.env);
        let client = Client { process: client, ..Client::default() };
        Some(Parsed::Job {
            submit: Box::new(Submit { request, script_len, client, ..Submit::default() }),
            raw,
            printed: if parsable { number } else { sentence },
        })
    }

    /// Returns the origin of a client process. Returns `None` if only that process can read what it
    /// names.
    fn origin(
        &self,
        env: Environ,
        dir: PathBuf,
        umask: u32,
        limits: Vec<(&'static str, Rlimit)>,
    ) -> Option<Origin> {
        let (uid, gid) = user::current();
        // The daemon opens no file that a client chooses. A value that is not UTF-8 names no zone.
        let tz = env.get("TZ").map(|value| str::from_utf8(value).ok());
        let tz = tz.flatten().map(ToOwned::to_owned);
        tz.as_deref().is_none_or(zone::is_of_the_host).then_some(())?;
        let Names { user, group, home, shell } = self.names()?;
        Some(Origin {
            cwd: late(move || dir),
            user: late(|| user),
            uid,
            group: late(|| group),
            gid,
            account: |_| None,
            home: late(|| home),
            shell: late(|| shell),
            host: system::probe_host_name(),
            env,
            umask: late(move || umask),
            limits: late(move || limits),
            now: now(),
            tz: Rc::new(late(move || zone::of(tz.as_deref()))),
            terminal: late(|| None),
        })
    }
}

/// The longest words and variables of a plain query, in bytes: a format can make its answer long,
/// and other clients wait while the daemon prints it.
const MOST_WORDS: usize = 1024;
const MOST_TIME_FORMAT: usize = 64;

/// Returns whether a query is too short to make its answer long. Ranges in brackets could name
/// millions of hosts or tasks.
fn is_short(args: &[OsString], env: &Environ) -> bool {
    let most = |name: &[u8]| match name {
        b"SLURM_TIME_FORMAT" => MOST_TIME_FORMAT,
        name if name.starts_with(b"S") => MOST_WORDS,
        _ => usize::MAX,
    };
    args.iter().map(|word| word.len()).sum::<usize>() <= MOST_WORDS
        && !args.iter().any(|word| word.as_encoded_bytes().contains(&b'['))
        && env.iter().all(|(name, value)| value.len() <= most(name))
}

/// Returns whether `sbatch` would only submit the job and print its ID.
fn is_plain(sbatch: &Sbatch, origin: &Origin, is_on_terminal: bool) -> bool {
    let Sbatch { request, job, .. } = sbatch;
    let acts = sbatch.wait || sbatch.test_only || sbatch.snapshot || job.clusters.is_some();
    let prints = job.common.verbose > 0 || job.quiet;
    // On a terminal, `sbatch` explains these.
    let explains =
        is_on_terminal && (request.task_count() > 1 || request.mem != MemRequest::Default);
    // The client has looked at no other directory.
    let is_here = request.work_dir == origin.absolute("");
    !acts && !prints && !explains && is_here && request.uid == origin.uid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::COMMANDS;
    use crate::daemon::command_line::SentScript;
    use proptest::prelude::*;
    use slotd_model::job::ClientProcess;
    use slotd_model::view::{JobList, JobView};
    use slotd_protocol::answer::Answer;
    use std::os::unix::ffi::OsStringExt;

    fn parse(line: CommandLine) -> Parsed {
        let names = Names {
            user: "lab".to_owned(),
            group: "lab".to_owned(),
            home: "/home/lab".to_owned(),
            shell: "/bin/sh".to_owned(),
        };
        parse_as(Some(names), line)
    }

    fn parse_as(names: Option<Names>, line: CommandLine) -> Parsed {
        Parser { known: Arc::new(Mutex::new(Known { stamp: stamp(), names })) }.parse(line)
    }

    fn line(words: Vec<OsString>, env: Environ) -> CommandLine {
        CommandLine {
            program: Program::Sbatch,
            args: std::iter::once("sbatch".into()).chain(words).collect(),
            env,
            dir: PathBuf::from("/work"),
            script: None,
            umask: 0o022,
            is_on_terminal: false,
            client: Some(ClientProcess { pid: std::process::id(), ..ClientProcess::default() }),
        }
    }

    fn plain(words: &[&str], env: &[(&str, &str)]) -> Parsed {
        let words = words.iter().map(Into::into).collect();
        parse(line(words, env.iter().copied().collect()))
    }

    #[test]
    fn only_jobs_that_need_nothing_but_submission_are_plain() {
        let is_job = |words: &[&str], env: &[(&str, &str)]| {
            matches!(plain(&[words, &["--wrap", "true"]].concat(), env), Parsed::Job { .. })
        };
        assert!(is_job(&[], &[]) && is_job(&["-a1-3", "--mem=1G", "-n2", "-b", "now+1hour"], &[]));
        assert!(is_job(&["--parsable"], &[("TZ", "Europe/Berlin"), ("SBATCH_TIMELIMIT", "5")]));
        for words in [
            &["--wait"][..],
            &["--test-only"],
            &["--snapshot"],
            &["--quiet"],
            &["-v"],
            &["-M", "other"],
            &["--clusters=all"],
            &["-D", "/tmp"],
            &["--uid=nobody"],
            &["--help"],
            &["--export-file=3"],
            &["--nonsense"],
        ] {
            assert!(!is_job(words, &[]), "{words:?}");
        }
        for variable in
            ["SLURM_CLUSTERS", "SBATCH_CLUSTERS", "SBATCH_WAIT", "SBATCH_DEBUG", "SBATCH_NONSENSE"]
        {
            assert_eq!(
                is_job(&[], &[(variable, "1")]),
                variable == "SBATCH_NONSENSE",
                "{variable}"
            );
        }
        assert!(!is_job(&[], &[("TZ", "/dev/tty")]));
    }

    #[test]
    fn no_command_line_is_plain_before_the_names_are_known() {
        let wrap = || line(vec!["--wrap".into(), "true".into()], Environ::default());
        assert!(matches!(parse(wrap()), Parsed::Job { .. }));
        assert!(matches!(parse_as(None, wrap()), Parsed::NotPlain));
    }

    #[test]
    fn the_script_is_asked_for_by_its_path_and_standard_input_is_not_read() {
        let wanted = plain(&["-c2", "job.sh", "--wrap"], &[]);
        assert!(matches!(wanted, Parsed::ScriptWanted(path) if path == *"/work/job.sh"));
        assert!(matches!(plain(&[], &[]), Parsed::NotPlain));
        let sent = |words: &[&str], word: Option<&str>| {
            let words = words.iter().map(Into::into).collect();
            let text = b"#!/bin/sh\n#SBATCH -J named\n".to_vec();
            let script = Some(SentScript { word: word.map(Into::into), text });
            parse(CommandLine { script, ..line(words, Environ::default()) })
        };
        // It was asked for, or the client has guessed it.
        for (name, word) in
            [("job.sh", None), ("job.sh", Some("job.sh")), ("./a/../job.sh", Some("./a/../job.sh"))]
        {
            let Parsed::Job { submit, raw, .. } = sent(&[name, "x"], word) else { panic!("a job") };
            assert_eq!(
                (submit.request.name.as_str(), submit.request.args),
                ("named", vec!["x".into()])
            );
            assert!(raw.starts_with(b"#!/bin/sh\n#SBATCH -J named\n"));
        }
        // The guess is another file, or none is needed.
        let wanted = sent(&["--comment", "other", "job.sh"], Some("other"));
        assert!(matches!(wanted, Parsed::ScriptWanted(path) if path == *"/work/job.sh"));
        let wanted = sent(&["--export-file", "vars", "job.sh"], Some("vars"));
        assert!(matches!(wanted, Parsed::ScriptWanted(path) if path == *"/work/job.sh"));
        // The program reads the second file.
        let both = sent(&["--export-file", "vars", "job.sh"], Some("job.sh"));
        assert!(matches!(both, Parsed::NotPlain));
        let Parsed::Job { submit, .. } =
            sent(&["--comment", "other", "--wrap=true"], Some("other"))
        else {
            panic!("a job")
        };
        assert_ne!(submit.request.name, "named");
    }

    #[test]
    fn short_tables_are_plain_queries() {
        let is_query = |program: Program, words: &str, env: &[(&str, &str)]| {
            let env = env.iter().copied().collect();
            let words = words.split_whitespace().map(Into::into).collect();
            let parsed = parse(CommandLine { program, client: None, ..line(words, env) });
            matches!(parsed, Parsed::Query(_))
        };
        let (squeue, sinfo, sacct, scontrol) =
            (Program::Squeue, Program::Sinfo, Program::Sacct, Program::Scontrol);
        for (program, words) in [
            (squeue, ""),
            (squeue, "-h -j 1,2_3 -o %i|%T -S -i"),
            (squeue, "--me -t PD,R -l"),
            (squeue, "-t all -j 1"),
            (squeue, "-u lab,0 --start -O jobid,stdout"),
            (sinfo, ""),
            (sinfo, "-N -l -R -s -o %P"),
            (sacct, "-j 1"),
            (sacct, "-X -n -P -j 1.batch,7 -o jobid,state,maxrss"),
            (scontrol, "show job 1"),
            (scontrol, "-d -o show jobs 1,2"),
        ] {
            assert!(is_query(program, words, &[]), "{program:?} {words}");
        }
        for (program, words) in [
            (squeue, "-i 1"),
            (squeue, "-t all"),
            (squeue, "-r"),
            (squeue, "-s"),
            (squeue, "--json"),
            (squeue, "-o %i%!"),
            (squeue, "-j x"),
            (squeue, "-j 1_[1-3]"),
            (squeue, "-u other"),
            (squeue, "-w other"),
            (squeue, "--help"),
            (squeue, "-M other"),
            (sinfo, "-i 1"),
            (sinfo, "-T"),
            (sinfo, "--yaml"),
            (sinfo, "-O nonsense"),
            (sinfo, "--version"),
            (sacct, ""),
            (sacct, "-S now-1hour"),
            (sacct, "-j 1 --array"),
            (sacct, "-j 1 -D"),
            (sacct, "-j 1 -B"),
            (sacct, "-j 1 -u lab"),
            (sacct, "-j 1 --json"),
            (sacct, "-j 1 -o nonsense"),
            (sacct, "-e"),
            (scontrol, ""),
            (scontrol, "show job"),
            (scontrol, "show node"),
            (scontrol, "--json show job 1"),
            (scontrol, "show job x"),
            (scontrol, "hold 1"),
            (scontrol, "update JobId=1 Name=x"),
        ] {
            assert!(!is_query(program, words, &[]), "{program:?} {words}");
        }
        assert!(is_query(sinfo, "", &[("TZ", "Europe/Berlin"), ("SINFO_FORMAT", "%n")]));
        assert!(!is_query(sinfo, "", &[("SLURM_CLUSTERS", "other")]));
        assert!(!is_query(sinfo, "", &[("TZ", "/dev/tty")]));
        for format in ["%i%9999j".to_owned(), "%i".repeat(100), "x".repeat(1025)] {
            assert!(!is_query(squeue, "", &[("SQUEUE_FORMAT", &format)]), "{format}");
            assert!(!is_query(squeue, &format!("-o {format}"), &[]), "{format}");
        }
        assert!(!is_query(sinfo, "", &[("SLURM_TIME_FORMAT", &"%255d".repeat(20))]));
    }

    /// Values of many grammars, valid and invalid.
    const VALUES: [&str; 40] = [
        "",
        "-",
        "--",
        "%",
        "0",
        "1",
        "-1",
        "1-3%2",
        "0-99999999",
        "1e9",
        "NaN",
        "1:2:3",
        "-5:30",
        "4-0",
        "99999999999999999999",
        "2G",
        "1T",
        "gpu:2",
        "gpu:a:b:c",
        "gres/gpu",
        "afterok:1:2?after:3+5",
        "singleton",
        "expand:4",
        "now+1hour",
        "16:00",
        "2026-13-01",
        "ALL,A=1",
        "NIL",
        "%A_%a-%4j",
        "\\%",
        "a&b|[c*2]",
        "USR1@60",
        "B:9",
        "cores=1",
        "map_cpu:0,1",
        "block:cyclic:fcyclic",
        "END,FAIL",
        "é",
        "UNLIMITED",
        "true",
    ];

    fn word(program: Program) -> impl Strategy<Value = OsString> {
        let entry = COMMANDS.into_iter().find(|entry| entry.name() == program.name()).unwrap();
        let options: Vec<String> = entry
            .definition()
            .get_arguments()
            .flat_map(|option| {
                let long = option.get_long().map(|name| format!("--{name}"));
                let short = option.get_short().map(|letter| format!("-{letter}"));
                long.into_iter().chain(short)
            })
            .collect();
        let option = prop::sample::select(options);
        let value = prop::sample::select(&VALUES[..]);
        prop_oneof![
            (option.clone(), value.clone())
                .prop_map(|(option, value)| format!("{option}={value}").into()),
            (option.clone(), value.clone())
                .prop_map(|(option, value)| format!("{option}{value}").into()),
            option.prop_map(Into::into),
            value.prop_map(Into::into),
            prop::collection::vec(1u8.., 0..12).prop_map(OsString::from_vec),
        ]
    }

    proptest! {
        /// A panic would end the daemon.
        #[test]
        fn no_query_panics(
            (program, words) in prop::sample::select(&Program::ALL[1..]).prop_flat_map(|program| {
                (Just(program), prop::collection::vec(word(program), 0..6))
            }),
            variable in prop::sample::select(&["SQUEUE_FORMAT", "SINFO_FORMAT", "SACCT_FORMAT", "SLURM_TIME_FORMAT", "TZ"][..]),
            value in word(Program::Squeue),
        ) {
            let first = if program == Program::Scontrol { vec!["show".into(), "job".into()] } else { Vec::new() };
            let words = [first, words].concat();
            let parsed =
                parse(CommandLine { program, client: None, ..line(words, [(variable, value)].into_iter().collect()) });
            if let Parsed::Query(query) = parsed {
                let jobs = vec![JobView::default()];
                (query.print)(Answer::Jobs(JobList { jobs, ..JobList::at(now()) }));
            }
        }

        /// The same for jobs.
        #[test]
        fn no_command_line_panics(
            words in prop::collection::vec(word(Program::Sbatch), 0..8),
            script in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
            lines in prop::collection::vec(word(Program::Sbatch), 0..4),
            variable in prop::sample::select(&["SBATCH_ARRAY_INX", "SBATCH_BEGIN", "SBATCH_EXPORT", "TZ", "SBATCH_GRES"][..]),
            value in word(Program::Sbatch),
            is_on_terminal in any::<bool>(),
            guess in any::<bool>(),
        ) {
            let script = script.map(|tail| {
                let lines = lines.iter().map(|line| [b"#SBATCH ", line.as_encoded_bytes(), b"\n"].concat());
                [b"#!/bin/sh\n".to_vec()].into_iter().chain(lines).chain([tail]).collect::<Vec<_>>().concat()
            });
            let env = [(variable, value)].into_iter().collect();
            let word = guess.then(|| words.last().cloned()).flatten();
            let script = script.map(|text| SentScript { word, text });
            parse(CommandLine { script, is_on_terminal, ..line(words, env) });
        }
    }
}
