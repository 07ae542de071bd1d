# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The worker's stage: read, wait for room, decode and process (see _process.pxd)."""
from libc.stdint cimport uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport strlen
from posix.stat cimport stat, struct_stat

from datago.engine._budget cimport budget_give_back, budget_take_encoded, budget_take_pixels
from datago.engine._fallback cimport pillow_cost, pillow_process
from datago.engine._item cimport ITEM_FAILURE, ITEM_SAMPLE, Part
from datago.engine._pixels cimport (
    DG_CANCELLED, DG_CORRUPT, DG_FORMAT_HTML, DG_FORMAT_JPEG, DG_FORMAT_PNG, DG_NO_MEMORY, DG_OK, DG_TOO_LARGE, DG_UNSUPPORTED, dg_draw,
    dg_draw_begin, dg_error, dg_fail, dg_file_read, dg_format, dg_process, dg_process_cost, dg_status,
)


cdef void process_item(ProcessContext *context, dg_worker *tools, dg_scratch *scratch, Item *item) noexcept nogil:
    if item.kind == ITEM_SAMPLE and process_sample(context, tools, scratch, item) != DG_OK:
        item.kind = ITEM_FAILURE


cdef dg_status process_sample(ProcessContext *context, dg_worker *tools, dg_scratch *scratch, Item *item) noexcept nogil:
    cdef dg_process_options options = context.options
    cdef dg_draw draw
    cdef const char *rng_name = item.rng_name
    cdef dg_format format
    cdef Part *part
    cdef dg_status status = DG_OK
    cdef dg_error said
    cdef int i
    if tools == NULL:
        return dg_fail(&item.error, DG_NO_MEMORY, "no memory for a decoder")
    options.decode.rgbx = context.rgbx
    if item.parts[0].path != NULL:
        rng_name += context.base
    dg_draw_begin(&draw, &options.crop, context.seed, context.epoch, rng_name, strlen(rng_name))
    if item.batch != NULL and options.crop.bucket_count:
        draw.frame.target.width, draw.frame.target.height = item.batch.width, item.batch.height
    if not read_file(context, scratch, item) or not reserve_pixels(context, &options, item):
        return item.error.status
    for i in range(item.part_count):
        part = &item.parts[i]
        status = dg_process(tools, <uint8_t *>part.data.buf, part.data.len, part.role, &options, &draw, &format, &part.picture,
                            &item.error)
        if status == DG_UNSUPPORTED and format != DG_FORMAT_PNG and format != DG_FORMAT_HTML:
            said = item.error
            status = pillow_process(context.heap, context.budget.limit, tools, part, &options, &draw, &item.error)
            if format == DG_FORMAT_JPEG and status == DG_CORRUPT:  # Pillow's word for what it does not know; libjpeg said more
                item.error, status = said, DG_UNSUPPORTED
        if status != DG_OK:
            break
    item.error.status = status
    return status


cdef bint read_file(ProcessContext *context, dg_scratch *scratch, Item *item) noexcept nogil:
    """Reads the file, if the first part is one, into the worker's own memory, where it stays until the item is done.

    False if that failed.
    """
    cdef Part *part = &item.parts[0]
    cdef struct_stat facts
    cdef size_t size = 0
    cdef uint64_t encoded
    if part.path == NULL:
        return True
    if context.budget.limit and stat(part.path, &facts) == 0:
        encoded = min(<uint64_t>facts.st_size, context.max_file_bytes)
        if never_fits(context.budget, item, encoded):
            return False
        if not budget_take_encoded(context.budget, item.number, encoded):
            dg_fail(&item.error, DG_CANCELLED, "stopped")
            return False
        item.encoded = encoded
    if dg_file_read(part.path, context.max_file_bytes, scratch, &size, &item.error) != DG_OK:
        return False
    part.data.buf, part.data.len = scratch.data, size
    return True


cdef bint never_fits(Budget *budget, Item *item, uint64_t bytes) noexcept nogil:
    cdef uint64_t limit = budget.limit
    cdef char text[160]
    if not limit or bytes <= limit:
        return False
    item.kind = ITEM_FAILURE
    snprintf(text, sizeof(text), "needs about %llu bytes, memory_limit is %llu%s", <unsigned long long>bytes,
             <unsigned long long>limit, <const char *>" beside the batches" if budget.share else <const char *>"")
    dg_fail(&item.error, DG_TOO_LARGE, text)
    return True


cdef bint reserve_pixels(ProcessContext *context, const dg_process_options *options, Item *item) noexcept nogil:
    """Waits until there is room for the pixels of all parts. False if there never will be."""
    cdef uint64_t cost, total = 0
    cdef int i
    if not context.budget.limit:
        return True
    for i in range(item.part_count):
        cost = dg_process_cost(<uint8_t *>item.parts[i].data.buf, item.parts[i].data.len, item.parts[i].role, options)
        total += cost if cost else pillow_cost(&item.parts[i], options)
    if never_fits(context.budget, item, item.encoded + total):
        return False
    if not budget_take_pixels(context.budget, item.number, total):
        dg_fail(&item.error, DG_CANCELLED, "stopped")
        return False
    item.pixels = total
    return True


cdef void shrink_reservation(ProcessContext *context, Item *item) noexcept nogil:
    cdef uint64_t encoded = 0, pixels = 0
    cdef int i
    if not context.budget.limit:
        return
    for i in range(item.part_count):
        pixels += item.parts[i].picture.image.buffer.capacity
    if item.parts[0].path != NULL:  # the file's bytes are the worker's, and no longer needed
        encoded = item.encoded
        item.encoded = 0
    budget_give_back(context.budget, encoded, item.pixels - pixels)  # unsigned and modulo 2^64, since it may take more than was reserved
    item.pixels = pixels
