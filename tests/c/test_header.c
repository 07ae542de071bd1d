/* Headers: sizes and orientations of hand-made files, whole, cut anywhere, and mutated. */
#include "check.h"
#include "header.h"

#include <libdeflate.h>
#include <string.h>

typedef struct { size_t size; uint8_t data[4096]; } bytes;

static bytes file;
static dg_header header;

static void add(bytes *to, const void *data, size_t size)
{
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void add_number(bytes *to, uint32_t value, int count, int big)
{
    for (int i = 0; i < count; i++)
        to->data[to->size++] = value >> 8 * (big ? count - 1 - i : i);
}

static size_t loaded; /* bytes, of the file that was read last */

/* No more than what is asked for; whoever looks at other bytes finds something else there. */
static int load(dg_reader *reader, size_t begin, size_t end)
{
    CHECK(begin >= reader->known && begin < end && end <= reader->size);
    memcpy((uint8_t *)reader->data + begin, file.data + begin, end - begin);
    reader->known = end;
    loaded += end - begin;
    return 1;
}

static void read_in_pieces(dg_format format, size_t size, int filler)
{
    uint8_t *pieces = malloc(size ? size : 1);
    memset(pieces, filler, size);
    dg_reader reader = {.data = pieces, .size = size, .load = load};
    dg_header found;
    loaded = 0;
    dg_header_read_from(&reader, format, &found);
    CHECK(!memcmp(&found, &header, sizeof found));
    free(pieces);
}

static int read_as(dg_format format, size_t size) /* from memory that ends where the file does, for ASAN's sake */
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, file.data, size);
    int known = dg_header_read(exact, size, format, &header);
    read_in_pieces(format, size, 0xFF);
    read_in_pieces(format, size, 0);
    CHECK(header.orientation >= 1 && header.orientation <= 8);
    CHECK(known ? header.width > 0 && header.height > 0 : header.width == 0 && header.height == 0);
    free(exact);
    return known;
}

static int is(int known, int width, int height, int orientation)
{
    return known && header.width == width && header.height == height && header.orientation == orientation;
}

/* EXIF with one other entry before the orientation, and junk of `apart` bytes before the directory. */
static bytes exif(const char *prefix, size_t prefix_size, int big, int apart, int type, uint32_t count, uint32_t value)
{
    bytes made = {0};
    add(&made, prefix, prefix_size);
    add(&made, big ? "MM\0*" : "II*\0", 4);
    add_number(&made, 8 + apart, 4, big);
    for (int i = 0; i < apart; i++)
        add_number(&made, i, 1, big);
    add_number(&made, 2, 2, big);
    add_number(&made, 0x10F, 2, big), add_number(&made, 2, 2, big), add_number(&made, 4, 4, big), add(&made, "abc", 4);
    add_number(&made, 0x112, 2, big), add_number(&made, type, 2, big), add_number(&made, count, 4, big);
    add_number(&made, value, type == 3 ? 2 : 4, big);
    if (type == 3)
        add_number(&made, 0, 2, big);
    add_number(&made, 0, 4, big);
    return made;
}

static void add_segment(int marker, const void *content, size_t size, int fill)
{
    for (int i = 0; i <= fill; i++)
        add_number(&file, 0xFF, 1, 1);
    add_number(&file, marker, 1, 1);
    add_number(&file, size + 2, 2, 1);
    add(&file, content, size);
}

static void add_frame(int marker, int width, int height, int fill)
{
    uint8_t frame[9] = {8, height >> 8, height, width >> 8, width, 1, 1, 0x11, 0};
    add_segment(marker, frame, sizeof frame, fill);
}

static void start_jpeg(void)
{
    file.size = 0;
    add(&file, "\xFF\xD8", 2);
}

static void end_jpeg(void)
{
    add_segment(0xDA, "\1\1\0\0\77\0", 6, 0);
    add(&file, "\1\2\3\xFF\xD9", 5);
}

static int jpeg_with(bytes exif)
{
    start_jpeg();
    add_segment(0xE0, "JFIF\0\1\1\0\0\1\0\1\0\0", 14, 0);
    add_segment(0xE1, exif.data, exif.size, 0);
    add_frame(0xC0, 64, 32, 0);
    end_jpeg();
    return read_as(DG_FORMAT_JPEG, file.size);
}

static void test_exif(void)
{
    for (int big = 0; big < 2; big++)
        for (int type = 3; type <= 4; type++)
            for (int value = 0; value < 12; value++) {
                bytes made = exif("Exif\0\0", 6, big, value * 3, type, 1, value);
                int legal = value >= 1 && value <= 8 ? value : 1;
                CHECK(is(jpeg_with(made), 64, 32, legal));
                for (size_t size = 6; size < made.size; size++) { /* whatever is missing is not read */
                    bytes cut = made;
                    cut.size = size;
                    CHECK(is(jpeg_with(cut), 64, 32, size < made.size - 4 ? 1 : legal));
                }
            }
    CHECK(is(jpeg_with(exif("Exif\0\0", 6, 0, 0, 4, 1, 0x10006)), 64, 32, 1));
    CHECK(is(jpeg_with(exif("Exif\0\0", 6, 0, 0, 2, 1, 6)), 64, 32, 1));  /* text */
    CHECK(is(jpeg_with(exif("Exif\0\0", 6, 0, 0, 3, 0, 6)), 64, 32, 1));  /* none of it */
    CHECK(is(jpeg_with(exif("Exif\0\0", 6, 0, 0, 3, 9, 6)), 64, 32, 1));  /* nine of it, elsewhere */
    CHECK(is(jpeg_with(exif("Exif\0\1", 6, 0, 0, 3, 1, 6)), 64, 32, 1));  /* not EXIF */
    CHECK(is(jpeg_with(exif("Exif\0\0", 6, 0, -8, 3, 1, 6)), 64, 32, 1)); /* the directory is the file's head */
    bytes far = exif("Exif\0\0", 6, 1, 0, 3, 1, 6);
    memset(far.data + 10, 0xFF, 4);
    CHECK(is(jpeg_with(far), 64, 32, 1));
    far = exif("Exif\0\0", 6, 1, 0, 3, 1, 6);
    far.data[14] = 0xFF; /* 65282 entries */
    CHECK(is(jpeg_with(far), 64, 32, 6));
}

static void test_jpeg(void)
{
    bytes six = exif("Exif\0\0", 6, 1, 0, 3, 1, 6), eight = exif("Exif\0\0", 6, 0, 0, 3, 1, 8);
    for (int marker = 0xC0; marker <= 0xCF; marker++) {
        start_jpeg();
        add_frame(marker, 300, 200, marker & 3);
        end_jpeg();
        int frame = marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
        CHECK(frame ? is(read_as(DG_FORMAT_JPEG, file.size), 300, 200, 1) : !read_as(DG_FORMAT_JPEG, file.size));
    }
    start_jpeg(); /* after the frame, after a lot of fill bytes and junk; the first EXIF segment counts, XMP does not */
    add_segment(0xE1, "http://ns.adobe.com/xap/1.0/\0<x>\xA8\xFF</x>", 38, 3);
    add(&file, "junk\xFF\0\xFF\xD3junk", 12);
    add_frame(0xC2, 65500, 1, 5);
    add_segment(0xE1, six.data, six.size, 7);
    add_segment(0xE1, eight.data, eight.size, 0);
    add_frame(0xC2, 5, 5, 0);
    end_jpeg();
    CHECK(is(read_as(DG_FORMAT_JPEG, file.size), 65500, 1, 6));
    for (size_t size = 0; size < file.size; size++)
        read_as(DG_FORMAT_JPEG, size);
    start_jpeg();
    add_frame(0xC0, 9, 7, 0);
    end_jpeg();
    add_segment(0xE1, six.data, six.size, 0); /* behind the scan: another picture's */
    CHECK(is(read_as(DG_FORMAT_JPEG, file.size), 9, 7, 1));
    start_jpeg();
    add_frame(0xC0, 9, 0, 0); /* the height would come in a DNL */
    end_jpeg();
    CHECK(!read_as(DG_FORMAT_JPEG, file.size));
    start_jpeg();
    end_jpeg();
    add_frame(0xC0, 9, 7, 0);
    CHECK(!read_as(DG_FORMAT_JPEG, file.size));
}

static void add_chunk(const char *type, const void *content, size_t size)
{
    add_number(&file, size, 4, 1);
    add(&file, type, 4);
    add(&file, content, size);
    add_number(&file, libdeflate_crc32(0, file.data + file.size - size - 4, size + 4), 4, 1);
}

static void start_png(uint32_t width, uint32_t height)
{
    bytes ihdr = {0};
    add_number(&ihdr, width, 4, 1), add_number(&ihdr, height, 4, 1), add(&ihdr, "\10\2\0\0\0", 5);
    file.size = 0;
    add(&file, "\x89PNG\r\n\x1A\n", 8);
    add_chunk("IHDR", ihdr.data, ihdr.size);
}

static void test_png(void)
{
    bytes six = exif("", 0, 1, 0, 3, 1, 6), eight = exif("Exif\0\0", 6, 0, 4, 4, 1, 8);
    start_png(70000, 3);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 70000, 3, 1));
    add_chunk("eXIf", six.data, six.size);
    add_chunk("IDAT", "xyz", 3);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 70000, 3, 6));
    start_png(70000, 3);
    add_chunk("eXIf", six.data, six.size);
    file.data[file.size - 1] ^= 1;
    add_chunk("IDAT", "xyz", 3);
    add_chunk("eXIf", eight.data, eight.size);
    add_chunk("IEND", "", 0);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 70000, 3, 8));
    for (size_t size = 0; size < file.size; size++)
        CHECK(read_as(DG_FORMAT_PNG, size) == (size >= 29));
    start_png(1, 1);
    add_chunk("IEND", "", 0);
    add_chunk("eXIf", eight.data, eight.size);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 1, 1, 1));
    start_png(0x7fffffff, 0x7fffffff);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 0x7fffffff, 0x7fffffff, 1));
    add_number(&file, 0xffffffff, 4, 1), add(&file, "eXIfxxxx", 8);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 0x7fffffff, 0x7fffffff, 1));
    start_png(0x80000000, 1);
    CHECK(!read_as(DG_FORMAT_PNG, file.size));
    start_png(0, 1);
    CHECK(!read_as(DG_FORMAT_PNG, file.size));
}

static void add_riff(const char *type, const void *content, size_t size)
{
    add(&file, type, 4);
    add_number(&file, size, 4, 0);
    add(&file, content, size);
    if (size & 1)
        add_number(&file, 0, 1, 0);
    file.data[4] = file.size - 8, file.data[5] = (file.size - 8) >> 8;
}

static void start_webp(void)
{
    file.size = 0;
    add(&file, "RIFF\0\0\0\0WEBP", 12);
}

static void test_webp(void)
{
    static const char LOSSY[] = "\x10\0\0\x9D\1\x2A\x2C\1\xC8\x40", LOSSLESS[] = "\x2F\x2B\xC1\x31\0";
    bytes six = exif("", 0, 1, 0, 3, 1, 6), eight = exif("Exif\0\0Exif\0\0", 12, 0, 5, 4, 1, 8);
    start_webp();
    add_riff("VP8 ", LOSSY, 10);
    CHECK(is(read_as(DG_FORMAT_WEBP, file.size), 300, 200, 1));
    add_riff("EXIF", six.data, six.size); /* without VP8X there is no EXIF */
    CHECK(is(read_as(DG_FORMAT_WEBP, file.size), 300, 200, 1));
    start_webp();
    add_riff("VP8L", LOSSLESS, 5);
    CHECK(is(read_as(DG_FORMAT_WEBP, file.size), 300, 200, 1));
    for (int flag = 0; flag <= 8; flag += 8)
        for (int i = 0; i < 2; i++) {
            uint8_t extended[10] = {flag, 0, 0, 0, 0x6F, 0x11, 1, 2};
            start_webp();
            add_riff("VP8X", extended, 10);
            add_riff("VP8L", LOSSLESS, 5);
            add_riff("odd ", "x", 1);
            add_riff("EXIF", i ? six.data : eight.data, i ? six.size : eight.size);
            CHECK(is(read_as(DG_FORMAT_WEBP, file.size), 70000, 3, !flag ? 1 : i ? 6 : 8));
        }
    for (size_t size = 0; size < file.size; size++)
        CHECK(read_as(DG_FORMAT_WEBP, size) == (size >= 30));
    file.data[4] = 40, file.data[5] = 0; /* bytes behind the RIFF are not part of the picture */
    CHECK(is(read_as(DG_FORMAT_WEBP, file.size), 70000, 3, 1));
    start_webp();
    add_riff("VP8 ", "\x11\0\0\x9D\1\x2A\x2C\1\xC8\x40", 10); /* no key frame */
    CHECK(!read_as(DG_FORMAT_WEBP, file.size));
    start_webp();
    add_riff("junk", LOSSLESS, 5);
    memset(file.data + 16, 0xFF, 4);
    CHECK(!read_as(DG_FORMAT_WEBP, file.size));
}

/* Pixels and profiles are not asked for. */
static void test_what_is_passed_over(void)
{
    static const uint8_t long_content[3000] = {0};
    bytes six = exif("", 0, 1, 0, 3, 1, 6), six_in_jpeg = exif("Exif\0\0", 6, 1, 0, 3, 1, 6);
    start_png(5, 6);
    add_chunk("IDAT", long_content, sizeof long_content);
    add_chunk("eXIf", six.data, six.size);
    add_chunk("IEND", "", 0);
    CHECK(is(read_as(DG_FORMAT_PNG, file.size), 5, 6, 6) && loaded < 200);
    start_jpeg();
    add_segment(0xE2, long_content, sizeof long_content, 0);
    add_segment(0xE1, six_in_jpeg.data, six_in_jpeg.size, 0);
    add_frame(0xC0, 5, 6, 0);
    end_jpeg();
    add(&file, long_content, 500);
    CHECK(is(read_as(DG_FORMAT_JPEG, file.size), 5, 6, 6) && loaded < 200);
    uint8_t extended[10] = {8, 0, 0, 0, 4, 0, 0, 5};
    for (int flag = 0; flag <= 8; flag += 8) {
        extended[0] = flag;
        start_webp();
        add_riff("VP8X", extended, 10);
        add_riff("VP8 ", long_content, sizeof long_content);
        add_riff("EXIF", six.data, six.size);
        CHECK(is(read_as(DG_FORMAT_WEBP, file.size), 5, 6, flag ? 6 : 1) && loaded < (flag ? 200 : 50));
    }
}

static void test_mutations(void)
{
    static const dg_format FORMATS[] = {DG_FORMAT_JPEG, DG_FORMAT_PNG, DG_FORMAT_WEBP};
    void (*const makers[])(void) = {test_jpeg, test_png, test_webp};
    uint64_t state = 1;
    for (int i = 0; i < 3; i++) {
        makers[i]();
        if (i == 0)
            jpeg_with(exif("Exif\0\0", 6, 1, 0, 3, 1, 6));
        bytes seed = file;
        for (int n = 0; n < 5000; n++) {
            file = seed;
            for (int k = 0; k < 3; k++) {
                state = state * 6364136223846793005 + 1442695040888963407;
                file.data[(state >> 33) % file.size] = state >> 25;
            }
            read_as(FORMATS[i], file.size);
        }
    }
}

int main(void)
{
    test_exif();
    test_jpeg();
    test_png();
    test_webp();
    test_what_is_passed_over();
    test_mutations();
    jpeg_with(exif("Exif\0\0", 6, 1, 0, 3, 1, 6));
    for (int format = 0; format < DG_FORMAT_COUNT; format++)
        CHECK(read_as(format, file.size) == (format == DG_FORMAT_JPEG));
    CHECK(!read_as(99, file.size));
    return DONE();
}
