"""Runs a program COUNT times as tasks of one HyperQueue job, on two CPUs, and prints the time in seconds:
hq_tasks.py COUNT PROGRAM. Needs the package hyperqueue from PyPI."""

import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

count, program = int(sys.argv[1]), sys.argv[2]
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    job = Job()
    for _ in range(count):
        job.program([program], stdout=None, stderr=None)
    begin = time.perf_counter()
    client.wait_for_jobs([client.submit(job)])
    print(f"seconds {time.perf_counter() - begin}")
