//! `slotd compat`: for each command and option of Slurm, what it comes to here. It is made of the
//! definitions that the commands are parsed with, so that it is true; only what differs in a way
//! that a definition does not tell stands here.

use crate::args::extra::Extra;
use crate::commands::{COMMANDS, Entry};
use clap::Arg;
use std::fmt::Write;

/// A command, an option and how it differs.
const DIFFERS: [(&str, &str, &str); 23] = [
    (
        "sbatch",
        "ntasks",
        "a script without srun, mpirun and their like runs once a rank (SLOTD_BATCH_TASKS)",
    ),
    ("sbatch", "mem", "512 MB where none of the memory options is given"),
    (
        "sbatch",
        "requeue",
        "runs the job once more after FAILED, TIMEOUT, OUT_OF_MEMORY or NODE_FAIL",
    ),
    ("sbatch", "time", "kept to the second"),
    ("sbatch", "nodes", "one node: more are refused"),
    ("sbatch", "nodelist", "one node: another is refused"),
    ("sbatch", "reservation", "refused: there are none"),
    ("sbatch", "snapshot", "Slurm has no such option"),
    ("sbatch", "licenses", "refused: there are none"),
    ("sbatch", "clusters", "one cluster, slotd: another is refused"),
    ("sbatch", "account", "kept and shown, without effect but for limits of a site"),
    ("sbatch", "qos", "kept and shown, without effect"),
    ("sbatch", "mail-type", "mail goes by the host's sendmail; STAGE_OUT and PURGE send none"),
    ("srun", "mpi", "none and pmi2; pmix is refused"),
    ("srun", "no-wait", "slotd's own: submits the command as a job"),
    ("sstat", "series", "slotd's own: what steps used over time"),
    ("sstat", "json", "slotd's own: with `--series`, as a document"),
    ("seff", "plot", "slotd's own: plots what jobs used over time"),
    ("salloc", "ntasks", "a command that starts no steps itself runs once a rank"),
    ("squeue", "format", "without one, a table with bars (SLOTD_OUTPUT=slurm: Slurm's columns)"),
    ("sacct", "format", "without one, a table with bars (SLOTD_OUTPUT=slurm: Slurm's columns)"),
    ("sinfo", "format", "without one, a table with bars (SLOTD_OUTPUT=slurm: Slurm's columns)"),
    ("squeue", "json", "v0.0.38 and v0.0.40"),
];

/// Options that were replayed beside Slurm, with the same outcome: a command and an option a line,
/// made by the tests from the records of Slurm.
const REPLAYED: &str = include_str!("replayed.txt");

/// The page.
pub fn page() -> String {
    let mut page = String::from(
        "# What slotd takes of Slurm 22.05\n\n\
         Each option is read as Slurm reads it. *same, replayed*: invocations with it were recorded with Slurm 22.05.8, and \
         what slotd does is compared with that in its tests. *kept*: it is taken, has no effect on one host, and `-v` says so. \
         *not on one host*: it is refused, and why.\n",
    );
    for entry in COMMANDS {
        let _ = write!(page, "\n## {}\n\n{}.\n", entry.name(), entry.applet.about);
        rows(&mut page, &entry);
    }
    page
}

fn rows(page: &mut String, entry: &Entry) {
    let extras: Vec<&Extra> = entry.applet.extras.iter().copied().flatten().collect();
    let command = entry.definition();
    let mut options: Vec<(&str, String)> = command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_long()?, arg)))
        .map(|(long, arg)| {
            (
                long,
                format!(
                    "| {} | {} |\n",
                    spelling(long, arg),
                    standing(entry.name(), long, &extras)
                ),
            )
        })
        .collect();
    if options.is_empty() {
        return;
    }
    options.sort();
    page.push_str("\n| option | here |\n|---|---|\n");
    options.iter().for_each(|(_, row)| page.push_str(row));
}

fn spelling(long: &str, arg: &Arg) -> String {
    arg.get_short().map_or_else(|| format!("`--{long}`"), |short| format!("`-{short}`, `--{long}`"))
}

fn standing(command: &str, long: &str, extras: &[&Extra]) -> String {
    // What differs for a job differs for all three commands that start one.
    let starts = ["sbatch", "srun", "salloc"].contains(&command);
    let of = |wanted: &str| {
        wanted == command
            || (wanted == "sbatch" && starts && !["ntasks", "requeue"].contains(&long))
    };
    let differs = DIFFERS.iter().find(|(of_command, option, _)| of(of_command) && *option == long);
    match (extras.iter().find(|extra| extra.long == long), differs) {
        (Some(Extra { refusal: Some(why), .. }), _) => format!("not on one host: {why}"),
        (Some(extra), _) => format!("kept: {}", extra.help),
        (None, Some((.., how))) => format!("differs: {how}"),
        (None, None) if REPLAYED.lines().any(|line| line == format!("{command} --{long}")) => {
            "same, replayed".to_owned()
        }
        (None, None) => "same".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_an_option_of_its_command() {
        for (command, option, _) in DIFFERS {
            let entry =
                COMMANDS.into_iter().find(|entry| entry.name() == command).expect("a command");
            let definition = entry.definition();
            assert!(
                definition.get_arguments().any(|arg| arg.get_long() == Some(option)),
                "{command} --{option}"
            );
            assert!(
                entry.applet.extras.iter().copied().flatten().all(|extra| extra.long != option),
                "{command} {option}"
            );
        }
    }

    #[test]
    fn each_option_has_its_row() {
        let page = page();
        for (row, standing) in [
            ("| `-a`, `--array` | ", "same, replayed"),
            ("| `--export-file` | ", "same"),
            ("| `--switches` | ", "kept: Network switches at most"),
            ("| `--het-group` | ", "not on one host: there are no heterogeneous jobs on one host"),
            ("| `--mpi` | ", "differs: none and pmi2; pmix is refused"),
        ] {
            assert!(page.contains(&format!("{row}{standing} |\n")), "{row}");
        }
    }
}
