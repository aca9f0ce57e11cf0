"""Words of settings, and settings of earlier versions that are such words now."""
from __future__ import annotations

import dataclasses
import functools
import logging
import re
from dataclasses import dataclass

from hpgcn.errors import UsageError, assigned, suggestion
from hpgcn.runtime.text_table import percent
from hpgcn.setting_field import KINDS, checked, setting

SCHEDULES = ("constant", "cosine", "step")
STEPS = ("step_every", "step_factor")  # words of the schedule step
MAX_DELAY = 100  # steps
LOSSES = ("mse", "mae", "huber")  # losses of targets
LABEL_METRICS = ("accuracy", "micro-f1", "macro-f1", "roc-auc")  # shares
TARGET_METRICS = ("rmse", "mae", "r2")  # numbers
LINK_METRICS = ("auc", "ap", "mrr")  # shares, of links; also hits@K
LINK_METRIC = re.compile("auc|ap|mrr|hits@[1-9][0-9]{0,6}")
DECODERS = {"dot": 0, "hadamard": 3, "distmult": 0}  # decoders of links, and their layers
ERRORS = ("rmse", "mae")  # metrics of which the lowest is the best
# what `shortcuts` = False sets
NO_SHORTCUTS = {"precompute": False, "masked_products": "never", "prune": False}

log = logging.getLogger("hpgcn")


@dataclass(frozen=True)
class SettingWords:
    """Words of settings, such as the grid in 2d:4x2; `help` names the setting of each.

    Earlier versions had a setting for each word. Its flag, its key in TOML files and its
    keyword are still read.
    """

    grid: str = setting("", "strategy")
    replication: int = setting(0, "strategy", low=0)
    balance: float = setting(0.05, "strategy", low=0)
    pipeline_batches: int = setting(0, "strategy", low=0)
    delay_variant: str = setting("own", "delay", choices=("own", "paper"))
    step_every: int = setting(100, "schedule", low=1)
    step_factor: float = setting(0.1, "schedule", low=0, high=1)
    layer_norm: bool = setting(False, "norm")


WORDS = {entry.name: entry for entry in dataclasses.fields(SettingWords)}
OF_STRATEGY = [name for name, entry in WORDS.items() if entry.metadata["help"] == "strategy"]


def score(value: object, metric: object) -> str:
    """Return the value of a metric as text, in percent unless it is of targets."""
    if metric not in TARGET_METRICS:
        return percent(value)
    return f"{value:.5g}" if isinstance(value, int | float) else "none"


def translated(settings, present):
    """Return settings with those of earlier versions as words of the `present` ones.

    One line in the log names the present setting. `strategy` keeps the names of its words,
    as in 2d:grid=4x2, because they are declared by strategies.
    """
    found = {name: value for name, value in settings.items() if name not in WORDS}
    for name, entry in WORDS.items():
        value = checked(entry, settings.get(name, entry.default))
        if value != entry.default:
            target = entry.metadata["help"]
            text = checked(present[target], found.get(target, present[target].default))
            now = found[target] = _with_word(text, name, value)
            # the default strategy takes no words: a refusal follows
            if now != text and (target != "strategy" or text != present[target].default):
                now = assigned(target, now.replace(f"{name}=", ""))
                _log_once(f"{assigned(name, value)}: now written {now}")

    # single shortcuts, unless the settings are those of a whole Config
    off = [assigned(name, value) for name, value in NO_SHORTCUTS.items()
           if settings.get(name) == value and "shortcuts" not in settings]
    if off:
        _log_once(f"{', '.join(off)}: {assigned('shortcuts', False)} turns off all that do not "
                  "change results")
    return found


@functools.cache
def _log_once(text):
    log.warning("%s", text)


def _with_word(text, name, value):
    """Return the text of a setting with the value of one of WORDS."""
    if name == "layer_norm":
        if text == "batch":
            raise UsageError(f"{assigned(name, value)}: excludes {assigned('norm', text)}")
        return "layer"
    if name == "delay_variant":
        return f"{value}:{text.removeprefix('paper:')}"
    if WORDS[name].metadata["help"] == "strategy":
        return f"{text}:{name}={value}"
    words = [*parse_schedule(text)]
    words[1 + STEPS.index(name)] = value
    return _schedule(*words)


def parse_schedule(text):
    """Return the kind of a schedule, the epochs between two of its steps, and their factor."""
    kind, *words = text.split(":")
    if kind not in SCHEDULES or len(words) > len(STEPS) * (kind == "step"):
        raise UsageError(f"{assigned('schedule', text)}: expected one of "
                         f"{', '.join(SCHEDULES)}{suggestion(kind, SCHEDULES)}")
    given = dict(zip(STEPS, words))
    return kind, *(word_value(name, given[name], text) if name in given else WORDS[name].default
                   for name in STEPS)


def word_value(name, word, text):
    """Return the value of a word, one of WORDS, in the text of its setting."""
    entry = WORDS[name]
    where = assigned(entry.metadata["help"], text)
    expected = f"expected {entry.type}"
    try:
        return checked(entry, KINDS[entry.type](word))
    except (ValueError, UsageError) as error:
        if isinstance(error, UsageError):
            expected = str(error).rpartition(": ")[2]
        raise UsageError(f"{where}: {word!r:.80}: {expected}") from error


def checked_schedule(text):
    """Return the setting `schedule` with all of its words."""
    return _schedule(*parse_schedule(text))


def _schedule(kind, every, factor):
    return f"{kind}:{every}:{factor}" if kind == "step" else kind


def checked_batch(text):
    """Return the setting `batch`; earlier versions spelled a sampler `neighbours`."""
    return re.sub("^neighbours:", "neighbors:", text)


def checked_metric(text):
    """Return the setting `metric`, the name of a metric or hits@K."""
    known = ("auto", *LABEL_METRICS, *TARGET_METRICS, *LINK_METRICS)
    if text not in known and not LINK_METRIC.fullmatch(text):
        raise UsageError(f"{assigned('metric', text)}: expected {', '.join(known)} or hits@K"
                         f"{suggestion(text, known)}")
    return text


def parse_decoder(text):
    """Return the name and the number of layers of a setting `decoder`, such as hadamard:2."""
    name, colon, number = text.partition(":")
    if name not in DECODERS:
        raise UsageError(f"{assigned('decoder', text)}: expected one of {', '.join(DECODERS)}"
                         f"{suggestion(name, DECODERS)}")
    if not colon:
        return name, DECODERS[name]
    if not DECODERS[name] or not re.fullmatch("[1-9][0-9]?", number):
        raise UsageError(f"{assigned('decoder', text)}: expected {name}"
                         f"{':L with 1 to 99 layers' * bool(DECODERS[name])}")
    return name, int(number)


def checked_delay(text):
    """Return the setting `delay` without leading zeros."""
    match = re.fullmatch("(paper:)?(none|[0-9]{1,4})", text)
    variant, steps = match.groups() if match else ("", "")
    if not match or (steps != "none" and not bool(variant) <= int(steps) <= MAX_DELAY):
        raise UsageError(f"{assigned('delay', text)}: expected none, a whole number of steps from "
                         f"0 to {MAX_DELAY}, or paper:R with R from 1")
    return f"{variant or ''}{steps if steps == 'none' else int(steps)}"
