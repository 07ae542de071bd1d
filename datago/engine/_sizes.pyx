# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The sizes of pictures, read from the headers of their files by several threads; and the buckets that pictures of such sizes go to.

A thread reads one file after the other without the GIL. It takes it for what is rare: to note a failure, and where only Pillow knows the
format.
"""
import os

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AsString
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from datago.engine._pixels cimport (
    DG_OK, DG_UNSUPPORTED, dg_bucket, dg_bucket_choose, dg_buckets_build, dg_error, dg_file_read, dg_header_file_size,
    dg_scratch, dg_scratch_free, dg_status, dg_status_name,
)
from datago._threads cimport dg_thread_begin
from datago.engine._sample cimport Failure
from datago.threads import start_threads

cdef extern from "<stdatomic.h>" nogil:
    ctypedef struct atomic_llong:
        pass
    int64_t atomic_fetch_add(atomic_llong *value, int64_t more)
    int64_t atomic_load(atomic_llong *value)
    void atomic_store(atomic_llong *value, int64_t wanted)


cdef class _Job:
    """What the threads of one call share. It lives as long as one of them does: who is interrupted does not wait for them."""
    cdef object paths, sizes, failures, error
    cdef const char **names
    cdef int32_t *found
    cdef int64_t count
    cdef uint64_t max_file_bytes
    cdef bint orient
    cdef atomic_llong begun, done, stopped

    def __cinit__(self, paths, sizes, max_file_bytes, orient):
        self.paths, self.sizes, self.failures, self.error = paths, sizes, [], None
        self.count, self.max_file_bytes, self.orient = len(paths), max_file_bytes, orient
        self.found = <int32_t *><uintptr_t>sizes.ctypes.data
        self.names = <const char **>calloc(max(<int64_t>1, self.count), sizeof(char *))
        if self.names == NULL:
            raise MemoryError("no memory for the paths")
        for i, path in enumerate(paths):
            self.names[i] = PyBytes_AsString(path)

    def __dealloc__(self):
        free(self.names)

    def stop(self):
        atomic_store(&self.stopped, 1)

    def progress(self):
        return atomic_load(&self.done)

    def result(self):
        if self.error is not None:
            raise self.error
        self.failures.sort(key=lambda found: found[0])
        return self.sizes, self.failures

    def work(self):
        """What a thread runs: takes the next file until there is none."""
        cdef dg_scratch header
        cdef dg_scratch whole
        cdef dg_error error
        cdef dg_status status
        cdef int width, height
        cdef int64_t i
        header.data = whole.data = NULL
        header.capacity = whole.capacity = 0
        with nogil:
            dg_thread_begin("datago-sizes")
            while atomic_load(&self.stopped) == 0:
                i = atomic_fetch_add(&self.begun, 1)
                if i >= self.count:
                    break
                status = dg_header_file_size(self.names[i], self.max_file_bytes, self.orient, &header, &width, &height, &error)
                if status == DG_OK:
                    self.found[2 * i], self.found[2 * i + 1] = width, height
                else:
                    self.ask_others(i, status, &whole, &error)
                atomic_fetch_add(&self.done, 1)
            dg_scratch_free(&header)
            dg_scratch_free(&whole)

    cdef void ask_others(self, int64_t i, dg_status status, dg_scratch *whole, dg_error *error) noexcept nogil:
        """Pillow, if no decoder here knows the format."""
        cdef size_t size = 0
        cdef bint unknown = status == DG_UNSUPPORTED
        if unknown:
            status = dg_file_read(self.names[i], self.max_file_bytes, whole, &size, error)
        with gil:
            try:
                if unknown and status == DG_OK:
                    from datago.engine.fallback import upright_size
                    said = upright_size(PyMemoryView_FromMemory(<char *>whole.data, size, PyBUF_READ), self.orient)
                    if not isinstance(said, Failure):
                        self.found[2 * i], self.found[2 * i + 1] = said
                        return
                    reason, text = said.reason, said.text
                else:
                    reason, text = (<bytes>dg_status_name(status)).decode(), (<bytes>error.text).decode("utf-8", "replace")
                self.failures.append((i, Failure(os.fsdecode(self.paths[i]), reason, text)))
            except BaseException as failed:  # memory is short, or the fallback could not even be imported
                self.error = failed
                atomic_store(&self.stopped, 1)


def read_sizes(paths, threads, max_file_bytes=2**30, orient=True, progress=None, stop=None):
    """The sizes of the pictures in files, as the loader finds them, from headers: no pixel is decoded.

    Of a file are read: the first 16 kB, and behind that of JPEG the segments that may say how it is turned, up to the first scan; of PNG
    the heads of all chunks and the texts whole, since what says how it is turned may stand behind the pixels; of WebP the metadata that
    its first chunk announces. Pixels are passed over. Formats that only Pillow knows are read whole.

    Args:
        paths: of files, a list of bytes.
        threads: how many read; fewer where the system allows no more.
        max_file_bytes: a longer file is a failure, as for the loader.
        orient: sizes are those of upright pictures, turned as EXIF says; False: as stored.
        progress: called about ten times a second, and at the end, with the number of files that are done. What it raises ends the call.
        stop: has `is_set()`; once that is true, the call ends, and returns None.

    Returns:
        (sizes, failures): int32 array of shape (n, 2), width and height in pixels, (0, 0) where the size is not known; and for each of
        these its number and a Failure with name, reason and text, a list in the order of the paths.

    Raises:
        SourceOSError: the system allows no thread.
        MemoryError: memory is short.
    """
    import numpy

    cdef _Job job = _Job(paths, numpy.zeros((len(paths), 2), numpy.int32), max_file_bytes, orient)
    if not len(paths):
        return job.result()
    try:
        for thread in start_threads(max(1, min(threads, len(paths))), job.work, "datago sizes"):
            while not thread.over.wait(0.1):
                if progress is not None:
                    progress(job.progress())
                if stop is not None and stop.is_set():
                    return None
        if progress is not None:
            progress(job.progress())
    finally:
        job.stop()
    return job.result()


def bucket_numbers(sizes, default_image_size, downsampling_ratio, double min_aspect_ratio, double max_aspect_ratio):
    """The bucket that the loader takes for pictures of given sizes.

    Args:
        sizes: int32 array of shape (n, 2), width and height in pixels.
        default_image_size, downsampling_ratio, min_aspect_ratio, max_aspect_ratio: see aspect_buckets.

    Returns:
        int32 array of shape (n,): places in the list of aspect_buckets; -1 where width or height is not positive.

    Raises:
        ValueError: an argument makes no sense, or no bucket lies within the limits.
    """
    import numpy

    cdef dg_bucket *buckets = NULL
    cdef size_t count = 0
    cdef dg_error error
    cdef int side, ratio
    cdef int64_t i, n = len(sizes)
    sizes = numpy.ascontiguousarray(sizes, numpy.int32).reshape(n, 2)
    numbers = numpy.full(n, -1, numpy.int32)
    cdef const int32_t *size = <const int32_t *><uintptr_t>sizes.ctypes.data
    cdef int32_t *number = <int32_t *><uintptr_t>numbers.ctypes.data
    try:
        side, ratio = default_image_size, downsampling_ratio
    except OverflowError:
        raise ValueError(f"default_image_size {default_image_size}, downsampling_ratio {downsampling_ratio}: too large") from None
    if dg_buckets_build(side, ratio, min_aspect_ratio, max_aspect_ratio, &buckets, &count, &error) != DG_OK:
        raise ValueError(error.text.decode())
    if count == 0:
        free(buckets)
        raise ValueError("no bucket lies within the limits")
    with nogil:
        for i in range(n):
            if size[2 * i] > 0 and size[2 * i + 1] > 0:
                number[i] = <int32_t>(dg_bucket_choose(buckets, count, size[2 * i], size[2 * i + 1]) - buckets)
        free(buckets)
    return numbers
