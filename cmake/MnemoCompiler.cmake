# Compiler settings of every target of this project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# NDEBUG in every build: without it LibTorch's headers read members that LibTorch, compiled with it, never set (at::RecordFunction).
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -DNDEBUG -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_DEV "-O0 -DNDEBUG")  # for the shortest way from an edit to its test
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -DNDEBUG -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")

# One set of flags for libraries and programs alike, or they could not share a precompiled header.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fPIC;-Wall;-Wextra>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>")
if(MNEMO_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of overlapping memcpy inside std::string operator+ (GCC bug 105651).
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>")
  # at::parallel_for is a template: without this its loops run on one thread. They run on the threads of LibTorch's own libgomp
  # (FindLibTorch.cmake). Clang has another runtime, whose threads LibTorch would not know of: one thread there.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>")
endif()

# Links in a fraction of the time, for GCC knows it from version 12 on.
find_program(MOLD_PROGRAM mold)
mark_as_advanced(MOLD_PROGRAM)
if(MOLD_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT MNEMO_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()

if(MNEMO_SANITIZE)
  # LibTorch is built without type information for some classes: no vptr check. With sanitizers GCC 12 takes an empty std::optional of LibTorch's
  # for one that is read (GCC bug 80635); the release build keeps that warning.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined -fno-sanitize=vptr)
endif()
if(MNEMO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MNEMO_FUZZ needs clang (libFuzzer); found ${CMAKE_CXX_COMPILER_ID}. Use `cmake --preset fuzz`.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache gives up on every source that uses a precompiled header; with the dependency file it
  # need not preprocess first. Times of includes count: what is edited while it is compiled must not be kept.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  else()
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()
