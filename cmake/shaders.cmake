# How GLSL becomes SPIR-V in the library: rf_shader(NAME SOURCE [DEFINES A=1 ...] [OPERAND f16|bf16]
# [TARGET vulkan1.3]) compiles shaders/SOURCE in the build tree and embeds it under NAME. Nothing
# generated is committed. Never -O: drivers optimise, and Debian 12's spirv-opt rejects newer opcodes.
# With OPERAND the module has markers (compat/cooperative.glsl), which a small program of the build
# replaces; matrix operands are then of this type.
set(RF_GLSL_COMPILER "" CACHE STRING "glslangValidator or glslc; empty: the first of them that is found")
find_program(RF_GLSLANG glslangValidator)
find_program(RF_GLSLC glslc)
if(RF_GLSL_COMPILER STREQUAL "")
    if(RF_GLSLANG)
        set(rf_glsl_compiler glslangValidator)
    else()
        set(rf_glsl_compiler glslc)
    endif()
elseif(RF_GLSL_COMPILER MATCHES "^(glslangValidator|glslc)$")
    set(rf_glsl_compiler ${RF_GLSL_COMPILER})
else()
    message(FATAL_ERROR "RF_GLSL_COMPILER is ${RF_GLSL_COMPILER}; use glslangValidator or glslc")
endif()
if((rf_glsl_compiler STREQUAL glslc AND NOT RF_GLSLC) OR
   (rf_glsl_compiler STREQUAL glslangValidator AND NOT RF_GLSLANG))
    message(FATAL_ERROR "${rf_glsl_compiler} was not found; install glslang-tools or glslc")
endif()
add_subdirectory(${PROJECT_SOURCE_DIR}/compat)

# The command that compiles SOURCE to the module SPV, and writes SPV.d: what it included.
function(rf_glsl_command variable source spv target defines)
    list(TRANSFORM defines PREPEND -D)
    if(rf_glsl_compiler STREQUAL glslc)
        set(command ${RF_GLSLC} -fshader-stage=compute --target-env=${target} -MD -MF ${spv}.d -MT ${spv})
    else()
        set(command ${RF_GLSLANG} -V --quiet --target-env ${target} --depfile ${spv}.d)
    endif()
    set(${variable} ${command} -I${PROJECT_SOURCE_DIR}/shaders -I${PROJECT_SOURCE_DIR}/compat ${defines} -o ${spv} ${source} PARENT_SCOPE)
endfunction()

# rf_spirv_header(HEADER ARRAY SOURCE [OPERAND ...] [TARGET ...] [DEFINES ...]): a rule that makes HEADER,
# which has the module as the array of words ARRAY.
function(rf_spirv_header header array source)
    cmake_parse_arguments(S "" "OPERAND;TARGET" "DEFINES" ${ARGN})
    if(NOT S_TARGET)
        set(S_TARGET vulkan1.2)
    endif()
    if(NOT S_OPERAND)
        set(S_OPERAND none)
    endif()
    string(REGEX REPLACE "\\.h$" ".spv" spv ${header})
    rf_glsl_command(command ${source} ${spv} ${S_TARGET} "${S_DEFINES}")
    get_filename_component(name ${header} NAME_WE)
    add_custom_command(OUTPUT ${spv} ${header}
        COMMAND ${command}
        COMMAND spirv_markers ${S_OPERAND} ${array} ${spv} ${header}
        DEPENDS ${source} DEPFILE ${spv}.d
        COMMENT "SPIR-V ${name}" VERBATIM)
endfunction()

# Matrix units by subgroups (OPERAND) are built by any compiler that has GL_EXT_spirv_intrinsics. By whole
# workgroups only by one that knows these extensions: RF_WORKGROUP_TYPES lists the operands' types.
function(rf_compiles variable source target defines)
    rf_glsl_command(command ${source} ${PROJECT_BINARY_DIR}/shaders/probe.spv ${target} "${defines}")
    execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    set(${variable} ${status} PARENT_SCOPE)
endfunction()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/shaders)
rf_compiles(RF_UNITS_STATUS ${PROJECT_SOURCE_DIR}/shaders/matmul_cooperative.comp vulkan1.2
            "TYPE=1;SPLIT=0;OUT16=0")
set(RF_WORKGROUP_TYPES "")
foreach(type f16 bf16)
    set(extension_f16 GL_EXT_shader_explicit_arithmetic_types_float16)
    set(extension_bf16 GL_EXT_bfloat16)
    set(element_f16 float16_t)
    set(element_bf16 bfloat16_t)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/shaders/probe.comp @ONLY CONTENT "#version 450
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension ${extension_${type}} : require
layout(local_size_x = 128) in;
void main()
{
    coopmat<${element_${type}}, gl_ScopeWorkgroup, 64, 64, gl_MatrixUseA> m;
    tensorLayoutNV<2> layout_ = createTensorLayoutNV(2);
}
")
    rf_compiles(status ${PROJECT_BINARY_DIR}/shaders/probe.comp vulkan1.3 "")
    if(status EQUAL 0)
        list(APPEND RF_WORKGROUP_TYPES ${type})
    endif()
endforeach()
set(rf_glsl_program ${RF_GLSLANG})
if(rf_glsl_compiler STREQUAL glslc)
    set(rf_glsl_program ${RF_GLSLC})
endif()
execute_process(COMMAND ${rf_glsl_program} --version OUTPUT_VARIABLE RF_GLSLANG_VERSION)
string(REGEX MATCH "[0-9]+[:.][0-9.]+[0-9]" RF_GLSLANG_VERSION "${RF_GLSLANG_VERSION}")
message(STATUS "Shaders are compiled by ${rf_glsl_program} ${RF_GLSLANG_VERSION}")
if(RF_UNITS_STATUS EQUAL 0)
    message(STATUS "Matrix units by subgroups: f16 bf16")
else()
    message(STATUS "Matrix units by subgroups: not built, since ${rf_glsl_compiler} "
                   "${RF_GLSLANG_VERSION} does not know GL_EXT_spirv_intrinsics")
endif()
if(RF_WORKGROUP_TYPES)
    string(REPLACE ";" " " types "${RF_WORKGROUP_TYPES}")
    message(STATUS "Matrix units by workgroups: ${types}")
else()
    message(STATUS "Matrix units by workgroups: not built, since ${rf_glsl_compiler} "
                   "${RF_GLSLANG_VERSION} does not know GL_NV_cooperative_matrix2 (glslang 16 does)")
endif()

# Builds that differ in how C is compiled can share what is compiled of shaders, if it is of the same sources by
# the same compiler. A build that has compiled all of them writes what they are of: shaders/sources.txt.
set(RF_SHADERS_FROM "" CACHE PATH "another build directory of the same sources, whose compiled shaders are taken")
set(rf_shader_dir ${PROJECT_BINARY_DIR}/shaders)
set(rf_shader_compiler "${rf_glsl_compiler} ${RF_GLSLANG_VERSION}")
file(GLOB rf_shader_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     shaders/*.comp shaders/*.glsl shaders/*.h shaders/push/*.h shaders/*.cmake shaders/CMakeLists.txt
     compat/*.glsl compat/*.cmake compat/spirv_markers* cmake/shaders.cmake cmake/spirv_markers*)
if(RF_SHADERS_FROM)
    set(rf_shader_dir ${RF_SHADERS_FROM}/shaders)
    if(NOT EXISTS ${rf_shader_dir}/sources.txt)
        message(FATAL_ERROR "RF_SHADERS_FROM is ${RF_SHADERS_FROM}, where the shaders of ringforge have not been "
                            "compiled; build the target rf_shaders there")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rf_shader_dir}/sources.txt ${rf_shader_sources})
    execute_process(COMMAND ${CMAKE_COMMAND} -E sha256sum ${rf_shader_sources}
                    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE ours)
    string(REGEX MATCHALL "[^\n]+" ours "${rf_shader_compiler}\n${ours}")
    file(STRINGS ${rf_shader_dir}/sources.txt theirs)
    foreach(line IN LISTS ours theirs)
        if(NOT (line IN_LIST ours AND line IN_LIST theirs))
            string(REGEX REPLACE "^.*  " "" name "${line}")
            message(FATAL_ERROR "RF_SHADERS_FROM is ${RF_SHADERS_FROM}, whose shaders are not those of this tree and "
                                "compiler: ${name} differs; build the target rf_shaders there from the same sources")
        endif()
    endforeach()
endif()

define_property(GLOBAL PROPERTY RF_SHADERS)
set_property(GLOBAL PROPERTY RF_SHADERS "")
set_property(GLOBAL PROPERTY RF_SHADERS_LEFT_OUT "")

# A build that this compiler cannot make. C may name it; rf_job_built says no.
function(rf_shader_left_out name)
    set_property(GLOBAL APPEND PROPERTY RF_SHADERS_LEFT_OUT ${name})
endfunction()

function(rf_shader name source)
    if("OPERAND" IN_LIST ARGN AND NOT RF_UNITS_STATUS EQUAL 0)
        rf_shader_left_out(${name})
        return()
    endif()
    if(NOT RF_SHADERS_FROM)
        rf_spirv_header(${rf_shader_dir}/${name}.h rf_spv_${name} ${PROJECT_SOURCE_DIR}/shaders/${source} ${ARGN})
    endif()
    set_property(GLOBAL APPEND PROPERTY RF_SHADERS ${name})
endfunction()

# Writes what C knows of the builds: shader_ids.h, an enum with a constant RF_SHADER_NAME for each, so that
# to name one that is not listed is an error of the compiler, and shader_table.c, their modules in this
# order. Returns the generated sources.
function(rf_shader_table out_sources)
    get_property(names GLOBAL PROPERTY RF_SHADERS)
    get_property(left_out GLOBAL PROPERTY RF_SHADERS_LEFT_OUT)
    list(SORT names)
    set(ids "")
    set(includes "")
    set(rows "")
    set(headers "")
    foreach(name IN LISTS names)
        string(APPEND ids "    RF_SHADER_${name},\n")
        string(APPEND includes "#include \"${name}.h\"\n")
        string(APPEND rows "    {\"${name}\", rf_spv_${name}, sizeof(rf_spv_${name})},\n")
        list(APPEND headers ${rf_shader_dir}/${name}.h)
    endforeach()
    list(GET names -1 last)
    string(APPEND ids "    RF_SHADER_LAST = RF_SHADER_${last},\n")
    foreach(name IN LISTS left_out)
        string(APPEND ids "    RF_SHADER_${name}, /* left out */\n")
    endforeach()
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/shaders/shader_ids.h @ONLY CONTENT
"/* Generated: every build of a shader, sorted by name; then those that were left out. */
enum rf_shader_id {
    RF_SHADER_NONE,
${ids}};
")
    set(table ${PROJECT_BINARY_DIR}/shaders/shader_table.c)
    file(CONFIGURE OUTPUT ${table} @ONLY CONTENT
"/* Generated: the modules, in the order of shader_ids.h. */
#include \"ops/shader_table.h\"
${includes}
const struct rf_shader rf_shader_table[] = {
${rows}};
const size_t rf_shader_count = sizeof(rf_shader_table) / sizeof(rf_shader_table[0]);
")
    set_source_files_properties(${table} PROPERTIES OBJECT_DEPENDS "${headers}")
    set_source_files_properties(${table} PROPERTIES GENERATED TRUE)
    if(NOT RF_SHADERS_FROM)
        set_source_files_properties(${headers} PROPERTIES GENERATED TRUE)
    endif()
    set(${out_sources} ${table} ${headers} PARENT_SCOPE)
endfunction()
