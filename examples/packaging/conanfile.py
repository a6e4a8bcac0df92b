# A Conan 2 recipe: `conan create examples/packaging`, then `neo/0.1.0` in your requirements and,
# with CMakeDeps, find_package(neo) and neo::neo. Keep it where it is: it takes the headers from
# ../..
import os
import re

from conan import ConanFile
from conan.tools.files import copy, load


class Neo(ConanFile):
    name = "neo"
    description = "training loops for recommendation models and other large models, header-only C"
    license = "MIT"
    package_type = "header-library"
    settings = "os"
    no_copy_source = True

    @property
    def tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self.tree, "neo.h"))
        numbers = re.findall(r"#define NEO_VERSION_(?:MAJOR|MINOR) (\d+)", text)
        self.version = ".".join(numbers + ["0"])

    def export_sources(self):
        for pattern in "neo*.h", "neo_cuda.cuh", "LICENSE":
            copy(self, pattern, self.tree, self.export_sources_folder, excludes="*/*")

    def package(self):
        include = os.path.join(self.package_folder, "include")
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "neo*.h", self.source_folder, include)
        copy(self, "neo_cuda.cuh", self.source_folder, include)

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        if self.settings.os != "Windows":
            self.cpp_info.system_libs = ["m", "pthread"]
