import io
import json
import os
import random
import re
import subprocess
import sys

import pytest
from conftest import config, photo
from PIL import Image

from datago import log


def stderr_of(script, tmp_path, **environment):
    (tmp_path / "bad.jpg").write_bytes(b"junk")
    head = f"import json, sys, logging\nfrom datago import DatagoClient, initialize_logging\nconfig = json.loads({json.dumps(config(tmp_path))!r})\n"
    tail = "\ntry:\n    DatagoClient(config).get_sample()\nexcept ValueError: pass\n"
    clean = {k: v for k, v in os.environ.items() if k not in ("RUST_LOG", "DATAGO_LOG")}
    done = subprocess.run(
        [sys.executable, "-c", head + script + tail], capture_output=True, text=True, timeout=30, env={**clean, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_silent_unless_asked(tmp_path):
    assert stderr_of("", tmp_path) == ""


def test_no_library_prints_anything(tmp_path):
    """Damaged files of every format, twice as Python shows warnings, once where they are errors; and only initialize_logging speaks."""
    rng = random.Random(3)
    formats = {"TIFF": ("raw", "tiff_lzw", "tiff_deflate", "jpeg", "packbits", "group4", "lzma"), "JPEG": [None], "PNG": [None]}
    for kind, compressions in {**formats, **dict.fromkeys(("WEBP", "GIF", "BMP", "AVIF"), [None])}.items():
        for compression in compressions:
            out = io.BytesIO()
            picture = Image.fromarray(photo(60, 50)).convert("1" if compression == "group4" else "RGB")
            picture.save(out, kind, **({"compression": compression} if compression else {}))
            for i in range(25):
                data = bytearray(out.getvalue())
                for _ in range(rng.choice((1, 2, 5, 20))):
                    data[rng.randrange(8 if i % 3 else 0, len(data))] = rng.randrange(256)
                (tmp_path / f"{kind}_{compression}_{i}.png").write_bytes(data[: rng.randrange(len(data))] if i % 5 == 0 else data)
    reading = "\nfor _ in DatagoClient(config): pass"
    for environment in ({}, {"PYTHONWARNINGS": "always"}):
        lines = stderr_of(reading, tmp_path, **environment).splitlines()
        assert len(lines) == 2 and all(re.match(r"\d+ of \d+ items failed \(", line) for line in lines)
    lines = stderr_of("initialize_logging()" + reading, tmp_path, PYTHONWARNINGS="error").splitlines()
    assert len(lines) > 100 and all(re.match(r"\[\S+ ERROR datago::client\] \S+\.(png|jpg): \w+", line) for line in lines)


def test_one_line_a_failure(tmp_path):
    err = stderr_of("assert initialize_logging() is True and initialize_logging('debug') is False", tmp_path)
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ERROR datago::client\] \S+bad\.jpg: unsupported: .*\n", err)


@pytest.mark.parametrize(
    "environment, lines",
    [({"RUST_LOG": "off"}, 0), ({"DATAGO_LOG": "off"}, 0), ({"RUST_LOG": "info,datago=error"}, 1), ({"RUST_LOG": "datago::client=off"}, 0)],
)
def test_the_environment_wins(tmp_path, environment, lines):
    assert stderr_of("initialize_logging('debug')", tmp_path, **environment).count("\n") == lines


def test_python_logging_works_without_us(tmp_path):
    assert "bad.jpg" in stderr_of("logging.basicConfig()", tmp_path)


def test_levels():
    with pytest.raises(ValueError, match="log_level: got 'loud', wanted one of"):
        log.initialize_logging("loud")
    assert log._from_environment("junk,datago=trace", 30) == 5
    assert log._from_environment("hyper=debug", 30) == 30
