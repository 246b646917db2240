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

# rf_test(NAME SOURCES ... [LAYERS base coll ...] [LINK targets] [LABELS l] [TIMEOUT s]): a
# GoogleTest program; every TEST is one ctest test. With LAYERS it links these layers only, which
# also proves that they need no others; without, the whole static library.
function(rf_test name)
    cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LAYERS;LINK;LABELS" ${ARGN})
    add_executable(${name} ${T_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
                                               ${PROJECT_SOURCE_DIR}/tests)
    if(T_LAYERS)
        list(TRANSFORM T_LAYERS PREPEND rf_)
        target_link_libraries(${name} PRIVATE ${T_LAYERS})
    else()
        target_link_libraries(${name} PRIVATE ringforge_static)
    endif()
    target_link_libraries(${name} PRIVATE ${T_LINK} GTest::gtest_main Threads::Threads m)
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 300)
    endif()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
endfunction()
