# The training kernels other than matmul.
rf_test(ops_reference_test SOURCES reference_test.cc ../support/reference_ops.cc LAYERS base)
rf_test(ops_kernels_test
        SOURCES attention_test.cc builds_test.cc cross_entropy_test.cc elementwise_test.cc embedding_test.cc
                layernorm_test.cc optimizer_test.cc reduce_test.cc ../support/reference_ops.cc
        LAYERS base device tensor ops)
