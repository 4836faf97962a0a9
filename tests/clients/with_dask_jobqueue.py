"""dask-jobqueue: workers as jobs, scaled up and down, and a runner that turns the tasks of one job into a cluster."""

import os
import pathlib
import sys

from check import PATIENCE, becomes, check, lines, run
from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def name_and_square(x):
    return os.environ["SLURM_JOB_ID"], os.environ["SLURM_CPUS_PER_TASK"], x * x


def main():
    with SLURMCluster(
        cores=2, processes=1, memory="900MB", walltime="00:10:00", queue="cpu", account="lab", job_name="worker",
        log_directory="logs", interface="lo", python=sys.executable, job_script_prologue=["export SET_UP=1"],
        job_extra_directives=["--comment='of dask'"],
    ) as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=PATIENCE)
        answers = client.gather(client.map(name_and_square, range(40), pure=False))
        check("results", [square for _, _, square in answers], [x * x for x in range(40)])
        jobs = run("squeue", "-h", "-r", "--me", "-o", "%i").split()
        check("size of their jobs", {(job in jobs, cpus) for job, cpus, _ in answers}, {(True, "2")})
        asked = run("sacct", "-X", "-n", "-P", "-o", "JobName,AllocCPUS,Timelimit,Account,Comment", "-j", ",".join(jobs))
        check("requested resources", set(asked.splitlines()), {"worker|2|00:10:00|lab|of dask"})
        cluster.scale(jobs=1)
        becomes("scaled down", lambda: len(run("squeue", "-h", "--me", "-t", "R", "-o", "%i").split()), 1)
        logs = sorted(path.name for path in pathlib.Path("logs").iterdir())
        check("logs", logs, sorted(f"worker-{job}.{kind}" for job in jobs for kind in ("err", "out")))
    becomes("shut down", lambda: run("squeue", "-h", "--me"), "")

    pathlib.Path("runner.py").write_text(
        """
from dask.distributed import Client
from dask_jobqueue.slurm import SLURMRunner

with SLURMRunner(scheduler_file="scheduler-{job_id}.json") as runner, Client(runner) as client:
    client.wait_for_workers(runner.n_workers)
    print("workers", runner.n_workers, "sum", sum(client.gather(client.map(lambda x: x + 1, range(10)))))
"""
    )
    run("sbatch", "-W", "-n4", "-o", "runner.out", "--wrap", f"srun -u {sys.executable} runner.py")
    check("runner", [row for row in lines("runner.out") if row.startswith("workers")], ["workers 2 sum 55"])


if __name__ == "__main__":
    main()
