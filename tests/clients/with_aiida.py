"""AiiDA: calculations as jobs on localhost, a failure, a time limit that it recognizes, and the requested resources."""

import os
import pathlib
import subprocess
import sys

# It reads the location of its files on import.
os.environ["AIIDA_PATH"] = str(pathlib.Path.cwd())
subprocess.run(["verdi", "presto", "--non-interactive"], check=True, stdout=subprocess.DEVNULL)

from aiida import engine, load_profile, orm  # noqa: E402

from check import check, run  # noqa: E402

load_profile()
computer = orm.Computer(
    label="here", hostname="localhost", transport_type="core.local", scheduler_type="core.slurm",
    workdir=str(pathlib.Path.cwd() / "work"),
).store()
computer.set_minimum_job_poll_interval(1)
computer.configure(safe_interval=0)
code = orm.InstalledCode(label="bash", computer=computer, filepath_executable="/bin/bash", default_calc_job_plugin="core.arithmetic.add").store()


def asked(seconds=300, **more):
    return {
        "resources": {"num_machines": 1, "num_mpiprocs_per_machine": 2, "num_cores_per_mpiproc": 2},
        "max_wallclock_seconds": seconds, "max_memory_kb": 300 * 1024, "queue_name": "cpu", "account": "lab",
        "withmpi": False, **more,
    }


def add(x, y, **options):
    builder = code.get_builder()
    builder.x, builder.y = orm.Int(x), orm.Int(y)
    builder.metadata.options = asked(**options)
    return engine.run_get_node(builder)


found, node = add(3, 4)
check("a calculation", (node.exit_status, found["sum"].value), (0, 7))
job = node.get_job_id()
row = run("sacct", "-X", "-n", "-P", "-o", "JobName,AllocCPUS,ReqMem,Timelimit,Account,State", "-j", job).strip()
check("requested resources", row, f"aiida-{node.pk}|4|300M|00:05:00|lab|COMPLETED")
detailed = node.get_detailed_job_info()
check("its details", (detailed["retval"], f"{job}|" in detailed["stdout"]), (0, True))
last = node.get_last_job_info()
check("its view of the job", (last.job_id, last.num_machines) if last else None, (job, 1) if last else None)
_, bad = add(1, 2, prepend_text="exit 3")
check("a failure", (bad.is_failed, bad.exit_status in (302, 310, 320)), (True, True))
_, late = add(1, 2, seconds=1, prepend_text="sleep 1000")
messages = [log.message for log in orm.Log.collection.get_logs_for(late)]
check("a time limit", "scheduler parser returned exit code<120>: The job ran out of walltime." in messages, True)
