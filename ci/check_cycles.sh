#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks that no two source files of the library, the models and the program need each other, directly
# or by way of others, and no two folders of a layer (src/LAYER/FOLDER): reads which symbols each object file
# defines and which it asks for, and prints every group of files or folders that need each other, with the
# symbols by which they do. Needs nothing but sh, nm and awk.
# Usage: ci/check_cycles.sh LIST     LIST: a file with the path of an object file on each line
# Exit status 0 = there is no such group, 1 = there is one, 2 = the objects could not be read.
set -eu
if [ $# != 1 ] || [ ! -s "$1" ]; then
    echo "usage: ci/check_cycles.sh LIST; LIST names one object file on each line" >&2
    exit 2
fi
symbols=$(mktemp)
trap 'rm -f "$symbols"' EXIT
# One line per symbol: FILE: NAME TYPE ...
tr '\n' '\0' <"$1" | xargs -0 "${NM:-nm}" -A -P -g >"$symbols" || exit 2

awk '
function file_of(path) {  # .../src/comm/CMakeFiles/rf_comm.dir/cycle.c.o -> src/comm/cycle.c
    sub(/:$/, "", path)
    sub(/\.o(bj)?$/, "", path)
    gsub(/\/\.\//, "/", path)
    sub(/CMakeFiles\/[^\/]*\.dir\//, "", path)
    if (match(path, /(src|transport|tools|bench)\/[^ ]*$/)) path = substr(path, RSTART)
    return path
}
# Takes out what cannot be in a circle: files that need nobody who is left, or that nobody left needs.
function peel(    again, name, needs, needed, key, pair) {
    do {
        again = 0
        split("", needs); split("", needed)
        for (key in edge) {
            split(key, pair, SUBSEP)
            if (!(pair[1] in left) || !(pair[2] in left)) { delete edge[key]; continue }
            needs[pair[1]] = 1; needed[pair[2]] = 1
        }
        for (name in left)
            if (!(name in needs) || !(name in needed)) { delete left[name]; again = 1 }
    } while (again)
}
# Prints every group of members of `left` that need each other.
function report(kind,    file, other, via, from, to, key, members, group, i, j, swap, text, reach, done) {
    peel()
    for (key in edge) reach[key] = 1
    for (via in left) for (from in left) if ((from, via) in reach)  # Warshall: via is outermost
        for (to in left) if ((via, to) in reach) reach[from, to] = 1
    for (file in left) {
        if (file in done || !((file, file) in reach)) continue
        members = 0
        for (other in left) if ((file, other) in reach && (other, file) in reach) {
            done[other] = 1; group[++members] = other
        }
        for (i = 2; i <= members; i++)  # sorted, so that the output is the same on every machine
            for (j = i; j > 1 && group[j] < group[j - 1]; j--) {
                swap = group[j]; group[j] = group[j - 1]; group[j - 1] = swap
            }
        text = "these " members " " kind " need each other:\n"
        for (i = 1; i <= members; i++) for (j = 1; j <= members; j++)
            if ((group[i], group[j]) in edge)
                text = text "  " group[i] " needs " group[j] ":" by[group[i], group[j]] "\n"
        printf "%s", text
        failures = 1
    }
}
# src/LAYER/FOLDER of a file in a folder of a layer; otherwise the file.
function folder_of(file,    part, n) {
    n = split(file, part, "/")
    return n > 3 && part[1] == "src" && part[3] !~ /^[_.]/ ? part[1] "/" part[2] "/" part[3] : file
}
{
    file = file_of($1); name = $2; type = $3
    files[file] = 1
    if (type == "U" || type == "w" || type == "v") asked[file, name] = 1
    else home[name] = file
}
END {
    for (file in files) { left[file] = 1; total++ }
    if (total < 2) { print "fewer than two object files have symbols"; exit 2 }
    for (key in asked) {
        split(key, pair, SUBSEP)
        if (!(pair[2] in home) || home[pair[2]] == pair[1]) continue
        edge[pair[1], home[pair[2]]] = all[pair[1], home[pair[2]]] = 1
        by[pair[1], home[pair[2]]] = by[pair[1], home[pair[2]]] " " pair[2]
    }
    report("files")
    split("", left); split("", edge)
    for (key in all) {
        split(key, pair, SUBSEP)
        from = folder_of(pair[1]); to = folder_of(pair[2])
        left[from] = left[to] = 1
        if (from == to) continue
        edge[from, to] = 1
        if (from != pair[1] || to != pair[2]) by[from, to] = by[from, to] by[pair[1], pair[2]]
    }
    report("folders")
    if (!failures) print "circles: " total " files, no two need each other, and no two folders of a layer"
    exit failures
}' "$symbols"
