import copy
import gc
import json
import warnings

import numpy
import pytest
from conftest import chunk, config, jpeg, photo, png, read, saved

from datago import DatagoClient, ImagePayload
from datago.engine._sample import Entry


def one(tmp_path, data, name="x.png", convert=False):
    path = tmp_path / name
    path.write_bytes(data)
    with DatagoClient(config(path)) as client:
        return client.get_sample_auto_convert(timeout=20) if convert else client.get_sample(timeout=20)


def test_the_fields_of_a_sample(tmp_path):
    sample = one(tmp_path, jpeg(20, 10), "a.jpg")
    assert (sample.id, sample.source, sample.attributes) == (str(tmp_path / "a.jpg"), "filesystem", "{}")
    assert (sample.duplicate_state, sample.masks, sample.additional_images, sample.latents) == (0, {}, {}, {})
    assert (sample.coca_embedding, sample.tags) == ([], [])
    image = sample.image
    assert (image.width, image.height, image.original_width, image.original_height) == (20, 10, 20, 10)
    assert (image.channels, image.bit_depth, image.is_encoded, len(image.data)) == (3, 8, False, 600)
    sample.tags.append("x")
    sample.id = "other"
    assert sample.tags == ["x"] and sample.id == "other"
    with pytest.raises(AttributeError):
        sample.attributes = "{}"


def test_the_dict_of_a_sample(tmp_path):
    sample = one(tmp_path, jpeg(20, 10), "a.jpg", convert=True)
    image = sample.pop("image")
    assert sample == {
        "id": str(tmp_path / "a.jpg"),
        "source": "filesystem",
        "duplicate_state": 0,
        "attributes": {},
        "tags": [],
        "coca_embedding": [],
        "latents": {},
        "masks": {},
        "additional_images": {},
    }
    assert (image.mode, image.size) == ("RGB", (20, 10))


@pytest.mark.parametrize("channels, mode", [(1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")])
def test_views_of_every_channel_count(tmp_path, channels, mode):
    picture = numpy.random.default_rng(1).integers(0, 256, (9, 13, channels), dtype=numpy.uint8)
    data = (
        saved(picture[:, :, 0] if channels == 1 else picture)
        if channels != 2
        else png(13, 9, 8, 4, b"".join(b"\0" + row.tobytes() for row in picture))
    )
    sample = one(tmp_path, data)
    array = sample.image.to_numpy_array()
    assert numpy.array_equal(array, picture)
    assert bytes(sample.image.data) == picture.tobytes()
    image = sample.image.to_pil_image()
    assert image.mode == mode and image.tobytes() == picture.tobytes()
    assert one(tmp_path, data, convert=True)["image"].tobytes() == picture.tobytes()


def test_arrays_are_writable_views(tmp_path):
    sample = one(tmp_path, saved(photo(8, 8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = sample.image.to_numpy_array()
        array[0, 0] = (1, 2, 3)
    assert bytes(sample.image.data[:3]) == b"\1\2\3"
    assert numpy.asarray(sample.image)[0, 0].tolist() == [1, 2, 3]


def test_pil_images_share_the_decoded_memory(tmp_path):
    path = tmp_path / "a.jpg"
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(400, 300, seed=i))
    with DatagoClient(config(tmp_path, samples_buffer_size=1)) as client:
        client.get_sample_auto_convert(timeout=20)
        image = client.get_sample_auto_convert(timeout=20)["image"]
    assert image.mode == "RGB" and image.getbands() == ("R", "G", "B")
    before = image.tobytes()
    changed = image.copy()
    image.putpixel((0, 0), (9, 9, 9))  # Pillow copies before it writes
    assert image.getpixel((0, 0)) == (9, 9, 9) and changed.tobytes() == before
    assert image.resize((40, 30)).size == (40, 30) and image.convert("L").mode == "L"
    assert not path.exists()


def test_a_reader_may_change_its_mind(tmp_path):
    """PIL images first, raw samples after: the pixels are the same, and `data` has three bytes a pixel."""
    for i in range(8):
        (tmp_path / f"{i}.png").write_bytes(saved(photo(30, 20, seed=i)))
    with DatagoClient(config(tmp_path, samples_buffer_size=1)) as client:
        assert client.get_sample_auto_convert(timeout=20)["image"].mode == "RGB"
        while (sample := client.get_sample(timeout=20)) is not None:
            wanted = photo(30, 20, seed=int(sample.id[-5]))
            array = sample.image.to_numpy_array()
            assert numpy.array_equal(array, wanted)
            array[0, 0] = (7, 8, 9)
            assert bytes(sample.image.data)[:3] == b"\7\10\11" and len(sample.image.data) == 30 * 20 * 3


def test_sixteen_bits(tmp_path):
    ramp = png(256, 4, 16, 0, (b"\0" + b"".join((i * 257).to_bytes(2) for i in range(256))) * 4)
    sample = one(tmp_path, ramp)
    assert sample.image.bit_depth == 16
    array = sample.image.to_numpy_array()
    assert array.dtype == numpy.uint16 and array.shape == (4, 256, 1)
    assert array[2, :, 0].tolist() == [i * 257 for i in range(256)]
    image = sample.image.to_pil_image()
    assert image.mode == "I;16" and image.getpixel((200, 1)) == 200 * 257
    colour = png(2, 1, 16, 2, b"\0" + bytes([255, 1, 128, 7, 0, 255, 1, 0, 2, 0, 3, 0]))
    sample = one(tmp_path, colour)
    assert sample.image.to_numpy_array().tolist() == [[[0xFF01, 0x8007, 0x00FF], [0x0100, 0x0200, 0x0300]]]
    assert list(sample.image.to_pil_image().tobytes()) == [255, 128, 0, 1, 2, 3]


def test_delegation_to_pil(tmp_path):
    image = one(tmp_path, saved(photo(12, 8))).image
    assert (image.size, image.mode) == ((12, 8), "RGB")
    assert image.convert("L").size == (12, 8)
    assert image().size == (12, 8) and image.get_payload() is image
    with pytest.raises(AttributeError):
        image.no_such_thing
    assert bool(image)
    assert "12 x 8" in repr(image)
    copy.copy(image.to_numpy_array())


def test_an_empty_payload():
    empty = ImagePayload()
    assert not empty and (empty.width, empty.height, empty.channels, empty.size) == (0, 0, 0, (0, 0))
    assert empty.data == b""
    for call in (empty.to_pil_image, empty.to_numpy_array):
        with pytest.raises(ValueError, match="no image"):
            call()
    assert not hasattr(empty, "mode")


def test_a_payload_can_be_filled_by_hand():
    payload = ImagePayload()
    payload.width, payload.height, payload.channels, payload.bit_depth = 2, 1, 3, 8
    payload.data = bytes(range(6))
    assert payload.to_numpy_array().tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert payload.to_pil_image().tobytes() == bytes(range(6))
    payload.is_encoded, payload.data = True, saved(photo(5, 4))
    assert payload.to_pil_image().format == "PNG"
    assert numpy.array_equal(payload.to_numpy_array(), photo(5, 4))


def test_what_native_code_relies_on_cannot_be_written(tmp_path):
    (tmp_path / "a.png").write_bytes(saved(photo(12, 8)))
    (tmp_path / "b.png").write_bytes(saved(photo(2, 2)))
    payload, small = (sample.image for sample in DatagoClient(config(tmp_path, ordered=True)))
    payload.to_pil_image()
    for name in ("width", "height", "original_width", "original_height", "channels", "bit_depth", "is_encoded"):
        with pytest.raises(AttributeError, match="read-only"):
            setattr(payload, name, 64)
        with pytest.raises(AttributeError):
            getattr(ImagePayload, name).__set__(payload, 64)
    assert numpy.array_equal(payload.to_numpy_array(), photo(12, 8))
    payload.data = memoryview(small.data).obj  # the memory of a smaller picture
    for call in (payload.to_numpy_array, payload.to_pil_image):
        with pytest.raises(ValueError, match="reshape"):
            call()
    payload.width, payload.height = 2, 2
    assert numpy.array_equal(payload.to_numpy_array(), photo(2, 2))
    entry = Entry("a", "s", [["image", None, b"x"]])
    entry.images.clear()
    assert entry.images == [("image", None, b"x")]
    with pytest.raises(ValueError):
        Entry("a", "s", [("image",)])


def test_buffers_outlive_sample_and_client(tmp_path):
    pictures = [photo(31 + i % 5, 20 + i % 3, seed=i) for i in range(200)]
    for i, picture in enumerate(pictures):
        (tmp_path / f"{i:03d}.png").write_bytes(saved(picture))
    client = DatagoClient(config(tmp_path))
    arrays, images = {}, {}
    for count, sample in enumerate(client):
        number = int(sample.id[-7:-4])
        if count % 2:
            arrays[number] = sample.image.to_numpy_array()
        else:
            images[number] = sample.image.to_pil_image()
    del sample, client
    gc.collect()
    assert len(arrays) + len(images) == 200
    for number, array in arrays.items():
        assert numpy.array_equal(array, pictures[number])
    for number, image in images.items():
        assert image.tobytes() == pictures[number].tobytes()


def test_transparency_kinds_of_png(tmp_path):
    palette = png(
        4, 1, 8, 3, b"\0" + bytes([0, 1, 2, 1]), chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255])) + chunk(b"tRNS", b"\0\x80")
    )
    assert one(tmp_path, palette).image.to_numpy_array().tolist() == [
        [[255, 0, 0, 0], [0, 255, 0, 128], [0, 0, 255, 255], [0, 255, 0, 128]]
    ]
    key = png(2, 1, 8, 2, b"\0" + bytes([255, 0, 0, 0, 0, 255]), chunk(b"tRNS", bytes([0, 255, 0, 0, 0, 0])))
    assert one(tmp_path, key).image.to_numpy_array().tolist() == [[[255, 0, 0, 0], [0, 0, 255, 255]]]


def test_stats_are_json(tmp_path):
    (tmp_path / "a.png").write_bytes(saved(photo(8, 8)))
    _, stats = read(config(tmp_path))
    assert json.loads(json.dumps(stats)) == stats
