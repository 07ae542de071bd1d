/* How much memory a picture takes while it is decoded, as its header tells. */
#ifndef DG_COST_H
#define DG_COST_H

#include "process.h"

enum { DG_PILLOW_PIXEL = 12 }; /* bytes that Pillow, the copy out of it and ours take of a pixel, at most */

/* An upper estimate of the bytes that dg_process takes at its peak for the picture in `data`: its pixels, and all else that grows with
 * them. 0 where the header does not say, since another decoder has to know the format; 1 for a picture that will be refused. */
uint64_t dg_process_cost(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options);

/* The same for a picture of width x height pixels that Pillow decodes. The file has `size` bytes, of which Pillow takes two copies. */
uint64_t dg_pillow_cost(int width, int height, size_t size, const dg_process_options *options);

#endif
