# Letters are compared by their ASCII codes: what the C library calls upper case depends on the locale, and in Turkish I is not i's.

cdef inline bint begins(const char *text, const char *lower) noexcept nogil:
    """Whether `text` begins with `lower`, a string without capital letters, in any case."""
    cdef size_t i = 0
    while lower[i] != 0:
        if lower[i] != (text[i] | 32 if b"A" <= text[i] <= b"Z" else text[i]):
            return False
        i += 1
    return True
