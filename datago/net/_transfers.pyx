# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The thread behind _fetch.pyx: transfers by libcurl's multi interface, their retries, redirects and time-outs.
It runs without the GIL and touches no Python object."""
from libc.errno cimport errno
from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.fcntl cimport F_GETFL, F_SETFD, F_SETFL, FD_CLOEXEC, O_NONBLOCK, fcntl
from posix.unistd cimport close, pipe, read

from datago._ascii cimport begins
from datago.net._curl cimport *  # it declares what is used here, nothing else
from datago.net._hosts cimport give_up, is_given_up, is_own_want, let_through, reached, table_free
from datago.net._policy cimport MAX_RETRY_AFTER_S, backoff_s, bypasses_proxy, find_place, is_retried, retry_after_s
from datago.net._room cimport (
    forget, grow, leave_room, next_to_resume, no_longer_waiting, reader_is_behind, resize, takes_common_room,
)
from datago._threads cimport (
    dg_cond_init, dg_now, dg_thread_begin, pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock,
)

cdef extern from "string.h" nogil:
    size_t strnlen(const char *text, size_t most)

cdef long BUFFER = 128 << 10       # bytes that one read takes from a socket at most
cdef size_t PEEK = 2048            # bytes kept of an error's page, to see why
cdef size_t PATIENCE = 256 << 10   # bytes read of an error's page before the connection is cut instead
cdef size_t LONGEST_HEAD = 128 << 10  # bytes of an answer's heads, informational ones and trailers included
cdef int REDIRECTS = 10
cdef double LEAST_RATE = 1000, RATE_SPANS = 3     # bytes per second, over a span of so many time-outs
cdef double HURRY = 100_000                       # the same of who takes room for which others wait, see _room.pyx
cdef double CONNECT_TIMEOUT = 10                  # seconds, or the read time-out if that is shorter

curl_global_init(CURL_GLOBAL_DEFAULT)
VERSIONS = (<bytes>curl_version()).decode()  # of libcurl and the libraries that it calls: "NAME/VERSION NAME/VERSION …"


cdef void say(char *text, const char *words) noexcept nogil:
    cdef size_t length = strnlen(words, 255)
    memcpy(text, words, length)
    text[length] = 0


# ---- what libcurl calls ---------------------------------------------------------------------------------------------

cdef size_t on_header(char *data, size_t one, size_t count, void *argument) noexcept nogil:
    cdef Slot *slot = <Slot *>argument
    slot.heard = dg_now()
    slot.head_bytes += count
    if slot.head_bytes > LONGEST_HEAD:
        say(slot.job.text, "headers too long")
        return 0
    if count <= 2 and data[0] in b"\r\n":  # the empty line; trailers may come behind the body
        slot.head_ended = True
    elif count > 5 and begins(data, "http/"):
        slot.head_ended = False  # an informational answer came before
        slot.retry_after = -1
    elif count > 12 and begins(data, "retry-after:"):
        slot.retry_after = retry_after_s(data + 12, count - 12)
    return count


cdef size_t on_body(char *data, size_t one, size_t count, void *argument) noexcept nogil:
    """Anything but `count` makes libcurl give the transfer up."""
    cdef Slot *slot = <Slot *>argument
    cdef Job *job = slot.job
    slot.heard = dg_now()
    if not slot.answered:
        slot.answered = True
        slot.keep = expect(slot)
        if job.verdict != GOOD:
            return 0
    if not slot.keep:
        slot.error_bytes += count
        slot.span_bytes += count
        if job.size < job.capacity:
            one = min(count, job.capacity - job.size)
            memcpy(job.data + job.size, data, one)
            job.size += one
        return count if slot.error_bytes <= PATIENCE else 0
    if job.size + count > slot.engine.max_bytes:
        job.verdict = TOO_LARGE
        return 0
    if not grow(slot, job.size + count):
        if slot.wanted:
            return CURL_WRITEFUNC_PAUSE  # the same bytes come again
        say(job.text, "no memory for the body")
        return 0
    memcpy(job.data + job.size, data, count)
    job.size += count
    slot.span_bytes += count
    return count


cdef bint expect(Slot *slot) noexcept nogil:
    """The first bytes of a body are here: whether it is one to keep."""
    cdef long status = 0
    cdef curl_off_t length = -1
    curl_easy_getinfo(slot.easy, CURLINFO_RESPONSE_CODE, &status)
    if status != 200:
        resize(slot.engine, slot.job, PEEK)
        return False
    curl_easy_getinfo(slot.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length)
    slot.expected = <size_t>length if length > 0 else <size_t>-1
    return True


cdef int on_socket(CURL *easy, int socket, int what, void *argument, void *own) noexcept nogil:
    """libcurl waits for something else at a socket than before."""
    cdef FetchState *engine = <FetchState *>argument
    cdef int i = 0
    while i < engine.socket_count and engine.sockets[i].fd != socket:
        i += 1
    if what == CURL_POLL_REMOVE:
        if i < engine.socket_count:
            engine.socket_count -= 1
            engine.sockets[i] = engine.sockets[engine.socket_count]
        return 0
    if i == engine.socket_room and not make_room(engine):
        return -1  # libcurl gives everything up
    if i == engine.socket_count:
        engine.socket_count += 1
    engine.sockets[i].fd = socket
    engine.sockets[i].events = (POLLIN if what == CURL_POLL_IN or what == CURL_POLL_INOUT else 0) | (
        POLLOUT if what == CURL_POLL_OUT or what == CURL_POLL_INOUT else 0)
    return 0


cdef int on_timer(CURLM *multi, long milliseconds, void *argument) noexcept nogil:
    (<FetchState *>argument).timer = 0 if milliseconds < 0 else dg_now() + 0.001 * milliseconds
    return 0


# ---- one transfer ---------------------------------------------------------------------------------------------------

cdef void begin(Slot *slot, const char *url) noexcept nogil:
    """Requests `url` for a slot's job: the job's own url, or the target of a redirect.

    Each goes by a handle of its own: libcurl 7.83 to 8.1 keeps pointers into the head of the answer before (curl/curl#11101).
    """
    cdef FetchState *engine = slot.engine
    cdef bint secure = begins(url, "https://")
    cdef CURL *before = slot.easy
    cdef CURLcode result
    cdef CURLMcode failed
    cdef char why[256]
    slot.text[0] = slot.job.text[0] = 0
    slot.answered = slot.keep = slot.head_ended = False
    slot.error_bytes = slot.span_bytes = slot.head_bytes = 0
    slot.retry_after = -1
    slot.heard = slot.span = dg_now()
    if not secure and not begins(url, "http://"):
        finish_attempt(slot, CURLE_OK, 0, "not a http or https url")
    elif slot.secure and not secure:
        finish_attempt(slot, CURLE_OK, 0, "redirect from https to http refused")
    elif not let_through_to(slot, url, proxy_for(engine, url), why, sizeof(why)):
        slot.job.attempt = 1  # this one is not made, and the text tells of none
        finish_attempt(slot, CURLE_OK, 0, why)
    else:
        slot.secure = secure
        slot.easy = curl_easy_duphandle(engine.model)
        curl_easy_setopt(slot.easy, CURLOPT_PRIVATE, slot)
        curl_easy_setopt(slot.easy, CURLOPT_HEADERDATA, slot)
        curl_easy_setopt(slot.easy, CURLOPT_WRITEDATA, slot)
        curl_easy_setopt(slot.easy, CURLOPT_ERRORBUFFER, <char *>slot.text)
        result = curl_easy_setopt(slot.easy, CURLOPT_PROXY, proxy_for(engine, url))
        result = result or curl_easy_setopt(slot.easy, CURLOPT_URL, url)
        curl_easy_cleanup(before)  # to which `url` may belong
        if engine.multi == NULL:
            engine.multi = multi_new(engine)
        failed = curl_multi_add_handle(engine.multi, slot.easy) if result == CURLE_OK else CURLM_OK
        if result or failed:
            if slot.easy == NULL or result == CURLE_OUT_OF_MEMORY or failed:
                slot.job.verdict = NO_MEMORY
            finish_attempt(slot, result, 0, NULL)


cdef const char *proxy_for(FetchState *engine, const char *url) noexcept nogil:
    """Empty: none."""
    return <const char *>b"" if bypasses_proxy(engine.no_proxy, url) else engine.proxies[begins(url, "https://")]


cdef bint let_through_to(Slot *slot, const char *url, const char *proxy, char *why, size_t room) noexcept nogil:
    """Whether a request for `url` may begin: the host to connect to is not known to be out."""
    slot.proxied = proxy[0] != 0
    find_place(slot.place, sizeof(slot.place), proxy if slot.proxied else url)
    return let_through(&slot.engine.hosts, slot.place, &slot.single, why, room)


cdef void end(Slot *slot, CURLcode result, const char *why) noexcept nogil:
    """Ends a transfer: libcurl reports `result`, or it is given up for the reason `why`."""
    cdef long status = 0
    cdef char *target = NULL
    curl_easy_getinfo(slot.easy, CURLINFO_RESPONSE_CODE, &status)
    curl_easy_getinfo(slot.easy, CURLINFO_REDIRECT_URL, &target)
    curl_multi_remove_handle(slot.engine.multi, slot.easy)
    if result == CURLE_OK and not slot.head_ended:  # libcurl takes that for an answer without a body
        finish_attempt(slot, CURLE_GOT_NOTHING, 0, "connection closed before the headers were complete")
    elif target == NULL or slot.job.verdict != GOOD or status < 300 or status > 399:
        finish_attempt(slot, result, status, why)
    elif slot.hops == REDIRECTS:
        finish_attempt(slot, CURLE_OK, 0, "more than 10 redirects")
    else:
        slot.hops += 1
        forget(slot.engine, slot.job)
        begin(slot, target)


cdef void finish_attempt(Slot *slot, CURLcode result, long status, const char *why) noexcept nogil:
    """Decides whether a job succeeded, is tried again, or failed, and frees its slot."""
    cdef FetchState *engine = slot.engine
    cdef Job *job = slot.job
    cdef bint passing = False  # what may pass by itself
    cdef bint unreached = result != CURLE_OK and not did_reach(slot, result)
    cdef double wait = 0
    cdef long proxy_status = 0
    job.status = status
    no_longer_waiting(slot)
    slot.job = NULL
    if job.verdict == GOOD and status >= 300:
        job.text[0] = 0  # whatever became of its body, the status is what matters
        job.verdict = NOT_FOUND if status == 404 or status == 410 else REMOTE
        passing = is_retried(status)
        wait = slot.retry_after if passing else 0
        if wait > MAX_RETRY_AFTER_S:
            snprintf(job.text, sizeof(job.text), "HTTP %ld; asks to come again in %.0f s", status, wait)
    elif job.verdict == GOOD and (result != CURLE_OK or status != 200):
        job.verdict = TOO_LARGE if result == CURLE_FILESIZE_EXCEEDED else REMOTE
        if result == CURLE_OUT_OF_MEMORY:  # libcurl calls host names so, too, that have no international form
            say(job.text, "the host name cannot be understood, or there is no memory")
        elif why != NULL:
            say(job.text, why)
        elif job.text[0]:  # said by what libcurl called
            pass
        elif slot.text[0]:
            say(job.text, slot.text)
        elif result != CURLE_OK:
            say(job.text, curl_easy_strerror(result))
        passing = may_pass(result)
        if passing and status == 0:  # where a proxy refused the tunnel, its status decides
            curl_easy_getinfo(slot.easy, CURLINFO_HTTP_CONNECTCODE, &proxy_status)
            passing = proxy_status < 300 or is_retried(proxy_status)
    job.unreached = job.unreached + 1 if unreached else 0
    if status:
        reached(&engine.hosts, slot.place)
    elif unreached and slot.single:
        passing = False
    if passing and job.attempt < engine.attempts and wait <= MAX_RETRY_AFTER_S:
        job.due = dg_now() + max(wait, backoff_s(job.attempt, chance(engine)))
        job.attempt += 1
        job.verdict = GOOD
        forget(engine, job)
        job.next = engine.retries
        engine.retries = job
        job = NULL
    elif unreached and is_given_up(job.unreached, engine.attempts, slot.single):
        give_up(&engine.hosts, slot.place, job.text)
    elif job.verdict != GOOD and job.capacity > PEEK:
        forget(engine, job)
    elif job.verdict == GOOD and job.capacity > job.size + job.size / 4:
        resize(engine, job, job.size or 1)  # the head had no length, so the memory grew by doubling
    if job != NULL:
        leave_room(engine, job)
    pthread_mutex_lock(&engine.lock)
    engine.active -= 1
    if job != NULL:
        engine.held += job.capacity
        append(&engine.done, job)
        pthread_cond_broadcast(&engine.changed)
    pthread_mutex_unlock(&engine.lock)


cdef bint did_reach(Slot *slot, CURLcode result) noexcept nogil:
    """Whether a transfer that failed had a connection to its server, or to the proxy; also where it had none for want of our own."""
    cdef double connected = 0
    cdef long code = 0
    if result == CURLE_COULDNT_CONNECT:
        curl_easy_getinfo(slot.easy, CURLINFO_OS_ERRNO, &code)
        return is_own_want(code)
    if result == CURLE_OPERATION_TIMEDOUT:  # of a proxy's tunnel it is not known which of the two is silent
        curl_easy_getinfo(slot.easy, CURLINFO_CONNECT_TIME if slot.proxied else CURLINFO_PRETRANSFER_TIME, &connected)
        return connected > 0
    return result != CURLE_COULDNT_RESOLVE_HOST and result != CURLE_COULDNT_RESOLVE_PROXY


cdef bint may_pass(CURLcode result) noexcept nogil:
    # The protocols were seen to by `begin`: that one is not supported is said of an answer that is not HTTP.
    return (result == CURLE_COULDNT_CONNECT or result == CURLE_COULDNT_RESOLVE_HOST or result == CURLE_COULDNT_RESOLVE_PROXY
            or result == CURLE_OPERATION_TIMEDOUT or result == CURLE_GOT_NOTHING or result == CURLE_PARTIAL_FILE
            or result == CURLE_SEND_ERROR or result == CURLE_RECV_ERROR or result == CURLE_SSL_CONNECT_ERROR
            or result == CURLE_WEIRD_SERVER_REPLY or result == CURLE_UNSUPPORTED_PROTOCOL)


# ---- the thread -----------------------------------------------------------------------------------------------------

cdef void *run(void *argument) noexcept nogil:
    cdef FetchState *engine = <FetchState *>argument
    cdef pollfd *socket
    cdef int i, wait, count
    cdef char drained[64]
    dg_thread_begin("datago fetcher")
    while True:
        wait = start_pending(engine)
        if wait < 0:
            break
        give_up_silent(engine)
        count = engine.socket_count
        if poll(engine.sockets, count, wait) < 0:
            continue
        # One socket after the other, and where a download ends, the next one is sent for at once: if all were read
        # first, all connections would fall into step and wait for each other.
        memcpy(engine.ready, engine.sockets, count * sizeof(pollfd))
        for i in range(count):
            socket = &engine.ready[i]
            if socket.revents and socket.fd == engine.wake[0]:
                read(socket.fd, drained, sizeof(drained))
            elif socket.revents and run_curl(
                engine, socket.fd, (CURL_CSELECT_IN if socket.revents & (POLLIN | POLLHUP) else 0)
                | (CURL_CSELECT_OUT if socket.revents & POLLOUT else 0)
                | (CURL_CSELECT_ERR if socket.revents & POLLERR else 0)
            ):
                start_pending(engine)
    curl_down(engine)
    pthread_mutex_lock(&engine.lock)
    engine.left = True
    pthread_cond_broadcast(&engine.changed)
    pthread_mutex_unlock(&engine.lock)
    drop(engine)
    return NULL


cdef bint run_curl(FetchState *engine, int socket, int events) noexcept nogil:
    """Lets libcurl work on a socket, and ends the transfers that are over then. True if there were any."""
    cdef CURLMsg *message
    cdef Slot *slot
    cdef int number
    cdef bint ended = False
    cdef CURLMcode failed
    if engine.multi == NULL:
        return False
    failed = curl_multi_socket_action(engine.multi, socket, events, &number)
    while True:
        message = curl_multi_info_read(engine.multi, &number)
        if message == NULL:
            break
        curl_easy_getinfo(message.easy_handle, CURLINFO_PRIVATE, &slot)
        end(slot, message.data.result, NULL)
        ended = True
    if failed:
        begin_anew(engine)
    return ended or failed


cdef void begin_anew(FetchState *engine) noexcept nogil:
    """libcurl had no memory to watch a socket, and does not say for which transfer. So all of them end, and their connections: libcurl 7.88
    divides by zero (SIGFPE) when it comes to that socket again."""
    cdef int i
    for i in range(engine.slot_count):
        if engine.slots[i].job != NULL:
            engine.slots[i].job.verdict = NO_MEMORY
            end(&engine.slots[i], CURLE_OUT_OF_MEMORY, NULL)
    curl_multi_cleanup(engine.multi)
    engine.multi, engine.timer, engine.socket_count = NULL, 0, 1  # `begin` makes another one; the first socket is the pipe


cdef int start_pending(FetchState *engine) noexcept nogil:
    """Starts what can start now. Returns the milliseconds after which to look again; -1: the thread has to end."""
    cdef double next_due
    cdef bint closing
    while True:
        pthread_mutex_lock(&engine.lock)
        closing = engine.closing
        pthread_mutex_unlock(&engine.lock)
        if closing:
            return -1
        resume_paused(engine)
        next_due = fill_slots(engine)
        if not engine.timer or engine.timer > dg_now():
            break
        engine.timer = 0
        run_curl(engine, CURL_SOCKET_TIMEOUT, 0)  # libcurl begins what it was given, or has waited long enough
    if engine.active:
        next_due = min(next_due, dg_now() + min(engine.timeout / 8, 0.25))
    if engine.timer:
        next_due = min(next_due, engine.timer)
    return max(0, <int>(1000 * (next_due - dg_now()) + 0.999))


cdef double fill_slots(FetchState *engine) noexcept nogil:
    """Gives jobs to free slots, retries first. Returns the time at which the next retry is due."""
    cdef double now = dg_now(), next_due = now + 60
    cdef Slot *slot = engine.slots
    cdef Slot *behind = engine.slots + engine.slot_count
    cdef Job *job
    cdef bint behind_reader = reader_is_behind(engine)
    while slot < behind:
        if slot.job != NULL:
            slot += 1
            continue
        job = due_retry(engine, now, &next_due)
        pthread_mutex_lock(&engine.lock)
        if job == NULL and not behind_reader:
            job = pop(&engine.waiting)
        engine.active += job != NULL
        pthread_mutex_unlock(&engine.lock)
        if job == NULL:
            break
        slot.job = job
        slot.hops, slot.secure = 0, False
        begin(slot, job.url)
    return next_due


cdef void resume_paused(FetchState *engine) noexcept nogil:
    """Resumes the paused transfers for which there is room now."""
    cdef Slot *slot
    cdef CURLcode result
    while True:
        slot = next_to_resume(engine)
        if slot == NULL:
            break
        no_longer_waiting(slot)
        slot.heard = slot.span = dg_now()
        slot.span_bytes = 0
        result = curl_easy_pause(slot.easy, CURLPAUSE_CONT)  # it calls on_body, mostly
        if result != CURLE_OK:
            end(slot, result, NULL)


cdef void give_up_silent(FetchState *engine) noexcept nogil:
    """Ends transfers that had no data for the time-out, or too little for RATE_SPANS of them, unless they are paused."""
    cdef double now = dg_now(), length = RATE_SPANS * engine.timeout
    cdef bint crowded = engine.paused and not reader_is_behind(engine)
    cdef Slot *slot
    cdef int i
    if now - engine.looked < min(engine.timeout / 8, 0.25):
        return
    engine.looked = now
    for i in range(engine.slot_count):
        slot = &engine.slots[i]
        if slot.job == NULL or slot.wanted:
            continue
        if now - slot.heard > engine.timeout:
            snprintf(slot.job.text, sizeof(slot.job.text), "read timed out: no data for %g s", engine.timeout)
            end(slot, CURLE_OPERATION_TIMEDOUT, NULL)
        elif now - slot.span > length:
            if slot.span_bytes < length * LEAST_RATE:
                end(slot, CURLE_OPERATION_TIMEDOUT, "read timed out: less than 1000 bytes a second")
            elif crowded and slot.span_bytes < length * HURRY and takes_common_room(slot):
                end(slot, CURLE_OPERATION_TIMEDOUT, "read timed out: too slow for its size while others wait for memory")
            slot.span, slot.span_bytes = now, 0


# ---- birth and death ------------------------------------------------------------------------------------------------

cdef CURLM *multi_new(FetchState *engine) noexcept nogil:
    cdef long slots = engine.slot_count
    cdef CURLM *multi = curl_multi_init()
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket)
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, engine)
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer)
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, engine)
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, slots)
    curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, slots)
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, slots)
    return multi


cdef FetchState *engine_new(int slots, int attempts, double timeout, uint64_t max_bytes, size_t capacity) except NULL:
    """With one owner, the caller. MemoryError, or OSError for want of descriptors."""
    cdef FetchState *engine = <FetchState *>calloc(1, sizeof(FetchState))
    cdef int i
    if engine == NULL:
        raise MemoryError
    pthread_mutex_init(&engine.lock, NULL)
    dg_cond_init(&engine.changed)
    engine.owners = 1
    engine.attempts, engine.timeout, engine.max_bytes, engine.capacity = attempts, timeout, max_bytes, capacity
    engine.wake[0] = engine.wake[1] = -1
    engine.slots = <Slot *>calloc(slots, sizeof(Slot))
    engine.slot_count = slots if engine.slots != NULL else 0
    engine.multi = multi_new(engine)
    engine.model = curl_easy_init()
    if engine.slots == NULL or engine.multi == NULL or engine.model == NULL or not make_room(engine):
        drop(engine)
        raise MemoryError
    for i in range(slots):
        engine.slots[i].engine = engine
    if pipe(engine.wake) < 0:
        drop(engine)
        raise OSError(errno, "no pipe for the download thread")
    for i in range(2):
        fcntl(engine.wake[i], F_SETFD, FD_CLOEXEC)
        fcntl(engine.wake[i], F_SETFL, fcntl(engine.wake[i], F_GETFL) | O_NONBLOCK)
    on_socket(NULL, engine.wake[0], CURL_POLL_IN, engine, NULL)
    return engine


cdef int engine_prepare(FetchState *engine, const char *user_agent, const char *ca_file, const char *ca_folder) except -1:
    """What all transfers have in common. The strings are copied; of the two kinds of certificates one may be empty."""
    cdef long connect = max(<long>1, <long>(1000 * min(engine.timeout, CONNECT_TIMEOUT)))
    cdef CURL *easy = engine.model
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, <long>1)
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, <long>CURL_HTTP_VERSION_1_1)
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect)
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER)
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, <curl_off_t>min(engine.max_bytes, <uint64_t>1 << 62))
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header)
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body)
    dg_curl_quick_exit(easy)
    if (
        curl_easy_setopt(easy, CURLOPT_USERAGENT, user_agent) == CURLE_OUT_OF_MEMORY
        or curl_easy_setopt(easy, CURLOPT_NOPROXY, b"") == CURLE_OUT_OF_MEMORY  # `begin` decides
        or curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file if ca_file[0] else NULL) == CURLE_OUT_OF_MEMORY
        or curl_easy_setopt(easy, CURLOPT_CAPATH, ca_folder if ca_folder[0] else NULL) == CURLE_OUT_OF_MEMORY  # NULL: not libcurl's own
    ):
        raise MemoryError
    return 0


cdef void curl_down(FetchState *engine) noexcept nogil:
    """Everything that is libcurl's. May wait for a name server."""
    cdef int i
    for i in range(engine.slot_count):
        if engine.slots[i].job != NULL:
            curl_multi_remove_handle(engine.multi, engine.slots[i].easy)
        curl_easy_cleanup(engine.slots[i].easy)
    curl_easy_cleanup(engine.model)
    if engine.multi != NULL:
        curl_multi_cleanup(engine.multi)


cdef void drop(FetchState *engine) noexcept nogil:
    cdef bint last
    cdef int i
    pthread_mutex_lock(&engine.lock)
    engine.owners -= 1
    last = engine.owners == 0
    pthread_mutex_unlock(&engine.lock)
    if not last:
        return
    if not engine.left:  # it never ran
        curl_down(engine)
    if engine.wake[0] >= 0:
        close(engine.wake[0])
        close(engine.wake[1])
    for i in range(engine.slot_count):
        job_free(engine.slots[i].job)
    list_free(engine.retries)
    list_free(engine.waiting.first)
    list_free(engine.done.first)
    pthread_cond_destroy(&engine.changed)
    pthread_mutex_destroy(&engine.lock)
    free(engine.proxies[0])
    free(engine.proxies[1])
    free(engine.no_proxy)
    table_free(&engine.hosts)
    free(engine.sockets)
    free(engine.ready)
    free(engine.slots)
    free(engine)
