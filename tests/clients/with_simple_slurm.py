"""simple-slurm: scripts on standard input with padded directives, dependencies, srun, the queue and cancellation."""

import datetime
import pathlib
import subprocess

from check import check, wait_for
from simple_slurm import Slurm


def state(job):
    words = ["sacct", "-X", "-n", "-P", "-o", "State", "-j", str(job)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


array = Slurm(
    array=range(3, 6),
    cpus_per_task=2,
    job_name='"a name"',
    output=f"{Slurm.JOB_ARRAY_MASTER_ID}_{Slurm.JOB_ARRAY_ID}.out",
    time=datetime.timedelta(minutes=2, seconds=3),
)
array.add_cmd("x='before it'")
first = array.sbatch('echo "$x"', Slurm.SLURM_ARRAY_TASK_ID)
second = Slurm(job_name="dep", dependency={"afterok": first}, output="dep.out", mem="100M").sbatch(
    "echo after it: " + Slurm.SLURM_JOB_NAME
)
wait_for("a chain of jobs", lambda: state(second) == ["COMPLETED"])
check("array", [pathlib.Path(f"{first}_{i}.out").read_text() for i in (3, 4, 5)], [f"before it {i}\n" for i in (3, 4, 5)])
check("dependency", pathlib.Path("dep.out").read_text(), "after it: dep\n")
check("srun", Slurm(ntasks=2, mem="50M").srun("test -n '$SLURM_PROCID'"), 0)

waits = Slurm(output="/dev/null", hold="").sbatch("true")
queue = Slurm().squeue
queue.update_squeue()
columns = ("NAME", "ST", "TIME", "NODES", "CPUS", "TRES_PER_NODE", "NODELIST(REASON)")
check("queue", [queue.jobs[waits][name] for name in columns], ["sbatch", "PD", "0:00", "1", "1", "N/A", "(JobHeldUser)"])
Slurm().scancel.cancel_job(waits)
wait_for("a cancellation", lambda: state(waits)[:1] == ["CANCELLED"])
check("cancelled", state(waits)[:2], ["CANCELLED", "by"])
