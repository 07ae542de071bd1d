# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Batches of one bucket, filled by the workers outside the GIL (see _batch.pxd)."""
from cpython.buffer cimport PyBuffer_Release
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from datago.engine._budget cimport Budget, budget_add_batch, budget_give_back, budget_leave
from datago.engine._item cimport ITEM_BATCH, ITEM_FAILURE, ITEM_SAMPLE, Part, batch_free, entry_empty, item_free, item_give_up
from datago.engine._pixels cimport (
    DG_NO_MEMORY, DG_OK, DG_ROLE_IMAGE, DG_SAMPLE, dg_buffer_alloc, dg_fail, dg_image, dg_image_free, dg_place, dg_placement_size,
)
from datago.engine._ring cimport RING_OK, RingState, ring_close, ring_free, ring_new, ring_place, ring_pop, ring_push
from datago._threads cimport (
    dg_cond_init, dg_cond_wait, dg_now, pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock,
)


cdef Batcher *batcher_new(dg_heap *heap, Budget *budget, Ring *ready, size_t window) noexcept nogil:
    cdef Batcher *batcher = <Batcher *>calloc(1, sizeof(Batcher))
    if batcher == NULL:
        return NULL
    batcher.heap = heap
    batcher.budget = budget
    batcher.ready = ready
    if window:
        batcher.turns = ring_new(window)
        if batcher.turns == NULL:
            free(batcher)
            return NULL
    pthread_mutex_init(&batcher.lock, NULL)
    dg_cond_init(&batcher.room)
    return batcher


cdef void batcher_free(Batcher *batcher) noexcept:
    cdef Batch *batch
    cdef void *item
    if batcher == NULL:
        return
    batcher_release(batcher)
    while batcher.open != NULL:
        batch = batcher.open
        batcher.open = batch.next
        batch_free(batch)
    if batcher.turns != NULL:
        ring_close(batcher.turns)
        while ring_pop(batcher.turns, &item, 0) == RING_OK:
            item_free(<Item *>item)
    ring_free(batcher.turns)
    pthread_cond_destroy(&batcher.room)
    pthread_mutex_destroy(&batcher.lock)
    free(batcher)


cdef void batcher_release(Batcher *batcher) noexcept:
    # Where Python frees or makes something it may run any code, and that code may come here again. So each object is moved out with the
    # lock held, and let go of without it.
    cdef Py_buffer data
    cdef PyObject *entry = NULL
    cdef Item *item
    cdef bint more = batcher != NULL
    while more:
        entry = NULL
        memset(&data, 0, sizeof(data))
        pthread_mutex_lock(&batcher.lock)
        item = batcher.spent
        more = item != NULL
        if more and not item_give_up(item, &data):
            batcher.spent = item.next
            entry = <PyObject *>item.entry
            Py_INCREF(<object>entry)
        pthread_mutex_unlock(&batcher.lock)
        PyBuffer_Release(&data)
        if entry != NULL:
            entry_empty(<object>entry)
            Py_DECREF(<object>entry)


cdef void batcher_stop(Batcher *batcher) noexcept nogil:
    if batcher == NULL:
        return
    if batcher.turns != NULL:
        ring_close(batcher.turns)
    pthread_mutex_lock(&batcher.lock)
    batcher.stopped = True
    pthread_cond_broadcast(&batcher.room)
    pthread_mutex_unlock(&batcher.lock)


cdef void batcher_leave(Batcher *batcher, Batch *batch) noexcept nogil:
    pthread_mutex_lock(&batcher.lock)
    batcher.count -= 1
    pthread_cond_broadcast(&batcher.room)
    pthread_mutex_unlock(&batcher.lock)
    budget_add_batch(batcher.budget, -<int64_t>(batcher.size * batch.stride))


# A worker that waits for room in the ready ring must hold nothing that another one needs. So what goes out is gathered in a list, by
# number, and sent once the picture at hand is written.

cdef void gather(Item **out, Item *item) noexcept nogil:
    while out[0] != NULL and out[0].number < item.number:
        out = &out[0].next
    item.next = out[0]
    out[0] = item


# ---- called with the lock held ---------------------------------------------------------------------------------------------

cdef Batch *batch_new(Batcher *batcher, int width, int height) noexcept nogil:
    """A batch with a place for every picture, its memory not cleared, for the caller to put among the open ones; NULL: memory is short."""
    cdef Batch *batch = <Batch *>calloc(1, sizeof(Batch) + batcher.size * sizeof(Item *))
    if batch == NULL:
        return NULL
    batch.carrier = <Item *>calloc(1, sizeof(Item))
    batch.stride = dg_placement_size(&batcher.placement, width, height)
    if batch.carrier == NULL or dg_buffer_alloc(batcher.heap, batcher.size * batch.stride, &batch.memory) != DG_OK:
        free(batch.carrier)
        free(batch)
        return NULL
    batch.width, batch.height = width, height
    batch.carrier.kind = ITEM_BATCH
    batch.carrier.batch = batch
    batch.carrier.position = -1
    batcher.count += 1
    budget_add_batch(batcher.budget, batcher.size * batch.stride)
    return batch


cdef void close(Batcher *batcher, Batch *batch, Item **out) noexcept nogil:
    """Ends giving places in a batch. It goes out now if all places that were taken are filled, and otherwise when the last one is."""
    cdef Batch **link = &batcher.open
    while link[0] != batch:
        link = &link[0].next
    link[0] = batch.next
    batch.closed = True
    batch.dropped = batcher.drop and batch.taken < batcher.size and not batcher.planned
    batcher.waiting -= batch.taken
    batch.carrier.number = batcher.number
    batcher.number += 1
    if batch.filled == batch.taken:
        gather(out, batch.carrier)


cdef void close_all(Batcher *batcher, Item **out) noexcept nogil:
    while batcher.open != NULL:
        close(batcher, batcher.open, out)


cdef void close_fullest(Batcher *batcher, Item **out) noexcept nogil:
    cdef Batch *batch = batcher.open
    cdef Batch *fullest = batch
    while batch != NULL:
        if batch.taken > fullest.taken:
            fullest = batch
        batch = batch.next
    close(batcher, fullest, out)


cdef bint has_image(Item *item) noexcept nogil:
    """False for a failure; a sample without an image becomes one."""
    if item.kind == ITEM_SAMPLE and (item.part_count == 0 or item.parts[0].role != DG_ROLE_IMAGE):
        item.kind = ITEM_FAILURE
        dg_fail(&item.error, DG_SAMPLE, "no image, and a batch is made of images")
    return item.kind == ITEM_SAMPLE


cdef void send_by_itself(Batcher *batcher, Item *item, Item **out) noexcept nogil:
    item.number = batcher.number
    batcher.number += 1
    gather(out, item)


cdef void close_complete(Batcher *batcher, Item **out) noexcept nogil:
    """The planned batches that are full leave, up to the first one that is not. Wakes the feeder where it may have waited for that."""
    cdef Batch *first = batcher.open
    while batcher.open != NULL and batcher.open.filled == batcher.open.taken:
        close(batcher, batcher.open, out)
    if batcher.open != first or (first != NULL and first.pending == 0):
        pthread_cond_broadcast(&batcher.room)


cdef bint give_place(Batcher *batcher, Item *item, Item **out) noexcept nogil:
    """Gives an item the next place in the batch of its size. False for a failure, which has no place and goes out by itself."""
    cdef Part *part = &item.parts[0]
    cdef Batch *batch = batcher.open
    cdef char text[64]
    if has_image(item):
        while batch != NULL and (batch.width != part.picture.image.width or batch.height != part.picture.image.height):
            batch = batch.next
        if batch == NULL:
            batch = batch_new(batcher, part.picture.image.width, part.picture.image.height)
            if batch != NULL:
                batch.next = batcher.open
                batcher.open = batch
        if batch == NULL:
            item.kind = ITEM_FAILURE
            snprintf(text, sizeof(text), "no memory for a batch of %d pictures", batcher.size)
            dg_fail(&item.error, DG_NO_MEMORY, text)
    if item.kind == ITEM_FAILURE:
        send_by_itself(batcher, item, out)
        return False
    item.batch = batch
    item.place = batch.taken
    batch.items[batch.taken] = item
    batch.taken += 1
    batcher.good += 1
    batcher.waiting += 1
    if batch.taken == batcher.size:
        close(batcher, batch, out)
    elif batcher.waiting > batcher.most_waiting:
        close_fullest(batcher, out)
    if batcher.good == batcher.limit:
        close_all(batcher, out)
    return True


# ---- a worker's side ------------------------------------------------------------------------------------------------

cdef void send(Batcher *batcher, Item *out, Item **left) noexcept nogil:
    cdef RingState state
    cdef Item *item
    while out != NULL:
        item = out
        out = item.next
        if batcher.turns != NULL or batcher.planned:
            state = ring_place(batcher.ready, item, item.number)
        else:
            state = ring_push(batcher.ready, item, -1)
        if state != RING_OK:
            item.next = left[0]
            left[0] = item


cdef void give_budget_back(Batcher *batcher, Item *item) noexcept nogil:
    """Batches have a share of their own, so an item in a batch takes nothing of the budget; its other images wait there uncounted."""
    budget_give_back(batcher.budget, item.encoded, item.pixels)
    item.encoded = item.pixels = 0


cdef void write(Batcher *batcher, Item *item) noexcept nogil:
    """Writes the picture into its place."""
    cdef Batch *batch = item.batch
    cdef Part *part = &item.parts[0]
    # dg_process has made 8 bits and three channels of every picture, so this cannot fail.
    dg_place(&batcher.placement, &part.picture.image, batch.memory.data + item.place * batch.stride, &item.error)
    dg_image_free(&part.picture.image)
    part.picture.image.width = part.picture.image.height = 0
    give_budget_back(batcher, item)


cdef void count_filled(Batcher *batcher, Item *item) noexcept nogil:
    """The caller holds the lock."""
    if item.entry != NULL:
        item.next = batcher.spent
        batcher.spent = item
    item.batch.filled += 1


cdef void fill(Batcher *batcher, Item *item, Item **out) noexcept nogil:
    """Writes the picture into its place. The batch goes out if that was the last place."""
    cdef Batch *batch = item.batch
    write(batcher, item)
    pthread_mutex_lock(&batcher.lock)
    count_filled(batcher, item)
    if batch.closed and batch.filled == batch.taken:
        gather(out, batch.carrier)
    pthread_mutex_unlock(&batcher.lock)


cdef void fill_planned(Batcher *batcher, Item *item, Item **out) noexcept nogil:
    """The place of an item of a planned batch is filled, or stays empty for another one."""
    cdef Batch *batch = item.batch
    cdef dg_image *image = &item.parts[0].picture.image
    cdef bint good = has_image(item)
    if good and (image.width != batch.width or image.height != batch.height):
        item.kind = ITEM_FAILURE
        dg_fail(&item.error, DG_SAMPLE, "its size is not that of its batch")
        good = False
    if good:
        write(batcher, item)
    else:
        give_budget_back(batcher, item)
    pthread_mutex_lock(&batcher.lock)
    batch.pending -= 1
    if good:
        count_filled(batcher, item)
        batch.items[item.place] = item
    else:
        item.position = -1  # the one that comes in its place is what is handed out there
        send_by_itself(batcher, item, out)
    close_complete(batcher, out)
    pthread_mutex_unlock(&batcher.lock)


cdef void batcher_add(Batcher *batcher, Item *item, Item **left) noexcept nogil:
    cdef Item *out
    cdef void *next = item
    cdef bint placed
    if item.batch != NULL:
        out = NULL
        fill_planned(batcher, item, &out)
        send(batcher, out, left)
        return
    if batcher.turns != NULL and ring_place(batcher.turns, item, item.number) != RING_OK:
        item.next = left[0]
        left[0] = item
        return
    while True:
        out = NULL
        pthread_mutex_lock(&batcher.lock)
        while not batcher.planned and batcher.max_batches and batcher.count >= batcher.max_batches and not batcher.stopped:
            dg_cond_wait(&batcher.room, &batcher.lock, dg_now() + 3600)
        # Where order is kept this item may have to wait, or others may have waited for it: all whose turn it is now get their place.
        if batcher.turns != NULL:
            if ring_pop(batcher.turns, &next, 0) != RING_OK:
                pthread_mutex_unlock(&batcher.lock)
                return
            item = <Item *>next
            budget_leave(batcher.budget, item.number)
        placed = give_place(batcher, item, &out)
        pthread_mutex_unlock(&batcher.lock)
        if placed:
            fill(batcher, item, &out)
        else:
            give_budget_back(batcher, item)
        send(batcher, out, left)
        if batcher.turns == NULL:
            return


cdef void batcher_flush(Batcher *batcher, Item **left) noexcept nogil:
    cdef Item *out = NULL
    cdef void *item
    while batcher.turns != NULL and ring_pop(batcher.turns, &item, 0) == RING_OK:  # after a stop some still wait for their turn
        (<Item *>item).next = left[0]
        left[0] = <Item *>item
    pthread_mutex_lock(&batcher.lock)
    while batcher.planned and batcher.open != NULL:  # after a stop, or an error of the source
        batcher.open.carrier.next = left[0]
        left[0] = batcher.open.carrier
        batcher.open = batcher.open.next
    close_all(batcher, &out)
    pthread_mutex_unlock(&batcher.lock)
    send(batcher, out, left)


# ---- the feeder's side of planned batches -----------------------------------------------------------------------------

cdef bint batcher_wait(Batcher *batcher, bint at_end, Batch **wanting) noexcept nogil:
    cdef Batch *first
    cdef bint go_on
    wanting[0] = NULL
    pthread_mutex_lock(&batcher.lock)
    while not batcher.stopped:
        first = batcher.open
        if first != NULL and first.pending == 0:
            wanting[0] = first
            break
        if first == NULL if at_end else batcher.count < batcher.max_batches:
            break
        dg_cond_wait(&batcher.room, &batcher.lock, dg_now() + 3600)
    go_on = not batcher.stopped
    pthread_mutex_unlock(&batcher.lock)
    return go_on


cdef Batch *batcher_begin(Batcher *batcher, int64_t group, int places, int width, int height) noexcept nogil:
    cdef Batch **link = &batcher.open
    cdef Batch *batch
    pthread_mutex_lock(&batcher.lock)
    batch = batch_new(batcher, width, height)
    if batch != NULL:
        batch.group, batch.taken = group, places
        batcher.waiting += places
        while link[0] != NULL:
            link = &link[0].next
        link[0] = batch
    pthread_mutex_unlock(&batcher.lock)
    return batch


cdef Batch *batcher_expect(Batcher *batcher, Batch *batch, int count) noexcept nogil:
    pthread_mutex_lock(&batcher.lock)
    if batch == NULL:
        batch = batcher.open
    if batch != NULL:
        batch.pending += count
    pthread_mutex_unlock(&batcher.lock)
    return batch
