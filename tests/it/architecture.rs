//! Checks the architecture of `src`: which layers may use which, which are pure, and which crates
//! belong to which layer.
//!
//! Only the text of `src` is read, without its tests and comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A layer and the layers that it may use besides itself.
const LAYERS: [(&str, &[&str]); 18] = [
    ("model", &[]),
    ("parse", &["model"]),
    ("sched", &["model", "parse"]),
    ("stepmgr", &["model", "parse"]),
    ("render", &["model"]),
    ("protocol", &["model"]),
    ("live", &["model", "protocol"]),
    ("tui", &["model", "render", "protocol", "live"]),
    ("store", &["model"]),
    // protocol: the launcher and the watchers use the same codec.
    ("exec", &["model", "sys", "protocol"]),
    ("sys", &["model"]),
    // parse: parts of a request that stay text until they are used (file name patterns,
    // constraints, bindings).
    ("actors", &["model", "sched", "store", "exec", "sys", "protocol", "parse"]),
    // parse: the values of settings and of slotd.toml.
    ("daemon", &["model", "sched", "store", "exec", "sys", "protocol", "actors", "parse"]),
    ("client", &["model", "protocol", "exec", "sys"]),
    ("stepmgrd", &["model", "stepmgr", "client", "protocol", "exec", "sys", "parse"]),
    ("args", &["model", "parse"]),
    // args: how command lines are split, and how their errors look.
    ("clusters", &["args", "parse", "sys"]),
    // "daemon" and "exec": the same binary is also the daemon and its launcher, and a client sends
    // the daemon the identity of its process.
    (
        "commands",
        &[
            "model", "args", "client", "clusters", "parse", "render", "protocol", "sys", "daemon",
            "exec", "stepmgr", "stepmgrd", "tui", "live",
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

/// The crates that the pure layers may use. Any other crate would do I/O or belongs to an outer
/// layer.
const PURE_CRATES: [(&str, &[&str]); 7] = [
    ("model", &["serde", "wildmatch"]),
    ("parse", &["serde", "jiff", "shlex", "strsim"]),
    ("sched", &["serde"]),
    ("stepmgr", &["serde", "serde_json", "toml", "csv", "wildmatch"]),
    ("render", &["serde", "serde_json", "jiff", "thiserror"]),
    ("live", &[]),
    // crossterm: only the names of its keys.
    ("tui", &["crossterm", "ratatui"]),
];

/// Crates that only these layers may name.
const RESTRICTED_CRATES: [(&str, &[&str]); 14] = [
    ("actix", &["actors", "daemon"]),
    ("actix_web", &["commands"]),
    ("diesel", &["store"]),
    ("diesel_migrations", &["store"]),
    ("clap", &["args", "commands"]),
    ("clap_complete", &["commands"]),
    ("clap_mangen", &["commands"]),
    ("cgroups_rs", &["exec"]),
    ("crossterm", &["tui", "commands"]),
    ("flate2", &["store"]),
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

/// Returns the files of modules that are compiled only for tests.
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
            if line == "#[cfg(test)]"
                && let Some(module) =
                    lines.next().and_then(|l| l.split("mod ").nth(1)?.strip_suffix(';'))
            {
                found.insert(dir.join(format!("{module}.rs")));
            }
        }
    }
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
        .filter(|path| !tests.contains(path))
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

/// Returns the names after `crate::`, including those in a group:
/// `use crate::{model, parse::time}`.
fn uses(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
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
    let known: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<String> = sources().into_iter().map(|s| s.layer).collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), known);
}

#[test]
fn the_crate_root_lists_every_module_and_whether_it_is_pure() {
    let root = fs::read_to_string(src().join("lib.rs")).unwrap();
    let mapped: BTreeSet<(&str, bool)> = root
        .lines()
        .skip_while(|line| !line.starts_with("//! | module |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("//! | `"))
        .map(|row| (row.split('`').next().unwrap(), row.trim_end().ends_with("| yes |")))
        .collect();
    let declared = root
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let declared: BTreeSet<(&str, bool)> =
        declared.map(|name| (name, PURE.contains(&name))).collect();
    assert!(declared.len() > 10, "the modules were not found: {declared:?}");
    // The protocol only computes, but some of its errors contain an I/O error.
    let mapped: BTreeSet<_> =
        mapped.into_iter().map(|(name, pure)| (name, pure && name != "protocol")).collect();
    assert_eq!(mapped, declared);
}

#[test]
fn layers_use_only_the_layers_they_are_allowed_to() {
    let layers: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let mut wrong = Vec::new();
    for source in sources() {
        let allowed =
            LAYERS.iter().find(|(name, _)| *name == source.layer).map_or(&[][..], |(_, a)| a);
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
    for source in sources() {
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

/// Returns the names of the dependencies as they are spelled in code.
fn dependencies() -> BTreeSet<String> {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .take_while(|l| !l.starts_with("[profile"));
    lines
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

#[test]
fn uses_are_found_in_every_form() {
    let text = "use crate::model::Job;\nuse crate::{parse::time, render};\nfn f() { crate::sched::plan() }\n$crate::no";
    let found: Vec<String> = uses(text).into_iter().collect();
    assert_eq!(found, ["model", "no", "parse", "render", "sched"]);
    assert!(names("fn f() { diesel::delete() }", "diesel"));
    assert!(!names("a::diesel::x; mydiesel::y", "diesel"));
    assert_eq!(code("a // std::fs\n#[cfg(test)]\nmod tests {\n std::fs\n}"), "a \n");
}

/// The maximum number of files in an import cycle within a layer.
const LARGEST_CYCLE: usize = 5;

/// Layers with a lower maximum.
const SMALLER_CYCLES: [(&str, usize); 1] = [("sched", 3)];

/// Returns the paths at the beginning of a text: `a::b` and `a::c::D` for `a::{b, c::D}`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let name = identifier(text);
    if !name.is_empty() {
        let rest = text[name.len()..].strip_prefix("::").map(paths);
        let rest = rest.filter(|rest| !rest.is_empty()).unwrap_or_else(|| vec![Vec::new()]);
        return rest
            .into_iter()
            .map(|path| [name.clone()].into_iter().chain(path).collect())
            .collect();
    }
    let Some(group) = text.strip_prefix('{') else { return Vec::new() };
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                found.extend(paths(group[begin..at].trim()));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

type Module = Vec<String>;

/// Returns the code of a layer by module. The empty path is the layer's own `mod.rs`.
fn modules(layer: &str) -> BTreeMap<Module, String> {
    let of = |source: Source| {
        let inside = source.path.strip_prefix(layer).unwrap().with_extension("");
        let parts = inside.iter().map(|part| part.to_str().unwrap().to_owned());
        (parts.filter(|part| part != "mod").collect(), source.text)
    };
    sources().into_iter().filter(|source| source.layer == layer).map(of).collect()
}

/// Returns the paths in lines that begin with this word. `*` is returned as the name `GLOB`.
fn lines_of(text: &str, begin: &str) -> Vec<Vec<String>> {
    let text = text.replace("::*", "::GLOB");
    let starts = text.match_indices(begin).map(|(at, _)| at).collect::<Vec<_>>();
    let is_start = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    starts.into_iter().filter(is_start).flat_map(|at| paths(&text[at + begin.len()..])).collect()
}

/// The modules of a layer, with their re-exports.
struct Layer<'a> {
    name: &'a str,
    modules: &'a BTreeMap<Module, String>,
    /// The origin of each re-exported name, by module and name.
    reexports: BTreeMap<(Module, String), Vec<String>>,
}

impl Layer<'_> {
    fn new<'a>(name: &'a str, modules: &'a BTreeMap<Module, String>) -> Layer<'a> {
        let of = |(module, text): (&Module, &String)| {
            ["pub use ", "pub(super) use ", "pub(crate) use "]
                .iter()
                .flat_map(|begin| lines_of(text, begin))
                .filter(|path| path.len() > 1)
                .map(|path| ((module.clone(), path.last().unwrap().clone()), path))
                .collect::<Vec<_>>()
        };
        Layer { name, modules, reexports: modules.iter().flat_map(of).collect() }
    }

    /// Returns the module that defines the item at this path. Re-exports are followed to their
    /// origin.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Module> {
        let mut known = from.to_vec();
        let mut rest = path;
        while let Some((part, after)) = rest.split_first() {
            rest = after;
            match part.as_str() {
                "self" => continue,
                "super" => {
                    known.pop()?;
                    continue;
                }
                "crate" if after.first().is_some_and(|layer| layer == self.name) => {
                    known.clear();
                    rest = &after[1..];
                    continue;
                }
                "crate" => return None,
                _ => {}
            }
            known.push(part.clone());
            if self.modules.contains_key(&known) {
                continue;
            }
            known.pop();
            let by = |name: &str| self.reexports.get(&(known.clone(), name.to_owned()));
            let Some(origin) = by(part).or_else(|| by("GLOB")) else { break };
            let is_other = origin.as_slice() != path;
            return is_other.then(|| self.resolve(&known, origin)).flatten();
        }
        self.modules.contains_key(&known).then_some(known)
    }

    /// Returns the other modules that this one uses.
    fn named(&self, module: &Module) -> BTreeSet<Module> {
        let text = self.modules[module].as_str();
        let mut found = BTreeSet::new();
        let mut add = |from: &[String], path: &[String]| found.extend(self.resolve(from, path));
        let absolute = format!("crate::{}::", self.name);
        for (at, _) in text.match_indices(&absolute) {
            paths(&text[at + absolute.len()..]).iter().for_each(|path| add(&[], path));
        }
        for (at, _) in text.match_indices("super::").filter(|(at, _)| !text[..*at].ends_with("::"))
        {
            let after = text[at..].trim_start_matches("super::");
            let up = (text.len() - at - after.len()) / "super::".len();
            let above = &module[..module.len().saturating_sub(up)];
            let named = paths(after);
            // `super::*` names the parent module itself.
            if named.is_empty() {
                add(above, &[]);
            }
            named.iter().for_each(|path| add(above, path));
        }
        // A module names its children without `self`, in `use` lines and elsewhere.
        for begin in ["use ", "pub use "] {
            lines_of(text, begin).iter().for_each(|path| add(module, path));
        }
        for other in self.modules.keys().filter(|other| other.split_last().is_some()) {
            let (name, above) = other.split_last().unwrap();
            if above == module.as_slice() && names(text, name) {
                add(module, std::slice::from_ref(name));
            }
        }
        found.retain(|other| !other.is_empty() && other != module);
        found
    }
}

/// Returns the largest set of modules that all depend on each other, directly or indirectly.
fn largest_cycle(named: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(named[module].iter().filter(|other| seen.insert((*other).clone())));
        }
        seen
    };
    let reaches: BTreeMap<_, _> = named.keys().map(|module| (module, reached(module))).collect();
    let cycle = |module: &&Module| -> Vec<String> {
        let back = reaches[*module].iter().filter(|other| reaches[other].contains(*module));
        back.map(|module| module.join("::")).collect()
    };
    reaches.keys().map(cycle).max_by_key(Vec::len).unwrap_or_default()
}

/// Returns the dependencies of each module of a layer, except those of its `mod.rs`, which only
/// lists the others.
fn named_modules(
    name: &str,
    modules: &BTreeMap<Module, String>,
) -> BTreeMap<Module, BTreeSet<Module>> {
    let layer = Layer::new(name, modules);
    let inner = modules.keys().filter(|module| !module.is_empty());
    inner.map(|module| (module.clone(), layer.named(module))).collect()
}

#[test]
fn import_cycles_within_a_layer_are_small() {
    let mut wrong = Vec::new();
    for (layer, _) in LAYERS {
        let modules = modules(layer);
        assert!(modules.len() > 3, "the files of {layer} were not found: {}", modules.len());
        let cycle = largest_cycle(&named_modules(layer, &modules));
        let smaller = SMALLER_CYCLES.iter().find(|(name, _)| *name == layer);
        if cycle.len() > smaller.map_or(LARGEST_CYCLE, |(_, most)| *most) {
            wrong.push(format!("an import cycle of {} files in {layer}: {cycle:?}", cycle.len()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn import_cycles_are_found_in_every_form_of_use() {
    let cycle = |files: &[(&str, &str)]| {
        let module = |name: &str| name.split_terminator("::").map(str::to_owned).collect();
        let modules = files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
        largest_cycle(&named_modules("layer", &modules))
    };
    let back = ("b", "use crate::layer::a;");
    for text in [
        "use super::b;",
        "use super::{\n    c::D,\n    b::{C, E},\n};",
        "use crate::layer::b::C;",
        "fn f() { crate::layer::b::g() }",
        "fn f() { super::b::g() }",
    ] {
        assert_eq!(cycle(&[("", ""), ("a", text), back]), ["a", "b"], "{text}");
    }
    for root in ["pub use b::C;", "pub use self::b::{C, D};", "pub use b::*;"] {
        for text in ["use super::C;", "use crate::layer::C;"] {
            assert_eq!(cycle(&[("", root), ("a", text), back]), ["a", "b"], "{root} {text}");
        }
    }
    for below in ["use super::C;", "use super::*;"] {
        for above in ["mod b;\nfn f() { b::g() }", "mod b;\nuse b::g;"] {
            assert_eq!(cycle(&[("a", above), ("a::b", below)]), ["a", "a::b"], "{below} {above}");
        }
    }
    let none: [String; 0] = [];
    assert_eq!(cycle(&[("", "pub use b::C;"), ("a", "use crate::other::C;"), back]), none);
}
