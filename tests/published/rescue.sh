#!/bin/bash
# A job that fails, what is told of it, and what takes its place.
id=$(sbatch --parsable -J fails -o fails.log --wrap='echo "half" > result; exit 7')
sbatch -J rescue -o rescue.log --dependency=afternotok:$id --export=ALL,FAILED=$id --wrap='
sacct -j $FAILED -X --noheader --format=JobName%10,State%10,ExitCode
echo "whole" > result'
sbatch -J happy -o happy.log --dependency=afterok:$id --kill-on-invalid-dep=yes --wrap='echo never >> result'
