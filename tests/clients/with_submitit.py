"""submitit: results, exceptions, arrays, several tasks, cancellation, and a checkpoint that requeues its job."""

import os
import signal

import submitit
from check import check, wait_for


def add(a, b):
    return a + b


def fail():
    raise ValueError("what went wrong: ü")


def ranks():
    job = submitit.JobEnvironment()
    return job.global_rank, job.local_rank, job.num_tasks, job.num_nodes, os.environ["SET_UP"]


class Endless:
    """Runs until it is asked to stop, and continues as Resumed."""

    def __call__(self):
        while True:
            signal.pause()

    def checkpoint(self):
        return submitit.helpers.DelayedSubmission(Resumed())


class Resumed:
    def __call__(self):
        return "resumed", os.environ.get("SLURM_RESTART_COUNT")


def endless():
    while True:
        signal.pause()


def state(job):
    return job.watcher.get_state(job.job_id, mode="force").split(" ")[0]


def executor(folder, **parameters):
    made = submitit.AutoExecutor(folder=folder)
    made.update_parameters(timeout_min=5, mem_gb=0.5, **parameters)
    return made


plain = executor("with blanks/%j", name="a name", slurm_partition="cpu", slurm_array_parallelism=2)
check("finds Slurm", plain.cluster, "slurm")
check("result", plain.submit(add, 5, 7).result(), 12)

bad = plain.submit(fail)
check("exception", "what went wrong: ü" in str(bad.exception()), True)
wait_for("the end of a failing job", lambda: state(bad) == "FAILED")

array = plain.map_array(add, [1, 2, 3, 4, 5], [10] * 5)
check("array", [job.result() for job in array], [11, 12, 13, 14, 15])

tasks = executor(
    "tasks",
    tasks_per_node=3,
    slurm_setup=["export SET_UP='a b'"],
    slurm_srun_args=["-vv", "--cpu-bind", "none"],
    slurm_comment="ein Wörtchen",
    slurm_additional_parameters={"mail-type": "END"},
)
check("several tasks", sorted(tasks.submit(ranks).results()), [(rank, rank, 3, 1, "a b") for rank in range(3)])

stopped = plain.submit(endless)
wait_for("a start", lambda: state(stopped) == "RUNNING")
stopped.cancel()
wait_for("a cancellation", lambda: state(stopped) == "CANCELLED")
check("cancelling twice", stopped.cancel(), None)

preempted = executor("checkpoint").submit(Endless())
wait_for("a busy task", lambda: "Loading pickle" in (preempted.stdout() or ""))
preempted._interrupt(timeout=False)
check("checkpoint", preempted.result(), ("resumed", "1"))
