/* The pixel buffer: what a decoder fills, a ring carries and Python sees.
 *
 * A dg_buffer belongs to exactly one of worker, ring and sample; whoever holds it last calls dg_buffer_free. Buffers are
 * 64-byte aligned and come from a dg_heap, which keeps a few freed ones: a fresh 12 MB buffer costs the kernel some
 * 3000 page faults, as much as a twentieth of decoding the picture. */
#ifndef DG_IMAGE_H
#define DG_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct dg_heap dg_heap;

typedef struct {
    uint8_t *data;
    size_t size;     /* bytes in use */
    size_t capacity; /* bytes allocated */
    dg_heap *heap;   /* where it goes back to */
} dg_buffer;

/* Rows follow each other without padding, pixels are interleaved. A 16-bit sample is stored in native byte order.
 * `pixel_stride` is the distance between two pixels in samples: `channels`, or 4 for RGB stored as RGBX (X = 255). */
typedef struct {
    dg_buffer buffer;
    int width, height;
    int channels; /* 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA */
    int pixel_stride;
    int depth; /* bits per sample: 8 or 16 */
} dg_image;

/* A heap that keeps at most `keep` bytes of freed buffers for reuse; NULL when memory is short. Thread-safe. It lives
 * until dg_heap_free was called and its last buffer came back, so that a sample may outlive its client. */
dg_heap *dg_heap_new(size_t keep);
/* Whether this process is a forked child of the one that made the heap. Another thread may have held its lock at the fork, so buffers then
 * come from malloc and go to free, and dg_heap_free does nothing. */
int dg_heap_inherited(const dg_heap *heap);
/* Gives back what it keeps, and keeps nothing from now on. */
void dg_heap_trim(dg_heap *heap);
/* The heap ends once its last buffer has come back; no new ones may be asked for. */
void dg_heap_free(dg_heap *heap);

/* At least `size` bytes, not cleared; buffer->size = size. DG_NO_MEMORY leaves `buffer` empty. */
dg_status dg_buffer_alloc(dg_heap *heap, size_t size, dg_buffer *buffer);
/* Gives the memory back and empties `buffer`. Nothing happens to an empty one. */
void dg_buffer_free(dg_buffer *buffer);

/* These two are for a buffer that is used again from picture to picture. The first makes room for `size` bytes, and what was in the buffer
 * is lost; DG_NO_MEMORY leaves it empty. The second frees a buffer of more than `max_bytes`, since a rare large picture would otherwise
 * keep its memory for ever. */
dg_status dg_buffer_reserve(dg_heap *heap, dg_buffer *buffer, size_t size);
void dg_buffer_trim(dg_buffer *buffer, size_t max_bytes);

/* A buffer for width x height pixels, and the fields to go with it. Sizes must be positive. */
dg_status dg_image_alloc(dg_heap *heap, int width, int height, int channels, int pixel_stride, int depth, dg_image *image);
static inline void dg_image_free(dg_image *image) { dg_buffer_free(&image->buffer); }
/* Bytes from one row to the next. */
static inline size_t dg_image_stride(const dg_image *image)
{
    return (size_t)image->width * image->pixel_stride * (image->depth / 8);
}

#endif
