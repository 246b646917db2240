# The training kernels other than matmul.
rf_test(ops_reference_test SOURCES reference_test.cc ../support/reference_ops.cc LAYERS base)
rf_test(ops_kernels_test
        SOURCES activation_test.cc attention_packed_test.cc attention_test.cc builds_test.cc copy_heads_test.cc cross_entropy_test.cc decode_test.cc dropout_test.cc
                elementwise_test.cc embedding_test.cc fixed_test.cc launch_test.cc layernorm_test.cc lm_head_test.cc norm_of_f32_test.cc reduce_test.cc
                rotary_test.cc round_operand_test.cc softmax_test.cc squares_test.cc ../support/reference_ops.cc
        LAYERS base device ops optim)
rf_test(ops_optimizer_test SOURCES optimizer_test.cc optimizer_types_test.cc step_scalars_test.cc
        LAYERS base device ops)
target_compile_definitions(ops_optimizer_test PRIVATE RF_OPS_FOLDER="${RF_TEST_FOLDER}")
rf_test(ops_host_step_test SOURCES host_scalars_test.cc host_states_test.cc host_step_test.cc host_step_kernel_test.cc
        LAYERS base device ops optim)
rf_test(ops_work_test SOURCES work_test.cc LAYERS base device ops)
rf_test(ops_ranges_test SOURCES ranges_test.cc LAYERS base device ops)
rf_test(ops_quantize_test SOURCES quantize_test.cc LAYERS base device ops)
target_compile_definitions(ops_quantize_test PRIVATE RF_OPS_FOLDER="${RF_TEST_FOLDER}")
