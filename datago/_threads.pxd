# pthreads as the ring and the pool use them. Waits are timed on the monotonic clock: a jump of the wall clock wakes nobody.
cdef extern from *:
    """
    #ifndef DG_THREADS
    #define DG_THREADS
    #include <errno.h>
    #include <locale.h>
    #include <pthread.h>
    #include <signal.h>
    #include <time.h>
    #ifdef __APPLE__
    #include <xlocale.h>
    #endif

    static inline void dg_cond_init(pthread_cond_t *cond)
    {
    #ifdef __APPLE__
        pthread_cond_init(cond, NULL);
    #else
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(cond, &attributes);
        pthread_condattr_destroy(&attributes);
    #endif
    }

    static inline double dg_now(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }

    /* Waits until woken or `deadline` (dg_now's clock) has passed, and a second at most, since a wake-up may be lost: glibc before 2.41
       does that (its bug 25847). So whoever waits looks again whether there is still something to wait for. */
    static inline void dg_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double deadline)
    {
        double now = dg_now();
        if (deadline > now + 1) deadline = now + 1;
    #ifdef __APPLE__
        double left = deadline - now;
        struct timespec span = {0, 0};
        if (left <= 0) return;
        span.tv_sec = (time_t)left;
        span.tv_nsec = (long)((left - (double)span.tv_sec) * 1e9);
        pthread_cond_timedwait_relative_np(cond, lock, &span);
    #else
        struct timespec until = {(time_t)deadline, 0};
        until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
        pthread_cond_timedwait(cond, lock, &until);
    #endif
    }

    /* A thread with every signal blocked, since signals are the main thread's; but not those that tell of what the thread itself did:
       blocked, they would end the process before faulthandler could say where. */
    static inline int dg_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
    {
        static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
        sigset_t all, before;
        sigfillset(&all);
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            sigdelset(&all, own[i]);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int failed = pthread_create(thread, NULL, run, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return failed;
    }
    /* What a thread does first. `name` is for ps and gdb. In the locale C the system's texts of errors are not translated, which would
       read the environment (LANGUAGE) while another thread may be changing it. */
    static inline void dg_thread_begin(const char *name)
    {
    #ifdef __linux__
        pthread_setname_np(pthread_self(), name);
    #endif
        uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    }
    #endif
    """
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *lock, void *attributes) nogil
    int pthread_mutex_destroy(pthread_mutex_t *lock) nogil
    int pthread_mutex_lock(pthread_mutex_t *lock) nogil
    int pthread_mutex_unlock(pthread_mutex_t *lock) nogil
    int pthread_cond_destroy(pthread_cond_t *cond) nogil
    int pthread_cond_signal(pthread_cond_t *cond) nogil
    int pthread_cond_broadcast(pthread_cond_t *cond) nogil
    int pthread_join(pthread_t thread, void **result) nogil
    int pthread_detach(pthread_t thread) nogil
    void dg_cond_init(pthread_cond_t *cond) nogil
    void dg_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double deadline) nogil
    double dg_now() nogil
    int dg_thread_start(pthread_t *thread, void *(*run)(void *) noexcept nogil, void *argument) nogil
    void dg_thread_begin(const char *name) nogil
