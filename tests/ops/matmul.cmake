# rf_matmul on every path, rf_bias_grad, and the fp64 product that they are compared with.
rf_test(ops_oracle_test SOURCES matmul_oracle_test.cc ../support/oracle.cc LAYERS base)
rf_test(ops_matmul_test
        SOURCES matmul_test.cc matmul_bias_test.cc matmul_cooperative_test.cc
                matmul_layout_test.cc matmul_quantized_test.cc matmul_types_test.cc ../support/oracle.cc ../support/reference_ops.cc
        LAYERS base device ops)
rf_test(ops_matmul_table_test SOURCES matmul_table_test.cc LAYERS base device ops)
rf_test(ops_budget_test SOURCES budget_test.cc LAYERS base device ops)
rf_test(ops_forms_test SOURCES forms_test.cc LAYERS base device ops)
