#!/bin/sh
# packaging.sh: programs find neo by CMake (installed, and as a part of their own tree), by
# pkg-config and by Conan, build and run. The port for vcpkg is not run: its version is compared.

B=${B:-build}
CC=${CC:-cc}
. tests/harness.sh
W=$(mkdir -p "$B" && cd "$B" && pwd)/tmp/packaging
tree=$(pwd)
rm -rf "$W"
mkdir -p "$W/installed" "$W/inside" "$W/conan"

version=$(sed -n 's/^#define NEO_VERSION_M[AI][JN]OR //p' neo.h | tr '\n' .)0
same "version of vcpkg's port" "$version" \
    "$(sed -n 's/.*"version": "\(.*\)".*/\1/p' examples/packaging/vcpkg/neo/vcpkg.json)"

# What bags.c says that it prints.
state=$(sed -n 's/.*`state \([0-9a-f]*\)`.*/\1/p' examples/bags.c)
printf '#define NEO_%s\n' NO_SIMD IMPLEMENTATION >"$W/neo.c" # without vectors: it compiles sooner
echo '#include <neo_state.h>' >>"$W/neo.c"
# consumer FOLDER LINES: a project whose CMakeLists.txt finds neo by LINES.
consumer() {
    cat >"$W/$1/CMakeLists.txt" <<END_OF_LISTS
cmake_minimum_required(VERSION 3.15)
project(consumer C)
$2
add_executable(bags $tree/examples/bags.c $W/neo.c)
target_link_libraries(bags neo::neo)
END_OF_LISTS
}
# built LABEL FOLDER CMAKE_ARGUMENT...: the project there builds, and its program runs.
built() {
    way=$1 folder=$W/$2
    shift 2
    try "$way: configures" cmake -S "$folder" -B "$folder/build" "$@"
    try "$way: builds" cmake --build "$folder/build"
    same "$way: state" "$(state_of "$folder/build/bags")" "$state"
}
if have cmake; then
    try "cmake configures neo" cmake -S examples/packaging -B "$W/neo"
    try "cmake installs neo" cmake --install "$W/neo" --prefix "$W/prefix"
    consumer installed "find_package(neo ${version%.*} REQUIRED)"
    built "installed" installed -DCMAKE_PREFIX_PATH="$W/prefix"
    consumer inside "add_subdirectory($tree/examples/packaging neo)"
    built "add_subdirectory" inside
    if have pkg-config; then
        PKG_CONFIG_PATH=$W/prefix/share/pkgconfig
        export PKG_CONFIG_PATH
        same "pkg-config's version" "$(pkg-config --modversion neo)" "$version"
        try "pkg-config: builds" $CC -o "$W/bags" examples/bags.c "$W/neo.c" \
            $(pkg-config --cflags --libs neo)
        same "pkg-config: state" "$(state_of "$W/bags")" "$state"
    else
        skip "pkg-config: not installed"
    fi
else
    skip "cmake: not installed"
fi
if have conan && have cmake; then
    CONAN_HOME=$W/conan/home
    export CONAN_HOME
    try "conan: a profile" conan profile detect
    try "conan create" conan create examples/packaging
    consumer conan "find_package(neo REQUIRED)"
    try "conan install" conan install --requires "neo/$version" -g CMakeDeps -g CMakeToolchain \
        --output-folder "$W/conan/found"
    built "conan" conan -DCMAKE_TOOLCHAIN_FILE="$W/conan/found/conan_toolchain.cmake" \
        -DCMAKE_BUILD_TYPE=Release
else
    skip "conan: not installed"
fi
finish build/packaging
