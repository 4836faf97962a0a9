#!/bin/bash
# Preprocessing, an array, and what gathers it: each waits for the one before.
set -e
prep=$(sbatch --parsable --job-name=prep --output=prep.log --wrap="echo 1 2 3 > input; sleep 1")
work=$(sbatch --parsable --job-name=work --output=work-%a.log --array=1-3 --dependency=afterok:"$prep" --kill-on-invalid-dep=yes \
    --wrap='cut -d" " -f$SLURM_ARRAY_TASK_ID input > part.$SLURM_ARRAY_TASK_ID')
sum=$(sbatch --parsable --job-name=sum --output=sum.log --dependency=afterok:"${work}" --wrap="cat part.* | paste -sd+ | tr + ' ' > sum")
sbatch --job-name=clean --output=clean.log --dependency=afterany:"$sum" --wrap="rm -f part.*; echo cleaned"
sbatch --job-name=never --output=never.log --dependency=afternotok:"$prep" --kill-on-invalid-dep=yes --wrap="touch never"
