/* Buffers: alignment, reuse, limits, outliving the heap, and many threads at once. */
#include "check.h"
#include "image.h"

#include <pthread.h>
#include <string.h>

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

int main(void)
{
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
