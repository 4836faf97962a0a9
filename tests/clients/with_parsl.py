"""Parsl: Python and shell apps in blocks that run as jobs, a chain of apps, a failing app, and shutting down the blocks."""

import os
import sys

import parsl
from check import all_jobs, becomes, check, lines, run
from parsl import bash_app, python_app
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


@python_app
def where(x):
    import os

    return x * x, os.environ["SLURM_JOB_ID"], os.environ["SLURM_CPUS_ON_NODE"]


@bash_app
def joined(inputs=(), outputs=()):
    return f"cat {' '.join(str(each) for each in inputs)} >{outputs[0]}; echo $SLURM_JOB_NAME >>{outputs[0]}"


@bash_app
def fails():
    return "exit 3"


def config(label, **more):
    provider = SlurmProvider(
        partition="cpu", account="lab", nodes_per_block=1, cores_per_node=2, mem_per_node=2, exclusive=False,
        init_blocks=1, max_blocks=2, walltime="00:10:00", launcher=SrunLauncher(),
        scheduler_options="#SBATCH --comment=parsl", worker_init=f"export PATH={os.path.dirname(sys.executable)}:$PATH", **more,
    )
    executor = HighThroughputExecutor(
        label=label, address="127.0.0.1", max_workers_per_node=2, provider=provider, encrypted=False,
    )
    return Config(executors=[executor], run_dir=f"run-{label}", strategy_period=1, strategy="simple")


with parsl.load(config("blocks")):
    answers = [future.result() for future in [where(x) for x in range(20)]]
    check("python apps", [square for square, _, _ in answers], [x * x for x in range(20)])
    check("size of its job", {cpus for _, _, cpus in answers}, {"2"})
    with open("a", "w") as file:
        file.write("one\n")
    first = joined(inputs=[parsl.File("a")], outputs=[parsl.File("b")])
    last = joined(inputs=[first.outputs[0], parsl.File("a")], outputs=[parsl.File("c")])
    last.result()
    # Each app ran in one of the blocks.
    found = [row.split(".block-")[0] for row in lines("c")]
    check("a chain of shell apps", found, ["one", "parsl.blocks", "one", "parsl.blocks"])
    check("a failing app", type(fails().exception()).__name__, "BashExitFailure")
becomes("the end of the blocks", lambda: run("squeue", "-h", "--me"), "")
asked = all_jobs("AllocCPUS,ReqMem,Timelimit,Account,Comment")
check("requested resources", set(asked), {"2|2G|00:10:00|lab|parsl"})
