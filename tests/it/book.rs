//! The book in contrib/book: its generated pages are up to date, its links resolve, and its
//! commands run.

use expect_test::expect_file;
use slotd_kit::{PATIENCE, Slotd, until};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn book() -> PathBuf {
    repository().join("contrib/book/src")
}

/// Returns the text of a page, with included files.
fn read(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let lines = text.lines().map(|line| {
        let included = line.strip_prefix("{{#include ").and_then(|line| line.strip_suffix("}}"));
        included.map_or_else(|| line.to_owned(), |path| read(&page.parent().unwrap().join(path)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the names of all pages, relative to the book: `guides/arrays.md`.
fn pages() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![book()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.insert(path.strip_prefix(book()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    assert!(found.remove("SUMMARY.md"), "the summary was not found");
    found
}

/// `UPDATE_EXPECT=1` updates the pages.
#[test]
fn the_generated_reference_is_up_to_date() {
    let dir = slotd_kit::tempdir();
    let slotd = Slotd::setup().prepare();
    slotd.cmd("slotd", &[Path::new("reference"), dir.path()]).ok();
    for page in fs::read_dir(dir.path()).unwrap() {
        let page = page.unwrap();
        let text = fs::read_to_string(page.path()).unwrap();
        expect_file![book().join("reference").join(page.file_name())].assert_eq(&text);
    }
}

#[test]
fn the_summary_lists_every_page() {
    let listed: BTreeSet<String> = links(&read(&book().join("SUMMARY.md"))).into_iter().collect();
    assert_eq!(listed, pages());
}

// Links

/// Returns the lines outside code blocks, without code spans.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut out = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            out.extend(line.split('`').step_by(2));
            out.push('\n');
        }
    }
    out
}

fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// Returns the anchors of the headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts = HashMap::new();
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        let Some(title) = heading.strip_prefix(' ').filter(|_| !is_code && heading != line) else {
            continue;
        };
        let kept = title.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
        });
        let anchor: String = kept.collect();
        let count = counts.entry(anchor.clone()).or_insert(0);
        found.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    found
}

#[test]
fn every_link_resolves() {
    let others = ["README.md", "examples/README.md", "tests/README.md"];
    let all = pages().into_iter().map(|page| book().join(page));
    let mut wrong = Vec::new();
    for page in all.chain(others.map(|page| repository().join(page))) {
        let text = read(&page);
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { beside(&page, path) };
            // The book is published without the rest of the repository.
            let is_inside = !page.starts_with(book()) || target.starts_with(book());
            let is_there =
                target.exists() && (anchor.is_empty() || anchors(&read(&target)).contains(anchor));
            if !is_inside || !is_there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Resolves a path relative to a page.
fn beside(page: &Path, path: &str) -> PathBuf {
    let mut target = page.parent().unwrap().to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            part => target.push(part),
        }
    }
    target
}

// Commands

/// An instruction of a page to its reader.
enum Action {
    Write { file: String, text: String },
    Run { line: usize, command: String },
}

/// Returns the files and commands of a page in their order.
///
/// In a block `console` the lines that begin with `$ ` are commands, continued after a `\`. A block
/// `LANGUAGE,file=NAME` is a file. Blocks marked `norun` are ignored.
fn actions(text: &str) -> Vec<Action> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, fence)) = lines.next() {
        let Some(info) = fence.strip_prefix("```") else { continue };
        let words: Vec<&str> = info.split(',').collect();
        let block: Vec<(usize, &str)> =
            lines.by_ref().take_while(|(_, line)| !line.starts_with("```")).collect();
        if words.contains(&"norun") {
            continue;
        }
        if let Some(file) = words.iter().find_map(|word| word.strip_prefix("file=")) {
            let text = block.iter().map(|(_, line)| format!("{line}\n")).collect();
            found.push(Action::Write { file: file.to_owned(), text });
        }
        if words[0] != "console" {
            continue;
        }
        let mut block = block.into_iter();
        while let Some((at, line)) = block.next() {
            let Some(command) = line.strip_prefix("$ ") else { continue };
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command += &format!("\n{}", block.next().map_or("", |(_, line)| line));
            }
            found.push(Action::Run { line: at + 1, command });
        }
    }
    found
}

/// The settings of a page's daemon. Two CPUs are enough for each page.
const SETTINGS: &str = "SLOTD_CPUS=2\nSLOTD_MEMORY_MB=4096\nSLOTD_GPU_COUNT=0\nSLOTD_KILL_WAIT=1\nSLOTD_SENDMAIL=off\n";

/// Runs the commands of a page in a new directory, with a daemon that was started as a reader starts it, so
/// that the page can stop it and start it again.
fn runs(page: &str) {
    let slotd = Slotd::setup().prepare();
    let settings = slotd.base.join("home/.config/slotd/slotd.env");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    fs::write(settings, SETTINGS).unwrap();
    slotd.line("slotd daemon start").ok();
    for action in actions(&read(&book().join(page))) {
        match action {
            Action::Write { file, text } => drop(slotd.program(&file, &text)),
            Action::Run { line, command } => {
                let output = slotd.base.join("output");
                let log = File::create(&output).unwrap();
                let mut shell = slotd.shell();
                shell.arg("-c").arg(&command).stdout(log.try_clone().unwrap()).stderr(log);
                let mut child = shell.spawn().unwrap();
                let status = until(|| child.try_wait().unwrap());
                let how = status.map_or_else(
                    || format!("still running after {PATIENCE:?}"),
                    |status| status.to_string(),
                );
                assert!(
                    status.is_some_and(|status| status.success()),
                    "{page}:{line}: {how}\n$ {command}\n{}\n--- daemon\n{}",
                    String::from_utf8_lossy(&fs::read(output).unwrap()),
                    fs::read_to_string(slotd.root.join("run/slotd.log")).unwrap_or_default(),
                );
            }
        }
    }
}

/// One test for each page with commands, so that they run in parallel.
macro_rules! page_tests {
    ($($test:ident: $page:literal,)+) => {
        const RUN: &[&str] = &[$($page),+];
        $(#[test]
        fn $test() {
            runs($page);
        })+
    };
}

#[test]
fn every_page_with_commands_has_a_test() {
    let has_commands = |page: &String| {
        actions(&read(&book().join(page))).iter().any(|action| matches!(action, Action::Run { .. }))
    };
    let expected: Vec<String> = pages().into_iter().filter(has_commands).collect();
    assert_eq!(RUN, expected);
}

page_tests! {
    concepts_accounting: "concepts/accounting.md",
    concepts_cpus_memory: "concepts/cpus-memory.md",
    concepts_gpus: "concepts/gpus.md",
    concepts_history: "concepts/history.md",
    concepts_life: "concepts/life.md",
    concepts_policies: "concepts/policies.md",
    concepts_scheduling: "concepts/scheduling.md",
    concepts_security: "concepts/security.md",
    concepts_survival: "concepts/survival.md",
    first_hour: "first-hour.md",
    from_cron: "from/cron.md",
    from_gflow: "from/gflow.md",
    from_hyperqueue: "from/hyperqueue.md",
    from_parallel: "from/parallel.md",
    from_pueue: "from/pueue.md",
    from_slurm: "from/slurm.md",
    from_task_spooler: "from/task-spooler.md",
    guides_again: "guides/again.md",
    guides_arrays: "guides/arrays.md",
    guides_batch_jobs: "guides/batch-jobs.md",
    guides_gpus: "guides/gpus.md",
    guides_interactive: "guides/interactive.md",
    guides_many_tasks: "guides/many-tasks.md",
    guides_mpi: "guides/mpi.md",
    guides_notifications: "guides/notifications.md",
    guides_pipelines: "guides/pipelines.md",
    guides_tools: "guides/tools.md",
    guides_watching: "guides/watching.md",
    install: "install.md",
    introduction: "introduction.md",
    performance: "performance.md",
    reference_environment: "reference/environment.md",
    reference_exit_codes: "reference/exit-codes.md",
    reference_files: "reference/files.md",
    reference_json: "reference/json.md",
    reference_manager_socket: "reference/manager-socket.md",
    reference_slotd_toml: "reference/slotd-toml.md",
    troubleshooting: "troubleshooting.md",
}
