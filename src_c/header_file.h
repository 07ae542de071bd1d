/* The size of the picture in a file, of which as little is read as will do. */
#ifndef DG_HEADER_FILE_H
#define DG_HEADER_FILE_H

#include "file.h"

/* Width and height of the picture in the file at `path`, in pixels: upright if `orient`, else as stored. They are those that dg_process
 * goes by, as dg_header_read_from reads the header. On DG_OK both are positive.
 *
 * DG_UNSUPPORTED, or DG_CORRUPT where the format has a decoder here: no size could be found, and another reader may be asked. Other
 * statuses: the file cannot be read, or is longer than `max_bytes`; see dg_file_read. `scratch` is given the file's length, but only
 * the pages that are read into become memory. */
dg_status dg_header_file_size(const char *path, uint64_t max_bytes, int orient, dg_scratch *scratch, int *width, int *height,
                              dg_error *error);

#endif
