#!/usr/bin/env bash
# A Python program that runs calls as steps of the job: executor.py is a concurrent.futures.Executor based on sjobmgr.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"

# The program itself only waits, so it takes no CPU from its steps.
cat >program.toml <<END
[[step]]
name = "program"
command = ["python3", "$jobs/squares.py"]
cpus = 0
END
export PYTHONDONTWRITEBYTECODE=1
id=$(sbatch --parsable -c 2 -W -o executor.out --wrap "sjobmgr run -Q program.toml")

expect "the sum of the squares" 332833500 "$(cat executor.out)"
expect "steps" "21 COMPLETED" "$(sacct -n -P -o JobID,State -j "$id" | sed -n 's/^[0-9]*\.[0-9]*|//p' | sort | uniq -c | xargs)"
