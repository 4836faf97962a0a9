//! The files of an installation: commands, pages and scripts. Files of other programs are neither
//! replaced nor removed.

use super::layout::Layout;
use super::output::{fail, note, report_step};
use super::{record, service};
use crate::args::error::CliError;
use crate::commands::pages::{self, completions, manual};
use crate::commands::{COMMANDS, Entry};
use memchr::memmem;
use slotd_sys::files;
use slotd_sys::fresh::{self, Fresh};
use slotd_sys::paths::is_same_dir;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The beginning of the second line of every script written here.
const SCRIPT_MARK: &str = "# Written by the installer of slotd.";

/// Maximum size of the slotd program, in bytes. A debug build has 200 MB.
const MOST_PROGRAM: u64 = 1 << 30;

/// Maximum number of links from the environment file to its target, as in the kernel.
const MOST_LINKS: usize = 40;

/// Returns the names of the installed commands, without `slotd` itself.
fn command_names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(Entry::name)
}

pub fn make_dir(dir: &Path) -> Result<(), CliError> {
    fs::create_dir_all(dir).map_err(|e| {
        fail(format!(
            "cannot create the directory {}: {e}: check the owner of its parent",
            dir.display()
        ))
    })
}

pub fn make_private_dir(dir: &Path) -> Result<(), CliError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        fail(format!(
            "cannot create the directory {}: {e}: check the owner of its parent",
            dir.display()
        ))
    })
}

/// Writes the environment file. If it is a link, for example from a dotfiles manager, it remains
/// one, and its target is written.
///
/// # Errors
/// Fails like [`env_file_target`], or if the file cannot be written.
pub fn write_settings(env_file: &Path, text: &str) -> Result<(), CliError> {
    // The notification command may contain a secret.
    write_file(&env_file_target(env_file)?, text.as_bytes(), 0o600)
}

/// Returns the file to write for the environment file: itself, or the target of a link, which may
/// be missing.
///
/// # Errors
/// Fails if it is not a regular file, if its links form a loop, or if the directory of a link's
/// target does not exist.
fn env_file_target(env_file: &Path) -> Result<PathBuf, CliError> {
    let refused =
        |why: &str| fail(format!("{}: {why}: replace it or remove it", env_file.display()));
    let mut at = env_file.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(found) = at.symlink_metadata() else {
            let is_possible = at == env_file || at.parent().is_some_and(Path::is_dir);
            let why = || format!("its target {} has no directory", at.display());
            return if is_possible { Ok(at) } else { Err(refused(&why())) };
        };
        if !found.is_symlink() {
            files::check(&found).map_err(|e| refused(&e.to_string()))?;
            return Ok(at);
        }
        let target = fs::read_link(&at).map_err(|e| refused(&e.to_string()))?;
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    Err(refused("its links form a loop"))
}

/// Writes a program or script into the directory of the commands.
fn write_command(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    write_file(path, bytes, 0o755)
}

/// Writes a file to a temporary name and renames it. A link at the path is replaced, not followed.
pub fn write_file(place: &Path, bytes: &[u8], mode: u32) -> Result<(), CliError> {
    let write = || {
        let mut fresh = Fresh::new(place, mode)?;
        fresh.file.write_all(bytes)?;
        fresh.file.set_permissions(Permissions::from_mode(mode))?;
        fresh.replace()
    };
    write().map_err(|e| {
        let why = "check the directory's owner, mode and free space";
        fail(format!("cannot write {}: {e}: {why}", place.display()))
    })
}

pub fn remove(path: &Path) -> Result<(), CliError> {
    fs::remove_file(path).map_err(|e| undeleted(path, &e))
}

fn undeleted(path: &Path, e: &io::Error) -> CliError {
    fail(format!("cannot delete {}: {e}: delete it manually", path.display()))
}

/// The deletions of an uninstallation. It continues after a failure, and reports all failures at
/// the end.
#[derive(Default)]
pub struct Removal {
    failures: CliError,
    left: Vec<PathBuf>,
}

impl Removal {
    /// Deletes a file. Returns whether it is gone.
    pub fn remove(&mut self, path: &Path) -> bool {
        match fs::remove_file(path) {
            Ok(()) => true,
            Err(e) => {
                self.undeleted(path, &e);
                false
            }
        }
    }

    /// Records a file or directory that could not be deleted, for the report at the end.
    pub fn undeleted(&mut self, path: &Path, e: &io::Error) {
        self.failed(undeleted(path, e));
        self.left.push(path.to_owned());
    }

    /// Returns whether the report mentions this path or a directory above it.
    pub fn names(&self, path: &Path) -> bool {
        self.left.iter().any(|left| path.starts_with(left))
    }

    /// Records a failure, for the report at the end.
    pub fn failed(&mut self, error: CliError) {
        self.failures.lines.extend(error.lines);
        self.failures.exit = 1;
    }

    /// Fails with everything that could not be deleted.
    pub fn finish(self) -> Result<(), CliError> {
        if self.failures.lines.is_empty() { Ok(()) } else { Err(self.failures) }
    }
}

/// Returns whether a file was installed by slotd: a link to slotd or a marked script.
fn is_ours(path: &Path) -> bool {
    match fs::read_link(path) {
        Ok(target) => target == Path::new("slotd") || target == path.with_file_name("slotd"),
        Err(_) => head(path).lines().nth(1).is_some_and(|line| line.starts_with(SCRIPT_MARK)),
    }
}

/// Reads the beginning of a file, enough to recognize a script.
fn head(path: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    // An unreadable file is not ours.
    let _ = files::open(path).and_then(|file| file.take(200).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lists the paths in a directory. Returns nothing if the directory does not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(dir) else { return Vec::new() };
    found.flatten().map(|entry| entry.path()).collect()
}

/// Lists all files below a directory, recursively.
pub fn below(dir: &Path) -> Vec<PathBuf> {
    let is_dir = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let (dirs, mut files): (Vec<_>, Vec<_>) = entries(dir).into_iter().partition(is_dir);
    files.extend(dirs.iter().flat_map(|dir| below(dir)));
    files
}

/// Checks that no files of other programs are in the way, and that the directories for links exist.
///
/// # Errors
/// Fails if another program has the name of a command, or if a directory is missing.
pub fn refuse_others(layout: &Layout) -> Result<(), CliError> {
    let refused = |path: &Path, why: &str| {
        Err(fail(format!("{} exists and is not slotd's: {why}", path.display())))
    };
    let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
    let programs = [layout.bin_dir.join("slotd"), layout.program.clone()];
    let scripts = command_names().map(|name| layout.bin_dir.join(name));
    let scripts = scripts.chain([layout.daemon_script.clone()]);
    let foreign_script = scripts.filter(is_there).find(|path| !is_ours(path));
    let foreign = || programs.iter().find(|path| is_there(path) && !is_own_program(path)).cloned();
    if let Some(path) = foreign_script.or_else(foreign) {
        let why = "move it, or choose another directory with --install-bin-dir";
        return refused(&path, why);
    }
    if let Some(unit) = service::foreign_units(layout).first() {
        return refused(unit, "move it, or choose another directory with --systemd-user-dir");
    }
    record::check(layout)?;
    env_file_target(&layout.env_file)?;
    for dir in &layout.link_dirs {
        if !dir.is_dir() {
            return Err(fail(format!(
                "--link-dir: {} is not a directory: create it",
                dir.display()
            )));
        }
        if is_same_dir(dir, &layout.bin_dir) {
            return Err(fail(format!(
                "--link-dir: {} is the directory of the commands themselves: choose another one",
                dir.display()
            )));
        }
        let foreign =
            links(layout, dir).find(|(path, target)| is_there(path) && !is_link_to(path, target));
        if let Some((path, _)) = foreign {
            return refused(&path, "move it, or choose another --link-dir");
        }
    }
    Ok(())
}

/// Returns the links to the commands in a directory for links, and their targets.
fn links(layout: &Layout, dir: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    command_names().chain(["slotd"]).map(|name| (dir.join(name), layout.bin_dir.join(name)))
}

fn is_link_to(path: &Path, target: &Path) -> bool {
    fs::read_link(path).is_ok_and(|found| found == target)
}

/// Creates links to the commands in the directories for links, which are in everyone's `PATH`.
/// Login shells and programs that trim their environment do not find commands in a home directory.
/// Each directory gets all links or none, and is recorded before its first link.
///
/// # Errors
/// Fails if another file has the name of a command, or if this user cannot write to a directory.
pub fn link_commands(layout: &Layout) -> Result<(), CliError> {
    let mut recorded = layout.earlier_link_dirs.clone();
    for dir in &layout.link_dirs {
        report_step(&format!("link the commands in {}", dir.display()));
        let is_new = recorded.insert(dir.clone());
        record::write(layout, &layout.link_dirs_file, &recorded)?;
        let all: Vec<_> = links(layout, dir).collect();
        let Err((path, e)) = create_links(&all) else { continue };
        if is_new && !all.iter().any(|(path, target)| is_link_to(path, target)) {
            recorded.remove(dir);
            record::write(layout, &layout.link_dirs_file, &recorded)?;
        }
        return Err(unlinked(&path, &e, &all, dir));
    }
    Ok(())
}

/// Creates the links that are missing. If one cannot be created, deletes those created before, and
/// returns it with the cause.
fn create_links(all: &[(PathBuf, PathBuf)]) -> Result<(), (PathBuf, io::Error)> {
    let mut created = Vec::new();
    for (path, target) in all.iter().filter(|(path, target)| !is_link_to(path, target)) {
        if let Err(e) = symlink(target, path) {
            // Ignore errors: what remains stays recorded.
            created.iter().for_each(|path: &&PathBuf| drop(fs::remove_file(path)));
            return Err((path.clone(), e));
        }
        created.push(path);
    }
    Ok(())
}

/// Returns the error for a link that could not be created.
fn unlinked(path: &Path, e: &io::Error, all: &[(PathBuf, PathBuf)], dir: &Path) -> CliError {
    match e.kind() {
        io::ErrorKind::AlreadyExists => fail(format!(
            "{} exists and is not slotd's: move it, or choose another --link-dir",
            path.display()
        )),
        io::ErrorKind::PermissionDenied => {
            let targets: Vec<String> = all.iter().map(|(_, target)| quoted(target)).collect();
            let (targets, path) = (targets.join(" "), path.display());
            fail(format!("cannot create {path}: {e}: run sudo ln -s {targets} {}", quoted(dir)))
        }
        _ => fail(format!("cannot create {}: {e}: check the directory", path.display())),
    }
}

/// Removes the links that [`link_commands`] created. The directories that still contain some stay
/// recorded.
pub fn unlink_commands(layout: &Layout, removal: &mut Removal) {
    let is_kept = |dir: &&PathBuf| {
        let links = links(layout, dir).filter(|(path, target)| is_link_to(path, target));
        // Not `all`, which would stop at the first failure.
        links.filter(|(path, _)| !removal.remove(path)).count() > 0
    };
    let left: BTreeSet<PathBuf> = layout.link_dirs.iter().filter(is_kept).cloned().collect();
    if let Err(error) = record::write(layout, &layout.link_dirs_file, &left) {
        removal.failed(error);
    }
}

/// Installs this program, and the commands as links or scripts.
pub fn install_commands(layout: &Layout) -> Result<(), CliError> {
    let program =
        fs::read("/proc/self/exe").map_err(|e| fail(format!("cannot read this program: {e}")))?;
    write_command(&layout.program, &program)?;
    let names: BTreeSet<&str> = command_names().chain(["slotd"]).collect();
    // Remove the scripts of an earlier version. A link with another name is the user's. Without a
    // user manager, slotd-daemon is needed until its successor replaces it.
    let is_kept = |path: &Path| {
        *path == layout.daemon_script
            || path.file_name().and_then(|name| name.to_str()).is_some_and(|n| names.contains(n))
    };
    for path in entries(&layout.bin_dir).iter().filter(|path| !path.is_symlink() && is_ours(path)) {
        if !is_kept(path) {
            remove(path)?;
        }
    }
    if layout.is_default_root {
        for path in command_names().map(|name| layout.bin_dir.join(name)) {
            fresh::replace_by_link(&path, Path::new("slotd")).map_err(|e| {
                fail(format!("cannot create {}: {e}: check the directory's owner", path.display()))
            })?;
        }
        let earlier = layout.bin_dir.join("slotd.bin");
        return if is_program(&earlier) { remove(&earlier) } else { Ok(()) };
    }
    for name in names {
        let words = if name == "slotd" { String::new() } else { format!(" {name}") };
        let script = format!(
            "#!/bin/sh\n{SCRIPT_MARK} It sets the runtime root, which is not the default one.\n\
             if [ -z \"$SLOTD_ROOT\" ]; then SLOTD_ROOT={}; export SLOTD_ROOT; fi\nexec {}{words} \"$@\"\n",
            quoted(&layout.root),
            quoted(&layout.program),
        );
        write_command(&layout.bin_dir.join(name), script.as_bytes())?;
    }
    Ok(())
}

/// Installs `slotd-daemon`, which runs `slotd daemon` with the settings of this installation.
pub fn install_daemon_script(layout: &Layout) -> Result<(), CliError> {
    let (program, settings) = (quoted(&layout.program), quoted(&layout.env_file));
    let script =
        format!("#!/bin/sh\n{SCRIPT_MARK}\nexec {program} daemon --env-file {settings} \"$@\"\n");
    write_command(&layout.daemon_script, script.as_bytes())
}

/// Removes `slotd-daemon` after an installation as a service, which replaces it.
pub fn remove_daemon_script(layout: &Layout) -> Result<(), CliError> {
    let path = &layout.daemon_script;
    if path.is_symlink() || !is_ours(path) { Ok(()) } else { remove(path) }
}

/// Quotes a path as one shell word. The path was already checked to be text.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.clone().into_owned(), std::borrow::Cow::into_owned)
}

/// Removes the commands that this or an earlier version installed. Returns whether there were any.
/// A link named `slotd`, or another program of that name, is the user's.
pub fn remove_commands(layout: &Layout, removal: &mut Removal) -> bool {
    let own = ["slotd", "slotd.bin"].map(|name| layout.bin_dir.join(name));
    let mut is_found = false;
    let is_command = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        !path.is_symlink() || command_names().any(|command| Some(command) == name)
    };
    for path in &entries(&layout.bin_dir) {
        if is_ours(path) && is_command(path) || own.contains(path) && is_program(path) {
            is_found |= removal.remove(path);
        } else if own.contains(path) {
            note(&format!("kept {}, which is not slotd's", path.display()));
        }
    }
    is_found
}

/// Returns whether a file named `slotd` or `slotd.bin` was installed by slotd: its program, or a
/// script.
pub fn is_own_program(path: &Path) -> bool {
    !path.is_symlink() && (is_ours(path) || is_program(path))
}

/// Returns whether a file is a slotd program of any version: it contains the line that slotd writes
/// into scripts.
fn is_program(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    is_file
        && files::read(path, MOST_PROGRAM)
            .is_ok_and(|bytes| memmem::find(&bytes, SCRIPT_MARK.as_bytes()).is_some())
}

pub fn install_pages(layout: &Layout) -> Result<(), CliError> {
    let data = layout.pages[0].1.parent().and_then(Path::parent).unwrap_or(&layout.bin_dir);
    let fish = layout.pages[4].1.display();
    report_step(&format!(
        "install man pages and completions for bash, zsh and fish in {} and {fish}",
        data.display()
    ));
    for (kind, dir) in &layout.pages {
        let made = match *kind {
            section if manual::SECTIONS.contains(&section) => manual::pages(section),
            shell => completions::files(shell).unwrap_or_default(),
        };
        make_dir(dir)?;
        for old in entries(dir).iter().filter(|path| pages::is_ours(path)) {
            // Pages that only an earlier version had.
            if !made.iter().any(|page| old.file_name().is_some_and(|name| *name == *page.name)) {
                remove(old)?;
            }
        }
        for page in made {
            let path = dir.join(&page.name);
            if pages::is_of_others(&path) {
                note(&format!("kept {}, which is not slotd's", path.display()));
            } else {
                write_file(&path, &page.text, 0o644)?;
            }
        }
    }
    Ok(())
}

/// Removes the man pages and completions, and the directories that are empty afterwards.
pub fn remove_pages(layout: &Layout, removal: &mut Removal) {
    let mut is_found = false;
    for (_, dir) in &layout.pages {
        let pages: Vec<_> = entries(dir).into_iter().filter(|path| pages::is_ours(path)).collect();
        if pages.is_empty() {
            continue;
        }
        for path in &pages {
            is_found |= removal.remove(path);
        }
        let emptied: io::Result<()> = fs::remove_dir(dir);
        if let (Ok(()), Some(above)) = (emptied, dir.parent()) {
            let _ = fs::remove_dir(above);
        }
    }
    if is_found {
        note("removed the man pages and completions");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_created_together_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let all: Vec<_> = ["a", "b", "c"].map(|name| (at(name), at("bin").join(name))).into();
        fs::write(at("b"), "mine").unwrap();
        let (path, error) = create_links(&all).unwrap_err();
        assert_eq!((path, error.kind()), (at("b"), io::ErrorKind::AlreadyExists));
        assert!(at("a").symlink_metadata().is_err() && at("c").symlink_metadata().is_err());
        // A link of an earlier installation stays.
        symlink(at("bin/a"), at("a")).unwrap();
        create_links(&all).unwrap_err();
        assert!(is_link_to(&at("a"), &at("bin/a")));
        fs::remove_file(at("b")).unwrap();
        create_links(&all).unwrap();
        assert!(all.iter().all(|(path, target)| is_link_to(path, target)));
    }
}
