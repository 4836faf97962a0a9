//! The book's page "Batch Jobs with sbatch", line by line: each sentence, row, token and value has
//! a test named after it. The module `man_page` covers options beyond the page, from the issue and
//! Slurm's man page.

use slotd_kit::Slotd;

#[test]
fn form_sbatch_options_script() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\necho from $SLURM_JOB_NAME\n");
    let out = slotd.cmd("sbatch", &["-J", "named", "job.sh"]).ok();
    assert_eq!(out.text(), "Submitted batch job 1");
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.output(1), "from named\n");
}

#[test]
fn it_creates_a_persisted_batch_job_record_and_submits_it_to_the_daemon() {
    let mut slotd = Slotd::start();
    let id = slotd.wrap(&["--hold", "-J", "kept"], "true");
    slotd.crash();
    assert_eq!(slotd.sacct(id, "JobName,State"), "kept|PENDING");
    assert_eq!(slotd.show(id, "BatchFlag"), "1");
}

#[test]
fn script_mode_stores_the_body_in_the_job_directory() {
    let slotd = Slotd::start();
    let body = "#!/bin/sh\n# a body\necho $0\n";
    let id = slotd.script(&[], body);
    slotd.wait_state(id, "COMPLETED");
    let stored = slotd.job_dir(id).join("script.sh");
    assert_eq!(std::fs::read_to_string(&stored).unwrap(), body);
    assert_eq!(slotd.output(id), format!("{}\n", stored.display()));
}

#[test]
fn wrap_mode_creates_an_internal_shell_script_around_the_command() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&[], "cat $0 | head -1; false || echo 'a  b' | tr a c");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.output(id), "#!/bin/sh\nc  b\n");
}

#[test]
fn wrap_mode_launches_one_local_process_per_task_rank() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--ntasks", "3"], "echo $SLURM_PROCID of $SLURM_NTASKS");
    slotd.wait_state(id, "COMPLETED");
    let mut lines: Vec<String> = slotd.output(id).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0 of 3", "1 of 3", "2 of 3"]);
    assert_eq!(slotd.show(id, "BatchTasks"), "ranks");
}

#[test]
fn default_cpus_per_task_is_1() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--hold"], "true");
    assert_eq!(slotd.show(id, "CPUs/Task"), "1");
    assert_eq!(slotd.job(id).tres().0, 1);
}

#[test]
fn default_ntasks_is_1() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&[], "echo once");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.show(id, "NumTasks"), "1");
    assert_eq!(slotd.output(id), "once\n");
}

#[test]
fn default_mem_is_512m() {
    let slotd = Slotd::start();
    assert_eq!(slotd.shown(&[], "%m"), "512M");
}

#[test]
fn default_partition_is_the_configured_default_partition() {
    let slotd = Slotd::setup().set("SLOTD_CPU_PARTITIONS", "short,long").start();
    assert_eq!(slotd.shown(&[], "%P"), "short");
}
