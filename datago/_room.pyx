# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The memory of downloads. What has arrived counts, never what a head claims.

    OWN, shared out among the slots: a body takes its slot's part without asking, so small ones go on whatever large ones do.
    LARGE: what bodies on their way take beyond those parts. Whoever finds no room there is paused (`wanted`) ...
    ahead: ... but for one, which does not count in LARGE and may always go on: so some download always comes to its end. When it is over,
           the one that has waited longest follows.
    HELD: bodies that are done and that nobody took. Above that nothing is begun and nothing grows beyond its own part, until the reader,
          which has something to take then, takes it.

A slow body ahead stops nobody, since it is out of LARGE. Others that are slow could fill LARGE for a long time: who holds a part of it
while somebody waits has to bring _transfers' HURRY.
"""
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc

from datago._threads cimport pthread_mutex_lock, pthread_mutex_unlock
from datago._transfers cimport NO_MEMORY, Engine, Job, Slot

cdef size_t FIRST = 64 << 10   # bytes that a body begins with; each time it is full it grows to twice that
cdef size_t OWN = 64 << 20
cdef size_t LARGE = 128 << 20


cdef size_t beyond(Engine *engine, size_t capacity) noexcept nogil:
    """Bytes above a slot's own part."""
    cdef size_t own = max(FIRST, OWN // engine.slot_count)
    return capacity - own if capacity > own else 0


cdef bint takes_common_room(Slot *slot) noexcept nogil:
    return beyond(slot.engine, slot.job.capacity) > 0


cdef bint reader_is_behind(Engine *engine) noexcept nogil:
    cdef bint behind
    pthread_mutex_lock(&engine.lock)
    behind = engine.held > <size_t>HELD
    pthread_mutex_unlock(&engine.lock)
    return behind


cdef bint fits(Engine *engine, Job *job, size_t capacity, bint may_go_ahead) noexcept nogil:
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


cdef bint resize(Engine *engine, Job *job, size_t capacity) noexcept nogil:
    cdef void *data = realloc(job.data, capacity)
    if data == NULL:
        job.verdict = NO_MEMORY
        return False
    if job != engine.ahead:
        engine.large += beyond(engine, capacity) - beyond(engine, job.capacity)  # modulo 2^64: also when it shrinks
    job.data, job.capacity = <uint8_t *>data, capacity
    return True


cdef Slot *next_to_resume(Engine *engine) noexcept nogil:
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


cdef void leave_room(Engine *engine, Job *job) noexcept nogil:
    if job == engine.ahead:
        engine.ahead = NULL
    else:
        engine.large -= beyond(engine, job.capacity)


cdef void forget(Engine *engine, Job *job) noexcept nogil:
    leave_room(engine, job)
    free(job.data)
    job.data, job.size, job.capacity = NULL, 0, 0
