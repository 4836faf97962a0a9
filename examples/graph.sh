#!/usr/bin/env bash
# A graph of steps in one job: jobs/graph.toml, run by sjobmgr. One of them fails at first and is
# retried.
jobs=$(cd "$(dirname "$0")/jobs" && pwd)
. "$(dirname "$0")/lib.sh"

cat >square.sh <<'END'
#!/bin/sh
if [ "$1" = 7 ] && [ ! -e tried ]; then touch tried; exit 3; fi
echo $(($1 * $1))
END
chmod +x square.sh
id=$(sbatch --parsable -c 2 -W --wrap "sjobmgr run -Q $jobs/graph.toml")

expect "the sum" "$(seq 64 | awk '{ sum += $1 * $1 } END { print sum }')" "$(cat sum)"
expect "steps" "66 COMPLETED|0:0 1 FAILED|3:0" \
  "$(sacct -n -P -o JobID,State,ExitCode -j "$id" | sed -n 's/^[0-9]*\.[0-9]*|//p' | sort | uniq -c | xargs)"
