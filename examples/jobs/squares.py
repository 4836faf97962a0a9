# Squares a thousand numbers, fifty per step. Run as a step of sjobmgr, see examples/executor.sh.
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from executor import StepExecutor


def square(n):
    return n * n


if __name__ == "__main__":
    with StepExecutor() as executor:
        print(sum(executor.map(square, range(1000), chunksize=50)))
