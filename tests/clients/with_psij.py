"""PSI/J: results, states, several ranks with srun, a failure, a time limit, cancellation, and listing other jobs."""

import datetime
import pathlib

from check import PATIENCE, check, lines, run, wait_for
from psij import Job, JobAttributes, JobExecutor, JobSpec, JobState, ResourceSpecV1

executor = JobExecutor.get_instance("slurm")
# Poll the states twice a second instead of twice a minute.
executor.config.queue_polling_interval = 1
executor.config.initial_queue_polling_delay = 1


def submitted(*words, seconds=300, launcher="single", resources=None, **more):
    attributes = JobAttributes(duration=datetime.timedelta(seconds=seconds), queue_name="cpu", account="lab")
    spec = JobSpec(executable=words[0], arguments=list(words[1:]), attributes=attributes, launcher=launcher, **more)
    spec.resources = resources or ResourceSpecV1(process_count=1)
    job = Job(spec)
    executor.submit(job)
    return job


here = pathlib.Path.cwd()
(here / "in").write_text("given\n")
plain = submitted(
    "/bin/sh", "-c", "cat; echo $GREETING from $(pwd)", stdin_path=here / "in", stdout_path=here / "out",
    environment={"GREETING": "a word"}, directory=here,
)
size = ResourceSpecV1(node_count=1, processes_per_node=3, cpu_cores_per_process=2)
ranks = submitted("/bin/sh", "-c", "echo $SLURM_PROCID $SLURM_CPUS_PER_TASK", launcher="srun", resources=size, stdout_path=here / "ranks")
bad = submitted("/bin/sh", "-c", "exit 5")
late = submitted("sleep", "1000", seconds=2)
stopped = submitted("sleep", "1000")
wait_for("a start", lambda: stopped.status.state == JobState.ACTIVE)
check("a list", stopped.native_id in executor.list(), True)
stopped.cancel()
ends = [(plain, "COMPLETED"), (ranks, "COMPLETED"), (bad, "FAILED"), (late, "FAILED"), (stopped, "CANCELED")]
for job, _ in ends:
    job.wait(datetime.timedelta(seconds=PATIENCE))
check("states", [job.status.state.name for job, _ in ends], [state for _, state in ends])
check("exit code", bad.status.exit_code, 5)
check("a time limit", "limit" in (late.status.message or "").lower(), True)
check("output", lines("out"), ["given", f"a word from {here}"])
check("ranks", sorted(lines("ranks")), ["0 2", "1 2", "2 2"])
found = run("sacct", "-n", "-P", "-X", "-o", "Account,AllocCPUS,Timelimit", "-j", ranks.native_id).strip()
check("requested resources", found, "lab|6|00:05:00")
