/* Preloaded: memory that is refused when told to, to the project's own modules and the picture libraries below them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *package; /* the folder of the package, whose modules are the project's own */
static atomic_long first = -1, behind = -1, count;

/* Refuses allocations from number `begin` on, counted from now, up to number `end`; -1: none any more. Returns how many were counted
   before. `folder` is the package's, and stays where it is. */
long malloc_refuse(const char *folder, long begin, long end)
{
    first = behind = -1;
    package = folder;
    long counted = atomic_exchange(&count, 0);
    behind = end;
    first = begin;
    return counted;
}

static int refused(void *caller)
{
    static const char *const libraries[] = {"libjpeg", "libwebp", "libpng", "libspng", "libz", "libdeflate", "libcurl"};
    Dl_info found;
    if (first < 0 || !dladdr(caller, &found) || !found.dli_fname)
        return 0;
    int counts = strncmp(found.dli_fname, package, strlen(package)) == 0;
    for (size_t i = 0; !counts && i < sizeof libraries / sizeof *libraries; i++)
        counts = strstr(found.dli_fname, libraries[i]) != NULL;
    if (!counts)
        return 0;
    long number = count++;
    return number >= first && number < behind;
}

#define REFUSE(value) if (refused(__builtin_return_address(0))) { errno = ENOMEM; return value; }

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t size, size_t number);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    REFUSE(NULL)
    return __libc_malloc(size);
}

void *calloc(size_t size, size_t number)
{
    REFUSE(NULL)
    return __libc_calloc(size, number);
}

void *realloc(void *data, size_t size)
{
    REFUSE(NULL)
    return __libc_realloc(data, size);
}

int posix_memalign(void **data, size_t alignment, size_t size)
{
    if (refused(__builtin_return_address(0)))
        return ENOMEM;
    *data = __libc_memalign(alignment, size);
    return *data ? 0 : ENOMEM;
}

char *strdup(const char *text)
{
    REFUSE(NULL)
    size_t size = strlen(text) + 1;
    char *copy = __libc_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}
