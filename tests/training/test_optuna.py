"""Optuna drives `hpgcn.train`: values are drawn, and a callback prunes a trial."""
import pytest
from graphs import make

import hpgcn

optuna = pytest.importorskip("optuna")


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trial_is_pruned_by_the_callback(ranks):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    graph = make(n=120)
    ended = []

    def objective(trial):
        lr = trial.suggest_categorical("lr", [0.05, 0.0])
        reported = []

        def prune(metrics):
            trial.report(metrics["loss"], metrics["epoch"])
            reported.append(metrics["epoch"])
            return trial.should_prune()

        result = hpgcn.train(graph, hpgcn.Config(lr=lr, dropout=0.0, epochs=20), ranks=ranks,
                             callbacks=[prune])
        ended.append((lr, result["epochs"], reported[-1]))
        if trial.should_prune():
            raise optuna.TrialPruned
        return result.history[-1]["loss"]

    study = optuna.create_study(
        direction="minimize", sampler=optuna.samplers.GridSampler({"lr": [0.05, 0.0]}, seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=5))
    study.enqueue_trial({"lr": 0.05})
    study.enqueue_trial({"lr": 0.0})
    study.optimize(objective, n_trials=2)
    assert study.best_params == {"lr": 0.05}
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED"]
    assert ended[0] == (0.05, 20, 20)
    assert ended[1][1] == ended[1][2] < 20
