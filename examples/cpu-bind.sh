#!/usr/bin/env bash
# --cpu-bind: the CPUs on which a task may run.
. "$(dirname "$0")/lib.sh"

# The first CPU that this process may use. In a container it is not necessarily 0.
first=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
got=$(srun --cpu-bind "map_cpu:$first" -- sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
expect "map_cpu:$first" "$first" "$got"
