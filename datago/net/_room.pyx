# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The memory of downloads. What has arrived counts, never what a head claims.

    OWN: bytes that are divided equally among the slots. A body always gets its slot's part, so large bodies never hold up small ones.
    LARGE: bytes that unfinished bodies may take beyond those parts. A transfer that finds no room there is paused (`wanted`) ...
    ahead: ... except one, which does not count in LARGE and is never paused: so some download always ends. When it is over, the transfer
           that was paused longest takes its place.
    HELD: bytes of finished bodies that the reader has not taken. Above that nothing starts and nothing grows beyond its slot's part until
          the reader takes them.

A slow body that is `ahead` delays no other, since it takes nothing of LARGE. Other slow bodies could fill LARGE for a long time: while a
transfer is paused, those that hold a part of LARGE must bring at least HURRY of _transfers.pyx.
"""
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc

from datago._threads cimport pthread_mutex_lock, pthread_mutex_unlock
from datago.net._transfers cimport NO_MEMORY, FetchState, Job, Slot

cdef size_t FIRST = 64 << 10   # bytes that a body begins with; each time it is full it grows to twice that
cdef size_t OWN = 64 << 20
cdef size_t LARGE = 128 << 20


cdef size_t beyond(FetchState *engine, size_t capacity) noexcept nogil:
    """Bytes above a slot's own part."""
    cdef size_t own = max(FIRST, OWN // engine.slot_count)
    return capacity - own if capacity > own else 0


cdef bint takes_common_room(Slot *slot) noexcept nogil:
    return beyond(slot.engine, slot.job.capacity) > 0


cdef bint reader_is_behind(FetchState *engine) noexcept nogil:
    cdef bint behind
    pthread_mutex_lock(&engine.lock)
    behind = engine.held > <size_t>HELD
    pthread_mutex_unlock(&engine.lock)
    return behind


cdef bint fits(FetchState *engine, Job *job, size_t capacity, bint may_go_ahead) noexcept nogil:
    """Whether a body may grow to `capacity` now. It may be the one ahead from then on."""
    cdef size_t more = beyond(engine, capacity) - beyond(engine, job.capacity)
    if more == 0 or job == engine.ahead:
        return True
    if reader_is_behind(engine):
        return False
    if engine.large + more <= LARGE:
        return True
    if engine.ahead != NULL or not may_go_ahead:
        return False
    engine.large -= beyond(engine, job.capacity)
    engine.ahead = job
    return True


cdef bint grow(Slot *slot, size_t size) noexcept nogil:
    cdef Job *job = slot.job
    if size <= job.capacity:
        return True
    size = max(size, min(max(2 * job.capacity, FIRST), slot.expected))
    if not fits(slot.engine, job, size, True):
        slot.wanted = size
        slot.engine.paused += 1
        return False
    return resize(slot.engine, job, size)


cdef bint resize(FetchState *engine, Job *job, size_t capacity) noexcept nogil:
    cdef void *data = realloc(job.data, capacity)
    if data == NULL:
        job.verdict = NO_MEMORY
        return False
    if job != engine.ahead:
        engine.large += beyond(engine, capacity) - beyond(engine, job.capacity)  # modulo 2^64: also when it shrinks
    job.data, job.capacity = <uint8_t *>data, capacity
    return True


cdef Slot *next_to_resume(FetchState *engine) noexcept nogil:
    cdef Slot *slot
    cdef Slot *longest = NULL
    cdef int i
    if engine.paused == 0 or reader_is_behind(engine):
        return NULL
    for i in range(engine.slot_count):
        slot = &engine.slots[i]
        if slot.wanted and (longest == NULL or slot.heard < longest.heard):
            longest = slot
    if fits(engine, longest.job, longest.wanted, True):
        return longest
    for i in range(engine.slot_count):
        slot = &engine.slots[i]
        if slot.wanted and fits(engine, slot.job, slot.wanted, False):
            return slot
    return NULL


cdef void no_longer_waiting(Slot *slot) noexcept nogil:
    slot.engine.paused -= slot.wanted != 0
    slot.wanted = 0


cdef void leave_room(FetchState *engine, Job *job) noexcept nogil:
    if job == engine.ahead:
        engine.ahead = NULL
    else:
        engine.large -= beyond(engine, job.capacity)


cdef void forget(FetchState *engine, Job *job) noexcept nogil:
    leave_room(engine, job)
    free(job.data)
    job.data, job.size, job.capacity = NULL, 0, 0
