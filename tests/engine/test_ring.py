import threading
import time

import pytest

from datago.engine._ring import PyRing, RingClosed, spin


def test_first_in_first_out_and_full():
    ring = PyRing(3)
    for i in range(3):
        ring.push(i)
    with pytest.raises(TimeoutError):
        ring.push(3, timeout=0)
    assert ring.counts() == {"depth": 3, "capacity": 3, "passed": 3, "push_waits": 1, "pop_waits": 0}
    assert [ring.pop(), ring.pop()] == [0, 1]
    ring.push(3)
    assert [ring.pop(), ring.pop()] == [2, 3]


def test_closed_is_not_drained():
    ring = PyRing(4)
    ring.push("a")
    ring.push("b")
    ring.close()
    ring.close()
    with pytest.raises(RingClosed):
        ring.push("c")
    assert [ring.pop(), ring.pop()] == ["a", "b"]
    with pytest.raises(RingClosed):
        ring.pop()


def test_placed_items_leave_by_number():
    ring = PyRing(3)
    ring.place("c", 2)
    ring.place("b", 1)
    with pytest.raises(TimeoutError):
        ring.pop(timeout=0)
    late = threading.Thread(target=ring.place, args=("d", 3))  # three ahead of what is to leave next: it waits
    late.start()
    time.sleep(0.05)
    assert ring.counts()["depth"] == 2
    ring.place("a", 0)
    assert [ring.pop() for _ in range(3)] == ["a", "b", "c"]
    late.join()
    assert ring.pop() == "d"
    ring.place("g", 6)
    ring.place("f", 5)
    ring.close()  # nobody will bring 4: what is there still comes
    assert [ring.pop(), ring.pop()] == ["f", "g"]
    with pytest.raises(RingClosed):
        ring.pop()
    with pytest.raises(RingClosed):
        ring.place("h", 7)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("capacity", [1, 2, 7, 64])
def test_many_threads_place_and_pop(capacity):
    """Eight threads take numbers in turn and bring them when they like; three others pop: each number once, in order for each."""
    ring, lock, numbers, got = PyRing(capacity), threading.Lock(), iter(range(3000)), [[] for _ in range(3)]

    def bring():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            if number % 5 == 0:
                time.sleep(0.0002)
            ring.place(number, number)

    def take(mine):
        try:
            while True:
                mine.append(ring.pop())
        except RingClosed:
            pass

    producers = [threading.Thread(target=bring) for _ in range(8)]
    consumers = [threading.Thread(target=take, args=(mine,)) for mine in got]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join()
    ring.close()
    for thread in consumers:
        thread.join()
    assert sorted(sum(got, [])) == list(range(3000)) and all(mine == sorted(mine) for mine in got)


def test_timed_pop_waits_that_long():
    ring = PyRing(1)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        ring.pop(timeout=0.2)
    assert time.monotonic() - begin > 0.19
    assert ring.counts()["pop_waits"] == 1


def test_close_wakes_everybody():
    full, empty = PyRing(1), PyRing(1)
    full.push(0)
    woken = []

    def wait(call, *arguments):
        try:
            call(*arguments)
        except RingClosed:
            woken.append(call.__name__)

    threads = [threading.Thread(target=wait, args=args) for args in 3 * [(full.push, 1)] + 3 * [(empty.pop,)]]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    full.close()
    empty.close()
    for thread in threads:
        thread.join(20)
    assert sorted(woken) == ["pop"] * 3 + ["push"] * 3


def test_items_left_in_a_dropped_ring_are_released():
    class Thing:
        pass

    import weakref

    thing = Thing()
    seen = weakref.ref(thing)
    ring = PyRing(2)
    ring.push(thing)
    del thing
    assert seen() is not None
    del ring
    assert seen() is None


@pytest.mark.parametrize("producers, consumers, capacity", [(1, 1, 1), (1, 1, 64), (4, 4, 2), (32, 32, 64), (1, 32, 7), (32, 1, 7)])
def test_many_threads_lose_and_double_nothing(producers, consumers, capacity):
    result = spin(capacity, producers, consumers, 20_000, 0)
    assert result["sum"] == 20_000 * 20_001 // 2
    assert result["passed"] == 20_000 and result["depth"] == 0


def test_wrong_arguments():
    with pytest.raises(ValueError, match="capacity: got 0"):
        PyRing(0)
    with pytest.raises(ValueError, match="producers"):
        spin(4, 0, 1, 10, 0)
