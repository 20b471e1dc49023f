from __future__ import annotations

import threading
import tracemalloc

from hgfleet.hg.fingerprint import Fingerprint
from hgfleet.web.engine.cache import Answer, AnswerCache, bytes_of
from hgfleet.web.requests.request import Inputs


def answer(body: bytes, status: int = 200) -> Answer:
    return Answer(status, (), (body,))


def test_an_answer_comes_back_under_its_key_only() -> None:
    cache = AnswerCache(capacity=100_000, largest=50_000)
    assert cache.put(("a", 1), answer(b"one"))
    kept = cache.get(("a", 1))
    assert kept is not None
    assert kept.parts == (b"one",)
    assert cache.get(("a", 2)) is None


def test_only_successes_below_the_limit_are_stored() -> None:
    cache = AnswerCache(capacity=100_000, largest=10_000)
    assert not cache.put("missing", answer(b"x", status=404))
    assert not cache.put("moved", answer(b"x", status=304))
    assert not cache.put("large", answer(b"x" * 10_000))
    assert len(cache) == 0
    assert cache.size == 0


def test_the_bytes_stay_below_the_capacity_and_the_least_recently_used_goes_first() -> None:
    size = bytes_of("a", answer(b"x" * 100))
    cache = AnswerCache(capacity=3 * size, largest=50_000)
    for name in "abc":
        cache.put(name, answer(b"x" * 100))
    assert cache.get("a") is not None
    cache.put("d", answer(b"x" * 100))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.size == cache.capacity


def test_replacing_an_answer_does_not_count_it_twice() -> None:
    cache = AnswerCache(capacity=100_000, largest=50_000)
    for length in (10, 2000, 5):
        cache.put("key", answer(b"x" * length))
    assert cache.size == bytes_of("key", answer(b"x" * 5))


def test_every_text_of_an_entry_counts() -> None:
    small = bytes_of(("key", ("a", ("b",))), answer(b"body"))
    long = "x" * 10_000
    for key, value in (
        (("key", ("a", (long,))), answer(b"body")),
        (("key", ("a", ("b",))), Answer(200, (("Location", long),), (b"body",))),
        (("key", ("a", ("b",))), Answer(200, (), (b"body",), log={"batch": [long]})),
        (("key", ("a", ("b",))), answer(b"x" * 10_000)),
    ):
        assert bytes_of(key, value) >= small + 9_000


def test_requests_with_long_queries_take_no_more_memory_than_the_capacity() -> None:
    capacity = 4 * 1024 * 1024
    cache = AnswerCache(capacity, largest=1024 * 1024)
    fingerprint = Fingerprint(((1, 2, 3, 4),) * 6, 4)
    tracemalloc.start()
    try:
        for number in range(3000):
            query = f"cmd=heads&x={number}" + "x" * 16_000
            header = ("HTTP_X_HGARG_1", f"{number}" + "y" * 8_000)
            inputs = Inputs("team/project", "", query, "https://hg", True, (header,))
            cache.put((inputs, fingerprint, 1), answer(b"0" * 40))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < len(cache) < 200
    assert used < 2 * capacity


def test_a_key_larger_than_the_largest_answer_is_not_stored() -> None:
    cache = AnswerCache(capacity=100_000, largest=10_000)
    assert not cache.put("k" * 10_000, answer(b"x"))
    assert cache.size == 0


def test_many_threads_leave_the_count_right() -> None:
    size = bytes_of(1, answer(b"x" * 10))
    cache = AnswerCache(capacity=50 * size, largest=50_000)

    def work(seed: int) -> None:
        for number in range(500):
            key = 1 + (seed * number) % 97
            if cache.get(key) is None:
                cache.put(key, answer(b"x" * 10))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.size == len(cache) * size
    assert cache.size <= cache.capacity
