#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ci/check_text.sh finds long lines in Markdown and headers, and excuses rows of tables and single words.
# Usage: check_text_test.sh CHECK_SCRIPT
set -eu
check=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/docs" "$work/include/ringforge"
words() { awk -v n="$1" 'BEGIN { while (length(s) < n) s = s "ab "; print substr(s, 1, n - 1) "c" }'; }

words 110 >"$work/docs/a.md"
words 100 >"$work/include/ringforge/a.h"
echo "| $(words 200)" >>"$work/docs/a.md"
words 200 | tr -d ' ' >>"$work/docs/a.md"
"$check" "$work"

words 111 >"$work/README.md"
words 101 >>"$work/include/ringforge/a.h"
if found=$("$check" "$work"); then
    echo "long lines were not found"
    exit 1
fi
echo "$found" | grep -q '^README.md:1: 111 columns'
echo "$found" | grep -q '^include/ringforge/a.h:2: 101 columns'
[ "$(echo "$found" | wc -l)" = 2 ]
