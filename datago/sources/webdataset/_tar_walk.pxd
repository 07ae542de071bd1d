# Walks a tar archive that comes in blocks of any size, without the GIL and without Python objects; _tar.pyx is its Python API.
#
# The caller sets `next` and `end` to a block and calls tar_walk until it returns False. After each call the caller takes the
# members in `found` and sets `count` and `names.fill` back to 0. If tar_walk returns True and `state` is CUT, the last member in
# `found` reaches past the block: the caller then calls tar_gather to collect its data, or tar_drop to skip it.
from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #define MAX_SIZE ((int64_t)1 << 60)
    """
    const int64_t MAX_SIZE  # Larger sizes are refused, so that no sum of sizes and offsets overflows.

cdef enum:
    BLOCK = 512              # bytes of a header; data is padded to a multiple of it
    BATCH = 1024             # members that one call of tar_walk finds at most: 40 kB, for which the GIL is taken once
    NAMES_FULL = 1 << 16     # bytes of names that end a batch too, since an archive's names may be long
    MAX_META = 1 << 20       # bytes of a pax header or long name; real ones have a few hundred
    MAX_GLOBAL_PATH = 4096   # bytes of a path for all members; a longer one would multiply the memory for names
    AT_ONCE = 1 << 20        # bytes up to which a cut member gets its memory in one allocation

cdef enum State:
    HEADERS     # the next block is a header
    EXTENSIONS  # the next block continues the map of a sparse file
    META        # inside a pax header or a long name
    CUT         # a member reaches past the block, and the caller has to call tar_gather or tar_drop
    GATHER      # inside a cut member, whose data is collected in `gather`
    ENDED       # two zero blocks were seen

cdef enum:      # why an entry is not a member
    DIRECTORY
    SYMLINK
    LINK
    SPARSE
    DEVICE
    FIFO
    OTHER
    UNSELECTED
    KINDS

cdef enum TarFault:
    FINE
    NO_MEMORY
    NOT_TAR
    BAD_CHECKSUM
    BAD_SIZE
    NEGATIVE_SIZE
    HUGE_SIZE
    BAD_META
    HUGE_META
    DANGLING_META

cdef struct Buffer:     # bytes in memory that grows
    uint8_t *data
    size_t fill, capacity

cdef struct Override:   # values from pax headers and long names, which replace header fields
    Buffer path
    bint has_path, has_size, sparse
    int64_t size

cdef struct Found:      # a member, or the beginning of a cut one
    int64_t offset, size
    size_t name, name_length  # in Tar.names
    const uint8_t *data       # in the block; NULL if the member is cut, or gathered from earlier blocks

cdef struct Tar:
    const uint8_t *next   # the rest of the block, up to `end`
    const uint8_t *end
    int64_t offset        # of `next` in the stream
    int64_t skip          # bytes to skip before anything else; the last `padding` of them fill up a tar block
    int64_t padding
    State state
    TarFault fault
    int64_t fault_at
    uint8_t header[BLOCK]  # a header that is split between blocks, or the first bytes of a stream that is not a tar
    size_t header_fill
    int zeros             # zero blocks just before `next`
    int64_t first         # offset of the current member, its extended headers included; -1 between members
    bint dangling         # an extended header was read, but not yet the member that it belongs to
    int64_t member        # offset of the header of the last member
    int64_t uncertain     # bytes of data that the last member has if they are not followed by a header at once
    int64_t body          # size of what META and GATHER collect, or of the data after EXTENSIONS
    uint8_t meta_kind
    Buffer meta, gather, names
    Override local, global_
    Found found[BATCH]
    int count
    int64_t skipped[KINDS]
    int64_t lone_zero_blocks, trailing

cdef Tar *tar_new(int64_t offset) noexcept nogil              # NULL when memory is short
cdef void tar_free(Tar *tar) noexcept nogil
cdef bint tar_walk(Tar *tar) noexcept nogil                   # False: the block is used up, or there is a fault
cdef void tar_gather(Tar *tar, Found *found) noexcept nogil   # The member will be found[0] of a later batch, its data in `gather`.
cdef void tar_drop(Tar *tar, Found *found) noexcept nogil     # The member's data is skipped.
