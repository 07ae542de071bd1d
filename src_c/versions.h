/* The versions of the libraries that this code calls. */
#ifndef DG_VERSIONS_H
#define DG_VERSIONS_H

#include <stddef.h>

/* Writes "NAME VERSION, NAME VERSION, …" and a zero into `text`, which has room for `size` bytes; a longer text is cut off. zlib and
 * libwebp say themselves which version is loaded; libjpeg-turbo and libdeflate cannot, so theirs is the version of the headers that this
 * code was compiled with. */
void dg_versions(char *text, size_t size);

#endif
