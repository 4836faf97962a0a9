#!/usr/bin/env bash
# Deals the texts into eight parts, each a list of paths.
set -euo pipefail
export LC_ALL=C

# One line for each time that this runs, before anything else: the proof that it ran once.
echo prepare >>runs
sleep "${PAUSE:-0}"

# Regular files alone: some names are links to the newest version of a text.
mkdir -p parts
find "${TEXTS:-/usr/share/common-licenses}" -type f | sort >texts
for part in {0..7}; do awk -v part="$part" 'NR % 8 == part' texts >"parts/$part"; done
