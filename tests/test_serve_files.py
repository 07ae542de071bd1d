"""The server's files, its options, and its life as a process."""

import contextlib
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import COUNT, TOKEN, fetch, make_album, numbers, picture, serve


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    return make_album(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def server(album):
    with serve(album) as server:
        yield server


def test_files(server, album):
    image = server.image("im-010")
    content = (album / "im-010.jpg").read_bytes()
    url = image["image_direct_url"]
    assert url.startswith(server.media_url)
    status, headers, body = fetch(url)
    assert (status, headers["content-type"], body) == (200, "image/jpeg", content)
    latents = {latent["latent_type"]: latent["file_direct_url"] for latent in image["latents"]}
    assert fetch(latents["dino"])[2] == b"latent 10"
    assert fetch(latents["person_mask"])[2] == (album / "im-010.person_mask.png").read_bytes()
    status, headers, body = fetch(url, "HEAD")
    assert (status, headers["content-length"], body) == (200, str(len(content)), b"")


@pytest.mark.parametrize(
    "wanted, cut",
    [("0-9", slice(0, 10)), ("100-", slice(100, None)), ("-7", slice(-7, None)), ("5-99999", slice(5, None))],
)
def test_ranges(server, album, wanted, cut):
    content = (album / "im-010.jpg").read_bytes()
    status, headers, body = fetch(server.image("im-010")["image_direct_url"], range=f"bytes={wanted}")
    start, stop, _ = cut.indices(len(content))
    assert (status, body) == (206, content[cut])
    assert headers["content-range"] == f"bytes {start}-{stop - 1}/{len(content)}"


def test_refused_files(server):
    url = server.image("im-010")["image_direct_url"]
    assert fetch(url, range="bytes=999999-")[0] == 416
    assert fetch(url, authorization=f"Token {TOKEN}")[0] == 400
    assert fetch(url, "POST")[0] == 405
    for wrong in (
        url[:-1] + "x",
        url.replace("im-010", "im-011"),
        url.split("?")[0],
        re.sub(r"Expires=\d", "Expires=9", url),
    ):
        status, headers, body = fetch(wrong)
        assert (status, headers["content-type"]) == (403, "application/xml") and b"<Code>SignatureDoesNotMatch" in body


def test_large_files(tmp_path):
    """What is sent in pieces comes whole."""
    picture(tmp_path / "a.jpg")
    content = bytes(range(256)) * 13000
    (tmp_path / "a.feature.npy").write_bytes(content)
    with serve(tmp_path) as server:
        url = server.image("a")["latents"][0]["file_direct_url"]
        assert fetch(url)[2] == content
        assert fetch(url, range="bytes=1000000-3100000")[2] == content[1000000:3100001]


def run(*options):
    """The status and stderr of a server that is not to start."""
    command = [sys.executable, "-m", "datago", "serve", *map(str, options), "--media-port", "0"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.stdout == "" and "Traceback" not in result.stderr
    return result.returncode, result.stderr


def test_starts_in_vain(tmp_path, album):
    (tmp_path / "a.txt").write_text("x")
    memory = ["--port", "0", "--database", "sqlite://"]
    for folder, text in ((tmp_path, "no images"), (tmp_path / "missing", "missing"), (tmp_path / "a.txt", "a.txt")):
        status, errors = run(folder, *memory)
        assert status == 1 and text in errors
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, errors = run(album, "--port", taken.getsockname()[1], "--database", "sqlite://")
        assert status == 1 and f"port {taken.getsockname()[1]}" in errors
    assert run(album, *memory, "--token", "two words")[0] == 1
    (tmp_path / "no.sqlite").write_bytes(b"no database at all" * 100)
    status, errors = run(album, "--port", "0", "--database", f"sqlite:///{tmp_path}/no.sqlite")
    assert status == 1 and "not a database" in errors
    assert run(album, "--port", "0", "--database", "postgresql://nobody@/x?host=/nowhere")[0] in (1, 2)


def test_token_and_cache(tmp_path, album):
    """A token is made where none is given; the index lies in the cache folder, or in memory if that cannot be."""
    with serve(album, token="", cache=tmp_path) as server:
        assert re.fullmatch("[0-9a-f]{40}", server.token) and len(server.ids()) == COUNT
    assert len(list(tmp_path.glob("datago/serve-*.sqlite"))) == 1
    with serve(album) as server, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: server.ids(partitions_count=24, partition=number % 24), range(96)))
        assert sorted(sum(answers, [])) == sorted(numbers() * 4)
    assert "in memory" in server.log


def test_expired_urls(album):
    with serve(album, "--url-ttl", "-1") as server:
        status, _, body = fetch(server.image("im-001")["image_direct_url"])
        assert status == 403 and b"Request has expired" in body


def test_latency(album):
    """Waits overlap, and the server ends at once, or soon, while some are under way."""
    with serve(album, "--latency", "0.5") as server:
        urls = [server.image(identity)["image_direct_url"] for identity in numbers()]
        start = time.monotonic()
        with ThreadPoolExecutor(240) as pool:
            assert all(status == 200 for status, _, _ in pool.map(fetch, urls * 4))
        assert 0.5 <= time.monotonic() - start < 5


def test_end_with_answers_under_way(album):
    with serve(album, "--latency", "60") as server:
        url = server.image("im-000")["image_direct_url"]

        def wait_in_vain():
            with contextlib.suppress(OSError):
                assert fetch(url)[0] == 500

        late = threading.Thread(target=wait_in_vain)
        late.start()
        time.sleep(0.2)
        start = time.monotonic()
    assert time.monotonic() - start < 6
    late.join()


def test_page_size_max(album):
    with serve(album, "--page-size-max", "7", "--prefix-length", "5") as server:
        assert len(server.ask()[1]["results"]) == 7 and server.ask(page_size=8)[0] == 400
        assert server.ask("images/random/")[1] == {"next": None, "results": []}


def test_import_is_light():
    heavy = "starlette uvicorn sqlalchemy PIL asyncio argparse"
    code = f"import datago, sys; print([name for name in '{heavy}'.split() if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert result.stdout == "[]\n", result.stderr
