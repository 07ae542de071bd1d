/* A file that a header is read of: whole in memory, or read piece by piece as far as the header needs it. */
#ifndef DG_READER_H
#define DG_READER_H

#include <stddef.h>
#include <stdint.h>

/* `data` is as long as the file. Where `known` is less than `size`, what lies behind it holds nothing until it is asked for. */
typedef struct dg_reader {
    const uint8_t *data;
    size_t size;
    size_t known; /* what was asked for last ends here, or behind the bytes read along with it */
    /* Puts bytes `begin` to `end` of the file into their place, perhaps more behind them, and moves `known`. 0: they cannot be read. */
    int (*load)(struct dg_reader *reader, size_t begin, size_t end);
} dg_reader;

/* Makes sure that `count` bytes at `at`, which lie within the file, are there. 0: they cannot be had. To be called with `at` that never
 * goes down: bytes that were passed over stay unknown. */
static inline int dg_reader_need(dg_reader *reader, size_t at, size_t count)
{
    size_t end = at + count;
    return end <= reader->known || reader->load(reader, at < reader->known ? reader->known : at, end);
}

#endif
