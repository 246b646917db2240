# The _wide builds: see README.md. rf_builds is in shaders/training.cmake.
rf_builds(elementwise elementwise "wide")
rf_builds(cast_f32 elementwise "wide16" LOAD=load_item_f32) # casts: not between 16-bit types
rf_builds(cast_f16 elementwise "wide" TYPE=${number_f16} STORE=store_item_f32)
rf_builds(cast_bf16 elementwise "wide" TYPE=${number_bf16} STORE=store_item_f32)
rf_builds(activation activation "wide" BACKWARD=0)
rf_builds(activation_backward activation "wide" BACKWARD=1)
rf_builds(optimizer optimizer "wide")
rf_builds(cross_entropy_backward cross_entropy_backward "wide s_wide")
