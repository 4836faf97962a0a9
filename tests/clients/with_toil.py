"""Toil: a workflow of functions as jobs, chained children, a job that succeeds on the second attempt, and resource requests."""

import pathlib

from check import all_jobs, becomes, check, run
from toil.common import Toil
from toil.job import Job


def square(job, x):
    import os

    return x * x, os.environ["SLURM_CPUS_PER_TASK"]


def flaky(job, mark):
    path = pathlib.Path(mark)
    if not path.exists():
        path.touch()
        raise RuntimeError("expected failure")
    return "second"


def total(job, parts, tried):
    return sum(part for part, _ in parts), {cpus for _, cpus in parts}, tried


def root(job, mark):
    parts = [job.addChildJobFn(square, x, cores=2, memory="300M", disk="10M").rv() for x in range(4)]
    tried = job.addChildJobFn(flaky, mark, cores=1, memory="200M", disk="10M").rv()
    return job.addFollowOnJobFn(total, parts, tried, cores=1, memory="200M", disk="10M").rv()


if __name__ == "__main__":
    options = Job.Runner.getDefaultOptions(str(pathlib.Path("store").resolve()))
    options.batchSystem = "slurm"
    options.clean = "always"
    options.retryCount = 1
    options.disableCaching = True
    options.statePollingWait = 1
    options.slurm_time = 600
    options.slurm_partition = "cpu"
    options.disableChaining = True
    with Toil(options) as toil:
        found = toil.start(Job.wrapJobFn(root, str(pathlib.Path("tried").resolve()), cores=1, memory="200M", disk="10M"))
    check("a workflow", found, (14, {"2"}, "second"))
    becomes("the end", lambda: run("squeue", "-h", "--me"), "")
    rows = [row.split("|") for row in all_jobs("JobName,AllocCPUS,Timelimit,State")]
    check("requested resources", [row[1:] for row in rows if "square" in row[0]], [["2", "00:10:00", "COMPLETED"]] * 4)
    check("the second attempt", [row[3] for row in rows if "flaky" in row[0]], ["FAILED", "COMPLETED"])
