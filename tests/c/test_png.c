/* PNG: every kind of picture against a plain oracle, SIMD against plain C, limits, and damage of all sorts. */
#include "check.h"
#include "png.h"
#include "png_rows.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

typedef struct { size_t size; uint8_t data[1 << 17]; } file;
typedef struct { int width, height, depth, colour, interlaced, transparency; } kind;

static dg_png *png;
static file built;
static dg_decode_options options = {.max_pixels = 1 << 20};
static dg_image image;
static dg_error error;

static unsigned chance(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005 + 1442695040888963407;
    return state >> 33;
}

static void put(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = value >> (24 - 8 * i);
}

static void add_chunk(const char *type, const void *content, size_t size)
{
    uint8_t *at = built.data + built.size;
    put(at, size);
    memcpy(at + 4, type, 4);
    if (size)
        memcpy(at + 8, content, size);
    put(at + 8 + size, crc32(0, at + 4, size + 4));
    built.size += size + 12;
}

static void add_header(uint32_t width, uint32_t height, int depth, int colour, int interlaced)
{
    uint8_t ihdr[13] = {[8] = depth, colour, 0, 0, interlaced};
    put(ihdr, width);
    put(ihdr + 4, height);
    memcpy(built.data, "\x89PNG\r\n\x1a\n", 8);
    built.size = 8;
    add_chunk("IHDR", ihdr, 13);
}

static void add_pixels(const uint8_t *rows, size_t size, size_t portion)
{
    static uint8_t packed[1 << 16];
    uLongf packed_size = sizeof packed;
    compress2(packed, &packed_size, rows, size, chance() % 10);
    for (size_t done = 0; done < packed_size; done += portion)
        add_chunk("IDAT", packed + done, packed_size - done < portion ? packed_size - done : portion);
}

static dg_status decode_bytes(size_t size) /* from memory that ends where the file does, for ASAN's sake */
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, built.data, size);
    dg_image_free(&image);
    error.text[0] = 0;
    dg_status status = dg_png_decode(png, exact, size, &options, &image, &error);
    CHECK(status == DG_OK ? image.buffer.data != NULL : !image.buffer.data && error.status == status);
    free(exact);
    return status;
}
static dg_status decode(void) { return decode_bytes(built.size); }

static int pixels_are(const void *expected, size_t size)
{
    return image.buffer.size == size && !memcmp(image.buffer.data, expected, size);
}

static int predicted(int filter, int a, int b, int c)
{
    int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
    return (int[]){0, a, b, (a + b) / 2, paeth}[filter];
}

/* row -> filtered, bytes apart `bytes`; above may be NULL */
static void filter_row(int filter, const uint8_t *row, const uint8_t *above, size_t size, size_t bytes,
                       uint8_t *filtered)
{
    for (size_t i = 0; i < size; i++)
        filtered[i] = row[i] - predicted(filter, i < bytes ? 0 : row[i - bytes], above ? above[i] : 0,
                                         i < bytes || !above ? 0 : above[i - bytes]);
}

static int samples_of(int colour) { return (int[]){1, 0, 3, 1, 2, 0, 4}[colour]; }

/* The pass of each pixel in an 8 x 8 square, as the specification prints it. */
static const char PASS[] = "1646264677777777565656567777777736463646777777775656565677777777";

/* Builds a picture of random samples, and checks what decoding makes of it. */
static void check_kind(kind k, int rgbx)
{
    static uint16_t samples[64 * 64 * 4];
    static uint8_t rows[1 << 16], row[2][64 * 8], palette[256 * 3], alpha[256];
    const int per_pixel = samples_of(k.colour), bits = per_pixel * k.depth, bytes = bits < 8 ? 1 : bits / 8;
    const int count = k.width * k.height * per_pixel, few = chance() % 2; /* few values: the key is hit */
    size_t size = 0;
    for (int i = 0; i < count; i++)
        samples[i] = (few ? chance() % 2 * 0x101 : chance()) & ((1 << k.depth) - 1);
    for (int pass = k.interlaced ? 1 : 0; pass <= (k.interlaced ? 7 : 0); pass++) {
        int any_row = 0;
        for (int y = 0; y < k.height; y++) {
            uint8_t *now = row[y & 1];
            int bit = 0;
            memset(now, 0, sizeof row[0]);
            for (int x = 0; x < k.width; x++)
                for (int j = 0; j < per_pixel && (!pass || PASS[y % 8 * 8 + x % 8] == '0' + pass); j++) {
                    unsigned sample = samples[(y * k.width + x) * per_pixel + j];
                    if (k.depth == 16)
                        now[bit / 8] = sample >> 8, now[bit / 8 + 1] = sample;
                    else
                        now[bit / 8] |= sample << (8 - k.depth - bit % 8);
                    bit += k.depth;
                }
            if (!bit)
                continue;
            int filter = rows[size++] = few ? 4 : chance() % 5;
            static uint8_t above[64 * 8];
            filter_row(filter, now, any_row ? above : NULL, (bit + 7) / 8, bytes, rows + size);
            memcpy(above, now, sizeof above);
            any_row = 1;
            size += (bit + 7) / 8;
        }
    }
    add_header(k.width, k.height, k.depth, k.colour, k.interlaced);
    const int entries = 1 + chance() % 256, alphas = k.transparency ? 1 + chance() % 256 : 0;
    memset(palette, 0, sizeof palette);
    memset(alpha, 255, sizeof alpha);
    for (int i = 0; i < entries * 3; i++)
        palette[i] = chance();
    for (int i = 0; i < alphas; i++)
        alpha[i] = chance();
    uint8_t key[6];
    for (int i = 0; i < 6; i++)
        key[i] = few ? 1 : 0;
    if (k.colour >= 2)
        add_chunk("PLTE", palette, entries * 3); /* only a suggestion in RGB */
    if (k.transparency)
        add_chunk("tRNS", k.colour == 3 ? alpha : key, k.colour == 3 ? alphas : 2 * per_pixel);
    add_pixels(rows, size, 20 + chance() % 2000);
    add_chunk("IEND", NULL, 0);

    options.rgbx = rgbx;
    CHECK(decode() == DG_OK);
    options.rgbx = 0;
    const int colours = k.colour == 3 ? 3 : per_pixel, channels = colours + k.transparency;
    CHECK(image.width == k.width && image.height == k.height && image.channels == channels);
    CHECK(image.depth == (k.depth == 16 ? 16 : 8));
    CHECK(image.step == (rgbx && channels == 3 && k.depth <= 8 ? 4 : channels));
    unsigned wrong = 0;
    const unsigned most = k.depth == 16 ? 65535 : 255;
    for (int i = 0; i < k.width * k.height; i++)
        for (int j = 0; j < image.step; j++) {
            const uint16_t *s = samples + i * per_pixel;
            int is_key = 1;
            for (int c = 0; c < per_pixel; c++)
                is_key &= s[c] == ((few ? 0x101 : 0) & ((1 << k.depth) - 1));
            unsigned expected;
            if (j >= colours)
                expected = j >= channels ? most : k.colour == 3 ? alpha[s[0]] : is_key ? 0 : most;
            else
                expected = k.colour == 3 ? palette[s[0] * 3 + j] : s[j] * (most / ((1u << k.depth) - 1));
            const uint8_t *at = image.buffer.data + (i * image.step + j) * (image.depth / 8);
            uint16_t wide;
            memcpy(&wide, at, image.depth / 8);
            wrong += (image.depth == 16 ? wide : *at) != expected;
        }
    CHECK(wrong == 0);
}

static void check_kinds(void)
{
    static const kind KINDS[] = {
        {.depth = 1}, {.depth = 2}, {.depth = 4}, {.depth = 8}, {.depth = 16}, {.depth = 8, .colour = 2},
        {.depth = 16, .colour = 2}, {.depth = 1, .colour = 3}, {.depth = 2, .colour = 3}, {.depth = 4, .colour = 3},
        {.depth = 8, .colour = 3}, {.depth = 8, .colour = 4}, {.depth = 16, .colour = 4}, {.depth = 8, .colour = 6},
        {.depth = 16, .colour = 6},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        for (int variant = 0; variant < 60; variant++) {
            kind k = KINDS[i];
            k.width = 1 + (variant < 20 ? chance() % 9 : chance() % 60);
            k.height = 1 + (variant < 20 ? chance() % 9 : chance() % 60);
            k.transparency = k.colour == 4 || k.colour == 6 ? 0 : variant % 2;
            k.interlaced = variant / 2 % 2;
            check_kind(k, variant / 4 % 2);
        }
}

/* All of Paeth's 2^24 cases, and bands of all shapes, in plain C and with SIMD. */
static void check_filters(int simd)
{
    static uint8_t rows[4][1 << 17], raw_room[64 + 4 * ((1 << 17) + 1) + 64], out[4 << 17], zeros[1 << 17];
    const size_t size = 1 << 17;
    uint8_t *raw = raw_room + 64;
    for (int round = 0; round < 256; round++) {
        const int c = round & 254, all = round & 1; /* pixels in pairs: over c b; below a and any */
        for (int y = 0; y < 4; y++)
            for (size_t i = 0; i < size; i++) {
                unsigned pair = i / 8 * 4 + i % 4, a = pair >> 8, b = pair & 255;
                rows[y][i] = y & 1 ? (i & 4 ? chance() : a) : (i & 4 ? b : (unsigned)c + y / 2);
            }
        for (int y = 0; y < 4; y++) {
            raw[y * (size + 1)] = all || y & 1 ? 4 : 0;
            filter_row(raw[y * (size + 1)], rows[y], y ? rows[y - 1] : NULL, size, 4, raw + y * (size + 1) + 1);
        }
        dg_png_band band = {raw, size + 1, out, size, zeros, size / 4, 4, 4, 4};
        CHECK(dg_png_unfilter(&band, simd) == 4 && !memcmp(out, rows, sizeof out));
    }
    static const int SHAPES[7][2] = {{1, 1}, {2, 2}, {3, 3}, {3, 4}, {4, 4}, {6, 6}, {8, 8}};
    for (int trial = 0; trial < 20000; trial++) {
        const int bytes = SHAPES[trial % 7][0], step = SHAPES[trial % 7][1], height = 1 + chance() % 9;
        const size_t pixels = 1 + chance() % 40, width = pixels * bytes;
        memset(out, 1, sizeof out / 64);
        for (int y = 0; y < height; y++) {
            for (size_t i = 0; i < width; i++)
                rows[y & 1][i] = chance() % 3 ? chance() : chance() % 2 * 255;
            memcpy(rows[2] + y * width, rows[y & 1], width);
            raw[y * (width + 1)] = trial % 2 && chance() % 8 ? 4 : chance() % 5; /* Paeth is the hard one */
            filter_row(raw[y * (width + 1)], rows[y & 1], y ? rows[~y & 1] : NULL, width, bytes,
                       raw + y * (width + 1) + 1);
        }
        dg_png_band band = {raw, width + 1, out, pixels * step, zeros, pixels, bytes, step, height};
        int in_place = step == bytes && trial % 3 == 0, wrong = 0;
        if (in_place)
            band.out = raw + 1, band.out_stride = width + 1;
        CHECK(dg_png_unfilter(&band, simd) == height);
        for (int y = 0; y < height; y++)
            for (size_t i = 0; i < pixels * step; i++)
                wrong += band.out[y * band.out_stride + i]
                         != (i % step == 3 && bytes == 3 ? 255 : rows[2][y * width + i / step * bytes + i % step]);
        CHECK(wrong == 0 && (in_place || out[height * pixels * step] == 1)); /* and nothing behind */
    }
}

static void check_values(void)
{
    uint8_t rows[4 * (1 + 512)], expected[4096];
    /* 16 bits keep their value, in native order */
    for (int i = 0; i < 256; i++) {
        rows[0] = 0;
        rows[1 + 2 * i] = i, rows[2 + 2 * i] = i + 1;
        ((uint16_t *)expected)[i] = i << 8 | (uint8_t)(i + 1);
    }
    add_header(256, 1, 16, 0, 0);
    add_pixels(rows, 513, 7);
    CHECK(decode() == DG_OK && image.depth == 16 && pixels_are(expected, 512));
    /* small depths spread over 0..255 */
    add_header(4, 1, 2, 0, 0);
    add_pixels((uint8_t[]){0, 0x1b}, 2, 99);
    CHECK(decode() == DG_OK && pixels_are("\x00\x55\xaa\xff", 4));
    /* palette with alpha; an index beyond PLTE is black */
    add_header(4, 1, 8, 3, 0);
    add_chunk("PLTE", "\xff\0\0\0\xff\0\0\0\xff", 9);
    add_chunk("tRNS", "\0\x80", 2);
    add_pixels((uint8_t[]){0, 0, 1, 2, 200}, 5, 99);
    CHECK(decode() == DG_OK && pixels_are("\xff\0\0\0\0\xff\0\x80\0\0\xff\xff\0\0\0\xff", 16));
    /* a transparent colour */
    add_header(2, 1, 8, 2, 0);
    add_chunk("tRNS", "\0\xff\0\0\0\0", 6);
    add_pixels((uint8_t[]){1, 0xff, 0, 0, 1, 0, 0xff}, 7, 99);
    CHECK(decode() == DG_OK && pixels_are("\xff\0\0\0\0\0\xff\xff", 8));
}

static void check_headers(void)
{
    static const struct { uint32_t width, height; int depth, colour, interlaced; } BAD[] = {
        {0, 1, 8, 0, 0}, {1, 0, 8, 0, 0}, {0x80000000, 1, 8, 0, 0}, {1, 0xffffffff, 8, 0, 0}, {1, 1, 3, 0, 0},
        {1, 1, 0, 0, 0}, {1, 1, 4, 2, 0}, {1, 1, 16, 3, 0}, {1, 1, 4, 4, 0}, {1, 1, 1, 6, 0}, {1, 1, 8, 1, 0},
        {1, 1, 8, 5, 0}, {1, 1, 8, 7, 0}, {1, 1, 8, 255, 0}, {1, 1, 99, 0, 0}, {1, 1, 8, 0, 2},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        add_header(BAD[i].width, BAD[i].height, BAD[i].depth, BAD[i].colour, BAD[i].interlaced);
        add_pixels((uint8_t[]){0, 0}, 2, 99);
        CHECK(decode() == DG_CORRUPT);
    }
    for (int at = 10; at < 12; at++) { /* compression and filter methods there are none of */
        add_header(1, 1, 8, 0, 0);
        built.data[16 + at] = 1;
        put(built.data + 29, crc32(0, built.data + 12, 17));
        add_pixels((uint8_t[]){0, 0}, 2, 99);
        CHECK(decode() == DG_CORRUPT);
    }
    add_header(0x7fffffff, 0x7fffffff, 16, 6, 0);
    CHECK(decode() == DG_TOO_LARGE);
    CHECK(!strcmp(error.text, "png: 2147483647 x 2147483647 pixels, max_pixels is 1048576"));
    add_header(1024, 1025, 8, 0, 0);
    CHECK(decode() == DG_TOO_LARGE);
    options.max_pixels = UINT64_MAX; /* a few bytes that promise much: nothing is allocated */
    const uint32_t sides[] = {0x7fffffff, 60000};
    for (int i = 0; i < 4; i++) {
        add_header(sides[i / 2], sides[i / 2], 16, 6, i % 2);
        add_pixels((uint8_t[]){0, 0}, 2, 99);
        CHECK(decode() == (i < 2 ? DG_NO_MEMORY : DG_TRUNCATED));
    }
    options.max_pixels = 1 << 20;
    add_header(1, 1, 8, 3, 0); /* no PLTE */
    add_pixels((uint8_t[]){0, 0}, 2, 99);
    CHECK(decode() == DG_CORRUPT);
    add_header(1, 1, 8, 0, 0);
    add_chunk("IEND", NULL, 0);
    CHECK(decode() == DG_CORRUPT);
    built.data[29] ^= 1;
    CHECK(decode() == DG_CORRUPT && !strcmp(error.text, "png: IHDR has a wrong CRC"));
    memcpy(built.data + 12, "CgBI", 4);
    CHECK(decode() == DG_UNSUPPORTED);
}

/* A 5 x 6 RGB picture of which every byte is 7, with chunks around its pixels; returns where its IDAT begins. */
static size_t build_seven(size_t portion, size_t rows_size)
{
    static uint8_t rows[200];
    memset(rows, 7, sizeof rows);
    for (int y = 0; y < 6; y++)
        rows[y * 16] = 0;
    add_header(5, 6, 8, 2, 0);
    add_chunk("iCCP", "broken profile\0\0not deflate", 26);
    add_chunk("acTL", "\0\0\0\2\0\0\0", 8);
    size_t idat = built.size;
    add_pixels(rows, rows_size, portion);
    return idat;
}

static void check_damage(void)
{
    uint8_t sevens[90];
    memset(sevens, 7, sizeof sevens);
    size_t idat = build_seven(3, 96), end = built.size;
    CHECK(decode() == DG_OK && pixels_are(sevens, 90)); /* no IEND; chunks of three bytes */
    add_chunk("fdAT", "\0\0\0\1 a second frame", 18);
    add_chunk("IEND", NULL, 0);
    add_chunk("IDAT", "what?", 5);
    built.data[built.size++] = 'x';
    CHECK(decode() == DG_OK && pixels_are(sevens, 90));
    for (size_t size = 0; size < end - 7; size++) { /* 7: a CRC and the last bytes of the Adler-32 */
        dg_status status = decode_bytes(size);
        CHECK(status == DG_TRUNCATED || (status == DG_OK && size > end - 12 * 3 && pixels_are(sevens, 90)));
        options.accept_truncated = 1;
        status = decode_bytes(size);
        options.accept_truncated = 0;
        CHECK(status == DG_OK || status == DG_TRUNCATED);
        size_t good = 0;
        while (status == DG_OK && good < 90 && image.buffer.data[good] == 7)
            good++;
        CHECK(status != DG_OK || (good >= 15 && good % 15 == 0));
        while (status == DG_OK && good < 90 && image.buffer.data[good] == 0)
            good++;
        CHECK(status != DG_OK || good == 90);
    }
    built.data[37] ^= 1; /* in iCCP, whose CRC is now wrong */
    CHECK(decode() == DG_OK && pixels_are(sevens, 90));
    built.data[41] = '!'; /* not even a chunk's name; the name began at 37 */
    built.data[37] = '!';
    CHECK(decode() == DG_CORRUPT);

    build_seven(99, 96 + 50); /* more rows than the picture has */
    CHECK(decode() == DG_OK && pixels_are(sevens, 90));
    build_seven(99, 80); /* a complete stream, but of five rows */
    CHECK(decode() == DG_TRUNCATED);
    options.accept_truncated = options.rgbx = 1;
    CHECK(decode() == DG_OK && image.step == 4);
    CHECK(!memcmp(image.buffer.data + 4 * 5 * 4 + 16, "\7\7\7\xff\0\0\0\xff", 8));
    options.accept_truncated = options.rgbx = 0;

    idat = build_seven(9999, 96);
    built.data[built.size - 1] ^= 1; /* CRC */
    CHECK(decode() == DG_OK && pixels_are(sevens, 90));
    built.data[built.size - 5] ^= 1; /* Adler-32 */
    CHECK(decode() == DG_CORRUPT);
    built.data[built.size - 5] ^= 1;
    built.data[idat + 8] ^= 1; /* zlib's header */
    CHECK(decode() == DG_CORRUPT);
    built.data[idat + 8] ^= 1;
    built.data[idat + 10] |= 6; /* a block of type 3 */
    CHECK(decode() == DG_CORRUPT);
    options.accept_truncated = 1;
    CHECK(decode() == DG_CORRUPT);
    options.accept_truncated = 0;

    for (int interlaced = 0; interlaced < 2; interlaced++) {
        add_header(1, 2, 8, 0, interlaced);
        add_pixels((uint8_t[]){0, 0, 5, 0}, 4, 99); /* filter 5 */
        CHECK(decode() == DG_CORRUPT);
        atomic_int stop = 1;
        options.stop = &stop;
        CHECK(decode() == DG_CANCELLED);
        options.stop = NULL;
    }
    for (int i = 0; i < 20000; i++) { /* one to four wrong bytes, anywhere: any status, no crash */
        if (i % 4 == 0)
            build_seven(20, 96);
        built.data[chance() % built.size] = chance();
        decode();
    }
}

/* DATAGO_SIMD is read when the program starts: it starts itself anew for the other way. */
int main(int count, char **arguments)
{
    dg_heap *heap = dg_heap_new(1 << 24);
    int plain = dg_simd_is_refused();
    CHECK(!plain || !dg_png_simd());
    CHECK((png = dg_png_new(heap)) != NULL);
    check_filters(dg_png_simd());
    check_kinds();
    check_values();
    check_headers();
    check_damage();
    dg_image_free(&image);
    dg_png_free(png);
    dg_png_free(NULL);
    dg_heap_free(heap);
    if (count > 1)
        return DONE();
    setenv("DATAGO_SIMD", plain ? "" : "generic", 1);
    execl(arguments[0], arguments[0], "again", (char *)NULL);
    return 1;
}
