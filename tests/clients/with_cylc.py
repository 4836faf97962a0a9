"""Cylc: a workflow of two cycles as jobs, with polling, a task that fails and is retried, and several tasks with srun."""

import pathlib
import shutil
import subprocess

from check import all_jobs, check, lines

bin_directory = pathlib.Path(shutil.which("cylc")).parent
configuration = pathlib.Path.home() / ".cylc" / "flow"
configuration.mkdir(parents=True)
(configuration / "global.cylc").write_text(
    f"""
[platforms]
    [[here]]
        hosts = localhost
        install target = localhost
        job runner = slurm
        cylc path = {bin_directory}
        submission polling intervals = PT2S
        execution polling intervals = PT2S
"""
)
pathlib.Path("flow").mkdir()
place = pathlib.Path("made").resolve()
place.mkdir()
pathlib.Path("flow/flow.cylc").write_text(
    f"""
[scheduler]
    [[events]]
        stall timeout = PT0S
        abort on stall timeout = True
        inactivity timeout = PT5M
        abort on inactivity timeout = True
[scheduling]
    cycling mode = integer
    initial cycle point = 1
    final cycle point = 2
    [[graph]]
        P1 = prepare => flaky & ranks => total
[runtime]
    [[root]]
        platform = here
        execution time limit = PT5M
        [[[directives]]]
            --partition = cpu
            --mem = 200
    [[prepare]]
        script = echo "$CYLC_TASK_CYCLE_POINT" >>{place}/prepare
    [[flaky]]
        script = "[[ $CYLC_TASK_TRY_NUMBER == 2 ]] && echo $SLURM_JOB_NAME >>{place}/flaky"
        execution retry delays = PT1S
    [[ranks]]
        script = "srun sh -c 'echo $SLURM_PROCID $CYLC_TASK_CYCLE_POINT >>{place}/ranks'"
        [[[directives]]]
            --ntasks = 2
    [[total]]
        script = cat {place}/ranks >{place}/total.$CYLC_TASK_CYCLE_POINT
"""
)
done = subprocess.run(
    ["cylc", "vip", "--no-detach", "--no-run-name", "--workflow-name=flow", "./flow"],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
)
print(done.stdout, flush=True)
check("the workflow", done.returncode, 0)
check("each task ran once", sorted(lines(place / "prepare")), ["1", "2"])
check("ranks", sorted(lines(place / "ranks")), ["0 1", "0 2", "1 1", "1 2"])
check("the second attempt", len(lines(place / "flaky")), 2)
check("dependent tasks", sorted(path.name for path in place.glob("total.*")), ["total.1", "total.2"])
rows = all_jobs("JobName,AllocCPUS,ReqMem,Timelimit,State")
check("requested resources", sorted(row for row in rows if row.startswith("ranks")), [f"ranks.{n}.flow|2|200M|00:05:00|COMPLETED" for n in (1, 2)])
check("states of all attempts", sorted(row.split("|")[-1] for row in rows if row.startswith("flaky")), ["COMPLETED", "COMPLETED", "FAILED", "FAILED"])
