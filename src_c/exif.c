#include "exif.h"

#include <stdlib.h>
#include <string.h>

enum { ORIENTATION = 0x112, MAX_TEXT = 1 << 20 };

/* Types of TIFF values, and bytes of one; 0 for what is not known, which makes an entry be skipped. */
enum { SHORT = 3, LONG, RATIONAL, SBYTE, SSHORT = 8, SLONG, SRATIONAL, FLOAT, DOUBLE, IFD, LONG8 = 16, TYPES };
static const uint8_t SIZES[TYPES] = {[1] = 1,     [2] = 1,      [SHORT] = 2,  [LONG] = 4,  [RATIONAL] = 8,
                                     [SBYTE] = 1, [7] = 1,      [SSHORT] = 2, [SLONG] = 4, [SRATIONAL] = 8,
                                     [FLOAT] = 4, [DOUBLE] = 8, [IFD] = 4,    [LONG8] = 8};

uint64_t dg_number(const uint8_t *at, int count, int big)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | at[big ? i : count - 1 - i];
    return value;
}

static double quotient(int64_t above, int64_t below) { return below ? (double)above / (double)below : 0; }

/* The first number of a value; 0 for text and bytes. */
static double value_of(const uint8_t *at, unsigned type, int big)
{
    uint64_t bits = dg_number(at, SIZES[type], big);
    uint32_t half = (uint32_t)bits;
    float single;
    double whole;
    switch (type) {
    case RATIONAL: return quotient((int64_t)dg_number(at, 4, big), (int64_t)dg_number(at + 4, 4, big));
    case SRATIONAL: return quotient((int32_t)dg_number(at, 4, big), (int32_t)dg_number(at + 4, 4, big));
    case FLOAT: memcpy(&single, &half, sizeof single); return single;
    case DOUBLE: memcpy(&whole, &bits, sizeof whole); return whole;
    case SHORT:
    case LONG:
    case SBYTE: /* what is negative becomes too large */
    case SSHORT:
    case SLONG:
    case IFD:
    case LONG8: return (double)bits;
    default: return 0;
    }
}

int dg_exif_orientation(dg_span exif, size_t more)
{
    while (dg_span_begins(exif, "Exif\0\0", 6)) { /* JPEG has it once; in WebP some writers add it, some twice */
        exif.data += 6;
        exif.size -= 6;
    }
    /* Some writers have the 42 the wrong way round. */
    const int big = dg_span_begins(exif, "MM\0*", 4) || dg_span_begins(exif, "MM*\0", 4);
    if (exif.size < 8 || (!big && !dg_span_begins(exif, "II*\0", 4) && !dg_span_begins(exif, "II\0*", 4)))
        return exif.size ? 1 : 0;
    uint64_t at = dg_number(exif.data + 4, 4, big), whole = exif.size + more, total = 0;
    if (at > exif.size - 2)
        return 0;
    unsigned entries = (unsigned)dg_number(exif.data + at, 2, big);
    for (at += 2; entries-- && exif.size - at >= 12; at += 12) {
        const uint8_t *entry = exif.data + at, *value = entry + 8;
        unsigned type = (unsigned)dg_number(entry + 2, 2, big);
        uint64_t size = type < TYPES ? dg_number(entry + 4, 4, big) * SIZES[type] : 0;
        if (size > 4) {
            uint64_t offset = dg_number(entry + 8, 4, big);
            total += size;
            if (total > whole)
                continue;
            if (offset > whole || size > whole - offset)
                return 0; /* here the directory ends for Pillow */
            value = offset + SIZES[type] <= exif.size ? exif.data + offset : NULL;
        }
        if (size == 0 || dg_number(entry, 2, big) != ORIENTATION)
            continue;
        double orientation = value ? value_of(value, type, big) : 0;
        return orientation >= 1 && orientation <= 8 && orientation == (int)orientation ? (int)orientation : 1;
    }
    return 0;
}

static int hexadecimal(uint8_t letter)
{
    return letter >= '0' && letter <= '9'                 ? letter - '0'
           : (letter | 32) >= 'a' && (letter | 32) <= 'f' ? (letter | 32) - 'a' + 10
                                                          : -1;
}

int dg_exif_of_text(dg_span text)
{
    for (int line = 0; line < 3; line++) { /* an empty one, the kind, the length */
        const uint8_t *end = text.size ? memchr(text.data, '\n', text.size) : NULL;
        if (!end)
            return 0;
        text.size -= (size_t)(end + 1 - text.data);
        text.data = end + 1;
    }
    uint8_t *bytes = text.size <= MAX_TEXT ? malloc(text.size / 2 + 1) : NULL;
    size_t digits = 0;
    int sound = bytes != NULL;
    for (size_t i = 0; sound && i < text.size; i++) {
        int digit = hexadecimal(text.data[i]);
        if (digit >= 0) {
            bytes[digits / 2] = (uint8_t)(digits % 2 ? bytes[digits / 2] << 4 | digit : digit);
            digits++;
        } else {
            sound = text.data[i] && strchr(" \t\n\v\f\r", text.data[i]);
        }
    }
    int orientation = sound ? dg_exif_orientation((dg_span){bytes, digits / 2}, 0) : 1;
    free(bytes);
    return orientation;
}

int dg_xmp_orientation(dg_span xmp)
{
    const char *const name = "tiff:Orientation";
    const size_t length = strlen(name), colon = 4;
    const uint8_t *at = xmp.data, *end = xmp.data + xmp.size;
    while (at < end && (at = memchr(at, ':', (size_t)(end - at)))) {
        size_t before = (size_t)(at++ - xmp.data);
        if (before < colon || xmp.size - before + colon < length + 2 || memcmp(xmp.data + before - colon, name, length))
            continue;
        const uint8_t *after = xmp.data + before - colon + length;
        after += *after == '>' ? 1 : !memcmp(after, "=\"", 2) ? 2 : (end - after);
        if (after < end && *after >= '0' && *after <= '9')
            return *after >= '1' && *after <= '8' ? *after - '0' : 1;
    }
    return 0;
}
