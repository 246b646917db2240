# Matmul: one module per form (n: as it is, t: transposed; a then b), by path; and the bias gradient.
# _longs: reads and writes 64 bits at a time. _views: reads through texel views. _low: tiles of few rows.
set(trans_nn "")
set(trans_nt TRANS_B=1)
set(trans_tn TRANS_A=1)
set(quantized_nf4 QUANTIZED=1 QUANTIZED_NF4=1) # b quantised
set(quantized_int8 QUANTIZED=1)
set(quantized_fp8 QUANTIZED=1 QUANTIZED_FP8=1)
set(quantized_fp4 QUANTIZED=1 QUANTIZED_FP4=1) # mxfp4 and nvfp4, by a constant
foreach(form nn nt tn)
    rf_shader(matmul_tiled_${form} matmul_tiled.comp DEFINES ${trans_${form}})
    foreach(low "" _low)
        set(with ${trans_${form}})
        if(low)
            list(APPEND with LOW=1)
        endif()
        rf_shader(matmul_subgroup${low}_${form} matmul_subgroup.comp DEFINES ${with})
        rf_shader(matmul_subgroup${low}_longs_${form} matmul_subgroup.comp DEFINES LONGS=1 ${with})
        rf_shader(matmul_subgroup${low}_views_${form} matmul_subgroup.comp DEFINES VIEWS=1 LONGS=1 ${with})
        foreach(kind nf4 int8 fp8 fp4)
            if(NOT form STREQUAL "tn")
                rf_shader(matmul_subgroup${low}_${kind}_${form} matmul_subgroup.comp DEFINES ${quantized_${kind}} ${with})
                rf_shader(matmul_subgroup${low}_views_${kind}_${form} matmul_subgroup.comp
                          DEFINES VIEWS=1 LONGS=1 ${quantized_${kind}} ${with})
            endif()
        endforeach()
    endforeach()
endforeach()
foreach(form nn nt)
    foreach(kind nf4 int8 fp8 fp4)
        rf_shader(matmul_tiled_${kind}_${form} matmul_tiled.comp DEFINES ${quantized_${kind}} ${trans_${form}})
    endforeach()
endforeach()
rf_shader(matmul_tiled_tt matmul_tiled.comp DEFINES TRANS_A=1 TRANS_B=1)
rf_shader(matmul_fold matmul_fold.comp)
rf_shader(matmul_bias_grad matmul_bias_grad.comp)
rf_shader(matmul_bias_grad_views matmul_bias_grad.comp DEFINES VIEWS=1)
# Matrix units. _same: the result has the operands' type, else it is f32. _splitN: of f32 operands, as
# sums of N parts. See matmul_cooperative.comp.
set(number_f16 1)
set(number_bf16 2)
foreach(type f16 bf16)
    rf_shader(matmul_cooperative_${type} matmul_cooperative.comp OPERAND ${type}
              DEFINES TYPE=${number_${type}} SPLIT=0 OUT16=0)
    rf_shader(matmul_cooperative_same_${type} matmul_cooperative.comp OPERAND ${type}
              DEFINES TYPE=${number_${type}} SPLIT=0 OUT16=1)
    foreach(kind nf4 int8 fp8 fp4)
        rf_shader(matmul_cooperative_${kind}_${type} matmul_cooperative.comp OPERAND ${type}
                  DEFINES TYPE=${number_${type}} SPLIT=0 OUT16=0 ${quantized_${kind}})
        rf_shader(matmul_cooperative_same_${kind}_${type} matmul_cooperative.comp OPERAND ${type}
                  DEFINES TYPE=${number_${type}} SPLIT=0 OUT16=1 ${quantized_${kind}})
    endforeach()
    foreach(parts 1 2 3)
        rf_shader(matmul_cooperative_split${parts}_${type} matmul_cooperative.comp OPERAND ${type}
                  DEFINES TYPE=${number_${type}} SPLIT=${parts} OUT16=0)
    endforeach()
endforeach()
# The same by whole workgroups, where the compiler knows how.
foreach(type f16 bf16)
    if(type IN_LIST RF_WORKGROUP_TYPES)
        rf_shader(matmul_workgroup_${type} matmul_workgroup.comp TARGET vulkan1.3
                  DEFINES TYPE=${number_${type}} OUT16=0)
        rf_shader(matmul_workgroup_same_${type} matmul_workgroup.comp TARGET vulkan1.3
                  DEFINES TYPE=${number_${type}} OUT16=1)
    else()
        rf_shader_left_out(matmul_workgroup_${type})
        rf_shader_left_out(matmul_workgroup_same_${type})
    endif()
endforeach()
