"""qtoolkit: scripts from resources, single jobs and job lists, cancellation, and a refused submission."""

import os
import pathlib

from check import becomes, check, lines, wait_for
from qtoolkit.core.data_objects import QResources, QState
from qtoolkit.io.slurm import SlurmIO
from qtoolkit.manager import QueueManager

manager = QueueManager(SlurmIO())


def resources(**more):
    return QResources(
        job_name="from_qtoolkit", processes_per_node=2, nodes=1, threads_per_process=2, memory_per_thread=200,
        time_limit=300, output_filepath="out.txt", error_filepath="err.txt", rerunnable=False, account="lab", **more,
    )


os.mkdir("a")
sent = manager.submit("srun sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'", resources(), work_dir=pathlib.Path("a").resolve())
check("submission", (sent.status.value, sent.exit_code), ("SUCCESSFUL", 0))
wait_for("the end", lambda: manager.get_job(sent.job_id) is None or manager.get_job(sent.job_id).state == QState.DONE)
check("output", sorted(lines("a/out.txt")), ["0 of 2", "1 of 2"])

waits = manager.submit("sleep 1000", resources(scheduler_kwargs={"hint": "nomultithread", "propagate": "NONE"}), work_dir=pathlib.Path("a").resolve())
wait_for("its start", lambda: manager.get_job(waits.job_id).state == QState.RUNNING)
found = manager.get_job(waits.job_id)
found_values = (found.name, found.state, found.info.nodes, found.info.cpus, found.info.threads_per_process, found.info.time_limit)
check("a job by ID", found_values, ("from_qtoolkit", QState.RUNNING, 1, 4, 2, 300))
listed = [(job.job_id, job.name, job.username) for job in manager.get_jobs_list(user=os.environ["USER"])]
check("the jobs of a user", listed, [(waits.job_id, "from_qtoolkit", os.environ["USER"])])
gone = manager.cancel(waits.job_id)
check("cancellation", (gone.status.value, gone.exit_code), ("SUCCESSFUL", 0))
becomes("cancelled", lambda: manager.get_jobs_list(user=os.environ["USER"]), [])
refused = manager.submit("true", resources(queue_name="nosuch"), work_dir=pathlib.Path("a").resolve())
check("an unknown partition", (refused.status.value, "nosuch" in refused.stderr), ("FAILED", True))
