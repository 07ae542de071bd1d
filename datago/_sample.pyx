# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Sample and ImagePayload: what a reader gets. The pixels are views of the buffer that the decoder filled; none is copied."""
import json
import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject_GenericSetAttr
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint16_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from datago._pixels cimport (
    DG_OK, DG_ROLE_ADDITIONAL, DG_ROLE_IMAGE, DG_ROLE_MASK, dg_buffer, dg_buffer_free, dg_depth_16_to_8, dg_image, dg_image_alloc,
    dg_image_free, dg_picture, dg_rgb_to_rgbx, dg_rgbx_to_rgb, dg_status, dg_status_find, dg_status_name,
)

cdef extern from *:
    """
    /* The Arrow C data interface, as its specification declares it: how Pillow borrows memory as an RGB image. */
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    #include <stdint.h>
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    """
    struct ArrowSchema:
        const char *format
        void (*release)(ArrowSchema *) noexcept
    struct ArrowArray:
        int64_t length, n_buffers
        const void **buffers
        void (*release)(ArrowArray *) noexcept
        void *private_data


# ---- pixels ---------------------------------------------------------------------------------------------------------

cdef class PixelBuffer:
    """The memory that a worker filled: writable bytes, given back to the pool when the last view of it is gone."""

    cdef dg_buffer buffer

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.buffer.data, self.buffer.size, 0, flags)

    def __len__(self):
        return self.buffer.size

    def __dealloc__(self):
        dg_buffer_free(&self.buffer)


cdef PixelBuffer adopt(dg_buffer *buffer):
    cdef PixelBuffer adopted = PixelBuffer.__new__(PixelBuffer)
    adopted.buffer = buffer[0]
    buffer[0] = dg_buffer(NULL, 0, 0, NULL)
    return adopted


cdef void release_schema(ArrowSchema *schema) noexcept:
    schema.release = NULL


cdef void release_array(ArrowArray *array) noexcept:
    array.release = NULL
    Py_DECREF(<object>array.private_data)


cdef void free_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


cdef void free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    PyMem_RawFree(array.buffers)
    PyMem_RawFree(array)


cdef class Lender:
    """Lends a PixelBuffer to Pillow by the Arrow C data interface (`Image.fromarrow`): flat uint8, four a pixel or one."""

    cdef PixelBuffer pixels

    def __cinit__(self, PixelBuffer pixels not None):
        self.pixels = pixels

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowSchema *schema = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
        cdef ArrowArray *array = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
        cdef const void **buffers = <const void **>PyMem_RawCalloc(2, sizeof(void *))
        if schema == NULL or array == NULL or buffers == NULL:
            PyMem_RawFree(schema)
            PyMem_RawFree(array)
            PyMem_RawFree(buffers)
            raise MemoryError
        schema.format = "C"
        schema.release = release_schema
        buffers[1] = self.pixels.buffer.data  # buffers[0] would be the validity bitmap
        array.length = self.pixels.buffer.size
        array.n_buffers = 2
        array.buffers = buffers
        array.release = release_array
        array.private_data = <void *>self.pixels
        Py_INCREF(self.pixels)
        schema_capsule = PyCapsule_New(schema, "arrow_schema", free_schema)
        return schema_capsule, PyCapsule_New(array, "arrow_array", free_array)


cdef object borrow = None  # PIL.Image.fromarrow, once PIL was needed


cdef enum Repack:
    NARROW  # 16-bit samples to 8
    PAD     # RGB to RGBX
    STRIP   # RGBX to RGB


cdef PixelBuffer repacked(PixelBuffer pixels, Repack kind, int width, int height, int channels):
    """A copy in another layout, made outside the GIL."""
    cdef dg_image image
    cdef size_t count = <size_t>width * height
    cdef dg_status status
    with nogil:
        status = dg_image_alloc(pixels.buffer.heap, width, height, channels, 4 if kind == PAD else channels, 8, &image)
        if status == DG_OK and kind == NARROW:
            dg_depth_16_to_8(<const uint16_t *>pixels.buffer.data, image.buffer.data, count * channels)
        elif status == DG_OK and kind == PAD:
            dg_rgb_to_rgbx(pixels.buffer.data, image.buffer.data, count)
        elif status == DG_OK:
            dg_rgbx_to_rgb(pixels.buffer.data, image.buffer.data, count)
    if status != DG_OK:
        raise MemoryError(f"no memory for {width} x {height} pixels")
    return adopt(&image.buffer)


cdef object pil_image(PixelBuffer pixels, int width, int height, int channels, int step, int depth):
    global borrow
    if depth == 16 and channels == 1:
        from PIL import Image
        return Image.frombuffer("I;16", (width, height), pixels, "raw", "I;16", 0, 1)
    if depth == 16:
        pixels = repacked(pixels, NARROW, width, height, channels)
    if channels == 3 and step == 3:
        pixels = repacked(pixels, PAD, width, height, 3)
    if channels == 2:  # Pillow keeps LA in four bytes a pixel and has no way to borrow it
        from PIL import Image
        return Image.frombuffer("LA", (width, height), pixels, "raw", "LA", 0, 1)
    if borrow is None:
        from PIL import Image
        borrow = Image.fromarrow
    return borrow(Lender(pixels), "L" if channels == 1 else "RGB" if channels == 3 else "RGBA", (width, height))


cdef class ImagePayload:
    """One image of a sample: raw pixels, or encoded bytes if `is_encoded`.

    It behaves like a PIL image: calling it gives one, and what it does not have itself (`.mode`, `.convert(…)`) is looked
    up there. It is falsy where a sample has no image; sizes are then 0. Where native code filled it, it relies on the attributes: they are
    read-only then, unless `data` is replaced. One that was made by hand can be filled by hand.

    Attributes:
        data: bytes-like, no copy. Raw: rows from the top, pixels interleaved, no padding, `height * width * channels`
            samples; 16-bit samples in native byte order. Encoded: the file's bytes.
        height, width: pixels.
        original_height, original_width: as decoded, before crop and resize; pixels.
        channels: 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA; -1 encoded, 0 no image.
        bit_depth: bits per channel, 8 or 16.
        is_encoded: whether `data` is a PNG or JPEG file.
    """

    cdef object _data
    cdef int _step
    cdef readonly int original_height, original_width, height, width, channels, bit_depth
    cdef readonly bint is_encoded

    def __init__(self):
        self._data = b""

    def __setattr__(self, name, value):
        with cython.critical_section(self):
            if name == "data":
                self._data = memoryview(value) if isinstance(value, PixelBuffer) else value
            elif isinstance(self._data, PixelBuffer):
                raise AttributeError(f"{name!r} is read-only: it says what `data` holds, which native code reads")
            elif name in PAYLOAD:
                self.fill(name, value)
            else:
                PyObject_GenericSetAttr(self, name, value)
            self._step = self.channels  # where there is no PixelBuffer

    cdef int fill(self, str name, value) except -1:
        if name == "original_height":
            self.original_height = value
        elif name == "original_width":
            self.original_width = value
        elif name == "height":
            self.height = value
        elif name == "width":
            self.width = value
        elif name == "channels":
            self.channels = value
        elif name == "bit_depth":
            self.bit_depth = value
        else:
            self.is_encoded = value
        return 0

    @property
    def data(self):
        with cython.critical_section(self):  # _data and what says what it holds belong together
            data = self._data
            if not isinstance(data, PixelBuffer):
                return data
            if self._step != self.channels and not self.is_encoded:
                packed = repacked(data, STRIP, self.width, self.height, 3)
                if self._data is data:  # no other thread has been here meanwhile
                    self._data, self._step = packed, 3
                data = packed
            return memoryview(data)

    @property
    def size(self):
        """(width, height) in pixels, as PIL has it."""
        return self.width, self.height

    def get_payload(self):
        """The payload itself; kept for scripts written for other versions of this API."""
        return self

    def to_pil_image(self):
        """A PIL image: L, LA, RGB or RGBA over the same memory (16-bit grey: I;16; other 16-bit images as v >> 8).

        Encoded images come from `PIL.Image.open`, so with `.format`. Raises ValueError where there is no image.
        """
        if self.is_encoded:
            from io import BytesIO
            from PIL import Image
            return Image.open(BytesIO(self._data))
        self._check()
        with cython.critical_section(self):
            if isinstance(self._data, PixelBuffer):
                return pil_image(self._data, self.width, self.height, self.channels, self._step, self.bit_depth)
        from PIL import Image
        return Image.fromarray(self.to_numpy_array().squeeze(axis=2) if self.channels == 1 else self.to_numpy_array())

    def to_numpy_array(self):
        """An array of shape (height, width, channels), uint8 or uint16: writable and, unless encoded, without a copy.

        Raises ValueError where there is no image.
        """
        import numpy
        if self.is_encoded:
            array = numpy.array(self.to_pil_image())
            return array[:, :, None] if array.ndim == 2 else array
        self._check()
        with cython.critical_section(self):
            data, step = self._data, self._step
        if self.bit_depth == 8 and step == 4 and self.channels == 3:
            return numpy.frombuffer(data, numpy.uint8).reshape(self.height, self.width, 4)[:, :, :3]
        dtype = numpy.uint16 if self.bit_depth == 16 else numpy.uint8
        return numpy.frombuffer(data, dtype).reshape(self.height, self.width, self.channels)

    cdef int _check(self) except -1:
        if not self:
            raise ValueError("this sample has no image")
        return 0

    def __reduce__(self):
        return payload_again, (bytes(self.data), {name: getattr(self, name) for name in PAYLOAD})

    def __array__(self, dtype=None, copy=None):
        array = self.to_numpy_array()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __call__(self):
        return self.to_pil_image()

    def __bool__(self):
        return self.width > 0 and self.height > 0

    def __getattr__(self, name):
        if name.startswith("_") or not self:  # protocols (copy, pickle, …) are not an image's
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.to_pil_image(), name)

    def __repr__(self):
        kind = "encoded" if self.is_encoded else f"{self.channels} x {self.bit_depth} bits"
        return f"<ImagePayload {self.width} x {self.height}, {kind}>" if self else "<ImagePayload, no image>"


PAYLOAD = ("original_height", "original_width", "height", "width", "channels", "bit_depth", "is_encoded")


def payload_again(data, about):
    """An ImagePayload out of a pickle: the pixels are copied."""
    payload = ImagePayload()
    for name, value in about.items():
        setattr(payload, name, value)
    payload.data = bytearray(data)  # writable, as it was
    return payload


cdef class LatentPayload:
    """Bytes that came with a sample and are not decoded: `data`, and their number `len`."""

    cdef public bytes data

    def __init__(self, bytes data=b""):
        self.data = data

    @property
    def len(self):
        return len(self.data)


# ---- samples --------------------------------------------------------------------------------------------------------

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

    cdef public object id, source
    cdef readonly object attributes
    cdef public int duplicate_state
    cdef public object image, masks, additional_images, latents, coca_embedding, tags

    def __repr__(self):
        return f"<Sample {self.id!r} from {self.source!r}: {self.image!r}>"


cdef class SampleBatch:
    """Samples of one bucket, as the pool gives them; datago.batches makes tensors of it.

    Attributes:
        width, height: pixels, of every picture.
        pixels: bytes, writable: the pictures one after the other, as the placement has them; there may be room for more behind them.
        samples: list of Sample, in their order in `pixels`; their `image` is empty but for its original size.
        targets: list of their classes, integers; zeros where samples have none.
        dropped: it did not get full, and `remainder` is "drop".
    """

    cdef readonly int width, height
    cdef readonly bint dropped
    cdef readonly PixelBuffer pixels
    cdef readonly list samples, targets


cdef class Failure:
    """An item that gave no sample: what `on_error` is called with, and what a source yields in its place.

    Attributes:
        name: the path; `shard:key`; `source:id`; or a shard's or folder's own name. Urls are without their query.
        reason: a key of stats()["failures"].
        text: what is wrong, on one line; may be empty.
        position: that of an Entry; the sources' own.
    """

    cdef readonly object name
    cdef readonly str reason, text
    cdef public int64_t position

    def __init__(self, name, str reason, str text):
        self.name, self.reason, self.text, self.position = name, reason, text, -1

    def __repr__(self):
        return f"<Failure {self.name!r}: {self.reason}: {self.text}>"


cdef class Entry:
    """What a source knows of one sample before its images are decoded.

    Args:
        id, source: str; together they name the sample in failures.
        images: (role, name, data) of each: role "image" (at most one; name is not used), "mask" or "additional"; data bytes-like.
            The first decides the bucket.
        attributes: JSON text of an object.
        duplicate_state, tags, coca_embedding: as in Sample.
        latents: dict of str to bytes.

    `position` is the sample's number in its epoch, as the source counts (see Progress), -1 until it says so.
    """

    cdef readonly object id, source, attributes, tags, coca_embedding, latents
    cdef tuple _images  # of tuples of three: native code relies on that
    cdef readonly int duplicate_state
    cdef public int64_t position

    def __init__(self, id, source, images, attributes="{}", int duplicate_state=0, tags=(), coca_embedding=(), latents=None):
        self.id, self.source, self.attributes = id, source, attributes
        self._images = tuple([(role, name, data) for role, name, data in images])
        self.duplicate_state, self.tags, self.coca_embedding = duplicate_state, list(tags), list(coca_embedding)
        self.latents = latents or {}
        self.position = -1

    @property
    def images(self):
        return list(self._images)

    def own(self):
        """Copies the images' bytes, which else keep alive whatever larger block they are a part of."""
        self._images = tuple([(role, name, bytes(data)) for role, name, data in self._images])


def auto_convert(Sample sample):
    """The sample as a dict of plain Python values; images as PIL images, attributes parsed, None where there is no image."""
    cdef ImagePayload image = sample.image
    return {
        "id": sample.id,
        "source": sample.source,
        "duplicate_state": sample.duplicate_state,
        "attributes": {} if sample.attributes == "{}" else json.loads(sample.attributes),
        "tags": sample.tags,
        "coca_embedding": sample.coca_embedding,
        "latents": {k: {"data": v.data, "len": v.len} for k, v in sample.latents.items()} if sample.latents else {},
        "image": image.to_pil_image() if image else None,
        "masks": {k: v.to_pil_image() for k, v in sample.masks.items()} if sample.masks else {},
        "additional_images":
            {k: v.to_pil_image() for k, v in sample.additional_images.items()} if sample.additional_images else {},
    }


# ---- items ----------------------------------------------------------------------------------------------------------

cdef Item *item_new(object entry) except NULL:
    cdef Item *item
    if isinstance(entry, tuple):  # a path: the file source's samples, a hundred thousand a second
        item = item_named(1, (<tuple>entry)[0])
        item.parts[0].path = item.drawn = item.name
        item.position = (<tuple>entry)[1]
    elif isinstance(entry, Entry):
        item = item_of_entry(entry)
        item.position = (<Entry>entry).position
    elif isinstance(entry, Failure):  # found by the source; it travels with the others, so that order and counts stay right
        item = item_named(0, os.fsencode((<Failure>entry).name))
        item.error.status = dg_status_find((<Failure>entry).reason.encode())
        item.position = (<Failure>entry).position
        text = (<Failure>entry).text.encode("utf-8", "replace")[:sizeof(item.error.text) - 1]
        memcpy(item.error.text, <const char *>text, len(text) + 1)
    else:
        raise TypeError(f"a source yields (path, position) pairs, Entries and Failures, not {type(entry).__name__}")
    return item


cdef Item *item_named(int parts, bytes name) except NULL:
    """An item with its name behind the last part."""
    cdef Py_ssize_t length = len(name)
    cdef Item *item = <Item *>PyMem_RawCalloc(1, sizeof(Item) + parts * sizeof(Part) + length + 1)
    if item == NULL:
        raise MemoryError
    item.part_count = parts
    item.position = -1
    item.name = <char *>&item.parts[parts]
    memcpy(<char *>item.name, <const char *>name, length)
    return item


cdef Item *item_of_entry(Entry entry) except NULL:
    cdef bytes name = os.fsencode(f"{entry.source}:{entry.id}")
    cdef Item *item = item_named(len(entry._images), name)
    # The shard without its folder, or the database's source, and the sample's key
    item.drawn = item.name + (<bytes>os.fsencode(entry.source)).rfind(b"/") + 1
    cdef int i
    try:
        for i in range(item.part_count):
            role, _, data = entry._images[i]
            item.parts[i].role = DG_ROLE_IMAGE if role == "image" else DG_ROLE_MASK if role == "mask" else DG_ROLE_ADDITIONAL
            PyObject_GetBuffer(data, &item.parts[i].data, PyBUF_SIMPLE)
        Py_INCREF(entry)
        item.entry = <void *>entry
        return item
    except BaseException:
        item_free(item)
        raise


cdef void item_free(Item *item) noexcept:
    cdef int i
    if item.part_count == 0 and item.batch != NULL:
        batch_free(item.batch)
        return
    for i in range(item.part_count):
        dg_image_free(&item.parts[i].picture.image)
        PyBuffer_Release(&item.parts[i].data)
    if item.entry != NULL:
        Py_DECREF(<object>item.entry)
    PyMem_RawFree(item)


cdef bint item_give_up(Item *item, Py_buffer *data) noexcept nogil:
    cdef int i = 0
    while i < item.part_count and <void *>item.parts[i].data.obj == NULL:
        i += 1
    if i == item.part_count:
        return False
    data[0] = item.parts[i].data
    memset(&item.parts[i].data, 0, sizeof(Py_buffer))
    return True


cdef void entry_empty(object entry) noexcept:
    try:
        (<Entry>entry)._images = tuple([(role, name, None) for role, name, _ in (<Entry>entry)._images])
    except MemoryError:
        pass  # the bytes stay until the sample is handed out


cdef void batch_free(Batch *batch) noexcept:
    cdef int i
    for i in range(batch.taken):
        item_free(batch.items[i])
    dg_buffer_free(&batch.memory)
    free(batch.carrier)
    free(batch)


cdef ImagePayload payload_of(dg_picture *picture):
    cdef ImagePayload payload = ImagePayload.__new__(ImagePayload)
    payload.width = picture.image.width
    payload.height = picture.image.height
    payload.original_width = picture.original_width
    payload.original_height = picture.original_height
    payload.channels = -1 if picture.encoded else picture.image.channels
    payload.bit_depth = picture.image.depth
    payload.is_encoded = picture.encoded
    payload._step = picture.image.step
    payload._data = adopt(&picture.image.buffer)
    return payload


cdef object item_result(Item *item, bint convert):
    if item.part_count == 0 and item.batch != NULL:
        return batch_result(item.batch)
    try:
        if item.error.status != DG_OK:
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
    result.samples, result.targets = [], []
    for i in range(batch.taken):
        result.targets.append(batch.items[i].target)
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
