"""The formats that `bags.convert` reads through their libraries, a module each."""

__all__: list[str] = []
