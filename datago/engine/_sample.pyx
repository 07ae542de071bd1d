# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""What a source knows of a sample before its images are decoded, and what the reader gets of it afterwards."""
import json
import os

from datago.engine._item cimport ITEM_BATCH, ITEM_FAILURE, Batch, Item
from datago.engine._payload cimport ImagePayload, LatentPayload, adopt, payload_of
from datago.engine._pixels cimport dg_status_name


cdef class Sample:
    """One sample of the stream.

    Attributes:
        id, source: str.
        attributes: JSON text of an object.
        duplicate_state: int.
        image: ImagePayload, falsy if there is none.
        masks, additional_images: dict of str to ImagePayload.
        latents: dict of str to LatentPayload.
        coca_embedding: list of float.  tags: list of str.
    """

    def __repr__(self):
        return f"<Sample {self.id!r} from {self.source!r}: {self.image!r}>"


cdef class SampleBatch:
    """Samples of one bucket, as the pool hands them out. datago.batches makes tensors of it.

    Attributes:
        width, height: pixels, of every picture.
        pixels: writable bytes: the pictures one after the other, in the layout and dtype of the batch. Memory for a full batch was taken,
            so there may be room behind the last picture.
        samples: list of Sample, in their order in `pixels`; their `image` is empty but for its original size.
        targets: list of their classes, integers; zeros where samples have none.
        valid: list of bool: False where a sample repeats one that counts.
        dropped: True if it did not get full and `remainder` is "drop".
    """


cdef class Failure:
    """An item that gave no sample. `on_error` is called with it, and a source yields it in the place of a sample.

    Attributes:
        name: the path; `shard:key`; `source:id`; or a shard's or folder's own name. Urls are without their query.
        reason: a key of stats()["failures"].
        text: what is wrong, on one line; may be empty.
        position: as in Entry; only sources use it.
    """

    def __init__(self, name, str reason, str text):
        self.name, self.reason, self.text, self.position = name, reason, text, -1

    def __repr__(self):
        return f"<Failure {self.name!r}: {self.reason}: {self.text}>"


cdef class Entry:
    """What a source knows of one sample before its images are decoded.

    Args:
        id, source: str; together they name the sample in failures.
        images: (role, name, data) of each: role "image" (at most one; name is not used), "mask" or "additional"; data bytes-like.
            The first decides the bucket. Its data may be a str instead, the path of a file, which a worker thread reads; the entry is then
            named by that path in failures, and what is drawn for it depends on the path as for a pair of path and position.
        attributes: JSON text of an object.
        duplicate_state, tags, coca_embedding: as in Sample.
        latents: dict of str to bytes.

    `position` is the sample's number in its epoch, as the source counts (see Progress), -1 until it says so.
    """

    def __init__(self, id, source, images, attributes="{}", int duplicate_state=0, tags=(), coca_embedding=(), latents=None):
        self.id, self.source, self.attributes = id, source, attributes
        self._images = tuple([(role, name, data) for role, name, data in images])
        self.duplicate_state, self.tags, self.coca_embedding = duplicate_state, list(tags), list(coca_embedding)
        self.latents = latents or {}
        self.position = -1

    @property
    def images(self):
        return list(self._images)

    @property
    def path(self):
        """The path (str) of the file that has its first image; None where the entry has the bytes."""
        data = self._images[0][2] if self._images else None
        return data if isinstance(data, str) else None

    @property
    def name(self):
        """What a failure calls it."""
        return self.path or f"{self.source}:{self.id}"

    def own(self):
        """Copies the images' bytes: a slice of a larger block would keep the whole block alive."""
        self._images = tuple([(role, name, data if isinstance(data, str) else bytes(data)) for role, name, data in self._images])


def plain_attributes(str text):
    """Attributes as plain Python values, of their JSON text. A shard's JSON member stands in there as text, and is parsed, too; text that
    is no JSON stays text."""
    if text == "{}":
        return {}
    found = json.loads(text)
    for name, value in found.items():
        if isinstance(value, str) and (name == "json" or name.endswith(".json")):
            try:
                found[name] = json.loads(value)
            except (ValueError, RecursionError):
                pass
    return found


def auto_convert(Sample sample):
    """The sample as a dict of plain Python values (datago.typed.SampleDict)."""
    cdef ImagePayload image = sample.image
    return {
        "id": sample.id,
        "source": sample.source,
        "duplicate_state": sample.duplicate_state,
        "attributes": plain_attributes(sample.attributes),
        "tags": sample.tags,
        "coca_embedding": sample.coca_embedding,
        "latents": {k: {"data": v.data, "len": v.len} for k, v in sample.latents.items()} if sample.latents else {},
        "image": image.to_pil_image() if image else None,
        "masks": {k: v.to_pil_image() for k, v in sample.masks.items()} if sample.masks else {},
        "additional_images":
            {k: v.to_pil_image() for k, v in sample.additional_images.items()} if sample.additional_images else {},
    }


cdef object item_result(Item *item, bint convert):
    if item.kind == ITEM_BATCH:
        return batch_result(item.batch)
    try:
        if item.kind == ITEM_FAILURE:
            return Failure(os.fsdecode(item.name), (<bytes>dg_status_name(item.error.status)).decode(),
                           (<bytes>item.error.text).decode("utf-8", "replace"))
        return item_sample(item, convert)
    except MemoryError:
        return Failure(os.fsdecode(item.name), "no_memory", "no memory to hand it out")
    except Exception as error:
        return Failure(os.fsdecode(item.name), "sample", f"it cannot be handed out: {type(error).__name__}: {error}")


cdef object item_sample(Item *item, bint convert):
    cdef Sample sample
    cdef Entry entry
    cdef int i
    sample = Sample.__new__(Sample)
    sample.masks, sample.additional_images, sample.latents = {}, {}, {}
    if item.entry == NULL:
        sample.id = os.fsdecode(item.name)
        sample.source = "filesystem"
        sample.attributes = "{}"
        sample.coca_embedding, sample.tags = [], []
        sample.image = payload_of(&item.parts[0].picture)
    else:
        entry = <Entry>item.entry
        sample.id, sample.source, sample.attributes = entry.id, entry.source, entry.attributes
        sample.duplicate_state = entry.duplicate_state
        sample.coca_embedding, sample.tags = entry.coca_embedding, entry.tags
        sample.image = ImagePayload.__new__(ImagePayload)
        (<ImagePayload>sample.image)._data = b""
        for key, data in entry.latents.items():
            sample.latents[key] = LatentPayload(bytes(data))
        for i in range(item.part_count):
            place_image(sample, entry._images[i][0], entry._images[i][1], payload_of(&item.parts[i].picture))
    return auto_convert(sample) if convert else sample


cdef SampleBatch batch_result(Batch *batch):
    cdef SampleBatch result = SampleBatch.__new__(SampleBatch)
    cdef int i
    result.width, result.height, result.dropped = batch.width, batch.height, batch.dropped
    result.samples, result.targets, result.valid = [], [], []
    for i in range(batch.taken):
        result.targets.append(batch.items[i].target)
        result.valid.append(not batch.items[i].repeated)
        result.samples.append(item_sample(batch.items[i], False))
    result.pixels = adopt(&batch.memory)
    return result


cdef int place_image(Sample sample, role, name, ImagePayload image) except -1:
    if role == "image":
        sample.image = image
    elif role == "mask":
        sample.masks[name] = image
    else:
        sample.additional_images[name] = image
    return 0
