import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m2ac.algorithms.phases import store
from m2ac.replay import (
    add_imagined,
    add_real,
    empty_imagined,
    empty_real,
    grow_real,
    sample_batches,
    sample_obs,
    slots_used,
)
from m2ac.types import Transition

KEY = jax.random.key(3)


def rows(numbers) -> Transition:
    """Transitions that carry their number everywhere."""
    n = jnp.array(numbers, dtype=jnp.float32)
    return Transition(n[..., None], -n[..., None], n, n[..., None] + 0.5, n % 2 == 1)


def real_with(numbers, capacity=8):
    real = empty_real(capacity, 1, 1)
    return add_real(real, rows(numbers), jnp.int32(len(numbers)))


def test_rows_are_stored_whole_and_in_order():
    real = real_with([3, 4, 5])
    np.testing.assert_array_equal(real.rows.obs[:3, 0], [3, 4, 5])
    np.testing.assert_array_equal(real.rows.action[:3, 0], [-3, -4, -5])
    np.testing.assert_array_equal(real.rows.next_obs[:3, 0], [3.5, 4.5, 5.5])
    np.testing.assert_array_equal(real.rows.terminated[:3], [True, False, True])
    assert int(real.size) == int(real.cursor) == 3


def test_only_the_first_count_rows_are_stored():
    real = add_real(empty_real(8, 1, 1), rows([1, 2, 9, 9]), jnp.int32(2))
    np.testing.assert_array_equal(real.rows.reward, [1, 2, 0, 0, 0, 0, 0, 0])
    assert int(real.size) == 2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_the_ring_holds_the_newest_rows(chunks):
    real, written = empty_real(7, 1, 1), []
    for chunk in chunks:
        new = list(range(len(written), len(written) + chunk))
        real = add_real(real, rows(new + [99] * (5 - chunk)), jnp.int32(chunk))
        written += new
    held = np.asarray(real.rows.reward)[: int(real.size)]
    assert sorted(held.tolist()) == written[-7:]


@pytest.mark.parametrize("first", [[0, 1], [0, 1, 2], [8, 9, 0, 1, 2]])
def test_growing_keeps_the_rows_in_order_and_goes_on_behind_them(first):
    real = empty_real(3, 1, 1)
    for number in first:
        real = add_real(real, rows([number]), jnp.int32(1))
    real = jax.jit(add_real, donate_argnums=0)(grow_real(real, 6, slots=12), rows([7]), jnp.int32(1))
    kept = [*first[-3:], 7]
    np.testing.assert_array_equal(real.rows.reward, kept + [0] * (6 - len(kept)))
    assert int(real.size) == int(real.cursor) == len(kept)


class Steps:
    """Episodes of given lengths, some of which begin where the last one ended, as rows to store and as a record."""

    def __init__(self, lengths):
        self.obs, self.next_obs, position = [], [], 0
        for length in lengths:
            position += 1 if length % 2 else 0  # an even episode begins in the state that the last one ended in
            for _ in range(length):
                self.obs.append(position)
                self.next_obs.append(position := position + 1)

    def rows(self, start, count, room):
        def padded(values):
            return np.pad(np.array(values[start : start + count], np.float32), (0, room - count))[:, None]

        obs, next_obs = padded(self.obs), padded(self.next_obs)
        return Transition(obs, -obs, obs[:, 0], next_obs, obs[:, 0] % 2 == 1)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([2, 9, 300]),
    st.lists(st.sampled_from([1, 1, 1, 2, 3, 30, 200]), min_size=1, max_size=400),
    st.sampled_from([1, 7, 50]),
)
def test_observations_are_held_once_and_every_row_finds_both_of_its_own(capacity, lengths, block):
    steps, real, done = Steps(lengths), empty_real(capacity, 1, 1), 0
    room = min(block, capacity)
    while done < min(len(steps.obs), 3 * capacity):
        count = min(room, len(steps.obs) - done)
        real = store(real, steps.rows(done, count, room), count)
        done += count
        held = range(max(0, done - capacity), done)
        index = np.array([i % capacity for i in held])
        taken = jax.tree.map(lambda x, index=index: np.asarray(x)[index], real.rows)
        np.testing.assert_array_equal(taken.obs[:, 0], [steps.obs[i] for i in held])
        np.testing.assert_array_equal(taken.next_obs[:, 0], [steps.next_obs[i] for i in held])
        np.testing.assert_array_equal(taken.reward, taken.obs[:, 0])
        breaks = sum(steps.obs[i] != steps.next_obs[i - 1] for i in list(held)[1:])
        assert int(slots_used(real)) == len(held) + breaks + 1


def test_zero_and_minus_zero_are_two_observations():
    pair = Transition(*(jnp.array(x, jnp.float32) for x in ([[1], [-0.0]], [[0], [0]], [0, 0], [[0.0], [2]], [0, 0])))
    pair = pair._replace(terminated=pair.terminated > 0)
    real = add_real(empty_real(4, 1, 1), pair, jnp.int32(2))
    np.testing.assert_array_equal(np.signbit(real.rows.obs[1]), [True])
    assert int(slots_used(real)) == 4


def test_start_states_are_drawn_from_the_stored_rows_alone():
    obs = np.asarray(sample_obs(real_with([3, 4, 5]), 600, key=KEY))[:, 0]
    assert set(obs) == {3, 4, 5}
    assert all(150 < (obs == n).sum() < 250 for n in (3, 4, 5))


def phase(first, keep):
    keep = jnp.array(keep)
    return rows(first + np.arange(keep.size).reshape(keep.shape)), keep


def test_the_kept_rows_of_a_rectangle_are_packed_in_order():
    imagined = add_imagined(empty_imagined(2, 3, 1, 1), *phase(10, [[True, False], [True, True]]))
    np.testing.assert_array_equal(imagined.rows.reward[:3], [10, 12, 13])
    np.testing.assert_array_equal(imagined.counts, [3, 0])


def test_an_old_phase_leaves_when_its_time_is_over_however_few_rows_the_others_kept():
    imagined = empty_imagined(2, 2, 1, 1)
    imagined = add_imagined(imagined, *phase(10, [[True, True]]))
    imagined = add_imagined(imagined, *phase(20, [[False, False]]))
    imagined = add_imagined(imagined, *phase(30, [[False, True]]))
    np.testing.assert_array_equal(imagined.counts, [1, 0])
    batch = sample_batches(real_with([1]), imagined, batches=1, batch_size=50, real_share=0.0, key=KEY)
    assert set(np.asarray(batch.reward).ravel()) == {31}


def mixed(real_share, batches=40):
    imagined = empty_imagined(3, 4, 1, 1)
    imagined = add_imagined(imagined, *phase(100, [[True, False, True, True]]))
    imagined = add_imagined(imagined, *phase(200, [[False, True, False, False]]))
    real = real_with([1, 2, 3, 4])
    return np.asarray(
        sample_batches(real, imagined, batches=batches, batch_size=256, real_share=real_share, key=KEY).reward
    )


def test_every_batch_of_256_has_12_real_rows():
    batches = mixed(0.05)
    assert ((batches < 100).sum(axis=1) == 12).all()


@pytest.mark.parametrize(("share", "real"), [(0.0, 0), (0.29, 74), (0.5, 128), (1.0, 256)])
def test_the_real_share_is_exact_in_every_batch(share, real):
    assert ((mixed(share, batches=3) < 100).sum(axis=1) == real).all()


def test_imagined_rows_are_drawn_evenly_over_the_phases():
    drawn = mixed(0.0)
    assert set(drawn.ravel()) == {100, 102, 103, 201}
    assert all(abs((drawn == n).mean() - 0.25) < 0.02 for n in (100, 102, 103, 201))


def test_the_union_is_drawn_evenly_over_both_buffers():
    drawn = mixed("union")
    assert all(abs((drawn == n).mean() - 1 / 8) < 0.02 for n in (1, 2, 3, 4, 100, 102, 103, 201))


@pytest.mark.parametrize("real_share", [0.05, "union"])
def test_with_nothing_imagined_batches_equal_those_without_an_imagined_buffer(real_share):
    real = real_with([1, 2, 3])
    settings = {"batches": 3, "batch_size": 16, "real_share": real_share, "key": KEY}
    empty = sample_batches(real, empty_imagined(2, 5, 1, 1), **settings)
    none = sample_batches(real, None, **settings)
    jax.tree.map(np.testing.assert_array_equal, empty, none)
