# The rules of requests that need no Python object, so that the download thread goes by them too. See policy.py.
cdef enum:
    MAX_RETRY_AFTER_S = 120  # a server that asks for more than this is not asked again

cpdef bint is_retried(long status) noexcept nogil
cpdef double backoff_s(int attempt, double chance) noexcept nogil
cdef double retry_after_s(const char *text, size_t size) noexcept nogil
cdef void find_place(char *place, size_t room, const char *url) noexcept nogil
cdef bint bypasses_proxy(const char *no_proxy, const char *url) noexcept nogil
