"""Datasets: folders of bags, one bag for each field."""

__all__: list[str] = []
