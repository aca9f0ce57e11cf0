"""Results that several tests, or all ranks of this process, compare with: computed once."""
import hashlib
import pickle
from functools import wraps


def once(function):
    """Call a function once for arguments of equal content; each caller gets its own copy.

    What a test has patched for a while is no argument: call nothing here that depends on it.
    """
    known = {}

    @wraps(function)
    def call(*arguments):
        key = hashlib.sha256(pickle.dumps(arguments)).digest()
        if key not in known:
            known[key] = pickle.dumps(function(*arguments))
        return pickle.loads(known[key])

    return call
