#include "header_file.h"

#include <unistd.h>

#include "header.h"
#include "orientation.h"

/* What is read first holds the header of most files: that of a camera's JPEG ends behind EXIF with a thumbnail, of 64 kB at most. Behind
 * that, of PNG, heads of chunks are wanted, every 8 kB of a file as libpng writes it. */
enum { FIRST = 16 << 10, MORE = 512, SIGNATURE = 32 };

typedef struct {
    dg_reader reader;
    int file;
    dg_scratch *scratch;
    dg_error *error; /* DG_OK until a read failed */
} file_reader;

static int load(dg_reader *reader, size_t begin, size_t end)
{
    file_reader *own = (file_reader *)reader;
    size_t least = begin + (begin ? MORE : FIRST);
    size_t wanted = end > least ? end : least < reader->size ? least : reader->size, count;
    if (dg_file_read_at(own->file, own->scratch->data + begin, wanted - begin, begin, &count, own->error) != DG_OK)
        return 0;
    reader->known = begin + count;
    return reader->known >= end;
}

dg_status dg_header_file_size(const char *path, uint64_t max_bytes, int orient, dg_scratch *scratch, int *width, int *height,
                              dg_error *error)
{
    file_reader own = {.reader.load = load, .scratch = scratch, .error = error};
    dg_header header;
    error->status = DG_OK;
    error->text[0] = 0;
    if ((own.file = dg_file_open(path, max_bytes, &own.reader.size, error)) < 0)
        return error->status;
    size_t signature = own.reader.size < SIGNATURE ? own.reader.size : SIGNATURE;
    int found = 0;
    dg_format format = DG_FORMAT_UNKNOWN;
    if (signature == 0) {
        dg_fail(error, DG_EMPTY, "no bytes");
    } else if (dg_scratch_reserve(scratch, own.reader.size) != DG_OK) {
        dg_fail(error, DG_NO_MEMORY, "no memory for %zu bytes of file", own.reader.size);
    } else {
        own.reader.data = scratch->data;
        if (dg_reader_need(&own.reader, 0, signature)) {
            format = dg_format_sniff(own.reader.data, signature);
            found = dg_header_read_from(&own.reader, format, &header);
        }
    }
    close(own.file);
    if (error->status != DG_OK)
        return error->status;
    if (!found)
        return dg_decoder_of(format)->header ? dg_fail(error, DG_CORRUPT, "%s: it states no size", dg_decoder_of(format)->name)
                                             : dg_fail(error, DG_UNSUPPORTED, "%s format", dg_decoder_of(format)->name);
    int turned = orient && dg_orientations[header.orientation].transposed;
    *width = turned ? header.height : header.width;
    *height = turned ? header.width : header.height;
    return DG_OK;
}
