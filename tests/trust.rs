//! What the daemon and its commands trust: directories of the user's own, that nobody else can write.

use slotd_kit::{Out, Setup, Slotd};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

/// A daemon that does not start.
fn refused(slotd: &Slotd) -> Out {
    slotd.run(slotd.daemon_command()).fails(1)
}

#[test]
fn a_root_that_others_can_write_is_refused() {
    let slotd = Setup::default().prepare();
    fs::set_permissions(&slotd.root, Permissions::from_mode(0o775)).unwrap();
    let out = refused(&slotd);
    assert!(out.stderr.contains("root: others can write it (mode 0775)"), "{}", out.stderr);
    fs::set_permissions(&slotd.root, Permissions::from_mode(0o755)).unwrap();
    let mut slotd = slotd;
    slotd.start_daemon();
}

#[test]
fn links_in_the_place_of_the_daemons_own_files_are_refused() {
    let slotd = Setup::default().prepare();
    let elsewhere = slotd.base.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, slotd.root.join("run")).unwrap();
    let out = refused(&slotd);
    assert!(out.stderr.contains("root/run: it is a link"), "{}", out.stderr);
    fs::remove_file(slotd.root.join("run")).unwrap();
    fs::create_dir(slotd.root.join("run")).unwrap();
    symlink(elsewhere.join("lock"), slotd.root.join("run/slotd.lock")).unwrap();
    refused(&slotd);
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "nothing was made where the links led"
    );
}

#[test]
fn a_link_in_the_place_of_a_jobs_directory_is_not_followed() {
    let slotd = Slotd::start();
    let elsewhere = slotd.base.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, slotd.job_dir(1)).unwrap();
    let job = slotd.wrap(&[], "true");
    assert_eq!(job, 1);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn the_users_own_output_may_be_a_link() {
    let slotd = Slotd::start();
    fs::write(slotd.path("real"), "").unwrap();
    symlink(slotd.path("real"), slotd.path("out")).unwrap();
    let job = slotd.wrap(&["-o", "out"], "echo through");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("real"), "through\n");
}

#[test]
fn texts_without_measure_are_refused_in_words_and_others_are_served() {
    let slotd = Slotd::start();
    let name = "x".repeat(10_000);
    let out = slotd.cmd("sbatch", &["-J", &name, "--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("name of 10000 bytes, 1024 at most"), "{}", out.stderr);
    assert!(out.stderr.contains("parameter too long"), "{}", out.stderr);
    for (megabytes, why) in
        [(10, "script of 10485"), (20, "is longer than the"), (100, "larger than 64 MB")]
    {
        let mut script = "#!/bin/sh\ntrue\n".to_owned();
        script.push_str(&"#".repeat(megabytes << 20));
        slotd.write("job.sh", &script);
        let out = slotd.cmd("sbatch", &["job.sh"]).fails(1);
        assert!(out.stderr.contains(why), "{}", out.stderr);
    }
    // An environment that no program could be started with comes from a file.
    let text: Vec<u8> =
        (0..100).flat_map(|n| format!("V{n}={}\0", "v".repeat(100 << 10)).into_bytes()).collect();
    fs::write(slotd.path("env"), text).unwrap();
    let out = slotd.cmd("sbatch", &["--export-file", "env", "--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("environment of 10"), "{}", out.stderr);
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}
