/* What a step of the path reports: a status and, where there is more to say, a short text.
 *
 * A status is a reason a user can count and act on; its name is the key of stats()["failures"]. The one table from
 * these codes to Python exceptions is datago/errors.py. */
#ifndef DG_STATUS_H
#define DG_STATUS_H

typedef enum {
    DG_OK = 0,
    DG_CANCELLED,   /* stop() was called while this item was worked on */
    DG_NO_MEMORY,   /* an allocation was refused */
    DG_NOT_FOUND,   /* the path vanished, or never was; a url that answers 404 or 410 */
    DG_NOT_A_FILE,  /* a directory, fifo, socket or device under an image's name */
    DG_IO,          /* open or read failed; the text carries errno's words */
    DG_EMPTY,       /* no bytes at all */
    DG_UNSUPPORTED, /* not a format, or a variant of one, that can be decoded; the text names it */
    DG_CORRUPT,     /* the bytes break their own format's rules */
    DG_TRUNCATED,   /* the bytes end before the picture does */
    DG_TOO_LARGE,   /* beyond max_pixels or another limit */
    DG_SHARD,       /* a shard cannot be read to its end; the text says what is wrong with it */
    DG_SAMPLE,      /* the parts of a sample do not make one */
    DG_REMOTE,      /* a download failed: no connection, a bad status, a body that broke off; the text has the url */
    DG_RECORD,      /* what a database says of a sample is incomplete, or not what it should be */
    DG_STATUS_COUNT
} dg_status;

typedef struct {
    dg_status status;
    char text[232]; /* one line, UTF-8 where the bytes at hand were, no trailing newline; may be empty */
} dg_error;

/* The name of a status, e.g. "truncated"; "unknown" for a code outside the enum. */
const char *dg_status_name(dg_status status);
/* The status of that name; DG_IO for a name outside the table. */
dg_status dg_status_find(const char *name);

/* Fills `error` and returns `status`, so that a step can end with `return dg_fail(error, DG_CORRUPT, "…", …);`. */
dg_status dg_fail(dg_error *error, dg_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
