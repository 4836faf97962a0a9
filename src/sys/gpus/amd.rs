//! Detects AMD GPUs through sysfs.
//!
//! Only GPUs that ROCm can use are counted: the host must have `/dev/kfd`, and the GPU needs a
//! significant amount of memory of its own, which rules out integrated graphics.

use super::{Depth, Driver, Seen, feature_word};
use crate::aside;
use slotd_model::gpu::{Gpu, Maker};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const VENDOR: &str = "0x1002";

/// GPUs with less memory than this are integrated graphics.
const LEAST_MB: u64 = 2048;

pub(super) struct Amd {
    pub sysfs: PathBuf,
    pub devices: PathBuf,
}

impl Driver for Amd {
    async fn look(&self, _: Depth) -> io::Result<Vec<Seen>> {
        let (sysfs, devices) = (self.sysfs.clone(), self.devices.clone());
        let find = move || find(&sysfs, &devices);
        aside::run("looking for GPUs", aside::PATIENCE, find).await.map_err(io::Error::other)
    }
}

/// Returns the GPUs in PCI bus order, which is how ROCm numbers them.
fn find(sysfs: &Path, devices: &Path) -> Vec<Seen> {
    if !devices.join("kfd").exists() {
        return Vec::new();
    }
    let cards = fs::read_dir(sysfs.join("class/drm")).into_iter().flatten().flatten();
    // `card0`, but not its connectors such as `card0-DP-1`.
    let is_card =
        |name: &str| name.strip_prefix("card").is_some_and(|number| number.parse::<u32>().is_ok());
    let cards = cards.filter(|card| card.file_name().to_str().is_some_and(is_card));
    let mut found: Vec<(String, Seen)> =
        cards.filter_map(|card| read(&card.path().join("device"))).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    // ROCm numbers only its own GPUs.
    let numbered = |(id, (_, seen)): (u32, (String, Seen))| Seen {
        gpu: Gpu { id, handle: Some(id.to_string()), ..seen.gpu },
        ..seen
    };
    (0..).zip(found).map(numbered).collect()
}

/// Reads a GPU and its PCI slot.
fn read(device: &Path) -> Option<(String, Seen)> {
    let text =
        |name: &str| fs::read_to_string(device.join(name)).ok().map(|text| text.trim().to_owned());
    let mb = |name: &str| text(name)?.parse::<u64>().ok().map(|bytes| bytes >> 20);
    let mem_mb = mb("mem_info_vram_total").filter(|mb| *mb >= LEAST_MB)?;
    if text("vendor")? != VENDOR {
        return None;
    }
    let slot = text("uevent")?
        .lines()
        .find_map(|line| line.strip_prefix("PCI_SLOT_NAME=").map(str::to_owned))?;
    let model = text("product_name")
        .as_deref()
        .and_then(feature_word)
        .or_else(|| Some("amd_gpu".to_owned()));
    // Consumer cards have no unique ID. The slot identifies a card until the hardware is changed.
    let uuid = text("unique_id").filter(|id| !id.is_empty()).unwrap_or_else(|| slot.clone());
    let gpu = Gpu { model, mem_mb, uuid: Some(uuid), maker: Maker::Amd, ..Gpu::default() };
    let busy = text("gpu_busy_percent").and_then(|percent| percent.parse().ok());
    Some((slot, Seen { gpu, used_mb: mb("mem_info_vram_used"), busy, processes: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, card: &str, files: &[(&str, &str)]) {
        let device = dir.join("class/drm").join(card).join("device");
        fs::create_dir_all(&device).unwrap();
        files
            .iter()
            .for_each(|(name, text)| fs::write(device.join(name), format!("{text}\n")).unwrap());
    }

    #[test]
    fn gpus_with_their_own_memory_are_found_in_bus_order() {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = dir.path();
        let large = [
            ("vendor", VENDOR),
            ("mem_info_vram_total", "68702699520"),
            ("mem_info_vram_used", "10485760"),
        ];
        put(
            sysfs,
            "card0",
            &[&large[..], &[("uevent", "PCI_SLOT_NAME=0000:83:00.0"), ("gpu_busy_percent", "7")]]
                .concat(),
        );
        put(
            sysfs,
            "card1",
            &[
                &large[..],
                &[("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0"), ("unique_id", "ab12")],
            ]
            .concat(),
        );
        put(sysfs, "card1-DP-1", &large);
        let small = [
            ("vendor", VENDOR),
            ("mem_info_vram_total", "536870912"),
            ("uevent", "PCI_SLOT_NAME=0000:01:00.0"),
        ];
        put(sysfs, "card2", &small);
        put(sysfs, "card3", &[("vendor", "0x8086")]);
        put(sysfs, "card1", &[("product_name", "AMD Instinct MI210")]);
        assert!(find(sysfs, sysfs).is_empty(), "ROCm has no device");
        fs::write(sysfs.join("kfd"), "").unwrap();
        let found = find(sysfs, sysfs);
        let summary = |one: &Seen| {
            (one.gpu.id, one.gpu.model.clone().unwrap(), one.gpu.uuid.clone().unwrap(), one.busy)
        };
        let expected =
            [(0, "amd_instinct_mi210", "ab12", None), (1, "amd_gpu", "0000:83:00.0", Some(7))];
        let expected =
            expected.map(|(id, model, uuid, busy)| (id, model.to_owned(), uuid.to_owned(), busy));
        assert_eq!(found.iter().map(summary).collect::<Vec<_>>(), expected);
        assert_eq!(
            (found[0].gpu.mem_mb, found[0].used_mb, found[0].gpu.visible_as()),
            (65_520, Some(10), "0".to_owned())
        );
    }
}
