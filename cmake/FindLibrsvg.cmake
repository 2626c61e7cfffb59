# Finds librsvg (Debian: librsvg2-dev) by pkg-config and gives the imported target Librsvg::librsvg.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(Librsvg QUIET IMPORTED_TARGET librsvg-2.0)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Librsvg REQUIRED_VARS Librsvg_LINK_LIBRARIES VERSION_VAR Librsvg_VERSION)

if(Librsvg_FOUND AND NOT TARGET Librsvg::librsvg)
  add_library(Librsvg::librsvg INTERFACE IMPORTED)
  target_link_libraries(Librsvg::librsvg INTERFACE PkgConfig::Librsvg)
endif()
