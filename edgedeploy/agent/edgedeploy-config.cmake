# edgedeploy::edgedeploy is the shared library, for any compiler. edgedeploy::static is the static one, for programs
# that zig links: it needs zig's C++ library, and GNU's in the same program would clash with that. `edgedeploy
# toolchains cmake BOARD` writes a toolchain file with zig.
if(NOT TARGET edgedeploy::edgedeploy)
  get_filename_component(_edgedeploy "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(edgedeploy::edgedeploy SHARED IMPORTED)
  set_target_properties(edgedeploy::edgedeploy PROPERTIES
    IMPORTED_LOCATION "${_edgedeploy}/lib/{{ shared }}" IMPORTED_SONAME {{ shared }}
    INTERFACE_INCLUDE_DIRECTORIES "${_edgedeploy}/include")
  add_library(edgedeploy::static STATIC IMPORTED)
  set_target_properties(edgedeploy::static PROPERTIES
    IMPORTED_LOCATION "${_edgedeploy}/lib/{{ static }}" IMPORTED_LINK_INTERFACE_LANGUAGES CXX
    INTERFACE_INCLUDE_DIRECTORIES "${_edgedeploy}/include" INTERFACE_LINK_LIBRARIES "dl;pthread;m")
  unset(_edgedeploy)
endif()
