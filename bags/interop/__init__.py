"""Import and export of other formats, and uploads to the Hugging Face hub."""
