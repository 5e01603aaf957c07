"""Views: datasets over datasets, joined, concatenated, edited, split, or cut into windows."""
