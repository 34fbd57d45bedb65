"""The CMake package of an exported kernel: a static library that other projects find."""

from __future__ import annotations

from collections.abc import Mapping

from selector.runtime.cpu_builds import FLAGS, PORTABLE, TILE_FLAGS


def cmake_lists(name: str, built: Mapping[str, str], threads: bool, gpu: bool, mark: str) -> str:
    """``CMakeLists.txt``. ``built``: sources for the CPU, and the tiles of each."""
    upper = name.upper()
    options = {
        "hardware": " ".join((PORTABLE, *TILE_FLAGS)),
        "software": f"${{{upper}_CPU_FLAGS}}",
        "none": f"${{{upper}_CPU_FLAGS}}",
    }
    flags = [*(f for f in FLAGS if f != "-shared"), *(["-fopenmp"] if threads else [])]
    sources = "\n".join(
        f"set_source_files_properties({path} PROPERTIES COMPILE_OPTIONS\n"
        f'    "{";".join(flags)};{options[tiles].replace(" ", ";")}")'
        for path, tiles in built.items()
    )
    setting = (
        f"set({upper}_CPU_FLAGS -march=native CACHE STRING\n"
        f'    "Flags of {name} on CPUs without tile registers")\n'
        if built
        else ""
    )
    links = ["${CMAKE_DL_LIBS}"] * gpu + ["m"] * bool(built) + ["-fopenmp"] * threads
    linked = f"target_link_libraries({name} PRIVATE {' '.join(links)})\n" if links else ""
    return f"""# {mark}
#
# cmake -S . -B build -DCMAKE_INSTALL_PREFIX=... && cmake --build build --target install
# Then, elsewhere: find_package({name}) and target_link_libraries(... {name}::{name}).
cmake_minimum_required(VERSION 3.16)
project({name} LANGUAGES{" C" if built else ""} CXX)
include(GNUInstallDirs)

add_library({name} STATIC {" ".join((f"{name}.cpp", *built))})
add_library({name}::{name} ALIAS {name})
target_compile_features({name} PRIVATE cxx_std_17)
set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
{setting}{sources}
target_include_directories({name} PUBLIC
  $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}>
  $<INSTALL_INTERFACE:${{CMAKE_INSTALL_INCLUDEDIR}}>)
{linked}
install(TARGETS {name} EXPORT {name} ARCHIVE DESTINATION ${{CMAKE_INSTALL_LIBDIR}})
install(FILES {name}.h tensor_selector.h DESTINATION ${{CMAKE_INSTALL_INCLUDEDIR}})
install(EXPORT {name} NAMESPACE {name}:: FILE {name}Config.cmake
  DESTINATION ${{CMAKE_INSTALL_LIBDIR}}/cmake/{name})
"""
