#!/bin/bash
# Keeps so many jobs in the queue and no more.
MAX=2
for i in $(seq 1 5); do
    while [ "$(squeue -h -u "$USER" -n throttled -t pending,running -r | wc -l)" -ge "$MAX" ]; do
        sleep 0.2
    done
    sbatch -Q --job-name=throttled --output=/dev/null --wrap="squeue -h -u $USER -n throttled -t pending,running -r | wc -l > count.$i; sleep 0.5"
done
