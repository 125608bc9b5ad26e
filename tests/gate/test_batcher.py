"""A thread that does waiting jobs in batches."""

from threading import Event, Thread

from transcendent.gate.batcher import Batcher


class Slow:
    """Work that waits until it is released, and records its jobs."""

    def __init__(self):
        self.calls, self.begun, self.go = [], Event(), Event()

    def __call__(self, jobs):
        self.calls.append(jobs)
        self.begun.set()
        assert self.go.wait(10)


def held_up(most=10, size=lambda job: job):
    """A worker that is busy with a job of size 1."""
    slow = Slow()
    together = Batcher(slow, size, most, "test")
    together.put([1])
    assert slow.begun.wait(10)
    return slow, together


def test_all_jobs_are_done_once_and_those_of_a_sender_in_order():
    done = []
    together = Batcher(done.extend, lambda _: 1, 7, "test")
    threads = [
        Thread(target=lambda s=sender: [together.put([(s, i)]) for i in range(500)]) for sender in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together.close()
    assert sorted(done) == [(sender, i) for sender in range(8) for i in range(500)]
    for sender in range(8):
        assert [i for s, i in done if s == sender] == list(range(500))


def test_jobs_that_came_meanwhile_are_done_in_one_call():
    slow, together = held_up()
    for job in (2, 3, 4):
        together.put([job])
    assert together.waiting == 9
    slow.go.set()
    together.close()
    assert slow.calls == [[1], [2, 3, 4]]
    assert together.waiting == 0


def test_a_batch_is_at_most_as_large_as_the_limit():
    slow, together = held_up()
    together.put([4, 4, 4, 2, 2, 9])
    slow.go.set()
    together.close()
    assert slow.calls == [[1], [4, 4], [4, 2, 2], [9]]


def test_a_single_job_may_be_larger():
    slow, together = held_up()
    together.put([3, 50, 3])
    slow.go.set()
    together.close()
    assert slow.calls == [[1], [3], [50], [3]]


def test_jobs_without_size_are_done_too():
    slow, together = held_up(size=lambda _: 0)
    together.put([0, 0])
    slow.go.set()
    together.close()
    assert slow.calls == [[1], [0, 0]]


def test_an_empty_list_of_jobs_does_nothing():
    slow, together = held_up()
    together.put([])
    slow.go.set()
    together.close()
    assert slow.calls == [[1]]


def test_close_finishes_waiting_jobs():
    slow, together = held_up()
    together.put([10, 10, 10])
    closing = Thread(target=together.close)
    closing.start()
    assert together.alive
    slow.go.set()
    closing.join(10)
    assert not closing.is_alive()
    assert not together.alive
    assert slow.calls == [[1], [10], [10], [10]]


def test_close_ends_a_thread_that_has_nothing_to_do():
    together = Batcher(lambda _: None, len, 1, "test")
    assert together.alive
    together.close()
    assert not together.alive
