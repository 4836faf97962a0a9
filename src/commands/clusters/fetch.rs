//! `slotd fetch`: copies the new and changed files of a job's run to a directory of their own.
//!
//! The files are unpacked in a directory within it, whose name contains the token of the submission.
//! They leave it once all have arrived and are on disk, so no file outside it is incomplete. If
//! anything fails, those that have left it return, and it is deleted. If this process is killed
//! before any has left it, the next fetch of the job deletes it.
//!
//! The directory may be anything that its path allows others to put there. A link, a file, a FIFO,
//! and a directory with other files are refused. The unfinished directory of an earlier fetch is
//! deleted only if it is a real directory of this user, and without following links.

use super::super::Done;
use super::named::{There, record, there};
use super::remote::{Messages, Remote, failure, journal, known, print, safe};
use crate::args::error::CliError;
use crate::clusters::journal::Record;
use crate::clusters::link::{self, Clusters, Ended, Input, Stream};
use crate::clusters::program::{self, Place};
use crate::clusters::unpack::{self, Unpacked};
use crate::commands::output::print_stderr;
use slotd_parse::error::shown;
use slotd_sys::beneath::Dir;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  slotd fetch 17@hpc\n  slotd fetch --into results 17@hpc")]
pub struct FetchArgs {
    /// Put the files into this directory, which must not exist or be empty [default: hpc-17]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    into: Option<PathBuf>,
    /// The job: 17@hpc
    #[arg(value_name = "JOB")]
    job: String,
}

/// Copies the new and changed files of a job's run to a directory of their own.
///
/// # Errors
/// Fails if this host did not submit the job, if it did not run in a copy of a work tree, if the
/// directory is not empty, if the cluster cannot be reached, or if the disk is full. No file is
/// there in that case.
pub fn fetch(args: &FetchArgs) -> Done {
    let clusters = known()?;
    let there = there(std::slice::from_ref(&args.job), &clusters)?;
    let Some(There { cluster, ids }) = there.first() else { return Ok(0) };
    let (id, name) = (&ids[0], &cluster.name);
    let token = copied(record(cluster, id)?, id, name)?.token;
    let journal = journal()?;
    // Its directory there must not be deleted meanwhile.
    let Some(_lock) = journal.lock(&token)? else {
        return Err(CliError::error(
            1,
            format!("another slotd is fetching or deleting the files of job {id}@{name}"),
        ));
    };
    let mut record = journal.read(&token)?;
    let path = args.into.clone().unwrap_or_else(|| PathBuf::from(format!("{name}-{id}")));
    let into = Target::open(path, &token)?;
    let transfer = Transfer { clusters: &clusters, there: &there[0], record: &record };
    let arrived = match transfer.run(&into.part, &into.path).and_then(|arrived| {
        into.finish().map_err(|error| transfer.not_unpacked(&into.path, &error))?;
        Ok(arrived)
    }) {
        Ok(arrived) => arrived,
        Err(error) => {
            into.abandon();
            return Err(error);
        }
    };
    let Arrived { unpacked, has_ended, is_whole } = arrived;
    for (file, why) in &unpacked.left_out {
        print_stderr(&format!("slotd: not fetched: {}: {why}\n", shown(&file.to_string_lossy())));
    }
    if !is_whole {
        print_stderr(&format!(
            "slotd: not fetched: directories of job {id}@{name} that cannot be read there\n"
        ));
    }
    if has_ended && unpacked.left_out.is_empty() {
        record.fetched = true;
        journal.update(&record)?;
    }
    let count = unpacked.files.len();
    let files = if count == 1 { "file" } else { "files" };
    print(format!("{count} {files} in {}\n", safe(&into.path.to_string_lossy())).as_bytes())?;
    Ok(u8::from(!unpacked.left_out.is_empty() || !is_whole))
}

/// Returns the record of a job that ran in a copy.
fn copied(record: Option<Record>, id: &str, name: &str) -> Result<Record, CliError> {
    let see = format!("`scontrol -M {name} show job {id}` shows its working directory");
    match record {
        None => Err(CliError::error(
            1,
            format!("job {id}@{name} was not submitted from this host, so its files are not known"),
        )
        .hint(see)),
        Some(record) if record.copied.is_none() => Err(CliError::error(
            1,
            format!("job {id}@{name} did not run in a copy, so its files are where it wrote them"),
        )
        .hint(format!("{see}; copy from there with scp"))),
        Some(record) => Ok(record),
    }
}

/// The files of a job, all of which have arrived.
struct Arrived {
    unpacked: Unpacked,
    /// The job had ended when they were read, and everything could be read.
    has_ended: bool,
    is_whole: bool,
}

struct Transfer<'a> {
    clusters: &'a Clusters,
    there: &'a There<'a>,
    record: &'a Record,
}

impl Transfer<'_> {
    fn job(&self) -> String {
        format!("job {}@{}", self.there.ids[0], self.there.cluster.name)
    }

    /// Unpacks the files of the job as they arrive. The connection ends with the first error.
    fn run(&self, dir: &Dir, into: &Path) -> Result<Arrived, CliError> {
        let cluster = self.there.cluster;
        let body = program::fetch(Place { dir: &self.record.dir, token: &self.record.token });
        let (sender, pieces) = mpsc::sync_channel(link::MOST_PIECES);
        let mut messages = Messages::default();
        let mut is_unread = false;
        let (ended, unpacked) = std::thread::scope(|scope| {
            let unpacking = scope.spawn(move || unpack_all(pieces, dir));
            let ended = Remote::new(cluster, &body, "tar").and_then(|remote| {
                remote.run(Input::Nothing, &mut |stream, bytes| match stream {
                    Stream::Out => sender.send(bytes.to_vec()).map_err(|_| {
                        is_unread = true;
                        io::ErrorKind::BrokenPipe.into()
                    }),
                    Stream::Err => messages.feed(bytes),
                })
            });
            drop(sender);
            (ended, unpacking.join())
        });
        let unpacked = unpacked
            .unwrap_or_else(|_| Err(io::Error::other("unpacking ended early")))
            .map_err(|error| self.not_unpacked(into, &error));
        let unpacked = match unpacked {
            // It ended the connection.
            Err(error) if is_unread => return Err(error),
            other => other,
        };
        let (has_ended, is_whole) = match ended? {
            Ended::Code(0) => (true, true),
            Ended::Code(program::FETCHED_EARLY) => (false, true),
            Ended::Code(program::FETCHED_PARTLY) => (false, false),
            Ended::Code(_) => {
                let text = format!("the files of {} could not be packed there", self.job());
                return Err(CliError::error(1, text));
            }
            ended => return Err(failure(self.clusters, cluster, &ended, "tar")),
        };
        Ok(Arrived { unpacked: unpacked?, has_ended, is_whole })
    }

    fn not_unpacked(&self, into: &Path, error: &io::Error) -> CliError {
        let (job, into) = (self.job(), safe(&into.to_string_lossy()));
        let text = format!("cannot unpack the files of {job} into {into}: {error}");
        let error = CliError::error(1, safe(&text));
        error.hint(
            "no file was kept there, so it can be tried again; --into names another directory",
        )
    }
}

/// Unpacks an archive and reads what follows it, so that its writer is not interrupted.
fn unpack_all(pieces: Receiver<Vec<u8>>, dir: &Dir) -> io::Result<Unpacked> {
    let mut pieces = Pieces { pieces, rest: Vec::new() };
    let unpacked = unpack::unpack(&mut pieces, dir)?;
    io::copy(&mut pieces, &mut io::sink())?;
    Ok(unpacked)
}

/// The directory for fetched files: a new one, or an empty one.
struct Target {
    path: PathBuf,
    dir: Dir,
    is_new: bool,
    /// The directory in it for files that have not all arrived.
    part: Dir,
    name: PathBuf,
}

impl Target {
    fn open(path: PathBuf, token: &str) -> Result<Target, CliError> {
        let failed = |error: io::Error| {
            CliError::error(1, format!("{}: {error}", safe(&path.to_string_lossy())))
        };
        let is_new = match DirBuilder::new().mode(0o755).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            other => other.map(|()| true).map_err(failed)?,
        };
        let dir = Dir::open(&path).map_err(failed)?;
        let name = PathBuf::from(format!(".{token}.part"));
        let mut names = dir.names().map_err(failed)?;
        if names.len() == 1 && names[0] == name.as_os_str() && is_own(&dir, &name) {
            // The lock of the submission shows that no other fetch uses it.
            dir.remove_tree(&name).map_err(failed)?;
            names.clear();
        }
        if !names.is_empty() {
            return Err(CliError::error(
                1,
                format!(
                    "{} contains {}, and fetched files never replace others",
                    safe(&path.to_string_lossy()),
                    safe(&names[0].to_string_lossy())
                ),
            )
            .hint("name another directory with --into"));
        }
        let part = dir.make_dir(&name, 0o700).map_err(failed)?;
        Ok(Target { dir, is_new, part, name, path })
    }

    /// Moves the files out of the unfinished directory, once they are on disk.
    fn finish(&self) -> io::Result<()> {
        // The copy on the cluster may be deleted from now on. Some file systems report only here
        // that they are full.
        nix::unistd::syncfs(&self.part)?;
        let names = self.part.names()?;
        for (at, name) in names.iter().enumerate() {
            if let Err(error) = self.dir.rename_new(&self.name.join(name), Path::new(name)) {
                self.take_back(&names[..at]);
                return Err(error);
            }
        }
        self.dir.remove_tree(&self.name)?;
        Ok(nix::unistd::fsync(&self.dir)?)
    }

    /// Moves files back into the unfinished directory.
    fn take_back(&self, names: &[OsString]) {
        for name in names {
            // A file that cannot be moved back stays, and the next fetch names it.
            let _ = self.dir.rename_new(Path::new(name), &self.name.join(name));
        }
    }

    /// Deletes the unfinished directory.
    fn abandon(&self) {
        // If this fails, the next fetch tries again.
        let _ = self.dir.remove_tree(&self.name);
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Returns whether this is a real directory of this user.
fn is_own(dir: &Dir, name: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    dir.metadata(name).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// The pieces of a stream that another thread receives.
struct Pieces {
    pieces: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.recv() {
                Ok(piece) => self.rest = piece,
                Err(_) => return Ok(0),
            }
        }
        let length = buffer.len().min(self.rest.len());
        buffer[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_return_if_one_of_them_cannot_be_put_in_place() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("into");
        fs::create_dir(&path).unwrap();
        let names = |dir: &Path| {
            let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<OsString> = entries.collect();
            names.sort();
            names
        };
        let into = Target::open(path.clone(), "7").unwrap();
        let files = ["a", "b", "c", "d", "e"];
        for name in files {
            fs::write(path.join(".7.part").join(name), "fetched").unwrap();
        }
        fs::write(path.join("c"), "precious").unwrap();
        let error = into.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(&path), [".7.part", "c"]);
        assert_eq!(names(&path.join(".7.part")), files);
        into.abandon();
        assert_eq!(names(&path), ["c"]);
        assert_eq!(fs::read_to_string(path.join("c")).unwrap(), "precious");
        let Err(refused) = Target::open(path.clone(), "7") else { panic!("a refusal") };
        assert!(
            refused.text("slotd").contains("into contains c, and"),
            "{}",
            refused.text("slotd")
        );
        fs::remove_file(path.join("c")).unwrap();
        let into = Target::open(path.clone(), "7").unwrap();
        fs::write(path.join(".7.part/a"), "fetched").unwrap();
        into.finish().unwrap();
        assert_eq!(names(&path), ["a"]);
    }
}
