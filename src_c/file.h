/* The bytes of one file. */
#ifndef DG_FILE_H
#define DG_FILE_H

#include "scratch.h"

/* Opens the regular file at `path` to be read: its descriptor, which the caller closes, or -1. Never waits on a fifo or a device. */
int dg_file_open(const char *path, uint64_t max_bytes, size_t *size, dg_error *error);

/* Reads `length` bytes from the byte `at` on. `*size` is less if the file ends there: it was cut short since it was opened. */
dg_status dg_file_read_at(int file, uint8_t *data, size_t length, size_t at, size_t *size, dg_error *error);

/* Reads the regular file at `path` whole into `scratch`, as long as it was when opened. Never waits on a fifo or a device. */
dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error);

#endif
