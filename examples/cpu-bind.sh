#!/usr/bin/env bash
# --cpu-bind: on which CPUs a task may run.
. "$(dirname "$0")/lib.sh"

# The first CPU that this process may use: in a container it need not be 0.
first=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
got=$(srun --cpu-bind "map_cpu:$first" -- sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
expect "map_cpu:$first" "$first" "$got"
