"""A module for each command.

The functions in a module's `__all__` are commands of the same name; `PANEL` is where `bags --help` lists
them, and `SETTINGS` is for the parser. The docstring of a function is its help, and ends with examples.
Modules that take long to import are imported in the function.
"""

__all__: list[str] = []
