#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --output=jupyter-%J.log
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=4:00:00

port=$(shuf -i 8000-9999 -n 1)
node=$(hostname -s)
user=$(whoami)
cluster=$(hostname -f | awk -F. '{print $2}')
echo "ssh -N -L ${port}:${node}:${port} ${user}@${cluster}"
unset XDG_RUNTIME_DIR
jupyter-notebook --no-browser --port="${port}" --ip="${node}"
