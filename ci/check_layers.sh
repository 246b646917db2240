#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checks every #include against the tables of layers and of their rooms below, that only the device layer sees Vulkan
# and only the transport layer sees libfabric and sockets, that every source file is listed in the
# build description of its folder, and that the executor of plans asks no policy and
# its verbs none of its choices. Needs nothing but sh, find and awk.
# Usage: ci/check_layers.sh [ROOT]      exit status 0 = clean, 1 = violations, each on a line
set -eu
root=${1:-$(dirname "$0")/..}
cd "$root"

# Layer: the layers that it may include directly. Arrows are transitive.
table='
compat
base       shaders
device     base compat
transport  base
shaders
ops        device shaders
coll       base
comm       coll transport ops
optim      ops
rounds     comm optim
tokenizer  base
template   tokenizer
io         comm template
store      optim io
federated  rounds io
parallel   rounds
train      parallel io
generate   train
models     public
tools      public models
bench      public models tools
examples   public models
'
# Rooms: a layer with folders, and the folders of the layer that each may include. Transitive, too.
rooms='
parallel/plan
parallel/pipeline  parallel/plan
parallel/check     parallel/plan
parallel/passes    parallel/check parallel/pipeline
parallel/predict   parallel/passes
parallel/search    parallel/predict
'
# Public headers and the layer that implements them. A layer may include those of the layers below
# it. Users (models and the layers above) may include them all.
headers='
status.h base
types.h base
fields.h base
device.h device
tensor.h device
ops.h ops
ops_decode.h ops
ops_elementwise.h ops
ops_norm.h ops
ops_operand.h ops
ops_optimizer.h ops
ops_vocabulary.h ops
quantize.h ops
host_step.h optim
comm.h comm
collectives.h comm
predict.h comm
tree_order.h comm
rounds.h rounds
store.h store
federated.h federated
flight.h comm
tokenizer.h tokenizer
chat.h io
data.h io
weights.h io
train.h train
block.h train
policy.h train
checkpoint.h train
generate.h generate
layer.h models
parallel.h parallel
schedule.h coll
search.h parallel
ringforge.h base
'
# ringforge.h counts as base: its own calls (version, log, trace, clock) are implemented there.
# Exceptions, each with its reason:
#   coll, transport  comm.h      the enums and structs of the public calls, not the calls
#   parallel         train.h     blocks, mesh and policy: the inputs of a plan
#   optim            data.h      implements the learning-rate rules
exceptions='
optim data.h
coll comm.h
transport comm.h
parallel train.h
'

list() {
    for folder in compat src transport include tools bench examples shaders tests; do
        [ -d "$folder" ] && find "$folder" -type f \
            \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.comp' \) -print
    done | sort
}

files=$(list)
failed=0

# ---- includes ---------------------------------------------------------------------------------------
# One line per include: FILE LINE < or " NAME. Test files may include anything.
echo "$files" | grep -v '^tests/' | grep -v '\.comp$' | while read -r file; do
    awk -v file="$file" '/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        text = $0; sub(/^[^<"]*/, "", text); kind = substr(text, 1, 1); text = substr(text, 2)
        sub(/[>"].*$/, "", text); print file, NR, kind, text }' "$file"
done | awk -v table="$table" -v rooms="$rooms" -v headers="$headers" -v exceptions="$exceptions" -v known="$files" '
function layer_of(path,    part) {
    split(path, part, "/")
    return part[1] == "src" ? part[2] : part[1]
}
function room_of(path,    part) {
    return split(path, part, "/") > 3 && part[1] == "src" ? part[2] "/" part[3] : layer_of(path)
}
function clean(path,    n, i, part, out, kept) {
    n = split(path, part, "/"); kept = 0
    for (i = 1; i <= n; i++) {
        if (part[i] == "." || part[i] == "") continue
        if (part[i] == ".." && kept > 0) { kept--; continue }
        out[++kept] = part[i]
    }
    path = out[1]
    for (i = 2; i <= kept; i++) path = path "/" out[i]
    return path
}
function may(from, to) { return from == to || (from, to) in reach }
function bad(text) { print at ": " text; failures = 1 }
BEGIN {
    n = split(rooms, line, "\n")
    for (i = 1; i <= n; i++) if (split(line[i], word, " ") > 0) {
        room[word[1]] = 1
        sub(/\/.*/, "", word[1])
        has_rooms[word[1]] = 1
    }
    n = split(table rooms, line, "\n")
    for (i = 1; i <= n; i++) {
        m = split(line[i], word, " ")
        if (m > 0) { layer[word[1]] = 1 }
        for (j = 2; j <= m; j++) reach[word[1], word[j]] = 1
    }
    layer["public"] = 1
    for (a in layer) for (b in layer) for (c in layer)  # Warshall: the middle index is outermost
        if ((b, a) in reach && (a, c) in reach) reach[b, c] = 1
    n = split(headers, line, "\n")
    for (i = 1; i <= n; i++) if (split(line[i], word, " ") == 2) owner[word[1]] = word[2]
    n = split(exceptions, line, "\n")
    for (i = 1; i <= n; i++) if (split(line[i], word, " ") == 2) excused[word[1], word[2]] = 1
    n = split(known, line, "\n")
    for (i = 1; i <= n; i++) exists[line[i]] = 1
}
{
    file = $1; at = $1 ":" $2; kind = $3; name = $4
    mine = layer_of(file)
    if (mine == "include") {  # a public header may include public headers only
        if (kind == "\"" && !(("include/ringforge/" name) in exists))
            bad("the public header includes " name ", which is not a public header")
        next
    }
    if (!(mine in layer)) { bad("folder " mine " is in no row of the table of layers"); next }
    here = room_of(file)
    if (mine in has_rooms && !(here in room)) {
        bad("src/" here " is in no row of the table of rooms")
        next
    }
    in_library = file ~ /^(src|transport)\// && mine != "models"
    if (in_library && name ~ /^(vulkan\/|volk\.h)/ && mine != "device")
        bad("only src/device may see Vulkan (" name ")")
    if (in_library && name ~ /^rdma\// && mine != "transport")
        bad("only transport may see libfabric (" name ")")
    if (in_library && name ~ /^(sys\/socket\.h|sys\/un\.h|netinet\/|arpa\/inet\.h|netdb\.h)/ &&
        mine != "transport")
        bad("only transport may see sockets (" name ")")
    if (name ~ /^ringforge\//) {
        header = substr(name, 11)
        if (!(header in owner)) { bad("there is no public header " name " in the table"); next }
        if (may(mine, "public") || may(mine, owner[header]) || (mine, header) in excused) next
        bad(mine " may not include " name ", which belongs to " owner[header])
        next
    }
    if (kind == "<") next
    folder = file; sub(/[^\/]*$/, "", folder)
    target = clean(folder name)
    if (!(target in exists)) target = clean("src/" name)
    if (!(target in exists)) target = clean(name)
    if (!(target in exists)) next  # generated in the build tree
    theirs = layer_of(target)
    if (theirs == "include")
        bad("write <ringforge/...> for a public header")
    else if (!may(mine, theirs))
        bad(mine " may not include " name ", which belongs to " theirs)
    else if (mine == theirs && mine in has_rooms && !may(here, room_of(target)))
        bad(here " may not include " name ", which belongs to " room_of(target))
}
END { exit failures }
' || failed=1

# ---- every file is listed -------------------------------------------------------------------------
# By its whole name in a build description of its folder or one above it. Shaders and tests may also be listed by
# the stem, from which a loop makes the name.
sources=$(mktemp)
trap 'rm -f "$sources"' EXIT
words_of() {
    cat "$1"/CMakeLists.txt "$1"/*.cmake 2>/dev/null | sed 's/#.*//' | tr -c 'A-Za-z0-9_.' '\n'
}
for file in $(echo "$files" | grep -E '\.(c|cc|comp)$'); do
    echo "$(dirname "$file") $file"
done | sort >"$sources"
last=
while read -r folder file; do
    if [ "$folder" != "$last" ]; then
        above=$folder words=
        while [ "$above" != . ]; do
            words="$words
$(words_of "$above")"
            above=$(dirname "$above")
        done
        case $folder in # what parts share is listed where it is used
        tests/*) words="$words
$(for part in tests/*; do words_of "$part"; done)" ;;
        esac
        last=$folder
    fi
    case $file in # all of these are in the build
    transport/*) continue ;;
    *.c) grep -q '^file(GLOB .* CONFIGURE_DEPENDS \*\.c)' "$folder/CMakeLists.txt" 2>/dev/null && continue
        grep -q '^file(GLOB .* CONFIGURE_DEPENDS \*/\*\.c)' "$folder/../CMakeLists.txt" 2>/dev/null && continue ;;
    esac
    name=$(basename "$file") stem=
    case $file in
    *_test.cc) stem=${name%_test.cc} ;;
    tests/* | shaders/*) stem=${name%.*} ;;
    esac
    case "
$words
" in
    *"
$name
"*) continue ;;
    esac
    case "
$words
" in
    *"
${stem:-/}
"*) continue ;;
    esac
    echo "$file: is listed in no CMakeLists.txt"
    failed=1
done <"$sources"

# ---- the executor decides nothing --------------------------------------------------------------------
if [ -f src/train/execute.c ] && grep -nE 'policy|mesh' src/train/execute.c; then
    echo "src/train/execute.c: what is done is in the list, not asked of the policy"
    failed=1
fi
# What it calls may read numbers of the policy (the optimizer's, sizes, counts), and none of its choices.
choices='policy(\.|->)(order|zero|keep_gathered|no_prefetch|recompute|offload|forward_only|no_overlap|update_on_rank_0|no_masters|reduce_dtype)|mesh'
for file in src/train/verbs.c src/train/block.c src/train/segment.c src/train/values.c; do
    if [ -f "$file" ] && grep -nE "$choices" "$file"; then
        echo "$file: what is done is in the list, not a choice of the policy"
        failed=1
    fi
done
for file in src/train/execute.c src/train/verbs.c src/train/verbs_transfer.c src/train/block.c; do
    if [ -f "$file" ] && grep -n 'RF_VALUE_' "$file"; then
        echo "$file: operands are found by their roles, not by the kind of value"
        failed=1
    fi
done

[ $failed = 0 ] && echo "layers: $(echo "$files" | wc -l) files, every include and list is in order"
exit $failed
