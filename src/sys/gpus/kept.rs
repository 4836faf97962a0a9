//! The GPUs that a daemon knew, kept for the next one under the same boot: jobs that go on have
//! them by these numbers.

use super::Places;
use crate::model::BootId;
use crate::model::gpu::Gpu;
use crate::sys::clock;
use crate::sys::files::{self, MOST_SETTINGS};
use crate::sys::paths::Paths;
use std::io;
use std::path::PathBuf;

impl Places {
    fn kept_file(&self) -> PathBuf {
        Paths::new(self.root.clone()).lib_dir().join("gpus.json")
    }

    /// What [`Self::keep`] wrote under this boot. A file that cannot be read is told in the log.
    pub fn kept(&self) -> Vec<Gpu> {
        let path = self.kept_file();
        let read = files::read(&path, MOST_SETTINGS);
        if read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            return Vec::new();
        }
        let known = |bytes: Vec<u8>| Ok(serde_json::from_slice::<(BootId, Vec<Gpu>)>(&bytes)?);
        match read.and_then(known) {
            Ok((boot, gpus)) if self.count.is_none() && boot == clock::boot_id() => gpus,
            Ok(_) => Vec::new(),
            Err(why) => {
                log::warn!(
                    "{} is left aside, and GPUs have the numbers of their places: {why}",
                    path.display()
                );
                Vec::new()
            }
        }
    }

    /// Keeps the GPUs that can be told again by a name of their own; those of a setting are only
    /// counted.
    pub fn keep(&self, mut gpus: Vec<Gpu>) {
        if self.count.is_some() {
            return;
        }
        gpus.retain(|gpu| gpu.uuid.is_some());
        let path = self.kept_file();
        let text = serde_json::to_vec(&(clock::boot_id(), gpus)).unwrap_or_default();
        if let Err(e) = files::replace(&path, &text) {
            log::warn!(
                "the numbers of the GPUs are not kept for the next daemon: {}: {e}",
                path.display()
            );
        }
    }
}
