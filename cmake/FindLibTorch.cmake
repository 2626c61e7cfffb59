# Finds LibTorch inside the folder of a PyTorch wheel (…/site-packages/torch or the `torch` folder of `pip install --target`).
#
#   MNEMO_TORCH_DIR   the folder that holds include/ and lib/, or include/ and the libraries (a cache variable; default <source>/.deps/torch/torch, with MNEMO_CUDA
#                     <source>/.deps/torch-cuda/torch)
#   MNEMO_CUDA        whether libtorch_cuda is wanted too; the nvidia packages are then next to the torch folder
#
# Gives the imported target LibTorch::torch: headers (as system headers), libtorch_cpu and libc10 with their run path, the OpenMP runtime beside them,
# and LibTorch_VERSION. The include folder also holds the fmt headers that LibTorch carries. The wheel's own CMake package
# insists on a CUDA toolkit, and its libtorch.so needs every CUDA library; neither is used here.

if(MNEMO_CUDA)
  set(default_torch_dir "${CMAKE_SOURCE_DIR}/.deps/torch-cuda/torch")
else()
  set(default_torch_dir "${CMAKE_SOURCE_DIR}/.deps/torch/torch")
endif()
if(NOT DEFINED MNEMO_TORCH_DIR)  # mnemoConfig.cmake sets it for itself
  set(MNEMO_TORCH_DIR "${default_torch_dir}" CACHE PATH "Folder of the torch wheel (holds include/ and lib/)")
endif()

# Every path is looked up again at each configuration: a changed MNEMO_TORCH_DIR must not leave an old library behind.
unset(LibTorch_INCLUDE_DIR CACHE)
unset(LibTorch_CPU_LIBRARY CACHE)
unset(LibTorch_C10_LIBRARY CACHE)
unset(LibTorch_OPENMP_LIBRARY CACHE)
unset(LibTorch_CUDA_LIBRARY CACHE)
unset(LibTorch_C10_CUDA_LIBRARY CACHE)
unset(LibTorch_CUDART_LIBRARY CACHE)
find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/types.h PATHS "${MNEMO_TORCH_DIR}/include" NO_DEFAULT_PATH)
set(torch_lib_dir "${MNEMO_TORCH_DIR}/lib")
if(NOT EXISTS "${torch_lib_dir}")  # as cmake --install lays it out
  set(torch_lib_dir "${MNEMO_TORCH_DIR}")
endif()
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${torch_lib_dir}" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS "${torch_lib_dir}" NO_DEFAULT_PATH)
# The OpenMP runtime that the wheel brings along (older ones have a checksum in its name): one for LibTorch and for us.
file(GLOB openmp_names RELATIVE "${torch_lib_dir}" "${torch_lib_dir}/libgomp*.so*")
find_library(LibTorch_OPENMP_LIBRARY NAMES ${openmp_names} PATHS "${torch_lib_dir}" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_OPENMP_LIBRARY)
set(cuda_parts "")
if(MNEMO_CUDA)
  find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS "${MNEMO_TORCH_DIR}/lib" NO_DEFAULT_PATH)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS "${MNEMO_TORCH_DIR}/lib" NO_DEFAULT_PATH)
  find_library(LibTorch_CUDART_LIBRARY libcudart.so.13 PATHS "${MNEMO_TORCH_DIR}/../nvidia/cu13/lib" NO_DEFAULT_PATH)
  set(cuda_parts LibTorch_CUDA_LIBRARY LibTorch_C10_CUDA_LIBRARY LibTorch_CUDART_LIBRARY)
  mark_as_advanced(${cuda_parts})
endif()

if(LibTorch_INCLUDE_DIR)
  # torch/version.h in older wheels, torch/headeronly/version.h in newer ones.
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${LibTorch_INCLUDE_DIR}/${header}")
      file(STRINGS "${LibTorch_INCLUDE_DIR}/${header}" version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      foreach(part MAJOR MINOR PATCH)
        if("${version_lines}" MATCHES "TORCH_VERSION_${part} ([0-9]+)")
          list(APPEND LibTorch_VERSION "${CMAKE_MATCH_1}")
        endif()
      endforeach()
      list(JOIN LibTorch_VERSION "." LibTorch_VERSION)
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_OPENMP_LIBRARY LibTorch_INCLUDE_DIR ${cuda_parts}
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "No LibTorch in MNEMO_TORCH_DIR=${MNEMO_TORCH_DIR}. Run scripts/setup (with MNEMO_CUDA: scripts/cuda), or set MNEMO_TORCH_DIR to the `torch` folder of an installed torch wheel")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  set(LibTorch_INCLUDE_DIRS "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")

  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")

  add_library(LibTorch::openmp SHARED IMPORTED)
  set_target_properties(LibTorch::openmp PROPERTIES IMPORTED_LOCATION "${LibTorch_OPENMP_LIBRARY}")

  add_library(LibTorch::torch_cpu SHARED IMPORTED)
  set_target_properties(LibTorch::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)

  add_library(LibTorch::torch INTERFACE IMPORTED)
  set_target_properties(LibTorch::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10;LibTorch::openmp")

  if(MNEMO_CUDA)
    foreach(part IN ITEMS cudart:CUDART c10_cuda:C10_CUDA)
      string(REPLACE ":" ";" part "${part}")
      list(GET part 0 name)
      list(GET part 1 variable)
      add_library(LibTorch::${name} SHARED IMPORTED)
      set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${LibTorch_${variable}_LIBRARY}")
    endforeach()
    # Nothing calls into libtorch_cuda: it makes itself known when it is loaded.
    set_property(TARGET LibTorch::torch APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")
    set_property(TARGET LibTorch::torch APPEND PROPERTY INTERFACE_LINK_LIBRARIES
      "${LibTorch_CUDA_LIBRARY}" LibTorch::c10_cuda LibTorch::cudart)
  endif()
endif()
