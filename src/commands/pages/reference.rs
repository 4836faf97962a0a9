//! `slotd reference`: pages of the book's reference, in Markdown. They are generated from the
//! tables that parse and print: the clap definitions, settings, states, reasons and fields.

use super::File;
use super::texts::{self, Page};
use crate::clusters::config::KEYS;
use crate::commands::{COMMANDS, slotd};
use crate::daemon::{Holds, SETTINGS, Setting};
use clap::{Arg, Command};
use slotd_model::{JobState, Reason};
use slotd_render::field::{Field, Table};
use slotd_render::sacct::Sacct;
use slotd_render::sinfo::Sinfo;
use slotd_render::squeue::{Squeue, Steps};
use std::fmt::Write;

/// Returns the pages.
pub fn pages() -> Vec<File> {
    let pages = [
        ("commands.md", commands()),
        ("settings.md", settings()),
        ("states.md", states()),
        ("fields.md", fields()),
        ("clusters-toml.md", clusters()),
    ];
    let file = |(name, text): (&str, String)| File { name: name.to_owned(), text: text.into() };
    pages.map(file).into()
}

fn commands() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         This page lists every command with its options, as `--help` prints them. `slotd` also runs the Slurm \
         commands: `slotd squeue` is `squeue`. [Compatibility](compatibility.md) also lists the options that slotd \
         refuses. See also [Exit codes](exit-codes.md) and [Environment variables of jobs](environment.md).\n",
    );
    for entry in COMMANDS {
        let mut command = entry.definition();
        command.build();
        let sets = |(variable, option)| [term(variable), format!("Sets `--{option}`.")];
        let variables = (entry.applet.variables)().into_iter().map(sets).collect();
        describe(&mut page, 2, &command, entry.page, variables);
    }
    let mut slotd = slotd::definition();
    slotd.build();
    describe(&mut page, 2, &slotd, &texts::SLOTD, Vec::new());
    page
}

fn clusters() -> String {
    let mut page = String::from(
        "# clusters.toml\n\n\
         `~/.config/slotd/clusters.toml` lists the clusters that `-M` reaches. It is read by the commands, not by the \
         daemon, and only if `-M`, `SLURM_CLUSTERS`, `SBATCH_CLUSTERS` or a `#SBATCH -M` line names a cluster other than \
         this host (`slotd`). Each cluster is a `[[cluster]]` table. See [Moving to a \
         cluster](../guides/moving-to-a-cluster.md).\n\n\
         The file names programs to run, so it must belong to you or to root, and no one else may be able to write to it \
         or to its directory. Unknown keys are errors, with their line.\n",
    );
    let rows = KEYS.iter().map(|key| {
        let or_none = |text: &str| if text.is_empty() { String::new() } else { term(text) };
        [term(key.name), or_none(key.default), plain(key.about), term(key.example)]
    });
    table(&mut page, ["key", "default", "meaning", "example"], rows);
    page
}

/// Writes a command and its subcommands. The Slurm commands below `slotd` are left out.
fn describe(
    page: &mut String,
    level: usize,
    command: &Command,
    texts: &Page,
    mut variables: Vec<[String; 2]>,
) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(
        page,
        "\n{} {name}\n\n{}.\n\n```text\n{usage}\n```\n",
        "#".repeat(level),
        plain(&about)
    );
    for paragraph in texts.description {
        let _ = write!(page, "\n{}\n", plain(paragraph));
    }
    let is_listed = |arg: &&Arg| !arg.is_hide_set() && (level == 2 || arg.get_id() != "help");
    let args = || command.get_arguments().filter(is_listed);
    table(page, ["argument", "meaning"], args().filter(|arg| arg.is_positional()).map(option));
    let mut headings = Vec::new();
    for arg in args().filter(|arg| !arg.is_positional()) {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let below = args().filter(|arg| !arg.is_positional() && arg.get_help_heading() == heading);
        let title = heading.unwrap_or("option");
        table(page, [title, "meaning"], below.map(option));
    }
    if let Some(text) = command.get_after_help() {
        let text = text.to_string();
        let (title, lines) = text.split_once('\n').unwrap_or(("", &text));
        let lines: Vec<_> =
            lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
        let _ = write!(page, "\n{title}\n\n```text\n{}\n```\n", lines.join("\n"));
    }
    let row = |(name, meaning): &(&str, &str)| [term(name), plain(meaning)];
    variables.extend(texts.variables.iter().map(row));
    table(page, ["variable", "meaning"], variables);
    table(page, ["exit code", "meaning"], texts.exits.iter().map(row));
    let is_own = |verb: &&Command| {
        let name = verb.get_name();
        name != "help" && !verb.is_hide_set() && COMMANDS.iter().all(|entry| entry.name() != name)
    };
    for verb in command.get_subcommands().filter(is_own) {
        let is_it = |(name, _): &&(&str, &str)| {
            format!("slotd {name}") == verb.get_bin_name().unwrap_or_default()
        };
        let found = texts::SLOTD_COMMANDS.iter().find(is_it);
        let description = found.map_or(&[][..], |(_, text)| std::slice::from_ref(text));
        describe(
            page,
            level + 1,
            verb,
            &Page { description, variables: &[], exits: &[] },
            Vec::new(),
        );
    }
}

/// Returns the row of an option: its spelling, its help, and its values.
fn option(arg: &Arg) -> [String; 2] {
    // An argument without a long name prints its letter.
    let short = arg.get_short().filter(|_| arg.get_long().is_some());
    let short = short.map(|letter| format!("{}, ", term(&format!("-{letter}"))));
    let mut text = plain(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let values = arg.get_possible_values();
    let mut values = values.iter().filter(|value| !value.is_hide_set()).peekable();
    if values.peek().is_some() {
        let one = |value: &clap::builder::PossibleValue| {
            let help = value.get_help().map(|help| format!(": {}", plain(&help.to_string())));
            format!("`{}`{}", value.get_name(), help.unwrap_or_default())
        };
        let _ = write!(text, " (values: {})", values.map(one).collect::<Vec<_>>().join("; "));
    }
    if let [default] = arg.get_default_values()
        && arg.get_action().takes_values()
    {
        let _ = write!(text, " (default: `{}`)", default.to_string_lossy());
    }
    [format!("{}{}", short.unwrap_or_default(), term(&arg.to_string())), text]
}

fn settings() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         This page lists every setting of the daemon. The daemon reads them from its environment and from \
         `~/.config/slotd/slotd.env`, which has the format of systemd's `EnvironmentFile=`. An empty value counts as \
         unset.\n\n\
         `scontrol reconfigure` applies new values of the settings that are marked *reload*. The others take effect when \
         the daemon is restarted, which does not affect running jobs. Partitions, limits, licenses and QOS are configured in \
         [slotd.toml](slotd-toml.md).\n\n\
         Change `SLOTD_ROOT` with `slotd install --runtime-root DIR`, which changes the systemd units as well.\n",
    );
    let row = |setting: &Setting| {
        let (meaning, default) =
            setting.manual.split_once("Default: ").unwrap_or((setting.manual, "unset."));
        let when = match setting.holds {
            Holds::Live => "reload",
            Holds::Start => "restart",
        };
        let default = default.trim_end_matches('.');
        [term(setting.variable), plain(meaning.trim_end()), plain(default), when.to_owned()]
    };
    table(
        &mut page,
        ["setting", "meaning", "default", "takes effect at"],
        SETTINGS.iter().map(row),
    );
    page
}

fn states() -> String {
    let mut page = String::from(
        "# States and reasons\n\n\
         This page lists every state that a job can have, and every reason why it is pending or has ended. \
         [The life of a job](../concepts/life.md) explains how the states follow each other.\n\n\
         ## States\n\n\
         `squeue` prints the code in the column ST. `--state` of `squeue`, `sacct` and `scancel` accepts names and \
         codes.\n",
    );
    let row = |state: JobState| {
        [state.name().to_owned(), state.code().to_owned(), plain(state.meaning())]
    };
    table(&mut page, ["state", "code", "meaning"], JobState::ALL.map(row));
    page += "\n## Reasons\n\n\
         `squeue` and `sacct` print only names that Slurm 22.05 has, because programs compare them with a fixed list: \
         where the last column has a name, they print that one. `slotd why`, `slotd top` and notifications print the name \
         in the first column. `slotd why JOB` explains the reason of a job with figures.\n";
    let row = |reason: &Reason| {
        let slurm = Some(reason.slurm_name()).filter(|name| *name != reason.name());
        [reason.name().to_owned(), plain(reason.meaning()), slurm.unwrap_or_default().to_owned()]
    };
    table(&mut page, ["reason", "meaning", "printed as"], Reason::ALL.iter().map(row));
    page
}

fn fields() -> String {
    let mut page = String::from(
        "# Fields\n\n\
         This page lists every field that `squeue`, `sacct` and `sinfo` can print. Names may be written in upper or \
         lower case, and with or without `-` and `_`.\n\n\
         - `squeue -o '%i %.10j'` and `sinfo -o '%P %t'` take letters. A number is the width, a dot aligns right.\n\
         - `squeue -O JobID,Name:30` and `sinfo -O Partition,Nodes` take names, each with an optional width.\n\
         - `squeue -o JobID,Name` and `sinfo -o Partition,State` print slotd's table. slotd's own names apply only here, \
         and take precedence over Slurm's names.\n\
         - `sacct -o JobID,State%20` takes names, which may be abbreviated, each with an optional width.\n",
    );
    for (title, rows) in [
        ("squeue", rows::<Squeue>()),
        ("squeue --steps", rows::<Steps>()),
        ("sacct", rows::<Sacct>()),
        ("sinfo", rows::<Sinfo>()),
    ] {
        let _ = write!(page, "\n## {title}\n");
        table(&mut page, ["name", "header", "letter", "own name"], rows);
    }
    page
}

/// Returns the rows of a command's fields, ordered by name.
fn rows<T: Table>() -> Vec<[String; 4]> {
    let list = |names: &[&str]| names.iter().map(|name| term(name)).collect::<Vec<_>>().join(", ");
    let row = |field: &Field<T>| {
        let codes = field.codes.chars().map(|code| term(&format!("%{code}"))).collect::<Vec<_>>();
        [list(field.names), plain(field.header), codes.join(", "), list(field.own_names)]
    };
    let mut rows: Vec<_> = T::fields().iter().map(row).collect();
    let has_name =
        |row: &[String; 4]| (row[0].is_empty(), format!("{}{}", row[0], row[3]).to_lowercase());
    rows.sort_by_key(has_name);
    rows
}

/// Writes a table. Columns after the second are left out if they are empty, and so is a table
/// without rows.
fn table<const N: usize>(
    page: &mut String,
    titles: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) {
    let rows: Vec<_> = rows.into_iter().collect();
    if rows.is_empty() {
        return;
    }
    let is_shown = |column: &usize| *column < 2 || rows.iter().any(|row| !row[*column].is_empty());
    let shown: Vec<usize> = (0..N).filter(is_shown).collect();
    page.push('\n');
    let mut line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<_> = shown.iter().map(|column| cell(*column)).collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    };
    line(&|column| titles[column].to_owned());
    line(&|_| "---".to_owned());
    rows.iter().for_each(|row| line(&|column| row[column].replace('|', "\\|")));
}

/// Returns the text as code.
fn term(text: &str) -> String {
    format!("`{text}`")
}

/// Returns a text with Markdown's characters escaped, except between backticks.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        let is_code = i % 2 == 1;
        out += if i > 0 { "`" } else { "" };
        let mut before = ' ';
        for c in part.chars() {
            // An underscore within a word is no emphasis.
            if !is_code && ("\\*<>".contains(c) || c == '_' && !before.is_alphanumeric()) {
                out.push('\\');
            }
            out.push(c);
            before = c;
        }
    }
    out
}
