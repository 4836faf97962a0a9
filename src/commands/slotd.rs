//! `slotd` itself: the daemon, its installation, man pages and completions, and help for all
//! commands.

use crate::args::error::{CliError, Mark};
use crate::commands::pages::completions::SHELLS;
use crate::commands::{
    COMMANDS, Done, Entry, clean, clusters, complete, daemon, db, doctor, drain, edit, install,
    log, pages, report, retry, run, source, submit, sweep, top, wait, web, why,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use slotd_parse::error::shown;
use slotd_parse::suggest;
use slotd_sys::fresh::Fresh;
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
    /// Run the daemon in the foreground, or start, stop and query it in the background
    Daemon(daemon::DaemonArgs),
    /// Install this program, start its daemon, and run a first job
    Install(install::InstallArgs),
    /// Remove the installation, but keep jobs and their history by default
    Uninstall(install::UninstallArgs),
    /// Check the installation and suggest fixes
    Doctor,
    /// Delete old jobs: their job directories and accounting records
    Clean(clean::CleanArgs),
    /// Take the host, or some of its CPUs and GPUs, out of use; running jobs continue
    Drain(drain::DrainArgs),
    /// Return the host, or some of its CPUs and GPUs, to use
    Resume(drain::ResumeArgs),
    /// Check, copy, restore or compact the daemon's database
    Db {
        #[command(subcommand)]
        verb: db::DbVerb,
    },
    /// List, check and log in to other clusters, which `-M` names
    Cluster {
        #[command(subcommand)]
        verb: clusters::admin::ClusterVerb,
    },
    /// Copy the new and changed files of a job on another cluster to this host
    Fetch(clusters::fetch::FetchArgs),
    /// Print the output of jobs, and follow it until they end
    Log(log::LogArgs),
    /// Submit a command, follow its output, and exit with its exit code
    Run(run::RunArgs),
    /// Wait until jobs end, and exit with the highest of their exit codes
    Wait(wait::WaitArgs),
    /// Explain why jobs are pending, how long they may run, or why they ended
    Why(why::WhyArgs),
    /// Edit the options and the script of a pending job
    Edit(edit::EditArgs),
    /// Resubmit ended jobs: the failed tasks of an array, and optionally dependents
    Retry(retry::RetryArgs),
    /// Show the resource usage of jobs by name, and suggest what to request next time
    Report(report::ReportArgs),
    /// Show the git commit that a job was submitted from, and its uncommitted changes
    Source(source::SourceArgs),
    /// Submit many jobs, one per line of JSON on standard input
    Submit(submit::SubmitArgs),
    /// Submit a script once for each combination of parameters, as a job array
    Sweep(sweep::SweepArgs),
    /// Show the queue in a full-screen view, and act on jobs
    Top(top::TopArgs),
    /// Show the queue and control jobs in a browser on this host
    Web(web::WebArgs),
    /// Print the names of the commands, one per line
    Commands,
    /// Print how each Slurm command and option is supported, as a Markdown page
    Compat,
    /// Write the man pages to a directory that MANPATH can name
    Man {
        /// Directory, which is created if necessary
        #[arg(value_hint = clap::ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Write the generated reference pages of the book to a directory
    #[command(hide = true)]
    Reference { dir: PathBuf },
    /// Print the candidates for the last word of a command line, for the completion scripts
    #[command(hide = true)]
    Complete(complete::CompleteArgs),
    /// Write the completions of a shell to a directory
    Completions {
        /// Shell to complete in
        #[arg(value_parser = SHELLS)]
        shell: String,
        /// Directory, which is created if necessary
        #[arg(value_hint = clap::ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// Returns the definition of everything that can follow `slotd`, including the Slurm commands.
pub fn definition() -> clap::Command {
    Words::command().subcommands(COMMANDS.iter().map(Entry::definition))
}

/// The headings of `slotd --help` and the verbs below them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("View", &["top", "web", "why", "log", "wait", "fetch", "source", "report"]),
    ("Submit", &["run", "sweep", "submit", "retry"]),
    ("Modify", &["edit", "drain", "resume", "clean"]),
    ("Daemon and installation", &["install", "uninstall", "doctor", "daemon", "db", "cluster"]),
    ("Tools and packaging", &["commands", "compat", "man", "completions"]),
];

/// Returns the definition of the verbs, with a help text that groups them by purpose.
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
        groups.chain([("Slurm commands, also installed under their own names", slurm.into())])
    {
        lists += &format!("{heading}:\n");
        for (name, about) in names {
            lists += &format!("  {name:11}  {about}\n");
        }
        lists.push('\n');
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{lists}Options:\n{{options}}\n\nRun `COMMAND --help` for details."
    );
    verbs.help_template(template)
}

/// Runs `slotd WORDS...`, where the first word is not a Slurm command.
pub fn main(words: &[OsString]) -> u8 {
    let spelled = match words.first().and_then(|word| word.to_str()) {
        Some("help") => vec!["--help".into()],
        Some("version") => vec!["--version".into()],
        // clap must not parse its words: they are options of sbatch, then a command with options of
        // its own.
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
            super::output::print_error("slotd", &error);
            error.code()
        }
    }
}

/// Returns whether the words are `slotd run --help`.
fn asks_for_help(words: &[OsString]) -> bool {
    words.get(1).is_none_or(|word| word == "--help" || word == "-h")
}

/// Converts a clap error to the form of all commands, with the nearest verb or command as a hint
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
        // `slotd stop` means `slotd daemon stop`.
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
    let all = definition();
    let try_help = match verb.filter(|verb| all.find_subcommand(verb).is_some()) {
        Some(verb) => format!("Try \"slotd {verb} --help\" for more information"),
        None => TRY_HELP.to_owned(),
    };
    CliError::error(2, lines).and(Mark::Bare, try_help)
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
        Verb::Cluster { verb } => clusters::admin::run(&verb),
        Verb::Fetch(args) => clusters::fetch::fetch(&args),
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
            let names: String =
                COMMANDS.iter().map(|entry| format!("{}\n", entry.name())).collect();
            super::output::print(&names)
        }
        Verb::Compat => super::output::print(&pages::compat::page()),
        Verb::Man { dir } => pages::manual::SECTIONS
            .iter()
            .try_fold(0, |_, section| write(&dir.join(section), pages::manual::pages(section))),
        Verb::Reference { dir } => write(&dir, pages::reference::pages()),
        Verb::Complete(args) => complete::run(&args),
        Verb::Completions { shell, dir } => {
            write(&dir, pages::completions::files(&shell).unwrap_or_default())
        }
    }
}

/// Writes pages or completions to a directory, which is created if necessary. As in an
/// installation, files of others are kept, and so are links.
fn write(dir: &Path, files: Vec<pages::File>) -> Done {
    let failed =
        |path: &Path, e: std::io::Error| CliError::error(1, format!("{}: {e}", path.display()));
    fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
    for file in files {
        let path = dir.join(file.name);
        if pages::is_of_others(&path) {
            report!("slotd: warning: kept {}, which is not slotd's", path.display());
            continue;
        }
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
        for verb in Words::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let line = format!("\n  {:11}  ", verb.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{line:?} in {help}");
        }
        assert!(help.contains("\n  squeue       Show pending and running jobs\n"), "{help}");
    }

    #[test]
    fn an_unknown_option_suggests_the_nearest_one() {
        let error = command()
            .try_get_matches_from(["slotd", "why", "--jsno", "1"])
            .expect_err("an unknown option");
        assert_eq!(
            misused(&error, Some("why")).text("slotd"),
            "slotd: error: unrecognized option --jsno\n  hint: did you mean --json?\nTry \"slotd why --help\" for more information\n"
        );
    }

    #[test]
    fn an_unknown_word_suggests_the_nearest_verb_or_command() {
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
