/* Preloaded: wake-ups of condition variables that are lost when told to, all of those that the project's own modules give. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdatomic.h>
#include <string.h>

static const char *package; /* the folder of the package */
static atomic_long lost;

void wakeups_lose(const char *folder)
{
    package = folder;
}

long wakeups_lost(void)
{
    return lost;
}

static int is_lost(void *caller)
{
    Dl_info found;
    if (!package || !dladdr(caller, &found) || !found.dli_fname || strncmp(found.dli_fname, package, strlen(package)) != 0)
        return 0;
    lost++;
    return 1;
}

/* x86-64 has an older function of the same name beside today's. */
static int call(const char *name, pthread_cond_t *cond)
{
    int (*real)(pthread_cond_t *) = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    if (!real)
        real = dlsym(RTLD_NEXT, name);
    return real(cond);
}

int pthread_cond_signal(pthread_cond_t *cond)
{
    return is_lost(__builtin_return_address(0)) ? 0 : call("pthread_cond_signal", cond);
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
    return is_lost(__builtin_return_address(0)) ? 0 : call("pthread_cond_broadcast", cond);
}
