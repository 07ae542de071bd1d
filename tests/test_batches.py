"""DatagoBatchDataset: what is in a batch, in which order, and what becomes of the rest."""

import gc
import importlib.util
import io
import json
import logging
import os
import subprocess
import sys
import tarfile

import numpy
import pytest
from conftest import check_accounts, config, ids, jpeg, photo
from PIL import Image

from datago import Batch, DatagoBatchDataset, DatagoClient, SampleError

CROP = {"crop_and_resize": True, "default_image_size": 96, "downsampling_ratio": 8, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SQUARE = {**CROP, "default_image_size": 64, "downsampling_ratio": 16, "min_aspect_ratio": 0.9, "max_aspect_ratio": 1.1}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """27 pictures of five shapes, 7 7 6 4 3 of each, every fourth of them grey."""
    root = tmp_path_factory.mktemp("shapes")
    sizes = [(90, 90)] * 7 + [(120, 70)] * 7 + [(70, 120)] * 6 + [(140, 75)] * 4 + [(75, 140)] * 3
    for i, (width, height) in enumerate(sizes):
        (root / f"{i:02d}.jpg").write_bytes(jpeg(width, height, seed=i, mode="L" if i % 4 == 3 else "RGB"))
    return root


def batches(root, size, image=CROP, **arguments):
    top = {key: arguments.pop(key) for key in ("seed", "epoch", "ordered", "limit", "on_error", "samples_buffer_size") if key in arguments}
    return DatagoBatchDataset(config(root, image_config=image, **top), size, **arguments)


def values(image):
    return image if isinstance(image, numpy.ndarray) else image.numpy()


def pictures(root, image=CROP, **top):
    """Name → RGB pixels, one by one."""
    client = DatagoClient(config(root, image_config={**image, "image_to_rgb8": True}, **top))
    return {os.path.basename(sample.id): sample.image.to_numpy_array() for sample in client}


def stats(dataset):
    found = dataset._running.stats()
    check_accounts(found)
    return found


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_every_picture_is_in_its_place(shapes, layout, ordered):
    alone, seen = pictures(shapes), []
    dataset = batches(shapes, 4, layout=layout, ordered=ordered)
    for batch in dataset:
        width, height = batch["bucket"]
        names = ids({"id": name} for name in batch["id"])
        assert batch["image"].shape == ((len(names), 3, height, width) if layout == "NCHW" else (len(names), height, width, 3))
        assert len(names) == len(batch["attributes"]) == len(batch["original_size"]) == len(batch["source"]) <= 4
        pixels = values(batch["image"])
        for name, one in zip(names, pixels if layout == "NHWC" else pixels.transpose(0, 2, 3, 1), strict=True):
            assert (one == alone[name]).all()
        seen.append(names)
    assert sorted(sum(seen, [])) == sorted(alone)
    assert sorted(map(len, seen)) == sorted([4, 3, 4, 3, 4, 2, 4, 3])
    assert stats(dataset)["delivered"] == 27 and dataset._running.stats()["in_flight"] == 0
    if ordered:
        assert seen == [ids({"id": name} for name in batch["id"]) for batch in dataset] and all(names == sorted(names) for names in seen)


@pytest.mark.parametrize("ordered", [False, True])
def test_remainder_drop_names_what_it_drops(shapes, caplog, ordered):
    dataset = batches(shapes, 4, remainder="drop", ordered=ordered)
    with caplog.at_level(logging.WARNING, "datago"):
        seen = []
        for batch in dataset:
            assert len(batch["id"]) == 4
            seen += batch["id"]
    found = stats(dataset)
    assert len(seen) == 16 and found["skipped"] == found["skips"]["remainder"] == 11 and found["delivered"] == 16
    assert {os.path.basename(name) for name in [*seen, *found["dropped"]]} == set(pictures(shapes))
    assert all(name in caplog.text for name in found["dropped"])


def test_floats_are_normalised(shapes):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    alone = pictures(shapes)
    for dtype, bound in (("float32", 2.0**-22), (torch.float16, 2.0**-11), ("bfloat16", 2.0**-8)):
        for batch in batches(shapes, 8, dtype=dtype, mean=mean, std=std):
            assert batch["image"].dtype == (dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype))
            exact = numpy.stack([(alone[os.path.basename(name)] / 255 - mean) / std for name in batch["id"]]).transpose(0, 3, 1, 2)
            assert (numpy.abs(batch["image"].double().numpy() - exact) <= numpy.abs(exact) * bound + 1e-7).all()
    whole = next(iter(batches(shapes, 4, dtype="float32", ordered=True)))
    assert whole["image"].min() >= 0 and 0.5 < whole["image"].max() <= 1


def test_one_channel(shapes):
    alone = pictures(shapes)
    for batch in batches(shapes, 8, channels=1):
        for name, one in zip(batch["id"], values(batch["image"]), strict=True):
            assert (one[0] == numpy.array(Image.fromarray(alone[os.path.basename(name)]).convert("L"))).all()


def test_a_broken_picture_in_every_batch(tmp_path):
    for i in range(20):
        (tmp_path / f"{i:02d}.jpg").write_bytes(jpeg(64, 64, seed=i) if i % 5 else b"\xff\xd8\xff")
    for ordered in (False, True):
        dataset = batches(tmp_path, 4, SQUARE, ordered=ordered)
        assert [len(batch["id"]) for batch in dataset] == [4, 4, 4, 4] and stats(dataset)["failed"] == 4
    assert list(batches(tmp_path, 1000, SQUARE, remainder="drop")) == []  # what was good was dropped, and counted
    dataset = batches(tmp_path, 4, SQUARE, on_error="raise", ordered=True)
    with pytest.raises(SampleError, match="00.jpg"):
        list(dataset)


def test_a_batch_larger_than_the_set(shapes):
    found = [len(batch["id"]) for batch in batches(shapes, 1000)]
    assert sorted(found) == [3, 4, 6, 7, 7]
    assert list(batches(shapes, 1000, remainder="drop")) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limit", [1, 5, 26, 27])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_limit_ends_batches_that_would_never_fill(shapes, limit, ordered):
    dataset = batches(shapes, 4, limit=limit, ordered=ordered, samples_buffer_size=1)
    assert sum(len(batch["id"]) for batch in dataset) == limit == stats(dataset)["delivered"]
    assert sum(len(batch["id"]) for batch in dataset) == limit


@pytest.mark.timeout(60)
def test_a_limit_does_not_count_failures(tmp_path):
    for i in range(30):
        (tmp_path / f"{i:02d}.jpg").write_bytes(jpeg(64, 64) if i % 3 else b"")
    dataset = batches(tmp_path, 4, SQUARE, limit=18)
    assert sum(len(batch["id"]) for batch in dataset) == 18


def test_few_may_wait(shapes):
    """Above most_waiting the fullest batch goes as it is."""
    sizes = [len(batch["id"]) for batch in batches(shapes, 8, most_waiting=10, ordered=True)]
    assert sum(sizes) == 27 and sizes[0] == 7 and max(sizes) < 8


def test_a_consumer_that_keeps_everything(shapes):
    alone, dataset = pictures(shapes), batches(shapes, 4)
    kept = list(dataset) + list(dataset)
    del dataset
    gc.collect()
    for batch in kept:
        for name, one in zip(batch["id"], values(batch["image"]), strict=True):
            assert (one.transpose(1, 2, 0) == alone[os.path.basename(name)]).all()


def test_tensors_are_writable_and_shared(shapes, recwarn):
    batch = next(iter(batches(shapes, 4)))
    image = batch["image"]
    assert numpy.from_dlpack(image).ctypes.data == image.data_ptr() if hasattr(image, "data_ptr") else image.ctypes.data
    image[0] = 1
    assert values(image)[0].max() == 1 and not recwarn.list


def test_leaving_in_mid_batch(shapes):
    dataset = batches(shapes, 4)
    for _ in range(20):
        for _batch in dataset:
            break
    iterator = iter(dataset)
    next(iterator)
    del iterator, dataset
    gc.collect()
    assert sum(len(batch["id"]) for batch in batches(shapes, 4)) == 27


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "batch_size: got 0, wanted an integer of at least 1"),
        ({"size": "8"}, "batch_size: got '8'"),
        ({"size": True}, "batch_size: got True"),
        ({"layout": "CHW"}, "layout: got 'CHW', wanted 'NCHW' or 'NHWC'"),
        ({"remainder": "pad"}, "remainder: got 'pad'"),
        ({"dtype": "float64"}, "dtype: got 'float64', wanted one of uint8, float16, bfloat16, float32"),
        ({"dtype": "float32", "std": 0}, "std: got 0, wanted nothing that is 0"),
        ({"dtype": "float32", "std": [1, 0, 1]}, "std: .*wanted nothing that is 0"),
        ({"dtype": "float32", "mean": [0.5, 0.5]}, "mean: got .0.5, 0.5., wanted a finite number, or 3 of them"),
        ({"dtype": "float32", "mean": float("nan")}, "mean: got nan"),
        ({"mean": 0.5}, "mean, std: .*wanted none with dtype uint8"),
        ({"channels": 4}, "channels: got 4, wanted 1 or 3"),
        ({"channels": 1.0}, "channels: got 1.0, wanted 1 or 3"),
        ({"channels": True}, "channels: got True, wanted 1 or 3"),
        ({"size": float("nan")}, "batch_size: got nan"),
        ({"size": 2**20 + 1}, "batch_size: got 1048577, wanted at most 1048576"),
        ({"dtype": "float32", "mean": 10**400}, "mean: got 1000.*, wanted a finite number"),
        ({"dtype": "float32", "mean": True}, "mean: got True, wanted a finite number"),
        ({"dtype": "float32", "mean": object()}, "mean: got <object"),
        ({"dtype": "float32", "mean": "012"}, "mean: got '012'"),
        ({"dtype": "float32", "std": [1, numpy.float16("inf"), 1]}, "std: got .*, wanted a finite number"),
        ({"most_waiting": True}, "most_waiting: got True"),
        ({"most_waiting": 1.5}, "most_waiting: got 1.5"),
        ({"classes": ""}, "classes: got ''"),
        ({"most_waiting": 0}, "most_waiting: got 0"),
        ({"image": {}}, "image_config: a batch wants crop_and_resize, random_resized_crop, resize"),
        ({"image": {**CROP, "pre_encode_images": True}}, "pre_encode_images: got true"),
        ({"image": {**CROP, "horizontal_flip": 1.5}}, "image_config.horizontal_flip: got 1.5, wanted a number from 0 to 1"),
        ({"image": {"random_resized_crop": 0}}, "image_config.random_resized_crop: got 0"),
        ({"image": {"random_resized_crop": {"size": 8, "scale": [0.5, 2]}}}, "image_config.random_resized_crop.scale: got .0.5, 2."),
        ({"image": {"random_resized_crop": {"size": 8, "ratio": [2, 1]}}}, "image_config.random_resized_crop.ratio"),
        ({"image": {"random_resized_crop": {}}}, "image_config.random_resized_crop.size: missing"),
        ({"image": {**CROP, "random_resized_crop": 8}}, "either that or crop_and_resize, got both"),
    ],
)
def test_wrong_arguments(shapes, arguments, message):
    arguments = dict(arguments)
    with pytest.raises(ValueError, match=message):
        batches(shapes, arguments.pop("size", 4), arguments.pop("image", CROP), **arguments)


@pytest.mark.parametrize(
    "mean, std, said",
    [
        ([123.7, 116.3, 103.5], [58.4, 57.1, 57.4], r"mean: got \(123.7, 116.3, 103.5\), wanted 0 to 1: .*divide by 255"),
        ([0.5, 1.01, 0], None, "mean: got"),
        (-0.1, None, "mean: got"),
        (0.5, [0.5, 57.1, 0.5], r"std: got \(0.5, 57.1, 0.5\), wanted above 0 to 1"),
        (None, -0.5, "std: got"),
    ],
)
def test_a_mean_of_another_scale_warns_and_is_read_by_nobody(shapes, mean, std, said):
    with pytest.warns(UserWarning, match=f"^{said}.*; reading a batch raises ValueError$") as caught:
        dataset = DatagoBatchDataset(config(shapes, image_config=CROP), 4, dtype="float32", mean=mean, std=std)
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match=said):
        iter(dataset)
    with pytest.raises(ValueError, match=said):
        DatagoBatchDataset(config(shapes, image_config=CROP, strict=True), 4, dtype="float32", mean=mean, std=std)


@pytest.mark.parametrize("mean, std", [(0, 1), (0.5, 0.5), (1, 1 / 255), ([123.7 / 255, 0, 1], [1e-6, 1, 0.2])])
def test_a_mean_of_our_scale_is_taken(shapes, mean, std):
    assert next(iter(batches(shapes, 2, limit=2, dtype="float32", mean=mean, std=std)))["image"].shape[0] <= 2


def test_a_batch_has_the_keys_of_its_type(shapes):
    required, optional = Batch.__required_keys__, Batch.__optional_keys__
    assert "target" in optional
    batch = next(iter(batches(shapes, 4, limit=4)))
    assert required == set(batch)  # and no target: default_collate takes no None
    if importlib.util.find_spec("torch"):
        from torch.utils.data import default_collate

        assert default_collate([batch, batch])["image"].shape == (2, *batch["image"].shape)


# ---- what is drawn ----


def drawn(root, image, **top):
    return {
        os.path.basename(name): one.tobytes()
        for batch in batches(root, 5, image, **top)
        for name, one in zip(batch["id"], values(batch["image"]), strict=True)
    }


@pytest.mark.parametrize("image", [{**CROP, "random_crop": True}, {**CROP, "horizontal_flip": 0.5}, {"random_resized_crop": 32}])
def test_same_seed_same_pixels(shapes, image, monkeypatch):
    first = drawn(shapes, image, seed=1)
    monkeypatch.setenv("DATAGO_MAX_TASKS", "7")
    assert first == drawn(shapes, image, seed=1, ordered=True)
    assert first == {name: one.transpose(2, 0, 1).tobytes() for name, one in pictures(shapes, image, seed=1).items()}
    for other, least in ({"seed": 2}, 5), ({"seed": 1, "epoch": 1}, 5), ({}, 1):  # without a seed it is chance how many differ
        assert sum(first[name] != one for name, one in drawn(shapes, image, **other).items()) >= least


def test_a_draw_does_not_depend_on_where_the_folder_lies(shapes, tmp_path):
    os.symlink(shapes, tmp_path / "elsewhere")
    image = {"random_resized_crop": 32, "horizontal_flip": 0.5}
    assert drawn(tmp_path / "elsewhere", image, seed=1) == drawn(shapes, image, seed=1)


def test_flips_are_mirror_images(shapes):
    straight, flipped = pictures(shapes), pictures(shapes, {**CROP, "horizontal_flip": 1})
    assert all((one[:, ::-1] == flipped[name]).all() for name, one in straight.items())
    some = pictures(shapes, {**CROP, "horizontal_flip": 0.5}, seed=3)
    count = sum((some[name] == one[:, ::-1]).all() for name, one in straight.items())
    assert 4 < count < 23


def test_a_box_as_large_as_the_picture_is_a_resize(tmp_path):
    pixels = photo(80, 60)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = {"random_resized_crop": {"size": [40, 30], "scale": [1, 1], "ratio": [4 / 3, 4 / 3]}, "resize_mode": "exact"}
    batch = next(iter(batches(tmp_path, 1, image)))
    assert batch["bucket"] == (40, 30)
    wanted = numpy.array(Image.fromarray(pixels).resize((40, 30), Image.LANCZOS))
    assert (values(batch["image"])[0].transpose(1, 2, 0) == wanted).all()


# ---- what belongs to a picture ----


def test_targets_of_folders_are_those_of_image_folder(tmp_path):
    for name in ("zebra", "Ant", "cow", "empty"):
        (tmp_path / name / "deep").mkdir(parents=True)
        if name != "empty":
            (tmp_path / name / "1.jpg").write_bytes(jpeg(32, 32))
            (tmp_path / name / "deep" / "2.jpg").write_bytes(jpeg(32, 32))
    dataset = batches(tmp_path, 4, SQUARE, classes="folder")
    assert dataset.classes == {"Ant": 0, "cow": 1, "empty": 2, "zebra": 3}
    for batch in dataset:
        assert [dataset.classes[os.path.relpath(name, tmp_path).split("/")[0]] for name in batch["id"]] == batch["target"].tolist()
        assert str(batch["target"].dtype).endswith("int64")


def shard(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return {"source_type": "webdataset", "source_config": {"url": str(path)}, "image_config": SQUARE, "ordered": True}


def mask(level):
    out = io.BytesIO()
    Image.new("L", (64, 64), level).save(out, "PNG")
    return out.getvalue()


def test_masks_and_attributes_stay_with_their_picture(tmp_path):
    members = []
    for i in range(6):
        members += [(f"{i}.jpg", jpeg(64, 64, seed=i)), (f"{i}.seg.png", mask(40 * i)), (f"{i}.cls", str(i).encode())]
        members += [(f"{i}.edge.png", mask(i))] if i % 2 else []
    dataset = DatagoBatchDataset(shard(tmp_path / "a.tar", members), 4, classes="cls")
    for first, batch in zip((0, 4), dataset, strict=True):
        count = len(batch["id"])
        assert batch["id"] == [str(first + i) for i in range(count)] and batch["target"].tolist() == [first + i for i in range(count)]
        assert batch["masks"]["seg"].shape == (count, 1, 64, 64)
        assert [int(one.max()) for one in batch["masks"]["seg"]] == [40 * (first + i) for i in range(count)]
        (edges,) = batch["additional_images"].values() if len(batch["additional_images"]) == 1 else [[]]
        for name, arrays in batch["additional_images"].items():
            owner = int(name[0])
            assert [array is not None for array in arrays] == [first + i == owner for i in range(count)]
            assert arrays[owner - first].max() == owner
        assert isinstance(edges, list)


def test_a_sample_without_an_image_is_a_failure(tmp_path):
    members = [("a.jpg", jpeg(64, 64)), ("b.seg.png", mask(3)), ("c.jpg", jpeg(64, 64)), ("c.cls", b"x")]
    dataset = DatagoBatchDataset(shard(tmp_path / "a.tar", members), 4)
    assert [batch["id"] for batch in dataset] == [["a", "c"]]
    assert stats(dataset)["failures"] == {"sample": 1} and "no image" in stats(dataset)["last_failures"][0]["text"]


# ---- epochs ----


def test_a_state_belongs_to_the_batches_that_were_handed_out(shapes):
    for ordered in (False, True):
        dataset = batches(shapes, 4, seed=1, ordered=ordered)
        iterator = iter(dataset)
        first = [name for _ in range(3) for name in next(iterator)["id"]]
        again = batches(shapes, 4, seed=1, ordered=ordered)
        again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        rest = [name for batch in again for name in batch["id"]]
        assert len(first) + len(rest) == 27 == len({*first, *rest})
        assert sum(len(batch["id"]) for batch in again) == 27


def test_length(shapes):
    assert len(batches(shapes, 4, {"random_resized_crop": 16})) == 7 == len(list(batches(shapes, 4, {"random_resized_crop": 16})))
    assert len(batches(shapes, 4, {"random_resized_crop": 16}, remainder="drop")) == 6
    with pytest.raises(TypeError, match="depends on which pictures go to which bucket"):
        len(batches(shapes, 4))


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("error", "ignore:This DataLoader will create", "ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("remainder", ["keep", "drop"])
def test_length_with_workers(shapes, remainder):
    """27 pictures: each worker has a short batch of its own, and a loader that gets more batches than it was told warns."""
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    for workers, top in ((0, {}), (2, {}), (3, {}), (2, {"limit": 21}), (2, {"rank": 1, "world_size": 2, "uneven": "pad"})):
        dataset = DatagoBatchDataset(config(shapes, image_config={"random_resized_crop": 16}, **top), 4, remainder=remainder)
        loader = data.DataLoader(dataset, batch_size=None, num_workers=workers)
        length = len(loader)
        assert length == sum(1 for _ in loader), (workers, top)
    shards = {
        "source_type": "webdataset",
        "source_config": {"url": "/a/{0..3}.tar"},
        "limit": 8,
        "image_config": {"random_resized_crop": 16},
    }
    assert len(DatagoBatchDataset(shards, 4)) == 2
    with pytest.raises(TypeError, match="does not count each worker's"):
        len(data.DataLoader(DatagoBatchDataset(shards, 4), batch_size=None, num_workers=2))


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_of_a_loader(shapes):
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    for workers in (0, 2):
        seen = [name for batch in data.DataLoader(batches(shapes, 4), batch_size=None, num_workers=workers) for name in batch["id"]]
        assert len(seen) == 27 == len(set(seen))


WITHOUT = """
import json, sys
sys.modules["torch"] = None  # what an import finds where it is not installed
from datago import DatagoBatchDataset
dataset = DatagoBatchDataset(json.loads(sys.argv[1]), 4, dtype="float16", classes="folder")
first = next(iter(dataset))
print(type(first["image"]).__name__, first["image"].dtype, first["image"].shape[:2], first["target"].dtype)
try:
    DatagoBatchDataset(json.loads(sys.argv[1]), 4, dtype="bfloat16")
except ValueError as error:
    print(error)
"""


def test_without_torch_they_are_numpy_arrays(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(4):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(jpeg(32, 32))
    command = [sys.executable, "-c", WITHOUT, json.dumps(config(tmp_path, image_config=SQUARE))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0] == "ndarray float16 (4, 3) int64", done.stderr
    assert lines[1] == "dtype: got 'bfloat16', wanted another one: numpy has no bfloat16, and torch is not installed"
