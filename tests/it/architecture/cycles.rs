//! Checks that few files of a layer depend on each other in a circle.

use super::{CRATES, Source, identifier, layers, names, sources};
use std::collections::{BTreeMap, BTreeSet};

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
                "crate" if CRATES.contains(&self.name) => {
                    known.clear();
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
        let absolute = if CRATES.contains(&self.name) {
            "crate::".to_owned()
        } else {
            format!("crate::{}::", self.name)
        };
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
    for layer in layers() {
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
    let cycle_in = |layer, files: &[(&str, &str)]| {
        let module = |name: &str| name.split_terminator("::").map(str::to_owned).collect();
        let modules = files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
        largest_cycle(&named_modules(layer, &modules))
    };
    let cycle = |files: &[(&str, &str)]| cycle_in("layer", files);
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
    // In a crate of its own, the layer is not part of the path.
    let back = ("b", "use crate::a::D;");
    for text in ["use crate::b::C;", "use crate::{b::C, c::D};", "fn f() { crate::b::g() }"] {
        assert_eq!(cycle_in("sched", &[("", ""), ("a", text), back]), ["a", "b"], "{text}");
    }
    let reexport = ("", "pub use b::C;");
    assert_eq!(cycle_in("sched", &[reexport, ("a", "use crate::C;"), back]), ["a", "b"]);
}
