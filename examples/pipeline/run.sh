#!/usr/bin/env bash
# The words of all licence texts of this machine, counted by three chained jobs:
#
#   prepare            lists the texts and deals them into eight parts
#   count   0..7       an array: each task counts the words of its part
#   reduce             adds the eight counts up
#
# Usage: run.sh [--submit-only] [DIRECTORY]
#
# The directory (./pipeline-out if none is named) must be empty or new. result.txt in it is the result; reference.sh
# computes the same without slotd, and check.sh compares them.
#
# TEXTS is where the texts are (/usr/share/common-licenses); PAUSE makes each job last so many seconds longer.
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
  echo "run.sh: $out is not empty: remove it, or name another directory" >&2
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
# Waits without a connection to the daemon, which may be restarted meanwhile.
until state=$(sacct -X -n -P -o State -j "$reduce") && [[ $state != PENDING && $state != RUNNING && $state != COMPLETING ]]; do
  # What can never start is no reason to wait.
  if [[ $state == PENDING && $(squeue -h -o %r -j "$reduce") == DependencyNeverSatisfied ]]; then break; fi
  sleep 0.2
done
echo "reduce $reduce ended: $state"
"$here/check.sh" .
