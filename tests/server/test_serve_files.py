"""The server's files, its options, and its life as a process."""

import contextlib
import hmac
import http.client
import os
import pathlib
import re
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from serving import COUNT, TOKEN, album, fetch, numbers, picture, serve, server  # noqa: F401

from datago.server.secret import kept_secret

pytestmark = pytest.mark.network


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
        assert 0.5 <= time.monotonic() - start < 40


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
    assert time.monotonic() - start < 30
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


# ---- what is handed out, and to whom ----


def secret_of(index):
    """The secret in an index."""
    connection = sqlite3.connect(index)
    try:
        return bytes.fromhex(connection.execute("SELECT value FROM datago_meta WHERE name = 'secret'").fetchone()[0])
    finally:
        connection.close()


def signed(server, key, path, query=""):
    """A url of the files' port as somebody would sign it who has `key`."""
    text = f"{path}?{query}Expires={int(time.time()) + 60}"
    return f"{server.media_url.rstrip('/')}{text}&Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"


def ask(server, url):
    """Status and body; the path goes out as it is."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    try:
        connection.putrequest("GET", url.split(parts.netloc, 1)[1], skip_host=False)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("options", [[], ["--follow-links"]])
def test_only_what_the_index_lists_is_handed_out(tmp_path, options):
    """Even to who has the secret: the path is looked up among those that were indexed, letter by letter."""
    root, cache = tmp_path / "root", tmp_path / "cache"
    picture(root / "sub" / "a.jpg")
    picture(root / "a b.jpg")
    (root / "sub" / "a.json").write_text('{"secret": 1}')
    (root / "sub" / "a.vae.npy").write_bytes(b"latent")
    for name in ("notes.txt", ".env", ".git/config.jpg", "sub/.hidden.jpg", "sub/b.npy"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("SECRET")
    (tmp_path / "secret.txt").write_text("SECRET")
    with serve(root, *options, cache=cache) as server:
        (index,) = cache.glob("datago/*.sqlite")
        key = secret_of(index)
        for path in ("/sub/a.jpg", "/a%20b.jpg", "/sub/a.vae.npy"):
            assert ask(server, signed(server, key, path))[0] == 200
        for path in (
            "/notes.txt", "/.env", "/.git/config.jpg", "/sub/.hidden.jpg", "/sub/b.npy", "/sub/a.json", "/sub", "/sub/", "/", "/.",
            "/../secret.txt", "/%2e%2e/secret.txt", "/sub/..%2f../secret.txt", f"/{tmp_path}/secret.txt", f"{tmp_path}/secret.txt",
            "//etc/passwd", "/%2fetc%2fpasswd", "/sub//a.jpg", "//sub/a.jpg", "/./sub/a.jpg", "/sub/./a.jpg", "/sub/../sub/a.jpg", "/sub/a.jpg/",
            "/sub/a.jpg%00", "/sub/a.jpg%00.png", "/%73ub/a.jpg", "/sub%2fa.jpg", "/SUB/a.jpg", "/sub/A.JPG", "/sub\\a.jpg", "/a+b.jpg",
            "/proc/self/environ", f"/{index}",
        ):  # fmt: skip
            status, body = ask(server, signed(server, key, path))
            assert status in (400, 404) and b"SECRET" not in body and str(tmp_path).encode() not in body, path
        for query in ("name=a.jpg&offset=0&size=10&", "offset=0&", "x=1&", "&", "size=-1&offset=5&"):
            assert ask(server, signed(server, key, "/sub/a.jpg", query))[0] == 404, query
        for other in (TOKEN.encode(), b"", bytes(32), hmac.digest(TOKEN.encode(), b"datago media", "sha256")):
            assert ask(server, signed(server, other, "/sub/a.jpg"))[0] == 403
        url = server.ask()[1]["results"][0]["image_direct_url"]
        for broken in ("Expires=x", "Expires=", "Signature=", "Expires=1&Signature=%ff", "Signature=é".encode().hex()):
            assert ask(server, f"{url.split('?')[0]}?{broken}")[0] == 403
        text, _, signature = url.rpartition("=")
        for wrong in (signature.upper(), signature[:-1], signature + "0", f"{signature}&x=1", ""):
            assert ask(server, f"{text}={wrong}")[0] == 403
    assert TOKEN not in server.log and "Signature" not in server.log


@pytest.mark.parametrize("options", [[], ["--follow-links"]])
def test_what_takes_a_file_s_place_is_not_followed(tmp_path, options):
    """Links, FIFOs, folders, devices and sockets that come after the index was made, at the file or on the way to it."""
    root = tmp_path / "root"
    for name in ("link", "fifo", "folder", "socket", "hidden", "self"):
        picture(root / f"{name}.jpg")
    picture(root / "way" / "deep" / "file.jpg")
    picture(tmp_path / "outside" / "deep" / "file.jpg")
    picture(tmp_path / "outside" / "other.jpg")
    (root / "chain.jpg").symlink_to("self.jpg")
    with serve(root, *options) as server:
        urls = {
            image["image_direct_url"].split("?")[0].rpartition("/")[2]: image["image_direct_url"] for image in server.ask()[1]["results"]
        }
        assert len(urls) == 8 and all(fetch(url)[0] == 200 for url in urls.values())
        for name in ("link", "fifo", "folder", "socket", "hidden"):
            (root / f"{name}.jpg").unlink()
        (root / "link.jpg").symlink_to(tmp_path / "outside" / "other.jpg")
        os.mkfifo(root / "fifo.jpg")
        (root / "folder.jpg").mkdir()
        (root / "hidden.jpg").symlink_to("self.jpg")  # even to a file that is listed itself
        (root / "way").rename(tmp_path / "away")
        (root / "way").symlink_to(tmp_path / "outside")
        (root / "chain.jpg").unlink()
        (root / "chain.jpg").symlink_to("/etc/passwd")
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(root / "socket.jpg"))
            for name, url in urls.items():
                status, _, body = fetch(url)
                assert status == (200 if name == "self.jpg" else 404), name
                assert str(tmp_path).encode() not in body
        (root / "self.jpg").unlink()
        picture(root / "self.jpg", (8, 8))  # a file in the place of a file is what the index lists
        assert fetch(urls["self.jpg"])[2] == (root / "self.jpg").read_bytes()


def test_links_that_lead_out_are_followed_only_where_they_led(tmp_path):
    root = tmp_path / "root"
    picture(root / "a.jpg")
    for name in ("one", "two"):
        picture(tmp_path / "outside" / f"{name}.jpg", (8, 8) if name == "one" else (9, 9))
    (root / "b.jpg").symlink_to(tmp_path / "outside" / "one.jpg")
    (root / ".secret").write_text("SECRET")
    (root / "c.jpg").symlink_to(".secret")
    with serve(root, cache=tmp_path / "cache") as server:
        assert server.ids() == ["a"]
    assert "link to a hidden file (see --follow-links): 1" in server.log
    with serve(root, "--follow-links", cache=tmp_path / "cache") as server:
        assert server.ids() == ["a", "b", "c"]
        url = server.image("b")["image_direct_url"]
        assert fetch(url)[2] == (tmp_path / "outside" / "one.jpg").read_bytes()
        (root / "b.jpg").unlink()
        (root / "b.jpg").symlink_to(tmp_path / "outside" / "two.jpg")
        assert fetch(url)[0] == 404
    with serve(root, cache=tmp_path / "cache") as server:  # a url that was signed then lists nothing now
        (root / "b.jpg").unlink()
        (root / "b.jpg").symlink_to(tmp_path / "outside" / "one.jpg")
        assert fetch(url.replace(urlsplit(url).netloc, urlsplit(server.media_url).netloc))[0] == 404


def test_members_of_a_shard_that_has_changed(tmp_path):
    """Their bytes are elsewhere in another shard of the same length: none are better than wrong ones."""
    picture(tmp_path / "x.jpg")
    (tmp_path / "root").mkdir()
    with tarfile.open(tmp_path / "root" / "s.tar", "w") as archive:
        archive.add(tmp_path / "x.jpg", "x.jpg")
    with serve(tmp_path / "root") as server:
        (url,) = [image["image_direct_url"] for image in server.ask()[1]["results"]]
        assert fetch(url)[2] == (tmp_path / "x.jpg").read_bytes()
        (tmp_path / "root" / "s.tar").write_bytes(bytes((tmp_path / "root" / "s.tar").stat().st_size))
        assert fetch(url)[0] == 404


def test_a_file_that_shrinks_ends_the_connection(tmp_path):
    """Never an answer that is shorter than it says and looks whole, and no traceback."""
    picture(tmp_path / "a.jpg")
    latent = tmp_path / "a.huge.npy"
    latent.write_bytes(bytes(64 * 2**20))
    with serve(tmp_path) as server:
        parts = urlsplit(server.image("a")["latents"][0]["file_direct_url"])
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        answer.read(1000)
        os.truncate(latent, 2**20)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
        connection.close()


def test_media_types_come_from_the_suffix_alone(tmp_path):
    """A file's name is a name, not a data: url, whatever it says."""
    for name in ("data:text/html,a.jpg", "data:a\r\nx: y,.jpg", "b.JPG", "c.png"):
        picture(tmp_path / name)
    with serve(tmp_path) as server:
        for image in server.ask()[1]["results"]:
            status, headers, _ = fetch(image["image_direct_url"])
            assert status == 200 and headers["content-type"] == ("image/png" if image["id"] == "c" else "image/jpeg")
            assert headers["x-content-type-options"] == "nosniff" and headers["x"] is None


def test_the_index_is_its_owner_s_alone(tmp_path, album):
    """Mode 0600 whatever the umask, before and after; a secret that others might have read is replaced. Urls outlive a restart else."""
    cache = tmp_path / "cache"
    before = os.umask(0)
    try:
        with serve(album, cache=cache) as server:
            (index,) = cache.glob("datago/*.sqlite")
            url = urlsplit(server.image("im-000")["image_direct_url"])
            assert [oct(path.stat().st_mode & 0o777) for path in cache.rglob("*.sqlite*")] == ["0o600"]
        key = secret_of(index)
        again = f"{url.path}?{url.query}"
        with serve(album, cache=cache) as server:
            assert secret_of(index) == key and fetch(server.media_url.rstrip("/") + again)[0] == 200
        os.chmod(index, 0o644)
        for end in ("-journal", "-wal", "-shm"):
            pathlib.Path(f"{index}{end}").write_bytes(b"")
            os.chmod(f"{index}{end}", 0o666)
        with serve(album, cache=cache) as server:
            assert {path.stat().st_mode & 0o777 for path in cache.rglob("*.sqlite*")} == {0o600}
            assert secret_of(index) != key and fetch(server.media_url.rstrip("/") + again)[0] == 403
        named = tmp_path / "named.sqlite"
        with serve(album, "--database", f"sqlite:///{named}"):
            assert named.stat().st_mode & 0o777 == 0o600 and secret_of(named) != secret_of(index)
    finally:
        os.umask(before)
    assert len(key) == 32 and TOKEN.encode() not in index.read_bytes()


def test_the_secret_of_an_index_in_memory(tmp_path, monkeypatch):
    """It lies in the folder for temporary files, for its owner alone, and differs from folder to folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keys = {kept_secret("/a"), kept_secret("/b"), kept_secret("/a")}
    assert len(keys) == 2 and {len(key) for key in keys} == {32}
    (folder,) = tmp_path.iterdir()
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700 and path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(PermissionError, match="other users may access it"):
        kept_secret("/a")
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(OSError):
        kept_secret("/a")
    path.unlink()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="other users may access it"):
        kept_secret("/a")


def test_an_index_of_an_older_version_is_made_anew(tmp_path, album):
    index = tmp_path / "old.sqlite"
    connection = sqlite3.connect(index)
    connection.execute("CREATE TABLE datago_images (id TEXT PRIMARY KEY, location TEXT)")
    connection.execute("INSERT INTO datago_images VALUES ('x', '/etc/passwd')")
    connection.commit()
    connection.close()
    with serve(album, "--database", f"sqlite:///{index}") as server:
        assert server.ids() == numbers()
