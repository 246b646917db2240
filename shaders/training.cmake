# Every training kernel that is not a matmul, in three builds: _v for rows that are aligned and a
# multiple of 4 elements long, _s for any other, and _views, which is _v with reads through texel
# views, for CPU drivers. Then once more, without views, for 16-bit types: NAME_f16, NAME_bf16. See
# common.glsl.
function(rf_shader_types name source)
    cmake_parse_arguments(S "" "" "DEFINES" ${ARGN})
    rf_shader(${name} ${source} DEFINES ${S_DEFINES})
    rf_shader(${name}_f16 ${source} DEFINES ${S_DEFINES} TYPE=1)
    rf_shader(${name}_bf16 ${source} DEFINES ${S_DEFINES} TYPE=2)
endfunction()
# rf_shader_builds(NAME SOURCE [DEFINES ...]): all of these.
function(rf_shader_builds name source)
    cmake_parse_arguments(S "" "" "DEFINES" ${ARGN})
    rf_shader_types(${name}_v ${source} DEFINES ${S_DEFINES} VEC=1)
    rf_shader_types(${name}_s ${source} DEFINES ${S_DEFINES} VEC=0)
    rf_shader(${name}_views ${source} DEFINES ${S_DEFINES} VEC=1 VIEWS=1)
endfunction()

set(types f32 f16 bf16)
set(ops OP_ADD=1 OP_SCALE=2 OP_MUL=3 OP_CAST=4 OP_FILL=5)
foreach(op add scale mul)
    string(TOUPPER ${op} OP)
    rf_shader_builds(${op} elementwise.comp DEFINES ${ops} OP=OP_${OP})
endforeach()
foreach(name activation glu softmax)
    rf_shader_builds(${name} ${name}.comp DEFINES BACKWARD=0)
    rf_shader_builds(${name}_backward ${name}.comp DEFINES BACKWARD=1)
endforeach()
rf_shader_builds(dropout dropout.comp)
foreach(build v s) # of f32 words the driver fills
    string(COMPARE EQUAL ${build} v vec)
    rf_shader(fill_${build}_f16 elementwise.comp DEFINES ${ops} OP=OP_FILL VEC=${vec} TYPE=1)
    rf_shader(fill_${build}_bf16 elementwise.comp DEFINES ${ops} OP=OP_FILL VEC=${vec} TYPE=2)
endforeach()
# cast_FROM_BUILD_TO, and no TO for f32.
foreach(build v s)
    string(COMPARE EQUAL ${build} v vec)
    set(cast ${ops} OP=OP_CAST VEC=${vec})
    foreach(type 1 2)
        list(GET types ${type} name)
        math(EXPR other "3 - ${type}")
        list(GET types ${other} other_name)
        rf_shader(cast_f32_${build}_${name} elementwise.comp
                  DEFINES ${cast} TYPE=${type} LOAD=load_item_f32)
        rf_shader(cast_${name}_${build} elementwise.comp
                  DEFINES ${cast} TYPE=${type} STORE=store_item_f32)
        rf_shader(cast_${name}_${build}_${other_name} elementwise.comp
                  DEFINES ${cast} TYPE=${type} STORE_TYPE=${other})
    endforeach()
endforeach()
# All rules and types by specialization constants.
rf_shader(optimizer_v optimizer.comp DEFINES VEC=1)
rf_shader(optimizer_s optimizer.comp DEFINES VEC=0)
rf_shader(optimizer_views optimizer.comp DEFINES VEC=1 VIEWS=1)
rf_shader(step_begin step_begin.comp)
rf_shader(loss_scale loss_scale.comp)
foreach(name layernorm layernorm_backward_input layernorm_backward_weight layernorm_fold)
    rf_shader_builds(${name} ${name}.comp)
endforeach()
rf_shader_builds(embedding embedding.comp)
rf_shader_builds(embedding_backward embedding_backward.comp DEFINES GRAD_F32=0)
foreach(type 1 2) # activations of a type, gradients in f32
    list(GET types ${type} name)
    rf_shader(embedding_backward_wide_v_${name} embedding_backward.comp
              DEFINES VEC=1 TYPE=${type} GRAD_F32=1)
    rf_shader(embedding_backward_wide_s_${name} embedding_backward.comp
              DEFINES VEC=0 TYPE=${type} GRAD_F32=1)
endforeach()
foreach(stage 0 1 2)
    rf_shader(embedding_sort_${stage} embedding_sort.comp DEFINES STAGE=${stage})
endforeach()
foreach(name cross_entropy cross_entropy_backward)
    rf_shader_builds(${name} ${name}.comp)
endforeach()
# Vocabularies are often odd.
foreach(name cross_entropy cross_entropy_backward)
    rf_shader(${name}_s_views ${name}.comp DEFINES VEC=0 VIEWS=1)
endforeach()
foreach(name attention attention_backward_query attention_backward_key)
    rf_shader_builds(${name} ${name}.comp)
endforeach()
set(builds s v)
foreach(name attention_tiled attention_tiled_query attention_tiled_key)
    rf_shader_types(${name}_v ${name}.comp DEFINES VEC=1)
    rf_shader_types(${name}_s ${name}.comp DEFINES VEC=0)
    foreach(vec 0 1) # on matrix units
        list(GET builds ${vec} build)
        rf_shader(${name}_units_${build}_f16 ${name}.comp OPERAND f16
                  DEFINES VEC=${vec} TYPE=1 UNITS=1)
        rf_shader(${name}_units_${build}_bf16 ${name}.comp OPERAND bf16
                  DEFINES VEC=${vec} TYPE=2 UNITS=1)
    endforeach()
endforeach()
foreach(pairs "" _halves)
    string(COMPARE NOTEQUAL "${pairs}" "" halves)
    rf_shader_types(rotary${pairs}_v rotary.comp DEFINES VEC=1 HALVES=${halves})
    rf_shader_types(rotary${pairs}_s rotary.comp DEFINES VEC=0 HALVES=${halves})
endforeach()
# These read single words or start anywhere.
set(kinds KIND_SUM=1 KIND_SQUARES=2 KIND_MAX=3 KIND_NONFINITE=4)
foreach(kind sum squares max nonfinite)
    string(TOUPPER ${kind} KIND)
    rf_shader_types(reduce_${kind} reduce.comp DEFINES ${kinds} KIND=KIND_${KIND} VEC=0)
    rf_shader(reduce_${kind}_views reduce.comp
              DEFINES ${kinds} KIND=KIND_${KIND} VEC=0 VIEWS=1)
endforeach()
rf_shader(reduce_fold reduce_fold.comp DEFINES MOST=0)
rf_shader(reduce_fold_most reduce_fold.comp DEFINES MOST=1)
