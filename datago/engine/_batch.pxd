# Batches of one bucket: workers take a place in an open batch, write their picture there, and the last one sends it on.
#
# A Batch (see _item.pxd) is open until its places are taken, or until nothing more will come. It travels through the ready ring as
# an Item of its own, its `carrier`, once every place that was taken is filled. Failures travel between batches.
#
# Where batches are planned the feeder begins each, in order, and its items know their places in it. They leave in that order. An item that
# fails leaves its place empty: once nothing is on its way to the first batch any more, the feeder is asked for others in the empty places.
# Only then, since the others must not depend on which of two batches failed earlier. No worker waits for a batch; the feeder does.
#
# A batch counts from the first place that is taken until it is handed out, and there are at most `max_batches`. That is more than can be
# open, so one of them is always closed, and whoever has to write there waits for nobody: a worker that waits for a batch waits for the
# reader alone.
from libc.stdint cimport int64_t, uint64_t

from datago.engine._budget cimport Budget
from datago.engine._item cimport Batch, Item
from datago.engine._pixels cimport dg_heap, dg_placement
from datago.engine._ring cimport Ring
from datago._threads cimport pthread_cond_t, pthread_mutex_t

cdef struct Batcher:
    dg_heap *heap
    Budget *budget       # of what waits for its place
    Ring *ready
    Ring *turns          # gives items out by number, where samples go into batches in order; else NULL
    dg_placement placement
    int size             # places in a batch
    bint drop            # batches that do not get full are dropped, not handed out short
    int64_t limit        # good samples wanted: after that many all is sent
    int64_t most_waiting  # places taken in open batches, after which the fullest of them goes
    int64_t max_batches  # that there may be; 0: any number
    bint planned
    pthread_mutex_t lock  # guards what follows; with it held nobody waits for the GIL, nor makes or frees anything of Python's
    pthread_cond_t room  # a batch was handed out, or stop; a planned one was sent, or wants others in its empty places
    bint stopped
    int64_t count        # batches that were begun, and not yet handed out
    Batch *open          # where they are planned in their order, else the last one that was begun comes first
    Item *spent          # placed, and their Entries still hold the bytes that they were decoded from
    int64_t good, waiting
    uint64_t number      # of what goes into the ready ring next, where that is ordered

cdef Batcher *batcher_new(dg_heap *heap, Budget *budget, Ring *ready, size_t window) noexcept nogil  # 0: in any order. NULL: no memory
cdef void batcher_free(Batcher *batcher) noexcept                                    # with all that is still inside; holds the GIL
# Lets go of the bytes that placed pictures were decoded from: in a batch they would wait with them. Called before any of its items is
# freed; holds the GIL.
cdef void batcher_release(Batcher *batcher) noexcept
# These two without the GIL.
cdef void batcher_stop(Batcher *batcher) noexcept nogil                              # wakes who waits for a turn or a batch
cdef void batcher_leave(Batcher *batcher, Batch *batch) noexcept nogil               # it was handed out
# Waits until the first planned batch wants other items in its empty places, and gives that batch (`wanting`), or NULL once another one may
# be begun, with `at_end` once all were sent. False after a stop.
cdef bint batcher_wait(Batcher *batcher, bint at_end, Batch **wanting) noexcept nogil
# A planned batch with so many places, behind all others; NULL when memory is short.
cdef Batch *batcher_begin(Batcher *batcher, int64_t group, int places, int width, int height) noexcept nogil
# So many items will come for a batch; NULL: for the first one, which is given back, NULL where a stop has taken it away.
cdef Batch *batcher_expect(Batcher *batcher, Batch *batch, int count) noexcept nogil
# Takes a processed item in. What the closed rings refused is put before `left` (linked by Item.next): the caller's again.
cdef void batcher_add(Batcher *batcher, Item *item, Item **left) noexcept nogil
cdef void batcher_flush(Batcher *batcher, Item **left) noexcept nogil                # sends every open batch; nobody may be adding
