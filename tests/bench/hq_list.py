"""Asks HyperQueue for the states of so many jobs of one task each, none of which runs, and prints the median of the seconds:
hq_list.py COUNT. It needs the package hyperqueue from PyPI."""

import statistics
import sys
import time

from hyperqueue import Job, LocalCluster


class Answered(Exception):
    """The first answer is enough: what waits for the ends of jobs is told of them all first."""


def answered(jobs):
    assert len(jobs) == count, len(jobs)
    raise Answered


count = int(sys.argv[1])
with LocalCluster() as cluster:
    client = cluster.client()
    ids = []
    for _ in range(count):
        job = Job()
        job.program(["true"], stdout=None, stderr=None)
        ids.append(client.submit(job).id)
    times = []
    for _ in range(11):
        begin = time.perf_counter()
        try:
            client.connection.wait_for_jobs(ids, answered)
        except Answered:
            times.append(time.perf_counter() - begin)
    print(f"seconds {statistics.median(times)}")
