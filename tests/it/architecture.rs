//! Checks what Cargo does not check about the architecture of `src`: which layers of the program's
//! own crate may use which, which layers are pure, which external crates belong to which layer, and
//! whether anything that a crate makes public is unused.
//!
//! Only the text of `src` is read, without its tests and comments.

mod cycles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers that are crates, with their own `Cargo.toml`. Cargo checks which crates each of them
/// may use.
const CRATES: [&str; 10] = [
    "model", "parse", "sched", "stepmgr", "render", "protocol", "store", "sys", "exec", "shortcut",
];

/// A layer of the program's own crate, and the other layers that it may use.
const LAYERS: [(&str, &[&str]); 9] = [
    ("live", &["model", "protocol"]),
    ("tui", &["model", "render", "protocol", "live"]),
    // parse: parts of a request that stay text until they are used (file name patterns,
    // constraints, bindings).
    ("actors", &["model", "sched", "store", "exec", "sys", "protocol", "parse"]),
    // parse: the values of settings and of slotd.toml.
    ("daemon", &["model", "sched", "store", "exec", "sys", "protocol", "actors", "parse"]),
    ("client", &["model", "protocol", "exec", "sys"]),
    ("stepmgrd", &["model", "stepmgr", "client", "protocol", "exec", "sys", "parse"]),
    ("args", &["model", "parse"]),
    // args: how command lines are split, and how their errors look.
    ("clusters", &["model", "args", "parse", "sys"]),
    // "daemon" and "exec": the same binary is also the daemon and its launcher, and a client sends
    // the daemon the identity of its process. "shortcut": it runs before the commands.
    (
        "commands",
        &[
            "model", "args", "client", "clusters", "parse", "render", "protocol", "sys", "daemon",
            "exec", "stepmgr", "stepmgrd", "tui", "live", "shortcut",
        ],
    ),
];

const PURE: [&str; 7] = ["model", "parse", "sched", "stepmgr", "render", "live", "tui"];

/// I/O, and everything that reads a clock.
const IMPURE: [&str; 16] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "std::os",
    "std::thread",
    "std::io",
    "std::time::Instant",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "TimeZone::system",
    "println!",
    "eprintln!",
    "dbg!",
];

/// The external crates that the pure layers of the program's own crate may use. The other layers
/// have them in their `Cargo.toml`.
const PURE_CRATES: [(&str, &[&str]); 2] = [
    ("live", &[]),
    // crossterm: only the names of its keys.
    ("tui", &["crossterm", "ratatui"]),
];

/// External crates that only these layers of the program's own crate may name.
const RESTRICTED_CRATES: [(&str, &[&str]); 10] = [
    ("actix", &["actors", "daemon"]),
    ("actix_web", &["commands"]),
    ("clap", &["args", "commands"]),
    ("clap_complete", &["commands"]),
    ("clap_mangen", &["commands"]),
    ("crossterm", &["tui", "commands"]),
    ("mail_builder", &["commands"]),
    ("plotters", &["commands"]),
    ("ratatui", &["tui", "commands"]),
    ("ureq", &["commands"]),
];

struct Source {
    path: PathBuf,
    layer: String,
    /// The code without comments and tests, but with its strings.
    text: String,
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The condition of code that the unit tests of other crates use, too.
const TEST_SUPPORT: &str = "#[cfg(any(test, feature = \"test-support\"))]";

/// Returns the files of modules that are compiled only for tests, and those of their submodules.
fn test_files(all: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in all {
        let text = fs::read_to_string(path).unwrap();
        let dir = match path.file_name().unwrap().to_str().unwrap() {
            "mod.rs" | "lib.rs" | "main.rs" => path.parent().unwrap().to_owned(),
            _ => path.with_extension(""),
        };
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let is_condition = line == "#[cfg(test)]" || line == TEST_SUPPORT;
            if is_condition
                && let Some(module) = lines
                    .find(|line| !line.starts_with("#["))
                    .and_then(|l| l.split("mod ").nth(1)?.strip_suffix(';'))
            {
                found.insert(dir.join(format!("{module}.rs")));
            }
        }
    }
    let folders: Vec<PathBuf> = found.iter().map(|path| path.with_extension("")).collect();
    let is_inside = |path: &&PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    found.extend(all.iter().filter(is_inside).cloned());
    found
}

fn code(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next_is_tests =
            lines.peek().is_some_and(|next| next.trim_start().starts_with("mod tests {"));
        if line.trim() == "#[cfg(test)]" && next_is_tests {
            break;
        }
        let kept = match line.find("//") {
            // Not inside a string such as "http://" or a path pattern.
            Some(at) if !line[..at].contains('"') => &line[..at],
            _ => line,
        };
        out.push_str(kept);
        out.push('\n');
    }
    out
}

fn sources() -> Vec<Source> {
    let mut all = Vec::new();
    files(&src(), &mut all);
    let tests = test_files(&all);
    let sources: Vec<Source> = all
        .into_iter()
        .filter(|path| !tests.contains(path) && !path.ends_with("build.rs"))
        .filter_map(|path| {
            let inside = path.strip_prefix(src()).unwrap();
            let layer = inside.parent()?.components().next()?.as_os_str().to_str()?.to_owned();
            Some(Source {
                layer,
                text: code(&fs::read_to_string(&path).unwrap()),
                path: inside.to_owned(),
            })
        })
        .collect();
    assert!(sources.len() > 50, "the source was not found: {} files", sources.len());
    sources
}

/// Returns the names after `crate::`, including those in a group (`use crate::{live, args::value}`),
/// and the layers that are crates.
fn uses(text: &str) -> BTreeSet<String> {
    let is_named = |layer: &&str| names(text, &format!("slotd_{layer}"));
    let mut found: BTreeSet<String> =
        CRATES.into_iter().filter(is_named).map(str::to_owned).collect();
    for (at, _) in text.match_indices("crate::") {
        // `$crate::` and `xcrate::` do not refer to this crate.
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            for (i, c) in group.char_indices() {
                match c {
                    '}' if depth == 0 => break,
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && depth == 0 && c.is_alphabetic() => {
                        found.insert(identifier(&group[i..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            found.insert(identifier(rest));
        }
    }
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the first names of the `use` lines, which may be crates.
fn crates(text: &str) -> BTreeSet<String> {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("pub ").trim_start_matches("pub(super) "));
    lines
        .filter_map(|line| line.strip_prefix("use "))
        .map(identifier)
        .filter(|name| {
            !["crate", "self", "super", "std", "core"].contains(&name.as_str()) && !name.is_empty()
        })
        .collect()
}

/// Returns whether the text names the crate anywhere, not only in a `use`.
fn names(text: &str, name: &str) -> bool {
    text.match_indices(&format!("{name}::")).any(|(at, _)| {
        !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '"')
    })
}

/// Returns the names of the files in a directory of this package.
fn files_in(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// A program without a test harness, and therefore not a module of `it`. It runs for as long as the
/// user requests.
const STANDALONE: &str = "torture";

#[test]
fn every_test_that_the_book_names_exists() {
    let mut known = BTreeSet::new();
    let mut folders = vec![src(), src().with_file_name("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let tests = text
                    .split("#[test]\n")
                    .skip(1)
                    .filter_map(|rest| rest.trim_start().strip_prefix("fn "));
                known.extend(tests.filter_map(|rest| rest.split('(').next()).map(str::to_owned));
            }
        }
    }
    let page = include_str!("../../contrib/book/src/concepts/survival.md");
    let rows = page
        .split("| shown by |")
        .skip(1)
        .flat_map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')));
    let mut named = 0;
    for name in rows.flat_map(|row| row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2)) {
        let is_known = known.contains(name) || src().with_file_name(name).exists();
        assert!(is_known, "survival.md names the test {name}, which does not exist");
        named += 1;
    }
    assert!(named > 15, "only {named} tests are named by the book");
}

#[test]
fn every_test_file_is_run_and_those_outside_it_are_separate_programs() {
    let names = |folder| {
        files_in(folder)
            .iter()
            .filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned()))
            .collect()
    };
    let (inside, beside): (BTreeSet<String>, BTreeSet<String>) =
        (names("tests/it"), names("tests"));
    let main = include_str!("main.rs");
    let modules: BTreeSet<String> = main
        .lines()
        .filter_map(|line| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned()))
        .collect();
    let together = inside
        .iter()
        .filter(|file| *file != "main")
        .chain(beside.iter().filter(|file| *file != STANDALONE));
    assert_eq!(modules, together.cloned().collect(), "tests/it/main.rs");
    let manifest = include_str!("../../Cargo.toml");
    let programs: BTreeSet<String> = manifest
        .split("[[test]]\nname = \"")
        .skip(1)
        .filter_map(|test| test.split_once("\"\ntest = false").map(|(name, _)| name.to_owned()))
        .collect();
    assert_eq!(programs, beside, "[[test]] in Cargo.toml");
}

#[test]
fn every_directory_of_src_is_a_layer() {
    let found: BTreeSet<String> = sources().into_iter().map(|s| s.layer).collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), layers());
    for layer in found {
        let is_crate = src().join(&layer).join("Cargo.toml").exists();
        assert_eq!(is_crate, CRATES.contains(&layer.as_str()), "{layer}");
    }
}

/// Returns the names of all layers.
fn layers() -> BTreeSet<&'static str> {
    LAYERS.iter().map(|(name, _)| *name).chain(CRATES).collect()
}

#[test]
fn the_crate_root_lists_every_module_and_whether_it_is_pure() {
    let root = fs::read_to_string(src().join("lib.rs")).unwrap();
    let mapped: BTreeSet<(&str, bool)> = root
        .lines()
        .skip_while(|line| !line.starts_with("//! | layer |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("//! | `"))
        .map(|row| (row.split('`').next().unwrap(), row.trim_end().ends_with("| yes |")))
        .collect();
    let declared = root
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let declared: BTreeSet<(&str, bool)> =
        declared.chain(CRATES).map(|name| (name, PURE.contains(&name))).collect();
    assert!(declared.len() > 10, "the modules were not found: {declared:?}");
    // The protocol only computes, but some of its errors contain an I/O error.
    let mapped: BTreeSet<_> =
        mapped.into_iter().map(|(name, pure)| (name, pure && name != "protocol")).collect();
    assert_eq!(mapped, declared);
}

#[test]
fn layers_use_only_the_layers_they_are_allowed_to() {
    let layers = layers();
    let mut wrong = Vec::new();
    for source in sources() {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == source.layer) else {
            continue;
        };
        for used in uses(&source.text) {
            let is_layer = layers.contains(used.as_str());
            let fine = used == source.layer || allowed.contains(&used.as_str());
            if is_layer && !fine {
                wrong.push(format!("{} uses {used}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_layers_do_no_io_and_read_no_environment_or_clock() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| PURE.contains(&s.layer.as_str())) {
        for word in IMPURE {
            if source.text.contains(word) {
                wrong.push(format!("{} names {word}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_layers_use_only_crates_without_io() {
    let mut wrong = Vec::new();
    for source in sources() {
        let Some((_, allowed)) = PURE_CRATES.iter().find(|(name, _)| *name == source.layer) else {
            continue;
        };
        for name in crates(&source.text) {
            // A `use` may also begin with one of our modules or types.
            let foreign = dependencies().contains(&name);
            if foreign && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{} uses the crate {name}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn restricted_crates_are_used_only_in_their_layers() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !CRATES.contains(&source.layer.as_str())) {
        for (name, allowed) in RESTRICTED_CRATES {
            if names(&source.text, name) && !allowed.contains(&source.layer.as_str()) {
                wrong.push(format!("{} uses {name}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_daemon_reads_its_variables_in_one_place() {
    let mut wrong = Vec::new();
    for source in sources() {
        let inside_daemon =
            ["actors", "daemon", "store", "exec", "sched"].contains(&source.layer.as_str());
        if inside_daemon && (source.text.contains("env::var") || source.text.contains("env::vars"))
        {
            wrong.push(source.path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn there_is_no_unfinished_or_hidden_dead_code() {
    let mut wrong = Vec::new();
    for source in sources() {
        for word in ["todo!", "unimplemented!", "allow(dead_code", "allow(unused"] {
            if source.text.contains(word) {
                wrong.push(format!("{} has {word}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_source_file_has_a_module_comment() {
    let mut all = Vec::new();
    files(&src(), &mut all);
    let undocumented: Vec<&PathBuf> = all
        .iter()
        .filter(|path| !fs::read_to_string(path).unwrap().trim_start().starts_with("//!"))
        .collect();
    assert!(undocumented.is_empty(), "without a module comment: {undocumented:#?}");
}

/// Returns the external crates among the program's dependencies, as they are spelled in code.
fn dependencies() -> BTreeSet<String> {
    let manifest = include_str!("../../Cargo.toml");
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .take_while(|line| *line != "[dev-dependencies]");
    let found: BTreeSet<String> = lines
        .filter_map(|line| line.split_once(".workspace"))
        .filter(|(name, _)| !name.starts_with("slotd-"))
        .map(|(name, _)| name.replace('-', "_"))
        .collect();
    assert!(found.len() > 20, "the dependencies were not found: {found:?}");
    found
}

/// Returns the names of the functions, constants and modules that a crate makes public, without
/// those for tests. Types are not among them: a type that nobody names may still be the result of
/// a function.
fn public_items(text: &str) -> Vec<&str> {
    let words = ["const ", "async ", "unsafe ", "fn ", "static ", "mod "];
    let (mut found, mut is_for_tests) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[") {
            is_for_tests |= line == "#[cfg(test)]" || line == TEST_SUPPORT;
            continue;
        }
        let rest = line.strip_prefix("pub ").filter(|_| !is_for_tests);
        is_for_tests = false;
        let Some(mut rest) = rest else { continue };
        let mut is_item = false;
        while let Some(after) = words.iter().find_map(|word| rest.strip_prefix(word)) {
            (is_item, rest) = (true, after);
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if is_item && end > 0 {
            found.push(&rest[..end]);
        }
    }
    found
}

/// Returns the identifiers in a text.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The compiler reports unused code only inside a crate, so nothing is public without need. The
/// items are compared by name.
#[test]
fn public_items_of_crates_are_used_by_others() {
    let sources = sources();
    let owner = |source: &Source| CRATES.into_iter().find(|name| *name == source.layer);
    let mut users: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
    for source in &sources {
        for word in identifiers(&source.text) {
            users.entry(word).or_default().insert(owner(source));
        }
    }
    let mut seen = 0;
    let mut unused = Vec::new();
    for source in sources.iter().filter(|source| owner(source).is_some()) {
        for name in public_items(&source.text) {
            seen += 1;
            if users[name].iter().all(|user| *user == owner(source)) {
                unused.push(format!("{}: {name}", source.path.display()));
            }
        }
    }
    assert!(seen > 500, "only {seen} public items were found");
    assert!(unused.is_empty(), "public, but unused in other crates: {unused:#?}");
}

#[test]
fn public_items_are_found_in_every_form() {
    let text = "pub fn a() {}\n    pub(crate) fn no() {}\n    pub const fn b() {}\npub const C: u8 = 1;\npub mod d;\npub struct No;\n#[cfg(test)]\n#[must_use]\npub fn no() {}\n#[must_use]\npub async fn e<T>() {}\nfn no() {}\npub unsafe fn f() {}";
    assert_eq!(public_items(text), ["a", "b", "C", "d", "e", "f"]);
}

#[test]
fn crates_warn_about_public_items_that_nobody_can_reach() {
    for layer in CRATES {
        let root = fs::read_to_string(src().join(layer).join("mod.rs")).unwrap();
        assert!(root.contains("#![warn(unreachable_pub)]"), "{layer}");
    }
}

#[test]
fn uses_are_found_in_every_form() {
    let text = "use crate::live::Queue;\nuse crate::{args::value, tui};\nfn f() { crate::client::ask(slotd_model::JobId(1)) }\n$crate::no";
    let found: Vec<String> = uses(text).into_iter().collect();
    assert_eq!(found, ["args", "client", "live", "model", "no", "tui"]);
    assert!(names("fn f() { diesel::delete() }", "diesel"));
    assert!(!names("a::diesel::x; mydiesel::y", "diesel"));
    assert_eq!(code("a // std::fs\n#[cfg(test)]\nmod tests {\n std::fs\n}"), "a \n");
}
