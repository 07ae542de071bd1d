"""Who may know whom: the law of ARCHITECTURE.md."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "datago"
WINGS = sorted(path.name for path in (PACKAGE / "sources").iterdir() if (path / "__init__.py").exists())
SUFFIXES = (".py", ".pyx", ".pxd")


def modules(*rooms):
    """The files of these rooms (folders below datago/), or of all of them."""
    folders = [PACKAGE / room for room in rooms] or [PACKAGE]
    return [path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES]


def imports(path):
    """The modules of datago that a file names in import and cimport lines."""
    text = path.read_text()
    found = set(re.findall(r"^\s*(?:from|c?import)\s+(datago\.[\w.]+)", text, re.M))
    for package, names in re.findall(r"^\s*from (datago[\w.]*) c?import \(?([\w, ]+)", text, re.M):
        found |= {f"{package}.{name.split()[0]}" for name in names.split(",") if name.strip()}
    return found


def knows(path, *rooms):
    """What a file imports of these rooms."""
    return {name for name in imports(path) for room in rooms if f"{name}.".startswith(f"datago.{room}.")}


def users(module):
    """The files, below datago/, that import a module."""
    return {str(path.relative_to(PACKAGE)) for path in modules() if knows(path, module)}


def test_pixels_know_no_python():
    for path in (ROOT / "src_c").iterdir():
        assert "Python.h" not in path.read_text(), path
    for name in ("boxes", "buckets", "draws", "place", "resize"):
        for path in (ROOT / "src_c").glob(f"{name}*"):
            assert not re.search(r'#include "(codec|decoder|jpeg|png|webp|file)', path.read_text()), path


def test_who_knows_the_pixels():
    assert all(name.startswith("engine/") for name in users("engine._pixels") - {"versions.py"})


def test_one_module_is_linked_to_the_pixels():
    """A second one would have a copy of src_c: so nobody else declares its functions, and no other extension has sources of its own."""
    headers = "|".join(path.stem for path in (ROOT / "src_c").glob("*.h"))
    declare = {path.stem for path in modules() if re.search(rf'extern from "({headers})\.h"', path.read_text())}
    assert declare == {"_pixels"}
    types = (PACKAGE / "engine" / "_pixels.pxd").read_text()
    assert not [line for line in types.splitlines() if line.startswith("    ") and "dg_" in line.partition("(")[0] and line.endswith(")")]
    assert re.findall(r'module\("([\w.]+)", ', (ROOT / "setup.py").read_text()) == ["engine._pixels"]


def test_one_module_knows_the_network_library():
    assert users("net._curl") == {"net/_transfers.pyx", "net/_transfers.pxd"}


def test_one_module_knows_what_the_environment_says_of_networks():
    words = re.compile(r"_CA_BUNDLE|SSL_CERT_|getproxies|proxy_bypass|\bcertifi\b|parsedate|HTTP_PROXY")
    named = {str(path.relative_to(PACKAGE)) for path in modules("net", "sources") if words.search(path.read_text())}
    assert named == {"net/policy.py"}


def test_only_a_pass_knows_the_pool_and_only_the_client_a_pass():
    # cli/stages.py times the pool alone
    assert users("engine._pool") == {"run.py", "cli/stages.py"}
    assert users("run") == {"lifecycle.py", "client.py", "__init__.py"}


def test_sources_know_neither_client_nor_pool():
    for path in modules("sources"):
        assert not knows(path, "client", "run", "engine._pool", "dataset", "batches", "cli", "server"), path


def test_wings_do_not_know_each_other():
    for wing in WINGS:
        for path in modules(f"sources/{wing}"):
            assert not knows(path, *(f"sources.{other}" for other in WINGS if other != wing)), path


def test_only_the_registry_knows_a_wing():
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(tuple(f"sources/{wing}/" for wing in WINGS)):
            assert not knows(path, *(f"sources.{wing}" for wing in WINGS)), path
            for number, line in enumerate(path.read_text().splitlines(), 1):
                quoted = {wing for wing in WINGS if f'"{wing}"' in line or f"'{wing}'" in line}
                # a url may have the scheme "file"; one of the packages that `bench` compares with is called webdataset
                other = "scheme" in line or name == "cli/competitors.py"
                assert not quoted or other or name in ("sources/__init__.py", "__init__.py"), f"{path}:{number}: {line}"


def test_the_registry_loads_a_wing_only_when_it_is_asked_for():
    code = "import sys, datago; print([name for name in sys.modules if name.startswith('datago.sources.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['datago.sources.settings', 'datago.sources.protocol', 'datago.sources.planned']"


@pytest.mark.parametrize("name", WINGS)
def test_the_keys_of_a_wing_load_no_source(name):
    code = (
        "import sys, datago, datago.sources\n"
        f"datago.sources.source_type({name!r})\n"
        f"print({f'datago.sources.{name}.source'!r} in sys.modules, {{'numpy', 'requests', 'torch', 'PIL'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False set()"


def test_network_engine_and_order_know_no_source():
    for path in modules("net", "engine"):
        assert not knows(path, "sources", "client", "run", "config", "checkpoint"), path
    for path in modules("order"):
        assert all(name.startswith("datago.order") for name in imports(path)), path


def test_heavy_packages_are_imported_where_they_are_used():
    for path in modules():
        heavy = "torch|PIL|requests" if path.name == "batches.py" else "torch|PIL|requests|numpy"  # `import datago` does not load that
        assert not re.search(rf"^(import|from) ({heavy})\b", path.read_text(), re.M), path
    # cli/competitors.py is a script: it times what else reads pictures
    torch = {path.name for path in modules() if re.search(r"import torch|from torch", path.read_text())}
    assert torch == {"agree.py", "dataset.py", "competitors.py"}
