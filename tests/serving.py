"""What the tests of `python -m datago serve` share: the server, an album to serve, a database to do it from."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import uuid
from urllib.parse import urlencode, urlsplit

import postgres
import pytest

for needed in ("starlette", "uvicorn", "sqlalchemy"):
    pytest.importorskip(needed)
from PIL import Image  # noqa: E402

TOKEN = "0123456789abcdef0123456789abcdef01234567"
COUNT = 60


def fetch(url, method="GET", **headers):
    """Status, headers and body; redirects are not followed."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    try:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


class Server:
    def __init__(self, process, ready):
        self.process, self.token = process, ready.get("token", TOKEN)
        self.api_url, self.media_url, self.images = ready["api_url"], ready["media_url"], ready["images"]

    def ask(self, path="images/", **params):
        """Status and JSON of a request to the API, or to the url `path`."""
        url = path if path.startswith("http") else f"{self.api_url}{path}{'?' if params else ''}{urlencode(params)}"
        status, _, body = fetch(url, authorization=f"Token {self.token}")
        return status, json.loads(body)

    def ids(self, path="images/", **params):
        status, answer = self.ask(path, page_size=2000, fields="id", **params)
        assert status == 200, answer
        return [image["id"] for image in answer["results"]]

    def image(self, identity, **params):
        return self.ask(f"images/{identity}/", all_fields="true", **params)[1]


@contextlib.contextmanager
def serve(folder, *options, token=TOKEN, cache=None, stop=signal.SIGTERM):
    """The server, which must end well; its stderr is in `log` then."""
    environment = dict(os.environ, DATAGO_SERVE_TOKEN=token, PYTHONPATH=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment.update({"XDG_CACHE_HOME": str(cache)} if cache else {"HOME": "/dev/null", "XDG_CACHE_HOME": ""})
    command = [sys.executable, "-m", "datago", "serve", str(folder), "--port", "0", "--media-port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        server = Server(process, json.loads(line))
        yield server
        process.send_signal(stop)
        rest, server.log = process.communicate(timeout=20)
        assert process.returncode == 0 and rest == "" and "Traceback" not in server.log, server.log
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def picture(path, size=(32, 24), color=(200, 30, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB" if path.suffix == ".jpg" else "L", size, color if path.suffix == ".jpg" else 255).save(path)


def numbers(*tests):
    return [f"im-{i:03}" for i in range(COUNT) if all(test(i) for test in tests)]


@pytest.fixture(scope="session")
def postgres_url():
    if url := os.environ.get("DATAGO_TEST_POSTGRES"):
        yield url
    elif programs := postgres.programs():
        pytest.importorskip("psycopg")
        with postgres.postgres(programs) as url:
            yield url
    else:
        pytest.skip("no PostgreSQL: neither DATAGO_TEST_POSTGRES nor /usr/lib/postgresql")


@contextlib.contextmanager
def new_database(request, folder):
    """Options that choose an empty database of the kind that a fixture's parameter names."""
    if request.param == "memory":
        yield []
    elif request.param == "sqlite":
        yield ["--database", f"sqlite:///{folder}/index.sqlite"]
    else:
        url, name = request.getfixturevalue("postgres_url"), f"datago_test_{uuid.uuid4().hex}"
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
            yield ["--database", f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"]
            connection.execute(f"DROP SCHEMA {name} CASCADE")


def make_album(root):
    """COUNT pictures, of which each third is hq, each second has a mask and so on; returns `root`."""
    for i in range(COUNT):
        stem = root / f"im-{i:03}"
        picture(stem.with_suffix(".jpg"), (32 + 16 * (i % 3), 24), (4 * i, 30, 60))
        content = {
            "aes": i / COUNT,
            "number": i,
            "even": i % 2 == 0,
            "title": f"A red Cat, {i % 7}",
            "words": ["x", f"y{i % 2}"],
            "tags": [tag for tag, every in (("hq", 3), ("cat", 4)) if i % every == 0],
        }
        content |= {"duplicate_state": i % 6} if i % 6 in (1, 2) else {}
        content |= {"coca_embedding": [0.5, 0.5, 0.5, 0.5]} if i < 4 else {}
        content |= {"source": "B"} if i >= 40 else {}
        stem.with_suffix(".json").write_text(json.dumps(content))
        stem.with_suffix(".txt").write_text(f"caption {i}\n")
        if i % 2 == 0:
            picture(root / f"im-{i:03}.person_mask.png")
        if i % 5 == 0:
            (root / f"im-{i:03}.dino.npy").write_bytes(b"latent %d" % i)
        if i % 10 == 0:
            picture(root / f"im-{i:03}.masked_image.png")
    return root


# Importing a fixture makes it known to the tests of a file. It is not in a conftest.py of the folder, since many tests import the helpers
# of tests/conftest.py under that name.
@pytest.fixture(scope="session")
def album(tmp_path_factory):
    """The folder of `make_album`, which tests do not change."""
    return make_album(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def server(album):
    """A server of `album`."""
    with serve(album) as server:
        yield server
