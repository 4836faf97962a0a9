//! `slotd` itself: the daemon, its installation, man pages and completions, and help on the rest.

use crate::args::error::{CliError, Mark};
use crate::commands::pages::completions::SHELLS;
use crate::commands::{
    COMMANDS, Done, Entry, clean, daemon, db, doctor, drain, edit, install, log, pages, report,
    retry, run, source, submit, sweep, top, wait, web, why,
};
use crate::parse::error::shown;
use crate::parse::suggest;
use crate::sys::fresh::Fresh;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const TRY_HELP: &str = "Try \"slotd --help\" for more information";

#[derive(Debug, Parser)]
#[command(name = "slotd", version, about = "Slurm for one machine", disable_help_subcommand = true)]
#[command(arg_required_else_help = true)]
struct Words {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Serve the runtime root in the foreground, or start and stop a daemon that does
    Daemon(daemon::DaemonArgs),
    /// Install this program, start its daemon, and send a first job through the queue
    Install(install::InstallArgs),
    /// Remove the installation; jobs and history stay, unless told otherwise
    Uninstall(install::UninstallArgs),
    /// Look for what keeps the queue from working, and say the mend of each
    Doctor,
    /// Remove old jobs: their job directories, and what the accounting knows of them
    Clean(clean::CleanArgs),
    /// Take the host, or some of its CPUs and GPUs, out of use: what runs goes on
    Drain(drain::DrainArgs),
    /// Use the host, or those of its CPUs and GPUs, again
    Resume(drain::ResumeArgs),
    /// Check, copy, restore or compact the daemon's database
    Db {
        #[command(subcommand)]
        verb: db::DbVerb,
    },
    /// Show the output of jobs, and follow it to their end
    Log(log::LogArgs),
    /// Submit a command, follow its output, and exit with its code
    Run(run::RunArgs),
    /// Wait until jobs have ended, and exit with the worst of their codes
    Wait(wait::WaitArgs),
    /// Tell what keeps jobs from starting, how long they may run, or why they ended
    Why(why::WhyArgs),
    /// Change the options and the script of a job that waits, in your editor
    Edit(edit::EditArgs),
    /// Submit jobs again that are over: of an array what failed, and with it what depends on them
    Retry(retry::RetryArgs),
    /// Show by name what jobs used of what they had, and what to ask for next time
    Report(report::ReportArgs),
    /// Tell the git work tree that a job was submitted from, its commit, and how it differed from
    /// that
    Source(source::SourceArgs),
    /// Submit many jobs, each a line of JSON on standard input, and answer each with a line
    Submit(submit::SubmitArgs),
    /// Submit a script once for each combination of parameters, as the tasks of an array
    Sweep(sweep::SweepArgs),
    /// Show the queue on the whole screen as it is from moment to moment, and act on it by keys
    Top(top::TopArgs),
    /// Show the queue in a browser, on this host alone, and follow and steer the jobs there
    Web(web::WebArgs),
    /// Print the names of the commands, a line each
    Commands,
    /// Print what each command and option of Slurm comes to here, as a page
    Compat,
    /// Write the man pages into a directory
    Man {
        #[arg(value_hint = clap::ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Write the completions of a shell into a directory
    Completions {
        #[arg(value_parser = SHELLS)]
        shell: String,
        #[arg(value_hint = clap::ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// Everything that can follow `slotd`, the Slurm commands among it.
pub fn definition() -> clap::Command {
    Words::command().subcommands(COMMANDS.iter().map(Entry::definition))
}

/// The headings of `slotd --help`, with the verbs below them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("See", &["top", "web", "why", "log", "wait", "source", "report"]),
    ("Submit", &["run", "sweep", "submit", "retry"]),
    ("Change", &["edit", "drain", "resume", "clean"]),
    ("The daemon", &["install", "uninstall", "doctor", "daemon", "db"]),
    ("For tools and packages", &["commands", "compat", "man", "completions"]),
];

/// The words after `slotd`, with a help that lists them by what they are for.
fn command() -> clap::Command {
    let verbs = Words::command();
    let about = |name: &&str| {
        let verb = verbs.find_subcommand(name)?;
        Some(verb.get_about().map(ToString::to_string).unwrap_or_default())
    };
    let mut lists = String::new();
    let slurm = COMMANDS.map(|entry| (entry.name(), entry.applet.about.to_owned()));
    let groups = GROUPS.iter().map(|(heading, names)| {
        (*heading, names.iter().filter_map(|name| Some((*name, about(name)?))).collect::<Vec<_>>())
    });
    for (heading, names) in
        groups.chain([("Commands of Slurm, each also a link of its own", slurm.into())])
    {
        lists += &format!("{heading}:\n");
        for (name, about) in names {
            lists += &format!("  {name:11}  {about}\n");
        }
        lists.push('\n');
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{lists}Options:\n{{options}}\n\n`COMMAND --help` tells of each."
    );
    verbs.help_template(template)
}

/// `slotd WORDS...`, where the first word is no Slurm command.
pub fn main(words: &[OsString]) -> u8 {
    let spelled = match words.first().and_then(|word| word.to_str()) {
        Some("help") => vec!["--help".into()],
        Some("version") => vec!["--version".into()],
        // Its words are not clap's to read: they are options of sbatch, and a command with options
        // of its own.
        Some("run") if !asks_for_help(words) => {
            [&["run".into(), "--".into()], &words[1..]].concat()
        }
        _ => words.to_vec(),
    };
    let parsed = command()
        .try_get_matches_from(std::iter::once("slotd".into()).chain(spelled))
        .and_then(|matches| <Words as clap::FromArgMatches>::from_arg_matches(&matches));
    let done = match parsed {
        Ok(Words { verb }) => run(verb),
        Err(text) if !text.use_stderr() => {
            super::output::print(&format!("{}\n", text.to_string().trim_end()))
        }
        Err(error) => Err(misused(&error, words.first().and_then(|word| word.to_str()))),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            super::output::tell("slotd", &error);
            error.code()
        }
    }
}

/// `slotd run --help`
fn asks_for_help(words: &[OsString]) -> bool {
    words.get(1).is_none_or(|word| word == "--help" || word == "-h")
}

/// clap's words in the form that all commands have, with the nearest of the verbs and the commands
/// for an unknown one.
fn misused(error: &clap::Error, verb: Option<&str>) -> CliError {
    let unknown =
        (error.kind() == ErrorKind::UnknownArgument).then(|| error.get(ContextKind::InvalidArg));
    if let (Some(Some(ContextValue::String(word))), Some(verb)) = (unknown, verb) {
        let all = definition();
        let options = all.find_subcommand(verb).into_iter().flat_map(clap::Command::get_arguments);
        let meant =
            suggest::nearest(word.trim_start_matches('-'), options.filter_map(clap::Arg::get_long));
        return CliError::error(2, format!("unrecognized option {}", shown(word)))
            .maybe_hint(meant.map(|name| format!("did you mean --{name}?")))
            .and(Mark::Bare, format!("Try \"slotd {verb} --help\" for more information"));
    }
    let unknown = (error.kind() == ErrorKind::InvalidSubcommand)
        .then(|| error.get(ContextKind::InvalidSubcommand));
    if let Some(Some(ContextValue::String(word))) = unknown {
        let all = definition();
        // `slotd stop` is `slotd daemon stop`.
        let takes = |arg: &clap::Arg| {
            arg.get_possible_values().iter().any(|value| value.matches(word, false))
        };
        let below = |verb: &&clap::Command| {
            verb.find_subcommand(word).is_some() || verb.get_positionals().any(takes)
        };
        let nested = all
            .get_subcommands()
            .find(below)
            .map(|verb| format!("slotd {} {word}", verb.get_name()));
        let nearest = || {
            suggest::nearest(word, all.get_subcommands().map(clap::Command::get_name))
                .map(str::to_owned)
        };
        return CliError::error(2, format!("unrecognized command: {}", shown(word)))
            .maybe_hint(nested.or_else(nearest).map(|name| format!("did you mean {name}?")))
            .and(Mark::Bare, TRY_HELP);
    }
    let text = error.to_string();
    let Some(text) = text.strip_prefix("error: ") else {
        return CliError::new(Mark::Bare, 2, text.trim_end());
    };
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    CliError::error(2, lines).and(Mark::Bare, TRY_HELP)
}

fn run(verb: Verb) -> Done {
    match verb {
        Verb::Daemon(args) => daemon::run(&args),
        Verb::Install(args) => install::install(&args),
        Verb::Uninstall(args) => install::uninstall(&args),
        Verb::Doctor => doctor::run(),
        Verb::Clean(args) => clean::run(&args),
        Verb::Drain(args) => drain::drain(&args),
        Verb::Resume(args) => drain::resume(&args),
        Verb::Db { verb } => db::run(&verb),
        Verb::Log(args) => log::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Wait(args) => wait::run(&args),
        Verb::Why(args) => why::run(&args),
        Verb::Edit(args) => edit::run(&args),
        Verb::Retry(args) => retry::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Source(args) => source::run(&args),
        Verb::Submit(args) => submit::run(&args),
        Verb::Sweep(args) => sweep::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Web(args) => web::run(&args),
        Verb::Commands => {
            COMMANDS.iter().for_each(|entry| println!("{}", entry.name()));
            Ok(0)
        }
        Verb::Compat => super::output::print(&pages::compat::page()),
        Verb::Man { dir } => write(&dir, pages::manual::pages()),
        Verb::Completions { shell, dir } => {
            write(&dir, pages::completions::files(&shell).unwrap_or_default())
        }
    }
}

/// Writes files into a directory, which is made where it is missing. A link in the place of one is
/// replaced, and what it leads to stays as it is.
fn write(dir: &Path, files: Vec<pages::File>) -> Done {
    let failed =
        |path: &Path, e: std::io::Error| CliError::error(1, format!("{}: {e}", path.display()));
    fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
    for file in files {
        let path = dir.join(file.name);
        let made = Fresh::new(&path, 0o644).and_then(|mut new| {
            new.file.write_all(&file.text)?;
            new.replace()
        });
        made.map_err(|e| failed(&path, e))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_each_verb_once() {
        let help = command().render_help().to_string();
        for verb in Words::command().get_subcommands() {
            let line = format!("\n  {:11}  ", verb.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{line:?} in {help}");
        }
        assert!(help.contains("\n  squeue       Show the jobs that wait and run\n"), "{help}");
    }

    #[test]
    fn an_unknown_option_of_a_verb_names_the_nearest_one() {
        let error = command()
            .try_get_matches_from(["slotd", "why", "--jsno", "1"])
            .expect_err("an unknown option");
        assert_eq!(
            misused(&error, Some("why")).text("slotd"),
            "slotd: error: unrecognized option --jsno\n  hint: did you mean --json?\nTry \"slotd why --help\" for more information\n"
        );
    }

    #[test]
    fn an_unknown_word_names_the_nearest_verb_or_command() {
        for (unknown, meant) in [
            ("squeu", "squeue"),
            ("comands", "commands"),
            ("stop", "slotd daemon stop"),
            ("vacuum", "slotd db vacuum"),
        ] {
            let error =
                command().try_get_matches_from(["slotd", unknown]).expect_err("an unknown word");
            assert_eq!(
                misused(&error, None).text("slotd"),
                format!(
                    "slotd: error: unrecognized command: {unknown}\n  hint: did you mean {meant}?\n{TRY_HELP}\n"
                )
            );
        }
    }
}
