# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Small files, many at once: a thread takes one after the other, and holds the GIL only while it makes bytes of what it has read."""
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t

from datago._threads cimport dg_thread_begin
from datago.engine._pixels cimport DG_NOT_FOUND, DG_OK, dg_error, dg_file_read, dg_scratch, dg_scratch_free, dg_status, dg_status_name
from datago.threads import start_threads

cdef enum:
    PER_THREAD = 16  # files for which another thread is worth being started


cdef class _Job:
    """What the threads of one call share. It lives as long as one of them does: who is interrupted does not wait for them."""
    cdef object paths, found, error
    cdef bint stopped
    cdef uint64_t most

    def __init__(self, paths, most):
        self.paths, self.found, self.error, self.most = paths, [None] * len(paths), None, most

    def work(self, numbers, bint threaded):
        """Reads the files whose numbers the iterator `numbers`, which other threads share, gives."""
        cdef dg_scratch scratch
        cdef dg_error error
        cdef dg_status status
        cdef const char *name
        cdef size_t size = 0
        scratch.data, scratch.capacity = NULL, 0
        if threaded:
            dg_thread_begin("datago-texts")
        try:
            for number in numbers:
                if self.stopped:
                    break
                path = self.paths[number]
                name = PyBytes_AsString(path)
                with nogil:
                    status = dg_file_read(name, self.most, &scratch, &size, &error)
                if status == DG_OK:
                    self.found[number] = PyBytes_FromStringAndSize(<char *>scratch.data, size)
                elif status != DG_NOT_FOUND:
                    reason = (<bytes>dg_status_name(status)).decode()
                    self.found[number] = reason, (<bytes>error.text).decode("utf-8", "replace")
        except BaseException as failed:  # memory is short
            self.error = failed
        finally:
            dg_scratch_free(&scratch)


def read_texts(paths, threads, most, stopped):
    """The bytes of files that may be there or not.

    Args:
        paths: a list of bytes.
        threads: how many read at once, at most; fewer where there are few files, or the system allows no more.
        most: bytes of a file; a longer one is a failure.
        stopped: a function that says whether to end; it is asked ten times a second.

    Returns:
        A list with, for each path, its bytes; None if there is no such file; or (reason, text) if it cannot be read, the reason one of
        stats()["failures"]. None in place of the list if `stopped` said so.

    Raises:
        SourceOSError: the system allows no thread.
        MemoryError: memory is short.
    """
    cdef _Job job = _Job(paths, most)
    numbers = iter(range(len(paths)))
    count = min(threads, len(paths) // PER_THREAD)
    if count <= 1:
        job.work(numbers, False)
    else:
        try:
            for thread in start_threads(count, job.work, "datago texts", numbers, True):
                while not thread.over.wait(0.1):
                    if stopped():
                        return None
        finally:
            job.stopped = True
    if job.error is not None:
        raise job.error
    return job.found
