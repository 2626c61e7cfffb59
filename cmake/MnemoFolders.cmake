# One static library for each folder of src/, and the order of the folders.

# mnemo_folder(NAME [AFTER folder...] [LINK target...])
# makes the library mnemo_NAME of src/NAME/*.cpp, which may use the folders given after AFTER (and what they use).
# A folder that does not exist yet is skipped; one without sources is a header-only library.
function(mnemo_folder name)
  cmake_parse_arguments(arg "" "" "AFTER;LINK" ${ARGN})
  if(NOT IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/cli/main\\.cpp$")
  set(target mnemo_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    if(NOT name STREQUAL "base")  # base does not know tensors
      target_precompile_headers(${target} REUSE_FROM mnemo_pch)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(mnemo::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(${target} ${scope} mnemo_common ${arg_LINK})
  foreach(lower IN LISTS arg_AFTER)
    if(TARGET mnemo_${lower})
      target_link_libraries(${target} ${scope} mnemo_${lower})
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY MNEMO_FOLDER_TARGETS ${target})
  set_property(GLOBAL APPEND PROPERTY MNEMO_FOLDERS ${name})
endfunction()

# mnemo_precompiled_header(NAME LINK HEADER...) makes a target whose only use is to carry a precompiled header, which
# others share with target_precompile_headers(other REUSE_FROM NAME).
function(mnemo_precompiled_header name link)
  set(source "${PROJECT_BINARY_DIR}/generated/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Carries the precompiled header of ${name}.\n")
  add_library(${name} OBJECT "${source}")
  target_link_libraries(${name} PRIVATE ${link})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
