/* image.c and scratch.c as they are, but what they hand out ends, for the sanitizer, where its user asked: the room that they round
 * up to would hide an overrun. And it is filled with `tight_fill`: what is read before it is written shows in the pixels as soon as
 * the same picture is processed with another one. */
#include <sanitizer/asan_interface.h>
#include <stdint.h>

extern uint8_t tight_fill;

#define dg_buffer_alloc roomy_buffer_alloc
#define dg_buffer_reserve roomy_buffer_reserve
#define dg_image_alloc roomy_image_alloc
#define dg_scratch_reserve roomy_scratch_reserve
#include "image.c"
#include "scratch.c"
#undef dg_buffer_alloc
#undef dg_buffer_reserve
#undef dg_image_alloc
#undef dg_scratch_reserve

static dg_status tighten(dg_status status, dg_buffer *buffer)
{
    if (status == DG_OK) {
        ASAN_POISON_MEMORY_REGION(buffer->data + buffer->size, buffer->capacity - buffer->size);
        buffer->capacity = buffer->size;
        memset(buffer->data, tight_fill, buffer->size);
    }
    return status;
}

dg_status dg_buffer_alloc(dg_heap *heap, size_t size, dg_buffer *buffer)
{
    return tighten(roomy_buffer_alloc(heap, size, buffer), buffer);
}

dg_status dg_buffer_reserve(dg_heap *heap, dg_buffer *buffer, size_t size)
{
    return tighten(roomy_buffer_reserve(heap, buffer, size), buffer);
}

dg_status dg_image_alloc(dg_heap *heap, int width, int height, int channels, int pixel_stride, int depth, dg_image *image)
{
    return tighten(roomy_image_alloc(heap, width, height, channels, pixel_stride, depth, image), &image->buffer);
}

dg_status dg_scratch_reserve(dg_scratch *scratch, size_t size)
{
    dg_status status = roomy_scratch_reserve(scratch, size);
    if (status == DG_OK) {
        ASAN_UNPOISON_MEMORY_REGION(scratch->data, scratch->capacity);
        ASAN_POISON_MEMORY_REGION(scratch->data + size, scratch->capacity - size);
        memset(scratch->data, tight_fill, size);
    }
    return status;
}
