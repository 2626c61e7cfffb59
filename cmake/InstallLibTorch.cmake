# Run by cmake --install: copies the libraries of the torch wheel and of its companions that `program` loads into the installed torch_dir.
# All lie in one folder then, where the program's run path, which those of libraries come after, finds them.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${program}" RESOLVED_DEPENDENCIES_VAR loaded UNRESOLVED_DEPENDENCIES_VAR missing DIRECTORIES "${torch_lib}")
if(missing)
  message(FATAL_ERROR "mnemo needs libraries that were not found: ${missing}")
endif()
file(REAL_PATH "${torch_lib}/../.." wheels)
foreach(library IN LISTS loaded)
  file(REAL_PATH "${library}" place)
  string(FIND "${place}" "${wheels}/" at)
  if(at EQUAL 0)
    file(INSTALL "${library}" DESTINATION "${CMAKE_INSTALL_PREFIX}/${torch_dir}" FOLLOW_SYMLINK_CHAIN)
  endif()
endforeach()
