#!/usr/bin/env bash
# An allocation: srun starts steps of one job in it. Without a command, salloc starts your shell in
# it.
. "$(dirname "$0")/lib.sh"

salloc -J demo -c 1 -t 00:05:00 bash -c '
  echo "job $SLURM_JOB_ID" >job
  srun echo "first step" >steps
  srun echo "second step" >>steps'

id=$(cut -d ' ' -f 2 job)
expect "output of the steps" "first step
second step" "$(cat steps)"
expect "steps of job $id" "$id.0
$id.1" "$(sacct -n -P -o JobID -j "$id" | grep -E '\.[0-9]+$')"
expect "state of job $id" COMPLETED "$(state_of "$id")"
