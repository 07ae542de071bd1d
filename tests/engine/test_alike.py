"""The pictures of a sample are cut, resized, turned and mirrored alike: image, mask and additional image, whatever else is asked for."""

import io

import numpy
import pytest
from conftest import config as files
from conftest import photo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tars import tar
from test_orientation import exif

from datago import DatagoBatchDataset, DatagoClient

BUCKETS = {"crop_and_resize": True, "default_image_size": 64, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
WAYS = st.one_of(
    st.just({}),
    st.just(BUCKETS),
    st.just({**BUCKETS, "random_crop": True}),
    st.fixed_dictionaries({"random_resized_crop": st.sampled_from([48, {"size": [40, 56], "scale": [0.2, 0.9]}])}),
    st.just({"resize": 56, "center_crop": [48, 52], "interpolation": "bilinear"}),
    st.just({"resize": [50, 40], "interpolation": "bicubic"}),
    st.just({"pad": {"size": [70, 60], "where": "bottom_right"}}),
    st.just({"resize": 44, "center_crop": 60, "pad": {"size": 72, "where": "top_left"}}),
)


def saved(pixels, format, orientation=1):
    out = io.BytesIO()
    options = {"JPEG": {"quality": 98, "subsampling": 0}, "PNG": {}, "WEBP": {"lossless": True}}[format]
    Image.fromarray(pixels).save(out, format, exif=b"Exif\0\0" + exif("MM", orientation), **options)
    return out.getvalue()


def sample(seed, format, orientation):
    """Image, mask and additional image of the same pixels: large, smooth and of no symmetry. The mask is grey."""
    y, x = numpy.mgrid[0:96, 0:120]
    pixels = numpy.stack([x * 2, y * 2, x + y], 2).astype(numpy.uint8) if seed % 2 else photo(120, 96, seed)
    pixels = numpy.ascontiguousarray(pixels if seed % 3 else pixels.swapaxes(0, 1))
    grey = numpy.asarray(Image.fromarray(pixels).convert("L"))
    return saved(pixels, format, orientation), saved(grey, "PNG", orientation), saved(pixels, "PNG", orientation)


def single(value):
    """A payload's pixels, encoded or not."""
    array = numpy.asarray(Image.open(io.BytesIO(value.data))) if value.is_encoded else value.to_numpy_array()
    return array.reshape(*array.shape[:2], -1).astype(int)


def luma(array):
    return array if array.shape[2] == 1 else numpy.rint(array[:, :, :3] @ [0.299, 0.587, 0.114])[:, :, None]


def close(left, right, tolerance):
    assert left.shape[:2] == right.shape[:2]
    difference = numpy.abs(luma(left) - luma(right)).mean()
    assert difference <= tolerance, difference
    for other in (left[:, ::-1], left[::-1], left[::-1, ::-1]):  # or the test sees nothing
        assert numpy.abs(luma(other) - luma(right)).mean() > difference


def of_sample(groups, i, layout):
    """The one picture of its kind that sample i has. Shards name each after its member, so a batch of several samples has a list for
    every name, and one of a single sample a tensor."""
    ((group, found),) = [(group, group[i]) for group in groups.values() if group[i] is not None]
    array = numpy.asarray(found, float)
    return array if isinstance(group, list) or layout == "NHWC" else array.transpose(1, 2, 0)


class Shards:
    """A shard of six samples, each with a mask and an additional image."""

    def __init__(self, folder, format, orientation):
        self.path = folder / "a.tar"
        suffix = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[format]
        members = []
        for i in range(6):
            image, mask, additional = sample(i, format, orientation)
            members += [(f"s{i}.{suffix}", image), (f"s{i}.seg.png", mask), (f"s{i}.depth.png", additional)]
        self.path.write_bytes(tar(members))
        self.suffix = suffix

    def config(self, image, **top):
        source = {"url": str(self.path), "reference_image_type": self.suffix, "mask_suffixes": ["seg.png"]}
        return {"source_type": "webdataset", "source_config": source, "image_config": image, **top}


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    way=WAYS, flip=st.sampled_from([0, 0.5, 1]), format=st.sampled_from(["JPEG", "PNG", "WEBP"]), orientation=st.integers(1, 8),
    apply=st.booleans(), mode=st.sampled_from(["fast", "exact"]), resample=st.sampled_from(["nearest", "lanczos", "bilinear"]),
    encode=st.sampled_from([None, "png", "jpeg"]), layout=st.sampled_from(["NCHW", "NHWC"]),
    dtype=st.sampled_from(["uint8", "float16", "float32"]), channels=st.sampled_from([1, 3]), ordered=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
@pytest.mark.timeout(300)
def test_pictures_of_a_sample_are_alike(
    tmp_path, way, flip, format, orientation, apply, mode, resample, encode, layout, dtype, channels, ordered, seed
):
    shards = Shards(tmp_path, format, orientation)
    image = {**way, "horizontal_flip": flip, "apply_exif_orientation": apply, "resize_mode": mode, "mask_resample": resample}
    encoding = {} if encode is None else {"pre_encode_images": True, "encode_format": encode}
    alone = {one.id: one for one in DatagoClient(shards.config({**image, "image_to_rgb8": True, **encoding}, seed=seed))}
    assert len(alone) == 6
    for one in alone.values():
        pixels, (mask,), (additional,) = single(one.image), one.masks.values(), one.additional_images.values()
        close(pixels, single(additional), 4)
        close(pixels, single(mask), 8)
    if not way:
        return  # nothing makes pictures one size
    seen = 0
    for batch in DatagoBatchDataset(shards.config(image, seed=seed, ordered=ordered), 3, layout=layout, dtype=dtype, channels=channels):
        for i, name in enumerate(batch["id"]):
            pixels = numpy.asarray(batch["image"][i], float)
            pixels = pixels.transpose(1, 2, 0) if layout == "NCHW" else pixels
            mask, additional = (of_sample(batch[kind], i, layout) for kind in ("masks", "additional_images"))
            pixels = numpy.rint(pixels * (1 if dtype == "uint8" else 255))
            if encode is None:
                assert (mask == single(next(iter(alone[name].masks.values())))).all()
                assert (additional == single(next(iter(alone[name].additional_images.values())))).all()
                assert (pixels == single(alone[name].image)).all() or channels == 1
            close(pixels, additional, 4)
            close(pixels, mask, 8)
            seen += 1
    assert seen == 6


@pytest.mark.timeout(60)
@pytest.mark.parametrize("flip", [0, 1])
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_batches_of_files_are_their_samples(tmp_path, format, flip):
    for i in range(6):
        (tmp_path / f"{i}.{format.lower()}").write_bytes(sample(i, format, 1 + i)[0])
    image = {**BUCKETS, "random_crop": True, "horizontal_flip": flip, "image_to_rgb8": True}
    alone = {one.id: single(one.image) for one in DatagoClient(files(tmp_path, image_config=image, seed=3))}
    straight = {one.id: single(one.image) for one in DatagoClient(files(tmp_path, image_config={**image, "horizontal_flip": 0}, seed=3))}
    count = 0
    for batch in DatagoBatchDataset(files(tmp_path, image_config=image, seed=3), 2, layout="NHWC"):
        for name, pixels in zip(batch["id"], numpy.asarray(batch["image"]), strict=True):
            assert (pixels == alone[name]).all() and (pixels == straight[name][:, :: -1 if flip else 1]).all()
            count += 1
    assert count == 6
