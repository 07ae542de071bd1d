/* A picture on a larger, coloured canvas. */
#ifndef DG_CANVAS_H
#define DG_CANVAS_H

#include "boxes.h"
#include "image.h"

/* Puts `image` on a canvas of at.size, its top left pixel at (at.x, at.y), or as far from the right where it is `mirrored`; it must
 * fit inside. Nothing happens where that size is {0, 0}. The canvas has the RGB `colour`, opaque
 * where there is alpha; on a grey picture it has the grey that Pillow makes of it; 16-bit samples have the level times 257. NULL: all
 * samples are 0, alpha too. On an error the picture is what it was. */
dg_status dg_image_on_canvas(dg_heap *heap, dg_image *image, dg_part at, int mirrored, const uint8_t *colour, dg_error *error);

#endif
