# The places of `cmake --install`: headers, both libraries, the program, and the two ways to find
# them: find_package(ringforge) and pkg-config.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ringforge
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set_target_properties(ringforge_static PROPERTIES EXPORT_NAME static)
install(TARGETS ringforge ringforge_static EXPORT ringforge-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ringforge_program)
    install(TARGETS ringforge_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(RF_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ringforge)
install(EXPORT ringforge-targets NAMESPACE ringforge:: DESTINATION ${RF_PACKAGE_DIR})
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/ringforge-config.cmake @ONLY CONTENT
"# Targets: ringforge::ringforge (shared) and ringforge::static.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
# The static library passes its link dependencies on to its users.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_check_modules(SODIUM QUIET IMPORTED_TARGET libsodium)
    pkg_check_modules(CJSON QUIET IMPORTED_TARGET libcjson)
    pkg_check_modules(PCRE2 QUIET IMPORTED_TARGET libpcre2-8)
    pkg_check_modules(UTF8PROC QUIET IMPORTED_TARGET libutf8proc)
endif()
include(\${CMAKE_CURRENT_LIST_DIR}/ringforge-targets.cmake)
")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/ringforge-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/ringforge-config.cmake
              ${PROJECT_BINARY_DIR}/package/ringforge-config-version.cmake
        DESTINATION ${RF_PACKAGE_DIR})

# Paths relative to the .pc file, so that an installed tree may be moved. If no loader looks for
# libraries (~/.local, /opt/...) a program needs their folder inside; the prefix is known when it is
# installed.
file(RELATIVE_PATH RF_PC_INCLUDE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
     ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/ringforge.pc.in @ONLY CONTENT
"libdir=\${pcfiledir}/..
includedir=\${pcfiledir}/@RF_PC_INCLUDE@

Name: ringforge
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I\${includedir}
Libs: -L\${libdir} -lringforge%RPATH%
Libs.private: -lpthread -lm -ldl
Requires.private: libsodium libcjson libpcre2-8 libutf8proc
")
install(CODE "
    file(READ \"${PROJECT_BINARY_DIR}/package/ringforge.pc.in\" text)
    if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?/?$\")
        string(REPLACE \"%RPATH%\" \"\" text \"\${text}\")
    else()
        string(REPLACE \"%RPATH%\" \" -Wl,-rpath,\\\${libdir}\" text \"\${text}\")
    endif()
    file(WRITE \"${PROJECT_BINARY_DIR}/package/ringforge.pc\" \"\${text}\")
")
install(FILES ${PROJECT_BINARY_DIR}/package/ringforge.pc # as just written
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
