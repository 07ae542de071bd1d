# How much memory bodies on their way may take, and which of them wait for more. See _room.pyx.
from datago._transfers cimport Engine, Job, Slot

cdef enum:
    HELD = 128 << 20  # bytes of bodies that are done and that nobody took, above which nothing large goes on

cdef bint grow(Slot *slot, size_t size) noexcept nogil            # False: `wanted` is set, or else the job's verdict says why
cdef bint resize(Engine *engine, Job *job, size_t capacity) noexcept nogil
cdef Slot *next_to_resume(Engine *engine) noexcept nogil          # it has its room now; NULL: nobody waits for whom there is some
cdef void no_longer_waiting(Slot *slot) noexcept nogil
cdef void leave_room(Engine *engine, Job *job) noexcept nogil     # its body is no longer on its way
cdef void forget(Engine *engine, Job *job) noexcept nogil         # what came of its body so far
cdef bint reader_is_behind(Engine *engine) noexcept nogil
cdef bint takes_common_room(Slot *slot) noexcept nogil
