# rf_shader(NAME SOURCE [DEFINES A=1 ...] [OPERAND f16|bf16]): compiles shaders/SOURCE to SPIR-V in the build tree and embeds it in
# the library under NAME. Nothing generated is committed. Never -O: drivers optimise, and Debian 12's
# spirv-opt rejects newer opcodes. With OPERAND the module has markers (shaders/cooperative.glsl), which
# a small program of the build replaces; matrix operands are then of this type.
find_program(RF_GLSLANG glslangValidator REQUIRED)
add_executable(spirv_markers ${PROJECT_SOURCE_DIR}/cmake/spirv_markers.c
                             ${PROJECT_SOURCE_DIR}/cmake/spirv_markers_main.c)
define_property(GLOBAL PROPERTY RF_SHADERS)
set_property(GLOBAL PROPERTY RF_SHADERS "")

function(rf_shader name source)
    cmake_parse_arguments(S "" "OPERAND" "DEFINES" ${ARGN})
    list(TRANSFORM S_DEFINES PREPEND -D)
    set(out ${PROJECT_BINARY_DIR}/shaders/${name}.h)
    file(GLOB includes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/*.glsl)
    set(compile ${RF_GLSLANG} -V --quiet --target-env vulkan1.2 -I${PROJECT_SOURCE_DIR}/shaders
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

# Writes the table of all shaders, sorted by name, and returns the generated sources.
function(rf_shader_table out_sources)
    get_property(names GLOBAL PROPERTY RF_SHADERS)
    list(SORT names)
    set(includes "")
    set(rows "")
    set(headers "")
    foreach(name IN LISTS names)
        string(APPEND includes "#include \"${name}.h\"\n")
        string(APPEND rows "    {\"${name}\", rf_spv_${name}, sizeof(rf_spv_${name})},\n")
        list(APPEND headers ${PROJECT_BINARY_DIR}/shaders/${name}.h)
    endforeach()
    set(table ${PROJECT_BINARY_DIR}/shaders/shader_table.c)
    file(CONFIGURE OUTPUT ${table} @ONLY CONTENT
"/* Generated: every shader of the library, sorted by name. */
#include <stddef.h>
#include <stdint.h>
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
