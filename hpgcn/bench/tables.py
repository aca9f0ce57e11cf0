"""Reports of `hpgcn bench` as aligned text."""
from __future__ import annotations

UNITS = {  # end of a key: divisor, unit, format
    "bytes_per_s": (1e9, "GB/s", ".1f"), "flops_per_s": (1e9, "GFLOP/s", ".1f"), "bytes": (1e6, "MB", ",.2f"),
    "_ms": (1, "ms", ",.3f"), "_ns": (1, "ns", ".2f"), "ratio": (1, "", ".2f"),
    "_s": (1, "s", ".4g"), "_error": (1, "", ".1e")}
SHARE = (0.01, "%", ".0f")
HIDDEN = ("caches", "versions", "epochs", "traffic_ms")


def format_report(report):
    """Return the text of a report of hpgcn.bench.run: what the machine is and can do, then a table of the rows."""
    lines = pairs({**report["machine"], **report.get("limits", {})})
    for cache in report["machine"]["caches"]:
        lines.append(f"{'cache level ' + str(cache['level']):<30}{cache['instances']} x {cache['size_bytes']:,} bytes, "
                     f"{cache['type'].lower()}, lines of {cache['line_bytes']} bytes")
    if report["bench"] == "machine":
        versions = report["machine"]["versions"].items()
        lines.append(f"{'versions':<30}" + ", ".join(f"{name} {version}" for name, version in versions))
    if report.get("rows"):
        lines += ["", *aligned(report["rows"])]
    if report.get("absent"):
        lines += ["", *(f"without {name}: {reason}" for name, reason in report["absent"].items())]
    return "\n".join(lines)


def pairs(values):
    """A line for each entry of a dict."""
    lines = []
    for key, value in values.items():
        if key not in HIDDEN:
            lines.append(f"{plain(key):<30}{cell(key, value)} {measure_of(key)[1]}".rstrip())
    return lines


def aligned(rows):
    """A heading with units and a line for each row; text to the left, numbers to the right."""
    keys = [key for key in rows[0] if key not in HIDDEN]
    units = [measure_of(key)[1] for key in keys]
    grid = [[plain(key) for key in keys], units, *([cell(key, row[key]) for key in keys] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*grid)]
    text = [isinstance(rows[0][key], str) for key in keys]
    return ["  ".join(word.ljust(width) if left else word.rjust(width)
                      for word, width, left in zip(line, widths, text)).rstrip() for line in grid]


def measure_of(key):
    """(divisor, unit, format) of a key; no unit for a plain number or text."""
    if "share" in key:
        return SHARE
    return next((found for end, found in UNITS.items() if key.endswith(end)), (1, "", ""))


def plain(key):
    """Key in words, without what its unit says."""
    for end in ("_per_s", "_ms", "_ns", "_s"):
        key = key.removesuffix(end)
    return key.replace("_", " ")


def cell(key, value):
    """A value as text, in the unit of its key."""
    divisor, _, style = measure_of(key)
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, str):
        return value
    return format(value / divisor, style) if style else f"{value:,}"
