#!/usr/bin/env bash
# Counts the words of all license texts on this machine in three chained jobs:
#
#   prepare            lists the texts and splits them into eight parts
#   count   0..7       an array: each task counts the words of its part
#   reduce             adds up the eight counts
#
# Usage: run.sh [--submit-only] [DIRECTORY]
#
# DIRECTORY (default: ./pipeline-out) must be empty or new. The result is written to result.txt in
# it. reference.sh computes the same without slotd, and check.sh compares them.
#
# TEXTS is the directory of the texts (/usr/share/common-licenses). PAUSE makes each job take this
# many seconds longer.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
wait=yes
if [[ ${1:-} == --submit-only ]]; then
  wait=no
  shift
fi
out=${1:-pipeline-out}
mkdir -p "$out"
if [[ -n $(ls -A "$out") ]]; then
  echo "run.sh: $out is not empty: remove it, or give another directory" >&2
  exit 1
fi
cd "$out"

submit() { sbatch --parsable -c 1 --mem 64M -t 00:05:00 -D "$PWD" "$@"; }

prepare=$(submit -J prepare -o prepare.log "$here/prepare.sh")
count=$(submit -J count -d "afterok:$prepare" -a 0-7 -o 'count-%a.log' "$here/count.sh")
reduce=$(submit -J reduce -d "afterok:$count" -o reduce.log "$here/reduce.sh")
printf '%s\n' "$prepare" "$count" "$reduce" >job-ids

echo "submitted: prepare $prepare, count ${count}_[0-7], reduce $reduce"
if [[ $wait == no ]]; then exit 0; fi
# Waits without a connection to the daemon, which may be restarted in the meantime.
until state=$(sacct -X -n -P -o State -j "$reduce") && [[ -n $state && $state != PENDING && $state != RUNNING && $state != COMPLETING ]]; do
  # Do not wait for a job that can never start.
  if [[ $state == PENDING && $(squeue -h -o %r -j "$reduce") == DependencyNeverSatisfied ]]; then break; fi
  sleep 0.2
done
echo "reduce $reduce ended: $state"
"$here/check.sh" .
