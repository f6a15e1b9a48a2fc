"""Import order as a graph: opposites, cycles in words, and an order that keeps its word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudaguard.core.decide import Before, in_order, without_opposites

EDGES = st.lists(
    st.builds(
        Before,
        st.sampled_from("abcdef"),
        st.sampled_from("abcdef"),
        st.sampled_from(["R1", "R2", "R3"]),
        st.tuples(st.integers(0, 2), st.integers(0, 1)),
    ),
    max_size=14,
)


@given(EDGES)
def test_order_keeps_every_edge_it_says_it_keeps_and_tells_of_the_others(edges):
    order, honored, problems = in_order(edges)
    assert len(order) == len(set(order))
    assert {e.then for e in honored} | {e.first for e in honored} == set(order)
    for e in honored:
        assert order.index(e.first) < order.index(e.then)
    dropped = [e for e in edges if e not in honored]
    assert bool(dropped) == bool(problems)
    words = "; ".join(problems)
    for e in dropped:
        assert f"{e.rule} wants {e.first} before {e.then}" in words
    assert all(e in edges for e in honored)


@given(st.permutations("abcde"), st.integers(1, 5), st.randoms(use_true_random=False))
def test_cycle_has_one_wording_whatever_the_order_of_the_edges(names, length, random):
    ring = names[:length]
    edges = [Before(x, y, f"{r}{x}") for x, y in zip(ring, [*ring[1:], ring[0]]) for r in "SR"]
    _, _, (problem,) = in_order(edges)
    random.shuffle(edges)
    assert in_order(edges)[1:] == ([], [problem])
    assert problem.startswith(f"R{min(ring)} wants ")


# --- opposites ------------------------------------------------------------------------------


@given(EDGES)
def test_no_opposites_of_different_rank_are_left_and_nothing_else_is_dropped(edges):
    kept = without_opposites(edges)
    best = {}
    for e in edges:
        best[e.first, e.then] = max(best.get((e.first, e.then), e.rank), e.rank)
    for e in edges:
        beaten = best.get((e.then, e.first), e.rank) > best[e.first, e.then]
        assert (e in kept) != beaten
