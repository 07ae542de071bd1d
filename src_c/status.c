#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[DG_STATUS_COUNT] = {
    [DG_OK] = "ok",
    [DG_CANCELLED] = "cancelled",
    [DG_NO_MEMORY] = "no_memory",
    [DG_NOT_FOUND] = "not_found",
    [DG_NOT_A_FILE] = "not_a_file",
    [DG_IO] = "io",
    [DG_EMPTY] = "empty",
    [DG_UNSUPPORTED] = "unsupported",
    [DG_CORRUPT] = "corrupt",
    [DG_TRUNCATED] = "truncated",
    [DG_TOO_LARGE] = "too_large",
    [DG_SHARD] = "shard",
    [DG_SAMPLE] = "sample",
    [DG_REMOTE] = "remote",
    [DG_RECORD] = "record",
};

const char *dg_status_name(dg_status status) { return (unsigned)status < DG_STATUS_COUNT ? NAMES[status] : "unknown"; }

dg_status dg_status_find(const char *name)
{
    for (int status = 0; status < DG_STATUS_COUNT; status++)
        if (!strcmp(name, NAMES[status]))
            return (dg_status)status;
    return DG_IO;
}

dg_status dg_fail(dg_error *error, dg_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}
