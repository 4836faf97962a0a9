//! Which step is being launched at this moment: what a daemon that dies tells the next one.
//!
//! A step that takes the daemon down with its launch (out of memory, say) would do so again at
//! every start. Its job and number stand in `<root>/run/launching` while its launch is made, and
//! nothing while none is: a few bytes written in place, which outlive the process and cost a launch
//! two microseconds. They need no sync: after a power cut nothing is known of a launch, and nothing
//! is counted against the step.

use crate::model::node::LaunchAtDeath;
use crate::model::{JobId, StepId, StepKey};
use crate::sys::files;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Of job, step and deaths of daemons, four bytes each.
const LENGTH: usize = 12;

/// The numbers of the steps that have none.
const BATCH: u32 = u32::MAX;
const INTERACTIVE: u32 = u32::MAX - 1;

#[derive(Debug)]
pub struct LaunchMark {
    /// `None` where it cannot be made: then a death is not counted against any step.
    file: Option<File>,
    /// What the last daemon died of.
    before: Option<LaunchAtDeath>,
}

/// While it lives, a launch is under way.
#[derive(Debug)]
#[must_use]
pub struct Underway<'a>(&'a LaunchMark);

fn encode(step: StepKey, deaths: u32) -> [u8; LENGTH] {
    let number = match step.step {
        StepId::Batch => BATCH,
        StepId::Interactive => INTERACTIVE,
        StepId::Num(number) => number,
    };
    let mut bytes = [0; LENGTH];
    for (place, value) in bytes.chunks_mut(4).zip([step.job.0, number, deaths]) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn decode(bytes: [u8; LENGTH]) -> Option<(StepKey, u32)> {
    let value =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let step = match value(4) {
        BATCH => StepId::Batch,
        INTERACTIVE => StepId::Interactive,
        number => StepId::Num(number),
    };
    let job = JobId(value(0));
    (job.0 > 0).then_some((StepKey { job, step }, value(8)))
}

fn open(root: &Path) -> io::Result<File> {
    let dir = root.join("run");
    fs::create_dir_all(&dir)?;
    files::own(
        File::options().read(true).write(true).create(true).truncate(false),
        &dir.join("launching"),
    )
}

impl LaunchMark {
    /// The mark of this root.
    pub fn open(root: &Path) -> LaunchMark {
        let file = match open(root) {
            Ok(file) => file,
            Err(e) => {
                log::warn!(
                    "{}: launches cannot be marked: {e}",
                    root.join("run/launching").display()
                );
                return LaunchMark { file: None, before: None };
            }
        };
        let mut bytes = [0; LENGTH];
        let read = file.read_at(&mut bytes, 0).unwrap_or(0);
        let found = (read == LENGTH).then(|| decode(bytes)).flatten();
        let before =
            found.map(|(step, deaths)| LaunchAtDeath { step, deaths: deaths.saturating_add(1) });
        let mark = LaunchMark { file: Some(file), before };
        // Now rather than at the first launch, so that a disk that is full by then has room for it.
        mark.write([0; LENGTH]);
        mark
    }

    /// What was being launched when an earlier daemon died.
    pub fn before(&self) -> Option<LaunchAtDeath> {
        self.before
    }

    /// The launch of this step begins. One at a time.
    pub fn begin(&self, step: StepKey) -> Underway<'_> {
        let deaths =
            self.before.filter(|before| before.step == step).map_or(0, |before| before.deaths);
        self.write(encode(step, deaths));
        Underway(self)
    }

    fn write(&self, bytes: [u8; LENGTH]) {
        // Without it a death of the daemon is not counted against the step: no reason not to launch
        // it.
        if let Some(Err(e)) = self.file.as_ref().map(|file| file.write_all_at(&bytes, 0)) {
            log::debug!("the mark of a launch could not be written: {e}");
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.write([0; LENGTH]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;

    fn key(job: u32, step: StepId) -> StepKey {
        StepKey { job: JobId(job), step }
    }

    #[test]
    fn a_launch_that_was_not_ended_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let found = || LaunchMark::open(dir.path()).before();
        let mark = LaunchMark::open(dir.path());
        assert_eq!(mark.before(), None);
        drop(mark.begin(key(6, StepId::Batch)));
        assert_eq!(found(), None);
        for step in [StepId::Batch, StepId::Interactive, StepId::Num(3)] {
            // As a process leaves it that is killed.
            mark.write(encode(key(7, step), 0));
            assert_eq!(found(), Some(LaunchAtDeath { step: key(7, step), deaths: 1 }));
            assert_eq!(found(), None);
        }
    }

    #[test]
    fn the_deaths_of_one_step_are_counted_from_daemon_to_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let step = key(7, StepId::Num(0));
        let mut before = None;
        for deaths in 0..3 {
            let mark = LaunchMark::open(dir.path());
            assert_eq!(mark.before(), before);
            drop(mark.begin(key(8, StepId::Batch)));
            // As a process leaves it that is killed.
            let _ = ManuallyDrop::new(mark.begin(step));
            before = Some(LaunchAtDeath { step, deaths: deaths + 1 });
        }
        let mark = LaunchMark::open(dir.path());
        assert_eq!(mark.before(), before);
        let _ = ManuallyDrop::new(mark.begin(key(8, StepId::Batch)));
        let other = LaunchMark::open(dir.path()).before();
        assert_eq!(other, Some(LaunchAtDeath { step: key(8, StepId::Batch), deaths: 1 }));
    }
}
