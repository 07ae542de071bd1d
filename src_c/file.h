/* The bytes of one file. */
#ifndef DG_FILE_H
#define DG_FILE_H

#include "scratch.h"

/* Opens the regular file at `path` to be read: its descriptor, which the caller closes, or -1. Never waits on a fifo or a device. */
int dg_file_open(const char *path, uint64_t max_bytes, size_t *size, dg_error *error);

/* Reads `length` bytes from the byte `at` on. `*size` is less if the file ends there: it was cut short since it was opened. */
dg_status dg_file_read_at(int file, uint8_t *data, size_t length, size_t at, size_t *size, dg_error *error);

/* Reads the regular file at `path` into `scratch`, up to the length that it had when it was opened; `*size` is in bytes. The memory stays
 * the caller's, who calls dg_scratch_free. It never waits for a fifo or a device. More than `max_bytes` are DG_TOO_LARGE, and `error` has
 * a text for each failure. */
dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error);

#endif
