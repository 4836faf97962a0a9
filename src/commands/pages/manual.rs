//! Man pages: the options from the definitions, the rest from [`texts`](super::texts).

use super::texts::{self, Page};
use super::{File, MARK};
use crate::args::choices::Applet;
use crate::commands::{COMMANDS, Entry};
use crate::daemon::SETTINGS;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use std::io;

const SOURCE: &str = concat!("slotd ", env!("CARGO_PKG_VERSION"));

/// The pages of section 1, one a command and one for slotd itself.
pub fn pages() -> Vec<File> {
    // Writing to memory does not fail.
    let command = |entry: &Entry| (entry.name(), command_page(entry).unwrap_or_default());
    let all = COMMANDS.iter().map(command).chain([("slotd", slotd_page().into_bytes())]);
    all.map(|(name, mut text)| {
        text.extend(format!(".\\\" {MARK}\n").bytes());
        File { name: format!("{name}.1"), text }
    })
    .collect()
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
    tail(&entry.applet, entry.page).to_writer(&mut out)?;
    Ok(out)
}

fn tail(applet: &Applet, page: &Page) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    let variables = (applet.variables)();
    if !variables.is_empty() {
        roff.text([roman(
            "Variables stand for options, which win on the command line. An empty one says nothing, \
             unless it stands for an option that needs no value.",
        )]);
    }
    for (variable, option) in variables {
        entry(&mut roff, variable, &format!("As --{option}."));
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
    roff.text([roman("The daemon reads these when it starts.")]);
    for setting in SETTINGS {
        entry(&mut roff, setting.variable, setting.manual);
    }
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
    let names = COMMANDS.iter().map(Entry::name).chain(["slotd"]).filter(|name| *name != own);
    let mut words = Vec::new();
    for name in names {
        if !words.is_empty() {
            words.push(roman(", "));
        }
        words.extend([bold(name), roman("(1)")]);
    }
    roff.text(words);
}
