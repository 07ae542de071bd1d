#include <stdlib.h>
#include <string.h>

#include "jpeg_internal.h"

/* A destination that grows: libjpeg is given the rest of a buffer, and a larger one when that is full. */
struct dg_jpeg_writer {
    struct jpeg_compress_struct info; /* made once: libjpeg reads the environment then */
    struct jpeg_destination_mgr manager;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    dg_heap *heap;
    dg_buffer buffer;
    dg_error *error;
};
typedef struct dg_jpeg_writer writer;

static void on_error(j_common_ptr info)
{
    writer *writer = info->client_data;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    dg_fail(writer->error, DG_UNSUPPORTED, "jpeg encoder: %s", text);
    longjmp(writer->escape, 1);
}

static void on_message(j_common_ptr info, int level) { (void)info, (void)level; }

static void start(j_compress_ptr info)
{
    writer *writer = info->client_data;
    writer->manager.next_output_byte = writer->buffer.data;
    writer->manager.free_in_buffer = writer->buffer.size;
}

static boolean grow(j_compress_ptr info)
{
    writer *writer = info->client_data;
    dg_buffer larger;
    size_t used = writer->buffer.size;
    if (dg_buffer_alloc(writer->heap, used * 2, &larger) != DG_OK) {
        dg_fail(writer->error, DG_NO_MEMORY, "no memory for an encoded picture");
        longjmp(writer->escape, 1);
    }
    memcpy(larger.data, writer->buffer.data, used);
    dg_buffer_free(&writer->buffer);
    writer->buffer = larger;
    writer->manager.next_output_byte = larger.data + used;
    writer->manager.free_in_buffer = larger.size - used;
    return TRUE;
}

static void finish(j_compress_ptr info)
{
    writer *writer = info->client_data;
    writer->buffer.size -= writer->manager.free_in_buffer;
}

static int create(writer *writer)
{
    dg_error error;
    writer->error = &error;
    writer->manager = (struct jpeg_destination_mgr){NULL, 0, start, grow, finish};
    writer->info.err = jpeg_std_error(&writer->errors);
    writer->errors.error_exit = on_error;
    writer->errors.emit_message = on_message;
    writer->info.client_data = writer;
    if (setjmp(writer->escape) != 0)
        return 0;
    jpeg_create_compress(&writer->info);
    writer->info.dest = &writer->manager;
    return 1;
}

dg_jpeg_writer *dg_jpeg_writer_new(dg_heap *heap)
{
    writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->heap = heap;
    if (create(writer))
        return writer;
    dg_jpeg_writer_free(writer);
    return NULL;
}

void dg_jpeg_writer_free(dg_jpeg_writer *writer)
{
    if (!writer)
        return;
    jpeg_destroy_compress(&writer->info);
    free(writer);
}

dg_status dg_jpeg_encode(dg_jpeg_writer *writer, const dg_image *image, int quality, int chroma, dg_buffer *out, dg_error *error)
{
    struct jpeg_compress_struct *info = &writer->info;
    size_t guess = 4096 + (size_t)image->width * image->height / 2;
    memset(out, 0, sizeof *out);
    error->status = DG_OK;
    writer->error = error;
    if (dg_buffer_alloc(writer->heap, guess, &writer->buffer) != DG_OK)
        return dg_fail(error, DG_NO_MEMORY, "no memory for an encoded picture");
    if (setjmp(writer->escape) == 0) {
        info->image_width = (JDIMENSION)image->width;
        info->image_height = (JDIMENSION)image->height;
        info->input_components = image->step;
        info->in_color_space = image->channels == 1 ? JCS_GRAYSCALE : image->step == 4 ? JCS_EXT_RGBX : JCS_EXT_RGB;
        jpeg_set_defaults(info);
        jpeg_set_quality(info, quality, TRUE);
        if (image->channels == 3) {
            info->comp_info[0].h_samp_factor = chroma == 444 ? 1 : 2;
            info->comp_info[0].v_samp_factor = chroma == 420 ? 2 : 1;
        }
        jpeg_start_compress(info, TRUE);
        while (info->next_scanline < info->image_height) {
            JSAMPROW row = image->buffer.data + info->next_scanline * dg_image_stride(image);
            jpeg_write_scanlines(info, &row, 1);
        }
        jpeg_finish_compress(info);
    }
    jpeg_abort_compress(info);
    if (error->status != DG_OK)
        dg_buffer_free(&writer->buffer);
    *out = writer->buffer;
    return error->status;
}
