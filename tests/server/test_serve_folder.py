"""What the server makes of a folder: sidecars, shards, changes between runs, and what does not belong there."""

import io
import json
import os
import re
import signal
import tarfile
from urllib.parse import urlsplit

import pytest
from conftest import read
from serving import fetch, new_database, picture, postgres_url, serve  # noqa: F401

pytestmark = pytest.mark.network


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request, tmp_path):
    with new_database(request, tmp_path) as database:
        yield database


def test_sync(tmp_path, database):
    """The index follows the folder; what has not changed is not read again; urls outlive a restart."""
    root = tmp_path / "root"
    for name in ("a", "b", "c", "sub dir/a"):
        picture(root / f"{name}.jpg")
    (root / "a.json").write_text('{"score": 1}')
    with serve(root, *database) as server:
        first = server.ids()
        assert len(first) == 4 and first[:3] == ["a", "b", "c"] and first[3].startswith("sub_dir_a-")
        url = server.image("b")["image_direct_url"]
    with serve(root, *database, stop=signal.SIGINT) as server:
        assert server.ids() == first
    assert "0 images indexed, 4 unchanged, 0 removed" in server.log
    (root / "a.json").write_text('{"score": 2, "tags": ["new"]}')
    (root / "c.jpg").rename(root / "B.jpg")
    picture(root / "b.jpg", (64, 64))
    os.utime(root / "b.jpg", (1e9, 1e9))
    with serve(root, *database) as server:
        assert server.ids() == ["B", "a", "b", first[3]]
        assert server.ids(attributes="score:2", tags="new") == ["a"]
        assert server.image("b")["width"] == 64 and server.image("b")["date_created"] == "2001-09-09T01:46:40.000000+00:00"
        assert server.ask("images/count/", has_attributes="score")[1] == {"count": 1}
        (root / "B.jpg").unlink()
        assert fetch(server.image("B")["image_direct_url"])[0] == 404
        assert fetch(url.replace(urlsplit(url).netloc, urlsplit(server.media_url).netloc))[2] == (root / "b.jpg").read_bytes()
    assert "3 images indexed, 1 unchanged, 3 removed" in server.log


def test_ids_that_move(tmp_path, database):
    """An id given in the json stays with its image when the file moves, and nobody takes another's."""
    for name, identity in (("m", "one"), ("n", "two")):
        picture(tmp_path / "root" / f"{name}.jpg")
        (tmp_path / "root" / f"{name}.json").write_text(json.dumps({"id": identity}))
    with serve(tmp_path / "root", *database) as server:
        assert server.ids() == ["one", "two"]
    (tmp_path / "root/m.json").write_text('{"id": "two"}')
    (tmp_path / "root/n.json").write_text('{"id": "one"}')
    picture(tmp_path / "root/z.jpg")
    (tmp_path / "root/z.json").write_text('{"id": "two"}')
    with serve(tmp_path / "root", *database) as server:
        assert server.ids() == ["one", "two"] and "/m.jpg" in server.image("two")["image_direct_url"]
    assert "image left out, because another one has its id: 1 (first: z.jpg: two is the id of m.jpg)" in server.log


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_shards(tmp_path, style):
    """Equal keys in two shards are two images; a shard that is cut short gives what it has."""
    for i in range(4):
        picture(tmp_path / f"src/{i}.jpg", (32, 24), (60 * i, 0, 0))
    (tmp_path / "src/é 日.txt").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    for shard in ("s0", "s1"):
        with tarfile.open(root / f"{shard}.tar", "w", format=style) as archive:
            for i in range(4):
                archive.add(tmp_path / f"src/{i}.jpg", f"./x/{i}.jpg")
                archive.add(tmp_path / "src/é 日.txt", f"./x/{i}.é.txt")
            archive.add(tmp_path / "src/0.jpg", "._0.jpg")
            archive.add(tmp_path / "src/0.jpg", "é/no 1.jpg")
    with open(root / "cut.tar", "wb") as file:
        file.write((root / "s0.tar").read_bytes()[: 512 * 6])
    (root / "no.tar").write_bytes(b"<html>" * 1000)
    with serve(root) as server:
        ids = server.ids()
        assert server.images == len(ids) >= 10 and len([identity for identity in ids if identity.startswith("s1_")]) == 5
        for image in server.ask(page_size=100)[1]["results"]:
            content = fetch(image["image_direct_url"])[2]
            assert content[:3] == b"\xff\xd8\xff" and content[-2:] == b"\xff\xd9" and image["width"] == 32
            if "no" not in image["id"]:
                assert image["attributes"] == {"é": "x"} or image["id"].startswith("cut")
                i = re.search(r"x_(\d)", image["id"])[1]
                assert content == (tmp_path / f"src/{i}.jpg").read_bytes()
        status, headers, body = fetch(image["image_direct_url"], range="bytes=0-2")
        assert (status, body, headers["content-type"]) == (206, b"\xff\xd8\xff", "image/jpeg")
        (root / "s1.tar").write_bytes(b"")
        assert fetch(server.ask(cursor=ids[-2])[1]["results"][0]["image_direct_url"])[0] == 404
    assert "no.tar" in server.log and "hidden: " in server.log


def test_litter_is_left_out_as_by_the_sources(tmp_path):
    """On disk and in shards, the server serves the images that the sources find, and no others."""
    root = tmp_path / "root"
    names = ["a.jpg", "b/c.jpg", "@eaDir/a.jpg", "b/__MACOSX/c.jpg", "lost+found/1.jpg", "$RECYCLE.BIN/2.jpg", ".DS_Store", "Thumbs.db"]
    for name in names:
        picture(root / name) if name.endswith(".jpg") else (root / name).write_bytes(b"x")
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for name in names:
            archive.add(root / name, name)
    (tmp_path / "s.tar").rename(root / "s.tar")
    files = {"source_type": "file", "source_config": {"root_path": str(root)}}
    shards = {"source_type": "webdataset", "source_config": {"url": str(root / "s.tar")}}
    assert {os.path.relpath(sample.id, root) for sample in read(files)[0]} == {"a.jpg", "b/c.jpg"}
    assert len(read(shards)[0]) == 2
    with serve(root) as server:
        locations = {image["image_direct_url"].partition("&Expires")[0].partition("?Expires")[0] for image in server.ask()[1]["results"]}
        assert {location.removeprefix(server.media_url) for location in locations if "?name=" not in location} == {"a.jpg", "b/c.jpg"}
        assert server.images == 4
    assert "litter: 10 (first: " in server.log and "hidden: 2 (first: " in server.log


def test_links_that_lead_out(tmp_path):
    root = tmp_path / "root"
    picture(root / "a.jpg")
    picture(tmp_path / "outside.jpg")
    (tmp_path / "root2.txt").write_text("not below root, though its path begins like that")
    (root / "inside.jpg").symlink_to(root / "a.jpg")
    (root / "outside.jpg").symlink_to(tmp_path / "outside.jpg")
    (root / "a.txt").symlink_to(tmp_path / "root2.txt")
    with serve(root) as server:
        assert sorted(server.ids()) == ["a", "inside"] and server.image("a")["attributes"] == {}
        url = server.image("inside")["image_direct_url"]
        assert fetch(url)[2] == (root / "a.jpg").read_bytes()
        (root / "inside.jpg").unlink()
        (root / "inside.jpg").symlink_to(tmp_path / "outside.jpg")  # once it was indexed
        assert fetch(url)[0] == 404
    assert "link out of the folder (see --follow-links): 2 (first: a.txt)" in server.log
    with serve(root, "--follow-links") as server:
        assert fetch(server.image("outside")["image_direct_url"])[2] == (tmp_path / "outside.jpg").read_bytes()
        assert sorted(server.ids()) == ["a", "inside", "outside"] and "caption" in server.image("a")["attributes"]


def test_hostile_folder(tmp_path, database):
    """Nothing that lies in a folder keeps the rest from being served."""
    root = tmp_path / "root"
    picture(root / "good.jpg")
    for name, content in {
        "broken.jpg": b"\xff\xd8\xff not a picture",
        "empty.png": b"",
        "list.json": b"[1]",
        "good.json": b"{broken",
        "x.y.z.jpg": b"",
        "22.05.json": b'{"a": null, "b": NaN, "g": [1e999], "c": "\\u0000\\ud800", "d": {"e": [1]}, "f": []}',
        "ajpg": b"",
        ".h.jpg": b"",
        "good.jpg~": b"",
        "list.deep.json": b"[" * 5000 + b"]" * 5000,
        "good.jpg.txt": b"t",
        "good.txt": b"\xff\0",
        "good.": b"",
        "own.json": b'{"id": "a b", "tags": "t", "source": 1}',
    }.items():
        (root / name).write_bytes(content)
    for name in ("22.05.png", "own.jpg", "list.jpg", "two.jpg", "two.png", "A line\nbreak ?#%&.jpg"):
        picture(root / name)
    with open(os.path.join(os.fsencode(root), b"caf\xe9.jpg"), "wb") as file:
        file.write((root / "good.jpg").read_bytes())
    os.mkfifo(root / "fifo.jpg")
    (root / "folder.jpg").mkdir()
    (root / "loop").symlink_to(root)
    (root / "gone.jpg").symlink_to(root / "nowhere")
    with serve(root, *database) as server:
        images = {image["id"].rpartition("-")[0] or image["id"]: image for image in server.ask(fields="id", all_fields="1")[1]["results"]}
        assert sorted(images) == sorted(
            ["22_05", "A_line_break_", "broken", "caf_", "empty", "good", "list", "own", "two_jpg", "two_png", "x_y_z"]
        )
        everything = server.ask(all_fields="true")[1]["results"]
        for image in everything:
            path = image["image_direct_url"]
            assert fetch(path)[0] == 200, path
            if image["id"].startswith(("good", "caf", "A_line")):
                assert fetch(path)[2] == (root / "good.jpg").read_bytes() and image["short_edge"] == 24
        found = {image["id"]: image for image in everything}
        assert found["broken"]["width"] is None and found["broken"]["aspect_ratio"] is None
        assert found["good"]["attributes"] == {"jpg": "t", "caption": "\N{REPLACEMENT CHARACTER}"}
        assert found[next(key for key in found if key.startswith("22_05"))]["attributes"] == {
            "a": None,
            "b": None,
            "c": "?",
            "d": {"e": [1]},
            "f": [],
            "g": [None],
        }
    for reason in (
        "json cannot be read",
        "not a file",
        "link to a folder",
        "file cannot be read",
        "id is invalid",
        "belongs to no image",
    ):
        assert reason in server.log


def test_hostile_values(tmp_path, database):
    """What no database, client or date takes is left out and named; the image is served."""
    root = tmp_path / "root"
    for name in ("bomb", "tags", "large", "time", "huge", "types", "sets"):
        picture(root / f"{name}.jpg")
    (root / "bomb.json").write_text('{"deep": ' + "[" * 900 + "]" * 900 + ', "n": 1}')
    (root / "tags.json").write_text(json.dumps({"tags": ["t" * 5000], "x" * 5000: 1, "ok": 1}))
    (root / "large.json").write_text(json.dumps({"n": 10**400, "m": -(10**30), "coca_embedding": [10**400], "duplicate_state": 10**30}))
    (root / "sets.json").write_text('{"datasets": ["a/1", "../etc/1"], "tags": ["a", "a"], "ok": 2}')
    os.utime(root / "time.jpg", (-(2**40), -(2**40)))
    (root / "huge.jpg").write_bytes(b"P6 99999999999 99999999999 255\n")
    with open(root / "huge.json", "wb") as file:
        file.truncate(2**25)
    with tarfile.open(root / "s.tar", "w") as archive:
        for name in (".", "/", "a.jpg", "..", "../b.jpg", "x/../../c.jpg", "n" * 5000 + ".jpg"):
            info, content = tarfile.TarInfo(name), (root / "time.jpg").read_bytes()
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    link = tarfile.TarInfo("x")
    link.type = tarfile.GNUTYPE_LONGNAME
    (root / "chain.tar").write_bytes(link.tobuf() * 3000)
    with serve(root, *database) as server:
        status, page = server.ask(all_fields="true", page_size=100)
        assert status == 200
        found = {image["id"]: image for image in page["results"]}
        assert found["bomb"]["attributes"] == {} and found["tags"]["attributes"] == {"ok": 1} and found["tags"]["tags"] == []
        assert found["large"]["attributes"] == {"n": 10**400, "m": -(10**30)} and found["large"]["coca_embedding"] is None
        assert found["sets"]["datasets"] == [] and found["sets"]["tags"] == ["a"]
        assert found["huge"]["width"] is None and "T" in found["time"]["date_created"]
        assert server.ids(attributes="m__lt:-1e29") == ["large"] and server.ids(has_attributes="n") == ["large"]
        for image in page["results"]:
            assert fetch(image["image_direct_url"])[0] == 200
    for reason in (
        "json cannot be read (ValueError): 2",
        "tags is invalid",
        "name of an attribute is too long",
        "coca_embedding is invalid",
        "datasets is invalid",
    ):
        assert reason in server.log, reason
