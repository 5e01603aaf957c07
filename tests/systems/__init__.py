"""Plugins that take from Python what it lacks on another system: `pytest -p tests.systems.windows tests/bag`.

They change `os` and other modules before the library is imported. Processes that tests start lack nothing.
"""


def remove(module, names):
    """Deletes the names that a module has."""
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
