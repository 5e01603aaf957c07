"""Datasets: folders of bags, one bag for each field."""
