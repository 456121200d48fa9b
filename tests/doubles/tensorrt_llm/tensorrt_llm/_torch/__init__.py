"""Parts of the PyTorch back-end."""
