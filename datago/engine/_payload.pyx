# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""What a reader gets of one image or one latent.

Pixels are expensive to copy, so what is handed out is a view of the buffer that the decoder filled.
"""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject_GenericSetAttr
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint16_t

from datago.engine._pixels cimport (
    DG_OK, dg_buffer, dg_buffer_free, dg_depth_16_to_8, dg_image, dg_image_alloc, dg_picture, dg_rgb_to_rgbx, dg_rgbx_to_rgb, dg_status,
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


cdef class PixelBuffer:
    """The memory that a worker filled, as writable bytes. It goes back to its heap when the last view of it is gone."""

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
    """Lends a PixelBuffer to Pillow through the Arrow C data interface, so that `Image.fromarrow` need not copy it.

    The array is flat and of uint8, with four values or one for each pixel.
    """

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
    """A copy of the pixels in another layout. It is made outside the GIL, since a large picture takes milliseconds."""
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

    It behaves like a PIL image: calling it gives one, and attributes that it does not have itself (`.mode`, `.convert(…)`) are looked
    up there. It is falsy where a sample has no image; sizes are then 0.

    Native code reads the pixels by what the attributes say. So the attributes of a payload that native code filled are read-only until
    `data` is replaced. A payload that was made by hand can be filled by hand.

    Attributes:
        data: bytes-like, no copy. Raw: rows from the top, pixels interleaved, no padding, `height * width * channels`
            samples; 16-bit samples in native byte order. Encoded: the file's bytes.
        height, width: pixels.
        original_height, original_width: as decoded, before crop and resize; pixels.
        channels: 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA; -1 encoded, 0 no image.
        bit_depth: bits per channel, 8 or 16.
        is_encoded: whether `data` is a PNG or JPEG file.
    """

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
            self._step = self.channels  # other bytes than a PixelBuffer's are packed

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
        with cython.critical_section(self):  # another thread could replace _data after the attributes were read
            data = self._data
            if not isinstance(data, PixelBuffer):
                return data
            if self._step != self.channels and not self.is_encoded:
                packed = repacked(data, STRIP, self.width, self.height, 3)
                if self._data is data:  # the lock is let go while the GIL is released, and another thread may have come first
                    self._data, self._step = packed, 3
                data = packed
            return memoryview(data)

    @property
    def size(self):
        """(width, height) in pixels, as PIL has it."""
        return self.width, self.height

    def get_payload(self):
        """The payload itself. Scripts that were written for other versions of this API call it."""
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
    """The ImagePayload of a pickle, with a copy of the pixels."""
    payload = ImagePayload()
    for name, value in about.items():
        setattr(payload, name, value)
    payload.data = bytearray(data)  # a reader may write into pixels, be they pickled or not
    return payload


cdef class LatentPayload:
    """Bytes that came with a sample and are not decoded: `data`, and their number `len`."""

    def __init__(self, bytes data=b""):
        self.data = data

    @property
    def len(self):
        return len(self.data)


cdef ImagePayload payload_of(dg_picture *picture):
    cdef ImagePayload payload = ImagePayload.__new__(ImagePayload)
    payload.width = picture.image.width
    payload.height = picture.image.height
    payload.original_width = picture.original_width
    payload.original_height = picture.original_height
    payload.channels = -1 if picture.encoded else picture.image.channels
    payload.bit_depth = picture.image.depth
    payload.is_encoded = picture.encoded
    payload._step = picture.image.pixel_stride
    payload._data = adopt(&picture.image.buffer)
    return payload
