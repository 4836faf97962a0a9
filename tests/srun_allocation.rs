//! Steps: srun inside a batch job or a salloc session.

use slotd_kit::{Setup, Slotd};

#[test]
fn srun_in_a_batch_script_is_a_step_of_it() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun -J first echo one\nsrun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'\n");
    let ended = slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), format!("one\n{job}.1\n"));
    assert_eq!(slotd.all_records().len(), 1);
    let names: Vec<&str> = ended.steps().iter().filter_map(|step| step["name"].as_str()).collect();
    assert!(names.contains(&"first"), "{names:?}");
}

#[test]
fn srun_in_a_salloc_session_is_a_step_of_it() {
    let slotd = Slotd::start();
    let out =
        slotd.cmd("salloc", &["-Q", "-n", "1", "sh", "-c", "srun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'"]).ok();
    assert_eq!(out.stdout, "1.0\n");
    let job = slotd.wait_end(1);
    assert_eq!(slotd.all_records().len(), 1);
    assert!(!job.steps().is_empty());
}

#[test]
fn a_step_gets_the_tasks_of_its_job() {
    let slotd = Slotd::start();
    let job = slotd.script(&["-n", "3"], "#!/bin/sh\nsrun sh -c 'echo $SLURM_PROCID'\nsrun -n 1 echo alone\n");
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    let mut lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.pop(), Some("alone"));
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2"]);
}

#[test]
fn a_failed_step_does_not_fail_the_job_by_itself() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'exit 7'\necho rc=$?\n");
    let ended = slotd.wait_state(job, "COMPLETED");
    assert!(slotd.output(job).ends_with("rc=7\n"));
    let step = ended.steps().iter().find(|step| step["id"]["Num"] == 0).unwrap();
    assert_eq!((step["state"].as_str(), step["exit"]["status"].as_i64()), (Some("FAILED"), Some(7)));
}

#[test]
fn steps_side_by_side_have_cpus_of_their_own() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nfor i in 1 2; do srun -n1 --exact sh -c \"echo start >> log; until [ \\$(wc -l < log) = 2 ]; \
                  do sleep 0.02; done\" & done; wait\n";
    slotd.write("log", "");
    // Each waits for the other: they only end if both run at once.
    let job = slotd.script(&["-n", "2"], script);
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn a_step_is_told_its_name_cpus_and_binding() {
    let slotd = Slotd::start();
    let steps = "#!/bin/sh\n\
                 srun -J step sh -c 'echo $SLURM_JOB_NAME $SLURM_CPUS_ON_NODE'\n\
                 srun -n1 sh -c 'echo $SLURM_JOB_NAME $SLURM_CPUS_ON_NODE'\n\
                 srun -n1 --exact sh -c 'echo $SLURM_JOB_NAME $SLURM_CPUS_ON_NODE $SLURM_JOB_CPUS_PER_NODE'\n\
                 srun -n1 -c2 sh -c 'echo $SLURM_CPUS_ON_NODE \"[$SLURM_CPU_BIND]\"'\n\
                 srun -n1 --export=NONE -J step sh -c 'echo $SLURM_JOB_NAME'\n\
                 srun -n1 --cpu-bind=none sh -c 'echo \"$SLURM_CPU_BIND $SLURM_CPU_BIND_TYPE [$SLURM_CPU_BIND_LIST]\"'\n";
    let job = slotd.script(&["-n", "1", "-c", "3", "-J", "outer"], steps);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "step 3\nouter 3\nouter 1 3\n2 []\nstep\nquiet,none none []\n");
}

#[test]
fn a_step_waits_until_the_allocation_has_room() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let script = format!(
        "#!/bin/sh\nsrun -n2 sh -c 'echo > here$SLURM_PROCID; {}' &\n\
         until [ -e here0 ] && [ -e here1 ]; do sleep 0.02; done\nsrun -n2 echo second\nwait\n",
        gate.replace('\'', "")
    );
    let job = slotd.script(&["-n", "2"], &script);
    let out = format!("slurm-{job}.out");
    let told = format!("srun: Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)\n");
    slotd.wait_text(&out, &told);
    assert!(!slotd.read(&out).contains("second"));
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let text = slotd.read(&out);
    assert!(text.contains(&format!("srun: Step created for job {job}\n")), "{text}");
    assert_eq!(text.matches("second\n").count(), 2, "{text}");
}

#[test]
fn an_overlapping_step_does_not_wait() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let id = job.to_string();
    let mut first = slotd.command("srun");
    first.args(["--jobid", &id, "sh", "-c", "echo > ready; exec sleep 1000"]);
    let first = slotd.spawn(first);
    slotd.wait_text("ready", "");
    assert_eq!(slotd.cmd("srun", &["--overlap", "--jobid", &id, "echo", "beside"]).ok().stdout, "beside\n");
    drop(first);
}

#[test]
fn more_than_the_allocation_has_is_refused() {
    let slotd = Slotd::start();
    let job =
        slotd.script(&["-n", "2"], "#!/bin/sh\nsrun -n 4 true; echo rc=$?\nsrun -n1 --mem=50000 true; echo rc=$?\n");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.output(job),
        format!(
            "srun: error: Unable to create step for job {job}: More processors requested than permitted\nrc=1\n\
             srun: error: Unable to create step for job {job}: Memory required by task is not available\nrc=1\n"
        )
    );
    let job = slotd.script(&["-n", "2"], "#!/bin/sh\nsrun -n 4 -O echo x\n");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "x\n".repeat(4));
}

#[test]
fn a_step_elsewhere_than_on_the_node_is_refused() {
    let slotd = Slotd::start();
    let options = ["-N2", "-w nohost", "-r1", "-r1 -N1", "-x localhost", "-rx", "-N1 -r0 -w localhost"];
    let steps: String = options.iter().map(|options| format!("srun {options} true; echo rc=$?\n")).collect();
    let job = slotd.script(&[], &format!("#!/bin/sh\n{steps}"));
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.output(job),
        format!(
            "srun: error: Only allocated 1 nodes asked for 2\nrc=1\n\
             srun: error: Unable to create step for job {job}: Requested node configuration is not available\nrc=1\n\
             srun: error: --relative and SLURM_JOB_NUM_NODES option incompatible with count of allocated nodes (1+1>1)\n\
             rc=1\n\
             srun: error: --relative and --nodes option incompatible with count of allocated nodes (1+1>1)\nrc=1\n\
             srun: error: Hostlist is empty!  Can't run job.\nrc=1\n\
             srun: error: Invalid numeric value \"x\" for --relative.\nrc=1\n\
             rc=0\n"
        )
    );
    let out = slotd.cmd("srun", &["-r1", "true"]).fails(1);
    assert_eq!(out.stderr, "srun: fatal: --relative option invalid for job allocation request\n");
}

#[test]
fn steps_share_the_gpus_and_never_one() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let step = "srun -n1 -G1 --exact sh -c \"echo \\$CUDA_VISIBLE_DEVICES >> gpus; until [ \\$(wc -l < gpus) = 2 ]; \
                do sleep 0.02; done\"";
    slotd.write("gpus", "");
    let job = slotd.script(&["-p", "gpu", "-G", "2", "-n", "2"], &format!("#!/bin/sh\n{step} &\n{step} &\nwait\n"));
    slotd.wait_state(job, "COMPLETED");
    let gpus = slotd.read("gpus");
    let mut lines: Vec<&str> = gpus.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1"]);
}

#[test]
fn the_job_is_found_by_its_number_alone() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nfor name in $(env | grep ^SLURM_ | cut -d= -f1); do\n  [ $name = SLURM_JOB_ID ] || unset $name\n\
                  done\nsrun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'\n";
    let job = slotd.script(&[], script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), format!("{job}.0\n"));
}

#[test]
fn fifty_steps_are_all_recorded_in_order() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\ni=0\nwhile [ $i -lt 50 ]; do srun sh -c 'exit $((SLURM_STEP_ID % 2))'; i=$((i+1)); done 2>/dev/null\nexit 0\n");
    let ended = slotd.wait_state(job, "COMPLETED");
    let mut numbers: Vec<(u64, i64)> = ended
        .steps()
        .iter()
        .filter_map(|step| Some((step["id"]["Num"].as_u64()?, step["exit"]["status"].as_i64()?)))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).map(|n| (n, n as i64 % 2)).collect::<Vec<_>>());
}

#[test]
fn the_end_of_the_job_ends_its_steps() {
    let slotd = Slotd::start();
    let job = slotd.script(
        &[],
        "#!/bin/sh\nsrun sh -c 'echo > ready; exec sleep 1000' &\nuntil [ -e ready ]; do sleep 0.02; done\nexit 0\n",
    );
    slotd.wait_end(job);
    slotd.wait("the end of the step's process", || {
        (!slotd.processes().iter().any(|pid| slotd_kit::proc::cmdline(*pid).starts_with("sleep 1000"))).then_some(())
    });
}
