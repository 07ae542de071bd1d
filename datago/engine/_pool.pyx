# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The worker pool: native threads between two rings, which need no GIL but for formats that only Pillow knows.

    feeder: submit ──► work ring ──► worker: process ──────────────► ready ring ──► take: reader
                                       └──► its place in a batch ──────┘

A pool lives once: it is born running, and `finish` (no more input) or `stop` (no more work) ends it. `join` says when the last thread has
left. Items that are still inside are freed with the pool.
"""
import os

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t, uint64_t

from datago._threads cimport (
    dg_cond_init, dg_cond_wait, dg_now, dg_thread_begin, dg_thread_start, pthread_cond_broadcast, pthread_cond_destroy,
    pthread_cond_t, pthread_join, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock, pthread_t,
)
from datago.engine._batch cimport (
    Batcher, batcher_add, batcher_begin, batcher_expect, batcher_flush, batcher_free, batcher_leave, batcher_new, batcher_release,
    batcher_stop, batcher_wait,
)
from datago.engine._budget cimport (
    Budget, budget_counts, budget_destroy, budget_give_back, budget_init, budget_leave, budget_stop, budget_take_encoded,
)
from datago.engine._item cimport ITEM_BATCH, Batch, Item, item_free, item_new
from datago.engine._options cimport free_image_options, set_batch_options, set_image_options
from datago.engine._pixels cimport (
    atomic_int, dg_heap_free, dg_heap_inherited, dg_heap_new, dg_heap_trim, dg_scratch, dg_scratch_free, dg_worker, dg_worker_enter,
    dg_worker_free, dg_worker_new,
)
from datago.engine._process cimport ProcessContext, never_fits, process_item, shrink_reservation
from datago.engine._progress cimport Progress
from datago.engine._ring cimport (
    RING_CLOSED, RING_OK, RING_TIMEOUT, Ring, RingState, ring_close, ring_counts, ring_free, ring_new, ring_place, ring_pop, ring_push,
)
from datago.engine._sample cimport Failure, item_result

cdef size_t HEAP_KEEPS = 256 << 20    # bytes of freed pixel buffers that are kept for the next pictures
cdef double SIGNAL_INTERVAL_S = 0.05  # between two looks for signals, so that Ctrl-C is answered within a tenth of a second


cdef struct PoolState:
    Ring *work
    Ring *ready
    Budget budget
    ProcessContext process
    bint ordered              # results leave in the order in which items were admitted
    Batcher *batcher          # NULL where samples leave one by one
    atomic_int stop           # decoders look at it between rows
    dg_worker **tools         # of each thread; whoever starts the threads makes them
    pthread_mutex_t lock      # guards what follows
    pthread_cond_t changed    # a thread has begun or left, a credit came back, or stop
    int begun                 # threads that have begun
    int working               # threads in the loop; the last thread to leave it closes the ready ring
    int alive                 # threads that may still touch this struct
    bint joined
    int64_t limit             # good samples wanted
    int64_t credits           # items that may still be admitted before all together could make more than `limit` good samples
    uint64_t seen, delivered, failed, skipped, dropped, damaged  # skipped: by stop; dropped: with batches that did not get full
    Item *left_over           # what the closed rings refused


# ---- workers --------------------------------------------------------------------------------------------------------

cdef void *worker(void *argument) noexcept nogil:
    cdef PoolState *pool = <PoolState *>argument
    cdef dg_worker *tools
    cdef dg_scratch scratch = dg_scratch(NULL, 0)
    cdef void *item
    cdef Item *left = NULL
    cdef bint last
    dg_thread_begin("datago worker")
    pthread_mutex_lock(&pool.lock)
    tools = pool.tools[pool.begun]
    if tools != NULL:
        dg_worker_enter(tools)
    pool.tools[pool.begun] = NULL
    pool.begun += 1
    pthread_cond_broadcast(&pool.changed)
    pthread_mutex_unlock(&pool.lock)
    while ring_pop(pool.work, &item, -1) == RING_OK:
        process_item(&pool.process, tools, &scratch, <Item *>item)
        shrink_reservation(&pool.process, <Item *>item)
        emit(pool, <Item *>item, &left)
    dg_worker_free(tools)
    dg_scratch_free(&scratch)
    pthread_mutex_lock(&pool.lock)
    pool.working -= 1
    last = pool.working == 0
    pthread_mutex_unlock(&pool.lock)
    if last and pool.batcher != NULL:
        batcher_flush(pool.batcher, &left)
    if last:
        ring_close(pool.ready)
    pthread_mutex_lock(&pool.lock)
    while left != NULL:  # freeing an item needs the GIL, so whoever joins this thread does that
        item = left
        left = left.next
        (<Item *>item).next = pool.left_over
        pool.left_over = <Item *>item
    pool.alive -= 1
    pthread_cond_broadcast(&pool.changed)
    pthread_mutex_unlock(&pool.lock)
    return NULL


cdef void emit(PoolState *pool, Item *item, Item **left) noexcept nogil:
    cdef RingState state
    if pool.batcher != NULL:
        batcher_add(pool.batcher, item, left)
        return
    # Where order is kept the ready ring is the window: the item that leaves next always finds room, so no other waits for ever.
    state = ring_place(pool.ready, item, item.number) if pool.ordered else ring_push(pool.ready, item, -1)
    if state != RING_OK:
        item.next = left[0]
        left[0] = item


# ---- the feeder's side ----------------------------------------------------------------------------------------------

cdef void wait_for_credit(PoolState *pool) noexcept nogil:
    """The caller holds the lock."""
    while pool.credits <= 0 and not pool.stop:
        dg_cond_wait(&pool.changed, &pool.lock, dg_now() + 3600)


cdef bint admit(PoolState *pool, Item *item) noexcept nogil:
    """Waits for a credit and for room. False once the pool was stopped: then the item still belongs to the caller."""
    cdef uint64_t encoded = 0
    cdef int i
    pthread_mutex_lock(&pool.lock)
    wait_for_credit(pool)
    pool.credits -= 1
    item.number = pool.seen
    pool.seen += 1
    pthread_mutex_unlock(&pool.lock)
    for i in range(item.part_count):
        encoded += item.parts[i].data.len
    if never_fits(&pool.budget, item, encoded):
        encoded = 0
    if budget_take_encoded(&pool.budget, item.number, encoded):
        item.encoded = encoded
        if ring_push(pool.work, item, -1) == RING_OK:
            return True
        budget_give_back(&pool.budget, encoded, 0)
        item.encoded = 0
    pthread_mutex_lock(&pool.lock)
    pool.seen -= 1
    pthread_mutex_unlock(&pool.lock)
    return False


cdef int samples_of(Item *item) noexcept nogil:
    return item.batch.filled if item.kind == ITEM_BATCH else 1


cdef void discard(PoolState *pool, Item *item) noexcept:
    """Counts and frees an item that stop() found on its way."""
    pthread_mutex_lock(&pool.lock)
    pool.skipped += samples_of(item)
    pthread_mutex_unlock(&pool.lock)
    budget_give_back(&pool.budget, item.encoded, item.pixels)
    item_free(item)


cdef class Pool:
    """Worker threads and the two rings around them.

    The threads of a process stay in it when it forks, and so do the locks that they hold. So in a forked child `stop` does nothing, and
    all other methods raise RuntimeError.

    Args:
        threads: worker threads, at least 1. Fewer are started if the system refuses more; OSError if it refuses even one.
        work_capacity, ready_capacity: items the rings hold, at least 1.
        limit: good samples after which the stream ends, 0 or more. Failures do not count.
        max_file_bytes: larger files are failures.
        memory_limit: bytes of encoded pictures and pixels in flight; 0: no limit.
        image: an ImageSettings (see settings.py).
        progress: the positions of all that `take` gives are marked there.
        ordered: results leave in the order of `submit`.
        seed, epoch: of what is drawn for each sample, 64 bits each.
        base: leading bytes of paths that say only where the folder lies. They are left out of what is drawn by.
        batch: None, or what batches are to be (see DatagoBatchDataset): size, layout, dtype, channels, mean, std, drop, most_waiting;
            for a memory_limit, `most`, the number of batches that there may be, and `bytes`, the size of the largest; and `planning`:
            where it is not None, batches come by `submit_planned`, and leave in that order.
    """

    cdef PoolState *pool
    cdef pthread_t *threads
    cdef int started
    cdef Progress progress

    def __cinit__(self, *, int threads, size_t work_capacity, size_t ready_capacity, int64_t limit, uint64_t max_file_bytes, image,
                  Progress progress not None, uint64_t memory_limit=0, bint ordered=False, uint64_t seed=0, uint64_t epoch=0,
                  size_t base=0, batch=None):
        cdef int failed = 0
        cdef PoolState *pool = <PoolState *>PyMem_RawCalloc(1, sizeof(PoolState))
        self.threads = <pthread_t *>PyMem_RawCalloc(threads, sizeof(pthread_t))
        if pool == NULL or self.threads == NULL:
            PyMem_RawFree(pool)
            PyMem_RawFree(self.threads)
            raise MemoryError
        self.pool = pool
        pool.tools = <dg_worker **>PyMem_RawCalloc(threads, sizeof(dg_worker *))
        pthread_mutex_init(&pool.lock, NULL)
        dg_cond_init(&pool.changed)
        pool.work = ring_new(work_capacity)
        pool.ready = ring_new(ready_capacity)
        pool.process.heap = dg_heap_new(min(HEAP_KEEPS, memory_limit // 4) if memory_limit else HEAP_KEEPS)
        if pool.work == NULL or pool.ready == NULL or pool.process.heap == NULL or pool.tools == NULL:
            raise MemoryError
        pool.limit = pool.credits = limit
        pool.ordered = ordered
        set_image_options(&pool.process.options, image)
        pool.process.options.decode.stop = &pool.stop
        pool.process.budget = &pool.budget
        pool.process.max_file_bytes = max_file_bytes
        pool.process.seed, pool.process.epoch, pool.process.base = seed, epoch, base
        budget_init(&pool.budget, memory_limit, 0 if batch is None else batch.most * batch.bytes, ordered)
        self.progress = progress
        if batch is not None:
            pool.batcher = batcher_new(pool.process.heap, &pool.budget, pool.ready, max(16, 2 * threads) if ordered else 0)
            if pool.batcher == NULL:
                raise MemoryError
            pool.batcher.limit = limit
            set_batch_options(pool.batcher, batch)
            if pool.batcher.planned:  # as many as may wait for the reader, and those that the threads fill meanwhile
                most = ready_capacity + 2 + 2 * threads // pool.batcher.size
                pool.batcher.max_batches = min(most, pool.batcher.max_batches or most)
        pool.alive = pool.working = threads
        # Libraries read the environment when a thread begins, and Python changes it with the GIL held: so it is held until all have begun.
        while self.started < threads and failed == 0:
            pool.tools[self.started] = dg_worker_new(pool.process.heap)
            failed = dg_thread_start(&self.threads[self.started], worker, pool)
            self.started += failed == 0
        if failed != 0:
            dg_worker_free(pool.tools[self.started])
        pthread_mutex_lock(&pool.lock)
        while pool.begun < self.started:
            dg_cond_wait(&pool.changed, &pool.lock, dg_now() + 3600)
        pool.alive -= threads - self.started
        pool.working -= threads - self.started
        pthread_mutex_unlock(&pool.lock)
        if self.started == 0:
            raise OSError(failed, f"no worker thread could be started: {os.strerror(failed)}")

    def __dealloc__(self):
        cdef PoolState *pool = self.pool
        if pool == NULL or dg_heap_inherited(pool.process.heap):
            return
        if pool.work != NULL and pool.ready != NULL:
            self.stop()
            if not self.join(0.1):
                return  # a thread is still inside, in a system call that does not come back: its memory must stay
        batcher_free(pool.batcher)
        ring_free(pool.work)
        ring_free(pool.ready)
        PyMem_RawFree(pool.tools)
        free_image_options(&pool.process.options)
        dg_heap_free(pool.process.heap)
        budget_destroy(&pool.budget)
        pthread_cond_destroy(&pool.changed)
        pthread_mutex_destroy(&pool.lock)
        PyMem_RawFree(self.threads)
        PyMem_RawFree(pool)

    cdef int check_process(self) except -1:
        if dg_heap_inherited(self.pool.process.heap):
            raise RuntimeError("this Pool was made in another process, and its threads stayed there")
        return 0

    @property
    def thread_count(self) -> int:
        """Worker threads that were started."""
        return self.started

    @property
    def inherited(self) -> bool:
        """Whether this process is a forked child of the one that made the pool."""
        return dg_heap_inherited(self.pool.process.heap)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self.pool.stop != 0

    def submit(self, list entries, list classes=None) -> bool:
        """Admits a batch of a source's entries, with the class of each where there are classes.

        It waits outside the GIL for room, and then until another batch may be needed, so that a source begins nothing that nobody wants.
        False once the pool was stopped.
        """
        return self.admit_all(entries, classes, NULL, -1, None, None)

    def submit_planned(self, int64_t group, int width, int height, list entries, list valid, list places=None, list classes=None) -> bool:
        """Admits the items of a planned batch: all of them, where `places` is None, else others for places that stayed empty.

        Batches are submitted one after the other, each when `empty_places` has said that there is room.

        Args:
            group: the number of the batch, which is also the position of its samples.
            width, height: pixels, of its pictures.
            valid: for each entry a bool; see SampleBatch.

        Returns:
            False once the pool was stopped.

        Raises:
            MemoryError: there is no memory for the batch.
        """
        cdef PoolState *pool = self.pool
        cdef Batch *batch = NULL
        self.check_process()
        if not 0 < len(entries) <= pool.batcher.size:
            raise ValueError(f"entries: got {len(entries)}, wanted 1 to {pool.batcher.size}")
        if places is None:
            places = list(range(len(entries)))
            batch = batcher_begin(pool.batcher, group, len(entries), width, height)
            if batch == NULL:
                raise MemoryError(f"no memory for a batch of {len(entries)} pictures")
        batch = batcher_expect(pool.batcher, batch, len(entries))  # only the first one wants others
        if batch == NULL:
            return False
        return self.admit_all(entries, classes, batch, group, valid, places)

    def empty_places(self, bint at_end=False):
        """Waits outside the GIL for what the feeder of planned batches has to do next.

        Returns:
            (group, places), where other items are wanted for places of the batch `group`; (-1, []) when another batch may be submitted,
            with `at_end` when all of them have left; None once the pool was stopped.
        """
        cdef PoolState *pool = self.pool
        cdef Batch *batch = NULL
        cdef bint go_on
        self.check_process()
        with nogil:
            go_on = batcher_wait(pool.batcher, at_end, &batch)
        if not go_on:
            return None
        if batch == NULL:
            return -1, []
        return batch.group, [place for place in range(batch.taken) if batch.items[place] == NULL]

    cdef bint admit_all(self, list entries, list classes, Batch *batch, int64_t group, list valid, list places) except -1:
        cdef tuple own = tuple(entries)  # another thread may change the list
        cdef Py_ssize_t i = 0, count = len(own)
        cdef Item **items = NULL
        cdef PoolState *pool = self.pool
        self.check_process()
        items = <Item **>PyMem_RawCalloc(count + 1, sizeof(Item *))
        if items == NULL:
            raise MemoryError
        try:
            if not pool.stop:
                batcher_release(pool.batcher)  # otherwise the bytes would wait until a batch is full
            for i in range(count):
                items[i] = item_new(own[i])
                if classes is not None:
                    items[i].target = classes[i]
                if batch != NULL:
                    items[i].batch, items[i].place = batch, places[i]
                    items[i].position, items[i].repeated = group, not valid[i]
            with nogil:
                i = 0
                while i < count and admit(pool, items[i]):
                    items[i] = NULL
                    i += 1
                pthread_mutex_lock(&pool.lock)
                wait_for_credit(pool)
                pthread_mutex_unlock(&pool.lock)
            return i == count and not pool.stop
        finally:
            for i in range(count):
                if items[i] != NULL:
                    item_free(items[i])
            PyMem_RawFree(items)

    def finish(self):
        """Says that there is no more input. Items that are inside are still processed and can be taken; after them `take` returns None."""
        self.check_process()
        ring_close(self.pool.work)

    # ---- the reader's side ----

    def take(self, bint convert, timeout=None):
        """The next result: a Sample (its dict if `convert`), a SampleBatch, a Failure, or None at the end or after `stop`.

        Releasing the GIL costs more than taking a result that is ready, so it is released only to wait. Signals are checked every 50 ms.
        Raises TimeoutError after `timeout` seconds.
        """
        cdef PoolState *pool = self.pool
        cdef void *item
        cdef RingState state
        cdef double wait, deadline = 0
        self.check_process()
        if convert and not pool.process.rgbx:
            pool.process.rgbx = 1
        state = ring_pop(pool.ready, &item, 0)
        if state == RING_TIMEOUT and timeout is not None:
            deadline = dg_now() + <double>timeout
        while state == RING_TIMEOUT:
            if pool.delivered + pool.dropped >= <uint64_t>pool.limit:
                return None
            wait = SIGNAL_INTERVAL_S
            if timeout is not None:
                wait = min(wait, deadline - dg_now())
                if wait <= 0:
                    raise TimeoutError(f"no sample within {timeout} s")
            with nogil:
                state = ring_pop(pool.ready, &item, wait)
            if state == RING_TIMEOUT:
                PyErr_CheckSignals()
        if state == RING_CLOSED:
            return None
        return self.hand_out(<Item *>item, convert)

    cdef object hand_out(self, Item *item, bint convert):
        """Makes of an item what the reader gets, counts it and marks its positions."""
        cdef PoolState *pool = self.pool
        cdef bint batched = item.kind == ITEM_BATCH
        cdef Item **samples = &item.batch.items[0] if batched else &item
        cdef int count = samples_of(item), i, k
        cdef bint dropped = batched and item.batch.dropped, failed
        cdef uint64_t damaged = 0
        batcher_release(pool.batcher)
        for i in range(count):
            for k in range(samples[i].part_count):
                damaged += samples[i].parts[k].picture.damaged
        if batched:
            with nogil:
                batcher_leave(pool.batcher, item.batch)
        elif pool.batcher == NULL:
            budget_give_back(&pool.budget, item.encoded, item.pixels)
            budget_leave(&pool.budget, item.number)
        result = given = None
        try:
            result = item_result(item, convert)
            for i in range(count):
                if samples[i].position >= 0:
                    self.progress.mark(samples[i].position, samples[i].position + 1)
            given = result
        finally:  # KeyboardInterrupt may come at any time, and memory be short
            item_free(item)
            lost, failed = given is None, type(result) is Failure
            pthread_mutex_lock(&pool.lock)
            if lost:
                pool.skipped += count
            elif failed:
                pool.failed += 1
            elif dropped:
                pool.dropped += count
            else:
                pool.delivered += count
                pool.damaged += damaged
            if lost or failed:
                pool.credits += count  # a failure does not count towards the limit
                pthread_cond_broadcast(&pool.changed)
            pthread_mutex_unlock(&pool.lock)
        return result

    def stop(self):
        """Ends everything: work in flight is broken off, and what is ready is dropped. It waits for nothing.

        It may be called more than once and from any thread. A finalizer or a signal handler may call it, whatever its thread was doing,
        since no native lock is held where other Python code may run.
        """
        cdef PoolState *pool = self.pool
        cdef void *item
        if dg_heap_inherited(pool.process.heap):
            return
        pool.stop = 1
        batcher_stop(pool.batcher)
        budget_stop(&pool.budget)
        ring_close(pool.work)
        ring_close(pool.ready)
        pthread_mutex_lock(&pool.lock)
        pthread_cond_broadcast(&pool.changed)
        pthread_mutex_unlock(&pool.lock)
        batcher_release(pool.batcher)
        while ring_pop(pool.work, &item, 0) == RING_OK:
            discard(pool, <Item *>item)
        while ring_pop(pool.ready, &item, 0) == RING_OK:
            discard(pool, <Item *>item)

    def wait(self, double timeout) -> bool:
        """Waits outside the GIL for `stop`. False if it was not called within `timeout` seconds."""
        cdef PoolState *pool = self.pool
        cdef double deadline = dg_now() + timeout
        self.check_process()
        with nogil:
            pthread_mutex_lock(&pool.lock)
            while not pool.stop and dg_now() < deadline:
                dg_cond_wait(&pool.changed, &pool.lock, deadline)
            pthread_mutex_unlock(&pool.lock)
        return self.stopped

    def join(self, double timeout) -> bool:
        """Waits outside the GIL until every thread has left. False if that takes longer than `timeout` seconds."""
        cdef PoolState *pool = self.pool
        cdef double deadline = dg_now() + timeout
        cdef bint mine, left
        cdef Item *item
        cdef int i
        self.check_process()
        with nogil:
            pthread_mutex_lock(&pool.lock)
            while pool.alive > 0 and dg_now() < deadline:
                dg_cond_wait(&pool.changed, &pool.lock, deadline)
            left = pool.alive == 0
            mine = left and not pool.joined
            pool.joined = pool.joined or left
            pthread_mutex_unlock(&pool.lock)
            if mine:
                for i in range(self.started):
                    pthread_join(self.threads[i], NULL)
                dg_heap_trim(pool.process.heap)  # the client may live on, and its next pass has another heap
        if mine:
            batcher_release(pool.batcher)
            while pool.left_over != NULL:
                item = pool.left_over
                pool.left_over = item.next
                discard(pool, item)
        return left

    def counts(self) -> dict:
        """A dict of integers: seen, which is the sum of delivered, failed, skipped, dropped and in_flight; damaged, threads; and the dicts
        memory, work_ring and ready_ring."""
        cdef PoolState *pool = self.pool
        cdef uint64_t seen, delivered, failed, skipped, dropped, damaged
        self.check_process()
        pthread_mutex_lock(&pool.lock)
        seen, delivered, failed, skipped = pool.seen, pool.delivered, pool.failed, pool.skipped
        dropped, damaged = pool.dropped, pool.damaged
        pthread_mutex_unlock(&pool.lock)
        return {
            "seen": seen, "delivered": delivered, "failed": failed, "skipped": skipped, "dropped": dropped,
            "in_flight": seen - delivered - failed - skipped - dropped, "damaged": damaged, "threads": self.started,
            "memory": budget_counts(&pool.budget),
            "work_ring": ring_counts(pool.work), "ready_ring": ring_counts(pool.ready),
        }


@cython.no_gc
cdef class Hold:
    """Stops a Pool once nobody refers to the Hold any more, unless that happens in a forked child.

    No Python code runs for that, wherever the last reference goes. So no lock of Python is waited for, no exception of a signal handler is
    lost, and it works while the interpreter is taken down.
    """

    cdef Pool pool

    def __cinit__(self, Pool pool not None):
        self.pool = pool

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.stop()
