set -eu
set -- help
. ./forge >/dev/null
export LP_NUM_THREADS=2 MESA_SHADER_CACHE_DIR=$PWD/build/mesa-cache
offline=
stage lavapipe-backports/4 test_subgroups 128 lavapipe-backports ops
