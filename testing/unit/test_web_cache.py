from __future__ import annotations

import threading

from hgfleet.web.cache import OVERHEAD, Answer, AnswerCache


def answer(body: bytes, status: int = 200) -> Answer:
    return Answer(status, (), (body,))


def test_an_answer_comes_back_under_its_key_only() -> None:
    cache = AnswerCache(capacity=100_000, largest=50_000)
    assert cache.put(("a", 1), answer(b"one"))
    found = cache.get(("a", 1))
    assert found is not None
    assert found.parts == (b"one",)
    assert cache.get(("a", 2)) is None


def test_only_successes_below_the_limit_are_stored() -> None:
    cache = AnswerCache(capacity=100_000, largest=10_000)
    assert not cache.put("missing", answer(b"x", status=404))
    assert not cache.put("moved", answer(b"x", status=304))
    assert not cache.put("large", answer(b"x" * 10_000))
    assert len(cache) == 0
    assert cache.size == 0


def test_the_bytes_stay_below_the_capacity_and_the_least_recently_used_goes_first() -> None:
    cache = AnswerCache(capacity=3 * (OVERHEAD + 100), largest=50_000)
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
    assert cache.size == OVERHEAD + 5


def test_many_threads_leave_the_count_right() -> None:
    cache = AnswerCache(capacity=50 * (OVERHEAD + 10), largest=50_000)

    def work(seed: int) -> None:
        for number in range(500):
            key = (seed * number) % 97
            if cache.get(key) is None:
                cache.put(key, answer(b"x" * 10))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.size == len(cache) * (OVERHEAD + 10)
    assert cache.size <= cache.capacity
