//! The answers of the program that examines and deletes stages.

use crate::clusters::journal::is_token;
use std::collections::BTreeMap;

/// The stage of a submission on its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A job with the token has not ended.
    Busy,
    /// There is no stage.
    Gone,
    /// Something else is in its place, or it could not be deleted.
    Kept(String),
    /// It uses this many KiB.
    There(u64),
    /// It was deleted and used this many KiB.
    Deleted(u64),
}

/// Parses the output of [`program::clean`](super::program::clean). Returns `None` if squeue did not
/// answer, so that nothing is known about the jobs.
pub fn read(out: &[u8]) -> Option<BTreeMap<String, Found>> {
    let text = String::from_utf8_lossy(out);
    let mut lines = text.lines();
    if lines.next() != Some("squeue 0") {
        return None;
    }
    let mut found = BTreeMap::new();
    for line in lines {
        let mut words = line.splitn(3, ' ');
        let (Some(what), Some(token)) = (words.next(), words.next()) else { continue };
        let rest = words.next().unwrap_or_default();
        let kib = || rest.parse().unwrap_or(0);
        let one = match what {
            "busy" => Found::Busy,
            "gone" => Found::Gone,
            "kept" => Found::Kept(reason(rest)),
            "there" => Found::There(kib()),
            "deleted" => Found::Deleted(kib()),
            _ => continue,
        };
        if is_token(token) {
            found.insert(token.to_owned(), one);
        }
    }
    Some(found)
}

fn reason(word: &str) -> String {
    let known = match word {
        "link" => "a link has replaced its directory",
        "file" => "a file has replaced its directory",
        "owner" => "its directory belongs to another user",
        "strange" => "its directory was not made by slotd",
        "mount" => "something is mounted in its directory",
        _ => {
            let why = word.strip_prefix("rm").unwrap_or(word).trim();
            let why = if why.is_empty() { "no message" } else { why };
            return format!("its directory could not be deleted: {why}");
        }
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::program;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    const BUSY: &str = "00000000000000000000000000000001";
    const ENDED: &str = "00000000000000000000000000000002";
    const LINK: &str = "00000000000000000000000000000003";
    const FILE: &str = "00000000000000000000000000000004";
    const STRANGE: &str = "00000000000000000000000000000005";
    const GONE: &str = "00000000000000000000000000000006";
    const OTHER: &str = "00000000000000000000000000000007";
    /// Reserved for one test, because all tests see the mount.
    const MOUNTED: &str = "00000000000000000000000000000009";
    const FOREIGN: &str = "00000000000000000000000000000008";

    struct Cluster {
        dir: tempfile::TempDir,
    }

    impl Cluster {
        /// A cluster whose squeue prints these lines.
        fn new(squeue: &str) -> Cluster {
            let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
            let program = cluster.path("bin/squeue");
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::write(&program, format!("#!/bin/sh\n{squeue}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            cluster
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn stage(&self, token: &str) -> PathBuf {
            let stage = self.path("stage").join(token);
            fs::create_dir_all(stage.join("run.1")).unwrap();
            fs::write(stage.join("staged"), "").unwrap();
            stage
        }

        fn clean(&self, deletes: bool, tokens: &[&str]) -> Option<BTreeMap<String, Found>> {
            use std::io::Write;
            let dir = self.path("stage").display().to_string();
            let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
            let mut shell = Command::new("sh")
                .arg("-c")
                .arg(String::from_utf8(program::clean(&dir, deletes)).unwrap())
                .env("PATH", path)
                .env("SQUEUE_STATES", "PENDING")
                .env("LC_ALL", "C.UTF-8")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = shell.stdin.take().unwrap();
            stdin.write_all(format!("{}\n", tokens.join("\n")).as_bytes()).unwrap();
            drop(stdin);
            read(&shell.wait_with_output().unwrap().stdout)
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_stages_of_ended_jobs_are_deleted_and_links_are_not_followed() {
        let queue = format!(
            "[ \"$SQUEUE_STATES\" ] && exit 1\n\
             printf 'COMPLETED|/d/{ENDED}/script/x|/\\nRUNNING|/d/{BUSY}/script/a\\nb|/\\n'"
        );
        let cluster = Cluster::new(&queue);
        for token in [BUSY, ENDED, OTHER] {
            cluster.stage(token);
        }
        let precious = cluster.path("precious");
        fs::create_dir_all(precious.join("run.1")).unwrap();
        fs::write(precious.join("staged"), "").unwrap();
        symlink(&precious, cluster.path("stage").join(LINK)).unwrap();
        symlink(&precious, cluster.path("stage").join(ENDED).join("link")).unwrap();
        symlink(&precious, cluster.path("stage").join(format!("{GONE}.part.7"))).unwrap();
        fs::write(cluster.path("stage").join(FILE), "").unwrap();
        fs::create_dir(cluster.path("stage").join(STRANGE)).unwrap();
        fs::create_dir(cluster.path("stage").join(format!("{ENDED}.part.9"))).unwrap();
        let mut tokens = vec![BUSY, ENDED, LINK, FILE, STRANGE, GONE];
        let foreign = cluster.stage(FOREIGN);
        if std::os::unix::fs::chown(&foreign, Some(12_345), None).is_ok() {
            tokens.push(FOREIGN);
        }
        let looked = cluster.clean(false, &tokens).unwrap();
        assert!(matches!(looked[ENDED], Found::There(kib) if kib > 0), "{looked:?}");
        let before = names(&cluster.path("stage"));
        let done = cluster.clean(true, &tokens).unwrap();
        assert_eq!(done[BUSY], Found::Busy);
        assert!(matches!(done[ENDED], Found::Deleted(kib) if kib > 0), "{done:?}");
        assert_eq!(done[LINK], Found::Kept("a link has replaced its directory".to_owned()));
        assert_eq!(done[FILE], Found::Kept("a file has replaced its directory".to_owned()));
        assert_eq!(done[STRANGE], Found::Kept("its directory was not made by slotd".to_owned()));
        assert_eq!(done[GONE], Found::Kept("a link has replaced its directory".to_owned()));
        if tokens.contains(&FOREIGN) {
            let why = "its directory belongs to another user".to_owned();
            assert_eq!(done[FOREIGN], Found::Kept(why));
        }
        let left: Vec<String> =
            before.into_iter().filter(|name| !name.starts_with(ENDED)).collect();
        assert_eq!(names(&cluster.path("stage")), left);
        assert_eq!(names(&precious), ["run.1", "staged"]);
    }

    /// grep leaves out a line that is not text in the locale of the login shell.
    #[test]
    fn a_job_with_a_path_that_is_not_text_is_in_use() {
        let line = format!("printf 'RUNNING|/s/{BUSY}/script/donn\\351es.sh|/\\n'");
        let cluster = Cluster::new(&line);
        cluster.stage(BUSY);
        assert_eq!(cluster.clean(true, &[BUSY]).unwrap()[BUSY], Found::Busy);
    }

    #[test]
    fn mounts_in_a_stage_are_kept() {
        let cluster = Cluster::new("exit 0");
        let inside = cluster.stage(MOUNTED).join("work");
        let precious = cluster.path("precious");
        for dir in [&inside, &precious] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(precious.join("file"), "").unwrap();
        let bind = nix::mount::MsFlags::MS_BIND;
        if nix::mount::mount(Some(&precious), &inside, None::<&str>, bind, None::<&str>).is_err() {
            // Only root can mount.
            return;
        }
        let found = cluster.clean(true, &[MOUNTED]).unwrap();
        // A child that another test forks holds the directory open until its exec, so a plain
        // umount may fail with EBUSY.
        nix::mount::umount2(&inside, nix::mount::MntFlags::MNT_DETACH).unwrap();
        let why = "something is mounted in its directory".to_owned();
        assert_eq!(found[MOUNTED], Found::Kept(why));
        assert_eq!(names(&precious), ["file"]);
        assert!(matches!(cluster.clean(true, &[MOUNTED]).unwrap()[MOUNTED], Found::Deleted(_)));
    }

    #[test]
    fn a_failed_deletion_is_resumed() {
        let cluster = Cluster::new("exit 0");
        let stage = cluster.stage(ENDED);
        let rm = cluster.path("bin/rm");
        let half = "#!/bin/sh\nfor p; do :; done\n/bin/rm -r \"$p/run.1\" \"$p/staged\"\necho busy >&2\nexit 1\n";
        fs::write(&rm, half).unwrap();
        fs::set_permissions(&rm, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(cluster.clean(true, &[ENDED]).unwrap()[ENDED], Found::Kept(_)));
        assert!(!stage.exists());
        fs::remove_file(rm).unwrap();
        assert!(matches!(cluster.clean(true, &[ENDED]).unwrap()[ENDED], Found::Deleted(_)));
        assert!(names(&cluster.path("stage")).is_empty());
    }

    #[test]
    fn nothing_is_deleted_if_squeue_does_not_answer() {
        let cluster = Cluster::new("exit 1");
        let stage = cluster.stage(ENDED);
        assert_eq!(cluster.clean(true, &[ENDED]), None);
        assert!(stage.exists());
    }

    #[test]
    fn a_stage_that_is_gone_is_reported() {
        let cluster = Cluster::new("exit 0");
        let gone: BTreeMap<_, _> = [(GONE.to_owned(), Found::Gone)].into();
        // Without the staging directory nothing is known about any stage.
        assert_eq!(cluster.clean(true, &[GONE]), Some(BTreeMap::new()));
        cluster.stage(OTHER);
        assert_eq!(cluster.clean(true, &[GONE]), Some(gone));
        assert_eq!(names(&cluster.path("stage")), [OTHER]);
    }

    #[test]
    fn a_broken_answer_is_left_out() {
        let out = b"squeue 0\nthere ../../etc 5\nnonsense\nkept\nbusy 1\n";
        assert_eq!(read(out), Some(BTreeMap::new()));
        assert_eq!((read(b""), read(b"squeue 1\n")), (None, None));
    }
}
