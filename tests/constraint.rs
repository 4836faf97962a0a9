//! Constraints on features of the host.

use slotd_kit::{Setup, Slotd};

#[test]
fn feature_of_the_host_is_accepted() {
    let slotd = Setup::default().set("SLOTD_FEATURES", "avx2,bigmem").start();
    for constraint in ["avx2", "avx2&bigmem", "avx2|nosuch", "cpu", "avx2,bigmem", "[avx2|bigmem]"]
    {
        let job = slotd.wrap(&["--constraint", constraint], "true");
        slotd.wait_state(job, "COMPLETED");
    }
    assert_eq!(slotd.cmd("srun", &["-C", "avx2", "echo", "x"]).ok().stdout, "x\n");
    assert_eq!(slotd.cmd("salloc", &["-Q", "-C", "avx2", "echo", "x"]).ok().stdout, "x\n");
}

#[test]
fn unknown_feature_is_refused() {
    let slotd = Setup::default().set("SLOTD_FEATURES", "avx2").start();
    for constraint in ["nosuch", "avx2&nosuch", "nosuch|other"] {
        let out = slotd.cmd("sbatch", &["-C", constraint, "--wrap", "true"]).fails(1);
        assert!(
            out.stderr.contains("Batch job submission failed: Invalid feature specification"),
            "{}",
            out.stderr
        );
    }
    slotd.cmd("srun", &["-C", "nosuch", "true"]).fails(1);
    assert!(slotd.all_records().is_empty());
}

#[test]
fn gpu_model_is_a_feature() {
    let slotd = Slotd::setup().unset("SLOTD_GPU_COUNT").prepare();
    let mut slotd = slotd;
    slotd.program(
        "../bin/nvidia-smi",
        "#!/bin/sh\necho '0, NVIDIA H200, GPU-a'\necho '1, NVIDIA H200, GPU-b'\n",
    );
    slotd.start_daemon();
    slotd.wait_gpus();
    let job = slotd.wrap(&["-C", "nvidia_h200", "-p", "gpu"], "true");
    slotd.wait_state(job, "COMPLETED");
    slotd.cmd("sbatch", &["-C", "nvidia_a100", "--wrap", "true"]).fails(1);
}
