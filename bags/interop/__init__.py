"""Other formats in and out: folders of media files and WebDataset tars."""

__all__: list[str] = []
