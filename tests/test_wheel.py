"""What a wheel holds and does: built from the sdist's contents alone, without a network; repaired; looked through; installed; tried.

It has the system's libraries, which auditwheel brings along, or static ones from DATAGO_DEPS_PREFIX. `make wheel` does the latter,
keeps what is made in DATAGO_DIST and runs all of the tests that cibuildwheel runs. The programs are those of the dependency
group `wheel`.
"""

import ctypes.util
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
from conftest import jpeg
from test_install import ROOT, python, run, sdist  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STATIC, DIST = os.environ.get("DATAGO_DEPS_PREFIX"), os.environ.get("DATAGO_DIST")
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
PATH = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread)|ld-linux-[\w-]+|libc\.musl-\w+)\.so(\.\d)?")


def tool(name, *arguments, **options):
    """The output of a program of the group `wheel`."""
    if not shutil.which(name, path=PATH):
        pytest.skip(f"no {name}: pip install --group wheel")
    return run(name, *arguments, **{"env": {**os.environ, "PATH": PATH}, **options})


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    if sys.platform != "linux":
        pytest.skip("wheels are repaired by auditwheel, on Linux")
    tool("auditwheel", "--version")
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    alone = ["unshare", "-rn"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []
    build = f"import setuptools.build_meta as b; b.build_wheel({str(folder)!r})"
    run(*alone, sys.executable, "-c", build, cwd=next(folder.glob("datago-*/")), env={**os.environ, "DATAGO_ABI3": "1"})
    target = pathlib.Path(DIST or folder / "dist")
    tool("auditwheel", "repair", "--strip", "-z", "9", "-w", target, next(folder.glob("*.whl")))
    if DIST:
        shutil.copy(sdist, DIST)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_what_it_holds(wheel, unpacked):
    assert re.fullmatch(r"datago-[\d.]+-cp311-abi3-m(any|usl)linux_\d+_\d+_\w+\.whl", wheel.name)
    kinds = {path.suffix for path in (unpacked / "datago").rglob("*.*")}
    assert kinds == {".json", ".py", ".pyi", ".so"} | {path.suffix for path in (ROOT / "datago").glob("py.typed")}
    texts = {path.name for path in unpacked.glob("*.dist-info/licenses/licenses/*")}
    assert texts == set(os.listdir(ROOT / "licenses"))
    built = re.findall(r"^([\w-]+) [\w.]+ [0-9a-f]{64} https://", (ROOT / "tools" / "build_deps.sh").read_text(), re.M)
    assert built and all(any(text.startswith(name) for text in texts) for name in built)


def test_nothing_of_it_meets_others(unpacked):
    modules = list(unpacked.glob("datago/*.so"))
    assert len(modules) == len(list((ROOT / "datago").glob("*.pyx")))
    needed = set()
    for module in modules:
        names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", module).splitlines()]
        assert names == [f"PyInit_{module.name.partition('.')[0]}"]
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", module)))
    assert not STATIC or not {name for name in needed if not SYSTEM.fullmatch(name)}


def test_size(wheel):
    if not STATIC:
        pytest.skip("no DATAGO_DEPS_PREFIX: the system's libcurl brings some thirty libraries along")
    assert wheel.stat().st_size < 3_000_000


@pytest.mark.parametrize("command", ["twine check --strict", "check-wheel-contents", "abi3audit --strict --assume-minimum-abi3 3.11"])
def test_checkers(wheel, command):
    brought = ["--ignore", "W009,W010"] if command == "check-wheel-contents" and not STATIC else []  # a folder datago.libs
    tool(*command.split(), *brought, wheel)


def install(interpreter, folder, *what):
    """The programs of a new environment with what pip installs, no byte-code and no pip in it: that is half of the time."""
    run(interpreter, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--python", folder, "install", "-q", "--no-compile", *what)
    return folder / "bin"


@pytest.mark.network
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_installed(wheel, version, tmp_path):
    interpreter = python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    own = install(interpreter, tmp_path / "env", wheel, *CONFIG["test-requires"])
    for name in CONFIG["test-sources"]:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    where = run(own / "python", "-c", "import datago; print(datago.__file__)", cwd=tmp_path)
    assert where.startswith(str(own.parent))
    command = shlex.split(CONFIG["test-command"])
    some = [] if DIST else ["-k", "dataset or formats or sample or https"]
    told = run(own / command[0], *command[1:], *some, cwd=tmp_path, env={**os.environ, "PATH": f"{own}{os.pathsep}{PATH}"})
    assert int(re.search(r"(\d+) passed", told)[1]) > (300 if DIST else 60) and "failed" not in told


BESIDE = """
import importlib, json, sys
names, pictures = json.loads(sys.argv[1]), sys.argv[2:]
found = {name: importlib.import_module(name) for name in names}
import numpy
client = found["datago"].DatagoClient({"source_type": "file", "source_config": {"root_path": pictures[0].rpartition("/")[0]}})
ours = {sample.id: sample.image.to_numpy_array().squeeze() for sample in client}
assert "site-packages" in found["datago"].__file__ and sorted(ours) == sorted(pictures)
for path in pictures:
    theirs = {"PIL.Image": numpy.asarray(found["PIL.Image"].open(path))}
    data, grey = open(path, "rb").read(), ours[path].ndim == 2
    if "turbojpeg" in found:
        turbo = found["turbojpeg"]
        theirs["turbojpeg"] = turbo.TurboJPEG().decode(data, pixel_format=turbo.TJPF_GRAY if grey else turbo.TJPF_RGB).squeeze()
    if "torchvision.io" in found:
        image = found["torchvision.io"].decode_jpeg(found["torch"].frombuffer(bytearray(data), dtype=found["torch"].uint8))
        theirs["torchvision.io"] = image.permute(1, 2, 0).numpy().squeeze()
    for name, pixels in theirs.items():
        assert numpy.array_equal(ours[path], pixels), (name, path)
import datago.net._transfers
print(*found)
"""


@pytest.mark.parametrize("direction", [1, -1])
def test_beside_others(wheel, tmp_path, direction):
    """In one process with the libjpeg-turbos of Pillow, PyTurboJPEG and torchvision, in either order: everybody gets the same pixels."""
    specs = {name: importlib.util.find_spec(name) for name in ("numpy", "PIL", "turbojpeg", "torch", "torchvision")}
    if not ctypes.util.find_library("turbojpeg"):
        specs["turbojpeg"] = None  # PyTurboJPEG is a wrapper, and the library that it wraps is not here
    own = install(sys.executable, tmp_path / "env", "--no-deps", wheel)
    places = {spec.submodule_search_locations[0] if spec.submodule_search_locations else spec.origin for spec in specs.values() if spec}
    packages = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (packages / "theirs.pth").write_text("\n".join(sorted({os.path.dirname(place) for place in places})))
    kinds = [{}, {"subsampling": 0}, {"mode": "L"}, {"progressive": True, "subsampling": 2}, {"quality": 30, "subsampling": 1}]
    (tmp_path / "pictures").mkdir()
    pictures = [tmp_path / "pictures" / f"{i}.jpg" for i in range(len(kinds))]
    for i, (path, kind) in enumerate(zip(pictures, kinds, strict=True)):
        path.write_bytes(jpeg(101 + i, 67, seed=i, **kind))
    named = {"numpy": "datago", "PIL": "PIL.Image", "torchvision": "torchvision.io"}
    names = [named.get(name, name) for name, spec in specs.items() if spec][::direction]
    assert run(own / "python", "-c", BESIDE, json.dumps(names), *pictures, cwd=tmp_path).split() == names


@pytest.mark.parametrize(
    "platform, arch, kinds",
    [
        ("linux", "x86_64", ["manylinux", "musllinux"]),
        ("linux", "aarch64", ["manylinux", "musllinux"]),
        ("macos", "x86_64", ["macosx"]),
        ("macos", "arm64", ["macosx"]),
    ],
)
def test_what_cibuildwheel_builds(platform, arch, kinds):
    told = tool("cibuildwheel", "--print-build-identifiers", "--platform", platform, "--archs", arch, cwd=ROOT)
    versions = ["cp311", "cp312", "cp313", "cp314", "cp314t"]
    assert set(told.split()) == {f"{version}-{kind}_{arch}" for version in versions for kind in kinds}


def test_workflows():
    files = list((ROOT / ".github" / "workflows").glob("*.yml"))
    if not files:
        pytest.skip("no workflows in an sdist")
    tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
