# The Fetcher's side of the download thread. See _queues.pyx.
from datago.net._transfers cimport FetchState, JoinOutcome, Queue

cdef bint push(FetchState *engine, Queue *jobs) noexcept nogil
cdef bint pull(FetchState *engine, Queue *jobs, double timeout) noexcept nogil
cdef JoinOutcome ask_to_leave(FetchState *engine, double deadline) noexcept nogil
