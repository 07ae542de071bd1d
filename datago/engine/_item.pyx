# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""What travels from a source through both rings to the reader: how it is made and freed (see _item.pxd)."""
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from datago.engine._pixels cimport DG_ROLE_ADDITIONAL, DG_ROLE_IMAGE, DG_ROLE_MASK, dg_buffer_free, dg_image_free, dg_status_find
from datago.engine._sample cimport Entry, Failure


cdef Item *item_new(object entry) except NULL:
    cdef Item *item
    if isinstance(entry, tuple):  # a path. The file source yields a hundred thousand a second, so this case is the first and the cheapest
        item = item_named(1, (<tuple>entry)[0])
        item.parts[0].path = item.rng_name = item.name
        item.position = (<tuple>entry)[1]
    elif isinstance(entry, Entry):
        item = item_of_entry(entry)
        item.position = (<Entry>entry).position
    elif isinstance(entry, Failure):  # it travels with the others, so that order and counts stay right
        item = item_named(0, os.fsencode((<Failure>entry).name))
        item.kind = ITEM_FAILURE
        item.error.status = dg_status_find((<Failure>entry).reason.encode())
        item.position = (<Failure>entry).position
        text = (<Failure>entry).text.encode("utf-8", "replace")[:sizeof(item.error.text) - 1]
        memcpy(item.error.text, <const char *>text, len(text) + 1)
    else:
        raise TypeError(f"a source yields (path, position) pairs, Entries and Failures, not {type(entry).__name__}")
    return item


cdef Item *item_named(int parts, bytes name) except NULL:
    """A sample's item, with its name behind the last part. An item without parts has an empty one, so that parts[0] can always be read."""
    cdef Py_ssize_t length = len(name)
    cdef Item *item = <Item *>PyMem_RawCalloc(1, sizeof(Item) + parts * sizeof(Part) + length + 1)
    if item == NULL:
        raise MemoryError
    item.part_count = parts
    item.position = -1
    item.name = <char *>&item.parts[max(parts, 1)]
    memcpy(<char *>item.name, <const char *>name, length)
    return item


cdef Item *item_of_entry(Entry entry) except NULL:
    cdef bytes name = os.fsencode(entry.name)
    cdef Item *item = item_named(len(entry._images), name)
    cdef int i
    if entry.path is not None:
        item.parts[0].path = item.rng_name = item.name
    else:
        # What is drawn for a sample must be the same on every machine. So no folder is in its name: only the shard, or the database's
        # source, and the key
        item.rng_name = item.name + (<bytes>os.fsencode(entry.source)).rfind(b"/") + 1
    try:
        for i in range(item.part_count):
            role, _, data = entry._images[i]
            item.parts[i].role = DG_ROLE_IMAGE if role == "image" else DG_ROLE_MASK if role == "mask" else DG_ROLE_ADDITIONAL
            if item.parts[i].path == NULL:
                PyObject_GetBuffer(data, &item.parts[i].data, PyBUF_SIMPLE)
        Py_INCREF(entry)
        item.entry = <void *>entry
        return item
    except BaseException:
        item_free(item)
        raise


cdef void item_free(Item *item) noexcept:
    cdef int i
    if item.kind == ITEM_BATCH:
        batch_free(item.batch)
        return
    for i in range(item.part_count):
        dg_image_free(&item.parts[i].picture.image)
        PyBuffer_Release(&item.parts[i].data)
    if item.entry != NULL:
        Py_DECREF(<object>item.entry)
    PyMem_RawFree(item)


cdef bint item_give_up(Item *item, Py_buffer *data) noexcept nogil:
    cdef int i = 0
    while i < item.part_count and <void *>item.parts[i].data.obj == NULL:
        i += 1
    if i == item.part_count:
        return False
    data[0] = item.parts[i].data
    memset(&item.parts[i].data, 0, sizeof(Py_buffer))
    return True


cdef void entry_empty(object entry) noexcept:
    try:
        (<Entry>entry)._images = tuple([(role, name, None) for role, name, _ in (<Entry>entry)._images])
    except MemoryError:
        pass  # then the bytes stay until the sample is handed out


cdef void batch_free(Batch *batch) noexcept:
    cdef int i
    for i in range(batch.taken):
        if batch.items[i] != NULL:
            item_free(batch.items[i])
    dg_buffer_free(&batch.memory)
    free(batch.carrier)
    free(batch)
