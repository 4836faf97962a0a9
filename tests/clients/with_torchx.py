"""torchx: an application as a job, its status, its logs, its listing, a failing role and a cancelled one."""


import pathlib

from check import check, run, wait_for
from torchx.runner import get_runner
from torchx.schedulers.api import Stream
from torchx.specs import AppDef, AppState, Resource, Role

pathlib.Path(".torchxconfig").write_text("[slurm]\npartition = cpu\n")


def app(name, script, replicas=1):
    role = Role(
        name=name, image=str(pathlib.Path.cwd()), entrypoint="/bin/sh", args=["-c", script], num_replicas=replicas,
        env={"GREETING": "a word"}, resource=Resource(cpu=2, gpu=0, memMB=300),
    )
    return AppDef(name=name, roles=[role])


with get_runner() as runner:
    options = {"partition": "cpu", "time": "5", "comment": "of torchx"}
    plain = runner.run(app("plain", "echo $GREETING from $SLURM_CPUS_PER_TASK CPUs; echo trouble >&2"), "slurm", options)
    status = wait_for("the end", lambda: (found := runner.status(plain)) and found.is_terminal() and found)
    check("status", status.state, AppState.SUCCEEDED)
    log = list(runner.log_lines(plain, "plain", 0, streams=Stream.STDOUT))
    check("logs", "a word from 2 CPUs" in "".join(log), True)
    bad = runner.run(app("bad", "exit 3"), "slurm", options)
    status = wait_for("a failure", lambda: (found := runner.status(bad)) and found.is_terminal() and found)
    check("a failing role", status.state, AppState.FAILED)
    listed = {each.app_id: each.state for each in runner.list("slurm")}
    found = [listed.get(handle.split("/")[-1]) for handle in (plain, bad)]
    check("a list", found, [AppState.SUCCEEDED, AppState.FAILED])
    endless = runner.run(app("endless", "sleep 1000"), "slurm", options)
    wait_for("a start", lambda: (found := runner.status(endless)) and found.state == AppState.RUNNING)
    runner.cancel(endless)
    wait_for("a cancellation", lambda: run("squeue", "-h", "--me") == "")
    found = run("sacct", "-X", "-n", "-P", "-o", "AllocCPUS,ReqMem,Timelimit,Comment,State", "-j", plain.split("/")[-1]).strip()
    check("requested resources", found, "2|300M|00:05:00|of torchx|COMPLETED")
