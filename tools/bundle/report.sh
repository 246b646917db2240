#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Makes report.json and report.txt of the sections that gpu-day.sh has finished, the worst first: tests that
# failed, then the largest distance from the reference first. Called by gpu-day.sh after each section.
#
#   report.sh FOLDER
set -u
cd "$1/parts" || exit 1
export LC_ALL=C
TAB=$(printf '\t')

# Files of one line each become text, as JSON has it.
AWK='function quoted(s) { gsub(/[\001-\037]/, " ", s); gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }
     function text(file, s) { s = ""; getline s <file; close(file); return s }
     function or_null(s) { return s == "" ? "null" : quoted(s) }
     function number(s) { return s ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ ? s : "null" } '
text() { head -n 1 "$1" 2>/dev/null; }

# Rows with a percentage first, from low to high; then the rest.
rows() {
    cat ./*/rows.tsv 2>/dev/null | awk -F '\t' '{ print ($4 == "" ? "1" : "0") "\t" ($4 == "" ? 0 : $4) "\t" $0 }' |
        sort -t "$TAB" -k1,1n -k2,2n | cut -f 3-
}
failed() { cat ./*/failed 2>/dev/null; }

sections_json() {
    j_comma=
    for j_part in [0-9]*; do
        [ -r "$j_part/status" ] || continue
        awk -v part="$j_part" -v comma=$j_comma "$AWK"'BEGIN {
            printf "%s\n  {\"name\": %s, \"title\": %s, \"status\": %s, \"seconds\": %s, \"note\": %s, \"results\": [", comma,
                quoted(substr(part, 4)), quoted(text(part "/title")), quoted(text(part "/status")),
                number(text(part "/seconds")), or_null(text(part "/note")) }'
        j_between=
        for j_file in "$j_part"/*.json; do
            # A program that was ended may have left half of one.
            [ -s "$j_file" ] && tail -n 1 "$j_file" | grep -q '}$' || continue
            printf '%s' "$j_between"
            cat "$j_file"
            j_between=,
        done
        printf ']}'
        j_comma=,
    done
}

json() {
    awk -v host="$(uname -srm)" "$AWK"'BEGIN {
        printf "{\"report\": \"ringforge gpu-day\",\n \"version\": %s, \"date\": %s, \"host\": %s, \"minutes\": %s, \"seconds\": %s,\n",
            quoted(text("version")), quoted(text("date")), quoted(host), number(text("minutes")), number(text("seconds"))
        printf " \"device\": %s, \"driver\": %s, \"kind\": %s, \"torch\": %s,\n", or_null(text("device")),
            or_null(text("driver")), or_null(text("kind")), or_null(text("torch")) }'
    printf ' "failed_tests": ['
    failed | awk "$AWK"'{ printf "%s%s", (NR > 1 ? ", " : ""), quoted($0) }'
    printf '],\n "rows": ['
    rows | awk -F '\t' "$AWK"'{
        printf "%s\n  {\"what\": %s, \"value\": %s, \"unit\": %s, \"percent\": %s, \"of\": %s, \"other\": %s}",
            (NR > 1 ? "," : ""), quoted($1), number($2), quoted($3), number($4), or_null($5), or_null($6) }'
    printf '],\n "sections": ['
    sections_json
    printf ']}\n'
}

page() {
    echo "ringforge gpu-day, $(text version), $(text date), $(text seconds) s of $(text minutes) minutes"
    echo "device: $(text device) ($(text kind))"
    echo "driver: $(text driver)"
    echo "beside: $(text torch | grep . || echo nothing)"
    echo
    for p_part in [0-9]*; do
        [ -r "$p_part/status" ] || continue
        printf '%-34s %-12s %5s s  %s\n' "$(text "$p_part/title")" "$(text "$p_part/status")" "$(text "$p_part/seconds")" \
            "$(text "$p_part/note")"
    done
    if [ -n "$(failed)" ]; then
        echo
        echo "Tests that failed (logs/tests-all.log)"
        failed | sed 's/^/  /'
    fi
    if [ -n "$(rows)" ]; then
        echo
        echo "From the worst: what, how much, and what that is in percent (40 rows at most; all are in report.json)"
        rows | head -n 40 | awk -F '\t' '{ printf "  %6s%% %-22s %12s %-8s %s%s\n", ($4 == "" ? "-" : $4), $5, $2, $3, $1, ($6 == "" ? "" : "   [" $6 "]") }'
    fi
    if cat ./*/paths.tsv >/dev/null 2>&1; then
        echo
        echo "Matrix product by path, GFLOP/s, the quickest first (type, form, MxKxN)"
        awk -F '\t' '$1 != what { printf "%s  %s:", what == "" ? "" : "\n", $1; what = $1; many = 0 }
                     ++many <= 6 { printf " %s %s", $2, $3 } END { print "" }' ./*/paths.tsv
    fi
}

for kind in json page; do
    case $kind in json) file=../report.json ;; *) file=../report.txt ;; esac
    $kind >$file.new && mv $file.new $file
done
