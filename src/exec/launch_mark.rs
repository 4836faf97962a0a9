//! Records which step is being launched, so that the next daemon knows if this one dies.
//!
//! If launching a step kills the daemon (out of memory, say), it would do so again at every start.
//! While a launch is in progress, its job and step are recorded in `<root>/run/launching`. These
//! few bytes are written in place, survive the process, and cost each launch two microseconds. They
//! are not synced: after a power failure nothing is known about a launch, and nothing is counted
//! against the step.

use slotd_model::node::LaunchAtDeath;
use slotd_model::{JobId, StepId, StepKey};
use slotd_sys::files;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Job, step and number of deaths, four bytes each.
const LENGTH: usize = 12;

/// Placeholders for the steps without a number.
const BATCH: u32 = u32::MAX;
const INTERACTIVE: u32 = u32::MAX - 1;

#[derive(Debug)]
pub struct LaunchMark {
    /// `None` if it cannot be created. Then a death is not counted against any step.
    file: Option<File>,
    /// The launch during which the last daemon died.
    before: Option<LaunchAtDeath>,
}

/// A launch in progress; it ends when this is dropped.
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
    /// Opens the launch mark of this root, reads the previous launch from it, and clears it.
    pub fn open(root: &Path) -> LaunchMark {
        let file = match open(root) {
            Ok(file) => file,
            Err(e) => {
                log::warn!(
                    "{}: cannot record which step is being launched: {e}",
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
        // Write now instead of at the first launch: the disk may be full by then.
        mark.write([0; LENGTH]);
        mark
    }

    /// Returns the step that was being launched when an earlier daemon died.
    pub fn before(&self) -> Option<LaunchAtDeath> {
        self.before
    }

    /// Records that the launch of this step starts. There may be only one at a time.
    pub fn begin(&self, step: StepKey) -> Underway<'_> {
        let deaths =
            self.before.filter(|before| before.step == step).map_or(0, |before| before.deaths);
        self.write(encode(step, deaths));
        Underway(self)
    }

    fn write(&self, bytes: [u8; LENGTH]) {
        // Launch the step anyway: at worst, a death of the daemon is not counted against it.
        if let Some(Err(e)) = self.file.as_ref().map(|file| file.write_all_at(&bytes, 0)) {
            log::debug!("could not record the step being launched: {e}");
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
    fn an_unfinished_launch_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let found = || LaunchMark::open(dir.path()).before();
        let mark = LaunchMark::open(dir.path());
        assert_eq!(mark.before(), None);
        drop(mark.begin(key(6, StepId::Batch)));
        assert_eq!(found(), None);
        for step in [StepId::Batch, StepId::Interactive, StepId::Num(3)] {
            // The state that a killed process leaves behind.
            mark.write(encode(key(7, step), 0));
            assert_eq!(found(), Some(LaunchAtDeath { step: key(7, step), deaths: 1 }));
            assert_eq!(found(), None);
        }
    }

    #[test]
    fn deaths_of_a_step_are_counted_across_daemons() {
        let dir = tempfile::tempdir().unwrap();
        let step = key(7, StepId::Num(0));
        let mut before = None;
        for deaths in 0..3 {
            let mark = LaunchMark::open(dir.path());
            assert_eq!(mark.before(), before);
            drop(mark.begin(key(8, StepId::Batch)));
            // The state that a killed process leaves behind.
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
