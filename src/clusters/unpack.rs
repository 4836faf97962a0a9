//! Unpacks the files that a job wrote on a cluster.
//!
//! The archive comes from another machine and can contain anything. Files are created beneath one
//! new directory; nothing existing is opened or replaced. Everything else is left out and reported:
//! absolute names and `..`, links that lead out of the directory, names below links, hard links,
//! devices and FIFOs, and second files of the same name. A file that cannot be written is removed.
//! The holes of a sparse file stay holes.

use slotd_sys::beneath::{Dir, is_plain};
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// The permissions that unpacked files can have. Other users can never write to them.
const PERMISSIONS: u32 = 0o755;

/// The unit of holes, in bytes.
const BLOCK: usize = 4096;

const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The result of unpacking.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The files and links that were created. Directories are not counted.
    pub files: Vec<PathBuf>,
    /// The names that were left out, with the reason.
    pub left_out: Vec<(PathBuf, String)>,
}

/// Unpacks an archive beneath this directory.
///
/// # Errors
/// Fails if the archive ends early or is damaged, or if the disk fails. Files unpacked so far
/// remain.
pub fn unpack(from: &mut dyn Read, to: &Dir) -> io::Result<Unpacked> {
    let mut done = Unpacked::default();
    let mut archive = Archive::new(from);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let plain: PathBuf = name.components().filter(|part| *part != Component::CurDir).collect();
        if plain.as_os_str().is_empty() {
            continue;
        }
        let is_dir = entry.header().entry_type() == EntryType::Directory;
        match put(&mut entry, &plain, to) {
            Ok(Ok(())) if is_dir => {}
            Ok(Ok(())) => done.files.push(plain),
            Ok(Err(why)) => done.left_out.push((name, why.to_owned())),
            Err(error) if is_about_name(&error) => done.left_out.push((name, error.to_string())),
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", name.display())));
            }
        }
    }
    Ok(done)
}

/// Whether an error concerns one name rather than the disk or the archive.
fn is_about_name(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EEXIST
                | libc::ELOOP
                | libc::ENOTDIR
                | libc::ENAMETOOLONG
                | libc::EISDIR
                | libc::EXDEV
                // A sparse file that is larger than any file can be here.
                | libc::EFBIG
        )
    )
}

/// Creates one file. The inner error is the reason why it is left out.
fn put(
    entry: &mut Entry<'_, impl Read>,
    name: &Path,
    to: &Dir,
) -> io::Result<Result<(), &'static str>> {
    if !is_plain(name) {
        return Ok(Err("its name leads out of the directory"));
    }
    match entry.header().entry_type() {
        EntryType::Directory => {
            make_dirs(name, to)?;
            Ok(Ok(()))
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            make_parents(name, to)?;
            let mut file = to.create(name, 0o600)?;
            if let Err(error) = write(entry, &mut file) {
                // A part of a file must not look like a whole one.
                to.remove_file(name)?;
                return Err(error);
            }
            Ok(Ok(()))
        }
        EntryType::Symlink => {
            let Some(target) = entry.link_name()? else {
                return Ok(Err("it is a link without a target"));
            };
            if !stays_inside(name, &target) {
                return Ok(Err("it is a link that leads out of the directory"));
            }
            make_parents(name, to)?;
            to.symlink(&target, name)?;
            Ok(Ok(()))
        }
        EntryType::Link => Ok(Err("it is a hard link")),
        EntryType::Char | EntryType::Block => Ok(Err("it is a device")),
        EntryType::Fifo => Ok(Err("it is a FIFO")),
        _ => Ok(Err("it is neither a file nor a link")),
    }
}

fn write(entry: &mut Entry<'_, impl Read>, file: &mut File) -> io::Result<()> {
    if entry.header().entry_type() == EntryType::GNUSparse {
        file.set_len(entry.size())?;
        write_sparse(entry, file)?;
    } else {
        io::copy(entry, file)?;
    }
    let mode = entry.header().mode()? & PERMISSIONS | 0o600;
    file.set_permissions(Permissions::from_mode(mode))
}

/// Writes the blocks that are not zero to a file that has its length.
fn write_sparse(from: &mut impl Read, to: &File) -> io::Result<()> {
    let (mut block, mut at) = (vec![0; BLOCK], 0);
    loop {
        let mut length = 0;
        while length < BLOCK {
            match from.read(&mut block[length..])? {
                0 => break,
                more => length += more,
            }
        }
        if length == 0 {
            return Ok(());
        }
        if block[..length] != ZEROS[..length] {
            to.write_all_at(&block[..length], at)?;
        }
        at += length as u64;
    }
}

fn make_parents(name: &Path, to: &Dir) -> io::Result<()> {
    name.parent().map_or(Ok(()), |dir| make_dirs(dir, to))
}

fn make_dirs(path: &Path, to: &Dir) -> io::Result<()> {
    let mut dir = PathBuf::new();
    for part in path.iter() {
        dir.push(part);
        match to.make_dir(&dir, 0o755) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => drop(to.dir(&dir)?),
            other => drop(other?),
        }
    }
    Ok(())
}

/// Returns whether a link's target stays in the directory, by its text alone. No part of the path
/// to the link is itself a link, because nothing is created below one; a target that passes through
/// another link could still leave, so it may not contain `..` after a name.
fn stays_inside(name: &Path, target: &Path) -> bool {
    let mut depth = name.components().count().saturating_sub(1);
    let mut has_name = false;
    for part in target.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => has_name = true,
            Component::ParentDir if !has_name && depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tar::{Builder, Header};

    /// An archive with any names, which the crate's own functions would refuse to write.
    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        for (name, kind, text) in entries {
            let mut header = Header::new_gnu();
            let old = header.as_old_mut();
            old.name[..name.len()].copy_from_slice(name.as_bytes());
            let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
            if !is_file {
                old.linkname[..text.len()].copy_from_slice(text.as_bytes());
            }
            header.set_entry_type(*kind);
            header.set_mode(0o6777);
            header.set_size(if is_file { text.len() as u64 } else { 0 });
            if *kind == EntryType::GNUSparse {
                header.as_gnu_mut().unwrap().set_real_size(0);
            }
            header.set_cksum();
            tar.append(&header, if is_file { text.as_bytes() } else { &[] }).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn unpacked(entries: &[(&str, EntryType, &str)]) -> (tempfile::TempDir, Unpacked) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("to")).unwrap();
        let to = Dir::open(&dir.path().join("to")).unwrap();
        let done = unpack(&mut archive(entries).as_slice(), &to).unwrap();
        (dir, done)
    }

    #[test]
    fn files_and_links_are_created_with_safe_permissions() {
        let (dir, done) = unpacked(&[
            ("./a/b/out.txt", EntryType::Regular, "text"),
            ("./a/link", EntryType::Symlink, "b/out.txt"),
            ("./a/b/up", EntryType::Symlink, "../../other"),
            ("./a/", EntryType::Directory, ""),
        ]);
        assert_eq!(done.files, ["a/b/out.txt", "a/link", "a/b/up"].map(PathBuf::from));
        assert_eq!(done.left_out, []);
        let file = dir.path().join("to/a/b/out.txt");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn directories_are_created_only_inside() {
        let (dir, done) = unpacked(&[
            ("./empty/below/", EntryType::Directory, ""),
            ("./empty/", EntryType::Directory, ""),
            ("file", EntryType::Regular, "x"),
            ("link", EntryType::Symlink, "empty"),
            ("file/", EntryType::Directory, ""),
            ("link/below", EntryType::Directory, ""),
            ("../out/", EntryType::Directory, ""),
            ("/tmp/slotd-absolute/", EntryType::Directory, ""),
        ]);
        assert_eq!(done.files, ["file", "link"].map(PathBuf::from));
        assert_eq!(done.left_out.len(), 4, "{:?}", done.left_out);
        assert!(dir.path().join("to/empty/below").is_dir());
        assert!(!dir.path().join("out").exists() && !Path::new("/tmp/slotd-absolute").exists());
        assert_eq!(fs::read_dir(dir.path().join("to/empty")).unwrap().count(), 1);
    }

    #[test]
    fn a_hostile_archive_creates_nothing_outside() {
        let hostile = [
            ("/tmp/slotd-absolute", EntryType::Regular, "x"),
            ("../out", EntryType::Regular, "x"),
            ("a/../../out", EntryType::Regular, "x"),
            ("a/..", EntryType::Regular, "x"),
            ("to-root", EntryType::Symlink, "/etc"),
            ("up", EntryType::Symlink, "../out"),
            ("a/up", EntryType::Symlink, "../../out"),
            ("through", EntryType::Symlink, "x/../../out"),
            ("hard", EntryType::Link, "/etc/passwd"),
            ("fifo", EntryType::Fifo, ""),
            ("char", EntryType::Char, ""),
            ("block", EntryType::Block, ""),
            ("../sparse", EntryType::GNUSparse, ""),
        ];
        let (dir, done) = unpacked(&hostile);
        assert_eq!(
            (done.files, done.left_out.len()),
            (vec![], hostile.len()),
            "{:?}",
            done.left_out
        );
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["to"]);
        assert!(!Path::new("/tmp/slotd-absolute").exists());
    }

    #[test]
    fn nothing_is_created_below_a_link_or_in_place_of_a_file() {
        let (dir, done) = unpacked(&[
            ("real/file", EntryType::Regular, "1"),
            ("link", EntryType::Symlink, "real"),
            ("link/other", EntryType::Regular, "x"),
            ("link/file", EntryType::Regular, "x"),
            ("real/file", EntryType::Regular, "x"),
            ("real/file/below", EntryType::Regular, "x"),
            ("real", EntryType::Symlink, "x"),
            ("self", EntryType::Symlink, "self"),
        ]);
        assert_eq!(done.files, ["real/file", "link", "self"].map(PathBuf::from));
        assert_eq!(done.left_out.len(), 5, "{:?}", done.left_out);
        assert_eq!(fs::read_to_string(dir.path().join("to/real/file")).unwrap(), "1");
        assert_eq!(fs::read_dir(dir.path().join("to/real")).unwrap().count(), 1);
    }

    /// An archive of a file, as tar on a cluster makes it.
    fn sparse_archive(dir: &Path) -> Vec<u8> {
        let mut tar = std::process::Command::new("tar");
        let tar = tar.args(["-cS", "--format=gnu", "-f", "-", "sparse"]).current_dir(dir);
        tar.output().unwrap().stdout
    }

    #[test]
    fn holes_stay_holes() {
        use std::os::unix::fs::MetadataExt;
        let from = tempfile::tempdir().unwrap();
        let file = File::create(from.path().join("sparse")).unwrap();
        let size = 1 << 28;
        file.set_len(size).unwrap();
        // More pieces than the header of a tar entry lists.
        let places: Vec<u64> = (0..30).map(|i| i * (8 << 20) + 5).chain([size - 3]).collect();
        for at in &places {
            file.write_all_at(b"abc", *at).unwrap();
        }
        let archive = sparse_archive(from.path());
        assert!(archive.len() < 4 << 20, "{}", archive.len());
        let dir = tempfile::tempdir().unwrap();
        let done = unpack(&mut archive.as_slice(), &Dir::open(dir.path()).unwrap()).unwrap();
        assert_eq!((done.files, done.left_out), (vec![PathBuf::from("sparse")], vec![]));
        let found = fs::metadata(dir.path().join("sparse")).unwrap();
        assert_eq!(found.len(), size);
        assert!(found.blocks() * 512 < 4 << 20, "{}", found.blocks());
        let (whole, file) = (size as usize, File::open(dir.path().join("sparse")).unwrap());
        let mut read = [0; 5];
        for at in &places {
            let length = 5.min(whole - usize::try_from(*at - 1).unwrap());
            file.read_exact_at(&mut read[..length], *at - 1).unwrap();
            assert_eq!(&read[..length], &b"\0abc\0"[..length], "{at}");
        }
    }

    #[test]
    fn a_file_that_does_not_fit_is_removed() {
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("sparse"), vec![7; 2 << 20]).unwrap();
        let archive = sparse_archive(from.path());
        let disk = tempfile::tempdir().unwrap();
        let none = None::<&str>;
        let (flags, limit) = (nix::mount::MsFlags::empty(), Some("size=1m"));
        if nix::mount::mount(none, disk.path(), Some("tmpfs"), flags, limit).is_err() {
            // Only root can mount.
            return;
        }
        let to = Dir::open(disk.path()).unwrap();
        let error = unpack(&mut archive.as_slice(), &to).unwrap_err();
        let names = to.names().unwrap();
        drop(to);
        // A child that another test forks holds the directory open until its exec, so a plain
        // umount may fail with EBUSY.
        nix::mount::umount2(disk.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("sparse: No space left on device"), "{error}");
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn an_archive_that_ends_early_is_an_error() {
        let whole = archive(&[("a", EntryType::Regular, "0123456789")]);
        let dir = tempfile::tempdir().unwrap();
        let to = Dir::open(dir.path()).unwrap();
        unpack(&mut &whole[..515], &to).unwrap_err();
        unpack(
            &mut &b"not an archive, but the message of a shell, long enough for one block"[..],
            &to,
        )
        .unwrap_err();
    }
}
