/* The bytes of one file, read whole. */
#ifndef DG_FILE_H
#define DG_FILE_H

#include "scratch.h"

/* Reads the regular file at `path` into `scratch`, as long as it was when opened. Never waits on a fifo or a device. */
dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error);

#endif
