"""Queries HyperQueue for the states of COUNT pending one-task jobs, and prints the median time in seconds:
hq_list.py COUNT. Needs the package hyperqueue from PyPI."""

import statistics
import sys
import time

from hyperqueue import Job, LocalCluster


class Answered(Exception):
    """Raised on the first answer, which lists all jobs. The client would go on to wait for their ends."""


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
