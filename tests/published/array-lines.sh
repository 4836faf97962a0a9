#!/bin/bash
#SBATCH -J lines
#SBATCH -o lines-%a.log
#SBATCH -a 1-3
#SBATCH -t 5

# One line of the list of samples for each task of the array.
LINE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" samples.txt)
read -r SAMPLE FILE <<< "$LINE"
wc -c < "$FILE" > "$SAMPLE.count"
