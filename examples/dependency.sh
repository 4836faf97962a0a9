#!/usr/bin/env bash
# Jobs that wait for others: for their success, failure or end, or for any job of the same name.
. "$(dirname "$0")/lib.sh"
submit() { sbatch --parsable --mem 64M -o /dev/null "$@"; }

good=$(submit --wrap 'exit 0')
bad=$(submit --wrap 'exit 1')
started=$(submit -d "after:$good" --wrap 'exit 0')
ok=$(submit -d "afterok:$good" --wrap 'exit 0')
notok=$(submit -d "afternotok:$bad" --wrap 'exit 0')
any=$(submit -d "afterany:$good,$bad" --wrap 'exit 0')
never=$(submit -d "afterok:$bad" --wrap 'exit 0')
one=$(submit -J single -d singleton --wrap 'exit 0')
two=$(submit -J single -d singleton --wrap 'exit 0')

# The usual way to wait for several jobs.
submit -W -d "afterany:$started:$ok:$notok:$any:$one:$two" --wrap true >/dev/null

for id in "$started" "$ok" "$notok" "$any" "$one" "$two"; do
  expect "job $id" COMPLETED "$(state_of "$id")"
done
expect "a job that waits for the success of a failed one" "PENDING DependencyNeverSatisfied" \
  "$(squeue -h -j "$never" -o '%T %r')"
scancel "$never"
