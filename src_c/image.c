#include "image.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MAX_KEPT = 64,       /* freed buffers a heap remembers, whatever their size */
    HUGE_PAGE = 2 << 20,  /* from this size on a buffer is aligned for, and asks for, huge pages */
};

struct dg_heap {
    pthread_mutex_t lock;
    size_t keep;        /* bytes of freed buffers to keep at most */
    size_t kept;        /* bytes of freed buffers kept now */
    size_t outstanding; /* buffers not yet back */
    int closed;         /* dg_heap_free was called */
    unsigned forks; /* the count in the process that made it */
    int count;
    struct {
        uint8_t *data;
        size_t capacity;
    } free[MAX_KEPT];
};

/* Forks between the first process that counted and this one. getpid would tell one process from another, but it is a system call, which
 * cost as much as all else that a small picture needs here. */
static unsigned forks;

static void count_fork(void) { forks++; }

/* 0 when memory is short. If two threads come here at once, later forks count twice, which makes no difference. */
static int watch_forks(void)
{
    static atomic_int watched;
    if (!watched && pthread_atfork(NULL, NULL, count_fork) != 0)
        return 0;
    watched = 1;
    return 1;
}

dg_heap *dg_heap_new(size_t keep)
{
    dg_heap *heap = watch_forks() ? calloc(1, sizeof *heap) : NULL;
    if (heap) {
        pthread_mutex_init(&heap->lock, NULL);
        heap->keep = keep;
        heap->forks = forks;
    }
    return heap;
}

int dg_heap_inherited(const dg_heap *heap) { return heap && heap->forks != forks; }

void dg_heap_trim(dg_heap *heap)
{
    if (!heap)
        return;
    pthread_mutex_lock(&heap->lock);
    while (heap->count)
        free(heap->free[--heap->count].data);
    heap->keep = heap->kept = 0;
    pthread_mutex_unlock(&heap->lock);
}

static void heap_destroy(dg_heap *heap)
{
    dg_heap_trim(heap);
    pthread_mutex_destroy(&heap->lock);
    free(heap);
}

void dg_heap_free(dg_heap *heap)
{
    if (!heap || dg_heap_inherited(heap))
        return;
    pthread_mutex_lock(&heap->lock);
    heap->closed = 1;
    int last = heap->outstanding == 0;
    pthread_mutex_unlock(&heap->lock);
    if (last)
        heap_destroy(heap);
}

/* Sizes are rounded up to an eighth of their octave: pictures of about one size can then use each other's memory. */
static size_t round_up(size_t size)
{
    size_t grain = 4096;
    while (grain * 16 < size)
        grain *= 2;
    return (size + grain - 1) / grain * grain;
}

/* The smallest kept buffer that holds `size` and wastes no more than half of itself; -1 if there is none. */
static int best_fit(const dg_heap *heap, size_t size)
{
    int best = -1;
    for (int i = 0; i < heap->count; i++) {
        size_t capacity = heap->free[i].capacity;
        if (capacity >= size && capacity / 2 <= size && (best < 0 || capacity < heap->free[best].capacity))
            best = i;
    }
    return best;
}

dg_status dg_buffer_alloc(dg_heap *heap, size_t size, dg_buffer *buffer)
{
    size_t capacity = round_up(size);
    uint8_t *data = NULL;
    memset(buffer, 0, sizeof *buffer);
    if (capacity < size)
        return DG_NO_MEMORY;
    if (!dg_heap_inherited(heap)) {
        pthread_mutex_lock(&heap->lock);
        int found = best_fit(heap, capacity);
        if (found >= 0) {
            data = heap->free[found].data;
            capacity = heap->free[found].capacity;
            heap->kept -= capacity;
            heap->free[found] = heap->free[--heap->count];
        }
        heap->outstanding++;
        pthread_mutex_unlock(&heap->lock);
    }
    if (!data) {
        void *fresh = NULL;
        if (posix_memalign(&fresh, capacity >= HUGE_PAGE ? HUGE_PAGE : 64, capacity) == 0)
            data = fresh;
#ifdef MADV_HUGEPAGE
        if (data && capacity >= HUGE_PAGE)
            madvise(data, capacity, MADV_HUGEPAGE);
#endif
    }
    *buffer = (dg_buffer){data, size, capacity, heap};
    if (!data) {
        dg_buffer_free(buffer);
        return DG_NO_MEMORY;
    }
    return DG_OK;
}

void dg_buffer_free(dg_buffer *buffer)
{
    dg_heap *heap = buffer->heap;
    uint8_t *data = buffer->data;
    size_t capacity = buffer->capacity;
    memset(buffer, 0, sizeof *buffer);
    if (!heap)
        return;
    if (dg_heap_inherited(heap)) {
        free(data);
        return;
    }
    pthread_mutex_lock(&heap->lock);
    heap->outstanding--;
    if (data && !heap->closed && heap->count < MAX_KEPT && heap->kept + capacity <= heap->keep) {
        heap->free[heap->count].data = data;
        heap->free[heap->count++].capacity = capacity;
        heap->kept += capacity;
        data = NULL;
    }
    int last = heap->closed && heap->outstanding == 0;
    pthread_mutex_unlock(&heap->lock);
    free(data);
    if (last)
        heap_destroy(heap);
}

dg_status dg_buffer_reserve(dg_heap *heap, dg_buffer *buffer, size_t size)
{
    if (buffer->capacity >= size)
        return DG_OK;
    dg_buffer_free(buffer);
    return dg_buffer_alloc(heap, size, buffer);
}

void dg_buffer_trim(dg_buffer *buffer, size_t max_bytes)
{
    if (buffer->capacity > max_bytes)
        dg_buffer_free(buffer);
}

dg_status dg_image_alloc(dg_heap *heap, int width, int height, int channels, int pixel_stride, int depth, dg_image *image)
{
    memset(image, 0, sizeof *image);
    size_t pixels = (size_t)width * (size_t)height, size = pixels * (size_t)pixel_stride * (size_t)(depth / 8);
    if (width <= 0 || height <= 0 || pixels > SIZE_MAX / 8)
        return DG_NO_MEMORY;
    image->width = width;
    image->height = height;
    image->channels = channels;
    image->pixel_stride = pixel_stride;
    image->depth = depth;
    return dg_buffer_alloc(heap, size, &image->buffer);
}
