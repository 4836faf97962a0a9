#!/bin/bash
#SBATCH --job-name=packed
#SBATCH --output=packed.out
#SBATCH --ntasks=3
#SBATCH --mem-per-cpu=100M

# More tasks than places: srun waits for one.
for i in $(seq 1 8); do
    srun --exclusive -N1 -n1 ./one "$i" &
done
wait
echo "finished $(ls done.* | wc -l)"
