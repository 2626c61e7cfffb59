# cmake --install: the program, the headers, the libraries, and the CMake package `mnemo`.
#
# Headers go to include/mnemo/<folder>/x.h; users write <mnemo/core/state.h>. The headers themselves include
# "core/state.h", so include/mnemo is on the include path of the targets as well.
include(GNUInstallDirs)
include(CMakeDependentOption)
include(CMakePackageConfigHelpers)

get_property(folder_targets GLOBAL PROPERTY MNEMO_FOLDER_TARGETS)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/mnemo")

target_include_directories(mnemo_common INTERFACE
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/mnemo>")

# The one target that users link: all folders, highest first.
set(all_folders ${folder_targets})
list(REVERSE all_folders)
list(REMOVE_ITEM all_folders mnemo_cli)
add_library(mnemo_all INTERFACE)
add_library(mnemo::mnemo ALIAS mnemo_all)
set_target_properties(mnemo_all PROPERTIES EXPORT_NAME mnemo)
target_link_libraries(mnemo_all INTERFACE ${all_folders} mnemo_common)
set_target_properties(mnemo_common PROPERTIES EXPORT_NAME common)
set_target_properties(mnemo_fmt PROPERTIES EXPORT_NAME fmt)

# cli is a program, not part of the library.
set(installed_targets mnemo_all mnemo_common mnemo_fmt ${folder_targets})
list(REMOVE_ITEM installed_targets mnemo_cli)

install(TARGETS ${installed_targets} EXPORT mnemoTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/mnemo")
install(EXPORT mnemoTargets NAMESPACE mnemo:: DESTINATION "${package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/mnemo" FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)
install(FILES "${PROJECT_BINARY_DIR}/generated/base/version.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/mnemo/base")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(installed_torch_dir "${CMAKE_INSTALL_LIBDIR}/mnemo/libtorch")
configure_package_config_file(cmake/mnemoConfig.cmake.in "${PROJECT_BINARY_DIR}/mnemoConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/mnemoConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/mnemoConfig.cmake"
  "${PROJECT_BINARY_DIR}/mnemoConfigVersion.cmake"
  cmake/FindLibTorch.cmake
  cmake/FindLibrsvg.cmake
  cmake/FindPcre2.cmake
  cmake/FindSentencePiece.cmake
  cmake/FindUtf8proc.cmake
  cmake/FindZstd.cmake
  DESTINATION "${package_dir}")

# The program, and the files that it needs. With MNEMO_INSTALL_LIBTORCH the tree is complete and may be moved, the package with it; without,
# both find LibTorch where it was at build time.
cmake_dependent_option(MNEMO_INSTALL_LIBTORCH "Install LibTorch's libraries beside the program" ON "NOT MNEMO_CUDA" OFF)
if(MNEMO_INSTALL_LIBTORCH)
  set(torch_dir "${installed_torch_dir}")
  file(RELATIVE_PATH run_path "/${CMAKE_INSTALL_BINDIR}" "/${torch_dir}")
  set(run_path "$ORIGIN/${run_path}")
  # Those that the program loads from there; the others of a wheel are for Python or for devices.
  install(CODE "set(torch_lib [[${MNEMO_TORCH_DIR}/lib]])\nset(torch_dir [[${torch_dir}]])\nset(program [[$<TARGET_FILE:mnemo_whole>]])")
  install(SCRIPT cmake/InstallLibTorch.cmake)
  install(DIRECTORY "${MNEMO_TORCH_DIR}/include/" DESTINATION "${torch_dir}/include")
else()
  set(run_path "${MNEMO_TORCH_DIR}/lib")
  if(MNEMO_CUDA)
    get_filename_component(cudart_dir "${LibTorch_CUDART_LIBRARY}" DIRECTORY)
    list(APPEND run_path "${cudart_dir}")
  endif()
endif()
set_target_properties(mnemo_whole PROPERTIES INSTALL_RPATH "${run_path}")
install(TARGETS mnemo mnemo_whole RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES "${MNEMO_ANSWERS_FILE}" DESTINATION "${CMAKE_INSTALL_DATADIR}/mnemo" RENAME answers)

# Recipes, and the text that the demo reads: ../data beside recipes/, as in the source tree.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/recipes" "${PROJECT_SOURCE_DIR}/data" DESTINATION "${CMAKE_INSTALL_DATADIR}/mnemo")
file(RELATIVE_PATH recipes_from_program "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_DATADIR}/mnemo/recipes")
file(RELATIVE_PATH answers_from_program "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_DATADIR}/mnemo/answers")
target_compile_definitions(mnemo_cli PRIVATE MNEMO_RECIPES="${recipes_from_program}")
target_compile_definitions(mnemo PRIVATE MNEMO_RECIPES="${recipes_from_program}" MNEMO_ANSWERS="${answers_from_program}")

# Shell completion and the manual page, written by the program itself.
set(shell_files "")
foreach(entry IN ITEMS "mnemo.bash=completion bash" "_mnemo=completion zsh" "mnemo.fish=completion fish" "mnemo.1=help man")
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${entry}")
  set(file "${PROJECT_BINARY_DIR}/generated/shell/${CMAKE_MATCH_1}")
  separate_arguments(words UNIX_COMMAND "${CMAKE_MATCH_2}")
  add_custom_command(OUTPUT "${file}" COMMAND mnemo_whole ${words} > "${file}" DEPENDS mnemo_whole VERBATIM)
  list(APPEND shell_files "${file}")
endforeach()
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/generated/shell")
add_custom_target(mnemo_shell ALL DEPENDS ${shell_files})
set(shell_dir "${PROJECT_BINARY_DIR}/generated/shell")
install(FILES "${shell_dir}/mnemo.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME mnemo)
install(FILES "${shell_dir}/_mnemo" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
install(FILES "${shell_dir}/mnemo.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
install(FILES "${shell_dir}/mnemo.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
