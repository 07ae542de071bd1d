/* What jpeg.c, jpeg_fit.c and jpeg_write.c share of one worker's libjpeg objects. Not for others. */
#ifndef DG_JPEG_INTERNAL_H
#define DG_JPEG_INTERNAL_H

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include "file.h"
#include "gamut.h"
#include "jpeg.h"

struct dg_jpeg {
    dg_heap *heap;
    struct jpeg_decompress_struct info; /* made once: libjpeg reads the environment then */
    void *(*allocate)(j_common_ptr info, int pool, size_t size); /* libjpeg's own */
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape; /* where libjpeg's errors and ours land: set by whoever calls into libjpeg */
    const dg_decode_options *options;
    dg_error *error;
    size_t size;        /* of the file … */
    size_t unpaid;      /* … and what of it has not yet added to the credit */
    int64_t credit;     /* blocks that further scans may look at */
    int scan;           /* the last one that was paid for */
    int marked_end;     /* the file has an end marker where it ends */
    int ended;          /* the bytes ran out, and an end marker was made up */
    int starved;        /* entropy-coded data was missing: pixels are grey that should not be */
    int damaged;        /* libjpeg met data that cannot be right, and went on */
    dg_scratch band;    /* rows on their way */
    dg_scratch planes;  /* luma and chroma at the target's size, before they become RGB */
    dg_gamut gamut;
    dg_resizer *resizers[3];
};

/* Leaves for `escape` with an error. */
void dg_jpeg_give_up(dg_jpeg *jpeg, dg_status status, const char *format, ...) __attribute__((noreturn, format(printf, 3, 4)));
/* Begins with a file; `error` becomes DG_OK. */
void dg_jpeg_begin(dg_jpeg *jpeg, const dg_decode_options *options, dg_error *error);
/* Reads the header and applies the limits; the output colour space is set to grey, RGB(X) or, for four components, CMYK. */
void dg_jpeg_open(dg_jpeg *jpeg, const uint8_t *data, size_t size);
/* Ends a pass over the file, whole or given up: libjpeg forgets all of it. */
void dg_jpeg_close(dg_jpeg *jpeg);
/* Whether the picture is progressive and lacks some of its coefficients, so that libjpeg smooths over block borders. */
int dg_jpeg_is_smoothed(const dg_jpeg *jpeg);
/* When every row is out: gives up if some of them are made up and nobody wants such. */
void dg_jpeg_check_whole(dg_jpeg *jpeg);
/* `count` pixels of a CMYK row. Pillow reads every CMYK JPEG as Adobe writes it, inverted, and so do we: what is stored is
 * 255 - ink. */
void dg_jpeg_cmyk_to_rgb(const uint8_t *in, uint8_t *out, int count, int step);
/* Room in `scratch`, or gives up. */
uint8_t *dg_jpeg_reserve(dg_jpeg *jpeg, dg_scratch *scratch, size_t size);

#endif
