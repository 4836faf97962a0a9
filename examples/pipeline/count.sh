#!/usr/bin/env bash
# Counts the words of one part, given by SLURM_ARRAY_TASK_ID.
set -euo pipefail
export LC_ALL=C
part=$SLURM_ARRAY_TASK_ID

echo "count $part" >>runs
sleep "${PAUSE:-0}"

mkdir -p counts
while IFS= read -r text; do cat "$text"; done <"parts/$part" |
  tr -cs '[:alpha:]' '[\n*]' | tr '[:upper:]' '[:lower:]' | sed '/^$/d' | sort | uniq -c >"counts/$part"
