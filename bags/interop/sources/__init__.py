"""The formats that `bags.convert` reads through other libraries, one module each."""
