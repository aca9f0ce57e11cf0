"""Search by patterns for docstrings, comments and pages that are hard to read.

Exit 1 if any is found.

Usage: python scripts/check_prose.py [FOLDER ...] (default: the folders in ROOMS, and all pages)
"""
import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ["hpgcn", "kernels", "datasets", "scripts", "tests"]
MOST_WORDS = 25  # words of a sentence
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MOST_COLUMNS = {"README.md": 110}  # columns of a line of a page
PAGE_MEDIAN, PAGE_P90 = 18, 28  # words of a page's sentences: the median, the 90th percentile

VERBS = set(re.findall(r"\w+", """
    Abort Accept Accumulate Add Adjust Aggregate Align Allocate Allreduce Answer Append Apply
    Assert Assign Attach Attend Balance Become Begin Bind Book Bound Break Bring Build Bypass Cache
    Calculate Call Cancel Change Check Choose Clean Clear Close Collect Combine Compare Compile
    Complete Compress Compute Concatenate Configure Connect Context Continue Convert Copy
    Correct Corrupt Count Create Cut Damage Deal Decide Decode Decompress Decrease Define Delete
    Derive Describe Detect Determine Disable Discard Distribute Divide Do Draw Drop Emit Emulate
    Enable Encode End Enqueue Ensure Enter Escape Estimate Evaluate Exchange Execute Exit Expand
    Expect Export Extend Extract Fail Fetch Fill Find Finish Fit Flush Force Forecast Form Format
    Forward Free Freeze Gather Generate Get Give Go Group Grow Guess Handle Hash Hide Hold Ignore
    Import Increase Index Initialize Insert Inspect Install Interpolate Invert Iterate Join Keep
    Label
    Launch Leave Let Like Limit Link List Listen Load Lock Log Look Lower Make Map Mark Match
    Measure Merge Minimize Mix Mock Model Move Multiply Name Normalize Note Notify Number Occupy
    Open Order Pack Pad Pair Parse Partition Pass Patch Pause Perform Permute Pin Place Plan Plot
    Poll Predict Prefetch Prepare Print Process Propagate Prove Provide Prune Pull Push Put Query
    Queue Raise Read Rebuild Receive Record Redo Reduce Refine Refuse Register Reject Relabel
    Release Remove Rename Renumber Reorder Repeat Replace Replay Report Require Reserve Reset
    Resolve Restore Restrict Resume Return Reuse Reverse Round Run Sample Save Scale Scan Scatter
    Scramble Search Seek Select Send Serve Set Shift Show Shrink Shuffle Shut Simulate Skip Sleep
    Slice Solve Sort Split Stage Start Step Stop Store Strip Substitute Subtract Sum Support Swap
    Switch Synchronize Take Test Time Touch Trace Track Train Transform Translate Transpose Truncate
    Try Turn Unpack Unpickle Update Use Validate Verify Visit Wait Walk Warm Warn Wrap Write Yield
    Zero
    """))
RIDDLE = re.compile(r"(?:What|Where|Which|Whether|How|As|Within|Whoever)\b")
PATTERNS = {
    "amount": re.compile(r"\b(?:as|so) many\b", re.IGNORECASE),
    "is none": re.compile(r"\b(?:is|are) none\b"),
    "trailing": re.compile(r", (?:too|alone|beside|then)(?=[.;:,)]|\s*$)|"
                           r"\b(?:but for|meanwhile|by and by)\b"),
    "person": re.compile(r"\b(?:tells?|told|asks?|asked|knows?|knew|who|whom|whoever|nobody)\b",
                         re.IGNORECASE)}
END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<! al\.)(?<! Sci\.)\s+")
NO_PROSE = re.compile(r"\s*(?:>>>|\.\. |\||Sources?: )|    ")
SECTION = re.compile(r"^ *(?:Parameters|Returns|Yields|Raises|Attributes|Examples?|References|"
                     r"See Also|Notes|Warns) *\n *-{3,}", re.MULTILINE)


def is_property(node):
    """Return whether a function is a property, whose docstring may be a noun."""
    return any("property" in ast.unparse(each) for each in node.decorator_list)


def docstrings(tree):
    """Yield (line, docstring, required beginning) of documented nodes.

    The beginning is "verb", "noun" or "any".
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                begin = "noun"
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    free = is_property(node) or node.name.startswith("test_")
                    begin = "any" if free else "verb"
                yield node.body[0].lineno, text, begin


def comments(text):
    """Yield (line, text) of each comment.

    Comments that fill adjacent lines count as one.
    """
    block, previous = None, None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        line, column = token.start
        words = token.string.lstrip("# ").strip()
        own = not token.line[:column].strip()
        if block and own and previous == (line - 1, column):
            block[1] += f" {words}"
        else:
            if block:
                yield tuple(block)
            block = [line, words]
        previous = (line, column) if own else None
    if block:
        yield tuple(block)


def sentences(text):
    """Yield the sentences of a text; skip numpydoc sections, code and tables."""
    prose = SECTION.split(text)[0]
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
        if not NO_PROSE.match(paragraph) and "  " not in paragraph.strip():
            yield from re.split(END, " ".join(paragraph.split()))


def findings(text):
    """Yield (line, kind, sentence) for each fault in the text of a Python file."""
    texts = []
    for line, docstring, begin in docstrings(ast.parse(text)):
        texts.append((line, docstring))
        summary = re.sub("`[^`]*`", "", docstring.split("\n\n")[0])
        if re.search(r"\bwhat\b", summary):
            yield line, "what", summary
        first = re.split(r"[\s,;:.]", docstring, maxsplit=1)[0]
        if docstring.startswith("See `"):
            yield line, "see", docstring
        elif first.startswith("Of"):
            continue
        elif (begin == "verb" and first not in VERBS) or (begin == "noun"
                                                          and RIDDLE.match(docstring)):
            yield line, "headless", docstring
    for line, comment in comments(text):
        if comment.startswith("of "):
            yield line, "of first", comment
        texts.append((line, comment))
    for line, prose in texts:
        for sentence in sentences(prose):
            if re.match(r"Of\b", sentence):
                yield line, "of first", sentence
            if len(re.findall(r"[A-Za-z]\S*", sentence)) > MOST_WORDS:
                yield line, "long", sentence
            yield from ((line, kind, sentence) for kind, pattern in PATTERNS.items()
                        if pattern.search(re.sub("`[^`]*`", "", sentence)))


def page_sentences(text):
    """Return the sentences of a Markdown page; skip headings, code and tables."""
    text = re.sub(r"```.*?```|<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^(?:#|\||    (?! *(?:[-*]|\d+\.) )).*$", "\n", text, flags=re.MULTILINE)
    found = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        block = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", block)
        block = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", block)
        block = re.sub(r"`[^`]*`", "CODE", " ".join(block.split()))
        found += re.split(r"(?<=[.!?:])(?<! al\.)[)\"*]*\s+(?=[A-Z(\"*\d])", block)
    return [sentence for sentence in found if re.search(r"\w", sentence)]


def page_findings(text, columns=120):
    """Yield (line, kind, text) for each fault in a Markdown page."""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > columns:
            yield number, "wide", line
    lengths = sorted(len(re.findall(r"\S*\w\S*", each)) for each in page_sentences(text))
    if not lengths:
        return
    median, most = statistics.median(lengths), lengths[int(.9 * (len(lengths) - 1))]
    if median > PAGE_MEDIAN:
        yield 1, "long median", f"{median} words"
    if most > PAGE_P90:
        yield 1, "long sentences", f"{most} words at 90%"


def report(path, found):
    """Print the findings in a file, one a line, sorted; return their kinds."""
    found = sorted(found)
    for line, kind, text in found:
        print(f"{path.relative_to(ROOT)}:{line}: {kind}: {' '.join(text.split())[:200]}")
    return [kind for _, kind, _ in found]


def main(folders):
    """Print the faults in the .py files of `folders`, or everywhere.

    Print and return the count of each kind.
    """
    counts = Counter()
    for path in [] if folders else PAGES:
        columns = MOST_COLUMNS.get(path.relative_to(ROOT).as_posix(), 120)
        counts.update(report(path, page_findings(path.read_text(), columns)))
    for folder in folders or ROOMS:
        paths = [ROOT / folder] if folder.endswith(".py") else sorted((ROOT / folder).rglob("*.py"))
        for path in paths:
            counts.update(report(path, findings(path.read_text())))
    print(*(f"{kind}: {count}" for kind, count in counts.most_common()), sep="\n")
    return counts


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
