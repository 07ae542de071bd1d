"""What `pip install` gives: from the sdist, under build isolation, on every Python here; and what a missing library says."""

import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import jpeg

ROOT = pathlib.Path(__file__).parent.parent
pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(600)]


def python(version):
    """The path of an interpreter, or None."""
    found = [shutil.which(f"python{version}"), *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")))]
    for path in filter(None, found):
        probe = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
        if probe.stdout.strip() == version:
            return path
    return None


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    script = f"import setuptools.build_meta as b; print(b.build_sdist({str(folder)!r}))"
    run(sys.executable, "-c", script, cwd=ROOT)
    return next(folder.glob("datago-*.tar.gz"))


def test_the_sdist_is_complete_and_clean(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files", cwd=ROOT).split()) if (ROOT / ".git").exists() else names
    wanted = {name for name in tracked if name.split("/")[0] in ("datago", "src_c", "tests", "bench", "docs", "tools", "licenses")}
    assert wanted | {"setup.py", "pyproject.toml", "README.md", "LICENSE", "Makefile"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o"))]
    assert not [name for name in names if name.startswith("datago/") and name.endswith(".c")]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_install_and_stream(sdist, version, tmp_path):
    interpreter = python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    run(interpreter, "-m", "venv", tmp_path / "env")
    own = tmp_path / "env" / "bin" / "python"
    run(own, "-m", "pip", "install", "-q", sdist, cwd=tmp_path)
    assert run(own.parent / "datago", "--help", cwd=tmp_path) == run(own, "-m", "datago", "--help", cwd=tmp_path)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(5):
        (pictures / f"{i}.jpg").write_bytes(jpeg(20 + i, 10))
    script = (
        "import datago, sys, importlib.metadata as m; assert 'site-packages' in datago.__file__; assert m.version('datago')\n"
        f"c = datago.DatagoClient({{'source_type': 'file', 'source_config': {{'root_path': {str(pictures)!r}}}}})\n"
        "print(sorted(s['image'].size for s in iter(c.get_sample_auto_convert, None)), c.stats()['failed'])"
    )
    assert run(own, "-c", script, cwd=tmp_path) == "[(20, 10), (21, 10), (22, 10), (23, 10), (24, 10)] 0\n"


def test_a_missing_library_is_one_sentence(tmp_path):
    shutil.copytree(ROOT / "src_c", tmp_path / "src_c")
    shutil.copytree(ROOT / "datago", tmp_path / "datago", ignore=shutil.ignore_patterns("*.so", "*.c"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "DATAGO_DEPS_PREFIX": str(tmp_path / "nothing")},
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("datago needs libjpeg-turbo 2.0 or later, which pkg-config does not find on") and "libjpeg62-turbo-dev" in last
