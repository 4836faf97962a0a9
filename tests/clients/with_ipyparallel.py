"""ipyparallel: controller and engines as jobs, calls on each engine, an interrupt with scancel -s, and shutting down both jobs."""

import os
import pathlib
import signal

import ipyparallel
from check import PATIENCE, becomes, check, run, wait_for


def sleep(place):
    import os
    import pathlib
    import time

    pathlib.Path(place, f"begun.{os.getpid()}").touch()
    time.sleep(1000)


def main():
    cluster = ipyparallel.Cluster(controller="slurm", engines="slurm", n=3, controller_ip="127.0.0.1", engine_timeout=PATIENCE)
    client = cluster.start_and_connect_sync()
    view = client[:]
    names = view.apply_sync(lambda: __import__("os").environ["SLURM_JOB_NAME"])
    check("engines", names, [f"ipengine-{cluster.cluster_id}"] * 3)
    ranks = view.apply_sync(lambda: int(__import__("os").environ["SLURM_PROCID"]))
    check("one engine per rank", sorted(ranks), [0, 1, 2])
    check("calls", client.load_balanced_view().map_sync(lambda x: x * x, range(20)), [x * x for x in range(20)])
    found = run("squeue", "-h", "--me", "-o", "%C %T %j").splitlines()
    check("their jobs", sorted(found), [f"1 RUNNING ipcontroller-{cluster.cluster_id}", f"3 RUNNING ipengine-{cluster.cluster_id}"])
    sleeping = view.apply_async(sleep, os.getcwd())
    wait_for("busy engines", lambda: len(list(pathlib.Path.cwd().glob("begun.*"))) == 3)
    cluster.signal_engines_sync(signal.SIGINT)
    try:
        found = sleeping.get(timeout=PATIENCE)
    except ipyparallel.CompositeError as error:
        found = {each[0] for each in error.elist}
    check("an interrupt", found, {"KeyboardInterrupt"})
    check("engines after an interrupt", view.apply_sync(lambda: 7), [7] * 3)
    cluster.stop_cluster_sync()
    becomes("the end", lambda: run("squeue", "-h", "--me"), "")


if __name__ == "__main__":
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    main()
