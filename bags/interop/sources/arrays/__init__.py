"""HDF5, Zarr and .npz files."""
