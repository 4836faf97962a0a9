#!/usr/bin/env bash
# Splits the texts into eight parts, each a list of paths.
set -euo pipefail
export LC_ALL=C

# One line per run, written before anything else, proves that each job ran exactly once.
echo prepare >>runs
sleep "${PAUSE:-0}"

# Regular files only: some names are links to the newest version of a text.
mkdir -p parts
find "${TEXTS:-/usr/share/common-licenses}" -type f | sort >texts
for part in {0..7}; do awk -v part="$part" 'NR % 8 == part' texts >"parts/$part"; done
