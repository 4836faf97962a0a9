#!/usr/bin/env bash
# Checks the results of run.sh in a directory: result.txt matches the reference, each job and array
# task ran exactly once, and sacct lists them all as COMPLETED.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-pipeline-out}"

fail() {
  echo "FAILED: $1"
  exit 1
}

"$here/reference.sh" >reference.txt
cmp -s result.txt reference.txt || fail "result.txt differs from reference.txt"
echo "ok: $(wc -l <result.txt) distinct words, $(awk '{ n += $1 } END { print n }' result.txt) in all, as in the reference"

expected=$(printf '%s\n' prepare count\ {0..7} reduce | sort)
[[ $(sort runs) == "$expected" ]] || fail "not every job ran exactly once: $(sort runs | uniq -c | paste -s -d ';')"
echo "ok: ten jobs, each run exactly once"

ids=$(paste -s -d , job-ids)
# sacct of a cluster lags behind a little.
for _ in {1..50}; do
  states=$(sacct -X -n -P -o State -j "$ids" | sort | uniq -c | awk '{ print $1, $2 }')
  [[ $states == "10 COMPLETED" ]] && break
  sleep 0.2
done
[[ $states == "10 COMPLETED" ]] || fail "states in sacct: ${states//$'\n'/, }"
echo "ok: sacct lists ten jobs as COMPLETED"
