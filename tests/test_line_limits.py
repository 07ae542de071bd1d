"""How long a file may be: what is longer than these limits has a second subject in it, which belongs into a file of its own.

The tests are not counted, as a test file is a list whose members are read one by one.
"""

import pathlib

ROOT = pathlib.Path(__file__).parent.parent
LIMITS = {".c": 300, ".h": 300, ".pyx": 600, ".py": 250}
# Longer today, with their present number of lines. A number here may only go down; a file that has come within its limit leaves the table.
EXCEPTIONS: dict[str, int] = {}


def lengths():
    """Lines of every source file outside tests/, by its path. Cython leaves C files below datago/, which nobody reads."""
    folders = {"datago": (".py", ".pyx"), "src_c": (".c", ".h"), "bench": (".py",), "examples": (".py",)}
    paths = [path for folder, suffixes in folders.items() for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in [*paths, ROOT / "setup.py"]}


def test_no_file_is_longer_than_its_limit():
    found = lengths()
    assert len(found) > 100
    long = {name: lines for name, lines in found.items() if lines > EXCEPTIONS.get(name, LIMITS[pathlib.Path(name).suffix])}
    assert not long, long


def test_exceptions_are_needed():
    found = lengths()
    done = {name for name in EXCEPTIONS if found.get(name, 0) <= LIMITS[pathlib.Path(name).suffix]}
    assert not done, f"within their limits now, so take them out of EXCEPTIONS: {done}"
