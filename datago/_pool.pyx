# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The worker pool: native threads between two rings, outside the GIL but for formats that only Pillow knows.

    feeder: submit ──► work ring ──► worker: read → process → hand over ──► ready ring ──► take: reader
                                                              └► its place in a batch ──┘

A pool lives once: it is born running; `finish` (no more input) or `stop` (no more anything) ends it; `join` says when the last
thread has left. What is still inside then is freed with the pool.
"""
import os

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.buffer cimport PyBUF_READ
from cpython.exc cimport PyErr_CheckSignals
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, strlen
from posix.stat cimport stat, struct_stat
from posix.unistd cimport getpid

from datago._batch cimport Batcher, batcher_add, batcher_flush, batcher_free, batcher_leave, batcher_new, batcher_release, batcher_stop
from datago._pixels cimport (
    DG_CANCELLED, DG_CORRUPT, DG_DTYPE_BFLOAT16, DG_DTYPE_FLOAT16, DG_DTYPE_FLOAT32, DG_DTYPE_UINT8, DG_ENCODE_JPEG, DG_ENCODE_PNG,
    DG_FORMAT_HTML, DG_FORMAT_JPEG, DG_FORMAT_PNG, DG_LAYOUT_NCHW, DG_LAYOUT_NHWC, DG_NO_MEMORY, DG_OK, DG_PILLOW_PIXEL,
    DG_RESIZE_EXACT, DG_RESIZE_FAST, DG_TOO_LARGE, DG_UNSUPPORTED, atomic_int, dg_bucket, dg_buckets_build, dg_crop, dg_crop_begin,
    dg_error, dg_fail, dg_file_read, dg_format, dg_heap, dg_heap_free, dg_heap_new, dg_heap_trim, dg_image, dg_image_alloc,
    dg_pillow_cost, dg_placement_set, dg_process, dg_process_cost, dg_process_options, dg_process_pixels, dg_scratch, dg_scratch_free,
    dg_status, dg_status_find, dg_worker, dg_worker_enter, dg_worker_free, dg_worker_new,
)
from datago._budget cimport (
    Budget, budget_counts, budget_destroy, budget_give_back, budget_init, budget_leave, budget_stop,
    budget_take_encoded, budget_take_pixels,
)
from datago._ring cimport (
    RING_CLOSED, RING_OK, RING_TIMEOUT, Ring, RingState, ring_close, ring_counts, ring_free, ring_new, ring_place, ring_pop, ring_push,
)
from datago._progress cimport Progress
from datago._sample cimport Batch, Item, Part, item_free, item_new, item_result
from datago._sample import Failure
from datago._threads cimport (
    dg_cond_init, dg_cond_wait, dg_now, dg_thread_begin, dg_thread_start, pthread_cond_broadcast, pthread_cond_destroy,
    pthread_cond_t, pthread_join, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock, pthread_t,
)

cdef size_t HEAP_KEEPS = 256 << 20   # bytes of freed pixel buffers kept for the next pictures
cdef double SIGNAL_SLICE = 0.05    # seconds between two looks for signals: Ctrl-C is answered within a tenth


cdef struct Engine:
    Ring *work
    Ring *ready
    dg_heap *heap
    Budget budget
    dg_process_options options
    dg_bucket *buckets        # what options.buckets points at
    uint64_t max_file_bytes
    bint ordered              # results leave in the order in which items were let in
    Batcher *batcher          # NULL: samples leave one by one
    uint64_t seed, epoch      # of what is drawn for each sample
    size_t base               # leading bytes of a path that say only where the folder lies
    atomic_int stop           # decoders look at it between rows
    atomic_int rgbx           # the reader takes PIL images, which want four bytes a pixel
    dg_worker **tools         # of each thread, made by whoever starts them
    pthread_mutex_t lock      # guards what follows
    pthread_cond_t changed    # a thread has begun or left, a credit came back, or stop
    int begun                 # threads that have begun
    int working               # threads in the loop; the last one to leave it closes the ready ring
    int alive                 # threads that may still touch this struct
    bint joined
    int64_t limit             # good samples wanted
    int64_t credits           # how many more items may be let in before that many good ones could come of it
    uint64_t seen, delivered, failed, skipped, dropped, damaged  # skipped: by stop; dropped: with batches that did not get full
    Item *left_over


# ---- workers --------------------------------------------------------------------------------------------------------

cdef void work_on(Engine *engine, dg_worker *tools, dg_scratch *scratch, Item *item) noexcept nogil:
    """Read and process every part of one sample. A failure stays in item.error; it never ends the worker."""
    cdef dg_process_options options = engine.options
    cdef dg_crop crop
    cdef const char *drawn
    cdef dg_format format
    cdef Part *part
    cdef dg_status status
    cdef dg_error said
    cdef int i
    if item.error.status != DG_OK:
        return  # the source found it broken: it only travels along
    if tools == NULL:
        dg_fail(&item.error, DG_NO_MEMORY, "no memory for a decoder")
        return
    options.decode.rgbx = engine.rgbx
    drawn = item.drawn
    if item.part_count and item.parts[0].path != NULL:
        drawn += engine.base
    dg_crop_begin(&crop, &options.crop, engine.seed, engine.epoch, drawn, strlen(drawn))
    if not read_file(engine, scratch, item) or not reserve_pixels(engine, &options, item):
        return
    for i in range(item.part_count):
        part = &item.parts[i]
        status = dg_process(tools, <uint8_t *>part.data.buf, part.data.len, part.role, &options, &crop, &format, &part.picture,
                            &item.error)
        if status == DG_UNSUPPORTED and format != DG_FORMAT_PNG and format != DG_FORMAT_HTML:
            said = item.error
            status = pillow_process(engine, tools, part, &options, &crop, &item.error)
            if format == DG_FORMAT_JPEG and status == DG_CORRUPT:  # so Pillow calls what it does not know; libjpeg knew better
                item.error, status = said, DG_UNSUPPORTED
        item.error.status = status
        if status != DG_OK:
            break


cdef bint read_file(Engine *engine, dg_scratch *scratch, Item *item) noexcept nogil:
    """Where the first part is a file: its bytes, in the worker's own memory until the item is done. False if that failed."""
    cdef Part *part = &item.parts[0]
    cdef struct_stat facts
    cdef size_t size = 0
    cdef uint64_t encoded
    if item.part_count == 0 or part.path == NULL:
        return True
    if engine.budget.limit and stat(part.path, &facts) == 0:
        encoded = min(<uint64_t>facts.st_size, engine.max_file_bytes)
        if never_fits(engine, item, encoded):
            return False
        if not budget_take_encoded(&engine.budget, item.number, encoded):
            dg_fail(&item.error, DG_CANCELLED, "stopped")
            return False
        item.encoded = encoded
    if dg_file_read(part.path, engine.max_file_bytes, scratch, &size, &item.error) != DG_OK:
        return False
    part.data.buf, part.data.len = scratch.data, size
    return True


cdef bint never_fits(Engine *engine, Item *item, uint64_t bytes) noexcept nogil:
    """Whether it takes more than there is at all; then it fails."""
    cdef uint64_t limit = engine.budget.limit
    if not limit or bytes <= limit:
        return False
    dg_fail(&item.error, DG_TOO_LARGE, "it takes some %llu bytes, memory_limit is %llu%s", <unsigned long long>bytes,
            <unsigned long long>limit, <const char *>" beside the batches" if engine.budget.share else <const char *>"")
    return True


cdef bint reserve_pixels(Engine *engine, const dg_process_options *options, Item *item) noexcept nogil:
    """Waits until all parts of a sample may be decoded. False if they never may."""
    cdef uint64_t cost, total = 0
    cdef int i
    if not engine.budget.limit:
        return True
    for i in range(item.part_count):
        cost = dg_process_cost(<uint8_t *>item.parts[i].data.buf, item.parts[i].data.len, item.parts[i].role, options)
        total += cost if cost else pillow_cost(&item.parts[i], options)
    if never_fits(engine, item, item.encoded + total):
        return False
    if not budget_take_pixels(&engine.budget, item.number, total):
        dg_fail(&item.error, DG_CANCELLED, "stopped")
        return False
    item.pixels = total
    return True


cdef uint64_t pillow_cost(Part *part, const dg_process_options *options) noexcept nogil:
    """Of a picture that only Pillow knows. What it does not know either costs nothing, and fails when its turn comes."""
    cdef int width = 0, height = 0
    with gil:
        try:
            from datago.fallback import size
            width, height = size(PyMemoryView_FromMemory(<char *>part.data.buf, part.data.len, PyBUF_READ))
        except BaseException:
            return 1  # decoding it will say so
    return dg_pillow_cost(width, height, part.data.len, options) if width > 0 and height > 0 else 1


cdef void settle_budget(Engine *engine, Item *item) noexcept nogil:
    """What an item takes once it is done: its pixels, and the bytes that its Entry keeps. Those of a file are the worker's again."""
    cdef uint64_t encoded = 0, pixels = 0
    cdef int i
    if not engine.budget.limit:
        return
    for i in range(item.part_count):
        pixels += item.parts[i].picture.image.buffer.capacity
    if item.entry == NULL:
        encoded = item.encoded
        item.encoded = 0
    budget_give_back(&engine.budget, encoded, item.pixels - pixels)  # modulo 2^64: it may have become more
    item.pixels = pixels


cdef dg_status pillow_process(Engine *engine, dg_worker *tools, Part *part, const dg_process_options *options, dg_crop *crop,
                              dg_error *error) noexcept nogil:
    """What Pillow can decode and we cannot: the one place where a worker takes the GIL."""
    cdef int orientation = 1
    cdef dg_status status
    with gil:
        status = pillow_decode(engine, part, options, &orientation, error)
    if status != DG_OK:
        return status
    return dg_process_pixels(tools, orientation, part.role, options, crop, &part.picture, error)


cdef dg_status pillow_decode(Engine *engine, Part *part, const dg_process_options *options, int *orientation,
                             dg_error *error) noexcept:
    cdef dg_image *image = &part.picture.image
    cdef uint64_t most = engine.budget.limit // DG_PILLOW_PIXEL if engine.budget.limit else options.decode.max_pixels
    try:
        from datago.fallback import decode
        found = decode(PyMemoryView_FromMemory(<char *>part.data.buf, part.data.len, PyBUF_READ), options.decode.max_pixels, most)
        if isinstance(found, Failure):
            if found.text:  # else what the native path said stands: the bytes, or the format's name
                text = found.text.encode("utf-8", "replace")[:sizeof(error.text) - 1]
                memcpy(error.text, <const char *>text, len(text) + 1)
            return dg_status_find(found.reason.encode())
        pixels, width, height, channels, depth, orientation[0] = found
        if dg_image_alloc(engine.heap, width, height, channels, channels, depth, image) != DG_OK:
            return dg_fail(error, DG_NO_MEMORY, "no memory for the pixels")
        memcpy(image.buffer.data, <const char *>pixels, min(<size_t>len(pixels), image.buffer.size))
        return DG_OK
    except MemoryError:
        return dg_fail(error, DG_NO_MEMORY, "no memory for Pillow")
    except BaseException as failed:  # the fallback could not even be imported
        try:
            text = f"{type(failed).__name__}: {failed}".encode("utf-8", "replace")
            return dg_fail(error, DG_UNSUPPORTED, "Pillow fallback failed: %s", <const char *>text)
        except BaseException:
            return dg_fail(error, DG_UNSUPPORTED, "Pillow fallback failed")


cdef void *worker(void *argument) noexcept nogil:
    cdef Engine *engine = <Engine *>argument
    cdef dg_worker *tools
    cdef dg_scratch scratch = dg_scratch(NULL, 0)
    cdef void *item
    cdef Item *left = NULL
    cdef bint last
    dg_thread_begin("datago worker")
    pthread_mutex_lock(&engine.lock)
    tools = engine.tools[engine.begun]
    if tools != NULL:
        dg_worker_enter(tools)
    engine.tools[engine.begun] = NULL
    engine.begun += 1
    pthread_cond_broadcast(&engine.changed)
    pthread_mutex_unlock(&engine.lock)
    while ring_pop(engine.work, &item, -1) == RING_OK:
        work_on(engine, tools, &scratch, <Item *>item)
        settle_budget(engine, <Item *>item)
        hand_over(engine, <Item *>item, &left)
    dg_worker_free(tools)
    dg_scratch_free(&scratch)
    pthread_mutex_lock(&engine.lock)
    engine.working -= 1
    last = engine.working == 0
    pthread_mutex_unlock(&engine.lock)
    if last and engine.batcher != NULL:
        batcher_flush(engine.batcher, &left)
    if last:
        ring_close(engine.ready)
    pthread_mutex_lock(&engine.lock)
    while left != NULL:  # the rings were closed: kept for whoever frees the pool with the GIL held
        item = left
        left = left.next
        (<Item *>item).next = engine.left_over
        engine.left_over = <Item *>item
    engine.alive -= 1
    pthread_cond_broadcast(&engine.changed)
    pthread_mutex_unlock(&engine.lock)
    return NULL


cdef void hand_over(Engine *engine, Item *item, Item **left) noexcept nogil:
    cdef RingState state
    if engine.batcher != NULL:
        batcher_add(engine.batcher, item, left)
        return
    # In order: the ready ring is the window. The item whose turn it is never waits for room, so the others do not wait for ever.
    state = ring_place(engine.ready, item, item.number) if engine.ordered else ring_push(engine.ready, item, -1)
    if state != RING_OK:
        item.next = left[0]
        left[0] = item


# ---- the feeder's side ----------------------------------------------------------------------------------------------

cdef void wait_for_credit(Engine *engine) noexcept nogil:
    """With the lock held."""
    while engine.credits <= 0 and not engine.stop:
        dg_cond_wait(&engine.changed, &engine.lock, dg_now() + 3600)


cdef bint let_in(Engine *engine, Item *item) noexcept nogil:
    """Waits for a credit and for room. False once the pool was stopped; the item is then the caller's again."""
    cdef uint64_t encoded = 0
    cdef int i
    pthread_mutex_lock(&engine.lock)
    wait_for_credit(engine)
    engine.credits -= 1
    item.number = engine.seen
    engine.seen += 1
    pthread_mutex_unlock(&engine.lock)
    for i in range(item.part_count):
        encoded += item.parts[i].data.len
    if never_fits(engine, item, encoded):
        encoded = 0
    if budget_take_encoded(&engine.budget, item.number, encoded):
        item.encoded = encoded
        if ring_push(engine.work, item, -1) == RING_OK:
            return True
        budget_give_back(&engine.budget, encoded, 0)
        item.encoded = 0
    pthread_mutex_lock(&engine.lock)
    engine.seen -= 1
    pthread_mutex_unlock(&engine.lock)
    return False


cdef int samples_of(Item *item) noexcept nogil:
    return item.batch.taken if item.part_count == 0 and item.batch != NULL else 1


cdef void discard(Engine *engine, Item *item) noexcept:
    """An item that stop() found on its way."""
    pthread_mutex_lock(&engine.lock)
    engine.skipped += samples_of(item)
    pthread_mutex_unlock(&engine.lock)
    budget_give_back(&engine.budget, item.encoded, item.pixels)
    item_free(item)


cdef class Pool:
    """Worker threads and the two rings around them. In a forked child its methods raise RuntimeError, but `stop`, which does nothing: the
    threads, and whatever locks they held, stayed in the parent.

    Args:
        threads: worker threads, at least 1. Fewer are started if the system refuses more; OSError if it refuses even one.
        work_capacity, ready_capacity: items the rings hold, at least 1.
        limit: good samples after which the stream ends, 0 or more; failures do not count.
        max_file_bytes: larger files are failures.
        memory_limit: bytes of encoded pictures and pixels in flight; 0: no limit.
        image: a checked image_config (config.IMAGE has its keys).
        progress: where the positions of all that `take` gives are marked.
        ordered: results leave in the order of `submit`.
        seed, epoch: of what is drawn for each sample, 64 bits each.
        base: leading bytes of paths that say only where the folder lies: names count without them when something is drawn.
        batch: None, or what batches are to be (see DatagoBatchDataset): size, layout, dtype, channels, mean, std, drop, most_waiting;
            with a memory_limit `most`, how many there may be, and `bytes`, of the largest.
    """

    cdef Engine *engine
    cdef pthread_t *threads
    cdef int started
    cdef int pid
    cdef Progress progress

    def __cinit__(self, int threads, size_t work_capacity, size_t ready_capacity, int64_t limit,
                  uint64_t max_file_bytes, uint64_t memory_limit, image, Progress progress not None, bint ordered, uint64_t seed=0,
                  uint64_t epoch=0, size_t base=0, batch=None):
        cdef int failed = 0
        cdef Engine *engine = <Engine *>PyMem_RawCalloc(1, sizeof(Engine))
        self.pid = getpid()
        self.threads = <pthread_t *>PyMem_RawCalloc(threads, sizeof(pthread_t))
        if engine == NULL or self.threads == NULL:
            PyMem_RawFree(engine)
            PyMem_RawFree(self.threads)
            raise MemoryError
        self.engine = engine
        engine.tools = <dg_worker **>PyMem_RawCalloc(threads, sizeof(dg_worker *))
        pthread_mutex_init(&engine.lock, NULL)
        dg_cond_init(&engine.changed)
        engine.work = ring_new(work_capacity)
        engine.ready = ring_new(ready_capacity)
        engine.heap = dg_heap_new(min(HEAP_KEEPS, memory_limit // 4) if memory_limit else HEAP_KEEPS)
        if engine.work == NULL or engine.ready == NULL or engine.heap == NULL or engine.tools == NULL:
            raise MemoryError
        engine.limit = engine.credits = limit
        self.set_options(image)
        engine.max_file_bytes = max_file_bytes
        engine.ordered = ordered
        engine.seed, engine.epoch, engine.base = seed, epoch, base
        budget_init(&engine.budget, memory_limit, 0 if batch is None else batch.most * batch.bytes, ordered)
        self.progress = progress
        if batch is not None:
            engine.batcher = batcher_new(engine.heap, &engine.budget, engine.ready, max(16, 2 * threads) if ordered else 0)
            if engine.batcher == NULL:
                raise MemoryError
            self.set_batches(batch)
        engine.alive = engine.working = threads
        # With the GIL held until every thread has begun: Python changes the environment under it, and libraries read that first.
        while self.started < threads and failed == 0:
            engine.tools[self.started] = dg_worker_new(engine.heap)
            failed = dg_thread_start(&self.threads[self.started], worker, engine)
            self.started += failed == 0
        if failed != 0:
            dg_worker_free(engine.tools[self.started])
        pthread_mutex_lock(&engine.lock)
        while engine.begun < self.started:
            dg_cond_wait(&engine.changed, &engine.lock, dg_now() + 3600)
        engine.alive -= threads - self.started
        engine.working -= threads - self.started
        pthread_mutex_unlock(&engine.lock)
        if self.started == 0:
            raise OSError(failed, f"no worker thread could be started: {os.strerror(failed)}")

    cdef set_options(self, image):
        cdef dg_process_options *options = &self.engine.options
        cdef dg_error error
        options.decode.max_pixels = image.max_pixels
        options.decode.accept_truncated = image.on_truncated == "accept"
        options.decode.accept_damaged = image.on_damaged == "accept"
        options.decode.stop = &self.engine.stop
        options.mode = DG_RESIZE_EXACT if image.resize_mode == "exact" else DG_RESIZE_FAST
        options.orient = image.apply_exif_orientation
        options.nearest_masks = image.mask_resample == "nearest"
        options.rgb8 = image.image_to_rgb8
        options.background = image.background
        if image.pre_encode_images:
            options.encoding = DG_ENCODE_JPEG if image.encode_format == "jpeg" else DG_ENCODE_PNG
        options.crop.random_position = image.random_crop
        options.crop.flip = image.horizontal_flip
        if image.random_resized_crop is not None:
            options.crop.resized.width, options.crop.resized.height = image.random_resized_crop.size
            for i in range(2):
                options.crop.scale[i] = image.random_resized_crop.scale[i]
                options.crop.ratio[i] = image.random_resized_crop.ratio[i]
        options.quality = max(1, min(100, image.jpeg_quality))
        options.chroma = int(image.jpeg_chroma)
        if image.crop_and_resize:
            if dg_buckets_build(image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio,
                                image.max_aspect_ratio, &self.engine.buckets, &options.crop.bucket_count, &error) != DG_OK:
                raise ValueError(error.text.decode())
            options.crop.buckets = self.engine.buckets

    cdef set_batches(self, batch):
        cdef Batcher *batcher = self.engine.batcher
        cdef double[3] mean, std
        cdef dg_error error
        for i in range(batch.channels):
            mean[i], std[i] = batch.mean[i], batch.std[i]
        if dg_placement_set(
            &batcher.placement, DG_LAYOUT_NCHW if batch.layout == "NCHW" else DG_LAYOUT_NHWC,
            {"uint8": DG_DTYPE_UINT8, "float16": DG_DTYPE_FLOAT16, "bfloat16": DG_DTYPE_BFLOAT16, "float32": DG_DTYPE_FLOAT32}[batch.dtype],
            batch.channels, mean, std, &error,
        ) != DG_OK:
            raise ValueError(f"mean, std: {error.text.decode()}")
        batcher.size, batcher.drop, batcher.most_waiting, batcher.most = batch.size, batch.drop, batch.most_waiting, batch.most
        batcher.limit = self.engine.limit

    def __dealloc__(self):
        cdef Engine *engine = self.engine
        if engine == NULL or self.pid != getpid():
            return
        if engine.work != NULL and engine.ready != NULL:
            self.stop()
            if not self.join(0.1):
                return  # a thread is still inside, in a system call that does not come back: its memory must stay
        batcher_free(engine.batcher)
        ring_free(engine.work)
        ring_free(engine.ready)
        PyMem_RawFree(engine.tools)
        dg_heap_free(engine.heap)
        free(engine.buckets)
        budget_destroy(&engine.budget)
        pthread_cond_destroy(&engine.changed)
        pthread_mutex_destroy(&engine.lock)
        PyMem_RawFree(self.threads)
        PyMem_RawFree(engine)

    cdef int check_process(self) except -1:
        if self.pid != getpid():
            raise RuntimeError("this Pool was made in another process, and its threads stayed there")
        return 0

    @property
    def thread_count(self) -> int:
        """Worker threads that were started."""
        return self.started

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self.engine.stop != 0

    def submit(self, list entries, list classes=None) -> bool:
        """Lets a batch of a source's entries in, with the class of each where there are classes. It waits outside the GIL for room, and
        until another batch may be needed, so that a source begins nothing that nobody wants. False once the pool was stopped."""
        cdef tuple own = tuple(entries)  # the list may change meanwhile
        cdef Py_ssize_t i = 0, count = len(own)
        cdef Item **items = NULL
        cdef Engine *engine = self.engine
        self.check_process()
        items = <Item **>PyMem_RawCalloc(count + 1, sizeof(Item *))
        if items == NULL:
            raise MemoryError
        try:
            if not engine.stop:
                batcher_release(engine.batcher)  # or it waits until a batch is full
            for i in range(count):
                items[i] = item_new(own[i])
                if classes is not None:
                    items[i].target = classes[i]
            with nogil:
                i = 0
                while i < count and let_in(engine, items[i]):
                    items[i] = NULL
                    i += 1
                pthread_mutex_lock(&engine.lock)
                wait_for_credit(engine)
                pthread_mutex_unlock(&engine.lock)
            return i == count and not engine.stop
        finally:
            for i in range(count):
                if items[i] != NULL:
                    item_free(items[i])
            PyMem_RawFree(items)

    def finish(self):
        """No more input: what is inside is still worked on and can be taken, then `take` says that it is the end."""
        self.check_process()
        ring_close(self.engine.work)

    # ---- the reader's side ----

    def take(self, bint convert, timeout=None):
        """The next result: a Sample (its dict if `convert`), a SampleBatch, a Failure, or None at the end or after `stop`.

        A ready one is taken without letting the GIL go; else it waits outside the GIL and looks for signals every 50 ms.
        Raises TimeoutError after `timeout` seconds.
        """
        cdef Engine *engine = self.engine
        cdef void *item
        cdef RingState state
        cdef double wait, deadline = 0
        self.check_process()
        if convert and not engine.rgbx:
            engine.rgbx = 1
        state = ring_pop(engine.ready, &item, 0)
        if state == RING_TIMEOUT and timeout is not None:
            deadline = dg_now() + <double>timeout
        while state == RING_TIMEOUT:
            if engine.delivered + engine.dropped >= <uint64_t>engine.limit:
                return None
            wait = SIGNAL_SLICE
            if timeout is not None:
                wait = min(wait, deadline - dg_now())
                if wait <= 0:
                    raise TimeoutError(f"no sample within {timeout} s")
            with nogil:
                state = ring_pop(engine.ready, &item, wait)
            if state == RING_TIMEOUT:
                PyErr_CheckSignals()
        if state == RING_CLOSED:
            return None
        return self.hand_out(<Item *>item, convert)

    cdef object hand_out(self, Item *item, bint convert):
        """What becomes of an item: a Sample, its dict, a SampleBatch or a Failure. It is counted, and its positions are marked."""
        cdef Engine *engine = self.engine
        cdef Batch *batch = item.batch if item.part_count == 0 else NULL
        cdef Item **samples = &batch.items[0] if batch != NULL else &item
        cdef int count = samples_of(item), i, k
        cdef bint dropped = batch != NULL and batch.dropped, failed
        cdef uint64_t damaged = 0
        batcher_release(engine.batcher)
        for i in range(count):
            for k in range(samples[i].part_count):
                damaged += samples[i].parts[k].picture.damaged
        if batch != NULL:
            with nogil:
                batcher_leave(engine.batcher, batch)
        elif engine.batcher == NULL:
            budget_give_back(&engine.budget, item.encoded, item.pixels)
            budget_leave(&engine.budget, item.number)
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
            pthread_mutex_lock(&engine.lock)
            if lost:
                engine.skipped += count
            elif failed:
                engine.failed += 1
            elif dropped:
                engine.dropped += count
            else:
                engine.delivered += count
                engine.damaged += damaged
            if lost or failed:
                engine.credits += count  # a failure does not count towards the limit
                pthread_cond_broadcast(&engine.changed)
            pthread_mutex_unlock(&engine.lock)
        return result

    def stop(self):
        """Ends everything: work in flight is broken off, what is ready is dropped. Idempotent, from any thread, no waiting. A finalizer
        or a signal handler may call it, whatever its thread was just at: no native lock is held where other code of Python's may run."""
        cdef Engine *engine = self.engine
        cdef void *item
        if self.pid != getpid():
            return
        engine.stop = 1
        batcher_stop(engine.batcher)
        budget_stop(&engine.budget)
        ring_close(engine.work)
        ring_close(engine.ready)
        pthread_mutex_lock(&engine.lock)
        pthread_cond_broadcast(&engine.changed)
        pthread_mutex_unlock(&engine.lock)
        batcher_release(engine.batcher)
        while ring_pop(engine.work, &item, 0) == RING_OK:
            discard(engine, <Item *>item)
        while ring_pop(engine.ready, &item, 0) == RING_OK:
            discard(engine, <Item *>item)

    def wait(self, double timeout) -> bool:
        """Waits outside the GIL for `stop`; False if it did not come within `timeout` seconds."""
        cdef Engine *engine = self.engine
        cdef double deadline = dg_now() + timeout
        self.check_process()
        with nogil:
            pthread_mutex_lock(&engine.lock)
            while not engine.stop and dg_now() < deadline:
                dg_cond_wait(&engine.changed, &engine.lock, deadline)
            pthread_mutex_unlock(&engine.lock)
        return self.stopped

    def join(self, double timeout) -> bool:
        """Waits outside the GIL until every thread has left; False if that took longer than `timeout` seconds."""
        cdef Engine *engine = self.engine
        cdef double deadline = dg_now() + timeout
        cdef bint mine, left
        cdef Item *item
        cdef int i
        self.check_process()
        with nogil:
            pthread_mutex_lock(&engine.lock)
            while engine.alive > 0 and dg_now() < deadline:
                dg_cond_wait(&engine.changed, &engine.lock, deadline)
            left = engine.alive == 0
            mine = left and not engine.joined
            engine.joined = engine.joined or left
            pthread_mutex_unlock(&engine.lock)
            if mine:
                for i in range(self.started):
                    pthread_join(self.threads[i], NULL)
                dg_heap_trim(engine.heap)  # the client may live on, and its next pass has a heap of its own
        if mine:
            batcher_release(engine.batcher)
            while engine.left_over != NULL:
                item = engine.left_over
                engine.left_over = item.next
                discard(engine, item)
        return left

    def counts(self) -> dict:
        """seen, delivered, failed, skipped, dropped, in_flight (seen is their sum), damaged, threads, memory, and both rings' counts:
        integers."""
        cdef Engine *engine = self.engine
        cdef uint64_t seen, delivered, failed, skipped, dropped, damaged
        self.check_process()
        pthread_mutex_lock(&engine.lock)
        seen, delivered, failed, skipped = engine.seen, engine.delivered, engine.failed, engine.skipped
        dropped, damaged = engine.dropped, engine.damaged
        pthread_mutex_unlock(&engine.lock)
        return {
            "seen": seen, "delivered": delivered, "failed": failed, "skipped": skipped, "dropped": dropped,
            "in_flight": seen - delivered - failed - skipped - dropped, "damaged": damaged, "threads": self.started,
            "memory": budget_counts(&engine.budget),
            "work_ring": ring_counts(engine.work), "ready_ring": ring_counts(engine.ready),
        }


@cython.no_gc
cdef class Hold:
    """What a reader has of a Pool: once nobody has it any more, the pool is stopped, in a forked child apart.

    No Python code runs for that, wherever the last reference goes: so no lock of Python's is waited for, no exception of a signal
    handler is lost, and it works while the interpreter is taken down.
    """

    cdef Pool pool

    def __cinit__(self, Pool pool not None):
        self.pool = pool

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.stop()
