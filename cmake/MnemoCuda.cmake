# The CUDA language, for MNEMO_CUDA.

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "What the CUDA kernels are compiled for")
endif()
# The runtime that LibTorch itself is linked to comes with LibTorch::torch; a second one would have its own view of the device.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13 OR CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
  message(FATAL_ERROR "MNEMO_CUDA needs nvcc 13, the major version that LibTorch is built with; found ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know it
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
