"""`bags.view`: datasets in a browser and in notebooks.

server    serves the page and one dataset on loopback, and nothing else
page      the location of the built page, and its export
notebook  `bags.view`
"""
