"""Metrics of links on several ranks against scikit-learn and the definitions of OGB."""
import numpy as np
import pytest

from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.errors import UsageError
from hpgcn.model.link_metrics import (
    auc,
    average_precision,
    hits,
    link_metric,
    mrr,
    ranks_among,
    share_out,
)

RANKS = (1, 2, 3, 5)
RNG = np.random.default_rng(0)


def tied(size):
    return RNG.integers(0, 6, size) / 4 - .5


CASES = {
    "random": (RNG.normal(.5, 1, 230), RNG.normal(size=310)),
    "float32": (RNG.normal(.5, 1, 50).astype(np.float32), RNG.normal(size=70).astype(np.float32)),
    "ties": (tied(120), tied(300)),
    "all equal": (np.zeros(40), np.full(33, -0.)),
    "one positive": (np.array([.2]), tied(50)),
    "few": (np.array([1., 2.]), np.array([1.5])),
    "infinite": (np.array([np.inf, 0., -np.inf]), np.array([-np.inf, 1., np.inf])),
    "perfect": (np.arange(10.) + 20, np.arange(10.)),
    "reversed": (np.arange(10.), np.arange(10.) + 20),
}


def of_rank(array, rank, ranks):
    """Return the part of a rank; rank 1 has none."""
    owner = np.arange(len(array)) * 7 % 11 % ranks
    owner[owner == 1] = 0
    return array[owner == rank]


def on_all(metric, positive, negative):
    """Return the value of a metric, which must have the same bits on all numbers of ranks."""
    found = set()
    for ranks in RANKS:
        def compute(comm, ranks=ranks):
            comm = as_comm(comm)
            return metric(comm, *(of_rank(each, comm.rank, ranks) for each in (positive, negative)))

        found.update([compute(SerialComm())] if ranks == 1 else run_on_ranks(compute, ranks))
    value, = found
    return value


@pytest.mark.parametrize("case", CASES)
def test_curves_are_those_of_scikit_learn(case):
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs pip install '.[demo]'")
    positive, negative = CASES[case]
    truth = np.repeat([1, 0], [positive.size, negative.size])
    score = np.concatenate([positive, negative])
    if case == "infinite":  # refused by scikit-learn
        score = np.clip(score, -9, 9)
    for metric, reference in ((auc, sklearn.roc_auc_score),
                              (average_precision, sklearn.average_precision_score)):
        assert on_all(metric, positive, negative) == pytest.approx(reference(truth, score),
                                                                   rel=1e-14)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 2, 20, 50, 1000])
def test_hits_of_shared_negatives(case, k):
    positive, negative = CASES[case]
    kth = np.sort(negative)[-k] if negative.size >= k else None
    expected = 1.0 if kth is None else np.mean([score > kth for score in positive])
    assert on_all(link_metric(f"hits@{k}"), positive, negative) == expected


@pytest.mark.parametrize("case", CASES)
def test_reciprocal_ranks_among_shared_negatives(case):
    positive, negative = CASES[case]
    ranks = [.5 * ((negative > score).sum() + (negative >= score).sum()) + 1 for score in positive]
    assert on_all(mrr, positive, negative) == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-14)


@pytest.mark.parametrize("positive, negative", [
    (RNG.normal(.5, 1, 60), RNG.normal(size=(60, 9))), (tied(60), tied((60, 20))),
    (np.zeros(9), np.zeros((9, 4))), (np.zeros(3), np.zeros((3, 0)))])
def test_negatives_of_each_link(positive, negative):
    ranks = []
    for score, others in zip(positive, negative):
        optimistic = sum(other > score for other in others)
        pessimistic = sum(other >= score for other in others)
        ranks.append((optimistic + pessimistic) / 2 + 1)
    np.testing.assert_array_equal(ranks_among(positive, negative), ranks)
    assert on_all(mrr, positive, negative) == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-14)
    for k in (1, 3, 10):
        assert on_all(link_metric(f"hits@{k}"), positive, negative) == np.mean(np.array(ranks) <= k)


def test_without_pairs():
    none, some = np.empty(0), np.ones(4)
    for metric in (auc, average_precision, mrr, link_metric("hits@2")):
        assert on_all(metric, none, some) is None
    assert on_all(auc, some, none) is None
    assert on_all(mrr, some, none) == on_all(link_metric("hits@1"), some, none) == 1


def test_scores_that_are_no_numbers():
    for metric in (auc, average_precision, mrr):
        assert np.isnan(metric(SerialComm(), np.array([np.nan, 1.]), np.ones(3)))


def test_scores_are_shared_out():
    positive, negative = RNG.normal(size=(2, 3000))

    def sizes(comm):
        comm = as_comm(comm)
        part = [each[comm.rank::comm.size] for each in (positive, negative)]
        scores = share_out(comm, *part)
        return scores.values.size, share_out(comm, *(np.round(each) for each in part)).values.size

    distinct, rounded = np.array(run_on_ranks(sizes, 5)).T
    assert distinct.sum() == 6000 and distinct.max() < 2 * 6000 / 5
    assert rounded.sum() < 12


@pytest.mark.parametrize("name", ["accuracy", "hits@", "hits@0", "hits@-1", "hits@1.5",
                                  "hits@9999999999"])
def test_other_metrics_are_refused(name):
    with pytest.raises(UsageError, match="expected auc, ap, mrr or hits@K"):
        link_metric(name)
    assert hits is link_metric("hits@3").func
