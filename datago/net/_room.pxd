# How much memory bodies on their way may take, and which of them wait for more. See _room.pyx.
from datago.net._transfers cimport FetchState, Job, Slot

cdef enum:
    HELD = 128 << 20  # bytes of finished bodies that the reader has not taken, above which no large body grows

cdef bint grow(Slot *slot, size_t size) noexcept nogil            # False: `wanted` is set, or else the job's verdict says why
cdef bint resize(FetchState *engine, Job *job, size_t capacity) noexcept nogil
cdef Slot *next_to_resume(FetchState *engine) noexcept nogil          # it has its room now; NULL: nobody waits for whom there is some
cdef void no_longer_waiting(Slot *slot) noexcept nogil
cdef void leave_room(FetchState *engine, Job *job) noexcept nogil     # its body is no longer on its way
cdef void forget(FetchState *engine, Job *job) noexcept nogil         # what came of its body so far
cdef bint reader_is_behind(FetchState *engine) noexcept nogil
cdef bint takes_common_room(Slot *slot) noexcept nogil
