#include "header.h"

#include <stdlib.h>
#include <zlib.h>

enum { MAX_TEXT = 1 << 20 }; /* bytes that a text chunk may inflate to, as in Pillow */

/* What `of` says of a text; of a deflated one that is whole, or cut off, and no longer than MAX_TEXT. */
static int orientation_of(dg_span text, int packed, int (*of)(dg_span))
{
    if (!text.data || !packed)
        return text.data ? of(text) : 0;
    z_stream z = {.next_in = (Bytef *)text.data, .avail_in = text.size < MAX_TEXT ? (uInt)text.size : MAX_TEXT};
    int orientation = 0;
    uint8_t *inflated = malloc(MAX_TEXT);
    if (inflated && inflateInit(&z) == Z_OK) {
        z.next_out = inflated;
        z.avail_out = MAX_TEXT;
        int result = inflate(&z, Z_SYNC_FLUSH);
        if (result == Z_STREAM_END || (result == Z_OK && z.avail_in == 0) || result == Z_BUF_ERROR)
            orientation = of((dg_span){inflated, z.total_out});
        inflateEnd(&z);
    }
    free(inflated);
    return orientation;
}

static int orientation_in(const dg_metadata *found)
{
    int orientation = found->exif.data ? dg_exif_orientation(found->exif, found->exif_more)
                                       : orientation_of(found->profile, found->profile_packed, dg_exif_of_text);
    if (orientation == 0)
        orientation = orientation_of(found->xmp, found->xmp_packed, dg_xmp_orientation);
    return orientation ? orientation : 1;
}

int dg_header_read(const uint8_t *data, size_t size, dg_format format, dg_header *header)
{
    dg_reader reader = {.data = data, .size = size, .known = size};
    return dg_header_read_from(&reader, format, header);
}

int dg_header_read_from(dg_reader *reader, dg_format format, dg_header *header)
{
    const dg_decoder *decoder = dg_decoder_of(format);
    dg_metadata found = {0};
    *header = (dg_header){.depth = 8};
    if (decoder->header)
        decoder->header(reader, header, &found);
    header->orientation = orientation_in(&found);
    if (header->width > 0 && header->height > 0)
        return 1;
    header->width = header->height = 0;
    return 0;
}
