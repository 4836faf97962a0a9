//! The man pages against what they are about: the commands that there are, and the settings that
//! the daemon reads.

use slotd_kit::program;
use slotd_kit::scripts::{commands, must};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn variables(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = text
        .split(|c: char| !is_part(c))
        .filter(|word| word.len() > 6 && word.starts_with("SLOTD_"));
    words.map(str::to_owned).collect()
}

fn source(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .expect("a file of the repository")
}

#[test]
fn there_is_a_page_for_every_command_and_the_daemons_tells_its_settings() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let man = dir.path().join("share/man/man1");
    must(Command::new(program()).arg("man").arg(&man), String::new);
    let mut made: Vec<String> = fs::read_dir(&man)
        .expect("it was made")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    made.sort();
    let mut expected: Vec<String> = commands().into_iter().chain(["slotd".to_owned()]).collect();
    expected.sort();
    assert_eq!(made, expected.iter().map(|name| format!("{name}.1")).collect::<Vec<_>>());

    // Changes of the font stand before and after names.
    let page = fs::read_to_string(man.join("slotd.1")).expect("text");
    let page = variables(&page.replace("\\fB", " ").replace("\\fR", " "));
    let settings = source("src/daemon/settings.rs");
    let table = settings.split("\nsettings! {").nth(1).expect("the table of settings");
    let read = variables(table.split("\n}\n").next().expect("its end"));
    assert!(read.len() > 10, "{read:?}");
    assert_eq!(
        read.difference(&page).collect::<Vec<_>>(),
        [""; 0],
        "read by the daemon, and not in slotd(1)"
    );
    let readme = source("README.md");
    let rows: String = readme.lines().filter(|line| line.starts_with("| `SLOTD_")).collect();
    assert_eq!(
        variables(&rows).difference(&page).collect::<Vec<_>>(),
        [""; 0],
        "in the README, and not in slotd(1)"
    );
}

#[test]
fn no_page_and_no_completion_is_written_through_a_link() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("mine"), "precious").unwrap();
    for (words, name) in [
        (&["man"][..], "sbatch.1"),
        (&["completions", "zsh"], "_sbatch"),
        (&["completions", "bash"], "sbatch"),
    ] {
        let _ = fs::remove_dir_all(at("made"));
        fs::create_dir(at("made")).unwrap();
        std::os::unix::fs::symlink(at("mine"), at("made").join(name)).unwrap();
        must(Command::new(program()).args(words).arg(at("made")), String::new);
        let made = at("made").join(name);
        assert!(fs::symlink_metadata(&made).unwrap().is_file(), "{words:?}");
        assert!(fs::read_to_string(&made).unwrap().contains("sbatch"), "{words:?}");
        assert_eq!(fs::read_to_string(at("mine")).unwrap(), "precious", "{words:?}");
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    let refused = |words: &[&str], code: i32, text: &str| {
        let out = Command::new(program()).args(words).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.starts_with("slotd: error: ") && said.contains(text), "{words:?}: {said}");
    };
    refused(&["man"], 2, "<DIR>");
    refused(&["completions", "bash"], 2, "<DIR>");
    refused(&["completions", "csh", "/tmp"], 2, "csh");
    refused(&["man", "/dev/null/x"], 1, "/dev/null/x");
}
