//! Compares the man pages with the commands that exist and the settings that the daemon reads.

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
fn every_command_has_a_man_page_and_slotd_env_lists_all_settings() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let man = dir.path().join("share/man");
    must(Command::new(program()).arg("man").arg(&man), String::new);
    let pages = |section: &str| {
        let mut names: Vec<String> = fs::read_dir(man.join(section))
            .expect("the directory of pages")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let mut expected: Vec<String> = commands().into_iter().chain(["slotd".to_owned()]).collect();
    expected.sort();
    assert_eq!(pages("man1"), expected.iter().map(|name| format!("{name}.1")).collect::<Vec<_>>());
    assert_eq!(pages("man5"), ["clusters.toml.5", "slotd.env.5", "slotd.toml.5"]);

    // Names are surrounded by font changes.
    let page = fs::read_to_string(man.join("man5/slotd.env.5")).expect("text");
    let page = variables(&page.replace("\\fB", " ").replace("\\fR", " "));
    let settings = source("src/daemon/settings.rs");
    let table = settings.split("\nsettings! {").nth(1).expect("the table of settings");
    let read = variables(table.split("\n}\n").next().expect("its end"));
    assert!(read.len() > 10, "{read:?}");
    assert_eq!(
        read.difference(&page).collect::<Vec<_>>(),
        [""; 0],
        "read by the daemon, but not in slotd.env(5)"
    );

    let page = fs::read_to_string(man.join("man1/sjobmgr.1")).expect("text");
    assert!(page.contains("\n.SS \"sjobmgr release\"\n"), "{page}");
}

#[test]
fn help_of_a_command_is_its_help_option() {
    let print = |words: &[&str]| must(Command::new(program()).args(words), String::new);
    for command in ["why", "sbatch", "run"] {
        assert_eq!(print(&["help", command]), print(&[command, "--help"]));
    }
    assert_eq!(print(&["help", "db", "check"]), print(&["db", "check", "--help"]));
    assert_eq!(print(&["help"]), print(&["--help"]));
}

#[test]
fn pages_and_completions_replace_only_files_of_slotd() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("mine"), "precious").unwrap();
    for (words, name) in [
        (&["man"][..], "man1/sbatch.1"),
        (&["completions", "zsh"], "_sbatch"),
        (&["completions", "bash"], "sbatch"),
    ] {
        let _ = fs::remove_dir_all(at("made"));
        let made = at("made").join(name);
        fs::create_dir_all(made.parent().unwrap()).unwrap();
        let write = || {
            let written = Command::new(program()).args(words).arg(at("made")).output().unwrap();
            assert!(written.status.success(), "{words:?}: {written:?}");
            String::from_utf8(written.stderr).unwrap()
        };
        let kept = format!("slotd: warning: kept {}, which is not slotd's\n", made.display());
        std::os::unix::fs::symlink(at("mine"), &made).unwrap();
        assert_eq!(write(), kept);
        assert!(made.is_symlink(), "{words:?}");
        assert_eq!(fs::read_to_string(at("mine")).unwrap(), "precious", "{words:?}");
        fs::remove_file(&made).unwrap();
        fs::write(&made, "another program's\n").unwrap();
        assert_eq!(write(), kept);
        assert_eq!(fs::read_to_string(&made).unwrap(), "another program's\n", "{words:?}");
        fs::remove_file(&made).unwrap();
        assert_eq!(write(), "");
        let text = fs::read_to_string(&made).unwrap();
        assert!(text.contains("sbatch"), "{words:?}");
        // An older version of the same page.
        fs::write(&made, text.replace("sbatch", "")).unwrap();
        assert_eq!(write(), "");
        assert_eq!(fs::read_to_string(&made).unwrap(), text, "{words:?}");
    }
}

#[test]
fn pages_that_cannot_be_written_are_an_error() {
    let refused = |words: &[&str], code: i32, text: &str| {
        let out = Command::new(program()).args(words).output().expect("a running process");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(
            stderr.starts_with("slotd: error: ") && stderr.contains(text),
            "{words:?}: {stderr}"
        );
    };
    refused(&["man"], 2, "<DIR>");
    refused(&["completions", "bash"], 2, "<DIR>");
    refused(&["completions", "csh", "/tmp"], 2, "csh");
    refused(&["man", "/dev/null/x"], 1, "/dev/null/x");
}
