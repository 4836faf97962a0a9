//! Man pages: the options come from the clap definitions, everything else from
//! [`texts`](super::texts).

use super::texts::{self, Page};
use super::{File, MARK};
use crate::args::choices::Applet;
use crate::clusters::config::KEYS;
use crate::commands::{COMMANDS, Entry};
use crate::daemon::{Holds, SETTINGS};
use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use slotd_parse::{partition, qos};
use std::io;

const SOURCE: &str = concat!("slotd ", env!("CARGO_PKG_VERSION"));

/// The directories of the pages, as `man` expects them.
pub const SECTIONS: [&str; 2] = ["man1", "man5"];

/// A file of settings, and its page.
type Configuration = (&'static str, fn() -> Roff);

const CONFIGURATION: [Configuration; 3] =
    [("slotd.env", env_page), ("slotd.toml", toml_page), ("clusters.toml", clusters_page)];

/// Returns the pages of a section: the commands and slotd itself, or the files of settings.
pub fn pages(section: &str) -> Vec<File> {
    let file = |(name, mut text): (String, Vec<u8>)| {
        text.extend(format!(".\\\" {MARK}\n").bytes());
        File { name, text }
    };
    if section == "man5" {
        let page =
            |(name, page): &Configuration| file((format!("{name}.5"), page().render().into()));
        return CONFIGURATION.iter().map(page).collect();
    }
    // Writing to memory cannot fail.
    let command = |entry: &Entry| (entry.name(), command_page(entry).unwrap_or_default());
    let all = COMMANDS.iter().map(command).chain([("slotd", slotd_page().into_bytes())]);
    all.map(|(name, text)| file((format!("{name}.1"), text))).collect()
}

fn command_page(entry: &Entry) -> io::Result<Vec<u8>> {
    let mut command = entry.definition();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.override_usage(usage))
        .section("1")
        .date("")
        .source(SOURCE)
        .manual("Slurm commands");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    let mut description = Roff::new();
    description.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut description, entry.page.description);
    description.to_writer(&mut out)?;
    man.render_options_section(&mut out)?;
    verbs(entry.definition()).to_writer(&mut out)?;
    tail(&entry.applet, entry.page).to_writer(&mut out)?;
    Ok(out)
}

/// Lists the subcommands with their options.
fn verbs(mut command: Command) -> Roff {
    command.build();
    let mut roff = Roff::new();
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        if roff == Roff::new() {
            roff.control("SH", ["COMMANDS"]);
        }
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        roff.control("SS", [format!("{} {}", command.get_name(), verb.get_name()).as_str()]);
        roff.text([roman(format!("{about}."))]);
        let is_listed = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
        for arg in verb.get_arguments().filter(is_listed) {
            let short = arg.get_short().map(|letter| format!("-{letter}, ")).unwrap_or_default();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            entry(&mut roff, &format!("{short}{arg}"), &help);
        }
    }
    roff
}

fn tail(applet: &Applet, page: &Page) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    let variables = (applet.variables)();
    if !variables.is_empty() {
        roff.text([roman(
            "Each of these variables sets an option. Options on the command line override them. \
             An empty variable is ignored, unless its option takes no value.",
        )]);
    }
    for (variable, option) in variables {
        entry(&mut roff, variable, &format!("Same as --{option}."));
    }
    for (variable, meaning) in page.variables.iter().chain(texts::COMMON_VARIABLES) {
        entry(&mut roff, variable, meaning);
    }
    exit_status(&mut roff, page.exits);
    if !applet.examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (line, does) in applet.examples {
        entry(&mut roff, line, does);
    }
    see_also(&mut roff, applet.name);
    roff
}

fn slotd_page() -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["slotd", "1", "", SOURCE, "Slurm for one machine"]);
    roff.control("SH", ["NAME"]).text([roman("slotd - Slurm for one machine")]);
    roff.control("SH", ["SYNOPSIS"]);
    for (i, (words, arguments)) in texts::SLOTD_FORMS.iter().enumerate() {
        if i > 0 {
            roff.control("br", []);
        }
        roff.text([bold(*words), roman(" "), italic(*arguments)]);
    }
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, texts::SLOTD.description);
    roff.control("SH", ["COMMANDS"]);
    for Entry { applet, .. } in COMMANDS {
        entry(&mut roff, applet.name, &format!("{}.", applet.about));
    }
    for (word, meaning) in texts::SLOTD_COMMANDS {
        entry(&mut roff, word, meaning);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    for (variable, meaning) in texts::COMMON_VARIABLES {
        entry(&mut roff, variable, meaning);
    }
    roff.control("PP", []);
    roff.text([
        roman("The settings of the daemon are described in "),
        bold("slotd.env"),
        roman("(5)."),
    ]);
    roff.control("SH", ["SIGNALS"]);
    for (signal, meaning) in texts::SIGNALS {
        entry(&mut roff, signal, meaning);
    }
    roff.control("SH", ["FILES"]);
    for (file, meaning) in texts::FILES {
        entry(&mut roff, file, meaning);
    }
    exit_status(&mut roff, texts::SLOTD.exits);
    see_also(&mut roff, "slotd");
    roff.render()
}

fn env_page() -> Roff {
    let mut roff = file_page("slotd.env", "settings of the slotd daemon", texts::ENV);
    roff.control("SH", ["SETTINGS"]);
    for setting in SETTINGS {
        let live = match setting.holds {
            Holds::Live => " Applied by scontrol reconfigure.",
            Holds::Start => "",
        };
        entry(&mut roff, setting.variable, &format!("{}{live}", setting.manual));
    }
    see_also(&mut roff, "slotd.env");
    roff
}

fn toml_page() -> Roff {
    let mut roff = file_page(
        "slotd.toml",
        "capacity, partitions, limits, licenses and QOS of slotd",
        texts::TOML,
    );
    let read = |(key, meaning, forms): (&'static str, &str, &str)| {
        (key, format!("{meaning} Accepted values: {forms}."))
    };
    let partition = partition::manual().map(read);
    let own = |keys: &[(&'static str, &str)]| {
        keys.iter().map(|(key, meaning)| (*key, (*meaning).to_owned())).collect::<Vec<_>>()
    };
    for (heading, keys) in [
        ("KEYS OF THE HOST", own(texts::TOML_HOST)),
        (
            "KEYS OF [[partition]]",
            own(texts::TOML_PARTITION).into_iter().chain(partition).collect(),
        ),
        ("KEYS OF [[limit]]", own(texts::TOML_LIMIT)),
        ("KEYS OF [[license]]", own(texts::TOML_LICENSE)),
        ("KEYS OF [[qos]]", qos::manual().map(read).collect()),
    ] {
        roff.control("SH", [heading]);
        for (key, meaning) in keys {
            entry(&mut roff, key, &meaning);
        }
    }
    see_also(&mut roff, "slotd.toml");
    roff
}

fn clusters_page() -> Roff {
    let mut roff = file_page("clusters.toml", "clusters that -M reaches", texts::CLUSTERS);
    roff.control("SH", ["KEYS OF [[cluster]]"]);
    for key in KEYS {
        let default = match key.default {
            "" => String::new(),
            default => format!(" Default: {default}."),
        };
        let about = key.about.replace('`', "");
        entry(&mut roff, key.name, &format!("{about}{default} Example: {}", key.example));
    }
    see_also(&mut roff, "clusters.toml");
    roff
}

/// Begins the page of a file in ~/.config/slotd.
fn file_page(name: &str, about: &str, description: &[&str]) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [name, "5", "", SOURCE, "Slurm for one machine"]);
    roff.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    roff.control("SH", ["SYNOPSIS"]).text([bold(format!("~/.config/slotd/{name}"))]);
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, description);
    roff
}

fn paragraphs(roff: &mut Roff, paragraphs: &[&str]) {
    for (i, paragraph) in paragraphs.iter().enumerate() {
        if i > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(*paragraph)]);
    }
}

fn entry(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []).text([bold(term)]).text([roman(meaning)]);
}

fn exit_status(roff: &mut Roff, exits: &[(&str, &str)]) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exits {
        entry(roff, code, meaning);
    }
}

fn see_also(roff: &mut Roff, own: &str) {
    roff.control("SH", ["SEE ALSO"]);
    let commands = COMMANDS.iter().map(Entry::name).chain(["slotd"]).map(|name| (name, "(1)"));
    let mut words = Vec::new();
    for (name, section) in commands.chain(CONFIGURATION.map(|(name, _)| (name, "(5)"))) {
        if name != own {
            words.extend((!words.is_empty()).then(|| roman(", ")));
            words.extend([bold(name), roman(section)]);
        }
    }
    roff.text(words);
}
