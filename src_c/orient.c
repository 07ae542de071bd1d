#include "orient.h"

#include <string.h>

#include "orientation.h"

#define INLINE static inline __attribute__((always_inline))

/* Where rows become columns, blocks of this many pixels of this many rows are packed first: reading 128 rows of a
 * picture in turn would throw them out of the first cache when their distance is a multiple of 4 kB, as it is for many
 * cameras. Pixels of more than four bytes go in blocks half as wide and half as high. */
enum { ACROSS = 64, ROWS = 128, WIDEST = 8 /* bytes of a pixel */ };

typedef struct {
    const uint8_t *in;       /* the pixel that becomes the upper left one */
    ptrdiff_t across, down;  /* bytes from it to what becomes its right, and its lower, neighbour */
    uint8_t *out;
    size_t stride;
    size_t width, height;    /* of the result */
} turn;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* A row out of pixels that lie `across` bytes apart. `bytes` of a pixel is known at compile time. With `slack`, four
 * bytes may be read at any pixel: three are moved as four, of which the next pixel overwrites one. */
INLINE void row_gather(const uint8_t *in, ptrdiff_t across, uint8_t *out, size_t width, const size_t bytes, int slack)
{
    size_t x = 0;
    if (bytes == 3 && slack)
        for (; x + 1 < width; x++, in += across, out += 3)
            memcpy(out, in, 4);
    for (; x < width; x++, in += across, out += bytes) {
        memcpy(out, in, bytes);
        __asm__ volatile(""); /* no vectors: gcc 12 builds them of 8-byte pixels on the stack, six times slower */
    }
}

INLINE void rows_turn(const turn *turn, const size_t bytes)
{
    for (size_t y = 0; y < turn->height; y++) {
        const uint8_t *in = turn->in + (ptrdiff_t)y * turn->down;
        uint8_t *out = turn->out + y * turn->stride;
        if (turn->across > 0)
            memcpy(out, in, turn->width * bytes);
        else
            row_gather(in, -(ptrdiff_t)bytes, out, turn->width, bytes, 0);
    }
}

/* `rows` rows of the picture from column `top` of the result on become its columns from `left` on. */
INLINE void block_turn(const turn *turn, size_t left, size_t top, const size_t rows, const size_t across, const size_t bytes)
{
    uint8_t packed[ROWS * (ACROSS * 4 + 64) + 4];
    const size_t width = smaller(rows, turn->width - left), height = smaller(across, turn->height - top);
    const size_t pitch = across * bytes + (bytes == 3 ? 4 : 64), first = turn->down > 0 ? top : top + height - 1;
    const uint8_t *in = turn->in + (ptrdiff_t)left * turn->across + (ptrdiff_t)first * turn->down;
    for (size_t x = 0; x < width; x++, in += turn->across) {
        if (left + x + width < turn->width) /* the next block, which no prefetcher of a processor expects */
            for (size_t i = 0; i < height * bytes; i += 64)
                __builtin_prefetch(in + (ptrdiff_t)width * turn->across + i, 0, 2);
        if (height == across)
            memcpy(packed + x * pitch, in, across * bytes); /* inlined, as its size is known */
        else
            memcpy(packed + x * pitch, in, height * bytes);
    }
    for (size_t y = 0; y < height; y++)
        row_gather(packed + (turn->down > 0 ? y : height - 1 - y) * bytes, (ptrdiff_t)pitch,
                   turn->out + (top + y) * turn->stride + left * bytes, width, bytes, 1);
}

INLINE void image_turn(const turn *turn, int transposed, const size_t bytes)
{
    const size_t rows = bytes > 4 ? ROWS / 2 : ROWS, across = bytes > 4 ? ACROSS / 2 : ACROSS;
    if (!transposed) {
        rows_turn(turn, bytes);
        return;
    }
    for (size_t top = 0; top < turn->height; top += across)
        for (size_t left = 0; left < turn->width; left += rows)
            block_turn(turn, left, top, rows, across, bytes);
}

dg_status dg_image_orient(dg_heap *heap, dg_image *image, int orientation, dg_error *error)
{
    if (orientation < 2 || orientation > 8)
        return DG_OK;
    const size_t bytes = (size_t)image->pixel_stride * (image->depth / 8), stride = dg_image_stride(image);
    const dg_orientation parts = dg_orientations[orientation];
    const int transposed = parts.transposed;
    dg_image turned;
    if (dg_image_alloc(heap, transposed ? image->height : image->width, transposed ? image->width : image->height,
                       image->channels, image->pixel_stride, image->depth, &turned)
        != DG_OK)
        return dg_fail(error, DG_NO_MEMORY, "no memory to turn %d x %d pixels", image->width, image->height);
    const ptrdiff_t right = parts.mirrored ? -(ptrdiff_t)bytes : (ptrdiff_t)bytes;
    const ptrdiff_t below = parts.flipped_vertically ? -(ptrdiff_t)stride : (ptrdiff_t)stride;
    turn turn = {
        .in = image->buffer.data + (parts.mirrored ? stride - bytes : 0)
              + (parts.flipped_vertically ? (image->height - 1) * stride : 0),
        .across = transposed ? below : right,
        .down = transposed ? right : below,
        .out = turned.buffer.data,
        .stride = dg_image_stride(&turned),
        .width = (size_t)turned.width,
        .height = (size_t)turned.height,
    };
    switch (bytes) {
    case 1: image_turn(&turn, transposed, 1); break;
    case 2: image_turn(&turn, transposed, 2); break;
    case 3: image_turn(&turn, transposed, 3); break;
    case 4: image_turn(&turn, transposed, 4); break;
    case 6: image_turn(&turn, transposed, 6); break;
    default: image_turn(&turn, transposed, WIDEST); break;
    }
    dg_image_free(image);
    *image = turned;
    return DG_OK;
}
