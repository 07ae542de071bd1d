/* The bytes of one file, read whole. */
#ifndef DG_FILE_H
#define DG_FILE_H

#include "scratch.h"

/* Reads the regular file at `path` into `scratch`, up to the length that it had when it was opened; `*size` is in bytes. The memory stays
 * the caller's, who calls dg_scratch_free. It never waits for a fifo or a device. More than `max_bytes` are DG_TOO_LARGE, and `error` has
 * a text for each failure. */
dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error);

#endif
