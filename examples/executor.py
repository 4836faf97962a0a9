"""A concurrent.futures.Executor that runs calls as steps of the job: see executor.sh.

The manager runs the program as one of its steps (sjobmgr run). Functions and values are pickled, so functions must be
defined in modules or in the program itself, which must do nothing on import.
"""
import concurrent.futures
import functools
import itertools
import json
import os
import pickle
import runpy
import shutil
import socket
import sys
import tempfile
import threading


class StepExecutor(concurrent.futures.Executor):
    """Runs each call as a step. `keys` apply to all steps: cpus=2, mem="1G", retry=1."""

    def __init__(self, **keys):
        path = os.environ["SLURM_JOBMGR_SOCKET"]  # set by the manager for its steps
        self._keys, self._futures, self._numbers = keys, {}, itertools.count()
        self._lock = threading.Lock()
        self._dir = tempfile.mkdtemp(prefix="executor-", dir=os.getcwd())
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        threading.Thread(target=self._read, daemon=True).start()

    def submit(self, fn, /, *args, **kwargs):
        name = f"{os.path.basename(self._dir)}-{next(self._numbers)}"
        task = os.path.join(self._dir, name)
        main = getattr(sys.modules["__main__"], "__file__", None)
        with open(task, "wb") as file:
            pickle.dump((main and os.path.abspath(main), sys.path), file)
            pickle.dump((fn, args, kwargs), file)
        future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        step = {"name": name, "command": [sys.executable, __file__, task], **self._keys}
        with self._lock:
            self._futures[name] = future
            self._socket.sendall(json.dumps(step).encode() + b"\n")
        return future

    def map(self, fn, *iterables, timeout=None, chunksize=1):
        values = zip(*iterables)
        chunks = iter(lambda: list(itertools.islice(values, chunksize)), [])
        results = super().map(functools.partial(_map_chunk, fn), chunks, timeout=timeout)
        return itertools.chain.from_iterable(results)

    def shutdown(self, wait=True, *, cancel_futures=False):
        if wait:
            concurrent.futures.wait(list(self._futures.values()))
            shutil.rmtree(self._dir, ignore_errors=True)

    def _read(self):
        for line in self._socket.makefile():
            event = json.loads(line)
            if event["event"] == "refused":
                return self._fail_all(RuntimeError(event["error"]))
            if event["event"] == "done":
                with self._lock:
                    future = self._futures.pop(event["name"])
                try:
                    with open(os.path.join(self._dir, event["name"] + ".result"), "rb") as file:
                        value, error = pickle.load(file)
                    future.set_exception(error) if error else future.set_result(value)
                except Exception as error:
                    future.set_exception(RuntimeError(f"step {event['name']}: {event['state']} ({error})"))
        self._fail_all(RuntimeError("the manager has exited"))

    def _fail_all(self, error):
        for name in list(self._futures):
            self._futures.pop(name).set_exception(error)


def _map_chunk(fn, chunk):
    return [fn(*values) for values in chunk]


def _work(task):
    with open(task, "rb") as file:
        main, sys.path[:] = pickle.load(file)
        if main:
            sys.modules["__main__"].__dict__.update(runpy.run_path(main, run_name="__worker__"))
        sys.modules["executor"] = sys.modules["__main__"]
        fn, args, kwargs = pickle.load(file)
    try:
        result = fn(*args, **kwargs), None
    except Exception as error:
        result = None, error
    with open(task + ".result", "wb") as file:
        pickle.dump(result, file)


if __name__ == "__main__":
    _work(sys.argv[1])
