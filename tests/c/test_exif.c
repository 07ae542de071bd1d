/* EXIF and XMP: every type of value, offsets that lead nowhere, text chunks; whole, cut anywhere, and mutated. */
#include "check.h"
#include "exif.h"
#include "header.h"

#include <libdeflate.h>
#include <string.h>
#include <zlib.h>

typedef struct {
    size_t size;
    uint8_t data[4096];
} bytes;

static void add(bytes *to, const void *data, size_t size)
{
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void add_number(bytes *to, uint64_t value, int count, int big)
{
    for (int i = 0; i < count; i++)
        to->data[to->size++] = (uint8_t)(value >> 8 * (big ? count - 1 - i : i));
}

/* The span's bytes, in memory that ends where they do, for ASAN's sake. */
static int orientation(const bytes *made, size_t size, int (*of)(dg_span))
{
    uint8_t *exact = malloc(size + !size);
    memcpy(exact, made->data, size);
    int found = of((dg_span){exact, size});
    free(exact);
    CHECK(found >= 0 && found <= 8);
    return found;
}

static int of_exif(dg_span exif) { return dg_exif_orientation(exif, 0); }

enum { BYTE = 1, ASCII, SHORT, LONG, RATIONAL, SBYTE, UNDEFINED, SSHORT, SLONG, SRATIONAL, FLOAT, DOUBLE, IFD, LONG8 = 16 };

static void start(bytes *made, const char *head, int entries)
{
    int big = *head == 'M';
    add(made, head, 4);
    add_number(made, 8, 4, big), add_number(made, (uint64_t)entries, 2, big);
}

/* `count` values of `size` bytes each, of which `value` is the first; behind the directory if they do not fit into the entry. */
static bytes one_entry(const char *head, int type, uint32_t count, int size, uint64_t value)
{
    bytes made = {0};
    int big = *head == 'M';
    start(&made, head, 1);
    add_number(&made, 0x112, 2, big), add_number(&made, (uint64_t)type, 2, big), add_number(&made, count, 4, big);
    size_t all = (size_t)size * count;
    if (all > 4)
        add_number(&made, made.size + 8, 4, big), add_number(&made, 0, 4, big);
    size_t before = made.size;
    if (count)
        add_number(&made, value, size, big);
    while (made.size < before + all || made.size < before + 4)
        add_number(&made, 0, 1, big);
    if (all <= 4)
        add_number(&made, 0, 4, big);
    return made;
}

static int of(const char *head, int type, uint32_t count, int size, uint64_t value)
{
    bytes made = one_entry(head, type, count, size, value);
    for (size_t cut = 0; cut < made.size; cut++)
        orientation(&made, cut, of_exif);
    return orientation(&made, made.size, of_exif);
}

static void check_types(void)
{
    static const struct {
        int type, size;
    } NUMBERS[] = {{SHORT, 2}, {LONG, 4}, {SBYTE, 1}, {SSHORT, 2}, {SLONG, 4}, {IFD, 4}, {LONG8, 8}};
    static const char *const HEADS[] = {"II*\0", "MM\0*", "II\0*", "MM*\0"};
    for (int h = 0; h < 4; h++) {
        for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
            for (uint64_t value = 0; value < 12; value++)
                for (uint32_t count = 1; count < 4; count++)
                    CHECK(of(HEADS[h], NUMBERS[i].type, count, NUMBERS[i].size, value)
                          == (value >= 1 && value <= 8 ? (int)value : 1));
            CHECK(of(HEADS[h], NUMBERS[i].type, 1, NUMBERS[i].size, UINT64_MAX) == 1);
            CHECK(of(HEADS[h], NUMBERS[i].type, 0, NUMBERS[i].size, 6) == 0); /* an entry without a value is none */
        }
        int big = *HEADS[h] == 'M';
        uint64_t six = big ? 6ull << 32 | 1 : 1ull << 32 | 6, twelve = big ? 12ull << 32 | 2 : 2ull << 32 | 12;
        uint64_t minus = big ? (uint64_t)(uint32_t)-6 << 32 | (uint32_t)-1 : (uint64_t)(uint32_t)-1 << 32 | (uint32_t)-6;
        CHECK(of(HEADS[h], RATIONAL, 1, 8, six) == 6 && of(HEADS[h], SRATIONAL, 1, 8, twelve) == 6);
        CHECK(of(HEADS[h], SRATIONAL, 1, 8, minus) == 6 && of(HEADS[h], RATIONAL, 1, 8, minus) == 1);
        CHECK(of(HEADS[h], RATIONAL, 1, 8, 0) == 1);
        CHECK(of(HEADS[h], FLOAT, 1, 4, 0x40C00000) == 6 && of(HEADS[h], FLOAT, 1, 4, 0x40C00001) == 1);
        CHECK(of(HEADS[h], FLOAT, 1, 4, 0x7FC00000) == 1); /* not a number */
        CHECK(of(HEADS[h], DOUBLE, 1, 8, 0x4018000000000000) == 6);
        CHECK(of(HEADS[h], BYTE, 1, 1, 6) == 1 && of(HEADS[h], ASCII, 2, 1, '6') == 1 && of(HEADS[h], UNDEFINED, 1, 1, 6) == 1);
        CHECK(of(HEADS[h], 14, 1, 4, 6) == 0 && of(HEADS[h], 0xFFFF, 1, 4, 6) == 0); /* of no type that there is */
    }
    CHECK(of("II+\0", SHORT, 1, 2, 6) == 1 && of("IM*\0", SHORT, 1, 2, 6) == 1);
}

/* The maker's name stands before the orientation, at `offset`. */
static int after(uint32_t count, uint32_t offset, size_t more)
{
    bytes made = {0};
    start(&made, "II*\0", 2);
    add_number(&made, 0x10F, 2, 0), add_number(&made, ASCII, 2, 0), add_number(&made, count, 4, 0),
        add_number(&made, offset, 4, 0);
    add_number(&made, 0x112, 2, 0), add_number(&made, SHORT, 2, 0), add_number(&made, 1, 4, 0), add_number(&made, 6, 4, 0);
    add_number(&made, 0, 4, 0);
    return dg_exif_orientation((dg_span){made.data, made.size}, more);
}

static void check_directories(void)
{
    CHECK(after(4, 0xFFFFFFFF, 0) == 6 && after(10, 28, 0) == 6);
    CHECK(after(10, 29, 0) == 0 && after(10, 0xFFFFFFFF, 0) == 0); /* out of the file: there Pillow stops */
    CHECK(after(10, 29, 1) == 6 && after(10, 40, 12) == 6 && after(10, 40, 11) == 0); /* the rest is in another segment */
    CHECK(after(0xFFFFFFFF, 0, 0) == 6); /* more than there is at all: it is skipped */
    bytes two = {0};
    start(&two, "MM\0*", 2);
    for (int i = 0; i < 2; i++)
        add_number(&two, 0x112, 2, 1), add_number(&two, SHORT, 2, 1), add_number(&two, 1, 4, 1), add_number(&two, 3 + i, 2, 1),
            add_number(&two, 0, 2, 1);
    CHECK(orientation(&two, two.size, of_exif) == 3 && orientation(&two, 22, of_exif) == 3
          && orientation(&two, 21, of_exif) == 0);
    for (int i = 0; i < 200000; i++) {
        bytes made = one_entry(i & 1 ? "MM\0*" : "II*\0", 1 + i % 16, 1 + i % 3, 8, 6);
        for (int k = 0; k < 3; k++)
            made.data[rand() % made.size] = (uint8_t)(rand() >> 5);
        orientation(&made, (size_t)rand() % (made.size + 1), of_exif);
    }
}

static int xmp(const char *text)
{
    bytes made = {0};
    add(&made, text, strlen(text));
    for (size_t cut = 0; cut < made.size; cut++)
        orientation(&made, cut, dg_xmp_orientation);
    return orientation(&made, made.size, dg_xmp_orientation);
}

static void check_xmp(void)
{
    CHECK(xmp("<x tiff:Orientation=\"6\"/>") == 6 && xmp("<tiff:Orientation>8</tiff:Orientation>") == 8);
    CHECK(xmp("tiff:Orientation='6'") == 0 && xmp("tiff:Orientation = \"6\"") == 0 && xmp("tiff:Orientation") == 0
          && xmp("") == 0);
    CHECK(xmp("tiff:Orientation=\"0\"") == 1 && xmp("tiff:Orientation=\"9\"") == 1 && xmp("tiff:Orientation=\"63\"") == 6);
    CHECK(xmp("tiff:Orientation=\"x\" a:b tiff:Orientation>3") == 3 && xmp("iff:Orientation>3") == 0
          && xmp(":::tiff:Orientation>3") == 3);
}

static void check_text(void)
{
    bytes six = one_entry("II*\0", SSHORT, 1, 2, 6), text = {0};
    add(&text, "\nexif\n      34\n", 15);
    for (size_t i = 0; i < six.size; i++)
        text.size += (size_t)sprintf((char *)text.data + text.size, i % 5 ? "%02x" : "%02X\n", six.data[i]);
    CHECK(orientation(&text, text.size, dg_exif_of_text) == 6);
    for (size_t cut = 0; cut < text.size; cut++)
        orientation(&text, cut, dg_exif_of_text);
    text.data[text.size - 1] = 'g';
    CHECK(orientation(&text, text.size, dg_exif_of_text) == 1);
    bytes empty = {0};
    CHECK(orientation(&empty, 0, dg_exif_of_text) == 0);
}

/* ---- PNG, whose text may be deflated ---- */

static bytes png;

static void add_chunk(const char *type, const void *content, size_t size)
{
    add_number(&png, size, 4, 1);
    add(&png, type, 4);
    add(&png, content, size);
    add_number(&png, libdeflate_crc32(0, png.data + png.size - size - 4, size + 4), 4, 1);
}

static int turned(void)
{
    uint8_t *exact = malloc(png.size);
    dg_header header;
    memcpy(exact, png.data, png.size);
    CHECK(dg_header_read(exact, png.size, DG_FORMAT_PNG, &header) == 1 && header.width == 4 && header.height == 2);
    free(exact);
    return header.orientation;
}

static void begin_png(void)
{
    png.size = 0;
    add(&png, "\x89PNG\r\n\x1A\n", 8);
    add_chunk("IHDR", "\0\0\0\4\0\0\0\2\10\2\0\0\0", 13);
}

static void check_png(void)
{
    static const char XMP[] = "XML:com.adobe.xmp\0\0\0de\0XMP\0<x tiff:Orientation=\"5\"/>";
    static uint8_t large[3 << 20];
    bytes text = {0};
    uLongf room = 4096;
    begin_png();
    add_chunk("iTXt", XMP, sizeof XMP - 1);
    CHECK(turned() == 5);
    for (size_t i = 0; i < sizeof XMP; i++) { /* whatever is missing */
        begin_png();
        add_chunk("iTXt", XMP, i);
        turned();
    }
    /* Text of 1 MiB is looked at, of 3 not: how much is inflated has a bound. */
    for (int size = 1; size <= 3; size += 2) {
        memset(large, ' ', sizeof large);
        memcpy(large, "tiff:Orientation>7", 18);
        add(&text, "XML:com.adobe.xmp\0\0", 19);
        room = sizeof text.data - text.size;
        CHECK(compress2(text.data + text.size, &room, large, (size_t)size << 20, 9) == Z_OK);
        begin_png();
        add_chunk("zTXt", text.data, text.size + room);
        CHECK(turned() == (size == 1 ? 7 : 1));
        if (size == 1)
            for (size_t i = 0; i < room; i += 7) {
                begin_png();
                add_chunk("zTXt", text.data, text.size + i);
                turned();
                png.data[png.size - 9] ^= 0x10; /* a wrong CRC: not looked at */
                CHECK(turned() == 1);
            }
        text.size = 0;
    }
}

int main(void)
{
    srand(1);
    check_types();
    check_directories();
    check_xmp();
    check_text();
    check_png();
    return DONE();
}
