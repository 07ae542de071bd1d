/* What a picture takes in memory while it is decoded, told from its header. */
#ifndef DG_COST_H
#define DG_COST_H

#include "process.h"

enum { DG_PILLOW_PIXEL = 12 }; /* bytes that Pillow, the copy out of it and ours take of a pixel, at most */

/* Bytes that dg_process takes at its peak for the picture in `data`, judged on the high side: pixels, and what else is as large as
 * they are. 0 where the header does not say: a format that another decoder has to know. For what will be refused it is 1. */
uint64_t dg_process_cost(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options);

/* The same of a picture of that size that Pillow decodes; `size`: bytes of the file, of which it takes two copies. */
uint64_t dg_pillow_cost(int width, int height, size_t size, const dg_process_options *options);

#endif
