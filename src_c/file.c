#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dg_status fail_with_errno(dg_error *error, const char *what, int number)
{
    char words[128];
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
    const char *text = strerror_r(number, words, sizeof words);
#else
    const char *text = strerror_r(number, words, sizeof words) == 0 ? words : "unknown error";
#endif
    return dg_fail(error, number == ENOENT || number == ENOTDIR ? DG_NOT_FOUND : DG_IO, "%s: %s", what, text);
}

int dg_file_open(const char *path, uint64_t max_bytes, size_t *size, dg_error *error)
{
    int file;
    do /* a fifo without a writer would otherwise block for ever in open() */
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (file < 0 && errno == EINTR);
    if (file < 0) {
        fail_with_errno(error, "open", errno);
        return -1;
    }
    struct stat facts;
    if (fstat(file, &facts) < 0)
        fail_with_errno(error, "stat", errno);
    else if (!S_ISREG(facts.st_mode))
        dg_fail(error, DG_NOT_A_FILE, "not a regular file");
    else if ((uint64_t)facts.st_size > max_bytes)
        dg_fail(error, DG_TOO_LARGE, "%lld bytes, max_file_bytes is %llu", (long long)facts.st_size,
                (unsigned long long)max_bytes);
    else {
        *size = (size_t)facts.st_size;
        return file;
    }
    close(file);
    return -1;
}

dg_status dg_file_read_at(int file, uint8_t *data, size_t length, size_t at, size_t *size, dg_error *error)
{
    size_t total = 0;
    while (total < length) {
        ssize_t count = pread(file, data + total, length - total, (off_t)(at + total));
        if (count == 0)
            break;
        if (count < 0 && errno != EINTR)
            return fail_with_errno(error, "read", errno);
        total += count > 0 ? (size_t)count : 0;
    }
    *size = total;
    return DG_OK;
}

dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error)
{
    size_t length;
    int file = dg_file_open(path, max_bytes, &length, error);
    if (file < 0)
        return error->status;
    dg_status status = DG_OK;
    *size = 0;
    if (dg_scratch_reserve(scratch, length) != DG_OK)
        status = dg_fail(error, DG_NO_MEMORY, "no memory for %zu bytes of file", length);
    else
        status = dg_file_read_at(file, scratch->data, length, 0, size, error);
    close(file);
    return status;
}
