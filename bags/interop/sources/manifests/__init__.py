"""Manifests: tables that list files by path, and the manifests of NeMo and Lhotse."""
