"""Format reports of `hpgcn bench` as aligned text."""

from hpgcn.runtime.text_table import label_list, table

UNITS = {  # end of a key: divisor, unit, format
    "_share": (0.01, "%", ".0f"), "_acc": (0.01, "%", ".2f"), "bytes_per_s": (1e9, "GB/s", ".4g"),
    "numbers_per_s": (1e6, "M/s", ",.0f"), "flops_per_s": (1e9, "GFLOP/s", ".1f"),
    "bytes": (1e6, "MB", ",.2f"),
    "_ms": (1, "ms", ",.3f"), "_ns": (1, "ns", ".2f"), "ratio": (1, "", ".2f"),
    "_loss": (1, "", ".5f"),
    "_s": (1, "s", ".4g"), "_error": (1, "", ".1e")}
HIDDEN = ("caches", "versions", "epochs", "peer_ratios")


def format_report(report):
    """Return a report of `hpgcn bench` as text: machine, limits, then rows."""
    machine = report["machine"]
    pairs = labeled(machine | report.get("limits", {}))
    for cache in machine["caches"]:
        text = (f"{cache['instances']} x {cache['size_bytes']:,} bytes, {cache['type'].lower()}, "
                f"lines of {cache['line_bytes']} bytes")
        pairs.append((f"cache level {cache['level']}", text))
    if report["bench"] == "machine":
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        pairs.append(("versions", versions))

    for tier in ("network", "within_node", "disk", "pcie"):
        pairs += labeled({f"{tier}_{key}": number for key, number in report.get(tier, {}).items()})
    if "rates" in report:
        counts = " and ".join(str(rates["ranks"]) for rates in report["rates"])
        pairs.append(("kernels", f"{len(report['rates'][0]['rows'])} timed on {counts} ranks side "
                                 "by side; --json has them, for `hpgcn plan --machine`"))

    for name, factors in report.get("steps", {}).items():
        pairs.append((f"steps of {name}", ", ".join(
            f"{key} {factor:.2f}" for key, factor in factors.items()) + " times the forecast"))

    parts = [label_list(pairs, 28)]
    if report.get("rows"):
        parts.append(aligned(report["rows"]))
    parts += [f"{word}: {report[word]}" for word in ("kept", "removed") if word in report]
    return "\n\n".join(parts)


def labeled(values):
    """Return a pair (label, value with its unit) for each entry of a dict."""
    return [(plain(key), f"{cell(key, value)} {measure_of(key)[1]}".rstrip())
            for key, value in values.items() if key not in HIDDEN]


def aligned(rows):
    """Return measured rows as an aligned table with headings and units.

    Text is aligned left, numbers right.
    """
    keys = [key for key in rows[0] if key not in HIDDEN]
    text = [column for column, key in enumerate(keys) if isinstance(rows[0][key], str)]
    heading = [[plain(key) for key in keys], [measure_of(key)[1] for key in keys]]
    return table([*heading, *([cell(key, row[key]) for key in keys] for row in rows)], left=text,
                 keys=next((place for place in range(len(keys)) if place not in text), 0))


def measure_of(key):
    """Return the divisor, the unit and the number format for a key of a report.

    Plain values have no unit.
    """
    if key.startswith("share_of"):
        key = "_share"
    return next((unit for end, unit in UNITS.items() if key.endswith(end)), (1, "", ""))


def plain(key):
    """Return the key of a report as words, without the unit at its end."""
    for end in ("_per_s", "_ms", "_ns", "_s"):
        key = key.removesuffix(end)
    return key.replace("_", " ")


def cell(key, value):
    divisor, _, style = measure_of(key)
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, str):
        return value
    return format(value / divisor, style) if style else f"{value:,}"
