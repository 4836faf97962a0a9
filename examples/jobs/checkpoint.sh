#!/usr/bin/env bash
# Works until it receives USR1. The work runs in the background, since a shell handles signals only
# between commands.
trap 'echo "warned, saved"; kill "$work"; exit 0' USR1
sleep 600 &
work=$!
wait "$work"
