# The hosts that a pass cannot reach, for Python and for the download thread alike. See _hosts.pyx.
cdef enum:
    PLACE = 272  # bytes of a host and port, the zero included

cdef struct HostEntry:
    HostEntry *next
    double due             # the next request is let through then, by dg_now's clock
    char cause[160]        # what the attempts of the first request ended in
    char place[PLACE]

cdef struct HostTable:
    HostEntry *first
    double rest            # seconds from one attempt at an unreachable host to the next

cdef bint let_through(HostTable *table, const char *place, bint *single, char *text, size_t room) noexcept nogil
cdef bint say_if_out(HostTable *table, const char *place, char *text, size_t room) noexcept nogil
cdef void give_up(HostTable *table, const char *place, const char *cause) noexcept nogil
cdef void reached(HostTable *table, const char *place) noexcept nogil
cdef void table_free(HostTable *table) noexcept nogil
cpdef bint is_own_want(int code) noexcept nogil
cdef bint is_given_up(int unreached, int attempts, bint single) noexcept nogil
