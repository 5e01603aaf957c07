"""Repositories of the Hugging Face hub: uploads and dataset cards."""
