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
set(ops OP_ADD=1 OP_SCALE=2 OP_GELU=3 OP_GELU_BACKWARD=4 OP_CAST=5 OP_FILL=6)
foreach(op add scale gelu gelu_backward)
    string(TOUPPER ${op} OP)
    rf_shader_builds(${op} elementwise.comp DEFINES ${ops} OP=OP_${OP})
endforeach()
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
foreach(name embedding embedding_backward cross_entropy cross_entropy_backward)
    rf_shader(${name}_v ${name}.comp DEFINES VEC=1)
    rf_shader(${name}_s ${name}.comp DEFINES VEC=0)
    rf_shader(${name}_views ${name}.comp DEFINES VEC=1 VIEWS=1)
endforeach()
# Vocabularies are often odd.
foreach(name cross_entropy cross_entropy_backward)
    rf_shader(${name}_s_views ${name}.comp DEFINES VEC=0 VIEWS=1)
endforeach()
# _x: rows are spread by subgroup shuffles; needs subgroups of at least 4 lanes.
foreach(name attention attention_backward_query attention_backward_key)
    rf_shader(${name}_v ${name}.comp DEFINES VEC=1 SHUFFLE=0)
    rf_shader(${name}_s ${name}.comp DEFINES VEC=0 SHUFFLE=0)
    rf_shader(${name}_vx ${name}.comp DEFINES VEC=1 SHUFFLE=1)
    rf_shader(${name}_sx ${name}.comp DEFINES VEC=0 SHUFFLE=1)
    rf_shader(${name}_views ${name}.comp DEFINES VEC=1 SHUFFLE=1 VIEWS=1)
endforeach()
# These read single words or start anywhere.
rf_shader(embedding_links embedding_links.comp)
rf_shader(sum reduce.comp DEFINES VEC=0 SQUARES=0)
rf_shader_types(sum_squares reduce.comp DEFINES VEC=0 SQUARES=1)
rf_shader(sum_views reduce.comp DEFINES VEC=0 SQUARES=0 VIEWS=1)
rf_shader(sum_squares_views reduce.comp DEFINES VEC=0 SQUARES=1 VIEWS=1)
rf_shader(reduce_fold reduce_fold.comp)
