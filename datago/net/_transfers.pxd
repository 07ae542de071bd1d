# What the download thread and the Fetcher share. See _fetch.pyx for what it is to do.
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from datago.net._curl cimport CURL, CURLM
from datago.net._hosts cimport PLACE, HostTable
from datago._threads cimport pthread_cond_t, pthread_mutex_t

cdef enum Verdict:
    GOOD
    REMOTE
    NOT_FOUND
    TOO_LARGE
    NO_MEMORY


cdef struct Job:
    Job *next
    uint64_t number        # what Python knows it by
    int attempt            # from 1
    int unreached          # attempts in a row that did not reach their host
    double due             # not to be begun before
    long status            # of the last answer, 0: none
    Verdict verdict
    uint8_t *data          # the body; of an error's page the first PEEK bytes
    size_t size, capacity
    char text[256]         # what went wrong
    char url[1]


cdef struct Slot:
    CURL *easy
    FetchState *engine
    Job *job               # NULL: the slot is free
    int hops               # redirects followed
    char place[PLACE]      # host and port of the server that is asked, or of the proxy
    bint proxied
    bint single            # the host was out: one attempt, to see whether it is back
    bint secure            # https so far
    bint answered          # the status is known and `keep` decided
    bint keep
    bint head_ended        # the answer's headers came to their end
    double heard           # when bytes last came, or the transfer began
    double span            # when the present span of the rate rule began
    size_t span_bytes      # came in it
    size_t error_bytes     # came of an error's page
    double retry_after     # seconds that the last head asks to wait; below 0: it does not
    size_t head_bytes      # came of heads and trailers
    size_t expected        # bytes of the body by its head; the largest number: it does not say
    size_t wanted          # the capacity that a paused transfer waits for; 0: it is not paused
    char text[256]         # libcurl's own words; it asks for CURL_ERROR_SIZE, which is 256


cdef struct Queue:
    Job *first
    Job *last


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events, revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    const short POLLIN, POLLOUT, POLLERR, POLLHUP

cdef struct FetchState:
    CURLM *multi
    CURL *model            # what all handles are copied from
    int wake[2]            # a pipe; a byte in it wakes the thread
    Slot *slots
    int slot_count
    int attempts
    double timeout
    uint64_t max_bytes
    char *proxies[2]       # for http and https; empty: none
    char *no_proxy         # the hosts that are asked without one
    uint64_t rng_state          # state of the generator of jitter
    # the thread's own:
    pollfd *sockets        # what libcurl waits for; the first is the pipe
    pollfd *ready          # room for as many
    int socket_count, socket_room
    double timer           # when libcurl wants to be called, 0: not
    double looked          # when the silent were last looked for
    Job *retries
    size_t large           # bytes of bodies on their way, and who may go on beyond that: see _room.pyx
    Job *ahead
    int paused             # slots that wait for room
    HostTable hosts
    # guarded by `lock`:
    pthread_mutex_t lock
    pthread_cond_t changed  # a job is done, there is room, the thread has left
    Queue waiting, done
    size_t inside          # jobs that were not taken yet
    size_t capacity
    int active             # slots in use
    size_t held            # bytes of bodies that are done and were not taken yet
    bint closing, left
    int owners             # the Fetcher and the thread; the last one frees

cdef enum JoinOutcome:
    JOIN, LEAVE_BEHIND, NOT_MINE

cdef FetchState *engine_new(int slots, int attempts, double timeout, uint64_t max_bytes, size_t capacity) except NULL
cdef int engine_prepare(FetchState *engine, const char *user_agent, const char *ca_file, const char *ca_folder) except -1
cdef void *run(void *argument) noexcept nogil          # the thread; it owns a share of the FetchState
cdef void drop(FetchState *engine) noexcept nogil          # one of the owners goes; the last one frees


cdef inline void append(Queue *queue, Job *job) noexcept nogil:
    job.next = NULL
    if queue.first == NULL:
        queue.first = job
    else:
        queue.last.next = job
    queue.last = job


cdef inline Job *pop(Queue *queue) noexcept nogil:
    cdef Job *job = queue.first
    if job != NULL:
        queue.first = job.next
    return job


cdef inline void job_free(Job *job) noexcept nogil:
    if job != NULL:
        free(job.data)
        free(job)


cdef inline Job *due_retry(FetchState *engine, double now, double *next_due) noexcept nogil:
    """Takes out one that is due; if none is, `next_due` says when the next one will be."""
    cdef Job **link = &engine.retries
    cdef Job *job
    while link[0] != NULL:
        job = link[0]
        if job.due <= now:
            link[0] = job.next
            return job
        next_due[0] = min(next_due[0], job.due)
        link = &job.next
    return NULL


cdef inline void list_free(Job *job) noexcept nogil:
    cdef Job *rest
    while job != NULL:
        rest = job.next
        job_free(job)
        job = rest


cdef inline bint make_room(FetchState *engine) noexcept nogil:
    """Room for more sockets."""
    cdef int room = 2 * engine.socket_room + 16
    cdef void *sockets = realloc(engine.sockets, room * sizeof(pollfd))
    if sockets != NULL:
        engine.sockets = <pollfd *>sockets
    cdef void *ready = realloc(engine.ready, room * sizeof(pollfd))
    if ready != NULL:
        engine.ready = <pollfd *>ready
    if sockets == NULL or ready == NULL:
        return False
    engine.socket_room = room
    return True


cdef inline double chance(FetchState *engine) noexcept nogil:
    """A number from 0 to 1."""
    engine.rng_state = engine.rng_state * 6364136223846793005ULL + 1442695040888963407ULL
    return <double>(engine.rng_state >> 11) / (<uint64_t>1 << 53)
