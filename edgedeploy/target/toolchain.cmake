# Written by `edgedeploy toolchains cmake {{ label }}`: {{ c.toolchain }} for {{ board.triple }}.
#   cmake -B build -DCMAKE_TOOLCHAIN_FILE=THIS_FILE

{% if cxx.first_use %}
if(NOT DEFINED EDGEDEPLOY_TOOLCHAIN)  # once for a build folder
  set(EDGEDEPLOY_TOOLCHAIN {{ cxx.toolchain }} CACHE INTERNAL "")
  message(STATUS "{{ cxx.toolchain }} for {{ board.triple }}: {{ cxx.first_use }}")
endif()

{% endif %}
{% if not board.runs_here %}
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {{ board.architecture }})

{% endif %}
set(CMAKE_C_COMPILER {{ compiler(c) }})
set(CMAKE_CXX_COMPILER {{ compiler(cxx) }})
{% if cxx.static_options %}
# The board need not have the compiler's own libraries.
set(CMAKE_EXE_LINKER_FLAGS_INIT {{ quoted(join(cxx.static_options)) }})
{% endif %}
{% if archiver %}
# CMake's variables for an archiver take one word only, those for its calls any number.
foreach(language C CXX)
  set(CMAKE_${language}_ARCHIVE_CREATE {{ quoted(join(archiver) ~ " qc <TARGET> <OBJECTS>") }})
  set(CMAKE_${language}_ARCHIVE_APPEND {{ quoted(join(archiver) ~ " q <TARGET> <OBJECTS>") }})
  set(CMAKE_${language}_ARCHIVE_FINISH {{ quoted(join(archiver) ~ " s <TARGET>") }})
endforeach()
{% endif %}
# Not every linker writes files of what it read, which CMake 3.27 and later ask it for.
set(CMAKE_LINK_DEPENDS_USE_LINKER FALSE)
{% if not board.runs_here %}

{% if board.sysroot %}
set(CMAKE_FIND_ROOT_PATH {{ quoted(board.sysroot | string) }})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
{% else %}
# This machine's libraries are not the board's: say where those are with CMAKE_PREFIX_PATH.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH FALSE)
{% endif %}
{% endif %}
