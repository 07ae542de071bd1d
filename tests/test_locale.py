"""The same files, sizes and numbers in every locale: in Turkish I is not the capital of i, in German 1.5 is written 1,5."""

import json
import locale
import os
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import jpeg

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        shutil.which("localedef") is None or not os.path.exists("/usr/share/i18n/locales/tr_TR"),
        reason="needs localedef and the sources of its locales (Debian: package locales)",
    ),
]
IMAGES = ["A.GIF", "B.TIF", "C.TIFF", "D.JPG", "E.PNG", "F.AVIF", "G.JFIF", "h.gif", "i.jPeG"]
SCRIPT = """
import json, locale, os, sys
locale.setlocale(locale.LC_ALL, "")
from datago import DatagoClient, aspect_buckets
from datago._folder import Folder
folder, shard = sys.argv[1:]
image = {"crop_and_resize": True, "default_image_size": 64, "downsampling_ratio": 8, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
found = {"point": locale.localeconv()["decimal_point"], "upper": sorted(name.decode() for name in Folder(folder.encode()).read()[0])}
found["buckets"] = aspect_buckets(64, 8, 0.5, 2.0)
client = DatagoClient(json.dumps({"source_type": "webdataset", "source_config": {"url": "FILE://" + shard, "timeout": 1.5}, "image_config": image}))
found["samples"] = [[sample.id, sample.image.size, sample.attributes] for sample in client]
found["metrics"] = [line for line in client.metrics().splitlines() if "wait" not in line]  # how often threads waited is chance
found["failures"] = client.stats()["last_failures"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the script finds in a Turkish, an Azeri, a German and a plain locale."""
    root = tmp_path_factory.mktemp("locale")
    (root / "folder").mkdir()
    for name in IMAGES:
        (root / "folder" / name).write_bytes(b"")
    with tarfile.open(root / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("1.JPG", jpeg(90, 60)), ("1.CLS", b"1.5"), ("2.JFIF", jpeg(60, 90)), ("3.TIFF", b"no picture")):
            path = root / name
            path.write_bytes(data)
            os.utime(path, (1.5, 1234.5678))  # a pax header with a fraction
            tar.add(path, name)
    found = {}
    for name in ("C", "tr_TR", "az_AZ", "de_DE"):
        if name != "C":
            subprocess.run(["localedef", "-i", name, "-f", "UTF-8", root / f"{name}.UTF-8"], check=True, timeout=60, capture_output=True)
        environment = {**os.environ, "LOCPATH": str(root), "LC_ALL": f"{name}.UTF-8", "DATAGO_MAX_TASKS": "1"}
        command = [sys.executable, "-c", SCRIPT, root / "folder", root / "a.tar"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        found[name] = json.loads(done.stdout)
    return found


def test_it_is_another_locale(seen):
    assert {name: one["point"] for name, one in seen.items()} == {"C": ".", "tr_TR": ",", "az_AZ": ",", "de_DE": ","}
    assert locale.localeconv()["decimal_point"] == "."


def test_upper_case_suffixes(seen):
    assert all(one["upper"] == sorted(IMAGES) for one in seen.values())


@pytest.mark.parametrize("name", ["tr_TR", "az_AZ", "de_DE"])
def test_everything_else(seen, name):
    assert [sample[0] for sample in seen["C"]["samples"]] == ["1", "2"] and len(seen["C"]["buckets"]) > 5
    assert '"cls": "1.5"' in seen["C"]["samples"][0][2] and seen["C"]["samples"][0][1] == [80, 48]
    assert {**seen[name], "point": "."} == seen["C"]
