/* The bytes of one file, read whole. */
#ifndef DG_FILE_H
#define DG_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* Memory that one worker reads into, file after file. Start with zeros; dg_scratch_free empties it again. */
typedef struct {
    uint8_t *data;
    size_t capacity;
} dg_scratch;

/* Room for `size` bytes; what was in it is lost. It gives memory back that a rare big file left behind. */
dg_status dg_scratch_reserve(dg_scratch *scratch, size_t size);
void dg_scratch_free(dg_scratch *scratch);

/* Reads the regular file at `path` into `scratch`, as long as it was when opened. Never waits on a fifo or a device. */
dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error);

#endif
