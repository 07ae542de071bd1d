"""Who may know whom: the law of ARCHITECTURE.md."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "datago"


def imports(path):
    """The modules of datago that a file names in import and cimport lines."""
    text = path.read_text()
    found = set(re.findall(r"^\s*(?:from|c?import)\s+(datago\.[\w.]+)", text, re.M))
    for names in re.findall(r"^\s*from datago c?import ([\w, ]+)", text, re.M):
        found |= {f"datago.{name.split()[0]}" for name in names.split(",")}
    return found


def test_pixels_know_no_python():
    for path in (ROOT / "src_c").iterdir():
        assert "Python.h" not in path.read_text(), path
    for name in ("buckets", "crop", "place", "resize"):
        for path in (ROOT / "src_c").glob(f"{name}*"):
            assert not re.search(r'#include "(codec|jpeg|png|file)', path.read_text()), path


def test_who_knows_the_pixels():
    users = {p.name for p in PACKAGE.glob("*.p[yx]*") if "_pixels" in " ".join(imports(p))}
    assert users <= {"_batch.pyx", "_batch.pxd", "_buckets.pyx", "_pool.pyx", "_sample.pyx", "_sample.pxd"}


def test_one_module_knows_the_network_library():
    users = {p.name for p in PACKAGE.glob("*.p[yx]*") if "datago._curl" in imports(p)}
    assert users == {"_transfers.pyx", "_transfers.pxd"}
    assert {p.name for p in PACKAGE.rglob("*.py") if "datago._fetch" in imports(p)} <= {"api.py", "db.py", "pages.py"}


def test_only_a_pass_knows_the_pool_and_only_the_client_a_pass():
    # cli/stages.py times the pool alone
    assert {p.name for p in PACKAGE.rglob("*.py") if "datago._pool" in imports(p)} == {"passes.py", "stages.py"}
    assert {p.name for p in PACKAGE.rglob("*.py") if "datago.passes" in imports(p)} == {"client.py", "__init__.py"}


def test_sources_know_neither_client_nor_pool_and_the_plan_knows_nobody():
    for path in (PACKAGE / "sources").glob("*.py"):
        assert not imports(path) & {"datago.client", "datago.passes", "datago._pool", "datago.dataset"}, path
    assert not imports(PACKAGE / "plan.py")


def test_heavy_packages_are_imported_where_they_are_used():
    for path in PACKAGE.rglob("*.py*"):
        if path.suffix in (".py", ".pyx"):
            heavy = "torch|PIL|requests" if path.name == "batches.py" else "torch|PIL|requests|numpy"  # `import datago` does not load that
            assert not re.search(rf"^(import|from) ({heavy})\b", path.read_text(), re.M), path
    # cli/others.py is a script: it times what else reads pictures
    assert {p.name for p in PACKAGE.rglob("*.py") if re.search(r"import torch|from torch", p.read_text())} == {"dataset.py", "others.py"}
