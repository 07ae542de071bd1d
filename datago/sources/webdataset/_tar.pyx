# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Reads the members of a tar archive from a byte stream that comes in blocks of any size.

    block ──► tar_walk (nogil): headers → a batch of found members ──► _take (GIL): select, Member objects ──► list

A member that lies whole in a block is not copied: it points into the block and keeps the block alive. A member that the end of a
block cuts is gathered in memory that grows with the bytes that arrive, not with the size that its header claims. The reader knows
v7, ustar, GNU and pax archives (_tar_walk.pyx says how it decides where these differ). It does not decompress (its error names the
compression), and knows nothing of keys, samples or images.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport int64_t, uint8_t

from datago.sources.webdataset._tar_walk cimport (
    BAD_CHECKSUM, BAD_META, BAD_SIZE, BLOCK, CUT, ENDED, EXTENSIONS, FINE, GATHER, HUGE_META, HUGE_SIZE, DANGLING_META,
    MAX_SIZE, META, MAX_META, NEGATIVE_SIZE, NO_MEMORY, NOT_TAR, UNSELECTED, Buffer, Found, Tar, tar_drop, tar_free,
    tar_gather, tar_new, tar_walk,
)

cdef extern from *:
    int enter "__sync_lock_test_and_set" (int *, int) noexcept nogil
    void leave "__sync_lock_release" (int *) noexcept nogil

# The names are in the order of the enum in _tar_walk.pxd.
KIND_NAMES = ("directory", "symlink", "link", "sparse", "device", "fifo", "other", "unselected")

FAULT_TEXTS = {
    BAD_CHECKSUM: "damaged header at offset {}: wrong checksum",
    BAD_SIZE: "damaged header at offset {}: the size is not a number",
    NEGATIVE_SIZE: "damaged header at offset {}: the size is negative",
    HUGE_SIZE: "damaged header at offset {}: the size is too large",
    BAD_META: "damaged extended header at offset {}",
    HUGE_META: f"damaged extended header at offset {{}}: longer than {MAX_META} bytes",
    DANGLING_META: "damaged: the archive ends after the extended header at offset {}, without its member",
}

# The first bytes of files that users have in place of a tar.
MAGICS = (
    (b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"), (b"\x1f\x9d", "compress (.Z)"), (b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip"), (b"Rar!", "rar"), (b"\xff\xd8\xff", "jpeg"), (b"\x89PNG", "png"),
    (b"GIF8", "gif"), (b"RIFF", "webp or another RIFF file"), (b"PAR1", "parquet"), (b"ARROW1", "arrow"),
    (b"\x89HDF", "hdf5"),
    (b"%PDF", "pdf"), (b"\x7fELF", "an ELF program"),
    (b"version https://git-lfs", "a git-lfs pointer, its file not pulled"),
    (b"<!doctype html", "html"), (b"<html", "html"), (b"<?xml", "xml"), (b"<error", "xml"),
    (b"{", "json"), (b"[", "json"),
)


class TarError(ValueError):
    """The stream is not a tar, or is damaged or cut short. The text says which, and at which byte."""


@cython.final
cdef class Memory:
    """The memory that members point into: a block that was fed, or the gathered data of one member."""

    cdef Py_buffer view
    cdef void *own

    def __dealloc__(self):
        PyBuffer_Release(&self.view)
        PyMem_RawFree(self.own)


@cython.final
@cython.no_gc  # There are millions of members, which refer to bytes and Memory only and so are in no reference cycle.
@cython.freelist(256)
cdef class Member:
    """A regular file of the archive. It is bytes-like itself: `bytes(member)` and `memoryview(member)` give its data.

    Attributes:
        name: the name as bytes, exactly as stored.
        size: bytes of data.
        offset: the offset in the stream at which the member begins, with its extended headers: a reader that is made with
            `TarReader(offset=member.offset)` and fed from there returns this member first.
    """

    cdef readonly bytes name
    cdef readonly int64_t offset
    cdef readonly Py_ssize_t size
    cdef const uint8_t *start
    cdef Memory memory

    @property
    def data(self):
        """The data as a read-only memoryview without a copy. If the member lies whole in a block, this keeps the whole block alive."""
        return memoryview(self)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.start, self.size, 1, flags)

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"<Member {quoted(self.name)}, {self.size} bytes, at {self.offset}>"


cdef str quoted(bytes name):
    """A name for messages: quoted, printable, of bounded length."""
    return repr(name[:300].decode("utf-8", "backslashreplace"))


cdef str describe_start(bytes start):
    """What kind of file the first bytes of a stream that is no tar look like, for messages."""
    cdef bytes text = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:64]
    for magic, kind in MAGICS:
        if start.startswith(magic) or (magic[:1] in b"<{[" and text.lower().startswith(magic)):
            return f"it looks like {kind}"
    return f"it begins with {start[:16]!r}"


cdef class TarReader:
    """Reads one archive. Only one thread at a time may use a reader.

    Args:
        select: called as `select(name, size)` at the header of each regular file, in the archive's order. If it returns a false
            value, the member is skipped, and its data is not gathered. An exception that it raises reaches the caller of `feed`
            and ends the reader. Without `select` all members are returned.
        offset: the offset in the stream at which the first block begins, to resume at a member's `offset`. Global pax headers
            before that offset are not known then.
    """

    cdef Tar *tar
    cdef object select
    cdef tuple failure    # class and text of the exception that every call raises from now on
    cdef bytes name       # the name of the last member that the end of a block cut,
    cdef int64_t cut_at   # and the offset of that member's header
    cdef int busy
    cdef bint closed
    cdef readonly int64_t members

    def __cinit__(self, select=None, int64_t offset=0):
        if not 0 <= offset <= MAX_SIZE:
            raise ValueError(f"offset: got {offset}, wanted at least 0")
        self.tar = tar_new(offset)
        if self.tar == NULL:
            raise MemoryError
        self.select = select
        self.cut_at = -1

    def __dealloc__(self):
        tar_free(self.tar)

    def feed(self, block) -> list:
        """The members that this block completes, as a list in the archive's order.

        Args:
            block: bytes-like, of any size. It must not be changed as long as a member that lies in it is alive.

        Raises TarError if the stream is no tar or damaged. If there are members to return, they are returned first, and the next
        call raises. Every later call raises the same error.
        """
        cdef list members = []
        cdef Memory memory
        cdef bint more
        self._begin()
        try:
            if self.closed:
                raise ValueError("feed: the reader was closed")
            memory = Memory.__new__(Memory)
            PyObject_GetBuffer(block, &memory.view, PyBUF_SIMPLE)
            self.tar.next = <const uint8_t *>memory.view.buf
            self.tar.end = self.tar.next + memory.view.len
            more = True
            while more:
                with nogil:
                    more = tar_walk(self.tar)
                self._take(memory, members)
            if self.tar.fault != FINE:
                self.failure = MemoryError if self.tar.fault == NO_MEMORY else TarError, self._fault_text()
                if not members:
                    self._fail()
            return members
        finally:
            self.tar.next = self.tar.end = NULL
            leave(&self.busy)

    def skip(self, int64_t size):
        """Tells the reader that the caller skips the stream's next `size` bytes, at most `skippable`, instead of feeding them.

        The bytes must exist: a caller that seeks in a file has to check the file's length first, because otherwise the error about
        a truncated archive names an offset beyond the end.
        """
        self._begin()
        try:
            if not 0 <= size <= self.tar.skip:
                raise ValueError(f"skip: got {size}, wanted 0 to {self.tar.skip}")
            self.tar.skip -= size
            self.tar.offset += size
        finally:
            leave(&self.busy)

    def close(self):
        """Tells the reader that the stream has ended. Raises TarError if the archive is incomplete or damaged."""
        self._begin()
        try:
            text = None if self.closed else self._unfinished()
            if text:
                self.failure = TarError, text
                self._fail()
            self.closed = True
        finally:
            leave(&self.busy)

    @property
    def offset(self):
        """Bytes of the stream that were fed or skipped, up to the damage if there is any."""
        return self.tar.offset

    @property
    def skippable(self):
        """How many of the next bytes are not needed: a caller that can seek calls `skip` instead of reading them."""
        return 0 if self.failure is not None else self.tar.skip

    @property
    def ended(self):
        """Whether the end-of-archive marker was seen, so that nothing more has to be fed."""
        return self.tar.state == ENDED

    @property
    def skipped(self):
        """dict: how many entries were not returned, by kind."""
        return {name: self.tar.skipped[kind] for kind, name in enumerate(KIND_NAMES)}

    @property
    def lone_zero_blocks(self):
        """The number of single zero blocks between members. They are harmless, but no writer should leave them."""
        return self.tar.lone_zero_blocks

    @property
    def trailing(self):
        """The number of bytes after the end-of-archive marker, from the first non-zero one on: another archive, or garbage."""
        return self.tar.trailing

    cdef int _begin(self) except -1:
        if enter(&self.busy, 1):
            raise RuntimeError("a TarReader is for one thread at a time, and select must not use it")
        if self.failure is not None:
            leave(&self.busy)
            self._fail()
        return 0

    cdef int _fail(self) except -1:
        kind, text = self.failure  # A stored exception would keep the frames of its traceback alive, so a new one is made.
        raise kind(text)

    cdef int _take(self, Memory block, list members) except -1:
        """Makes Members of the batch that tar_walk has found, and appends them to `members`."""
        cdef Found *found
        cdef Tar *tar = self.tar
        cdef bint cut
        cdef bytes name
        cdef int i
        try:
            for i in range(tar.count):
                found = &tar.found[i]
                cut = tar.state == CUT and i == tar.count - 1
                if found.data == NULL and not cut:
                    members.append(self._gathered())
                    continue
                name = PyBytes_FromStringAndSize(<const char *>tar.names.data + found.name, found.name_length)
                if cut:
                    self.name, self.cut_at = name, tar.member
                if self.select is not None and not self.select(name, found.size):
                    tar.skipped[UNSELECTED] += 1
                    if cut:
                        tar_drop(tar, found)
                elif cut:
                    tar_gather(tar, found)
                else:
                    self.members += 1
                    members.append(member_of(name, found.offset, found.size, found.data, block if found.size else None))
        except BaseException as error:
            self.failure = RuntimeError, f"the reader ended when select raised {type(error).__name__}"
            raise
        finally:
            tar.count = 0
            tar.names.fill = 0
        return 0

    cdef Member _gathered(self):
        cdef Memory memory = Memory.__new__(Memory)
        cdef Tar *tar = self.tar
        cdef size_t size = tar.gather.fill
        memory.own = tar.gather.data
        tar.gather = Buffer(NULL, 0, 0)
        self.members += 1
        return member_of(self.name, tar.found[0].offset, size, <const uint8_t *>memory.own, memory)

    cdef str _fault_text(self):
        if self.tar.fault == NO_MEMORY:
            return f"no memory for the member at offset {self.tar.fault_at}"
        if self.tar.fault == NOT_TAR:
            return f"not a tar: {describe_start(self.tar.header[:BLOCK])}"
        return FAULT_TEXTS[self.tar.fault].format(self.tar.fault_at)

    cdef str _unfinished(self):
        """What is missing at the end of the stream, for messages; None if the archive is complete."""
        cdef Tar *tar = self.tar
        where = f"truncated at byte {tar.offset}"
        if tar.state == ENDED:
            return None
        if tar.offset == 0:
            return "not a tar: it is empty"
        started = <bytes>tar.header[:tar.header_fill]
        if started and tar.offset == len(started) and not b"ustar".startswith(started[257:262] or b"?"):
            return f"not a tar: it is {tar.offset} bytes long, and {describe_start(started)}"
        if started and tar.state == EXTENSIONS:
            return f"{where}: inside the sparse map of the member at {tar.member}"
        if started.strip(b"\0"):
            return f"{where}: inside the header at {tar.offset - len(started)}"
        if tar.state == META or (tar.skip and tar.dangling):
            return f"{where}: inside the extended header at {tar.member}"
        if tar.dangling:
            return f"{where}: after the extended header at {tar.member}, before its member"
        if tar.state == GATHER:
            held = f"{tar.gather.fill} of {tar.body} bytes"
            return f"{where}: inside the member at {tar.member}, {quoted(self.name)}, with {held}"
        if tar.skip > tar.padding or tar.state == EXTENSIONS:
            name = f", {quoted(self.name)}" if self.cut_at == tar.member else ""
            return f"{where}: inside the member at {tar.member}{name}"
        if tar.skip:
            return f"{where}: in the padding after the member at {tar.member}"
        if tar.zeros or started:
            return f"{where}: inside the end-of-archive marker (two zero blocks)"
        return f"{where}: no end-of-archive marker (two zero blocks)"


cdef Member member_of(bytes name, int64_t offset, Py_ssize_t size, const uint8_t *start, Memory memory):
    cdef Member member = Member.__new__(Member)
    member.name, member.offset, member.size, member.memory = name, offset, size, memory
    member.start = start if size else <const uint8_t *>b""  # An empty member does not keep its block alive.
    return member
