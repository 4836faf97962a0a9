//! The paths of an installation, and the checks of the runtime root.

use super::output::fail;
use crate::args::error::CliError;
use crate::commands::daemon::read_settings;
use slotd_model::DEFAULT_ROOT;
use slotd_parse::env_file::EnvFile;
use slotd_sys::files::{self, MOST_SETTINGS};
use slotd_sys::paths::Paths;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Places {
    /// Directory of the binary and commands [default: ~/.local/bin]
    #[arg(long, value_name = "PATH")]
    install_bin_dir: Option<String>,
    /// Directory for links to the commands, for example /usr/local/bin [default: none]
    #[arg(long, value_name = "PATH")]
    link_dir: Option<String>,
    /// Set SLOTD_ROOT [default: ~/.local/share/slotd]
    #[arg(long, value_name = "PATH")]
    runtime_root: Option<String>,
    /// Directory of slotd.env [default: ~/.config/slotd]
    #[arg(long, value_name = "PATH")]
    config_dir: Option<String>,
    /// Directory of the user units [default: ~/.config/systemd/user]
    #[arg(long, value_name = "PATH")]
    systemd_user_dir: Option<String>,
}

pub struct Layout {
    pub bin_dir: PathBuf,
    pub default_bin_dir: PathBuf,
    /// The directory of the commands in the earlier installation, unless it is the default one.
    pub earlier_bin_dir: Option<PathBuf>,
    /// The file that names this directory.
    pub bin_dir_file: PathBuf,
    /// Additional directories with links to the commands, from this or an earlier installation.
    pub link_dirs: BTreeSet<PathBuf>,
    /// The directories with links from the earlier installation.
    pub earlier_link_dirs: BTreeSet<PathBuf>,
    /// The file that lists these directories, one per line, for later upgrades and removal.
    pub link_dirs_file: PathBuf,
    /// The binary: `slotd`, or `slotd.bin` beside scripts that set the root.
    pub program: PathBuf,
    pub daemon_script: PathBuf,
    pub root: PathBuf,
    pub is_default_root: bool,
    pub paths: Paths,
    /// The root of the earlier installation.
    pub old_root: Option<PathBuf>,
    pub config_dir: PathBuf,
    pub env_file: PathBuf,
    /// The contents of the environment file, if it exists and is valid.
    pub settings: Option<EnvFile>,
    /// Why the environment file cannot be used.
    pub fault: Option<CliError>,
    pub unit_dir: PathBuf,
    /// The directories of the man pages and of the completions for each shell.
    pub pages: [(&'static str, PathBuf); 5],
}

/// The use of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Requires a valid environment file.
    Install,
    /// Needs only the root, which can be specified if the environment file is invalid.
    Uninstall,
}

impl Layout {
    /// Determines the paths from the options, the environment and the earlier installation.
    ///
    /// # Errors
    /// Fails if a path is invalid, if the runtime root is a shared directory or contains the home
    /// directory, or if the environment file cannot be read and is needed.
    pub fn new(places: &Places, purpose: Purpose) -> Result<Layout, CliError> {
        let home = home()?;
        let place = |option: &str, given: &Option<String>, default: &str| match given {
            Some(path) => absolute(option, path, &home),
            None => Ok(home.join(default)),
        };
        let config_dir = place("--config-dir", &places.config_dir, ".config/slotd")?;
        let default_bin_dir = home.join(".local/bin");
        let bin_dir_file = config_dir.join("bin-dir");
        let earlier_bin_dir = recorded(&bin_dir_file).into_iter().next();
        let bin_dir = match &places.install_bin_dir {
            Some(path) => absolute("--install-bin-dir", path, &home)?,
            None => earlier_bin_dir.clone().unwrap_or_else(|| default_bin_dir.clone()),
        };
        let unit_dir =
            place("--systemd-user-dir", &places.systemd_user_dir, ".config/systemd/user")?;
        let link_dir =
            places.link_dir.as_ref().map(|dir| absolute("--link-dir", dir, &home)).transpose()?;
        let link_dirs_file = config_dir.join("link-dirs");
        let earlier_link_dirs: BTreeSet<PathBuf> =
            recorded(&link_dirs_file).into_iter().filter(|dir| dir.is_dir()).collect();
        let link_dirs = earlier_link_dirs.iter().cloned().chain(link_dir).collect();
        let env_file = config_dir.join("slotd.env");
        let default_root = home.join(DEFAULT_ROOT);
        let mut given_root = places
            .runtime_root
            .as_ref()
            .map(|path| absolute("--runtime-root", path, &home))
            .transpose()?;
        if let Some(root) = &given_root {
            check_root(root, &home)?;
        }
        let (settings, fault) = match (earlier_settings(&env_file), purpose) {
            (Ok(settings), _) => (settings, None),
            (Err(fault), Purpose::Install) => return Err(fault),
            (Err(fault), Purpose::Uninstall) => {
                let set = std::env::var("SLOTD_ROOT").ok().filter(|root| !root.is_empty());
                let set = set.map(|root| absolute("SLOTD_ROOT", &root, &home)).transpose()?;
                given_root = given_root.or(set);
                if given_root.is_none() {
                    return Err(fault.hint(
                        "with --runtime-root or SLOTD_ROOT, uninstall works without this file",
                    ));
                }
                (None, Some(fault))
            }
        };
        let old_root = settings
            .as_ref()
            .and_then(|file| file.get("SLOTD_ROOT"))
            .filter(|root| !root.is_empty());
        let old_root = old_root.map(PathBuf::from);
        let root = given_root.or_else(|| old_root.clone()).unwrap_or_else(|| default_root.clone());
        check_root(&root, &home)?;
        if root == bin_dir || root == config_dir {
            return Err(fail(format!(
                "the runtime root must be a directory of its own, not {}",
                root.display()
            )));
        }
        let is_default_root = root == default_root;
        let (data, config) =
            (xdg("XDG_DATA_HOME", &home, ".local/share"), xdg("XDG_CONFIG_HOME", &home, ".config"));
        Ok(Layout {
            program: bin_dir.join(if is_default_root { "slotd" } else { "slotd.bin" }),
            daemon_script: bin_dir.join("slotd-daemon"),
            bin_dir,
            default_bin_dir,
            earlier_bin_dir,
            bin_dir_file,
            link_dirs,
            earlier_link_dirs,
            link_dirs_file,
            paths: Paths::new(&root),
            root,
            is_default_root,
            old_root,
            config_dir,
            env_file,
            settings,
            fault,
            unit_dir,
            pages: [
                ("man1", data.join("man/man1")),
                ("man5", data.join("man/man5")),
                ("bash", data.join("bash-completion/completions")),
                ("zsh", data.join("zsh/site-functions")),
                ("fish", config.join("fish/completions")),
            ],
        })
    }

    /// Returns the root as text. It was given as text or read from a text file.
    pub fn root_text(&self) -> &str {
        self.root.to_str().unwrap_or_default()
    }
}

/// Returns the directories in a record, which has one absolute path per line. Without a readable
/// record there are none.
fn recorded(file: &Path) -> Vec<PathBuf> {
    let text = files::read(file, MOST_SETTINGS).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let dirs = lines.map(|line| PathBuf::from(OsStr::from_bytes(line)));
    dirs.filter(|dir| dir.is_absolute()).collect()
}

fn xdg(variable: &str, home: &Path, default: &str) -> PathBuf {
    let given = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    given.unwrap_or_else(|| home.join(default))
}

/// Returns an absolute path without trailing slashes. Expands `~`, since shells do not expand it in
/// `--option=~/path`.
fn absolute(option: &str, path: &str, home: &Path) -> Result<PathBuf, CliError> {
    if path.is_empty() {
        return Err(fail(format!("{option}: the path is empty")));
    }
    check_storable(option, path)?;
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home.display())
        }
        _ => path.to_owned(),
    };
    let path = if path.starts_with('/') {
        path
    } else {
        let here = std::env::current_dir()
            .map_err(|e| fail(format!("{option}: cannot find the working directory: {e}")))?;
        format!("{}/{path}", here.display())
    };
    let trimmed = path.trim_end_matches('/');
    Ok(PathBuf::from(if trimmed.is_empty() { "/" } else { trimmed }))
}

/// Checks that a value can be stored in an environment file.
///
/// # Errors
/// Fails if the value cannot be written on one line of an environment file.
pub fn check_storable(option: &str, value: &str) -> Result<(), CliError> {
    if value.chars().any(|c| c.is_control() && c != '\t') {
        let why = "an environment file cannot contain line breaks or other control characters";
        return Err(fail(format!("{option}: {why}: {value:?}")));
    }
    Ok(())
}

/// Directories that several programs share.
const SHARED: [&str; 27] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/mnt",
    "/media",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/tmp",
];
/// Like [`SHARED`], including everything below.
const SHARED_TREES: [&str; 5] = ["/boot", "/dev", "/proc", "/sys", "/usr/local"];

/// Refuses shared directories and the home directory as the runtime root, since `--purge-runtime`
/// deletes it. Checks the path as written and with links resolved: `/lib` may be a link to
/// `/usr/lib`.
fn check_root(root: &Path, home: &Path) -> Result<(), CliError> {
    let shown = root.display();
    let text = root.to_str().unwrap_or_default();
    if !text.starts_with('/')
        || text.split('/').skip(1).any(|part| matches!(part, "." | ".."))
        || text.contains("//")
    {
        return Err(fail(format!(
            "the runtime root must be an absolute path without ., .. or double slashes, not {shown}"
        )));
    }
    for (root, home) in [(root.to_owned(), home.to_owned()), (resolved(root), resolved(home))] {
        if SHARED.iter().any(|dir| root == Path::new(dir))
            || SHARED_TREES.iter().any(|dir| root.starts_with(dir))
        {
            return Err(fail(format!(
                "the runtime root must be a directory of its own, not {shown}: choose another with --runtime-root"
            )));
        }
        if home.starts_with(&root) {
            return Err(fail(format!(
                "the runtime root must not be or contain the home directory, as {shown} does: choose another with --runtime-root"
            )));
        }
    }
    Ok(())
}

/// Resolves the links in the existing part of a path.
fn resolved(path: &Path) -> PathBuf {
    let mut done = PathBuf::from("/");
    for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
        done.push(part);
        done = done.canonicalize().unwrap_or(done);
    }
    done
}

/// Reads the settings of an earlier installation.
fn earlier_settings(path: &Path) -> Result<Option<EnvFile>, CliError> {
    if path.exists() { read_settings(path).map(Some) } else { Ok(None) }
}

fn home() -> Result<PathBuf, CliError> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| fail("HOME is not an absolute path: set it to your home directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_directories_are_refused_as_the_root() {
        let home = Path::new("/home/u");
        for root in
            ["/home/u/.local/share/slotd", "/data", "/var/lib/slotd", "/usr/libexec/x", "/home/u2"]
        {
            assert!(check_root(Path::new(root), home).is_ok(), "{root}");
        }
        for root in [
            "/",
            "/home",
            "/home/u",
            "/usr/local/x",
            "/tmp",
            "/tmp/..",
            "/a//b",
            "/proc/1",
            "relative",
        ] {
            let error = check_root(Path::new(root), home).unwrap_err().text("x");
            assert!(error.contains("the runtime root must"), "{root}: {error}");
        }
    }

    #[test]
    fn tildes_and_trailing_slashes_are_resolved() {
        let path = |text: &str| absolute("--x", text, Path::new("/h")).unwrap();
        assert_eq!(path("~/a//"), Path::new("/h/a"));
        assert_eq!(path("~"), Path::new("/h"));
        assert_eq!(path("///"), Path::new("/"));
        assert!(path("~a").ends_with("~a"));
    }
}
