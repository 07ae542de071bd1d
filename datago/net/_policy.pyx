# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The native half of policy.py: what is retried, after how long, what Retry-After means, and which hosts no proxy is asked for.

These rules touch no Python object, so that the download thread (_transfers.pyx) calls the same functions as Python does.
"""
from libc.stdio cimport snprintf, sscanf
from libc.stdlib cimport atoi
from libc.string cimport memchr, memcmp, memcpy, strchr, strcspn, strlen, strspn, strstr
from libc.time cimport time

import os

from datago._ascii cimport begins

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET, AF_INET6
    int inet_pton(int family, const char *text, void *address)

cdef double FIRST_WAIT = 0.2, LONGEST_WAIT = 20   # seconds before a retry; they double in between
cdef const char *MONTHS = "janfebmaraprmayjunjulaugsepoctnovdec"

MAX_RETRY_AFTER = float(MAX_RETRY_AFTER_S)


cpdef bint is_retried(long status) noexcept nogil:
    """Whether another attempt may get a better answer than this HTTP status."""
    return status == 408 or status == 429 or status >= 500


cpdef double backoff_s(int attempt, double chance) noexcept nogil:
    """Seconds to wait after attempt 1, 2 …: twice as long each time, of which the second half is up to `chance` (0 to 1).

    So waits grow for certain, and those who failed together come back apart."""
    cdef double wait = FIRST_WAIT
    while attempt > 1 and wait < LONGEST_WAIT:
        attempt -= 1
        wait *= 2
    return min(wait, LONGEST_WAIT) * (0.5 + 0.5 * chance)


# ---- Retry-After ----------------------------------------------------------------------------------------------------

cdef double retry_after_s(const char *text, size_t size) noexcept nogil:
    """Seconds from now that the header's value means: a number of seconds or a date of HTTP. Below 0: neither of them."""
    cdef char copy[64]
    while size and text[0] in b" \t":
        text, size = text + 1, size - 1
    while size and text[size - 1] in b" \t\r\n":
        size -= 1
    if not 0 < size < sizeof(copy):
        return -1
    memcpy(copy, text, size)
    copy[size] = 0
    if strspn(copy, "0123456789") == size:
        return atoi(copy) if size < 10 else -1
    return seconds_until(copy)


cdef double seconds_until(const char *text) noexcept nogil:
    """The three forms of RFC 9110, section 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 …`, `Sun Nov  6 08:49:37 1994`."""
    cdef char month_name[4]
    cdef int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, used = 0
    cdef const char *date = strchr(text, b",")
    cdef long long era, days
    date = text if date == NULL else date + 1
    date += strspn(date, " ")
    if b"0" <= date[0] <= b"9":
        if sscanf(date, "%2d%*1[ -]%3[A-Za-z]%*1[ -]%4d %2d:%2d:%2d%n", &day, month_name, &year, &hour, &minute, &second, &used) != 6:
            return -1
    elif sscanf(date, "%*[A-Za-z] %3[A-Za-z] %2d %2d:%2d:%2d %4d%n", month_name, &day, &hour, &minute, &second, &year, &used) != 6:
        return -1
    date += used
    date += strspn(date, " ")
    if date[0] and not (begins(date, "gmt") or begins(date, "utc") or begins(date + 1, "0000") and date[0] in b"+-"):
        return -1
    month_name[0] |= 32
    month_name[1] |= 32
    month_name[2] |= 32
    while month < 12 and memcmp(MONTHS + 3 * month, month_name, 3) != 0:
        month += 1
    year += 0 if year > 99 else 2000 if year < 70 else 1900
    if month == 12 or year < 1970 or not 1 <= day <= 31 or not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 60:
        return -1
    # Days since 1970 by years that begin in March, so that a leap day is the last one.
    year -= month < 2
    month = (month + 10) % 12
    era = year / 400
    days = era * 146097 + (year - era * 400) * 365 + (year - era * 400) / 4 - (year - era * 400) / 100
    days += (153 * month + 2) / 5 + day - 1 - 719468
    return max(<double>0, <double>(days * 86400 + hour * 3600 + minute * 60 + second - <long long>time(NULL)))


def retry_after(str text):
    """Seconds that a Retry-After header asks to wait; None if it says no such thing."""
    cdef bytes data = text.encode("latin-1", "replace")
    cdef double seconds = retry_after_s(data, len(data))
    return None if seconds < 0 else seconds


# ---- no_proxy -------------------------------------------------------------------------------------------------------

cdef bint bypasses_proxy(const char *no_proxy, const char *url) noexcept nogil:
    """Whether `no_proxy` names the host of an http(s) url."""
    cdef char host[256]
    cdef char entry[256]
    cdef const char *end
    cdef int port = find_host(host, url)
    while no_proxy[0]:
        no_proxy += strspn(no_proxy, ", \t")
        end = no_proxy + strcspn(no_proxy, ", \t")
        if end > no_proxy and matches(entry, no_proxy, end - no_proxy, host, port):
            return True
        no_proxy = end
    return False


cdef int find_host(char *host, const char *url) noexcept nogil:
    """Copies the host (256 bytes at most, small letters) of an http(s) url, or of a proxy's that may have no scheme. Returns the port."""
    cdef const char *begin = strstr(url, "://")
    cdef const char *end
    cdef const char *at
    cdef int port = 443 if begins(url, "https:") else 80
    begin = url if begin == NULL else begin + 3
    end = begin + strcspn(begin, "/?#")
    at = begin
    while at != NULL:  # the host stands behind the last one
        begin = at + (at[0] == b"@")
        at = <const char *>memchr(begin, b"@", end - begin)
    split_port(host, begin, end - begin, &port)
    return port


cdef void find_place(char *place, size_t room, const char *url) noexcept nogil:
    """Host and port of the server that `url` means, as Url.place of url.py has them: the port only where it is not the scheme's own."""
    cdef char host[256]
    cdef int port = find_host(host, url)
    cdef bint usual = port == (443 if begins(url, "https:") else 80)
    cdef const char *form = "[%s]" if strchr(host, b":") != NULL else "%s"
    cdef int size = snprintf(place, room, form, <char *>host)
    if not usual and 0 < size < <int>room:
        snprintf(place + size, room - size, ":%d", port)


cdef void split_port(char *host, const char *text, size_t size, int *port) noexcept nogil:
    """Copies the host of `host`, `host:port`, `[address]:port` or a bare IPv6 address, and sets the port where there is one."""
    cdef const char *end = text + size
    cdef const char *stop = <const char *>memchr(text, b"]" if size and text[0] == b"[" else b":", size)
    cdef const char *colon = stop
    if stop != NULL and stop[0] == b"]":
        text, colon = text + 1, stop + 1
    elif stop != NULL and memchr(stop + 1, b":", end - stop - 1) != NULL:
        stop = colon = NULL  # a bare address
    if colon != NULL and colon + 1 < end and colon[0] == b":" and b"0" <= colon[1] <= b"9":
        port[0] = atoi(colon + 1)
    size = (end if stop == NULL else stop) - text
    if size and text[size - 1] == b".":
        size -= 1
    if size > 255:
        size = 0
    memcpy(host, text, size)
    host[size] = 0
    while size:
        size -= 1
        host[size] |= 32 if b"A" <= host[size] <= b"Z" else 0


cdef bint matches(char *entry, const char *text, size_t size, const char *host, int port) noexcept nogil:
    """One entry of no_proxy: `*`, a network (10.0.0.0/8), or a domain, which stands for all below it, perhaps of one port."""
    cdef int wanted = port
    cdef size_t length = strlen(host)
    cdef char *slash
    if size == 1 and text[0] == b"*":
        return True
    while size and text[0] == b".":
        text, size = text + 1, size - 1
    split_port(entry, text, size, &wanted)
    size = strlen(entry)
    if not size or wanted != port:
        return False
    slash = strchr(entry, b"/")
    if slash != NULL:
        slash[0] = 0
        return in_network(host, entry, atoi(slash + 1))
    if length < size or memcmp(host + length - size, entry, size) != 0:
        return False
    return length == size or host[length - size - 1] == b"."


cdef bint in_network(const char *host, const char *network, int bits) noexcept nogil:
    cdef unsigned char one[16]
    cdef unsigned char other[16]
    cdef int family = AF_INET if strchr(network, b":") == NULL else AF_INET6
    cdef int last
    if inet_pton(family, host, one) != 1 or inet_pton(family, network, other) != 1:
        return False
    if bits < 0 or bits > (32 if family == AF_INET else 128) or memcmp(one, other, bits / 8) != 0:
        return False
    last = 8 - bits % 8
    return last == 8 or one[bits / 8] >> last == other[bits / 8] >> last


def is_bypassed(str no_proxy, str url):
    """Whether `no_proxy` names the host of an http(s) url."""
    cdef bytes names = os.fsencode(no_proxy), text = url.encode("utf-8", "surrogateescape")
    return bypasses_proxy(names, text)
