//! Detects NVIDIA GPUs with `nvidia-smi`.
//!
//! A GPU that is divided into MIG slices counts as one GPU per slice, each with its profile as its
//! model. The use of a slice is not reported.

use super::{Depth, Driver, Process, Seen, feature_word};
use crate::guard::{NOT_FOUND, guarded, unguarded};
use crate::program::find;
use slotd_model::gpu::Gpu;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// The names and paths at which to try `nvidia-smi`, in this order.
const PLACES: [&str; 4] =
    ["nvidia-smi", "/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/bin/nvidia-smi"];

const FORMAT: &str = "--format=csv,noheader,nounits";

/// The fields to query. Drivers before 450 do not support the last one.
const GPUS: [&str; 2] = [
    "--query-gpu=index,name,uuid,memory.total,memory.free,utilization.gpu,mig.mode.current",
    FORMAT,
];
const GPUS_OF_OLD: [&str; 2] =
    ["--query-gpu=index,name,uuid,memory.total,memory.free,utilization.gpu", FORMAT];
const PROCESSES: [&str; 2] = ["--query-compute-apps=pid,gpu_uuid,used_memory", FORMAT];
const SLICES: [&str; 1] = ["-L"];

/// The maximum size of the output in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

pub(super) struct Nvidia {
    pub timeout: Duration,
}

impl Driver for Nvidia {
    /// Queries the first `nvidia-smi` that responds.
    async fn look(&self, depth: Depth) -> io::Result<Vec<Seen>> {
        let mut failure = None;
        for place in PLACES {
            match self.look_by(place, depth).await {
                Ok(seen) => return Ok(seen),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                // A program that hangs would also hang under its other names.
                Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(Vec::new()), Err)
    }
}

impl Nvidia {
    async fn look_by(&self, program: &str, depth: Depth) -> io::Result<Vec<Seen>> {
        let lines = match self.ask(program, &GPUS).await {
            Err(e) if e.kind() == io::ErrorKind::Other => self.ask(program, &GPUS_OF_OLD).await?,
            other => other?,
        };
        let mut lines = parse(&lines);
        if lines.iter().any(|line| line.is_divided) {
            lines = divide(lines, &self.ask(program, &SLICES).await?);
        }
        let mut seen: Vec<Seen> = lines.into_iter().map(|line| line.seen).collect();
        if depth == Depth::Use && !seen.is_empty() {
            add_processes(&mut seen, &self.ask(program, &PROCESSES).await?);
        }
        Ok(seen)
    }

    /// Returns the output of the program.
    async fn ask(&self, program: &str, words: &[&str]) -> io::Result<String> {
        let is_there = if program.contains('/') {
            Path::new(program).exists()
        } else {
            find(program, &[]).is_some()
        };
        if !is_there {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut command =
            if cfg!(test) { unguarded(program) } else { guarded(Duration::ZERO, program) };
        let mut child = command.args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        // When this is dropped for any reason, the process group is killed.
        let _held = child.stdin.take();
        let mut text = String::new();
        let work = async {
            if let Some(stdout) = child.stdout.take() {
                stdout.take(MAX_OUTPUT).read_to_string(&mut text).await?;
            }
            child.wait().await
        };
        match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok(status)) if status.success() => Ok(text),
            Ok(Ok(status)) if status.code() == Some(NOT_FOUND) => {
                Err(io::ErrorKind::NotFound.into())
            }
            // The driver is not loaded or has no GPU.
            Ok(Ok(status)) => Err(io::Error::other(format!("{program} failed: {status}"))),
            Ok(Err(e)) => Err(e),
            Err(_) => {
                let late = format!("{program} did not answer within {:?}", self.timeout);
                Err(io::Error::new(io::ErrorKind::TimedOut, late))
            }
        }
    }
}

/// A line of the response to `GPUS`.
struct Line {
    seen: Seen,
    is_divided: bool,
}

/// Parses the response to `GPUS` and sorts it by ID. Skips other lines ("No devices were found",
/// "[GPU is lost]").
fn parse(csv: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = csv.lines().filter_map(parse_line).collect();
    lines.sort_by_key(|line| line.seen.gpu.id);
    lines.dedup_by_key(|line| line.seen.gpu.id);
    lines
}

fn parse_line(line: &str) -> Option<Line> {
    let mut fields = line.split(',').map(str::trim);
    let id = fields.next()?.parse().ok()?;
    let model = fields.next().and_then(feature_word);
    let uuid = fields.next().filter(|uuid| uuid.starts_with("GPU-")).map(str::to_owned);
    let mut number = || fields.next().and_then(amount);
    let (total, free, busy) = (number(), number(), number());
    let used_mb = total.zip(free).map(|(total, free)| total.saturating_sub(free));
    let is_divided = fields.next() == Some("Enabled");
    let gpu = Gpu { id, model, uuid, mem_mb: total.unwrap_or(0), ..Gpu::default() };
    let busy = busy.and_then(|percent| u32::try_from(percent).ok());
    Some(Line { seen: Seen { gpu, used_mb, busy, processes: None }, is_divided })
}

/// Parses a number with or without its unit. `[N/A]` is `None`.
fn amount(field: &str) -> Option<u64> {
    field.split_whitespace().next()?.parse().ok()
}

/// Replaces each divided GPU by its slices. They are listed below the line `GPU 0: …`, in the
/// format `  MIG 1g.10gb     Device  0: (UUID: MIG-…)`. Programs can select neither slices nor the
/// GPUs after them by number, so every GPU gets its UUID as its handle.
fn divide(lines: Vec<Line>, listing: &str) -> Vec<Line> {
    let mut slices: Vec<(u32, Gpu)> = Vec::new();
    let mut parent = None;
    for line in listing.lines() {
        if let Some((id, _)) = line.strip_prefix("GPU ").and_then(|rest| rest.split_once(':')) {
            parent = id.parse().ok();
        } else if let Some((parent, slice)) = parent.zip(parse_slice(line)) {
            slices.push((parent, slice));
        }
    }
    let mut all = Vec::new();
    for line in lines {
        if line.is_divided {
            let own = slices
                .iter()
                .filter(|(parent, _)| *parent == line.seen.gpu.id)
                .map(|(_, slice)| slice.clone());
            all.extend(
                own.map(|gpu| Line { seen: Seen { gpu, ..Seen::default() }, is_divided: false }),
            );
        } else {
            let Line { mut seen, is_divided } = line;
            seen.gpu.handle.clone_from(&seen.gpu.uuid);
            all.push(Line { seen, is_divided });
        }
    }
    (0..).zip(&mut all).for_each(|(id, line)| line.seen.gpu.id = id);
    all
}

fn parse_slice(line: &str) -> Option<Gpu> {
    let (profile, rest) = line.trim().strip_prefix("MIG ")?.split_once(char::is_whitespace)?;
    let uuid = rest.split_once("UUID: ")?.1.trim_end_matches(')').to_owned();
    // `1g.10gb` or `1g.10gb+me`, in gigabytes.
    let digits =
        profile.split_once('.').map_or("", |(_, memory)| memory.split("gb").next().unwrap_or(""));
    let mem_mb = digits.parse::<u64>().map_or(0, |gb| gb.saturating_mul(1024));
    let (model, handle) = (feature_word(profile), Some(uuid.clone()));
    Some(Gpu { model, mem_mb, uuid: Some(uuid), handle, ..Gpu::default() })
}

/// Adds the processes in the response to `PROCESSES` to their GPUs.
fn add_processes(seen: &mut [Seen], csv: &str) {
    for one in seen.iter_mut().filter(|one| one.used_mb.is_some()) {
        one.processes = Some(Vec::new());
    }
    for line in csv.lines() {
        let mut fields = line.split(',').map(str::trim);
        let Some(pid) = fields.next().and_then(|pid| pid.parse().ok()) else { continue };
        let uuid = fields.next();
        let process = Process { pid, mem_mb: fields.next().and_then(amount) };
        if let Some(one) = seen.iter_mut().find(|one| one.gpu.uuid.as_deref() == uuid) {
            one.processes.get_or_insert_default().push(process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn gpus(csv: &str) -> Vec<Gpu> {
        parse(csv).into_iter().map(|line| line.seen.gpu).collect()
    }

    #[test]
    fn gpus_are_sorted_and_have_models() {
        let gpus = gpus(
            "1, NVIDIA GeForce RTX 4090, GPU-b\n0, NVIDIA H200, GPU-a, 143771, 143000, 3, Disabled\n",
        );
        assert_eq!(
            gpus.iter().map(|g| (g.id, g.mem_mb)).collect::<Vec<_>>(),
            [(0, 143_771), (1, 0)]
        );
        assert_eq!(gpus[0].model.as_deref(), Some("nvidia_h200"));
        assert_eq!(gpus[1].model.as_deref(), Some("nvidia_geforce_rtx_4090"));
    }

    #[test]
    fn messages_about_missing_gpus_are_skipped() {
        assert!(gpus("No devices were found\n").is_empty());
        assert!(gpus("").is_empty());
    }

    #[test]
    fn the_use_and_the_processes_of_a_gpu_are_parsed() {
        let lines = parse(
            "0, NVIDIA H200, GPU-a, 1000, 900, 42, Disabled\n1, NVIDIA H200, GPU-b, 1000 MiB, [N/A], [N/A]\n",
        );
        let mut seen: Vec<Seen> = lines.into_iter().map(|line| line.seen).collect();
        add_processes(&mut seen, "12, GPU-a, 60\n13, GPU-a, [N/A]\nnone\n14, GPU-x, 1\n");
        assert_eq!((seen[0].used_mb, seen[0].busy), (Some(100), Some(42)));
        let process = |pid, mem_mb| Process { pid, mem_mb };
        assert_eq!(seen[0].processes, Some(vec![process(12, Some(60)), process(13, None)]));
        assert_eq!((seen[1].gpu.mem_mb, seen[1].used_mb, &seen[1].processes), (1000, None, &None));
    }

    #[test]
    fn a_divided_gpu_is_replaced_by_its_slices() {
        let lines = parse(
            "0, NVIDIA A100, GPU-a, 81920, 81000, 0, Enabled\n1, NVIDIA A100, GPU-b, 81920, 81000, 0, Disabled\n",
        );
        let listing = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)\n\
             \x20 MIG 3g.40gb     Device  0: (UUID: MIG-1)\n\
             \x20 MIG 1g.10gb+me  Device  1: (UUID: MIG-2)\n\
             GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-b)\n";
        let gpus: Vec<Gpu> = divide(lines, listing).into_iter().map(|line| line.seen.gpu).collect();
        let summary =
            |gpu: &Gpu| (gpu.id, gpu.model.clone().unwrap(), gpu.mem_mb, gpu.visible_as());
        let expected = [
            (0, "3g.40gb", 40_960, "MIG-1"),
            (1, "1g.10gb_me", 10_240, "MIG-2"),
            (2, "nvidia_a100", 81_920, "GPU-b"),
        ];
        let expected =
            expected.map(|(id, model, mb, name)| (id, model.to_owned(), mb, name.to_owned()));
        assert_eq!(gpus.iter().map(summary).collect::<Vec<_>>(), expected);
    }

    fn script(dir: &tempfile::TempDir, text: &str) -> String {
        let path = dir.path().join("nvidia-smi");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_string()
    }

    fn answer(program: &str, timeout: Duration) -> io::Result<Vec<Seen>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        loop {
            match runtime.block_on(Nvidia { timeout }.look_by(program, Depth::Inventory)) {
                // A process that another test is forking may still have the script open for
                // writing.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {}
                other => return other,
            }
        }
    }

    #[test]
    fn a_hung_program_is_killed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(&dir, "exec sleep 600");
        let error = answer(&program, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_failed_program_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(&dir, "exit 9");
        assert!(
            answer(&program, Duration::from_secs(60))
                .unwrap_err()
                .to_string()
                .contains("exit status: 9")
        );
        let program = script(&dir, "echo 0, NVIDIA H200, GPU-x");
        assert_eq!(answer(&program, Duration::from_secs(60)).unwrap().len(), 1);
    }

    #[test]
    fn an_old_driver_is_queried_for_fewer_fields() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(
            &dir,
            "case $1 in *mig*) exit 2;; esac; echo 0, Tesla K80, GPU-x, 11441, 11000, 0",
        );
        assert_eq!(answer(&program, Duration::from_secs(60)).unwrap()[0].gpu.mem_mb, 11_441);
    }
}
