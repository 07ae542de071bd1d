# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Counts bytes in flight, and makes threads wait for room (see _budget.pxd)."""
from libc.stdint cimport int64_t, uint64_t

from datago._threads cimport (
    dg_cond_init, dg_cond_wait, dg_now, pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock,
)


cdef void budget_init(Budget *budget, uint64_t limit, uint64_t share, bint ordered) noexcept nogil:
    budget.limit, budget.share, budget.ordered = limit - share, share, ordered
    pthread_mutex_init(&budget.lock, NULL)
    dg_cond_init(&budget.changed)


cdef void budget_destroy(Budget *budget) noexcept nogil:
    pthread_cond_destroy(&budget.changed)
    pthread_mutex_destroy(&budget.lock)


cdef bint budget_take_encoded(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil:
    cdef Waiter me = Waiter(NULL)
    if not budget.limit:
        return True
    pthread_mutex_lock(&budget.lock)
    join_queue(&budget.for_encoded, &me)
    while (not budget.stopped and (budget.for_encoded != &me or budget.encoded and budget.encoded + bytes > budget.limit // 2
                                   or budget.pixels and budget.encoded + budget.pixels + bytes > budget.limit)
           and not (budget.ordered and number == budget.turn)):
        dg_cond_wait(&budget.changed, &budget.lock, dg_now() + 3600)
    leave_queue(budget, &budget.for_encoded, &me)
    return taken(budget, bytes, 0)


cdef bint budget_take_pixels(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil:
    cdef Waiter me = Waiter(NULL)
    if not budget.limit:
        return True
    pthread_mutex_lock(&budget.lock)
    join_queue(&budget.for_pixels, &me)
    while (not budget.stopped and (budget.for_pixels != &me or budget.encoded + budget.pixels + bytes > budget.limit)
           and (number != budget.turn if budget.ordered else budget.for_pixels != &me or budget.pixels > 0)):
        dg_cond_wait(&budget.changed, &budget.lock, dg_now() + 3600)
    leave_queue(budget, &budget.for_pixels, &me)
    return taken(budget, 0, bytes)


cdef void join_queue(Waiter **queue, Waiter *me) noexcept nogil:
    while queue[0] != NULL:
        queue = &queue[0].next
    queue[0] = me


cdef void leave_queue(Budget *budget, Waiter **queue, Waiter *me) noexcept nogil:
    """Takes `me` out of the queue. If another thread is now at its head, that thread may have waited for this alone and is woken."""
    while queue[0] != me:
        queue = &queue[0].next
    queue[0] = me.next
    if me.next != NULL:
        pthread_cond_broadcast(&budget.changed)


cdef bint taken(Budget *budget, uint64_t encoded, uint64_t pixels) noexcept nogil:
    """Counts the bytes unless the budget is stopped, and releases the lock, which the caller holds. Returns whether it counted them."""
    cdef bint ok = not budget.stopped
    if ok:
        budget.encoded += encoded
        budget.pixels += pixels
        budget.peak = max(budget.peak, in_flight(budget))
    pthread_mutex_unlock(&budget.lock)
    return ok


cdef uint64_t in_flight(Budget *budget) noexcept nogil:
    return budget.encoded + budget.pixels + budget.batches


cdef void release(Budget *budget, uint64_t encoded, uint64_t pixels, uint64_t turn) noexcept nogil:
    """Gives bytes back, and raises `budget.turn` to `turn`, but never lowers it."""
    if not budget.limit:
        return
    pthread_mutex_lock(&budget.lock)
    budget.encoded -= encoded
    budget.pixels -= pixels
    budget.turn = max(budget.turn, turn)
    pthread_cond_broadcast(&budget.changed)
    pthread_mutex_unlock(&budget.lock)


cdef void budget_give_back(Budget *budget, uint64_t encoded, uint64_t pixels) noexcept nogil:
    release(budget, encoded, pixels, 0)


cdef void budget_leave(Budget *budget, uint64_t number) noexcept nogil:
    release(budget, 0, 0, number + 1)


cdef void budget_add_batch(Budget *budget, int64_t bytes) noexcept nogil:
    if not budget.limit:
        return
    pthread_mutex_lock(&budget.lock)
    budget.batches += bytes
    budget.peak = max(budget.peak, in_flight(budget))
    pthread_mutex_unlock(&budget.lock)


cdef void budget_stop(Budget *budget) noexcept nogil:
    pthread_mutex_lock(&budget.lock)
    budget.stopped = True
    pthread_cond_broadcast(&budget.changed)
    pthread_mutex_unlock(&budget.lock)


cdef BudgetCounts budget_counts(Budget *budget) noexcept nogil:
    pthread_mutex_lock(&budget.lock)
    cdef BudgetCounts counts = BudgetCounts(budget.limit + budget.share, in_flight(budget), budget.peak)
    pthread_mutex_unlock(&budget.lock)
    return counts
