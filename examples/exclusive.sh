#!/usr/bin/env bash
# --exclusive: no other job runs on the machine at the same time.
. "$(dirname "$0")/lib.sh"

job='echo start >>log; sleep 0.2; echo end >>log'
ids=()
for _ in 1 2 3; do ids+=("$(sbatch --parsable --exclusive --mem 64M -o /dev/null --wrap "$job")"); done
sbatch -W -o /dev/null -d "afterany:$(IFS=:; echo "${ids[*]}")" --wrap true

expect "one after the other" "start end start end start end" "$(paste -s -d ' ' log)"
