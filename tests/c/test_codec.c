/* The table of formats: each is found by its first bytes, and offers what those who loop over the table count on. */
#include "check.h"
#include "codec.h"
#include "cost.h"

#include <string.h>

static void check_signature(dg_format format, unsigned offset, const char *bytes, size_t size)
{
    uint8_t file[32] = {0};
    memcpy(file + offset, bytes, size);
    CHECK(dg_format_sniff(file, sizeof file) == format);
    CHECK(dg_format_sniff(file, offset + size) == format);
    CHECK(dg_format_sniff(file, offset + size - 1) == DG_FORMAT_UNKNOWN);
}

static void check_signatures(void)
{
    check_signature(DG_FORMAT_JPEG, 0, "\xFF\xD8\xFF", 3);
    check_signature(DG_FORMAT_PNG, 0, "\x89PNG\r\n\x1A\n", 8);
    check_signature(DG_FORMAT_WEBP, 8, "WEBP", 4);
    check_signature(DG_FORMAT_TIFF, 0, "MM\0+", 4); /* the last of four */
    check_signature(DG_FORMAT_JPEG_2000, 4, "jP  \r\n\x87\n", 8);
    check_signature(DG_FORMAT_HTML, 0, "<!", 2);
    /* "BM" is so short that it begins files of other formats by chance: the longer signature wins. */
    CHECK(dg_format_sniff((const uint8_t *)"BM\0\0ftypavif", 12) == DG_FORMAT_AVIF);
    CHECK(dg_format_sniff((const uint8_t *)"BM\0\0ftypxxxx", 12) == DG_FORMAT_BMP);
    CHECK(dg_format_sniff(NULL, 0) == DG_FORMAT_UNKNOWN);
}

static void check_entries(void)
{
    for (int format = 0; format < DG_FORMAT_COUNT; format++) {
        const dg_decoder *decoder = dg_decoder_of((dg_format)format);
        int native = format == DG_FORMAT_JPEG || format == DG_FORMAT_PNG || format == DG_FORMAT_WEBP;
        CHECK(decoder->name && (format == DG_FORMAT_UNKNOWN || decoder->signatures[0].size));
        CHECK(native == (decoder->decode && decoder->create && decoder->header && decoder->cost));
        CHECK(native || (!decoder->fit && !decoder->check));
        CHECK(!decoder->check || decoder->encoding != DG_ENCODE_NOT);
    }
    CHECK(!strcmp(dg_decoder_of(DG_FORMAT_JPEG_XL)->name, "jpeg xl"));
    CHECK(dg_decoder_of((dg_format)99) == dg_decoder_of(DG_FORMAT_UNKNOWN));
}

/* What is no picture, or has no decoder here, says so; and of a file whose header is missing only the format tells the cost. */
static void check_refusals(void)
{
    static const struct {
        const char *bytes, *text;
        dg_status status;
        uint64_t cost;
    } FILES[] = {
        {"", "no bytes", DG_EMPTY, 0},
        {"nei", "unrecognised signature: 6e 65 69", DG_UNSUPPORTED, 0},
        {"GIF89a", "unsupported format: gif", DG_UNSUPPORTED, 0},
        {"<html>", "unsupported format: html", DG_UNSUPPORTED, 1},
        {"\xFF\xD8\xFF", "", DG_TRUNCATED, 1},
    };
    dg_heap *heap = dg_heap_new(0);
    dg_codec *codec = dg_codec_new(heap);
    dg_process_options options = {.decode = {.max_pixels = 1 << 20}};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        const uint8_t *data = (const uint8_t *)FILES[i].bytes;
        size_t size = strlen(FILES[i].bytes);
        int damaged = 1;
        dg_image image;
        dg_error error;
        dg_format format = dg_format_sniff(data, size);
        CHECK(dg_codec_decode(codec, data, size, format, &options.decode, &image, &damaged, &error) == FILES[i].status);
        CHECK(!image.buffer.data && !damaged && strstr(error.text, FILES[i].text));
        CHECK(dg_process_cost(data, size, DG_ROLE_IMAGE, &options) == FILES[i].cost);
    }
    dg_codec_free(codec);
    dg_codec_free(NULL);
    dg_heap_free(heap);
}

int main(void)
{
    check_signatures();
    check_entries();
    check_refusals();
    return DONE();
}
