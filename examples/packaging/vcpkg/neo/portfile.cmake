# An overlay port over the tree that it lies in:
#   vcpkg install neo --overlay-ports=neo/examples/packaging/vcpkg
get_filename_component(neo_tree "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${neo_tree}/examples/packaging")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/neo)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug") # headers have no variants
vcpkg_install_copyright(FILE_LIST "${neo_tree}/LICENSE")
