/* Buffers: alignment, reuse, limits, forks, outliving the heap, and many threads at once. */
#include "check.h"
#include "image.h"
#include "scratch.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *churn(void *heap)
{
    for (int i = 1; i < 3000; i++) {
        dg_image image;
        if (dg_image_alloc(heap, 1 + i % 97, 1 + i % 61, 3, 3, 8, &image) != DG_OK)
            abort();
        memset(image.buffer.data, i, image.buffer.size);
        if (image.buffer.data[image.buffer.size - 1] != (uint8_t)i)
            abort();
        dg_image_free(&image);
    }
    return NULL;
}

static void check_scratch(void)
{
    dg_scratch scratch = {0};
    CHECK(dg_scratch_grow(&scratch, 100) == DG_OK && scratch.capacity >= 100 && (uintptr_t)scratch.data % 64 == 0);
    memset(scratch.data, 7, 100);
    size_t before = scratch.capacity;
    CHECK(dg_scratch_grow(&scratch, 101) == DG_OK && scratch.capacity >= 2 * before); /* not once a byte */
    CHECK(scratch.data[0] == 7 && scratch.data[99] == 7);
    CHECK(dg_scratch_reserve(&scratch, 20 << 20) == DG_OK && scratch.capacity >= 20 << 20 && (uintptr_t)scratch.data % 64 == 0);
    CHECK(dg_scratch_reserve(&scratch, 10 << 20) == DG_OK && scratch.capacity >= 20 << 20); /* there may be more of this size */
    CHECK(dg_scratch_reserve(&scratch, 10) == DG_OK && scratch.capacity < 1 << 20); /* what a big one left is given back */
    CHECK(dg_scratch_reserve(&scratch, SIZE_MAX) == DG_NO_MEMORY && !scratch.data && !scratch.capacity);
    dg_scratch_free(&scratch);
}

static void check_reserve(void)
{
    dg_heap *heap = dg_heap_new(0);
    dg_buffer buffer = {0};
    CHECK(dg_buffer_reserve(heap, &buffer, 5000) == DG_OK && buffer.capacity >= 5000);
    uint8_t *data = buffer.data;
    CHECK(dg_buffer_reserve(heap, &buffer, 10) == DG_OK && buffer.data == data && buffer.capacity >= 5000);
    CHECK(dg_buffer_reserve(heap, &buffer, 1 << 20) == DG_OK && buffer.capacity >= 1 << 20);
    dg_buffer_trim(&buffer, 1 << 24);
    CHECK(buffer.data);
    dg_buffer_trim(&buffer, 1000);
    CHECK(!buffer.data);
    dg_heap_free(heap);
}

int main(void)
{
    check_scratch();
    check_reserve();
    dg_heap *heap = dg_heap_new(1 << 24);
    dg_image image, other;
    CHECK(dg_image_alloc(heap, 100, 50, 3, 4, 8, &image) == DG_OK);
    CHECK(image.buffer.size == 100 * 50 * 4 && (uintptr_t)image.buffer.data % 64 == 0);
    CHECK(dg_image_stride(&image) == 400);
    uint8_t *first = image.buffer.data;
    dg_image_free(&image);
    CHECK(image.buffer.data == NULL);
    dg_image_free(&image); /* twice is harmless */
    CHECK(dg_image_alloc(heap, 99, 50, 3, 4, 8, &image) == DG_OK && image.buffer.data == first); /* memory is reused */
    CHECK(dg_image_alloc(heap, 2, 1, 3, 3, 16, &other) == DG_OK && other.buffer.data != first); /* but not for a crumb */
    CHECK(other.buffer.size == 12);
    CHECK(dg_image_alloc(heap, 0, 5, 3, 3, 8, &(dg_image){0}) == DG_NO_MEMORY);
    CHECK(dg_image_alloc(heap, 0x7fffffff, 0x7fffffff, 4, 4, 16, &(dg_image){0}) == DG_NO_MEMORY);
    dg_image_free(&other);

    CHECK(!dg_heap_inherited(heap) && !dg_heap_inherited(NULL));
    pid_t child = fork();
    if (child == 0) { /* the parent's heap is known for what it is, gives buffers all the same, and a new one is the child's own */
        dg_heap *own = dg_heap_new(1 << 20);
        int told = dg_heap_inherited(heap) && !dg_heap_inherited(own) && dg_image_alloc(heap, 3, 3, 3, 3, 8, &other) == DG_OK;
        dg_image_free(&other);
        dg_heap_free(own);
        _exit(told ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(!dg_heap_inherited(heap));

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, churn, heap);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);

    dg_image_free(&image);
    dg_heap_trim(heap); /* under ASAN: what was kept is given back once */
    CHECK(dg_image_alloc(heap, 99, 50, 3, 4, 8, &image) == DG_OK);

    dg_heap_free(heap); /* `image` is still out: the heap goes when it comes back */
    memset(image.buffer.data, 7, image.buffer.size);
    dg_image_free(&image);

    dg_error error;
    CHECK(dg_fail(&error, DG_CORRUPT, "row %d", 7) == DG_CORRUPT && !strcmp(error.text, "row 7"));
    CHECK(!strcmp(dg_status_name(DG_TOO_LARGE), "too_large") && !strcmp(dg_status_name(99), "unknown"));
    return DONE();
}
