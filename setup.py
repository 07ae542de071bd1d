"""The extension modules; everything else stands in pyproject.toml.

Libraries are found by pkg-config, or below DATAGO_DEPS_PREFIX where that is set (static ones: tools/build_deps.sh). DATAGO_ABI3=1
builds for the stable ABI, DATAGO_SANITIZE=address|thread for the sanitizers, DATAGO_COVERAGE=1 counts for gcov which lines run,
DATAGO_WERROR=1 turns warnings into errors.
"""

import glob
import os
import shlex
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# library: (pkg-config name, oldest version that will do, what Debian and Homebrew call it)
LIBRARIES = {
    "libjpeg-turbo": ("libjpeg", "2.0", "libjpeg62-turbo-dev (Debian), jpeg-turbo (Homebrew)"),
    "libwebp": ("libwebp", "0.6", "libwebp-dev (Debian), webp (Homebrew)"),
    "zlib": ("zlib", "1.2.11", "zlib1g-dev (Debian), zlib (Homebrew)"),
    "libdeflate": ("libdeflate", "1.8", "libdeflate-dev (Debian), libdeflate (Homebrew)"),
    "libcurl": ("libcurl", "7.68", "libcurl4-openssl-dev (Debian), curl (Homebrew)"),
}
# module: those of LIBRARIES that it is linked to
NEEDS = {
    "datago.engine._pixels": ["libjpeg-turbo", "libwebp", "zlib", "libdeflate"],
    "datago.net._transfers": ["libcurl"],
}

# One wheel for CPython 3.11 and later, as far as they have the GIL.
ABI3 = os.environ.get("DATAGO_ABI3") == "1" and not sysconfig.get_config_var("Py_GIL_DISABLED")
# PyMem_Raw* are in the stable ABI from 3.13 on. Until tracemalloc looks, they are the C library's.
ABI3_MACROS = {"Py_LIMITED_API": "0x030B0000", "PyMem_RawCalloc": "calloc", "PyMem_RawRealloc": "realloc", "PyMem_RawFree": "free"}


def pkg_config(*arguments):
    program = os.environ.get("PKG_CONFIG", "pkg-config")
    try:
        return subprocess.run([program, *arguments], capture_output=True, text=True, env=environment())
    except FileNotFoundError:
        sys.exit(f"datago needs {program} to find its libraries: install pkg-config.")


def environment():
    prefix = os.environ.get("DATAGO_DEPS_PREFIX")
    if not prefix:
        return dict(os.environ)
    path = os.pathsep.join(f"{prefix}/{lib}/pkgconfig" for lib in ("lib", "lib64"))
    return dict(os.environ, PKG_CONFIG_PATH=path, PKG_CONFIG_LIBDIR=path)


def check_libraries():
    """Ends the build with one sentence if one of LIBRARIES is missing."""
    for library, (name, oldest, packages) in LIBRARIES.items():
        if pkg_config(f"--atleast-version={oldest}", name).returncode:
            where = os.environ.get("DATAGO_DEPS_PREFIX") or "this system"
            sys.exit(f"datago needs {library} {oldest} or later, which pkg-config does not find on {where}: install {packages}.")


def flags_for(libraries):
    """Compiler and linker flags for some of LIBRARIES."""
    if not libraries:
        return [], []
    names = [LIBRARIES[library][0] for library in libraries]
    static = ["--static"] if os.environ.get("DATAGO_DEPS_PREFIX") else []
    found = [pkg_config(flag, *static, *names) for flag in ("--cflags", "--libs")]
    if any(done.returncode for done in found):
        sys.exit(found[-1].stderr)  # a library that one of them needs in turn
    return tuple(shlex.split(done.stdout) for done in found)


class Build(build_ext):
    """Looks for the libraries when something is compiled, so that metadata needs neither them nor a compiler."""

    def finalize_options(self):
        super().finalize_options()
        if os.environ.get("DATAGO_COVERAGE"):
            self.cython_line_directives = True  # lines are then counted where they stand in the .pyx, not in the C that Cython makes of it

    def build_extensions(self):
        check_libraries()
        sanitize = os.environ.get("DATAGO_SANITIZE")
        own = ["-std=gnu11", "-O3", "-g1", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wno-unused-function"]
        own.append("-Werror=implicit-function-declaration")  # which would cut the pointer that comes back in half
        if ABI3:
            own += ["-include", "stdlib.h"]
        link = ["-lm"]
        if sanitize:
            kinds = {"address": "address,undefined", "thread": "thread"}[sanitize]
            own += ["-O1", "-fno-omit-frame-pointer", f"-fsanitize={kinds}"]
            link.append(f"-fsanitize={kinds}")
        if os.environ.get("DATAGO_COVERAGE"):
            # src_c is compiled for several modules: with one seed their counts belong to the same notes.
            own += ["-O1", "--coverage", "-fprofile-update=atomic", "-frandom-seed=datago"]
            link.append("--coverage")
        if os.environ.get("DATAGO_WERROR"):
            own.append("-Werror")
        if sys.platform == "linux":
            link += ["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections"]
        elif sys.platform == "darwin":
            link += ["-Wl,-exported_symbol,_PyInit_*", "-Wl,-dead_strip"]
        for extension in self.extensions:
            # What is linked to a module is loaded with it: `import datago` shall not load a network library.
            compile_flags, libraries = flags_for(NEEDS.get(extension.name, ()))
            extension.extra_compile_args = own + compile_flags
            extension.extra_link_args = libraries + link
        super().build_extensions()


def module(name, sources=()):
    return Extension(
        f"datago.{name}",
        [f"datago/{name.replace('.', '/')}.pyx", *sources],
        include_dirs=["src_c"],
        define_macros=[("_GNU_SOURCE", None), *(ABI3_MACROS.items() if ABI3 else ())],
        py_limited_api=ABI3,
        depends=glob.glob("src_c/*.h") + glob.glob("datago/**/*.pxd", recursive=True),
    )


setup(
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
    ext_modules=[
        module("engine._pixels", sorted(glob.glob("src_c/*.c"))),
        module("engine._ring"),
        module("engine._budget"),
        module("engine._progress"),
        module("engine._item"),
        module("engine._payload"),
        module("engine._sample"),
        module("engine._batch"),
        module("engine._buckets"),
        module("engine._sizes"),
        module("engine._texts"),
        module("engine._options"),
        module("engine._fallback"),
        module("engine._process"),
        module("engine._pool"),
        module("sources._folder"),
        module("sources.webdataset._tar"),
        module("sources.webdataset._tar_walk"),
        module("net._fetch"),
        module("net._hosts"),
        module("net._policy"),
        module("net._queues"),
        module("net._room"),
        module("net._transfers"),
    ],
)
