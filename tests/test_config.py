import dataclasses
import json
import pathlib
import pickle
import sys
import warnings

import numpy
import pytest

from datago import DatagoBatchDataset, DatagoClient, SourceError, environment, geometry
from datago import config as configuration

GOOD = {"source_type": "file", "source_config": {"root_path": "/pictures"}}


def changed(section, **keys):
    top = json.loads(json.dumps(GOOD))
    (top if section is None else top.setdefault(section, {})).update(keys)
    return top


def changed_to(**keys):
    return {**GOOD, **keys}


def test_defaults():
    top = configuration.parse(GOOD)
    assert (top.limit, top.samples_buffer_size, top.on_error) == (2**63 - 1, 64, "skip")
    wanted = {"root_path": "/pictures", "random_sampling": False, "captions": True, "rank": 0, "world_size": 1}
    assert vars(top.source_config) == wanted


def test_nothing_changes_a_config():
    given = changed("image_config", random_resized_crop={"size": [8, 9]}, background=[1, 2, 3])
    before = json.dumps(given)
    top = configuration.parse(given)
    assert json.dumps(given) == before
    given["image_config"]["background"][0] = 9
    assert top.image_config.background == (1, 2, 3) and top.image_config.random_resized_crop.size == (8, 9)
    sections = [top, top.source_config, top.image_config, top.image_config.random_resized_crop]
    for section, name in zip(sections, ["limit", "root_path", "max_pixels", "size"], strict=True):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(section, name, 5)
    assert hash(top) == hash(configuration.parse(json.loads(before)))


def test_another_config_is_made_of_one_by_replace():
    top = configuration.parse(GOOD)
    other = dataclasses.replace(top, source_config=dataclasses.replace(top.source_config, rank=1, world_size=2), limit=5)
    assert (other.source_config.rank, other.limit, top.source_config.rank, top.limit) == (1, 5, 0, 2**63 - 1)
    assert other == configuration.parse(changed("source_config", rank=1, world_size=2) | {"limit": 5})


def test_a_batch_dataset_has_a_config_of_its_own():
    given = changed("image_config", random_resized_crop=8)
    batches = DatagoBatchDataset(given, batch_size=4, dtype="float32", mean=0.5)
    config = batches._client.config
    assert (
        config.batch.mean == (0.5,) * 3 and config.image_config.image_to_rgb8 and not configuration.parse(given).image_config.image_to_rgb8
    )
    assert configuration.parse(given) == dataclasses.replace(
        config, batch=None, image_config=dataclasses.replace(config.image_config, image_to_rgb8=False)
    )


def test_a_pickled_client_has_the_same_config(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    client = DatagoClient(changed("source_config", rank="auto"))
    other = pickle.loads(pickle.dumps(client))
    ranks = {"rank": 1, "world_size": 3}
    assert other.config == dataclasses.replace(client.config, source_config=dataclasses.replace(client.config.source_config, **ranks))
    assert client.config.source_config.rank == "auto" == client.config.source_config.world_size


def test_secrets_are_in_no_repr():
    source = {"url": ["http://user:hunter2@host/a.tar?hunter2"], "auth_token": "hunter2"}
    top = configuration.parse({"source_type": "webdataset", "source_config": source})
    assert "hunter2" not in repr(top) and top.source_config.auth_token == "hunter2"
    assert top.source_config.url == ("http://user:hunter2@host/a.tar?hunter2",)


def test_json_text_and_dict_are_the_same():
    assert configuration.parse(json.dumps(GOOD)) == configuration.parse(GOOD) == configuration.parse(json.dumps(GOOD).encode())


def test_null_is_not_given():
    assert configuration.parse(changed(None, limit=None, image_config=None)) == configuration.parse(GOOD)


@pytest.mark.parametrize(
    "section, key, value, wanted",
    [
        (None, "limit", 0, "limit: got 0, wanted an integer of at least 1"),
        (None, "limit", 10.0, "limit: got 10.0, wanted an integer"),
        (None, "limit", True, "limit: got True"),
        (None, "log_period", 10**400, "log_period: got 1"),
        (None, "log_period", 1e300, "log_period: got 1e+300, wanted 0, or a number above 0, at most 1000000"),
        ("source_config", "root_path", "a\0b", "source_config.root_path: got 'a\\x00b', wanted a path"),
        ("image_config", "min_aspect_ratio", 10**400, "image_config.min_aspect_ratio: got 1"),
        (None, "samples_buffer_size", 0, "samples_buffer_size: got 0"),
        (None, "source_type", "File", "source_type: got 'File', wanted one of 'db', 'file'"),
        (None, "source_config", [], "source_config: got [], wanted an object"),
        (None, "source_config", None, "source_config: got None, wanted an object"),
        (None, "image_config", "none", "image_config: got 'none', wanted an object"),
        (None, "on_error", "ignore", "on_error: got 'ignore', wanted one of 'skip', 'raise'"),
        ("source_config", "root_path", 5, "source_config.root_path: got 5, wanted a path"),
        ("source_config", "root_path", "", "source_config.root_path: got '', wanted a path"),
        ("source_config", "random_sampling", 1, "source_config.random_sampling: got 1, wanted true or false"),
        ("source_config", "rank", "1", "source_config.rank: got '1', wanted an integer of at least 0"),
        ("source_config", "rank", -1, "source_config.rank: got -1"),
        ("source_config", "world_size", 0, "source_config.world_size: got 0, wanted an integer of at least 1"),
        ("source_config", "rank", 1, "source_config.rank: got 1, wanted less than world_size, which is 1"),
        ("image_config", "max_pixels", 0, "image_config.max_pixels: got 0"),
    ],
)
def test_wrong_values_are_named(section, key, value, wanted):
    with pytest.raises(ValueError) as caught:
        DatagoClient(changed(section, **{key: value}))
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    "image, wanted",
    [
        ({"resize": 0}, "image_config.resize: got 0, wanted pixels, or"),
        ({"resize": [224]}, "image_config.resize: got .224., wanted pixels, or"),
        ({"center_crop": [224, True]}, "image_config.center_crop: got"),
        ({"pad": {"fill": 0}}, "image_config.pad.size: missing"),
        ({"pad": {"size": 8, "where": "left"}}, "image_config.pad.where: got 'left', wanted one of 'center'"),
        ({"pad": {"size": 8, "fill": 256}}, "image_config.pad.fill: got 256, wanted a grey level"),
        ({"interpolation": "hamming"}, "image_config.interpolation: got 'hamming', wanted one of 'lanczos', 'bicubic'"),
        ({"mask_resample": "hamming"}, "image_config.mask_resample: got 'hamming'"),
        ({"resize": 8, "crop_and_resize": True}, "image_config.resize: wanted either that or crop_and_resize, got both"),
        ({"pad": 8, "random_resized_crop": 8}, "image_config.pad: wanted either that or random_resized_crop, got both"),
        ({"resize": 8, "pad": 16}, "image_config.resize: got 8 with pad, wanted .width, height., or center_crop too"),
        ({"resize": [8, 20], "pad": [40, 16]}, "image_config.resize: got .8, 20., wanted at most .40, 16."),
        ({"resize": 8, "center_crop": 17, "pad": 16}, "image_config.center_crop: got .17, 17., wanted at most .16, 16."),
    ],
)
def test_geometries_that_make_no_sense(image, wanted):
    with pytest.raises(ValueError, match=wanted):
        configuration.parse({"source_config": {"root_path": "/a"}, "source_type": "file", "image_config": image})


@pytest.mark.parametrize(
    "image, sizes",
    [
        ({"resize": 8}, []),
        ({"resize": [8, 6]}, [(8, 6)]),
        ({"resize": 8, "center_crop": 6}, [(6, 6)]),
        ({"resize": [8, 6], "pad": [9, 6]}, [(9, 6)]),
        ({"pad": 7}, [(7, 7)]),
        ({"random_resized_crop": [5, 4]}, [(5, 4)]),
        ({}, []),
    ],
)
def test_sizes_that_pictures_may_get(image, sizes):
    parsed = configuration.parse({"source_config": {"root_path": "/a"}, "source_type": "file", "image_config": image})
    assert geometry.sizes(parsed.image_config) == sizes


def test_missing_keys_are_named():
    with pytest.raises(ValueError, match="source_config: missing, wanted an object"):
        DatagoClient({"source_type": "file"})
    with pytest.raises(ValueError, match="source_config.root_path: missing, wanted a path"):
        DatagoClient({"source_type": "file", "source_config": {}})


@pytest.mark.parametrize("text, wanted", [("{", "not JSON"), ("[]", "got list"), (7, "got int"), (b"\xff", "not JSON")])
def test_not_an_object(text, wanted):
    with pytest.raises(ValueError, match=wanted):
        DatagoClient(text)


def test_unknown_key_warns_with_the_nearest():
    with pytest.warns(UserWarning, match="sample_buffer_size: unknown key, ignored; did you mean 'samples_buffer_size'") as caught:
        DatagoClient(changed(None, sample_buffer_size=5))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="source_config.random_sample: unknown key, ignored; did you mean 'random_sampling'"):
        DatagoClient(changed("source_config", random_sample=True))


def test_the_nearest_of_a_source_type():
    for given, meant in (
        ("folder", "file"),
        ("FILES", "file"),
        ("wds", "webdataset"),
        ("web-dataset", "webdataset"),
        ("webdatset", "webdataset"),
    ):
        with pytest.raises(ValueError, match=f"source_type: got '{given}', wanted one of .*; did you mean '{meant}'"):
            DatagoClient(changed(None, source_type=given))


@pytest.mark.parametrize(
    "given, said",
    [
        ({"source_config": {"root_path": "/a"}},
         "source_config.sources: missing, wanted comma-separated names; source_type is not given, and defaults to 'db'; root_path is a key of source_type 'file'"),
        ({"source_config": {"url": "a.tar", "rank": 0}}, "source_type is not given, and defaults to 'db'; url is a key of source_type 'webdataset'"),
        ({"source_config": {}}, "source_type is not given, and defaults to 'db'; did you mean 'source_type': 'file' or"),
        ({"source_type": "webdataset", "source_config": {"root_path": "/a"}},
         "source_config.url: missing, wanted a url, a path or a list of them; root_path is a key of source_type 'file'"),
        ({"source_type": "file", "source_config": {"root": "/a"}}, "root_path: missing, wanted a path; 'root' is not a key: did you mean 'root_path'?"),
        ({"source_type": "file", "root_path": "/a"}, "source_config: missing, wanted an object; root_path belongs into source_config"),
        ({"source_type": "file", "root_path": "/a", "source_config": {}},
         "source_config.root_path: missing, wanted a path; it is at the top level, but belongs into source_config"),
        (str(pathlib.Path(__file__)), "it names a file: wanted what is in it"),
        (pathlib.Path("/usr"), "wanted one that ends in .json, .toml, .yaml, .yml; it names a folder: wanted {\"source_type\": \"file\""),
        ("/usr", "it names a folder: wanted {\"source_type\": \"file\", \"source_config\": {\"root_path\": …}}"),
        (changed("source_config", root_path="\ud800"), "source_config.root_path: got '\\ud800', wanted a path"),
        (changed_to(source_type=numpy.array(["file", "db"])), "source_type: got array"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:root_path. unknown key")
def test_what_may_have_been_meant(given, said):
    with pytest.raises(ValueError) as caught:
        DatagoClient(given)
    assert said in str(caught.value)


def test_nothing_is_said_of_source_type_to_those_who_mean_the_database():
    with pytest.raises(ValueError, match="source_config.page_size: missing, wanted an integer of at least 1$"):
        DatagoClient({"source_config": {"sources": "a"}})


@pytest.mark.parametrize(
    "section, key, value, said",
    [
        (None, "crop_and_resize", True, "crop_and_resize: unknown key, ignored; did you mean image_config.crop_and_resize?"),
        (None, "rank", 1, "rank: unknown key, ignored; did you mean source_config.rank?"),
        (None, "world_size", 2, "world_size: unknown key, ignored; did you mean source_config.world_size?"),
        (None, "rank", "auto", "rank: unknown key, ignored; did you mean source_config.rank?"),
        ("source_config", "limit", 5, "source_config.limit: unknown key, ignored; did you mean limit at the top level?"),
        ("source_config", "url", "a.tar", "source_config.url: unknown key, ignored; it is a key of source_type 'webdataset'"),
        (
            "image_config",
            "scale",
            [0.5, 1],
            "image_config.scale: unknown key, ignored; did you mean image_config.random_resized_crop.scale?",
        ),
    ],
)
def test_keys_at_the_wrong_place(section, key, value, said):
    with pytest.warns(UserWarning, match="unknown key") as caught:
        DatagoClient(changed(section, **{key: value}))
    assert [str(one.message) for one in caught] == [said] and caught[0].filename == __file__


def test_a_rank_at_the_top_level_is_dead_where_source_config_has_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DatagoClient({**changed("source_config", rank=1, world_size=2), "rank": 1, "world_size": 2})


def test_dead_keys_of_older_examples_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DatagoClient(changed(None, prefetch_buffer_size=64, num_threads=4, rank=0, world_size=1, image_transform={}))
        DatagoClient(changed("source_config", shuffle=True))


def test_worker_count(monkeypatch):
    monkeypatch.delenv("DATAGO_MAX_TASKS", raising=False)
    cpus = environment.usable_cpus()
    assert environment.worker_count(10**12) == cpus
    assert environment.worker_count(1) == 1
    for text, wanted in [("7", 7), ("0", 1), ("junk", cpus), ("", cpus), ("-3", 1)]:
        monkeypatch.setenv("DATAGO_MAX_TASKS", text)
        assert environment.worker_count(100) == wanted
    monkeypatch.setenv("DATAGO_MAX_TASKS", "7")
    assert environment.worker_count(3) == 3


def test_cgroup_quotas(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "cpu.max").write_text("250000 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("400000 100000\n")
    unified, legacy = tmp_path / "unified", tmp_path / "legacy"
    unified.write_text("0::/a/b\n")
    assert list(environment._cgroup_quotas(str(tmp_path), str(unified))) == [2.5, 4.0]
    group = tmp_path / "cpu" / "jobs"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("150000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    legacy.write_text("5:cpuset:/\n4:cpu,cpuacct:/jobs\n")
    assert list(environment._cgroup_quotas(str(tmp_path), str(legacy))) == [1.5]
    assert list(environment._cgroup_quotas(str(tmp_path), str(tmp_path / "none"))) == []


@pytest.mark.parametrize(
    "given, place",
    [
        (changed(None, strict=True, sample_buffer_size=5), "sample_buffer_size: unknown key; did you mean 'samples_buffer_size'?"),
        (changed("source_config", root="/a") | {"strict": True}, "source_config.root: unknown key; did you mean 'root_path'?"),
        (changed("image_config", crop=1) | {"strict": True}, "image_config.crop: unknown key; did you mean"),
        (
            changed("image_config", random_resized_crop={"size": 8, "scales": 1}) | {"strict": True},
            "image_config.random_resized_crop.scales: unknown key; did you mean 'scale'?",
        ),
    ],
)
def test_strict_refuses_an_unknown_key(given, place):
    with pytest.raises(ValueError) as caught:
        configuration.parse(given)
    assert str(caught.value).startswith(place)
    with pytest.warns(UserWarning, match=place.partition(":")[0] + ": unknown key, ignored; did you mean"):
        assert not configuration.parse({**given, "strict": False}).strict


def test_strict_says_nothing_of_keys_that_are_known_to_mean_nothing():
    assert configuration.parse({**changed("source_config", shuffle=True), "strict": True, "num_threads": 8}).strict


def test_a_tilde_is_the_home_folder_in_paths_and_not_in_urls(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert configuration.parse(changed("source_config", root_path="~/a~b")).source_config.root_path == "/home/me/a~b"
    assert configuration.parse(changed_to(source_config={"root_path": pathlib.Path("~")})).source_config.root_path == "/home/me"
    assert configuration.parse(changed("source_config", root_path="a/~")).source_config.root_path == "a/~"
    urls = ["~/{0..3}.tar", "https://host/~me/a.tar"]
    given = {"url": urls, "cache_dir": "~/cache", "shard_index": "~/index.json"}
    source = configuration.parse({"source_type": "webdataset", "source_config": given}).source_config
    assert source.url == ("/home/me/{0..3}.tar", urls[1])
    assert (source.cache_dir, source.shard_index) == ("/home/me/cache", "/home/me/index.json")
    assert configuration.parse({"source_type": "webdataset", "source_config": {"url": "~/a.tar"}}).source_config.url == "/home/me/a.tar"


TOML = 'source_type = "file"\nlimit = 5\n[source_config]\nroot_path = "/pictures"\n[image_config.random_resized_crop]\nsize = [8, 9]\n'
YAML = "source_type: file\nlimit: 5\nsource_config: {root_path: /pictures}\nimage_config:\n  random_resized_crop: {size: [8, 9]}\n"


@pytest.mark.parametrize("name", ["a.json", "a.JSON", "a.toml", "a.yaml", "a.yml"])
def test_a_config_may_lie_in_a_file(tmp_path, monkeypatch, name):
    if "y" in name:
        pytest.importorskip("yaml")
    wanted = changed("image_config", random_resized_crop={"size": [8, 9]}) | {"limit": 5}
    texts = {"json": json.dumps(wanted), "toml": TOML, "yaml": YAML, "yml": YAML}
    (tmp_path / name).write_text(texts[name[2:].lower()])
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in (tmp_path / name, str(tmp_path / name), f"~/{name}"):
        assert configuration.parse(given) == configuration.parse(wanted) == DatagoClient(given).config
    assert DatagoBatchDataset(tmp_path / name, batch_size=2)._client.config.limit == 5


def test_a_config_file_that_is_none(tmp_path, monkeypatch):
    for name, text, said in (
        ("a.json", "{", "a.json: not JSON: Expecting property name"),
        ("a.toml", "limit = ", "a.toml: not TOML: Invalid value (at end of document)"),
        ("a.toml", b"\xff", "a.toml: not TOML: 'utf-8' codec can't decode"),
        ("a.yaml", "a: [", "a.yaml: not YAML: while parsing a flow node"),
        ("a.yml", "- 1", "config: got list, wanted a dict"),
    ):
        if "y" in name:
            pytest.importorskip("yaml")
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ValueError, match="^config: ") as caught:
            DatagoClient(tmp_path / name)
        assert said in str(caught.value)
    with pytest.raises(SourceError, match="config: No such file or directory: .*b.json") as caught:
        DatagoClient(tmp_path / "b.json")
    assert isinstance(caught.value, FileNotFoundError)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match=r"^config: YAML needs one more package \(pip install 'datago\[yaml\]'\)"):
        DatagoClient(str(tmp_path / "a.yaml"))
