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

dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error)
{
    int file;
    do /* a fifo without a writer would otherwise block for ever in open() */
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return fail_with_errno(error, "open", errno);
    struct stat facts;
    dg_status status = DG_OK;
    size_t total = 0, length = 0;
    if (fstat(file, &facts) < 0)
        status = fail_with_errno(error, "stat", errno);
    else if (!S_ISREG(facts.st_mode))
        status = dg_fail(error, DG_NOT_A_FILE, "not a regular file");
    else if ((uint64_t)facts.st_size > max_bytes)
        status = dg_fail(error, DG_TOO_LARGE, "%lld bytes, max_file_bytes is %llu", (long long)facts.st_size,
                         (unsigned long long)max_bytes);
    else if (dg_scratch_reserve(scratch, length = (size_t)facts.st_size) != DG_OK)
        status = dg_fail(error, DG_NO_MEMORY, "no memory for %zu bytes of file", length);
    while (status == DG_OK && total < length) {
        ssize_t count = read(file, scratch->data + total, length - total);
        if (count > 0)
            total += (size_t)count;
        else if (count == 0)
            break; /* cut short while we read: the decoder will say what is missing */
        else if (errno != EINTR)
            status = fail_with_errno(error, "read", errno);
    }
    close(file);
    *size = total;
    return status;
}
