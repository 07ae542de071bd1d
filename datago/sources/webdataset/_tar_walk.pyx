# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The native part of the tar reader (see _tar_walk.pxd); nothing here is visible from Python.

The tar dialects differ, or say nothing, about some cases. This reader decides them so:
  * The archive ends at the first two zero blocks. Later bytes are not read, so that of two concatenated tars only the first is
    read; if they are not all zeros, `trailing` counts them. A single zero block between members is skipped and counted.
  * A stream that ends without two zero blocks is truncated, even at the end of a member; tarfile would accept it.
  * Links, directories and devices have no data, whatever their size field says. There are two exceptions: a hard link (as pax -o
    linkdata writes it) and a plain file whose name ends in a slash have data if their header is not followed by another one.
  * Names are the bytes that are stored: they are not decoded, "./" is not removed, and ".." is not checked.
"""
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp, memcpy

cdef uint8_t[BLOCK] ZEROS


# ---- helpers --------------------------------------------------------------------------------------------------------

cdef bint buffer_append(Buffer *buffer, const void *data, size_t size, size_t most) noexcept nogil:
    """Appends `size` bytes. The buffer grows by doubling, by AT_ONCE at least, but not beyond `most`, the size that it will have in
    the end (0 if that is not known). Returns False if there is no memory."""
    cdef size_t capacity = buffer.fill + size
    cdef void *grown
    if capacity > buffer.capacity:
        capacity = max(capacity, min(most, max(2 * buffer.capacity, <size_t>AT_ONCE)))
        grown = PyMem_RawRealloc(buffer.data, capacity)
        if grown == NULL:
            return False
        buffer.data, buffer.capacity = <uint8_t *>grown, capacity
    if size:
        memcpy(buffer.data + buffer.fill, data, size)
        buffer.fill += size
    return True


cdef size_t field_length(const uint8_t *field, size_t width) noexcept nogil:
    cdef const uint8_t *end = <const uint8_t *>memchr(field, 0, width)
    return width if end == NULL else end - field


cdef TarFault parse_number(const uint8_t *field, int width, int64_t *value) noexcept nogil:
    """Reads a header field in octal, or in GNU's base 256. A blank field is 0, as in other tar readers."""
    cdef int i = 0
    value[0] = 0
    if field[0] & 0x80:
        if field[0] & 0x40:  # two's complement
            return NEGATIVE_SIZE
        value[0] = field[0] & 0x3f
        for i in range(1, width):
            if value[0] > MAX_SIZE >> 8:
                return HUGE_SIZE
            value[0] = value[0] << 8 | field[i]
        return HUGE_SIZE if value[0] > MAX_SIZE else FINE
    if field[0] == 0:  # Some writers let the NUL of the field before overflow into this one; GNU tar accepts that too.
        i = 1
    while i < width and field[i] == c' ':
        i += 1
    if i < width and field[i] == c'-':
        return NEGATIVE_SIZE
    while i < width and c'0' <= field[i] <= c'7':
        value[0] = value[0] << 3 | (field[i] - c'0')
        i += 1
    return FINE if i == width or field[i] == 0 or field[i] == c' ' else BAD_SIZE


cdef TarFault parse_decimal(const uint8_t *text, size_t size, int64_t *value) noexcept nogil:
    cdef size_t i
    value[0] = 0
    if size and text[0] == c'-':
        return NEGATIVE_SIZE
    for i in range(size):
        if not c'0' <= text[i] <= c'9':
            return BAD_SIZE
        if value[0] >= MAX_SIZE >> 4:  # checked before the multiplication could overflow
            return HUGE_SIZE
        value[0] = value[0] * 10 + (text[i] - c'0')
    return FINE


cdef bint checksum_matches(const uint8_t *header) noexcept nogil:
    """Whether the checksum is the sum of the header's bytes, with spaces in place of the checksum field. Some old tars summed signed
    chars, so that sum is accepted too."""
    cdef uint32_t total = 8 * c' ', high = 0
    cdef int64_t stated
    cdef int i
    if parse_number(header + 148, 8, &stated) != FINE:
        return False
    for i in range(BLOCK):
        total += header[i]
    for i in range(148, 156):
        total -= header[i]
    if total == stated:
        return True
    for i in range(BLOCK):
        high += header[i] >> 7
    for i in range(148, 156):
        high -= header[i] >> 7
    return <int64_t>total - 256 * <int64_t>high == stated


cdef void fail(Tar *tar, TarFault fault, int64_t where) noexcept nogil:
    tar.fault, tar.fault_at = fault, where


cdef void skip_padded(Tar *tar, int64_t size) noexcept nogil:
    """Lets the walk skip `size` bytes and the padding of their last block."""
    tar.padding = -size & (BLOCK - 1)
    tar.skip = size + tar.padding


# ---- extended headers -----------------------------------------------------------------------------------------------

cdef TarFault read_records(Override *override, const uint8_t *data, size_t size) noexcept nogil:
    """Reads pax records, each "length key=value\\n", where length counts the whole record. An empty value cancels an earlier one."""
    cdef size_t begin = 0, length, digits, rest, key, value_size
    cdef const uint8_t *text
    cdef const uint8_t *value
    cdef TarFault fault
    while begin < size and data[begin] != 0:
        length = digits = 0
        while digits < min(size - begin, <size_t>8) and c'0' <= data[begin + digits] <= c'9':
            length = length * 10 + (data[begin + digits] - c'0')
            digits += 1
        if digits == 0 or length > size - begin or length < digits + 2:
            return BAD_META
        text = data + begin + digits
        if text[0] != c' ' or data[begin + length - 1] != c'\n':
            return BAD_META
        text += 1
        rest = length - digits - 2
        value = <const uint8_t *>memchr(text, c'=', rest)
        if value == NULL:
            return BAD_META
        key = value - text
        value += 1
        value_size = rest - key - 1
        if key == 4 and memcmp(text, b"path", 4) == 0:
            override.has_path = value_size > 0
            override.path.fill = 0
            if not buffer_append(&override.path, value, value_size, 0):
                return NO_MEMORY
        elif key == 4 and memcmp(text, b"size", 4) == 0:
            override.has_size = value_size > 0
            fault = parse_decimal(value, value_size, &override.size)
            if fault != FINE:
                return fault
        elif key > 11 and memcmp(text, b"GNU.sparse.", 11) == 0:
            override.sparse = True
        begin += length
    return FINE


cdef void read_meta(Tar *tar) noexcept nogil:
    cdef TarFault fault = FINE
    cdef size_t length
    if tar.meta_kind == c'L':
        length = field_length(tar.meta.data, tar.meta.fill) if tar.meta.fill else 0
        tar.local.has_path = length > 0
        tar.local.path.fill = 0
        if not buffer_append(&tar.local.path, tar.meta.data, length, 0):
            fault = NO_MEMORY
    elif tar.meta_kind == c'g':
        fault = read_records(&tar.global_, tar.meta.data, tar.meta.fill)
        if tar.global_.path.fill > MAX_GLOBAL_PATH:
            fault = BAD_META
    elif tar.meta_kind == c'x' or tar.meta_kind == c'X':
        fault = read_records(&tar.local, tar.meta.data, tar.meta.fill)
    if fault != FINE:
        fail(tar, fault, tar.member)
    tar.state = HEADERS
    skip_padded(tar, tar.body)
    tar.skip = tar.padding


# ---- headers --------------------------------------------------------------------------------------------------------

cdef bint add_name(Tar *tar, const uint8_t *header) noexcept nogil:
    """Appends the full name of the member to the batch's names."""
    cdef size_t length
    if tar.local.has_path:
        return buffer_append(&tar.names, tar.local.path.data, tar.local.path.fill, 2 * NAMES_FULL)
    if tar.global_.has_path:
        return buffer_append(&tar.names, tar.global_.path.data, tar.global_.path.fill, 2 * NAMES_FULL)
    # GNU's own headers have times in the place of POSIX's prefix.
    if header[345] and memcmp(header + 257, b"ustar", 5) == 0 and memcmp(header + 257, b"ustar  ", 8) != 0:
        length = field_length(header + 345, 155)
        if not buffer_append(&tar.names, header + 345, length, 2 * NAMES_FULL):
            return False
        if header[345 + length - 1] != c'/' and not buffer_append(&tar.names, b"/", 1, 2 * NAMES_FULL):
            return False
    return buffer_append(&tar.names, header, field_length(header, 100), 2 * NAMES_FULL)


cdef void read_regular(Tar *tar, const uint8_t *header, int64_t first, int64_t size) noexcept nogil:
    cdef Found *found = &tar.found[tar.count]
    found.name = tar.names.fill
    if not add_name(tar, header):
        fail(tar, NO_MEMORY, tar.member)
        return
    found.name_length = tar.names.fill - found.name
    if found.name_length and tar.names.data[tar.names.fill - 1] == c'/':  # In v7 only the slash marks a directory.
        tar.names.fill = found.name
        tar.skipped[DIRECTORY] += 1
        tar.uncertain = size
        return
    found.offset, found.size, found.data = first, size, NULL
    tar.count += 1
    if size <= tar.end - tar.next:
        found.data = tar.next
        skip_padded(tar, size)
    else:
        tar.state = CUT


cdef void read_header(Tar *tar, const uint8_t *header) noexcept nogil:
    cdef int64_t where = tar.offset - BLOCK, size, first
    cdef uint8_t kind = header[156]
    cdef TarFault fault
    if header[0] == 0 and memcmp(header, ZEROS, BLOCK) == 0:
        if tar.dangling:
            fail(tar, DANGLING_META, tar.member)
        tar.uncertain = 0
        tar.first = -1
        tar.zeros += 1
        if tar.zeros == 2:
            tar.state = ENDED
        return
    if not checksum_matches(header):
        if tar.uncertain:
            skip_padded(tar, tar.uncertain)
            tar.skip -= BLOCK
            tar.uncertain = 0
        elif where == 0 and memcmp(header + 257, b"ustar", 5) != 0:
            if header != tar.header:
                memcpy(tar.header, header, BLOCK)
            fail(tar, NOT_TAR, 0)
        else:
            fail(tar, BAD_CHECKSUM, where)
        return
    tar.lone_zero_blocks += tar.zeros
    tar.zeros = 0
    tar.uncertain = 0
    tar.member = where
    if tar.first < 0:
        tar.first = where
    fault = parse_number(header + 124, 12, &size)
    if kind in (c'x', c'X', c'g', c'L', c'K', c'A'):  # pax, Solaris, pax for all, GNU long name, long link, Solaris ACL
        if fault == FINE and size > MAX_META:
            fault = HUGE_META
        if fault != FINE:
            fail(tar, fault, where)
            return
        tar.state = META
        tar.meta_kind = kind
        tar.meta.fill = 0
        tar.body = size
        if kind != c'g':
            tar.dangling = True
        if size == 0:
            read_meta(tar)
        return
    if tar.local.has_size:
        fault, size = FINE, tar.local.size
    elif tar.global_.has_size:
        fault, size = FINE, tar.global_.size
    first = tar.first
    if c'2' <= kind <= c'6':
        tar.skipped[SYMLINK if kind == c'2' else DIRECTORY if kind == c'5' else FIFO if kind == c'6' else DEVICE] += 1
    elif fault != FINE:
        fail(tar, fault, where)
    elif kind == c'1':
        tar.skipped[LINK] += 1
        tar.uncertain = size
    elif kind == c'S':
        tar.skipped[SPARSE] += 1
        if header[482]:
            tar.state = EXTENSIONS
            tar.body = size
        else:
            skip_padded(tar, size)
    elif kind != c'0' and kind != 0 and kind != c'7':  # D dumpdir, M from another volume, V label, vendors' own
        tar.skipped[DIRECTORY if kind == c'D' else OTHER] += 1
        skip_padded(tar, size)
    elif tar.local.sparse:
        tar.skipped[SPARSE] += 1
        skip_padded(tar, size)
    else:
        read_regular(tar, header, first, size)
    tar.first = -1
    tar.dangling = tar.local.has_path = tar.local.has_size = tar.local.sparse = False


# ---- the walk -------------------------------------------------------------------------------------------------------

cdef void advance(Tar *tar, size_t size) noexcept nogil:
    tar.next += size
    tar.offset += size


cdef const uint8_t *next_block(Tar *tar) noexcept nogil:
    """The next 512 bytes, without a copy if the block has them all. NULL if some of them have not come yet."""
    cdef size_t left = tar.end - tar.next, size
    if tar.header_fill == 0 and left >= BLOCK:
        advance(tar, BLOCK)
        return tar.next - BLOCK
    size = min(left, BLOCK - tar.header_fill)
    memcpy(tar.header + tar.header_fill, tar.next, size)
    tar.header_fill += size
    advance(tar, size)
    if tar.header_fill < BLOCK:
        return NULL
    tar.header_fill = 0
    return tar.header


cdef void collect(Tar *tar) noexcept nogil:
    """Collects the bytes in this block of a pax header, long name or cut member."""
    cdef Buffer *buffer = &tar.meta if tar.state == META else &tar.gather
    cdef size_t size = min(<int64_t>(tar.end - tar.next), tar.body - <int64_t>buffer.fill)
    if not buffer_append(buffer, tar.next, size, tar.body):
        fail(tar, NO_MEMORY, tar.member)
        return
    advance(tar, size)
    if <int64_t>buffer.fill < tar.body:
        return
    if tar.state == META:
        read_meta(tar)
        return
    tar.found[tar.count].data = NULL
    tar.count += 1
    tar.state = HEADERS
    skip_padded(tar, tar.body)
    tar.skip = tar.padding


cdef void look_past_end(Tar *tar) noexcept nogil:
    while tar.trailing == 0 and tar.next < tar.end and tar.next[0] == 0:
        advance(tar, 1)
    tar.trailing += tar.end - tar.next
    advance(tar, tar.end - tar.next)


cdef bint tar_walk(Tar *tar) noexcept nogil:
    """Goes through the block. Returns False at its end or after a fault, and True if a batch is full or a member is cut: the caller
    then takes the batch and calls again."""
    cdef const uint8_t *header
    cdef size_t size
    while tar.fault == FINE:
        if tar.count == BATCH or tar.names.fill >= NAMES_FULL or tar.state == CUT:
            return True
        if tar.skip:
            size = min(<int64_t>(tar.end - tar.next), tar.skip)
            advance(tar, size)
            tar.skip -= size
        if tar.next == tar.end:
            return False
        if tar.state == HEADERS:
            header = next_block(tar)
            if header != NULL:
                read_header(tar, header)
        elif tar.state == EXTENSIONS:
            header = next_block(tar)
            if header != NULL and header[504] == 0:
                tar.state = HEADERS
                skip_padded(tar, tar.body)
        elif tar.state == ENDED:
            look_past_end(tar)
        else:
            collect(tar)
    return False


cdef Tar *tar_new(int64_t offset) noexcept nogil:
    cdef Tar *tar = <Tar *>PyMem_RawCalloc(1, sizeof(Tar))
    if tar != NULL:
        tar.offset = offset
        tar.first = tar.member = -1
    return tar


cdef void tar_free(Tar *tar) noexcept nogil:
    if tar == NULL:
        return
    PyMem_RawFree(tar.meta.data)
    PyMem_RawFree(tar.gather.data)
    PyMem_RawFree(tar.names.data)
    PyMem_RawFree(tar.local.path.data)
    PyMem_RawFree(tar.global_.path.data)
    PyMem_RawFree(tar)


cdef void tar_gather(Tar *tar, Found *found) noexcept nogil:
    tar.found[0].offset = found.offset
    tar.state = GATHER
    tar.gather.fill = 0
    tar.body = found.size


cdef void tar_drop(Tar *tar, Found *found) noexcept nogil:
    tar.state = HEADERS
    skip_padded(tar, found.size)
