#include "versions.h"

#include <libdeflate.h>
#include <stdio.h>
#include <webp/decode.h>
#include <zlib.h>

#include <jpeglib.h>

#define TEXT_OF(macro) #macro
#define TEXT(macro) TEXT_OF(macro)

void dg_versions(char *text, size_t size)
{
    unsigned webp = (unsigned)WebPGetDecoderVersion();
    snprintf(text, size, "libjpeg-turbo %s, libwebp %u.%u.%u, zlib %s, libdeflate %s", TEXT(LIBJPEG_TURBO_VERSION), webp >> 16,
             webp >> 8 & 255, webp & 255, zlibVersion(), LIBDEFLATE_VERSION_STRING);
}
