//! Saves the GPU numbers for the next daemon of the same boot, because running jobs use them.

use super::Places;
use crate::clock;
use crate::files::{self, MOST_SETTINGS};
use crate::paths::Paths;
use slotd_model::BootId;
use slotd_model::gpu::Gpu;
use std::io;
use std::path::PathBuf;

impl Places {
    fn kept_file(&self) -> PathBuf {
        Paths::new(self.root.clone()).lib_dir().join("gpus.json")
    }

    /// Returns the GPUs that [`Self::keep`] saved during this boot. Logs an unreadable file and
    /// ignores it.
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
                log::warn!("ignoring {} and numbering the GPUs by position: {why}", path.display());
                Vec::new()
            }
        }
    }

    /// Saves the GPUs that have a UUID and can therefore be recognized. GPUs from `SLOTD_GPU_COUNT`
    /// have none and are not saved.
    pub fn keep(&self, mut gpus: Vec<Gpu>) {
        if self.count.is_some() {
            return;
        }
        gpus.retain(|gpu| gpu.uuid.is_some());
        let path = self.kept_file();
        let text = serde_json::to_vec(&(clock::boot_id(), gpus)).unwrap_or_default();
        if let Err(e) = files::replace(&path, &text) {
            log::warn!("cannot save the GPU numbers for the next daemon: {}: {e}", path.display());
        }
    }
}
