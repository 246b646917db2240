#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The check of the layers finds each kind of violation, and nothing in a clean tree.
# Usage: check_layers_test.sh CHECK_SCRIPT
set -eu
check=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: a clean small project
tree() {
    rm -rf "$work/t"
    mkdir -p "$work/t/include/ringforge" "$work/t/src/base" "$work/t/src/device" \
        "$work/t/src/ops" "$work/t/src/coll" "$work/t/tools"
    for header in status device ops comm; do
        echo "/* $header */" >"$work/t/include/ringforge/$header.h"
    done
    echo '#include <ringforge/status.h>' >"$work/t/src/base/base.h"
    printf '#include <volk.h>\n#include "../base/base.h"\n' >"$work/t/src/device/open.c"
    echo '#include <ringforge/ops.h>' >"$work/t/src/ops/add.c"
    echo '#include "base/base.h"' >>"$work/t/src/ops/add.c" # two arrows away
    echo '#include "../base/base.h"' >"$work/t/src/coll/ring.c"
    echo '#include <ringforge/comm.h>' >"$work/t/tools/main.c"
    echo 'rf_layer(device SOURCES open.c)' >"$work/t/src/device/CMakeLists.txt"
    echo 'rf_layer(ops SOURCES add.c)' >"$work/t/src/ops/CMakeLists.txt"
    echo 'rf_layer(coll SOURCES ring.c)' >"$work/t/src/coll/CMakeLists.txt"
    echo 'add_executable(x main.c)' >"$work/t/tools/CMakeLists.txt"
}
failures=0
expect() { # EXPECTED_STATUS PATTERN NAME
    status=0
    "$check" "$work/t" >"$work/out" 2>&1 || status=$?
    if [ "$status" != "$1" ] || ! grep -q "$2" "$work/out"; then
        echo "FAILED: $3: status $status, wanted $1 and /$2/:"
        cat "$work/out"
        failures=1
    fi
}

tree
expect 0 'in order' 'a clean tree passes'
tree
echo '#include "../ops/add.h"' >>"$work/t/src/base/base.h"
echo >"$work/t/src/ops/add.h"
expect 1 'base may not include ../ops/add.h, which belongs to ops' 'an upward include'
tree
echo >"$work/t/src/device/vulkan.h"
echo '#include "device/vulkan.h"' >>"$work/t/src/coll/ring.c"
expect 1 'coll may not include device/vulkan.h' 'an include beside the table, found from src'
tree
echo '#  include <volk.h>' >>"$work/t/src/ops/add.c"
expect 1 'only src/device may see Vulkan' 'Vulkan outside its layer'
tree
echo '#include <rdma/fabric.h>' >>"$work/t/src/coll/ring.c"
expect 1 'only transport may see libfabric' 'libfabric outside its layer'
tree
echo '#include <sys/socket.h>' >>"$work/t/src/base/base.h"
expect 1 'only transport may see sockets' 'sockets outside their layer'
tree
echo '#include "../src/base/base.h"' >>"$work/t/tools/main.c"
expect 1 'tools may not include ../src/base/base.h' 'a tool that looks inside'
tree
echo '#include <ringforge/comm.h>' >>"$work/t/src/base/base.h"
expect 1 'base may not include ringforge/comm.h' 'a public header of a higher layer'
tree
echo '/* nothing */' >"$work/t/src/ops/sub.c"
expect 1 'src/ops/sub.c: is listed in no CMakeLists.txt' 'a file that is not built'
tree
mkdir "$work/t/src/extra"
echo '#include "x.h"' >"$work/t/src/extra/x.c"
echo 'rf_layer(extra SOURCES x.c)' >"$work/t/src/extra/CMakeLists.txt"
expect 1 'folder extra is in no row' 'a folder that the table does not know'
tree
room() { # ROOM LINE
    mkdir -p "$work/t/src/parallel/$1"
    echo "$2" >"$work/t/src/parallel/$1/x.c"
    echo >"$work/t/src/parallel/$1/x.h"
    echo 'file(GLOB sources CONFIGURE_DEPENDS */*.c)' >"$work/t/src/parallel/CMakeLists.txt"
}
room plan ''
room search '#include "../plan/x.h"' # by way of other rooms
expect 0 'in order' 'a folder of a layer that includes one below it'
room check ''
room plan '#include "../check/x.h"'
expect 1 'parallel/plan may not include ../check/x.h, which belongs to parallel/check' 'a folder that looks up'
room plan ''
room attic '#include "../plan/x.h"'
expect 1 'src/parallel/attic is in no row of the table of rooms' 'a folder of a layer that the table does not know'
tree
executor() { # FILE LINE
    mkdir -p "$work/t/src/train"
    echo "$2" >"$work/t/src/train/$1"
    echo "rf_layer(train SOURCES $1)" >"$work/t/src/train/CMakeLists.txt"
}
executor execute.c 'if (plan->policy.clip > 0)'
expect 1 'execute.c: what is done is in the list' 'an executor that sees the policy'
tree
executor verbs.c 'if (p->run->plan->policy.zero == 3)'
expect 1 'verbs.c: what is done is in the list, not a choice' 'a verb that asks for a choice'
tree
executor verbs.c 'if (plan->mesh.dp > 1)'
expect 1 'verbs.c: what is done is in the list, not a choice' 'a verb that asks for the mesh'
tree
executor block.c 'if (v->kind == RF_VALUE_STATE)'
expect 1 'block.c: operands are found by their roles' 'a call of a block that looks for a kind of value'
tree
executor verbs.c 'clip = plan->policy.clip; return plan->policy.optimizer.eps;'
expect 0 'in order' 'a verb that reads numbers'
exit $failures
