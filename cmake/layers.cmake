# rf_layer(NAME SOURCES a.c b.c [LINK targets]): one layer of the library as an object library
# rf_NAME. Both the shared and the static library are made of these.
function(rf_layer name)
    cmake_parse_arguments(L "" "" "SOURCES;LINK" ${ARGN})
    if(NOT L_SOURCES)
        file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty_${name}.c CONTENT "typedef int rf_empty;\n")
        set(L_SOURCES ${PROJECT_BINARY_DIR}/empty_${name}.c)
    endif()
    add_library(rf_${name} OBJECT ${L_SOURCES})
    target_include_directories(rf_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                               PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(rf_${name} PUBLIC ${L_LINK})
    set_property(GLOBAL APPEND PROPERTY RF_LAYERS rf_${name})
endfunction()

# Most of the compile time of a test's source is GoogleTest's headers: read once. ccache has no use
# for precompiled headers.
function(rf_precompile_gtest name)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled_gtest.cc CONTENT "\n")
    add_executable(${name} ${PROJECT_BINARY_DIR}/precompiled_gtest.cc)
    rf_test_options(${name})
    target_link_libraries(${name} PRIVATE GTest::gtest_main Threads::Threads)
    target_precompile_headers(${name} PRIVATE <gtest/gtest.h> <cmath> <cstring> <functional>
                              <mutex> <string> <thread> <vector>)
endfunction()

# Tests check the library, which is optimized; they themselves compile in half the time with
# -O0. A folder whose tests compute a lot sets RF_TEST_OPTIMIZED.
function(rf_test_options name)
    if(CMAKE_BUILD_TYPE STREQUAL "Release")
        set(level 0)
        if(RF_TEST_OPTIMIZED)
            set(level 1)
        endif()
        target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O${level}>)
    endif()
endfunction()

# rf_test(NAME SOURCES ... [LAYERS base coll ...] [LINK targets] [LABELS l] [TIMEOUT s]): a
# GoogleTest program; every TEST is one ctest test. With LAYERS it links these layers only, which
# also proves that they need no others; without, the whole static library.
function(rf_test name)
    cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LAYERS;LINK;LABELS" ${ARGN})
    add_executable(${name} ${T_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
                                               ${PROJECT_SOURCE_DIR}/tests)
    if(RF_BUNDLE)
        target_link_libraries(${name} PRIVATE ringforge_shown)
        # Provided by a layer otherwise: the names of kernels.
        target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/shaders)
        list(REMOVE_ITEM T_LINK ringforge_static)
    elseif(T_LAYERS)
        list(TRANSFORM T_LAYERS PREPEND rf_)
        target_link_libraries(${name} PRIVATE ${T_LAYERS})
    else()
        target_link_libraries(${name} PRIVATE ringforge_static)
    endif()
    target_link_libraries(${name} PRIVATE ${T_LINK} GTest::gtest_main Threads::Threads m)
    rf_test_options(${name})
    if(NOT RF_CCACHE)
        set(precompiled precompiled_gtest${RF_TEST_OPTIMIZED})
        if(NOT TARGET ${precompiled})
            rf_precompile_gtest(${precompiled})
        endif()
        target_precompile_headers(${name} REUSE_FROM ${precompiled})
        list(FILTER T_SOURCES INCLUDE REGEX "\\.c$")
        set_source_files_properties(${T_SOURCES} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 300)
    endif()
    if(RF_BUNDLE)
        return()
    endif()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
endfunction()
