#!/bin/bash
#SBATCH --job-name=four-gpus
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=1
#SBATCH --output=%x.out

for i in 0 1 2 3; do
    srun --exact --ntasks=1 --gres=gpu:1 --mem=100M --output=gpu-$i.log \
        ./train --fold $i &
done
wait
echo "all done"
