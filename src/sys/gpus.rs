//! The GPUs that `nvidia-smi` reports. `SLOTD_GPU_COUNT` is the caller's.

use crate::model::gpu::Gpu;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// Where `nvidia-smi` is looked for, in this order.
const PLACES: [&str; 4] = ["nvidia-smi", "/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/bin/nvidia-smi"];

/// What is asked of it.
const QUERY: [&str; 2] = ["--query-gpu=index,name,uuid", "--format=csv,noheader"];

/// No machine has more text about its GPUs than this.
const MAX_OUTPUT: u64 = 1 << 20;

/// The GPUs in the answer to `QUERY`, ascending. Lines that are no GPU ("No devices were found") are passed over.
pub fn parse(csv: &str) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = csv.lines().filter_map(parse_line).collect();
    gpus.sort_by_key(|gpu| gpu.id);
    gpus.dedup_by_key(|gpu| gpu.id);
    gpus
}

fn parse_line(line: &str) -> Option<Gpu> {
    let mut fields = line.split(',').map(str::trim);
    let id = fields.next()?.parse().ok()?;
    let model = fields.next().and_then(feature_word);
    Some(Gpu { id, model, ..Gpu::default() })
}

/// A model as one word that can be a feature or a GRES type: `NVIDIA H200` is `nvidia_h200`. As Slurm's gres/gpu
/// plugin with AutoDetect names them: small letters, anything but letters, digits, `-` and `.` an underscore.
fn feature_word(name: &str) -> Option<String> {
    let word: String = name
        .trim()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c.to_ascii_lowercase() } else { '_' })
        .collect();
    let word = word.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    (!word.is_empty()).then_some(word)
}

/// `n` GPUs of which nothing is known but their number.
pub fn counted(n: u32) -> Vec<Gpu> {
    (0..n).map(|id| Gpu { id, ..Gpu::default() }).collect()
}

/// Asks the first `nvidia-smi` that answers. A machine without one has no GPUs.
///
/// # Errors
/// There is an `nvidia-smi`, and it did not answer within `timeout` (it was killed then) or failed: the caller
/// should keep what it knew. The text names the program.
pub async fn probe(timeout: Duration) -> io::Result<Vec<Gpu>> {
    let mut failure = None;
    for place in PLACES {
        match ask(place, timeout).await {
            Ok(gpus) => return Ok(gpus),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            // A program that hangs would hang at its other names too.
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    failure.map_or(Ok(Vec::new()), Err)
}

/// Asks one program.
pub async fn ask(program: &str, timeout: Duration) -> io::Result<Vec<Gpu>> {
    let mut child = Command::new(program)
        .args(QUERY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut text = String::new();
    let work = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_OUTPUT).read_to_string(&mut text).await?;
        }
        child.wait().await
    };
    match tokio::time::timeout(timeout, work).await {
        Ok(Ok(status)) if status.success() => Ok(parse(&text)),
        // The driver is not loaded, or there is no GPU behind it.
        Ok(Ok(status)) => Err(io::Error::other(format!("{program} failed: {status}"))),
        Ok(Err(e)) => Err(e),
        // The child is killed and reaped as it is dropped.
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} did not answer within {timeout:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn gpus_come_in_order_with_their_models() {
        let csv = "1, NVIDIA GeForce RTX 4090, GPU-b\n0, NVIDIA H200, GPU-a\n";
        let gpus = parse(csv);
        assert_eq!(gpus.iter().map(|g| g.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(gpus[0].model.as_deref(), Some("nvidia_h200"));
        assert_eq!(gpus[1].model.as_deref(), Some("nvidia_geforce_rtx_4090"));
    }

    #[test]
    fn a_machine_without_gpus_says_so_in_words() {
        assert!(parse("No devices were found\n").is_empty());
        assert!(parse("").is_empty());
    }

    fn script(dir: &tempfile::TempDir, text: &str) -> String {
        let path = dir.path().join("nvidia-smi");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_string()
    }

    fn answer(program: &str, timeout: Duration) -> io::Result<Vec<Gpu>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        loop {
            match runtime.block_on(ask(program, timeout)) {
                // A process that another test is just forking still has the script open for writing.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {}
                other => return other,
            }
        }
    }

    #[test]
    fn a_program_that_hangs_is_killed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(&dir, "exec sleep 600");
        let error = answer(&program, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_program_that_fails_is_an_error_and_one_that_answers_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(&dir, "exit 9");
        assert!(answer(&program, Duration::from_secs(10)).unwrap_err().to_string().contains("exit status: 9"));
        let program = script(&dir, "echo 0, NVIDIA H200, GPU-x");
        assert_eq!(answer(&program, Duration::from_secs(10)).unwrap().len(), 1);
    }
}
