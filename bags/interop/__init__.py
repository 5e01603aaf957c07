"""Import and export of other formats: folders of media files, and WebDataset tars."""
