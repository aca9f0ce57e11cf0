"""Layer stacks composed by settings, and the same stacks in PyTorch with equal dropout."""
import numpy as np
import oracle
import pytest

PLATONOV = {"layers": 3, "input_layer": True, "output_layer": True, "residual": True,
            "norm": "layer", "activation": "gelu", "ffn": True}
STACKS = {
    "elu": {"activation": "elu", "layers": 3},
    "gelu after dropped features": {"activation": "gelu", "input_dropout": 0.3},
    "batch norm": {"norm": "batch", "layers": 3},
    "batch norm, elu, first and last": {"norm": "batch", "activation": "elu", "input_layer": True,
                                        "output_layer": True, "input_dropout": 0.2},
    "residual": {"residual": True, "layers": 3},
    "residual behind a linear layer": {"residual": True, "norm": "layer", "input_layer": True},
    "residual of A X formed once": {"residual": True, "input_dropout": 0.0, "hidden": 20},
    "platonov": PLATONOV,
    "platonov, batch norm, elu": {**PLATONOV, "norm": "batch", "activation": "elu"},
    "ffn alone": {**PLATONOV, "norm": "none", "residual": False, "activation": "relu"},
    "cat": {"jump": "cat", "output_layer": True, "layers": 3},
    "cat of batch norm": {"jump": "cat", "output_layer": True, "norm": "batch", "residual": True,
                          "input_layer": True, "activation": "gelu"},
    "max": {"jump": "max", "output_layer": True, "layers": 3},
    "max of one layer": {"jump": "max", "output_layer": True, "layers": 1, "input_layer": True,
                         "norm": "layer"},
}
KINDS = {"gcn": {"model": "gcn"}, "sage-mean": {"model": "sage"},
         "sgc": {"model": "sgc", "hops": 3}, "appnp": {"model": "appnp", "hops": 4, "restart": 0.3},
         # heads as in other tests, for every shape of them is compiled
         "gat": {"model": "gat", "heads": 4, "hidden": 12, "attention_dropout": 0.3}}


def of_torch(graph, config, model, initial):
    """Train a stack in PyTorch; return training and validation losses, and the final parameters."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    torch.set_num_threads(1)
    A, X, y = (torch.from_numpy(np.asarray(each)) for each in (
        oracle.normalized(graph, *oracle.MATRIX[model]), oracle.features(graph), graph.labels))
    rows, others = (torch.from_numpy(graph.masks[key]) for key in ("train", "val"))
    running = {name: torch.from_numpy(array.copy()) for name, array in initial.arrays.items()
               if name.startswith(("mean", "variance"))}
    w = {name: torch.tensor(array, requires_grad=True) for name, array in initial.arrays.items()
         if name not in running}
    first = [name for name, v in w.items() if v.ndim == 2 and name.startswith(("W0", "a0"))]
    decayed, rest = ([v for name, v in w.items() if (name in first) == decays]
                     for decays in (True, False))
    optimizer = torch.optim.Adam([{"params": decayed, "weight_decay": config.weight_decay},
                                  {"params": rest}], lr=config.lr)
    own = torch.nn.functional.elu if model == "gat" else torch.relu
    act = {"own": own, "relu": torch.relu, "elu": torch.nn.functional.elu,
           "gelu": torch.nn.functional.gelu}[config.activation]
    hops = config.hops

    def attended(H, n, epoch):
        of_row, of_column = w[f"a{n}_self"], w[f"a{n}_neighbour"]
        x = (H @ w[f"W{n}"]).reshape(len(H), *of_row.shape)
        scores = (x * of_row).sum(-1)[:, None] + (x * of_column).sum(-1)[None]
        scores = torch.nn.functional.leaky_relu(scores, 0.2)
        alpha = torch.softmax(scores.masked_fill((A == 0)[..., None], -torch.inf), 1)
        keep = oracle.attention_keep(w, len(H), n, config, epoch) if epoch else 1
        alpha = alpha * torch.as_tensor(keep)
        found = torch.einsum("ijk,jkf->ikf", alpha, x)
        same = w[f"b{n}"].numel() == of_row.numel()
        return (found.reshape(len(H), -1) if same else found.mean(1)) + w[f"b{n}"]

    def convolved(H, n, epoch):
        if model == "gat":
            return attended(H, n, epoch)
        if model == "sage-mean":
            return H @ w[f"W{n}_self"] + A @ H @ w[f"W{n}_neighbour"] + w[f"b{n}"]
        for _ in range(hops if model == "sgc" else model == "gcn"):
            H = A @ H
        return H @ w[f"W{n}"] + w[f"b{n}"]

    def normed(H, n, training):
        if config.norm == "none":
            return H
        affine = w[f"gain{n}"], w[f"shift{n}"]
        if config.norm == "layer":
            return torch.nn.functional.layer_norm(H, H.shape[1:], *affine)
        return torch.nn.functional.batch_norm(
            H, running[f"mean{n}"], running[f"variance{n}"], *affine, bool(training))

    def logits(epoch):
        def dropped(H, p, key):
            if not epoch:
                return H
            factor = oracle.drop(np.empty(H.shape), p, seed=config.seed, epoch=epoch, layer=key)
            return H * torch.from_numpy(factor)

        p = config.dropout
        H = dropped(X, config.first_dropout, 0)
        if config.input_layer:
            H = dropped(act(H @ w["W0"] + w["b0"]), p, 1)
        found = []
        for n in range(config.input_layer, config.input_layer + config.layers):
            hidden = f"b{n + 1}" in w
            added = 0
            if config.residual:
                added = H @ w[f"W{n}_res"] if f"W{n}_res" in w else H
            if config.ffn:
                Z = dropped(act(convolved(normed(H, n, epoch), n, epoch)), p, 1024 + n)
                H = added + dropped(Z @ w[f"W{n}_ffn"] + w[f"b{n}_ffn"], p, n + 1)
            else:
                H = convolved(H, n, epoch) + added
                if hidden:
                    H = dropped(act(normed(H, n, epoch)), p, n + 1)
            found.append(H)
        if model == "appnp":
            for _ in range(hops):
                H = (1 - config.restart) * A @ H + config.restart * found[-1]
        if not config.output_layer:
            return H
        n += 1
        if config.jump == "cat":
            W = torch.cat([w[f"W{n}_{part}"] for part in range(len(found))])
            return torch.cat(found, 1) @ W + w[f"b{n}"]
        if config.jump == "max":
            H = found[0]
            for each in found[1:]:
                H = torch.where(each > H, each, H)
        return (normed(H, n, epoch) if config.ffn else H) @ w[f"W{n}"] + w[f"b{n}"]

    loss_of = torch.nn.CrossEntropyLoss()
    losses = []
    for epoch in range(1, config.epochs + 1):
        optimizer.zero_grad()
        loss = loss_of(logits(epoch)[rows], y[rows])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            losses.append((loss.item(), loss_of(logits(0)[others], y[others]).item()))
    return np.array(losses).T, {name: v.detach().numpy() for name, v in (w | running).items()}
