"""A module for each command.

The functions in a module's `__all__` are commands, by their names; `PANEL` is where `bags --help` lists them.
`SETTINGS`, where there is one, is for the parser. The docstring is the command's help, and ends with
examples.
"""

__all__: list[str] = []
