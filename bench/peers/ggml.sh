#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ggml's matrix products through the same compilers as ours: what the drivers make of its Vulkan shader
# mul_mm.comp, with the constants that ggml would choose. Nothing runs. Fetch ggml first; nothing of it is
# in this project.
#
#   git clone --depth 1 https://github.com/ggml-org/ggml
#   bench/peers/ggml.sh GGML BUILD GPU OUT [RUNNER...]
#
# GPU: ga102, ad102, bmg, dg2 or navi31. RUNNER starts a program on that GPU's driver, as
# "build/drivers/lavapipe-backports/run-radv" does with RADV_FORCE_FAMILY=navi31 set. GLSLANG names a
# glslangValidator that knows GL_KHR_cooperative_matrix (13 or later). Then:
#
#   ci/kernel_loops.py GPU OUT/*.txt
set -eu
[ $# -ge 4 ] || {
    sed -n '3,16s/^# \{0,1\}//p' "$0"
    exit 2
}
shaders=$1/src/ggml-vulkan/vulkan-shaders program=$2/tests/kernels/kernel_disassemble gpu=$3 out=$4
shift 4
mkdir -p "$out"

compile() { # compile NAME DEFINES...: as ggml's vulkan-shaders-gen.cpp does, matmul_shaders()
    name=$1
    shift
    "${GLSLANG:-glslangValidator}" --target-env vulkan1.2 -V -S comp \
        -P"#extension GL_GOOGLE_include_directive : enable" -DACC_TYPE=float -DACC_TYPEV2=vec2 \
        -DD_TYPE=float "$@" "$shaders/mul_mm.comp" -o "$out/$name.spv" >"$out/compile.log" || { cat "$out/compile.log"; exit 1; }
}
disassemble() { # disassemble NAME SHADER CONSTANTS, by number from 0
    spec='' id=0
    for value in $3; do
        spec="$spec $id=$value" id=$((id + 1))
    done
    "$run" "$program" --spirv "$out/$2.spv" --to "$out/$1.txt" --constants "${spec# }"
}
run="env"
[ $# -eq 0 ] || {
    # The runner and its arguments, as one command.
    printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$out/run"
    chmod +x "$out/run"
    run=$out/run
}

half='-DFLOAT16=1 -DFLOAT_TYPE=float16_t -DFLOAT_TYPEV2=f16vec2 -DFLOAT_TYPEV4=f16vec4
    -DFLOAT_TYPEV8=f16mat2x4 -DDATA_A_F16=1 -DLOAD_VEC_A=8 -DLOAD_VEC_B=8 -DB_TYPE=f16mat2x4
    -DB_TYPE_SCALAR=float16_t -DB_TYPEV4=f16vec4'
single='-DFLOAT_TYPE=float -DFLOAT_TYPEV2=vec2 -DFLOAT_TYPEV4=vec4 -DFLOAT_TYPEV8=mat2x4 -DDATA_A_F32=1
    -DLOAD_VEC_A=4 -DLOAD_VEC_B=4 -DB_TYPE=vec4 -DB_TYPE_SCALAR=float -DB_TYPEV4=vec4'
# shellcheck disable=SC2086
compile ggml_f16_units $half -DCOOPMAT=1
# shellcheck disable=SC2086
compile ggml_f16 $half
# shellcheck disable=SC2086
compile ggml_f32 $single

# BLOCK_SIZE BM BN BK WM WN WMITER TM TN TK WARP ALIGNED, of the largest tile that ggml_vk_load_shaders()
# leaves on; TM, TN and TK are the fragment's.
case $gpu in
ga102 | ad102)
    disassemble ggml_f16_units ggml_f16_units '128 128 128 16 64 64 2 16 16 16 32 1'
    disassemble ggml_f32 ggml_f32 '128 128 128 16 64 64 2 4 4 1 32 1'
    ;;
navi31)
    disassemble ggml_f16_units ggml_f16_units '256 128 128 16 64 64 2 16 16 16 64 1'
    disassemble ggml_f32 ggml_f32 '256 128 128 16 64 64 2 4 4 1 64 1'
    ;;
bmg)
    disassemble ggml_f16_units ggml_f16_units '512 128 128 16 32 32 2 8 16 16 32 1'
    disassemble ggml_f32 ggml_f32 '512 128 128 16 32 32 2 4 4 1 32 1'
    ;;
dg2) # without matrix units: "performance regressions"
    disassemble ggml_f16 ggml_f16 '128 64 64 16 32 32 2 4 2 1 32 1'
    disassemble ggml_f32 ggml_f32 '128 64 64 16 32 32 2 4 2 1 32 1'
    ;;
*)
    echo "ggml.sh: no constants are known for \"$gpu\"" >&2
    exit 2
    ;;
esac
