# rf_shader(NAME SOURCE [DEFINES A=1 ...] [OPERAND f16|bf16] [TARGET vulkan1.3]): compiles shaders/SOURCE
# to SPIR-V in the build tree and embeds it in the library under NAME. Nothing generated is committed.
# Never -O: drivers optimise, and Debian 12's spirv-opt rejects newer opcodes. With OPERAND the module
# has markers (shaders/cooperative.glsl), which a small program of the build replaces; matrix operands
# are then of this type.
find_program(RF_GLSLANG glslangValidator REQUIRED)
add_executable(spirv_markers ${PROJECT_SOURCE_DIR}/cmake/spirv_markers.c
                             ${PROJECT_SOURCE_DIR}/cmake/spirv_markers_main.c)

# Matrix units by subgroups are built by any compiler (OPERAND below). By whole workgroups only by one
# that knows these extensions: RF_WORKGROUP_TYPES lists the operands' types for which it does.
function(rf_compiles variable text)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/shaders/probe.comp @ONLY CONTENT "${text}")
    execute_process(COMMAND ${RF_GLSLANG} -V --target-env vulkan1.3
                            -o ${PROJECT_BINARY_DIR}/shaders/probe.spv
                            ${PROJECT_BINARY_DIR}/shaders/probe.comp
                    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    set(${variable} ${status} PARENT_SCOPE)
endfunction()
set(RF_WORKGROUP_TYPES "")
foreach(type f16 bf16)
    set(extension_f16 GL_EXT_shader_explicit_arithmetic_types_float16)
    set(extension_bf16 GL_EXT_bfloat16)
    set(element_f16 float16_t)
    set(element_bf16 bfloat16_t)
    rf_compiles(status "#version 450
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
    if(status EQUAL 0)
        list(APPEND RF_WORKGROUP_TYPES ${type})
    endif()
endforeach()
execute_process(COMMAND ${RF_GLSLANG} --version OUTPUT_VARIABLE RF_GLSLANG_VERSION)
string(REGEX MATCH "[0-9]+:[0-9.]+" RF_GLSLANG_VERSION "${RF_GLSLANG_VERSION}")
message(STATUS "Matrix units by subgroups: f16 bf16")
if(RF_WORKGROUP_TYPES)
    string(REPLACE ";" " " types "${RF_WORKGROUP_TYPES}")
    message(STATUS "Matrix units by workgroups: ${types}")
else()
    message(STATUS "Matrix units by workgroups: not built, since glslangValidator "
                   "${RF_GLSLANG_VERSION} does not know GL_NV_cooperative_matrix2 (16 does)")
endif()

define_property(GLOBAL PROPERTY RF_SHADERS)
set_property(GLOBAL PROPERTY RF_SHADERS "")
set_property(GLOBAL PROPERTY RF_SHADERS_LEFT_OUT "")

# A build that this compiler cannot make. C may name it; rf_job_built says no.
function(rf_shader_left_out name)
    set_property(GLOBAL APPEND PROPERTY RF_SHADERS_LEFT_OUT ${name})
endfunction()

function(rf_shader name source)
    cmake_parse_arguments(S "" "OPERAND;TARGET" "DEFINES" ${ARGN})
    if(NOT S_TARGET)
        set(S_TARGET vulkan1.2)
    endif()
    list(TRANSFORM S_DEFINES PREPEND -D)
    set(out ${PROJECT_BINARY_DIR}/shaders/${name}.h)
    file(GLOB includes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/*.glsl
         ${PROJECT_SOURCE_DIR}/shaders/*.h ${PROJECT_SOURCE_DIR}/shaders/push/*.h)
    set(compile ${RF_GLSLANG} -V --quiet --target-env ${S_TARGET} -I${PROJECT_SOURCE_DIR}/shaders
                ${S_DEFINES} ${PROJECT_SOURCE_DIR}/shaders/${source})
    if(S_OPERAND)
        set(marked ${PROJECT_BINARY_DIR}/shaders/${name}.marked.spv)
        set(commands COMMAND ${compile} -o ${marked}
                     COMMAND spirv_markers ${S_OPERAND} rf_spv_${name} ${marked} ${out})
    else()
        set(commands COMMAND ${compile} --vn rf_spv_${name} -o ${out})
    endif()
    add_custom_command(OUTPUT ${out} ${commands}
        DEPENDS ${PROJECT_SOURCE_DIR}/shaders/${source} ${includes}
        COMMENT "SPIR-V ${name}" VERBATIM)
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
        list(APPEND headers ${PROJECT_BINARY_DIR}/shaders/${name}.h)
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
    set_source_files_properties(${table} ${headers} PROPERTIES GENERATED TRUE)
    set(${out_sources} ${table} ${headers} PARENT_SCOPE)
endfunction()
