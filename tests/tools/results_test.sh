#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The results in bench/results are whole, pages show what they say, and bench/results/table finds what is not.
# Usage: results_test.sh SOURCE      exit status 77 without Python 3, which the script is written in
set -eu
cd "$1"
command -v python3 >/dev/null || exit 77
bench/results/table --check docs/*.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp bench/results/*.json "$work"

# fails TEXT ARGUMENTS...: a check that names the fault
fails() {
    text=$1
    shift
    if found=$(bench/results/table --check "$work" "$@") || ! echo "$found" | grep -q "$text"; then
        echo "not found: $text; the check says: $found"
        exit 1
    fi
    rm "$work"/*.json
    cp bench/results/*.json "$work"
}

[ "$(bench/results/table link-speed percent --columns 1,8 --rows '^chosen$' | tail -n 1)" = "| chosen | 95.0 |" ]
while IFS='>' read -r change text; do
    sed -i "$change" "$work/link-speed.json"
    fails "link-speed.json: .*$text"
done <<'CHANGES'
s/"date"/"day"/>date is not a text
s/"driver"/"date"/>driver is not a text
s/"device": ".*"/"device": 3/>device is not a text
s/"command": \[/"command": "", "x": [/>command is not a list
s/\["chosen", /["chosen"; />is not JSON
s/\["chosen", 97.0/["chosen"/>a row with 7 cells
s/"rows"/"lines"/>has other fields
CHANGES
sed 's/^| chosen | 97.0/| chosen | 98.0/' docs/performance.md >"$work/page.md"
fails "page.md: its tables are not those" "$work/page.md"
printf '<!-- table nothing -->\n<!-- end -->\n' >"$work/page.md"
fails "nothing.json" "$work/page.md"
