#!/usr/bin/env bash
# Checks what run.sh left in a directory: the result is the reference's, each job and array task ran exactly once, and
# sacct has them all as COMPLETED.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-pipeline-out}"

fail() {
  echo "FAILED: $1"
  exit 1
}

"$here/reference.sh" >reference.txt
cmp -s result.txt reference.txt || fail "result.txt differs from reference.txt"
echo "ok: $(wc -l <result.txt) different words, $(awk '{ n += $1 } END { print n }' result.txt) in all, as in the reference"

expected=$(printf '%s\n' prepare count\ {0..7} reduce | sort)
[[ $(sort runs) == "$expected" ]] || fail "not every job ran exactly once: $(sort runs | uniq -c | paste -s -d ';')"
echo "ok: ten jobs, each run exactly once"

ids=$(paste -s -d , job-ids)
states=$(sacct -X -n -P -o State -j "$ids" | sort | uniq -c | awk '{ print $1, $2 }')
[[ $states == "10 COMPLETED" ]] || fail "states in sacct: ${states//$'\n'/, }"
echo "ok: sacct has ten COMPLETED"
