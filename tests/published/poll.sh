#!/bin/bash
# Submits a job and looks after it until it is over.
JOBID=$(sbatch --job-name=polled --output=polled.log --wrap="sleep 2; exit 3" | awk '{print $4}')
echo "job $JOBID"
while squeue -h -j "$JOBID" 2>/dev/null | grep -q "$JOBID"; do
    sleep 0.5
done
while true; do
    STATE=$(sacct -j "$JOBID" --format=State --noheader | head -1 | awk '{print $1}')
    case "$STATE" in
        COMPLETED) echo "fine"; break ;;
        FAILED|TIMEOUT|CANCELLED*|OUT_OF_ME*|NODE_FAIL) echo "ended as $STATE with $(sacct -X -n -P -j "$JOBID" -o ExitCode)"; break ;;
        *) sleep 0.5 ;;
    esac
done
