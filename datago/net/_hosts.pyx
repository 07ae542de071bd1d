# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Hosts that cannot be reached: found out once for a pass, not by each request with all of its attempts.

    reachable ── a request is given up: `is_given_up` ──► out: whoever asks fails at once
        ▲                                                  │ `rest` seconds later
        └── it is reached ── one request is let through, with a single attempt ── fails: out for another `rest`

A request that does not reach its host has met one of these: no address for the name, a refused connection, no route, silence while
connecting or in the TLS handshake. Whatever a server answers is no such thing, nor is a connection that breaks off, nor a want of our
own (`is_own_want`). The host is the one that is connected to, so it may be a proxy.
"""
from libc.errno cimport EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

cimport cython

from datago._threads cimport dg_now

from datago.net.cancel import HostOut

cdef extern from "<netdb.h>" nogil:
    int EAI_MEMORY, EAI_SYSTEM


cdef HostEntry **find(HostTable *table, const char *place) noexcept nogil:
    """The link to the entry, or to NULL."""
    cdef HostEntry **link = &table.first
    while link[0] != NULL and strcmp(link[0].place, place) != 0:
        link = &link[0].next
    return link


cdef bint say_if_out(HostTable *table, const char *place, char *text, size_t room) noexcept nogil:
    """Whether nobody is let through at present. Then `text` says why."""
    cdef HostEntry *entry = find(table, place)[0]
    cdef double left = 0 if entry == NULL else entry.due - dg_now()
    if left <= 0:
        return False
    snprintf(text, room, "host %.100s could not be reached: %s; not tried again for %.0f s", entry.place, entry.cause, left + 0.5)
    return True


cdef bint let_through(HostTable *table, const char *place, bint *single, char *text, size_t room) noexcept nogil:
    """Whether a request may be sent there; `single`: with this attempt alone, to see whether the host is back. If not, `text` says why."""
    cdef HostEntry *entry = find(table, place)[0]
    if say_if_out(table, place, text, room):
        return False
    single[0] = entry != NULL
    if entry != NULL:
        entry.due = dg_now() + table.rest  # the others wait for what becomes of this one
    return True


cdef bint is_given_up(int unreached, int attempts, bint single) noexcept nogil:
    """Whether a request that ends shows that its host is out: after `unreached` attempts in a row that did not reach it, of so many that a
    request has. The first one may have reached it: a server that dies breaks off what it is sending."""
    return single or unreached >= max(1, attempts - 1)


cdef void give_up(HostTable *table, const char *place, const char *cause) noexcept nogil:
    """A request has shown that this host is out."""
    cdef HostEntry **link = find(table, place)
    if link[0] == NULL:
        link[0] = <HostEntry *>calloc(1, sizeof(HostEntry))
        if link[0] == NULL:
            return  # then the next request finds out by itself
        snprintf(link[0].place, PLACE, "%s", place)
        snprintf(link[0].cause, sizeof(link[0].cause), "%s", cause)
    link[0].due = dg_now() + table.rest


cdef void reached(HostTable *table, const char *place) noexcept nogil:
    cdef HostEntry **link = find(table, place)
    cdef HostEntry *entry = link[0]
    if entry != NULL:
        link[0] = entry.next
        free(entry)


cdef void table_free(HostTable *table) noexcept nogil:
    while table.first != NULL:
        reached(table, table.first.place)


cpdef bint is_own_want(int code) noexcept nogil:
    """Whether an errno, or what getaddrinfo returns, speaks of what this machine lacks, and not of the host that it did not reach."""
    return (code == EMFILE or code == ENFILE or code == ENOBUFS or code == ENOMEM or code == EADDRNOTAVAIL
            or code == EAI_MEMORY or code == EAI_SYSTEM)


cdef class Hosts:
    """The hosts that one pass cannot reach; see above. For any number of threads.

    Args:
        rest: seconds for which nobody asks a host that is out.

    A place is a host and its port, as `Url.place` has them.
    """

    cdef HostTable table

    def __cinit__(self, double rest):
        self.table.rest = rest

    def __dealloc__(self):
        table_free(&self.table)

    def let_through(self, str place):
        """Called before a connection is made.

        Returns:
            Whether this is to be the only attempt of the request: the host was out, and may be back.

        Raises:
            HostOut: the host is out.
        """
        cdef bytes name = place.encode()
        cdef char text[512]
        cdef bint single = False, free_way
        with cython.critical_section(self):
            free_way = let_through(&self.table, name, &single, text, sizeof(text))
        if not free_way:
            raise HostOut((<bytes>text).decode("utf-8", "replace"))
        return single

    def why_out(self, str place):
        """Why nobody is let through to a place at present; empty: somebody is."""
        cdef bytes name = place.encode()
        cdef char text[512]
        cdef bint out
        with cython.critical_section(self):
            out = say_if_out(&self.table, name, text, sizeof(text))
        return (<bytes>text).decode("utf-8", "replace") if out else ""

    def reached(self, str place):
        """A connection was made."""
        cdef bytes name = place.encode()
        with cython.critical_section(self):
            reached(&self.table, name)

    def ended(self, str place, str cause, int unreached, int attempts, bint single):
        """A request to this place was given up, see is_given_up."""
        cdef bytes name = place.encode(), words = cause.encode("utf-8", "replace")
        if is_given_up(unreached, attempts, single):
            with cython.critical_section(self):
                give_up(&self.table, name, words)
