/* What one picture format offers, in a form that codec.c, header.c, cost.c and process.c can use without knowing the format.
 *
 * Every format that is recognised has one dg_decoder. A format without a decoder of ours has a name and signatures only: a caller
 * then knows what the file is, and can ask another decoder. A new decoder is one file that defines its dg_decoder, and one line in
 * the table of codec.c. */
#ifndef DG_DECODER_H
#define DG_DECODER_H

#include <stdatomic.h>

#include "exif.h"
#include "image.h"
#include "reader.h"
#include "resize.h"

/* Signatures are tried in this order. BMP and HTML are last because theirs are the shortest. */
typedef enum {
    DG_FORMAT_UNKNOWN = 0,
    DG_FORMAT_JPEG,
    DG_FORMAT_PNG,
    DG_FORMAT_WEBP,
    DG_FORMAT_GIF,
    DG_FORMAT_TIFF,
    DG_FORMAT_AVIF,
    DG_FORMAT_HEIF,
    DG_FORMAT_JPEG_XL,
    DG_FORMAT_JPEG_2000,
    DG_FORMAT_BMP,
    DG_FORMAT_HTML,
    DG_FORMAT_COUNT
} dg_format;

typedef enum { DG_ENCODE_NOT, DG_ENCODE_PNG, DG_ENCODE_JPEG } dg_encoding;

typedef struct {
    uint64_t max_pixels;    /* width x height beyond which a picture is refused */
    int rgbx;               /* RGB as RGBX (pixel stride 4), for a reader that wants PIL images */
    int accept_truncated;   /* deliver what there is of a picture that ends early */
    int accept_damaged;     /* deliver a JPEG whose entropy-coded data cannot be right, as libjpeg patches it up */
    int part;               /* of `fit`: only what is shown counts, and what lies below it need not be read */
    const atomic_int *stop; /* decoders look at it between rows and return DG_CANCELLED once it is not 0; may be NULL */
} dg_decode_options;

/* What a file says of its picture before the pixels. */
typedef struct {
    int width, height; /* pixels as stored, before any turning; 0 where the size is not known */
    int orientation;   /* EXIF's, 1 to 8; 1 where the file says nothing, or nothing that makes sense */
    int depth;         /* bits of a sample once it is decoded: 8 or 16 */
    int progressive;   /* of JPEG: every pixel is known only when all have been read */
    int lossless;      /* of JPEG: there are no coefficients, so libjpeg can neither crop nor scale it */
} dg_header;

/* The metadata that may say how the picture is to be turned, in the order in which it is asked. */
typedef struct {
    dg_span exif, profile, xmp;
    size_t exif_more;               /* bytes of EXIF in further segments */
    int profile_packed, xmp_packed; /* deflated */
} dg_metadata;

/* A file of the format has these `size` bytes at `offset`. */
typedef struct {
    unsigned offset, size;
    const char *bytes;
} dg_signature;

enum { DG_MAX_SIGNATURES = 4 };

typedef struct {
    const char *name; /* e.g. "jpeg" */
    dg_signature signatures[DG_MAX_SIGNATURES]; /* as registered by the format's specification; size 0 where there are fewer */
    int no_picture; /* what begins so is a known mistake, such as a web page: no other decoder need be asked */
    dg_encoding encoding; /* what dg_process is asked for by who wants files of this format; DG_ENCODE_NOT if it writes none */

    /* What one worker reuses from picture to picture, the first argument of decode, fit and check. NULL: memory is short. */
    void *(*create)(dg_heap *heap);
    void (*destroy)(void *state); /* NULL does no harm */

    /* Fills in the size, and where the metadata is. Damage is no error: what cannot be read stays as it is, which is 0. It asks `file`
     * for all that it looks at, and for nothing else that is long: pixels and profiles are passed over. */
    void (*header)(dg_reader *file, dg_header *header, dg_metadata *found);

    /* Bytes that `decode` takes at its peak, or `fit` where `fitted` is set, the result aside. Judged on the high side. */
    uint64_t (*cost)(const dg_header *header, int fitted);

    /* Decodes the whole picture. On DG_OK `image` owns a buffer of the heap; else it is empty and `error` says why. `*damaged`
     * tells that something was patched up on the way. NULL: another decoder has to be asked, as for all that follows. */
    dg_status (*decode)(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                        int *damaged, dg_error *error);

    /* Decodes and resamples a box of the picture on the way; see dg_jpeg_fit. NULL: the picture has to be decoded whole. */
    dg_status (*fit)(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, const dg_resize_plan *plan,
                     dg_image *image, int *damaged, dg_error *error);

    /* Reads the whole file and keeps no pixel. `*channels` is how many it has, 0 if there is any fault. NULL: there is no way to
     * tell for less than it takes to decode it. */
    dg_status (*check)(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, int *channels,
                       dg_error *error);
} dg_decoder;

extern const dg_decoder dg_jpeg_decoder, dg_png_decoder, dg_webp_decoder;

/* The entry of a format; that of DG_FORMAT_UNKNOWN for what is none. It is never NULL. */
const dg_decoder *dg_decoder_of(dg_format format);

/* Bytes of a decoded pixel, on the high side: four samples. */
static inline uint64_t dg_header_pixel(const dg_header *header) { return header->depth == 16 ? 8 : 4; }

/* Bytes of all the decoded pixels. */
static inline uint64_t dg_header_bytes(const dg_header *header)
{
    return (uint64_t)header->width * header->height * dg_header_pixel(header);
}

#endif
