"""The commands, by theme.

The docstring of a function is the help of its command, and ends with examples. Modules that take long to
import are imported in the function.
"""
