# A tar archive in blocks of any size, walked without the GIL and without a Python object: what _tar.pyx puts a face on.
#
# The caller sets `next` and `end` to a block and calls tar_walk until it is False; after each call it takes the members
# found and sets `count` and `names.fill` back to 0. If it is True with the state CUT, the last one found reaches past
# the block: tar_gather or tar_drop says what becomes of its data.
from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #define SIZE_MOST ((int64_t)1 << 60)
    """
    const int64_t SIZE_MOST  # larger sizes are refused, so that no sum of sizes and offsets overflows

cdef enum:
    BLOCK = 512              # all tar is made of
    BATCH = 1024             # members found between two looks at Python: 40 kB, and the GIL is taken once
    NAMES_FULL = 1 << 16     # a batch ends here too: names are as long as an archive wants
    META_MOST = 1 << 20      # bytes of a pax header or long name; real ones have a few hundred
    GLOBAL_PATH_MOST = 4096  # a path for all members is odd enough; a long one would multiply the memory for names
    AT_ONCE = 1 << 20        # a cut member up to this size gets its memory in one piece

cdef enum State:
    HEADERS     # the next block is a header
    EXTENSIONS  # the next block continues the map of a sparse file
    META        # inside a pax header or a long name
    CUT         # a member reaches past the block; the caller has to say whether it is wanted
    GATHER      # inside that member, wanted
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

cdef enum TransferError:
    FINE
    NO_MEMORY
    NOT_TAR
    BAD_CHECKSUM
    BAD_SIZE
    NEGATIVE_SIZE
    HUGE_SIZE
    BAD_META
    HUGE_META
    LOOSE_META

cdef struct Pile:       # bytes that grow
    uint8_t *data
    size_t fill, capacity

cdef struct Override:   # what pax headers and long names put in place of header fields
    Pile path
    bint has_path, has_size, sparse
    int64_t size

cdef struct Found:      # a member, or the beginning of a cut one
    int64_t offset, size
    size_t name, name_length  # in Tar.names
    const uint8_t *data       # in the block; NULL if the member is cut, or gathered from earlier blocks

cdef struct Tar:
    const uint8_t *next   # what is left of the block
    const uint8_t *end
    int64_t offset        # of `next` in the stream
    int64_t skip          # bytes to pass over before `state` goes on; the last `padding` of them fill up a tar block
    int64_t padding
    State state
    TransferError fault
    int64_t fault_at
    uint8_t header[BLOCK]  # a header that comes in pieces; the first bytes of what is not a tar
    size_t header_fill
    int zeros             # zero blocks just before `next`
    int64_t first         # offset of the member at hand, its extended headers included; -1 between members
    bint loose            # an extended header waits for its member
    int64_t member        # offset of the header of the last member
    int64_t doubt         # data that member may have if no header follows
    int64_t body          # size of what META and GATHER collect, or of the data after EXTENSIONS
    uint8_t meta_kind
    Pile meta, gather, names
    Override local, everywhere
    Found found[BATCH]
    int count
    int64_t skipped[KINDS]
    int64_t lone_zero_blocks, trailing

cdef Tar *tar_new(int64_t offset) noexcept nogil              # NULL when memory is short
cdef void tar_free(Tar *tar) noexcept nogil
cdef bint tar_walk(Tar *tar) noexcept nogil                   # False: the block is used up, or there is a fault
cdef void tar_gather(Tar *tar, Found *found) noexcept nogil   # it will be found[0] of a later batch, data in `gather`
cdef void tar_drop(Tar *tar, Found *found) noexcept nogil
