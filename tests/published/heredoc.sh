#!/bin/bash
# Submits one job for each of the files, without a script of its own.
for f in data/*.txt; do
    name=$(basename "$f" .txt)
    sbatch <<EOF
#!/bin/bash
#SBATCH --job-name=wc-$name
#SBATCH --output=$name.out
#SBATCH --time=00:05:00
#SBATCH --mem=100M
sort $f > sorted.$name
wc -l < $f
echo "job \$SLURM_JOB_NAME in \$SLURM_SUBMIT_DIR"
EOF
done
