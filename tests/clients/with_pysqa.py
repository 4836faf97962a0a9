"""pysqa: a template for each queue, a working directory, a job's status, a dependency chain, a refused submission, and deletion."""

import pathlib

from check import becomes, check, lines, run
from pysqa import QueueAdapter

pathlib.Path("queues").mkdir()
pathlib.Path("queues/queue.yaml").write_text(
    """
queue_type: SLURM
queue_primary: short
queues:
  short: {cores_max: 4, cores_min: 1, run_time_max: 3600, script: short.sh}
"""
)
pathlib.Path("queues/short.sh").write_text(
    """#!/bin/bash
#SBATCH --output=time.out
#SBATCH --job-name={{job_name}}
#SBATCH --chdir={{working_directory}}
#SBATCH --get-user-env=L
#SBATCH --partition=cpu
{%- if run_time_max %}
#SBATCH --time={{ [1, run_time_max // 60]|max }}
{%- endif %}
{%- if dependency_list %}
#SBATCH --dependency=afterok:{{ dependency_list | join(',') }}
{%- endif %}
{%- if memory_max %}
#SBATCH --mem={{memory_max}}G
{%- endif %}
#SBATCH --ntasks={{cores}}
{{command}}
"""
)
adapter = QueueAdapter(directory="queues")
for name in ("one", "two", "three"):
    pathlib.Path(name).mkdir()
here = pathlib.Path.cwd()
first = adapter.submit_job(
    queue="short", job_name="one", working_directory=str(here / "one"), cores=2, memory_max=1, run_time_max=600,
    command="until [ -e go ]; do sleep 0.1; done; echo $SLURM_NTASKS $SLURM_JOB_NAME >>done",
)
second = adapter.submit_job(
    queue="short", job_name="two", working_directory=str(here / "two"), cores=1, dependency_list=[str(first)],
    command="cat ../one/done >>done",
)
becomes("status", lambda: [adapter.get_status_of_job(process_id=job) for job in (first, second)], ["running", "pending"])
table = adapter.get_queue_status()
rows = sorted((row.jobid, row.jobname.strip(), row.status, row.working_directory) for row in table.itertuples())
check("the queue", rows, [(first, "one", "running", str(here / "one")), (second, "two", "pending", str(here / "two"))])
pathlib.Path("one/go").touch()
# A job that is not in the queue has no status.
becomes("the end", lambda: [adapter.get_status_of_job(process_id=job) for job in (first, second)], [None, None])
check("a chain", (lines("one/done"), lines("two/done")), (["2 one"], ["2 one"]))
check("requested resources", run("sacct", "-X", "-n", "-P", "-o", "AllocCPUS,ReqMem,Timelimit", "-j", str(first)).strip(), "2|1G|00:10:00")
endless = adapter.submit_job(
    queue="short", job_name="three", working_directory=str(here / "three"), cores=1, command="sleep 1000"
)
adapter.delete_job(process_id=endless)
becomes("deletion", lambda: adapter.get_status_of_job(process_id=endless), None)
pathlib.Path("queues/short.sh").write_text("#!/bin/bash\n#SBATCH --partition=\ntrue\n")
refused = QueueAdapter(directory="queues").submit_job(
    queue="short", job_name="bad", working_directory=str(here / "three"), cores=1, command="true"
)
check("an empty partition", (refused, lines("three/pysqa.err")[0]), (None, "sbatch: error: invalid partition specified: (null)"))
