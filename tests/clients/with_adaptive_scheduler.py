"""adaptive-scheduler: jobs whose learners get work from its manager until their goals are reached, and its listing of the queue."""

import asyncio
import functools

import adaptive
import adaptive_scheduler
from check import PATIENCE, all_jobs, becomes, check


def peak(x, at):
    return x + 0.01 / (0.01 + (x - at) ** 2)


async def main():
    learners = [adaptive.Learner1D(functools.partial(peak, at=at), bounds=(-1, 1)) for at in (0.1, 0.5)]
    manager = adaptive_scheduler.slurm_run(
        learners,
        ["data/first.pickle", "data/second.pickle"],
        name="learn",
        partition="cpu",
        nodes=1,
        cores_per_node=2,
        memory="1GB",
        goal=adaptive_scheduler.utils.smart_goal(20, learners),
        executor_type="process-pool",
        save_interval=1,
        log_interval=1,
        job_manager_interval=1,
        kill_interval=5,
        extra_scheduler=["--time=10"],
        save_dataframe=False,
    )
    manager.start()
    await asyncio.wait_for(manager.task, PATIENCE)
    check("status", manager.status(), "finished")
    manager.load_learners()
    check("goals", [learner.npoints >= 20 for learner in learners], [True, True])
    jobs = all_jobs("JobName,AllocCPUS,Timelimit,ReqMem")
    check("requested resources", sorted(set(jobs)), ["learn-0|2|00:10:00|1G", "learn-1|2|00:10:00|1G"])
    becomes("the end", adaptive_scheduler.scheduler.SLURM(cores=1).queue, {})


asyncio.run(main())
