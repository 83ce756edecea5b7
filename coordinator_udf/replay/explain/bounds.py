"""How far the search for an order may go: settings with measured defaults."""

from __future__ import annotations

from typing import NamedTuple


class Bounds(NamedTuple):
    """Bounds of the search.

    Measured with three logs that are explained wholly (random walks, a broker's restarts, both under load): with
    each bound alone at half and at double all answers are explained as well, in 1.8 to 2.7 s of CPU; as they are, in
    2.3 s. Of two more, of busy machines, up to ``tries_at_first``: the same in 2.9 to 3.8 s and 3.6 s, but that with
    ``late_ms`` doubled one answer finds no explanation. Where answers stay unexplained, the tries that there are
    are spent.

    Attributes:
        handover_ms: how long the coordinator may take to get to a request that then waits for others.
        late_ms: how late a timer may fire, and what happens to a shard.
        news_ms: how long after its first answers a shard may hear of topics that came before these.
        back: how many steps before a difference the windows begin that are searched, one after the other.
        ahead: how many steps behind a difference an order has to explain before it is taken.
        changes: how many steps at most may be other than usual in one window.
        tries: how many steps may be tried for one difference.
        tries_at_first: how many for few changes from one of those steps, before there are more.
        tries_a_step: how many in vain for a group, by the number of its steps, and as many more for each step that it
            has gone: this keeps the cost linear, and what is spent on one stretch is there again after a while.
        tries_of_follow_ups: as ``tries``, shortly after a difference that nothing explains.
        confirm: after so many answers that agree a group counts as right again.
        candidates: how many requests are looked at for what came next.
        keep_every: of how many steps one leaves a snapshot.
        rebase_ahead: how many steps behind an answer that nothing explains a state is judged by that it may go on from.
        rebase_candidates: how many such states are tried.
        rebase_glance: so many steps of those are walked first with each.
        rebase_finalists: with so many of them, those with which the fewest answers differ then, all are walked.
        rebase_steps: how many steps may be walked in vain for them in a group, by the number of steps that it has gone.
        rebase_brief: how many states are tried, for the steps of a glance, once that many were walked: else all answers
            of a group that parted would differ.
        patience: after so many answers in a row that nothing explained, or for which no state was found, some are
            looked at less closely.
        loaded_differing: how many answers may differ in the usual order with a state that a broker may have loaded,
            for other orders to be looked at.
        loaded_candidates: with how many such states they are.
        points_far_back: how many snapshots are kept from before the widest window, ever fewer the older they are.
    """

    handover_ms: int = 100
    late_ms: int = 250
    news_ms: int = 1_000
    back: tuple[int, ...] = (4, 16, 48)
    ahead: int = 16
    changes: int = 4
    tries: int = 2_000
    tries_at_first: int = 128
    tries_a_step: int = 4
    tries_of_follow_ups: int = 100
    confirm: int = 24
    candidates: int = 6
    keep_every: int = 8
    rebase_ahead: int = 64
    rebase_candidates: int = 100
    rebase_glance: int = 16
    rebase_finalists: int = 8
    rebase_steps: int = 100
    rebase_brief: int = 4
    patience: int = 8
    loaded_differing: int = 8
    loaded_candidates: int = 4
    points_far_back: int = 40

    def is_patient(self, fruitless: int) -> bool:
        """Returns whether what comes after so many in a row that were looked at in vain is looked at as closely.

        Then the second, fourth, eighth … of them is: no order makes up for other settings than the broker had.
        """
        return fruitless < self.patience or not fruitless & (fruitless - 1)
