#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks the lines of texts: at most 110 columns in Markdown, 100 in public headers. Rows of tables cannot be
# wrapped and are excused, and so are lines that are one word. Needs nothing but sh and awk.
# Usage: ci/check_text.sh [ROOT]      exit status 0 = clean, 1 = long lines, each named
set -eu
cd "${1:-$(dirname "$0")/..}"

for file in *.md docs/*.md bench/*.md include/ringforge/*.h; do
    [ -f "$file" ] || continue
    case $file in
    *.h) echo "100 $file" ;;
    *) echo "110 $file" ;;
    esac
done | {
    failed=0 count=0
    while read -r limit file; do
        count=$((count + 1))
        LC_ALL=C.UTF-8 awk -v limit="$limit" -v file="$file" '
            length($0) > limit && !/^[ \t]*\|/ && NF > 1 {
                print file ":" NR ": " length($0) " columns; at most " limit; failed = 1
            }
            END { exit failed }' "$file" || failed=1
    done
    [ $failed = 0 ] && echo "text: $count files, no line is too long"
    exit $failed
}
