#!/usr/bin/env bash
# Works until it is told to save. The work goes on in the background, as a shell handles signals only between commands.
trap 'echo "warned, saved"; kill "$work"; exit 0' USR1
sleep 600 &
work=$!
wait "$work"
