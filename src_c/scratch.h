/* Memory that one worker uses again and again, for pictures of any size. */
#ifndef DG_SCRATCH_H
#define DG_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* Start with zeros; dg_scratch_free empties it again. */
typedef struct {
    uint8_t *data; /* aligned to 64 bytes */
    size_t capacity;
} dg_scratch;

/* Room for `size` bytes; what was in it is lost. A rare big picture would otherwise keep its memory for ever, so what it left behind
 * is given back as soon as less is asked for. DG_NO_MEMORY leaves `scratch` empty. */
dg_status dg_scratch_reserve(dg_scratch *scratch, size_t size);
/* Room for `size` bytes; what is in it stays. The capacity at least doubles, so that growing a little at a time costs little. */
dg_status dg_scratch_grow(dg_scratch *scratch, size_t size);
void dg_scratch_free(dg_scratch *scratch);

#endif
