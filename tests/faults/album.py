"""Twelve small pictures as every source has them: a folder, three shards on disk or on a server, three pages of a database."""

import contextlib
import json

from conftest import check_accounts, jpeg, photo, saved
from faulty import answer, faulty
from reading import LIMIT, drain
from table import slowly
from tars import tar

from datago import DatagoClient

FILE, TAR, HTTP, CACHED, DB, PAGE = COLUMNS = "files", "shards", "shards, http", "shards, cached", "db, image", "db, page"
NAMES = [f"p{i:02d}" for i in range(12)]
GROUPS = [NAMES[0:4], NAMES[4:8], NAMES[8:12]]  # shards, or pages
VICTIM = "p05"  # the picture, and the shard or page with it, that a fault strikes
GROUP = GROUPS[1]
SUFFIX = {name: "png" if i % 2 else "jpg" for i, name in enumerate(NAMES)}
LIMITS = {"DATAGO_MAX_RETRIES": "3", "DATAGO_MAX_TASKS": "2"}
TIMEOUT = 1.0  # seconds of silence that a source bears


def pictures():
    """name -> bytes of a file: PNGs and JPEGs, each of a size of its own. The victim is a PNG: nothing of it may be mended."""
    return {name: saved(photo(40 + i, 30, seed=i)) if SUFFIX[name] == "png" else jpeg(40 + i, 30, seed=i) for i, name in enumerate(NAMES)}


def shard(names, files):
    """Members all with one suffix: a sample at the end of a cut shard counts as complete if it has the fields of the one before."""
    return tar([member for name in names for member in ((f"{name}.jpg", files[name]), (f"{name}.txt", name.encode()))])


def folder(root, files):
    """A config, and its files."""
    for name, data in files.items():
        (root / f"{name}.{SUFFIX[name]}").write_bytes(data)
    return {"source_type": "file", "source_config": {"root_path": str(root)}}


def local_shards(root, files):
    for i, names in enumerate(GROUPS):
        (root / f"{i}.tar").write_bytes(shard(names, files))
    return shards(str(root))


def shards(base, **keys):
    source = {"url": [f"{base}/{i}.tar" for i in range(3)], "timeout": TIMEOUT, **keys}
    return {"source_type": "webdataset", "source_config": source}


def remote_shards(url, **keys):
    config = shards(url, auth_token="SECRET", **keys)
    config["source_config"]["url"] = [f"{one}?sig=SECRET" for one in config["source_config"]["url"]]
    return config


def shard_answers(files):
    """path -> what a Faulty server says, for shards."""
    return {f"/{i}.tar": answer(shard(names, files)) for i, names in enumerate(GROUPS)}


def database(url):
    keys = {"sources": "", "page_size": 4, "require_images": True, "api_url": url, "api_key": "SECRET", "max_connections": 4}
    return {"source_type": "db", "source_config": {**keys, "read_timeout": TIMEOUT, "page_timeout": TIMEOUT}}


def database_answers(files):
    """path -> what a Faulty server says, for the pages and the pictures of a database."""
    answers = {f"/{name}": answer(data) for name, data in files.items()}
    for i, names in enumerate([*GROUPS, []]):
        records = [{"id": name, "source": "s", "attributes": {}, "image_direct_url": f"/{name}?sig=SECRET"} for name in names]
        page = {"results": records, "next": f"/page{i + 1}?key=SECRET" if names else None}
        answers[f"/page{i}" if i else "/images/"] = answer(json.dumps(page).encode())
    return answers


def slow_victim(answers):
    for path in set(answers) & {"/1.tar", f"/{VICTIM}"}:
        answers[path] = slowly(answers[path])


@contextlib.contextmanager
def source(column, root, files, strike=None):
    """The config of that column's source over `files`, while it is there; `strike` changes what a server says."""
    if column in (FILE, TAR):
        yield folder(root, files) if column == FILE else local_shards(root, files)
        return
    answers = shard_answers(files) if column in (HTTP, CACHED) else database_answers(files)
    if strike:
        strike(answers)
    with faulty(answers) as server:
        if column in (HTTP, CACHED):
            yield remote_shards(server.url, **({"cache_dir": str(root / "cache")} if column == CACHED else {}))
        else:
            yield database(server.url)


def reference(files, root):
    """name -> hash of the pixels that a run without faults gives."""
    result = drain(DatagoClient(folder(root, files)))
    check(result, dict(result["found"]), set(), error=False)
    return dict(result["found"])


def check(result, wanted, lost, error=None, changed=()):
    """What must hold whatever happened.

    Args:
        wanted: name -> hash.
        lost: the names that must be missing, a set; or those that may be, a list. All others have come, once each, intact.
        error: whether the stream had to end with an error; None: it may.
        changed: names whose pixels may be others, since their file is.
    """
    stats, names = result["stats"], [name for name, _ in result["found"]]
    assert result["error"] != "HANGS" and result["seconds"] < LIMIT
    if stats is None:  # it could not even begin
        assert result["error"] and not isinstance(lost, set)
        return
    check_accounts(stats)
    assert stats["in_flight"] == 0 and stats["delivered"] == len(names)
    assert len(set(names)) == len(names), "a sample came twice"
    assert {name: value for name, value in result["found"] if name not in changed}.items() <= wanted.items(), "pixels changed"
    missing, last = set(wanted) - set(names), stats["last_failures"]
    assert missing == lost if isinstance(lost, set) else missing <= set(lost), (missing, last, result["error"])
    assert error is None or bool(result["error"]) == error, result["error"]
    assert not missing or stats["failed"] or result["error"], "lost in silence"
    assert "SECRET" not in result["error"] + repr(last)
