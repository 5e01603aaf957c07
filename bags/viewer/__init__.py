"""`bags.view`: datasets in a browser and in notebooks.

server    serves the page and one dataset on loopback, and nothing else
page      where the built page is, and how it is written elsewhere
notebook  `bags.view`
"""

__all__: list[str] = []
