//! The files of an installation: commands, pages, scripts. What others made is neither replaced nor
//! removed.

use super::layout::Layout;
use super::say::{fail, note, say};
use crate::args::error::CliError;
use crate::commands::pages::{self, completions, manual};
use crate::commands::{COMMANDS, Entry};
use crate::sys::files;
use crate::sys::fresh::{self, Fresh};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The second line of every script that is written here begins so.
const SCRIPT_MARK: &str = "# Written by the installer of slotd.";

/// The names that are installed in the directory of programs, but for slotd's own.
fn command_names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(Entry::name)
}

pub fn make_dir(dir: &Path) -> Result<(), CliError> {
    fs::create_dir_all(dir).map_err(|e| {
        fail(format!(
            "the directory {} cannot be made: {e}: check who owns the one above it",
            dir.display()
        ))
    })
}

pub fn make_private_dir(dir: &Path) -> Result<(), CliError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        fail(format!(
            "{} cannot be made: {e}: check who owns the directory above it",
            dir.display()
        ))
    })
}

/// Writes a file beside its place and renames it.
pub fn write_file(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CliError> {
    // A link, made by a manager of dot files say, stays one.
    replace(&fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), bytes, mode)
}

/// Writes a program or a script into the directory of the commands, in the place of whatever has
/// its name. What a link there leads to is another command.
fn write_command(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    replace(path, bytes, 0o755)
}

fn replace(place: &Path, bytes: &[u8], mode: u32) -> Result<(), CliError> {
    let write = || {
        let mut fresh = Fresh::new(place, mode)?;
        fresh.file.write_all(bytes)?;
        fresh.file.set_permissions(Permissions::from_mode(mode))?;
        fresh.replace()
    };
    write().map_err(|e| {
        let why = "check the directory's owner, mode and free space";
        fail(format!("{} cannot be written: {e}: {why}", place.display()))
    })
}

pub fn remove(path: &Path) -> Result<(), CliError> {
    fs::remove_file(path)
        .map_err(|e| fail(format!("{} cannot be removed: {e}: remove it by hand", path.display())))
}

/// Whether what has the name of a command came from here: a link to slotd, or a script.
fn is_ours(path: &Path) -> bool {
    match fs::read_link(path) {
        Ok(target) => target == Path::new("slotd") || target == path.with_file_name("slotd"),
        Err(_) => head(path).lines().nth(1).is_some_and(|line| line.starts_with(SCRIPT_MARK)),
    }
}

/// The beginning of a file: enough to know a script by.
fn head(path: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    // Whatever cannot be read is not ours.
    let _ = files::open(path).and_then(|file| file.take(200).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What lies in a directory; nothing where there is none.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(dir) else { return Vec::new() };
    found.flatten().map(|entry| entry.path()).collect()
}

/// Everything below a directory that is no directory itself.
pub fn below(dir: &Path) -> Vec<PathBuf> {
    let is_dir = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let (dirs, mut files): (Vec<_>, Vec<_>) = entries(dir).into_iter().partition(is_dir);
    files.extend(dirs.iter().flat_map(|dir| below(dir)));
    files
}

/// # Errors
/// The programs of others stand where commands would go.
pub fn refuse_others(layout: &Layout) -> Result<(), CliError> {
    for path in command_names().map(|name| layout.bin_dir.join(name)) {
        if path.symlink_metadata().is_ok() && !is_ours(&path) {
            let why = "move it away, or choose another directory with --install-bin-dir";
            return Err(fail(format!("{} exists and is not slotd's: {why}", path.display())));
        }
    }
    let own = layout.bin_dir.join("slotd");
    if own.is_dir() {
        return Err(fail(format!("{} is a directory: move it away", own.display())));
    }
    Ok(())
}

/// Links to the commands in a directory that is in every `PATH`: login shells and programs that
/// trim their environment do not find those of a home.
///
/// # Errors
/// Something else has the name of a command there, or the directory is not this user's to write.
pub fn link_commands(layout: &Layout, dir: &Path) -> Result<(), CliError> {
    let names = || command_names().chain(["slotd"]);
    let target = |name: &str| layout.bin_dir.join(name);
    let is_there =
        |name: &&str| fs::read_link(dir.join(name)).is_ok_and(|found| found == target(name));
    for name in names().filter(|name| !is_there(name)) {
        let path = dir.join(name);
        symlink(target(name), &path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => fail(format!(
                "{} exists and is not slotd's: move it away, or choose another --link-dir",
                path.display()
            )),
            io::ErrorKind::PermissionDenied => {
                let all = names().map(|name| quoted(&target(name))).collect::<Vec<_>>().join(" ");
                fail(format!(
                    "{} cannot be made: {e}: run sudo ln -s {all} {}",
                    path.display(),
                    quoted(dir)
                ))
            }
            _ => fail(format!("{} cannot be made: {e}: check the directory", path.display())),
        })?;
    }
    Ok(())
}

/// Writes down where links are.
pub fn keep_link_dirs(layout: &Layout) -> Result<(), CliError> {
    if layout.link_dirs.is_empty() {
        return Ok(());
    }
    make_dir(&layout.config_dir)?;
    let lines = layout.link_dirs.iter().flat_map(|dir| [dir.as_os_str().as_bytes(), b"\n"]);
    write_file(&layout.link_dirs_file, &lines.collect::<Vec<_>>().concat(), 0o644)
}

/// Removes what [`link_commands`] made.
pub fn unlink_commands(layout: &Layout, dir: &Path) -> Result<(), CliError> {
    let mut paths =
        command_names().chain(["slotd"]).map(|name| (dir.join(name), layout.bin_dir.join(name)));
    paths.try_for_each(|(path, target)| match fs::read_link(&path) {
        Ok(found) if found == target => remove(&path),
        Ok(_) | Err(_) => Ok(()),
    })
}

/// This program, and the commands as links or scripts.
pub fn install_commands(layout: &Layout) -> Result<(), CliError> {
    let program = fs::read("/proc/self/exe")
        .map_err(|e| fail(format!("this program cannot be read: {e}")))?;
    write_command(&layout.program, &program)?;
    let names: BTreeSet<&str> = command_names().chain(["slotd"]).collect();
    // The scripts of an earlier version. A link with another name is the user's.
    for path in entries(&layout.bin_dir).iter().filter(|path| !path.is_symlink() && is_ours(path)) {
        if !path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.contains(name))
        {
            remove(path)?;
        }
    }
    if layout.is_default_root {
        for path in command_names().map(|name| layout.bin_dir.join(name)) {
            fresh::replace_by_link(&path, Path::new("slotd")).map_err(|e| {
                fail(format!("{} cannot be made: {e}: check the directory's owner", path.display()))
            })?;
        }
        let _ = fs::remove_file(layout.bin_dir.join("slotd.bin"));
        return Ok(());
    }
    for name in names {
        let words = if name == "slotd" { String::new() } else { format!(" {name}") };
        let script = format!(
            "#!/bin/sh\n{SCRIPT_MARK} The runtime root is not the default one, which the commands would use by themselves.\n\
             if [ -z \"$SLOTD_ROOT\" ]; then SLOTD_ROOT={}; export SLOTD_ROOT; fi\nexec {}{words} \"$@\"\n",
            quoted(&layout.root),
            quoted(&layout.program),
        );
        write_command(&layout.bin_dir.join(name), script.as_bytes())?;
    }
    Ok(())
}

/// `slotd-daemon`: `slotd daemon` with the settings of this installation.
pub fn install_daemon_script(layout: &Layout) -> Result<(), CliError> {
    let (program, settings) = (quoted(&layout.program), quoted(&layout.env_file));
    let script =
        format!("#!/bin/sh\n{SCRIPT_MARK}\nexec {program} daemon --env-file {settings} \"$@\"\n");
    write_command(&layout.daemon_script, script.as_bytes())
}

/// A path as one word of a shell. It was checked to be text.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.clone().into_owned(), std::borrow::Cow::into_owned)
}

/// Removes the commands, whatever this or an earlier version linked.
pub fn remove_commands(layout: &Layout) -> Result<bool, CliError> {
    let own = ["slotd", "slotd.bin"].map(|name| layout.bin_dir.join(name));
    let mut is_found = false;
    let is_command = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        !path.is_symlink() || command_names().any(|command| Some(command) == name)
    };
    for path in entries(&layout.bin_dir)
        .iter()
        .filter(|path| is_ours(path) && is_command(path) || own.contains(path))
    {
        remove(path)?;
        is_found = true;
    }
    Ok(is_found)
}

/// Whether a man page or a script of completions is slotd's: its last line says so.
fn is_our_page(path: &Path) -> bool {
    let Ok(bytes) = files::read(path, files::MOST_SETTINGS) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().last().unwrap_or_default();
    ["# ", ".\\\" "].iter().any(|comment| last.strip_prefix(comment) == Some(pages::MARK))
}

pub fn install_pages(layout: &Layout) -> Result<(), CliError> {
    let data = layout.pages[0].1.parent().and_then(Path::parent).unwrap_or(&layout.bin_dir);
    let fish = layout.pages[3].1.display();
    say(&format!(
        "install man pages and completions for bash, zsh and fish in {} and {fish}",
        data.display()
    ));
    for (kind, dir) in &layout.pages {
        let made = match *kind {
            "man" => manual::pages(),
            shell => completions::files(shell).unwrap_or_default(),
        };
        make_dir(dir)?;
        for old in entries(dir).iter().filter(|path| is_our_page(path)) {
            // What only an earlier version had.
            if !made.iter().any(|page| old.file_name().is_some_and(|name| *name == *page.name)) {
                remove(old)?;
            }
        }
        for page in made {
            let path = dir.join(&page.name);
            if path.symlink_metadata().is_ok() && !is_our_page(&path) {
                note(&format!("{} is not slotd's and stays", path.display()));
            } else {
                write_file(&path, &page.text, 0o644)?;
            }
        }
    }
    Ok(())
}

/// Removes the man pages and completions, and directories that are empty then.
pub fn remove_pages(layout: &Layout) -> Result<(), CliError> {
    let mut is_found = false;
    for (_, dir) in &layout.pages {
        for path in entries(dir).iter().filter(|path| is_our_page(path)) {
            remove(path)?;
            is_found = true;
        }
        let emptied: io::Result<()> = fs::remove_dir(dir);
        if let (Ok(()), Some(above)) = (emptied, dir.parent()) {
            let _ = fs::remove_dir(above);
        }
    }
    if is_found {
        note("removed the man pages and completions");
    }
    Ok(())
}
