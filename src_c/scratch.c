#include "scratch.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, KEEP = 8 << 20 }; /* scratch beyond KEEP is given back when the next picture does not need it */

static uint8_t *allocate(size_t capacity)
{
    void *data = NULL;
    return posix_memalign(&data, ALIGNMENT, capacity) == 0 ? data : NULL;
}

dg_status dg_scratch_reserve(dg_scratch *scratch, size_t size)
{
    if (size <= scratch->capacity && (scratch->capacity <= KEEP || size > KEEP))
        return DG_OK;
    dg_scratch_free(scratch);
    size_t capacity = size + size / 4 + 4096;
    if (capacity < size || !(scratch->data = allocate(capacity)))
        return DG_NO_MEMORY;
    scratch->capacity = capacity;
    return DG_OK;
}

dg_status dg_scratch_grow(dg_scratch *scratch, size_t size)
{
    if (size <= scratch->capacity)
        return DG_OK;
    size_t capacity = size > 2 * scratch->capacity ? size : 2 * scratch->capacity;
    uint8_t *data = allocate(capacity);
    if (!data)
        return DG_NO_MEMORY;
    if (scratch->data)
        memcpy(data, scratch->data, scratch->capacity);
    free(scratch->data);
    *scratch = (dg_scratch){data, capacity};
    return DG_OK;
}

void dg_scratch_free(dg_scratch *scratch)
{
    free(scratch->data);
    *scratch = (dg_scratch){0};
}
